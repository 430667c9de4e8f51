//! Agents behind a boundary without a network: the key stays outside, the model is reached through
//! the lane gateway alone, and git works.

use mini_ork_testkit::{ModelServer, Tokens, Turn, assert_no_secret, checkout_state, wait_for};

use super::boundary::Boundary;
use super::{ANTHROPIC, CLAUDE, CODEX, Kind, LIMIT, OPENCODE, code_fix, world};
use crate::support::{assert_owned, text};

/// What the agent does with its tool: it looks with git, waits until the test has looked for the
/// key, and works.
const WORK: &str = "set -e; test -z \"$(git status --porcelain)\"; \
    git log --oneline | grep -q first; git blame answer | grep -q 41; \
    : > begun; until test -e go; do sleep 0.05; done; rm begun go; \
    echo 42 > answer; git commit -qam 'the answer'; \
    test \"$(git log --oneline | grep -c .)\" = 2";

fn publishes_inside(kind: Kind, boundary: impl FnOnce(&super::World) -> Option<Boundary>) {
    let work = [Turn::run(WORK), Turn::text("The answer is 42 now.")]
        .into_iter()
        .enumerate()
        .map(|(index, turn)| turn.tokens(Tokens::new(1000 + index as u64, 17).cached(300, 40)));
    let server = ModelServer::start_tls(code_fix(work));
    let Some(world) = world(kind, &server) else {
        return;
    };
    let Some(boundary) = boundary(&world) else {
        return;
    };
    let before = checkout_state(world.repo().path());
    let run = world.run(&server, "code-fix");
    let running = boundary.around(run, kind).spawn();
    let worktree = || {
        Some(
            world
                .env
                .run_directory(&world.env.runs().pop()?)
                .join("worktree"),
        )
    };
    wait_for("tool of the agent", LIMIT, || {
        worktree().is_some_and(|worktree| worktree.join("begun").exists())
    });
    let private = boundary.private_directories();
    let mut searched = vec![world.env.root()];
    searched.extend(private.iter().map(std::path::PathBuf::as_path));
    assert_no_secret(server.key(), &searched);
    fs_err::write(worktree().unwrap().join("go"), "").unwrap();

    let output = running.wait().expect(0);
    let view = output.json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    let branch = text(&view, "branch");
    assert_eq!(world.repo().show(branch, "answer"), "42\n");
    for request in server.requests() {
        assert!(request.dialect.is_none() || request.contains(server.key()));
    }
    assert_eq!(world.recorded(), server.dealt());
    world.assert_clean(&server, &output);
    assert_eq!(checkout_state(world.repo().path()), before);
    world.repo().git(["fsck", "--strict"]);
    let own = rustix::process::geteuid().as_raw();
    assert_owned(&world.env.run_directory(text(&view, "run")), own);
    assert_owned(world.repo().path(), own);
    boundary.assert_nothing_is_left(&world);
}

#[test]
fn bc_42_the_built_in_agent_publishes_from_a_container() {
    publishes_inside(ANTHROPIC, |_| Boundary::container(ANTHROPIC));
}

#[test]
fn bc_42_claude_publishes_from_a_container() {
    publishes_inside(CLAUDE, |_| Boundary::container(CLAUDE));
}

#[test]
fn bc_42_codex_publishes_from_a_container() {
    publishes_inside(CODEX, |_| Boundary::container(CODEX));
}

#[test]
fn bc_42_opencode_publishes_from_a_container() {
    publishes_inside(OPENCODE, |_| Boundary::container(OPENCODE));
}

#[test]
fn bc_42_the_built_in_agent_publishes_when_it_is_confined() {
    publishes_inside(ANTHROPIC, Boundary::confined);
}

#[test]
fn bc_42_claude_publishes_when_it_is_confined() {
    publishes_inside(CLAUDE, Boundary::confined);
}

#[test]
fn bc_42_codex_publishes_when_it_is_confined() {
    publishes_inside(CODEX, Boundary::confined);
}

#[test]
fn bc_42_opencode_publishes_when_it_is_confined() {
    publishes_inside(OPENCODE, Boundary::confined);
}
