//! The agent does a piece of work.

use mini_ork_node::agent::{AGENT_ARGUMENT, AGENT_TOKEN_VARIABLE, AgentEvent, EndReason};
use mini_ork_node::model::TokenUsage;
use mini_ork_testkit::{Act, Dialect, Tokens, Turn};

use super::support::{Desk, program};

fn repair() -> Vec<Turn> {
    vec![
        Turn::acts([
            Act::Read("calc.py".to_owned()),
            Act::Run("cat calc.py".to_owned()),
        ])
        .saying("I look first.")
        .thinking("Where is it?")
        .tokens(Tokens::new(1000, 50).cached(200, 300)),
        Turn::acts([Act::Edit {
            path: "calc.py".to_owned(),
            old: "a - b".to_owned(),
            new: "a + b".to_owned(),
        }]),
        Turn::acts([
            Act::Run("grep -q 'a + b' calc.py && echo good".to_owned()),
            Act::Finish("The sum is right.".to_owned()),
        ]),
    ]
}

fn assert_repaired(desk: &Desk, done: &super::support::Done) {
    assert_eq!(desk.read("calc.py"), "def add(a, b):\n    return a + b\n");
    done.assert_ended(EndReason::Finished, "done");
    assert_eq!(done.end.answer, "The sum is right.");
    assert_eq!(done.end.turns, 3);
    let results = done.results();
    assert_eq!(results[1], (true, "def add(a, b):\n    return a - b\n"));
    assert_eq!(results[3], (true, "good\n"));
    let statuses: Vec<_> = desk.server.requests().iter().map(|r| r.status).collect();
    assert_eq!(statuses, [Some(200); 3]);
}

#[test]
fn the_loop_outside_and_its_tools_inside_put_a_file_right() {
    for dialect in Dialect::ALL {
        let desk = Desk::turns(repair());
        let done = desk.work(dialect);
        assert_repaired(&desk, &done);
    }
}

#[test]
fn a_program_with_loop_and_tools_puts_a_file_right() {
    for dialect in Dialect::ALL {
        let desk = Desk::turns(repair());
        let done = desk.run(dialect);
        assert_repaired(&desk, &done);
        assert!(done.events.contains(&AgentEvent::Text {
            text: "I look first.".to_owned()
        }));
    }
}

#[test]
fn what_the_vendor_counted_is_told_to_the_token() {
    for dialect in Dialect::ALL {
        let desk = Desk::turns(repair());
        let done = desk.work(dialect);
        let mut told = TokenUsage::default();
        for event in &done.events {
            if let AgentEvent::Usage { usage } = event {
                let usage = usage.unwrap();
                told.input += usage.input;
                told.cache_read += usage.cache_read;
                told.cache_write += usage.cache_write;
                told.output += usage.output;
            }
        }
        let dealt = desk.server.dealt();
        assert_eq!(
            (told.input, told.cache_read, told.cache_write, told.output),
            (
                dealt.input,
                dealt.cache_read,
                dealt.cache_write,
                dealt.output
            )
        );
    }
}

#[test]
fn a_word_without_a_tool_is_the_last() {
    for dialect in Dialect::ALL {
        let desk = Desk::turns([Turn::text("It is right already.\n")]);
        let done = desk.work(dialect);
        done.assert_ended(EndReason::Answered, "done");
        assert_eq!(done.end.answer, "It is right already.");
    }
}

#[test]
fn commands_do_not_get_the_token() {
    let desk = Desk::turns([
        Turn::run("env; cat /proc/self/environ | tr '\\0' '\\n'"),
        Turn::text("done"),
    ]);
    let done = desk.run(Dialect::Chat);
    let (ok, output) = done.results()[0];
    assert!(ok && output.contains("PATH="));
    // Whoever looks for what the agent started finds what its commands started.
    assert!(output.contains("MO_RUN_MARKER=outer/"));
    assert!(!output.contains(AGENT_TOKEN_VARIABLE));
}

#[test]
fn what_is_started_wrongly_says_so() {
    let desk = Desk::turns([]);
    let spec = serde_json::to_string(&desk.spec(Dialect::Chat)).unwrap();
    let cases = [
        ("{}", Some("token"), "Do it.", "missing field"),
        (spec.as_str(), None, "Do it.", "MO_AGENT_TOKEN is not set"),
        (spec.as_str(), Some("token"), " \n", "the prompt is empty"),
        (
            spec.as_str(),
            Some("tok\nen\u{1}"),
            "Do it.",
            "could not reach",
        ),
    ];
    for (spec, token, prompt, message) in cases {
        let mut command = program();
        command
            .args([AGENT_ARGUMENT, spec])
            .current_dir(desk.root());
        if let Some(token) = token {
            command.env(AGENT_TOKEN_VARIABLE, token);
        }
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // It may have ended before it read anything.
        let _ = std::io::Write::write_all(&mut stdin, prompt.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let done = desk.read_events(&output.stdout);
        assert!(done.end.message.contains(message), "{:?}", done.end);
    }
    assert_eq!(desk.server.requests().len(), 0);
}
