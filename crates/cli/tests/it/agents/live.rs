//! What people see of an agent that asks a model, while it works and afterwards.

use mini_ork_testkit::wait_for;
use serde_json::Value;

use super::canary::Waiting;
use super::{ANTHROPIC, CLAUDE, CODEX, Kind, LIMIT};
use crate::support::text;

/// Some agents show the shell's quotes around the command.
fn tells_the_command(shown: &str) -> bool {
    let mut lines = shown.lines();
    lines.any(|line| line.contains("runs ") && line.contains("touch "))
}

#[track_caller]
fn is_told_in_few_words(kind: Kind) {
    let Some(waiting) = Waiting::new(kind) else {
        return;
    };
    let running = waiting.start();
    let world = &waiting.world;
    let followed = world.env.mini_ork(["logs", "@", "--follow"]).spawn();
    wait_for("tool in the logs", LIMIT, || {
        tells_the_command(&followed.stdout_so_far())
    });
    wait_for("tool in the status", LIMIT, || {
        let status = world.env.mini_ork(["status"]).run().expect(0).text();
        assert!(!status.contains("{\""), "{status}");
        tells_the_command(&status)
    });
    waiting.go_on();
    let view = running.wait().expect(0).json();
    let followed = followed.wait().expect(0);
    let run = text(&view, "run");
    let shown = world
        .env
        .mini_ork(["logs", run, "implementer"])
        .run()
        .expect(0);
    let shown = shown.text();
    let place = |words: &str| {
        let place = shown.find(words);
        place.unwrap_or_else(|| panic!("no {words} in {shown}"))
    };
    assert!(place("→ runs ") < place("The answer is 42 now."), "{shown}");
    assert!(!shown.contains("{\""), "{shown}");
    assert!(followed.text().contains(&shown), "{}", followed.text());

    let raw = world
        .env
        .mini_ork(["logs", run, "implementer", "--raw"])
        .run()
        .expect(0);
    let events: Vec<Value> = raw
        .text()
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    assert!(
        events.len() >= 3 && events.iter().all(Value::is_object),
        "{}",
        raw.text()
    );
}

#[test]
fn the_built_in_agent_is_told_in_few_words() {
    is_told_in_few_words(ANTHROPIC);
}

#[test]
fn claude_is_told_in_few_words() {
    is_told_in_few_words(CLAUDE);
}

#[test]
fn codex_is_told_in_few_words() {
    is_told_in_few_words(CODEX);
}
