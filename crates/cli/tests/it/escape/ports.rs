//! Runs and nodes beside each other that would be in each other's way.

use std::path::PathBuf;
use std::time::Duration;

use mini_ork_testkit::{Call, Lane, TestEnv, wait_for};

use super::{RUN, confined, containers, lane, namespaces};
use crate::support::{fan_recipe, lines_of, new_env, text};

/// Serves its own name on a port that all runs want, and reads it there once all of them serve.
const SERVE: &str = "set -e\n\
     echo $MINI_ORK_RUN_ID > $HOME/name\n\
     busybox nc -l -p 3000 < $HOME/name > /dev/null &\n\
     echo up > $MO_OUTPUT_DIR/../serving\n\
     while ! test -e $MO_OUTPUT_DIR/../go; do sleep 0.05; done\n\
     test \"$(busybox nc 127.0.0.1 3000 < /dev/null)\" = $MINI_ORK_RUN_ID\n\
     echo 42 > answer\n";
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn bc_76_two_runs_in_containers_serve_on_one_port() {
    let Some(world) = containers() else {
        return;
    };
    world.lane(SERVE);
    assert_both_serve(&world.env, || world.run());
    world.assert_nothing_is_left();
}

#[test]
fn bc_76_two_runs_in_namespaces_serve_on_one_port() {
    let Some(env) = namespaces() else {
        return;
    };
    lane(&env, SERVE);
    assert_both_serve(&env, || confined(env.mini_ork(RUN)));
    env.assert_no_process();
}

fn assert_both_serve<'a>(env: &TestEnv, call: impl Fn() -> Call<'a>) {
    let runs = [call().spawn(), call().spawn()];
    let serving = || -> Vec<PathBuf> {
        let runs = env.runs().into_iter();
        let nodes = runs.flat_map(|run| fs_err::read_dir(env.run_directory(&run).join("nodes")));
        let attempts = nodes
            .flatten()
            .flatten()
            .map(|node| node.path().join("1.1"));
        attempts
            .filter(|attempt| attempt.join("serving").exists())
            .collect()
    };
    wait_for("both to serve", PATIENCE, || serving().len() == 2);
    for attempt in serving() {
        fs_err::write(attempt.join("go"), "").unwrap();
    }
    for run in runs {
        let view = run.wait().expect(0).json();
        assert_eq!(text(&view, "status"), "published", "{view:#}");
    }
}

/// Containers that nodes make by one compose file get names by it.
#[test]
fn bc_76_nodes_beside_each_other_have_compose_projects_of_their_own() {
    let env = new_env();
    env.repo("repo", crate::support::PROJECT);
    env.kickoff("The answer is wrong", &[crate::support::CHECK]);
    fan_recipe(&env, &["first_writer", "second"], "");
    let names = env.root().join("names");
    let work = format!(
        "cat > /dev/null; echo $COMPOSE_PROJECT_NAME >> {}; echo x > by-$MO_NODE_ID",
        names.display()
    );
    env.lanes(&[("default", Lane::Shell(&work))]);
    for _ in 0..2 {
        let call = env.mini_ork(["run", "fan", "--json", "--repo", "repo", "kickoff.md"]);
        call.env("COMPOSE_PROJECT_NAME", "of-the-user")
            .run()
            .expect(0);
    }
    let mut names = lines_of(&names);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 4, "{names:?}");
    for name in names {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        assert!(name.bytes().all(plain) && name.len() < 100, "{name}");
        assert!(!name.starts_with('-'), "{name}");
    }
}
