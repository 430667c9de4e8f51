//! Each agent carries `code-fix` through to a branch.

use mini_ork_testkit::{ModelServer, Tokens};

use super::{
    ANTHROPIC, CHAT, CLAUDE, CODEX, Kind, OPENCODE, RESPONSES, code_fix, right_answer, world,
};
use crate::support::{node, text};

/// A run with one lane of `kind` ends on a branch with the right answer; its calls are on record
/// to the token, and the key is in nothing that the run left.
#[track_caller]
fn publishes(kind: Kind) {
    let work = right_answer()
        .into_iter()
        .enumerate()
        .map(|(index, turn)| turn.tokens(Tokens::new(1000 + index as u64, 17).cached(300, 40)));
    let server = ModelServer::start_tls(code_fix(work));
    let Some(world) = world(kind, &server) else {
        return;
    };
    let output = world.run(&server, "code-fix").run().expect(0);
    let view = output.json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    let branch = text(&view, "branch");
    assert_eq!(world.repo().show(branch, "answer"), "42\n");
    assert_eq!(text(node(&view, "implementer"), "lane"), "only");

    let requests = server.requests();
    assert!(!requests.is_empty());
    for request in requests.iter().filter(|request| request.dialect.is_some()) {
        assert_eq!(request.dialect, Some(kind.dialect));
        assert!(request.contains(server.key()), "the gateway adds the key");
    }
    assert_eq!(world.recorded(), server.dealt());
    world.assert_clean(&server, &output);
    world.env.assert_no_process();
}

#[test]
fn claude_publishes() {
    publishes(CLAUDE);
}

#[test]
fn codex_publishes() {
    publishes(CODEX);
}

#[test]
fn opencode_publishes() {
    publishes(OPENCODE);
}

#[test]
fn the_built_in_agent_publishes_on_the_messages_api() {
    publishes(ANTHROPIC);
}

#[test]
fn the_built_in_agent_publishes_on_chat_completions() {
    publishes(CHAT);
}

#[test]
fn the_built_in_agent_publishes_on_the_responses_api() {
    publishes(RESPONSES);
}
