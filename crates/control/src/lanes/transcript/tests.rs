use mini_ork_node::model::FailureClass;
use proptest::prelude::*;

use super::{AgentFailureKind, Conclusion, Entry, EntryKind, TranscriptParser};
use crate::lanes::model::Driver;

const CLAUDE: &str = include_str!("recordings/claude.jsonl");
const CLAUDE_REFUSED: &str = include_str!("recordings/claude-refused.jsonl");
const CODEX: &str = include_str!("recordings/codex.jsonl");
const CODEX_REFUSED: &str = include_str!("recordings/codex-refused.jsonl");
const CODEX_CUT: &str = include_str!("recordings/codex-cut.jsonl");
const OPENCODE: &str = include_str!("recordings/opencode.jsonl");
const OPENCODE_REFUSED: &str = include_str!("recordings/opencode-refused.jsonl");
const OPENCODE_CUT: &str = include_str!("recordings/opencode-cut.jsonl");
const BUILT_IN: &str = include_str!("recordings/built-in.jsonl");

const ALL: [(Driver, &str); 9] = [
    (Driver::ClaudeCode, CLAUDE),
    (Driver::ClaudeCode, CLAUDE_REFUSED),
    (Driver::Codex, CODEX),
    (Driver::Codex, CODEX_REFUSED),
    (Driver::Codex, CODEX_CUT),
    (Driver::Opencode, OPENCODE),
    (Driver::Opencode, OPENCODE_REFUSED),
    (Driver::Opencode, OPENCODE_CUT),
    (Driver::BuiltIn, BUILT_IN),
];
const DRIVERS: [Driver; 4] = [
    Driver::ClaudeCode,
    Driver::Codex,
    Driver::Opencode,
    Driver::BuiltIn,
];

fn read(driver: Driver, pieces: &[&[u8]]) -> (Vec<Entry>, Conclusion) {
    let mut parser = TranscriptParser::new(driver);
    let mut entries: Vec<Entry> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
    let (last, conclusion) = parser.finish();
    entries.extend(last);
    (entries, conclusion)
}

fn conclude(driver: Driver, text: &str) -> Conclusion {
    read(driver, &[text.as_bytes()]).1
}

fn shown(driver: Driver, text: &str) -> Vec<String> {
    let entries = read(driver, &[text.as_bytes()]).0;
    entries
        .iter()
        .map(|entry| {
            let mark = match entry.kind {
                EntryKind::Said => "",
                EntryKind::Did => "* ",
                EntryKind::Noted => "- ",
                EntryKind::Failed => "! ",
            };
            format!("{mark}{}", entry.text)
        })
        .collect()
}

#[track_caller]
fn failure(driver: Driver, text: &str) -> (AgentFailureKind, String) {
    let failure = conclude(driver, text).outcome.unwrap_err();
    (failure.kind, failure.message)
}

fn call(class: FailureClass) -> AgentFailureKind {
    AgentFailureKind::Call(Some(class))
}

#[test]
fn a_piece_of_work_of_each_agent_is_understood() {
    for (driver, text, session) in [
        (
            Driver::ClaudeCode,
            CLAUDE,
            Some("97dd1b38-dea3-48f9-ac96-9cbd1a73d8b8"),
        ),
        (
            Driver::Codex,
            CODEX,
            Some("01a22813-91bf-7dd3-b3b6-49a3cbd262fa"),
        ),
        (
            Driver::Opencode,
            OPENCODE,
            Some("ses_dd7ec5a74ffeyv60Go45EbGBmz"),
        ),
        (Driver::BuiltIn, BUILT_IN, None),
    ] {
        let found = conclude(driver, text);
        assert_eq!(found.outcome, Ok(()), "{driver:?}");
        assert_eq!(found.answer, "All done");
        assert_eq!(found.session.as_deref(), session);
        assert_eq!(found.unread_lines, 0);
        let cost = found.cost_usd.map(|cost| format!("{cost:.6}"));
        let named = (driver == Driver::ClaudeCode).then_some("0.001902");
        assert_eq!(cost.as_deref(), named, "{driver:?}");
    }
}

#[test]
fn people_see_what_was_done_in_few_words() {
    let fix = "* runs sed -i s/a-b/a+b/ calc.py";
    for (driver, text) in [
        (Driver::ClaudeCode, CLAUDE),
        (Driver::Codex, CODEX),
        (Driver::Opencode, OPENCODE),
    ] {
        assert_eq!(shown(driver, text), [fix, "All done"], "{driver:?}");
    }
    assert_eq!(
        shown(Driver::BuiltIn, BUILT_IN),
        [
            "I look first.",
            "* runs cargo test",
            "- a tool failed: exit code 101",
            "* edits src/lib.rs",
            "- the conversation was shortened",
        ]
    );
    let refused = "the vendor has no capacity";
    assert_eq!(
        shown(Driver::ClaudeCode, CLAUDE_REFUSED),
        [format!("! API Error: 400 {refused}")]
    );
    assert_eq!(
        shown(Driver::Codex, CODEX_REFUSED),
        [format!("- {refused}"), format!("! {refused}")]
    );
    assert_eq!(
        shown(Driver::Opencode, OPENCODE_REFUSED),
        [format!("! {refused}")]
    );
}

#[test]
fn tools_are_named_by_what_they_do() {
    let use_of = |name: &str, input: &str| {
        let line = format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","name":"{name}","input":{input}}}]}}}}"#
        );
        shown(Driver::ClaudeCode, &line).remove(0)
    };
    assert_eq!(use_of("Edit", r#"{"file_path":"a.rs"}"#), "* edits a.rs");
    assert_eq!(use_of("Read", r#"{"file_path":"a.rs"}"#), "* reads a.rs");
    assert_eq!(use_of("Grep", r#"{"pattern":"x+"}"#), "* looks for x+");
    assert_eq!(use_of("Bash", r#"{"command":"a\nb"}"#), "* runs a");
    assert_eq!(use_of("Odd", r#"{"x":1}"#), "* uses Odd");
    assert_eq!(use_of("Bash", "5"), "* runs");
    let long = "x".repeat(5000);
    let shown = use_of("Bash", &format!(r#"{{"command":"{long}"}}"#));
    assert!(shown.len() < 400 && shown.ends_with('…'), "{shown}");
}

#[test]
fn calls_that_fail_are_told_with_their_class() {
    for (driver, text, kind) in [
        (
            Driver::ClaudeCode,
            CLAUDE_REFUSED,
            call(FailureClass::Request),
        ),
        (Driver::Codex, CODEX_REFUSED, AgentFailureKind::Call(None)),
        (Driver::Codex, CODEX_CUT, AgentFailureKind::Call(None)),
        (
            Driver::Opencode,
            OPENCODE_REFUSED,
            call(FailureClass::Request),
        ),
        (Driver::Opencode, OPENCODE_CUT, AgentFailureKind::Call(None)),
    ] {
        assert_eq!(failure(driver, text).0, kind, "{text}");
    }
    let claude = |status: &str, text: &str| {
        let line = format!(
            r#"{{"type":"result","subtype":"success","is_error":true,"api_error_status":{status},"result":"{text}"}}"#
        );
        failure(Driver::ClaudeCode, &line).0
    };
    assert_eq!(claude("401", "x"), call(FailureClass::Auth));
    assert_eq!(claude("529", "x"), call(FailureClass::Capacity));
    assert_eq!(claude("500", "x"), call(FailureClass::Server));
    assert_eq!(
        claude("400", "Your credit balance is too low"),
        call(FailureClass::Quota)
    );
    assert_eq!(claude("null", "x"), AgentFailureKind::Call(None));
}

#[test]
fn without_a_word_of_its_end_no_agent_is_done() {
    for driver in DRIVERS {
        for text in ["", "\n\n", "not json\n", "{}\n", "[1]\n"] {
            assert_eq!(failure(driver, text).0, AgentFailureKind::NoEnd, "{text:?}");
        }
    }
    for (driver, text) in [
        (Driver::ClaudeCode, CLAUDE),
        (Driver::Codex, CODEX),
        (Driver::BuiltIn, BUILT_IN),
        (Driver::Opencode, OPENCODE),
    ] {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.pop();
        let cut = lines.join("\n");
        assert_eq!(
            failure(driver, &cut).0,
            AgentFailureKind::NoEnd,
            "{driver:?}"
        );
    }
}

#[test]
fn a_result_of_claude_is_judged_by_more_than_its_name() {
    let result = |change: (&str, &str)| {
        let text = CLAUDE.replace(change.0, change.1);
        assert_ne!(text, CLAUDE);
        failure(Driver::ClaudeCode, &text)
    };
    let reason = r#""stop_reason":"end_turn""#;
    let (kind, message) = result((reason, r#""stop_reason":null"#));
    assert_eq!(kind, call(FailureClass::Stream));
    assert_eq!(message, "its last answer was cut off");
    let (kind, _) = result((reason, r#""stop_reason":"refusal""#));
    assert_eq!(kind, call(FailureClass::Safety));
    let (kind, _) = result((reason, r#""stop_reason":"max_tokens""#));
    assert_eq!(kind, AgentFailureKind::Agent);
    let error = r#""subtype":"success","is_error":false"#;
    let (kind, message) = result((
        error,
        r#""subtype":"error_max_turns","is_error":true,"errors":["Reached maximum number of turns (1)"]"#,
    ));
    assert_eq!(kind, AgentFailureKind::Turns);
    assert_eq!(message, "Reached maximum number of turns (1)");
    let (kind, _) = result((
        error,
        r#""subtype":"error_during_execution","is_error":false"#,
    ));
    assert_eq!(kind, AgentFailureKind::Agent);
    let (kind, _) = result((error, r#""subtype":"success""#));
    assert_eq!(kind, AgentFailureKind::Call(None));
}

#[test]
fn calls_that_are_made_again_are_noted() {
    let retry = r#"{"type":"system","subtype":"api_retry","attempt":2,"max_retries":3,"error_status":529,"error":"overloaded"}"#;
    assert_eq!(
        shown(Driver::ClaudeCode, retry),
        ["- calls the model again (status 529), try 2"]
    );
    let retry = r#"{"type":"error","message":"Reconnecting... 1/3 (x)"}"#;
    let after = format!("{retry}\n{CODEX}");
    assert_eq!(shown(Driver::Codex, &after)[0], "- Reconnecting... 1/3 (x)");
    assert_eq!(conclude(Driver::Codex, &after).outcome, Ok(()));
}

#[test]
fn a_remark_of_codex_is_no_failure() {
    let remark = r#"{"type":"item.completed","item":{"id":"i","type":"error","message":"Model metadata not found"}}"#;
    let text = format!("{remark}\n{CODEX}");
    assert_eq!(conclude(Driver::Codex, &text).outcome, Ok(()));
    assert_eq!(shown(Driver::Codex, &text)[0], "- Model metadata not found");
}

#[test]
fn the_last_step_of_opencode_tells_its_end() {
    for (reason, kind) in [
        ("unknown", call(FailureClass::Stream)),
        ("length", AgentFailureKind::Agent),
        ("content-filter", call(FailureClass::Safety)),
    ] {
        let text = OPENCODE.replace(r#""reason":"stop""#, &format!(r#""reason":"{reason}""#));
        assert_eq!(failure(Driver::Opencode, &text).0, kind);
    }
    let goes_on = format!("{OPENCODE}{}\n", OPENCODE.lines().next().unwrap());
    assert_eq!(
        failure(Driver::Opencode, &goes_on).0,
        AgentFailureKind::NoEnd
    );
    let after_error = format!("{OPENCODE}{OPENCODE_REFUSED}");
    assert!(conclude(Driver::Opencode, &after_error).outcome.is_err());
}

#[test]
fn a_session_that_could_be_an_option_is_none() {
    for id in ["--help", "", "a b", "a/b", "../x", "ä", &"a".repeat(129)] {
        let line = format!(r#"{{"type":"thread.started","thread_id":"{id}"}}"#);
        assert_eq!(conclude(Driver::Codex, &line).session, None, "{id}");
    }
}

#[test]
fn junk_between_the_lines_is_counted_and_left_out() {
    let text = CODEX.replace('\n', "\nnoise \u{1b}[31m\n");
    let found = conclude(Driver::Codex, &text);
    assert_eq!(found.outcome, Ok(()));
    assert_eq!(found.unread_lines, 6);
    let mut flood = vec![b'{'; 100 << 20];
    flood.push(b'\n');
    let (entries, found) = read(Driver::Codex, &[&flood, CODEX.as_bytes()]);
    assert_eq!(found.unread_lines, 1);
    assert_eq!((found.outcome, entries.len()), (Ok(()), 2));
}

#[test]
fn an_answer_is_its_end_when_it_is_too_long() {
    let long = format!("{}END", "ü".repeat(300 << 10));
    let line =
        format!(r#"{{"type":"item.completed","item":{{"type":"agent_message","text":"{long}"}}}}"#);
    let found = conclude(Driver::Codex, &line);
    assert!(found.answer.len() <= 256 << 10);
    assert!(found.answer.ends_with("üEND"));
}

fn json() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("assistant"),
        Just("result"),
        Just("user"),
        Just("system"),
        Just("api_retry"),
        Just("item.completed"),
        Just("item.started"),
        Just("turn.completed"),
        Just("turn.failed"),
        Just("error"),
        Just("step_start"),
        Just("step_finish"),
        Just("text"),
        Just("tool_use"),
        Just("end"),
        Just("tool"),
        Just("agent_message"),
        Just("command_execution"),
        Just("file_change"),
    ];
    let key = prop_oneof![
        Just("type"),
        Just("subtype"),
        Just("item"),
        Just("part"),
        Just("message"),
        Just("content"),
        Just("usage"),
        Just("error"),
        Just("errors"),
        Just("text"),
        Just("result"),
        Just("tokens"),
        Just("session_id"),
        Just("changes"),
        Just("state"),
        Just("input"),
        Just("data"),
        Just("name"),
    ];
    let leaf = prop_oneof![
        word.prop_map(|word| format!("\"{word}\"")),
        "-?[0-9]{1,25}(\\.[0-9])?(e[0-9]{1,3})?",
        Just("null".to_owned()),
        Just("true".to_owned()),
        "\"[a-zäß☃ '-]{0,12}\"",
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((key.clone(), inner), 0..5).prop_map(|entries| {
                let entries: Vec<String> = entries
                    .iter()
                    .map(|(key, value)| format!("\"{key}\":{value}"))
                    .collect();
                format!("{{{}}}", entries.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for driver in DRIVERS {
            read(driver, &[&bytes]);
        }
    }

    #[test]
    fn any_json_is_read(lines in prop::collection::vec(json(), 0..6)) {
        let text = lines.join("\n");
        for driver in DRIVERS {
            let (entries, _) = read(driver, &[text.as_bytes()]);
            for entry in entries.iter().filter(|entry| entry.kind != EntryKind::Said) {
                prop_assert!(entry.text.lines().count() <= 1 && entry.text.len() < 400);
            }
        }
    }

    #[test]
    fn a_cut_changes_nothing(which in 0..ALL.len(), places in prop::collection::vec(0usize..4000, 0..6)) {
        let (driver, text) = ALL[which];
        let bytes = text.as_bytes();
        let mut places: Vec<usize> = places.iter().map(|place| place % (bytes.len() + 1)).collect();
        places.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for place in places {
            pieces.push(&bytes[from..place]);
            from = place;
        }
        pieces.push(&bytes[from..]);
        prop_assert_eq!(read(driver, &pieces), read(driver, &[bytes]));
    }

    #[test]
    fn a_damaged_record_is_read(which in 0..ALL.len(), at in 0usize..4000, byte in any::<u8>()) {
        let (driver, text) = ALL[which];
        let mut bytes = text.as_bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        read(driver, &[&bytes]);
    }
}
