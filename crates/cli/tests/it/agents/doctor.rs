//! `mini-ork doctor --lane`: one small call, and what to do about each way in which it fails.

use std::net::{Ipv4Addr, TcpListener};

use mini_ork_testkit::{ModelServer, Script, Trouble, Turn};
use serde_json::Value;

use super::{ANTHROPIC, CHAT, CLAUDE, CODEX, KEY, Kind, OPENCODE, RESPONSES, World, world};
use crate::support::{new_env, text};

fn examine(world: &World, server: &ModelServer, code: i32) -> Value {
    let output = world
        .mini_ork(server, &["doctor", "--lane", "only", "--json"])
        .run()
        .expect(code);
    world.assert_clean(server, &output);
    let view = output.json();
    assert_eq!(view["ok"], code == 0, "{view:#}");
    view
}

#[track_caller]
fn check<'a>(view: &'a Value, name: &str) -> &'a Value {
    let checks = view["checks"].as_array().unwrap();
    checks
        .iter()
        .find(|check| check["name"] == name)
        .unwrap_or_else(|| panic!("no check {name} in {view:#}"))
}

#[track_caller]
fn assert_check(view: &Value, name: &str, found: &str, words: &[&str]) {
    let check = check(view, name);
    assert_eq!(text(check, "found"), found, "{view:#}");
    let remedy = check["remedy"].as_str().unwrap_or_default();
    let said = format!("{}\n{remedy}", text(check, "text"));
    for words in words {
        assert!(said.contains(words), "no `{words}` in {said}");
    }
    if found == "missing" {
        assert!(!remedy.is_empty() && !said.trim().is_empty(), "{said}");
        assert_eq!(said.lines().count(), 2, "{said}");
    }
}

#[test]
fn a_lane_that_works_is_asked_once_and_says_what_it_cost() {
    for kind in [CLAUDE, CODEX, OPENCODE, ANTHROPIC, CHAT, RESPONSES] {
        let server = ModelServer::start_tls(Script::each(|_| Turn::text("yes")));
        let Some(world) = world(kind, &server) else {
            continue;
        };
        let view = examine(&world, &server, 0);
        assert_check(&view, "lane", "ok", &[kind.model, "providers.yaml"]);
        assert_check(
            &view,
            "key",
            "ok",
            &["TEST_MODEL_KEY_ONLY is in the vault", "gateway"],
        );
        let cost = if kind.model == "my-model" {
            "a price that is not known"
        } else {
            "$0.0006"
        };
        assert_check(
            &view,
            "call",
            "ok",
            &["100 tokens in, 20 out", cost, "mini-ork itself"],
        );
        if let Some(program) = kind.program {
            assert_check(&view, "program", "ok", &[program]);
            assert_check(&view, "version", "ok", &["which was tried"]);
            assert_check(&view, "call", "ok", &[&format!("without `{program}`")]);
        }
        let requests = server.requests();
        assert_eq!(requests.len(), 1, "{}", kind.yaml);
        assert!(!requests[0].contains("\"tools\""));
        assert!(
            !world.env.home().join("state.db").exists(),
            "nothing is on record"
        );
    }
}

#[track_caller]
fn fails(kind: Kind, turn: &Turn, words: &[&str]) {
    let turn = turn.clone();
    let server = ModelServer::start_tls(Script::each(move |_| turn.clone()));
    let world = world(kind, &server).unwrap();
    let view = examine(&world, &server, 1);
    assert_check(&view, "key", "ok", &[]);
    assert_check(&view, "call", "missing", words);
    assert_eq!(server.requests().len(), 1, "it is not tried again");
    let shown = world
        .mini_ork(&server, &["doctor", "--lane", "only"])
        .run()
        .expect(1)
        .text();
    assert!(shown.contains("✗ call") && shown.contains('→'), "{shown}");
}

#[test]
fn each_failure_of_a_vendor_has_a_remedy() {
    for kind in [ANTHROPIC, CHAT, RESPONSES] {
        for (turn, words) in [
            (
                Turn::trouble(Trouble::Auth),
                &["401", "`mini-ork vault set TEST_MODEL_KEY_ONLY`"][..],
            ),
            (Turn::trouble(Trouble::Quota), &["add money"]),
            (Turn::trouble(Trouble::Capacity), &["busy", "agents.yaml"]),
            (Turn::trouble(Trouble::Server), &["500", "try again later"]),
            (
                Turn::trouble(Trouble::NotFound),
                &["no-such-model", "check `model`"],
            ),
            (
                Turn::html(),
                &["not with JSON", "check `base_url` and `api`"],
            ),
            (
                Turn::redirect("https://example.com/"),
                &["not followed", "`base_url`"],
            ),
            (Turn::close(), &["did not answer", "check the network"]),
        ] {
            fails(kind, &turn, words);
        }
    }
}

#[test]
fn an_answer_that_breaks_off_is_none() {
    let turn = Turn::text("yes, and more than that, in many pieces").cut_after(3);
    fails(ANTHROPIC, &turn, &["try again later"]);
}

#[test]
fn an_exported_key_that_is_refused_is_to_be_unset() {
    let server = ModelServer::start_tls(Script::each(|_| Turn::text("yes")));
    let world = world(CHAT, &server).unwrap();
    let wrong = format!("{}-wrong-one", "exported");
    let output = world
        .mini_ork(&server, &["doctor", "--lane", "only", "--json"])
        .env(&format!("{KEY}_ONLY"), &wrong)
        .run()
        .expect(1);
    let view = output.json();
    assert!(!output.text().contains(&wrong), "{view:#}");
    assert_check(&view, "key", "ok", &["is exported"]);
    assert_check(&view, "call", "missing", &["unset it"]);
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_told() {
    let server = ModelServer::start_tls(Script::each(|_| Turn::text("yes")));
    let world = world(CHAT, &server).unwrap();
    let arguments = ["doctor", "--lane", "only", "--json"];
    let view = world.env.mini_ork(arguments).run().expect(1).json();
    assert_check(&view, "call", "missing", &["certificate", "SSL_CERT_FILE"]);
    let nothing = world.env.root().join("nothing.pem");
    let view = world
        .env
        .mini_ork(arguments)
        .env("SSL_CERT_FILE", &nothing)
        .run()
        .expect(1)
        .json();
    assert_check(&view, "call", "missing", &["SSL_CERT_FILE"]);
    assert!(server.requests().is_empty());
}

#[test]
fn a_host_that_is_not_there_is_told() {
    let server = ModelServer::start_tls(Script::each(|_| Turn::text("yes")));
    let mut world = World::new();
    assert!(world.add("only", CHAT, &server, ""));
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    for (base_url, words) in [
        (format!("http://{address}/v1"), "refused"),
        ("https://nobody.invalid/v1".to_owned(), "nobody.invalid"),
    ] {
        world.config(
            "providers.yaml",
            &format!(
                "providers:\n  only: {{kind: openai, model: m, base_url: \"{base_url}\", \
                 api_key_env: {KEY}_ONLY}}\n"
            ),
        );
        let view = examine(&world, &server, 1);
        assert_check(
            &view,
            "call",
            "missing",
            &["could not be reached", words, "`base_url`"],
        );
    }
    assert!(server.requests().is_empty());
}

#[test]
fn bc_44_without_a_key_no_call_is_made() {
    let server = ModelServer::start(Script::each(|_| Turn::text("yes")));
    let world = world(CHAT, &server).unwrap();
    let name = format!("{KEY}_ONLY");
    world.env.mini_ork(["vault", "rm", &name]).run().expect(0);
    for value in ["", " \t", "\n"] {
        let view = world
            .env
            .mini_ork(["doctor", "--lane", "only", "--json"])
            .env(&name, value)
            .run()
            .expect(1)
            .json();
        assert_check(&view, "key", "missing", &[&name, "`mini-ork vault set"]);
        assert_check(&view, "call", "note", &["no call was made"]);
    }
    assert!(server.requests().is_empty());
}

#[test]
fn the_call_has_to_fit_into_the_day() {
    let server = ModelServer::start(Script::each(|_| Turn::text("yes")));
    let world = world(ANTHROPIC, &server).unwrap();
    let view = world
        .env
        .mini_ork(["doctor", "--lane", "only", "--json"])
        .env("MO_DAILY_BUDGET_USD", "0.0001")
        .run()
        .expect(1)
        .json();
    assert_check(
        &view,
        "call",
        "missing",
        &["daily budget", "MO_DAILY_BUDGET_USD"],
    );
    assert!(server.requests().is_empty());
}

#[test]
fn a_program_is_told_when_it_is_missing_broken_or_of_another_version() {
    let server = ModelServer::start_tls(Script::each(|_| Turn::text("yes")));
    let mut world = World::new();
    assert!(world.add("only", CHAT, &server, ""));
    world.config(
        "providers.yaml",
        &format!(
            "providers:\n  only: {{kind: codex, model: m, base_url: \"{}\", api_key_env: {KEY}_ONLY}}\n",
            server.base_url(RESPONSES.dialect)
        ),
    );
    let view = examine(&world, &server, 1);
    assert_check(
        &view,
        "program",
        "missing",
        &["`codex` was not found", "PATH"],
    );
    assert_check(&view, "call", "ok", &[]);

    world
        .env
        .program_on_path("codex", "#!/bin/sh\necho codex-cli 9.8.7\n");
    let view = examine(&world, &server, 0);
    assert_check(&view, "version", "note", &["9.8.7", "0.171.0"]);

    world.env.program_on_path("codex", "#!/bin/sh\nexit 3\n");
    let view = examine(&world, &server, 1);
    assert_check(
        &view,
        "version",
        "missing",
        &["`codex --version` ended with 3"],
    );
}

#[test]
fn a_lane_with_its_key_inside_says_so() {
    let server = ModelServer::start_tls(Script::each(|_| Turn::text("yes")));
    let mut world = World::new();
    if !world.add("only", OPENCODE, &server, ", inject: env") {
        return;
    }
    let view = examine(&world, &server, 0);
    assert_check(&view, "key", "ok", &["inside of the agent (inject: env)"]);

    // What only the program itself may use is not tried.
    assert!(world.add("other", CLAUDE, &server, ", inject: env"));
    let asked = server.requests().len();
    let view = world
        .env
        .mini_ork(["doctor", "--lane", "other", "--json"])
        .run()
        .expect(0)
        .json();
    assert_check(
        &view,
        "call",
        "note",
        &["no call was made", "claude --print"],
    );
    assert_eq!(server.requests().len(), asked);
}

#[test]
fn lanes_that_ask_no_model_and_lanes_that_there_are_not() {
    let env = new_env();
    env.write(
        "home/config/providers.yaml",
        "providers:\n  mine: {kind: executable, command: [sh, -c, exit]}\n",
    );
    let view = env
        .mini_ork(["doctor", "--lane", "mine", "--json"])
        .run()
        .expect(0)
        .json();
    assert_check(&view, "call", "note", &["asks no model"]);
    let unknown = env.mini_ork(["doctor", "--lane", "mime"]).run().expect(2);
    assert!(unknown.errors().contains("`mine`"), "{}", unknown.errors());
}
