//! A round of changes: who did the work knows what it did, and nobody else is told.

use std::sync::atomic::{AtomicUsize, Ordering};

use mini_ork_testkit::{ModelServer, Received, Script, Trouble, Turn};

use super::{CHAT, CLAUDE, CODEX, Kind, OPENCODE, World, by_role};
use crate::support::{node, text};

// Planners and judges are the built-in agent: it starts in no time, and the session of an
// implementer is what these are about.

const CHANGES: &str =
    r#"{"verdict": "request_changes", "summary": "no note", "findings": ["say why in NOTES"]}"#;
/// What the implementer says in its first round; nothing that a prompt repeats.
const FIRST_WORDS: &str = "walrus-of-the-first-round";
/// Begins what only the prompt of a second round has.
const SECOND_ROUND: &str = "# Round 2";

/// A reviewer who asks for changes once. The implementer says its first words in its first round, and
/// changes what `second` does in the next.
fn script() -> Script {
    let reviews = AtomicUsize::new(0);
    Script::each(move |request| {
        if request.contains("You review a change") && reviews.fetch_add(1, Ordering::SeqCst) == 0 {
            return Turn::text(CHANGES);
        }
        by_role(request).unwrap_or_else(|| work(request.contains(SECOND_ROUND), request.results()))
    })
}

fn work(is_second: bool, results: &[String]) -> Turn {
    match (is_second, results.is_empty()) {
        (false, true) => Turn::run("echo 42 > answer").saying(FIRST_WORDS),
        (true, true) => Turn::run("echo because > NOTES").saying("Now with a note."),
        (_, false) => Turn::text("That is all."),
    }
}

/// The implementer's calls of round 2.
fn second_round(server: &ModelServer) -> Vec<Received> {
    let of_implementer = |request: &Received| {
        request.contains(SECOND_ROUND) && !request.contains("You review a change")
    };
    server
        .requests()
        .into_iter()
        .filter(of_implementer)
        .collect()
}

#[track_caller]
fn goes_on_with_its_session(kind: Kind) {
    let server = ModelServer::start_tls(script());
    let mut world = World::new();
    if !(world.add("first", kind, &server, "") && world.add("others", CHAT, &server, "")) {
        return;
    }
    world.config(
        "agents.yaml",
        "lanes:\n  default: others\n  worker: first\n",
    );
    let view = world.run(&server, "code-fix").run().expect(0).json();
    assert_eq!(node(&view, "implementer")["round"], 2, "{view:#}");
    let branch = text(&view, "branch");
    assert_eq!(world.repo().show(branch, "answer"), "42\n");
    assert_eq!(world.repo().show(branch, "NOTES"), "because\n");

    let requests = second_round(&server);
    assert!(!requests.is_empty());
    for request in requests {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        assert!(body.contains(FIRST_WORDS), "{body}");
    }
    assert_eq!(world.recorded(), server.dealt());
}

#[test]
fn claude_goes_on_with_its_session_in_the_next_round() {
    goes_on_with_its_session(CLAUDE);
}

#[test]
fn codex_goes_on_with_its_session_in_the_next_round() {
    goes_on_with_its_session(CODEX);
}

#[test]
fn opencode_goes_on_with_its_session_in_the_next_round() {
    goes_on_with_its_session(OPENCODE);
}

/// The first lane has no capacity in round 2, so another one does it: also one of the same kind
/// begins anew.
#[track_caller]
fn another_lane_begins_anew(kind: Kind) {
    let first_script = script();
    let first = ModelServer::start_tls(Script::each(move |request| {
        if request.contains(SECOND_ROUND) && !request.contains("You review a change") {
            return Turn::trouble(Trouble::Capacity).header("retry-after", "0");
        }
        first_script.turn(request)
    }));
    let second = ModelServer::start_tls(script());
    let mut world = World::new();
    let there = world.add("first", kind, &first, "")
        && world.add("second", kind, &second, "")
        && world.add("others", CHAT, &first, "");
    if !there {
        return;
    }
    world.config(
        "agents.yaml",
        "lanes:\n  default: others\n  worker: [first, second]\n",
    );
    let certificates = world.env.root().join("certificates.pem");
    let both = [first.ca_file(), second.ca_file()].map(|file| fs_err::read(file).unwrap());
    fs_err::write(&certificates, both.concat()).unwrap();
    let call = world.run(&first, "code-fix");
    let view = call
        .env("SSL_CERT_FILE", &certificates)
        .run()
        .expect(0)
        .json();
    assert_eq!(node(&view, "implementer")["round"], 2, "{view:#}");
    assert_eq!(text(node(&view, "implementer"), "lane"), "second");
    let resumed = second_round(&first);
    assert!(resumed.iter().any(|request| request.contains(FIRST_WORDS)));
    let anew = second_round(&second);
    assert!(!anew.is_empty());
    assert!(!anew.iter().any(|request| request.contains(FIRST_WORDS)));
}

#[test]
fn another_lane_of_claude_begins_anew() {
    another_lane_begins_anew(CLAUDE);
}

#[test]
fn another_lane_of_codex_begins_anew() {
    another_lane_begins_anew(CODEX);
}

#[test]
fn another_lane_of_opencode_begins_anew() {
    another_lane_begins_anew(OPENCODE);
}
