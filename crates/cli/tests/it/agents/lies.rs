//! Agents that say what is not so, and leave what should lead astray.

use std::os::unix::fs::PermissionsExt;

use mini_ork_control::run::RunEvent;
use mini_ork_testkit::{ModelServer, Script, Turn};
use serde_json::Value;

use super::{ANTHROPIC, CHAT, CLAUDE, CODEX, Kind, OPENCODE, RESPONSES, World};
use crate::support::{REPORT, journal, text};

const GOOD: &str = r#"{"type":"result","subtype":"success","is_error":false,"stop_reason":"end_turn","result":"done","session_id":"s1","num_turns":1}"#;

/// As if a call had failed with this status.
fn failed(status: u16) -> String {
    format!(
        r#"{{"type":"result","subtype":"success","is_error":true,"api_error_status":{status},"result":"API Error: {status}","session_id":"s1"}}"#
    )
}

fn print(line: &str) -> String {
    format!("printf '%s\\n' '{line}'")
}

/// A run in which a shell script with `body` is the program of `kind`, and a second lane could
/// step in; its JSON, and how often the script was started.
#[track_caller]
fn lied(kind: Kind, body: &str) -> (Value, usize) {
    let server = ModelServer::start(Script::each(|_| Turn::text("It is asked by nobody.")));
    let mut world = World::new();
    let program = world.env.bin().join(kind.program.unwrap());
    fs_err::write(&program, format!("#!/bin/sh\ncat > /dev/null\n{body}\n")).unwrap();
    fs_err::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(world.add("liar", kind, &server, ""));
    assert!(world.add("second", CHAT, &server, ""));
    world.play("[liar, second]");
    let output = world
        .env
        .mini_ork(["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"]);
    let view = output.run().expect(1).json();
    assert!(server.requests().is_empty(), "no other lane is asked");
    let mut starts = 0;
    for event in journal(&world.env, text(&view, "run")) {
        if let RunEvent::NodeStarted(start) = event {
            assert_eq!(start.lane.as_deref(), Some("liar"));
            starts += 1;
        }
    }
    world.env.assert_no_process();
    (view, starts)
}

#[track_caller]
fn assert_told(kind: Kind, body: &str, words: &str) {
    let (view, _) = lied(kind, body);
    assert_eq!(text(&view, "reason"), "command_failed", "{body}: {view:#}");
    let detail = text(&view, "detail");
    assert!(detail.contains(words), "{body}: {detail}");
    assert!(!detail.contains('\n') && detail.len() < 600, "{detail}");
}

#[test]
fn nothing_and_exit_code_0_is_no_end() {
    for kind in [CLAUDE, CODEX, OPENCODE] {
        assert_told(kind, "exit 0", "without saying that it was done");
    }
}

#[test]
fn an_exit_code_is_not_outdone_by_a_good_result() {
    assert_told(CLAUDE, &format!("{}; exit 3", print(GOOD)), "exit code 3");
    assert_told(CLAUDE, &format!("{}; kill -9 $$", print(GOOD)), "9");
}

#[test]
fn a_failed_call_that_the_gateway_never_saw_blames_nobody() {
    for status in [401, 429, 500] {
        let body = format!("{}; exit 0", print(&failed(status)));
        assert_told(CLAUDE, &body, &format!("API Error: {status}"));
    }
}

#[test]
fn the_last_word_counts() {
    let body = format!("{}; {}", print(GOOD), print(&failed(500)));
    assert_told(CLAUDE, &body, "API Error: 500");
}

#[test]
fn a_result_inside_of_an_endless_line_is_none() {
    let body = format!("head -c 20000000 /dev/zero | tr '\\0' x; {}", print(GOOD));
    assert_told(CLAUDE, &body, "without saying that it was done");
}

/// Of an agent that left links where its settings are written before its next attempt, nothing is
/// followed.
#[test]
fn settings_are_not_written_through_links() {
    let precious = tempfile::NamedTempFile::new().unwrap();
    fs_err::write(precious.path(), "precious").unwrap();
    let target = precious.path().display();
    let body = format!(
        "cd \"$CODEX_HOME\"; test ! -L config.toml || echo followed >&2; rm config.toml; \
         ln -sf '{target}' config.toml; ln -sf '{target}' config.toml.new; exit 1"
    );
    let (view, starts) = lied(CODEX, &body);
    assert!(!text(&view, "detail").contains("followed"), "{view:#}");
    assert!(starts > 1, "there was a next attempt");
    assert_eq!(fs_err::read(precious.path()).unwrap(), b"precious");
}

/// What an agent answers is its output, and not what its program printed on the way.
#[test]
fn an_answer_is_an_output_without_its_transcript() {
    for kind in [ANTHROPIC, CHAT, RESPONSES] {
        let server = ModelServer::start_tls(Script::each(|_| Turn::text(REPORT)));
        let world = super::world(kind, &server).unwrap();
        let view = world
            .run(&server, "research-synthesis")
            .run()
            .expect(0)
            .json();
        let report = world
            .env
            .run_directory(text(&view, "run"))
            .join("artifacts/report.md");
        assert_eq!(
            fs_err::read_to_string(report).unwrap().trim(),
            REPORT.trim()
        );
    }
}
