//! What agents leave behind can be removed by whoever started them.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use mini_ork_testkit::TestEnv;

use super::{RUN, confined, containers, lane, namespaces};
use crate::sandbox::in_container;
use crate::support::text;

const NOBODY: u32 = 65534;

/// Closed and read-only directories, and names that no shell likes, wherever it may write. What is
/// closed in the worktree is no work that could be taken.
fn litter(closed_in_worktree: bool) -> String {
    let closed = if closed_in_worktree { "." } else { "" };
    format!(
        "for place in $HOME $MO_OUTPUT_DIR /tmp {closed}; do\n\
         mkdir -p $place/closed/inner\n\
         touch $place/closed/inner/file\n\
         chmod 000 $place/closed/inner/file $place/closed/inner $place/closed\n\
         done\n\
         for place in $HOME $MO_OUTPUT_DIR /tmp .; do\n\
         mkdir -p $place/fixed/inner\n\
         touch $place/fixed/inner/file $place/-rf \"$place/ *\" \\\n\
         \"$place/$(printf 'a\\nb')\" \"$place/$(printf '\\377')\"\n\
         mkfifo $place/fifo\n\
         ln -s /nowhere $place/dangling\n\
         chmod 444 $place/fixed/inner/file\n\
         chmod 555 $place/fixed/inner $place/fixed\n\
         done\n\
         echo 42 > answer\n"
    )
}

/// All below `directory` is `user`'s; returns how many entries there are.
fn count_of(user: u32, directory: &Path) -> usize {
    let mut pending = vec![directory.to_owned()];
    let mut seen = 0;
    while let Some(directory) = pending.pop() {
        for entry in fs_err::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let found = fs_err::symlink_metadata(&path).unwrap();
            assert_eq!(found.uid(), user, "{}", path.display());
            seen += 1;
            if found.is_dir() {
                pending.push(path);
            }
        }
    }
    seen
}

#[track_caller]
fn assert_removed(env: &TestEnv, user: u32, run: &str) {
    let directory = env.run_directory(run);
    assert!(count_of(user, &directory) > 60, "it has left something");
    let arguments = ["clean", "--older-than", "0d", "--json"];
    let output = if user == NOBODY {
        env.mini_ork_as(NOBODY, arguments)
            .cwd(env.root().join("repo"))
    } else {
        env.mini_ork(arguments).cwd(env.root().join("repo"))
    };
    let output = output.run().expect(0);
    assert!(!directory.exists(), "{}", output.transcript());
}

fn give_to_nobody(env: &TestEnv) {
    let own = env
        .call("chown", ["-R", "65534:65534"])
        .arg(env.root())
        .run();
    own.expect(0);
}

/// Images that run as root, and as somebody else again.
#[test]
fn bc_66_an_ordinary_user_removes_what_a_container_left() {
    let Some(world) = containers() else {
        return;
    };
    world.lane(&litter(false));
    world.engine.open_to_all();
    let program = world.env.root().join("mini-ork-node");
    fs_err::copy(&world.node_program, &program).unwrap();
    give_to_nobody(&world.env);
    for user in ["0", "10001"] {
        let image = world.engine.image_with_user(&world.image, user);
        let call = world.env.mini_ork_as(NOBODY, RUN);
        let call = in_container(call, &world.engine, &image, &program);
        let view = call.run().expect(0).json();
        assert_eq!(text(&view, "status"), "published", "{view:#}");
        assert_removed(&world.env, NOBODY, text(&view, "run"));
    }
    world.lane(&litter(true));
    let call = world.env.mini_ork_as(NOBODY, RUN);
    let call = in_container(call, &world.engine, &world.image, &program);
    let view = call.run().expect(1).json();
    assert_eq!(text(&view, "reason"), "artifact_contract", "{view:#}");
    assert_removed(&world.env, NOBODY, text(&view, "run"));
    assert_eq!(world.engine.containers(), Vec::<String>::new());
}

#[test]
fn bc_66_root_removes_what_a_container_left() {
    let Some(world) = containers() else {
        return;
    };
    world.lane(&litter(false));
    let view = world.run().run().expect(0).json();
    assert_removed(
        &world.env,
        rustix::process::geteuid().as_raw(),
        text(&view, "run"),
    );
    world.assert_nothing_is_left();
}

#[test]
fn bc_66_an_ordinary_user_removes_what_namespaces_left() {
    let Some(env) = namespaces() else {
        return;
    };
    lane(&env, &litter(false));
    let own = rustix::process::geteuid();
    let (user, call) = if own.is_root() {
        give_to_nobody(&env);
        (NOBODY, env.mini_ork_as(NOBODY, RUN))
    } else {
        (own.as_raw(), env.mini_ork(RUN))
    };
    let view = confined(call).run().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    assert_removed(&env, user, text(&view, "run"));
    env.assert_no_process();
}
