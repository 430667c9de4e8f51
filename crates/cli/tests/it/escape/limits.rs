//! Why a run ended that took too much.

use mini_ork_testkit::{SmallDisk, skip};
use serde_json::Value;

use super::{RUN, confined, containers, lane, namespaces};
use crate::sandbox::World;
use crate::support::{attempt_directory, node, text};

/// `tail` keeps all of a line that does not end.
const EAT: &str = "head -c 400000000 /dev/zero | tail -n 1 > /dev/null";

/// The view of a run that has 96 MiB and takes more.
#[track_caller]
fn runs_out_of_memory(world: &World) -> Value {
    let run = world.run().env("MO_SANDBOX_MEMORY", "96M");
    let view = run.run().expect(1).json();
    assert_eq!(text(&view, "reason"), "oom", "{view:#}");
    view
}

#[test]
fn bc_69_an_agent_whose_child_takes_too_much_memory() {
    let Some(world) = containers() else {
        return;
    };
    world.lane(&format!("set -e\n{EAT}\necho 42 > answer"));
    let view = runs_out_of_memory(&world);
    let implementer = node(&view, "implementer");
    let said = implementer.to_string();
    assert!(said.contains("limit of 96 MiB"), "{said}");
    assert!(said.contains("most that was in use"), "{said}");
    // The same again would end in the same way.
    let attempt = attempt_directory(&world.env, &view, "implementer");
    assert!(attempt.ends_with("1.1"), "{}", attempt.display());
    world.assert_nothing_is_left();
}

#[test]
fn bc_69_an_agent_that_takes_too_much_memory_itself() {
    let Some(world) = containers() else {
        return;
    };
    world.lane("exec tail -n 1 /dev/zero");
    runs_out_of_memory(&world);
    world.assert_nothing_is_left();
}

/// Files in memory belong to nobody who could be ended for them, so that all of it may end.
#[test]
fn bc_69_temporary_files_that_take_too_much_memory() {
    let Some(world) = containers() else {
        return;
    };
    world.lane("set -e\nhead -c 400000000 /dev/zero > /tmp/big\necho 42 > answer");
    let view = runs_out_of_memory(&world);
    assert!(view.to_string().contains("96 MiB"), "{view:#}");
    world.assert_nothing_is_left();
}

/// Tests that could not do their work say nothing about that of the agent.
#[test]
fn bc_69_tests_that_take_too_much_memory() {
    let Some(world) = containers() else {
        return;
    };
    world.lane("echo 42 > answer");
    world
        .env
        .kickoff("The answer is wrong", &[&format!("{EAT}; exit 1")]);
    runs_out_of_memory(&world);
    world.assert_nothing_is_left();
}

#[test]
fn bc_70_a_run_in_a_container_that_fills_the_disk() {
    let Some(world) = containers() else {
        return;
    };
    let disk = world.env.root().join("disk");
    let Some(_mounted) = SmallDisk::mount(&world.env, &disk, 200) else {
        return skip("bc_70: a small disk cannot be mounted here");
    };
    let home = disk.join("home");
    world.lane(
        "if test -e $HOME/full; then echo 42 > answer; exit 0; fi\n\
         touch $HOME/full\n\
         head -c 1000000000 /dev/zero > $HOME/filler",
    );
    fs_err::create_dir_all(home.join("config")).unwrap();
    for name in ["providers.yaml", "agents.yaml"] {
        let from = world.env.home().join("config").join(name);
        fs_err::copy(from, home.join("config").join(name)).unwrap();
    }
    let view = world
        .run()
        .env("MINI_ORK_HOME", &home)
        .run()
        .expect(1)
        .json();
    assert_eq!(text(&view, "reason"), "disk_full", "{view:#}");
    // mini-ork itself goes on: it is told, freed and recovered.
    let run = text(&view, "run");
    let told = world
        .call(&["status", run, "--json"])
        .env("MINI_ORK_HOME", &home)
        .run();
    assert_eq!(text(&told.expect(0).json(), "reason"), "disk_full");
    let filler = home.join("runs").join(run).join("agents/filler");
    fs_err::remove_file(filler).unwrap();
    let recovered = world
        .call(&["recover", "--json"])
        .env("MINI_ORK_HOME", &home)
        .run();
    let recovered = recovered.expect(0).json();
    assert_eq!(text(&recovered, "status"), "published", "{recovered:#}");
    world.assert_nothing_is_left();
}

/// More processes than there may be.
const CROWD: &str =
    "i=0; while test $i -lt 400; do sleep 100 & i=$((i + 1)); done; echo 42 > answer";

#[test]
fn a_crowd_of_processes_in_a_container_ends_with_a_hint() {
    let Some(world) = containers() else {
        return;
    };
    world.lane(CROWD);
    let view = world
        .run()
        .env("MO_SANDBOX_PIDS", "80")
        .run()
        .expect(1)
        .json();
    assert_eq!(text(&view, "reason"), "command_failed", "{view:#}");
    let said = node(&view, "implementer").to_string();
    assert!(said.contains("beyond 80: MO_SANDBOX_PIDS"), "{said}");
    world.assert_nothing_is_left();
}

/// An ordinary user is held to it in namespaces as well.
#[test]
fn a_crowd_of_processes_in_namespaces_ends() {
    const NOBODY: u32 = 65534;
    let Some(env) = namespaces() else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        return skip("only root can become another user");
    }
    lane(&env, CROWD);
    let own = env
        .call("chown", ["-R", "65534:65534"])
        .arg(env.root())
        .run();
    own.expect(0);
    let call = || confined(env.mini_ork_as(NOBODY, RUN));
    let view = call().env("MO_SANDBOX_PIDS", "80").run().expect(1).json();
    assert_eq!(text(&view, "status"), "failed", "{view:#}");
    let said = node(&view, "implementer").to_string();
    assert!(said.contains("fork"), "{said}");
    let view = call().run().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    env.assert_no_process();
}
