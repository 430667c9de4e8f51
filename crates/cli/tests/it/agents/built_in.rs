//! The built-in agent in whole runs: a real crate, and models that misbehave.

use std::path::Path;

use mini_ork_testkit::{Act, ModelServer, Script, Stop, Turn};
use serde_json::Value;

use super::{ANTHROPIC, CHAT, Kind, RESPONSES, World, by_role, code_fix, world};
use crate::real_crate::{Crate, RIGHT};
use crate::support::{node, text};

#[track_caller]
fn fixes_a_real_crate(kind: Kind) {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/agents/strsim.json");
    let work = Script::recorded(recorded);
    let server = ModelServer::start_tls(Script::each(move |request| {
        by_role(request).unwrap_or_else(|| work.turn(request))
    }));
    let mut world = World::around(Crate::with_bug().env);
    world.add("only", kind, &server, "");
    world.play("only");
    let output = world.run(&server, "code-fix").run().expect(0);
    let view = output.json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    let branch = text(&view, "branch");
    assert!(world.repo().show(branch, "src/lib.rs").contains(RIGHT));
    assert_eq!(
        text(node(&view, "implementer"), "summary"),
        "1 file changed: src/lib.rs"
    );
    assert_eq!(world.recorded(), server.dealt());
    world.assert_clean(&server, &output);
}

#[test]
fn a_real_crate_is_fixed_on_the_messages_api() {
    fixes_a_real_crate(ANTHROPIC);
}

#[test]
fn a_real_crate_is_fixed_on_chat_completions() {
    fixes_a_real_crate(CHAT);
}

#[test]
fn a_real_crate_is_fixed_on_the_responses_api() {
    fixes_a_real_crate(RESPONSES);
}

/// A run of `code-fix` whose implementer is asked by `work`; its JSON, and the world.
#[track_caller]
fn misbehaves(kind: Kind, work: impl Fn(usize) -> Turn + Send + Sync + 'static) -> (World, Value) {
    let server = ModelServer::start_tls(Script::each(move |request| {
        by_role(request).unwrap_or_else(|| work(request.answers()))
    }));
    let world = world(kind, &server).unwrap();
    let output = world.run(&server, "code-fix").run();
    let view = output.json();
    world.env.assert_no_process();
    assert_eq!(world.recorded(), server.dealt());
    (world, view)
}

#[track_caller]
fn assert_ended(view: &Value, reason: &str, words: &str) {
    assert_eq!(text(view, "status"), "failed", "{view:#}");
    assert_eq!(text(view, "reason"), reason, "{view:#}");
    let detail = text(view, "detail");
    assert!(detail.contains(words), "{detail}");
    assert!(!detail.contains('\n') && detail.len() < 500, "{detail}");
}

fn call(name: &str, arguments: &str) -> Turn {
    Turn::acts([Act::Call {
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    }])
}

#[test]
fn a_tool_that_there_is_not_is_told_to_the_model() {
    for kind in [ANTHROPIC, CHAT, RESPONSES] {
        let (_, view) = misbehaves(kind, |answers| match answers {
            0 => call("teleport", "{\"to\": \"production\"}"),
            _ => Turn::text("I cannot."),
        });
        assert_ended(&view, "no_op", "it ended without a change to any file");
    }
}

#[test]
fn arguments_that_are_no_json_are_told_to_the_model() {
    for kind in [CHAT, RESPONSES] {
        let (_, view) = misbehaves(kind, |answers| match answers {
            0 => call("bash", "{\"command\": \"echo 42 > answer"),
            _ => Turn::text("I cannot."),
        });
        assert_ended(&view, "no_op", "it ended without a change to any file");
    }
}

#[test]
fn a_model_that_does_the_same_for_ever_is_ended() {
    let (_, view) = misbehaves(ANTHROPIC, |_| Turn::run("cat answer"));
    assert_ended(&view, "command_failed", "again");
}

#[test]
fn a_model_that_never_comes_to_an_end_is_ended() {
    let (_, view) = misbehaves(CHAT, |answers| Turn::run(format!("echo {answers}")));
    assert_ended(&view, "command_failed", "turns");
}

#[test]
fn a_flood_is_shortened() {
    let server = ModelServer::start_tls(code_fix([
        Turn::run("head -c 60000000 /dev/zero | tr '\\0' 'x'; echo; echo the end"),
        Turn::run("echo 42 > answer"),
        Turn::text("The answer is 42 now."),
    ]));
    let world = world(ANTHROPIC, &server).unwrap();
    world.run(&server, "code-fix").run().expect(0);
    let requests = server.requests();
    assert!(requests.iter().any(|request| request.contains("the end")));
    for request in requests {
        assert!(request.body.len() < 500_000, "{} bytes", request.body.len());
    }
}

#[test]
fn a_path_outside_of_the_workspace_is_refused() {
    let outside = std::env::temp_dir().join(format!("mo-escape-{}", std::process::id()));
    let wanted = outside.display().to_string();
    let paths = [
        wanted.clone(),
        "../escape".to_owned(),
        "../../../../../../../../etc/mo-escape".to_owned(),
    ];
    let (world, view) = misbehaves(ANTHROPIC, move |answers| match paths.get(answers) {
        Some(path) => Turn::acts([Act::Write {
            path: path.clone(),
            content: "out".to_owned(),
        }]),
        None => Turn::text("I cannot."),
    });
    assert_ended(&view, "no_op", "it ended without a change to any file");
    assert!(!outside.exists() && !Path::new("/etc/mo-escape").exists());
    let directory = world.env.run_directory(text(&view, "run"));
    assert!(!directory.join("escape").exists());
}

#[test]
fn a_refusal_ends_the_work() {
    for kind in [ANTHROPIC, CHAT] {
        let (_, view) = misbehaves(kind, |_| Turn::text("").stopped(Stop::Refusal));
        assert_ended(&view, "provider_error", "safety");
    }
}
