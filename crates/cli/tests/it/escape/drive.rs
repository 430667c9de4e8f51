//! What agents put in the place of what the control plane reads and writes.

use std::time::{Duration, Instant};

use mini_ork_testkit::{TestEnv, checkout_state};
use serde_json::Value;

use super::{RUN, confined, containers, lane, namespaces};
use crate::hostile_git::{hooks, poison};
use crate::support::text;

/// Nothing may hang: no command takes longer, whatever it finds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The places of other nodes' files, with something else in them.
const REPLACED: &[(&str, &str)] = &[
    ("fifo", "rm -rf $1; mkfifo $1"),
    ("directory", "rm -rf $1; mkdir -p $1/inner"),
    ("huge", "rm -rf $1; truncate -s 1T $1"),
    ("loop", "rm -rf $1; ln -s $1 $1"),
    ("gone", "rm -rf $1"),
];

#[test]
fn nothing_on_the_drive_of_a_container_stops_the_control_plane() {
    let Some(world) = containers() else {
        return;
    };
    for (name, script) in REPLACED {
        world.lane(&replace_all(script));
        let began = Instant::now();
        let view = world.run().run().json();
        assert_told(&world.env, name, &view, began);
    }
    world.assert_nothing_is_left();
}

/// Every file of the node itself and of those before it, and of those that come.
fn replace_all(script: &str) -> String {
    format!(
        "echo 42 > answer\n\
         replace() {{ {script}; }}\n\
         for directory in $MINI_ORK_RUN_DIR/nodes/*/1.1; do\n\
         for file in prompt.md result.json diff.patch usage.json out lane/stdout.log \
         lane/stderr.log lane/process.json; do\n\
         replace $directory/$file 2> /dev/null || true; done; done\n\
         for node in reviewer verifier publisher verify review; do\n\
         replace $MINI_ORK_RUN_DIR/nodes/$node 2> /dev/null || true; done"
    )
}

/// The run has one end, and everything that shows it comes to its own.
#[track_caller]
fn assert_told(env: &TestEnv, name: &str, view: &Value, began: Instant) {
    assert!(
        matches!(text(view, "status"), "published" | "failed"),
        "{name}: {view:#}"
    );
    let run = text(view, "run");
    for command in [
        &["status", run, "--json"][..],
        &["diff", run],
        &["recover", run, "--json"],
    ] {
        let output = env.mini_ork(command).cwd(env.root().join("repo")).run();
        assert!(
            matches!(output.code(), Some(0..=2)),
            "{name}: {}",
            output.transcript()
        );
    }
    // A huge one would be shown, as far as it goes.
    if name != "huge" {
        let output = env.mini_ork(["logs", run]).run();
        assert!(
            matches!(output.code(), Some(0..=2)),
            "{name}: {}",
            output.transcript()
        );
    }
    assert!(began.elapsed() < PATIENCE, "{name}: {:?}", began.elapsed());
}

/// Everything of git that names a program or leads elsewhere, planted in the worktree from inside.
fn plant() -> String {
    let hit = "/workspace/home/canary";
    format!(
        "{}{}{}\
         printf '* filter=evil diff=evil merge=evil\\n' > .gitattributes\n\
         printf '[submodule \"x\"]\\n\\tpath = ../x\\n\\turl = ext::sh -c \"touch canary\"\\n' > .gitmodules\n\
         git config --file .git/config include.path /workspace/home/evil.config\n\
         git config --file .git/config core.worktree /\n\
         git config --file .git/config core.hooksPath \"$PWD/.git/evil-hooks\"\n\
         echo /etc > .git/objects/info/alternates\n\
         mkdir -p .git/refs/replace sub/.git/objects\n\
         echo 1111111111111111111111111111111111111111 > .git/refs/replace/2222222222222222222222222222222222222222\n\
         echo 'gitdir: ../../../../' > sub/gitfile\n\
         mkdir nested && printf 'gitdir: /\\n' > nested/.git && echo x > nested/file\n\
         ln -s / .git/everything\n\
         echo 42 > answer\n",
        poison(".git/config", hit),
        hooks(".git/hooks", hit),
        hooks(".git/evil-hooks", hit),
    )
}

/// The host's git looks at the worktree and at the repository afterwards: nothing runs, nothing
/// changes.
#[track_caller]
fn assert_harmless(env: &TestEnv, view: &Value) {
    let run = text(view, "run");
    // Of what was planted, the agent's own calls of git may have run something, inside.
    let canary = env.run_directory(run).join("agents/canary");
    let inside = fs_err::read(&canary).unwrap_or_default();
    for command in [
        &["diff", run][..],
        &["status", run],
        &["conflicts", run],
        &["apply", run, "--dry-run"],
        &["recover", run],
    ] {
        let output = env.mini_ork(command).cwd(env.root().join("repo")).run();
        assert!(
            matches!(output.code(), Some(0..=2)),
            "{}",
            output.transcript()
        );
    }
    assert_eq!(fs_err::read(&canary).unwrap_or_default(), inside);
    assert!(!env.root().join("repo/canary").exists());
    let repo = mini_ork_testkit::Repo::at(env, &env.root().join("repo"));
    repo.git(["fsck", "--strict"]);
}

#[test]
fn bc_51_a_poisoned_git_directory_in_a_container() {
    let Some(world) = containers() else {
        return;
    };
    let before = checkout_state(world.repo().path());
    world.lane(&plant());
    let view = world.run().run().json();
    assert!(
        matches!(text(&view, "status"), "published" | "failed"),
        "{view:#}"
    );
    assert_harmless(&world.env, &view);
    assert_eq!(checkout_state(world.repo().path()), before);
    world.assert_nothing_is_left();
}

#[test]
fn bc_51_a_poisoned_git_directory_in_namespaces() {
    let Some(env) = namespaces() else {
        return;
    };
    let before = checkout_state(&env.root().join("repo"));
    let plant = plant().replace("/workspace/home", "$HOME");
    lane(&env, &plant);
    let view = confined(env.mini_ork(RUN)).run().json();
    assert!(
        matches!(text(&view, "status"), "published" | "failed"),
        "{view:#}"
    );
    assert_harmless(&env, &view);
    assert_eq!(checkout_state(&env.root().join("repo")), before);
}
