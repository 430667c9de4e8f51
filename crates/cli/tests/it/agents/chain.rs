//! When one lane cannot, another may.

use std::sync::atomic::{AtomicUsize, Ordering};

use mini_ork_control::run::RunEvent;
use mini_ork_testkit::{ModelServer, Script, Trouble, Turn};
use serde_json::Value;

use super::{ANTHROPIC, CHAT, CLAUDE, CODEX, Kind, OPENCODE, World, code_fix, right_answer};
use crate::support::{journal, node, text};

/// A server that is in `trouble` from its first call on, and tells not to wait long.
fn troubled(trouble: Trouble) -> ModelServer {
    ModelServer::start(Script::each(move |_| {
        Turn::trouble(trouble.clone()).header("retry-after", "0")
    }))
}

/// A world in which `kind` asks `first`, and the built-in agent asks a server that works.
fn two_lanes(kind: Kind, first: &ModelServer) -> Option<(World, ModelServer)> {
    let second = ModelServer::start_tls(code_fix(right_answer()));
    let mut world = World::new();
    let there = world.add("first", kind, first, "") && world.add("second", CHAT, &second, "");
    there.then(|| {
        world.config(
            "agents.yaml",
            "lanes:\n  default: second\n  planner: [first, second]\n  judge: [first, second]\n",
        );
        (world, second)
    })
}

fn lanes_of(world: &World, view: &Value, name: &str) -> Vec<String> {
    let events = journal(&world.env, text(view, "run"));
    let starts = events.into_iter().filter_map(|event| match event {
        RunEvent::NodeStarted(start) if start.node.as_str() == name => start.lane,
        _ => None,
    });
    starts.collect()
}

#[track_caller]
fn falls_back(kind: Kind) {
    let first = troubled(Trouble::Capacity);
    let Some((world, second)) = two_lanes(kind, &first) else {
        return;
    };
    let output = world.run(&second, "code-fix").run().expect(0);
    let view = output.json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    for name in ["planner", "eval"] {
        assert_eq!(lanes_of(&world, &view, name), ["first", "second"]);
        assert_eq!(text(node(&view, name), "lane"), "second");
        assert_eq!(
            node(&view, name)["instead_of"],
            serde_json::json!(["first"])
        );
    }
    // Three tries for each of the two nodes, and the agent makes no more of it.
    assert_eq!(
        first
            .requests()
            .iter()
            .filter(|request| request.dialect.is_some())
            .count(),
        6
    );
    let report = fs_err::read_to_string(
        world
            .env
            .run_directory(text(&view, "run"))
            .join("report.md"),
    )
    .unwrap();
    assert!(report.contains("second instead of first"), "{report}");
}

#[test]
fn when_claude_has_no_capacity_the_next_lane_does_it() {
    falls_back(CLAUDE);
}

#[test]
fn when_codex_has_no_capacity_the_next_lane_does_it() {
    falls_back(CODEX);
}

#[test]
fn when_opencode_has_no_capacity_the_next_lane_does_it() {
    falls_back(OPENCODE);
}

#[test]
fn when_the_built_in_agent_has_no_capacity_the_next_lane_does_it() {
    falls_back(ANTHROPIC);
}

#[track_caller]
fn does_not_fall_back(kind: Kind, trouble: Trouble) -> String {
    let first = troubled(trouble);
    let Some((world, second)) = two_lanes(kind, &first) else {
        return String::new();
    };
    let output = world.run(&second, "code-fix").run().expect(1);
    let view = output.json();
    assert_eq!(text(&view, "reason"), "provider_error", "{view:#}");
    assert_eq!(lanes_of(&world, &view, "planner"), ["first"]);
    assert!(second.requests().is_empty());
    let asked = first.requests();
    assert_eq!(
        asked
            .iter()
            .filter(|request| request.dialect.is_some())
            .count(),
        1
    );
    text(&view, "detail").to_owned()
}

#[test]
fn a_key_that_is_refused_is_told_and_nobody_else_is_asked() {
    for kind in [CLAUDE, CODEX, OPENCODE, ANTHROPIC, CHAT] {
        let detail = does_not_fall_back(kind, Trouble::Auth);
        if detail.is_empty() {
            continue;
        }
        let wanted = "the key TEST_MODEL_KEY_FIRST was refused; store a valid one with \
                      `mini-ork vault set TEST_MODEL_KEY_FIRST`";
        assert!(detail.contains(wanted), "{}: {detail}", kind.yaml);
    }
}

#[test]
fn a_bad_request_and_a_refusal_for_safety_are_cured_by_nobody() {
    for trouble in [Trouble::NotFound, Trouble::Safety, Trouble::TooLong] {
        does_not_fall_back(ANTHROPIC, trouble.clone());
        does_not_fall_back(CHAT, trouble);
    }
}

#[test]
fn an_account_without_money_is_not_asked_twice_and_another_may_have_some() {
    let first = troubled(Trouble::Quota);
    let (world, second) = two_lanes(CHAT, &first).unwrap();
    let view = world.run(&second, "code-fix").run().expect(0).json();
    assert_eq!(lanes_of(&world, &view, "planner"), ["first", "second"]);
    assert_eq!(first.requests().len(), 2, "one for each node");
}

#[test]
fn a_moment_without_capacity_is_waited_for() {
    let count = AtomicUsize::new(0);
    let work = right_answer();
    let server = ModelServer::start_tls(Script::each(move |request| {
        match count.fetch_add(1, Ordering::SeqCst) % 3 {
            0 => Turn::trouble(Trouble::Capacity).header("retry-after", "0"),
            1 => Turn::trouble(Trouble::Server).header("retry-after", "0"),
            _ => super::by_role(request).unwrap_or_else(|| work[request.answers()].clone()),
        }
    }));
    let world = super::world(ANTHROPIC, &server).unwrap();
    let view = world.run(&server, "code-fix").run().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    assert_eq!(lanes_of(&world, &view, "implementer"), ["only"]);
    assert_eq!(world.recorded(), server.dealt());
}
