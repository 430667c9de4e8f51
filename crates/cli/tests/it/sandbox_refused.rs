//! Sandboxes that cannot be had: one sentence, the remedy, nothing left, and never the host.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use mini_ork_control::reason::Status;
use mini_ork_testkit::{Call, ContainerEngine, Output, tree_state};

use crate::sandbox::{TOOLS, World, in_container};
use crate::support::{new_env, only_row, text};

const NOBODY: u32 = 65534;

/// A command that must not have run anywhere.
fn lane_that_tells(world: &World) -> std::path::PathBuf {
    let told = world.env.root().join("ran");
    world.lane(&format!("echo x > {}; echo 42 > answer", told.display()));
    told
}

#[track_caller]
fn refused(output: Output, says: &[&str]) -> Output {
    let output = output.expect(2);
    let errors = output.errors();
    for part in says {
        assert!(errors.contains(part), "{part}: {errors}");
    }
    assert!(errors.contains("hint: "), "{errors}");
    output
}

/// An image in which `change` is done to that of the world; returns its name.
fn changed_image(
    world: &World,
    name: &str,
    change: &[&str],
    copied: Option<(&Path, &str)>,
) -> String {
    let engine = &world.engine;
    engine.docker(&[
        "create",
        "--name",
        "changed",
        "--network",
        "none",
        &world.image,
        "sh",
    ]);
    if let Some((file, to)) = copied {
        engine.docker(&["cp", file.to_str().unwrap(), &format!("changed:{to}")]);
    }
    let commit: Vec<&str> = ["commit"].iter().chain(change).copied().collect();
    engine.docker(&[&commit[..], &["changed", name]].concat());
    engine.docker(&["rm", "changed"]);
    name.to_owned()
}

/// The engine makes the container and cannot start it.
#[test]
fn bc_04_a_container_that_cannot_start_is_removed() {
    let Some(world) = World::new() else {
        return;
    };
    let told = lane_that_tells(&world);
    // A file where a directory has to be.
    let file = world.env.write("file", "");
    let image = changed_image(&world, "cannot-start", &[], Some((&file, "/opt")));
    for _ in 0..20 {
        let output = world.run().env("MO_SANDBOX_IMAGE", &image).run();
        refused(output, &["could not start the container"]);
        assert_eq!(world.engine.containers(), Vec::<String>::new());
    }
    let listed = world
        .call(&["sandbox", "ls", "--json"])
        .run()
        .expect(0)
        .json();
    let sandboxes = listed["sandboxes"].as_array().unwrap();
    assert_eq!(sandboxes.len(), 20);
    for sandbox in sandboxes {
        assert_eq!(text(sandbox, "state"), "released");
        assert!(text(sandbox, "reason").starts_with("it could not be started"));
    }
    let runs = world
        .call(&["runs", "--json", "-n", "0"])
        .run()
        .expect(0)
        .json();
    for run in runs["runs"].as_array().unwrap() {
        assert_eq!(text(run, "status"), "failed");
        assert_eq!(text(run, "reason"), "backend_unavailable");
    }
    assert!(!told.exists());
    world.assert_nothing_is_left();

    // What the image would run by itself does not matter.
    let missing = r#"ENTRYPOINT ["/missing"]"#;
    let image = changed_image(&world, "no-entrypoint", &["--change", missing], None);
    world.lane("echo 42 > answer");
    let view = world
        .run()
        .env("MO_SANDBOX_IMAGE", image)
        .run()
        .expect(0)
        .json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    world.assert_nothing_is_left();
}

/// The name is taken by a container of somebody else, which is left alone.
#[test]
fn bc_04_a_container_of_another_with_the_same_name() {
    let Some(world) = World::new() else {
        return;
    };
    world.lane("echo 42 > answer");
    let begun = world.run().env("MO_FAULT", "run-recorded");
    begun.run().expect_killed();
    let run = only_row(&world.env).run;
    let name = format!("mini-ork-{run}");
    let create = [
        "create",
        "--name",
        &name,
        "--network",
        "none",
        &world.image,
        "sh",
    ];
    world.engine.docker(&create);
    for _ in 0..3 {
        let output = world.call(&["recover"]).run();
        refused(
            output,
            &[&format!(
                "there is a container `{name}` that is not of this run"
            )],
        );
        assert_eq!(world.engine.containers().join(" "), name);
        assert_eq!(only_row(&world.env).status, Some(Status::Failed));
    }
    world.engine.docker(&["rm", &name]);
    let view = world.call(&["recover", "--json"]).run().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    world.assert_nothing_is_left();
}

/// The engine has another disk: the run's directory is not there.
#[test]
fn bc_65_an_engine_that_does_not_see_the_directory() {
    let env = new_env();
    let engine = ContainerEngine::start_elsewhere(env.root(), None);
    let Some(world) = World::with(env, engine, TOOLS) else {
        return;
    };
    let told = lane_that_tells(&world);
    let began = Instant::now();
    let output = world.run().run();
    let took = began.elapsed();
    let root = world.env.root().to_str().unwrap();
    let output = refused(output, &["does not see", root, "--home DIR"]);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(text(&output.json(), "reason"), "backend_unavailable");
    assert_eq!(only_row(&world.env).status, Some(Status::Failed));
    assert_eq!(only_row(&world.env).cost_usd, 0.0);
    assert!(!told.exists());
    world.assert_nothing_is_left();
}

/// It has a directory of that name, and it is another one: the empty workspace of a virtual machine.
#[test]
fn bc_65_an_engine_that_sees_another_directory() {
    let env = new_env();
    let (seen, runs) = (env.root().join("seen"), env.home().join("runs"));
    for directory in [&seen, &runs] {
        fs_err::create_dir_all(directory).unwrap();
    }
    let engine = ContainerEngine::start_elsewhere(&runs, Some(&seen));
    let Some(world) = World::with(env, engine, TOOLS) else {
        return;
    };
    let told = lane_that_tells(&world);
    let begun = world.run().env("MO_FAULT", "run-recorded");
    begun.run().expect_killed();
    let run = only_row(&world.env).run;
    let copy = world.env.call("cp", ["-r"]).arg(runs.join(&run)).arg(&seen);
    copy.run().expect(0);
    for directory in [
        "nodes",
        "baseline",
        "agents",
        "worktree",
        "worktrees",
        "control.git/objects",
        "sandbox/door",
    ] {
        fs_err::create_dir_all(seen.join(&run).join(directory)).unwrap();
    }
    let began = Instant::now();
    let output = world.call(&["recover"]).run();
    let took = began.elapsed();
    let nodes = runs.join(&run).join("nodes");
    let says = ["is not seen inside", nodes.to_str().unwrap(), "--home DIR"];
    refused(output, &says);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(only_row(&world.env).status, Some(Status::Failed));
    assert_eq!(
        only_row(&world.env).reason.as_deref(),
        Some("isolation_unavailable")
    );
    assert!(!told.exists());
    world.assert_nothing_is_left();
}

#[test]
fn bc_72_limits_of_sandboxes() {
    let env = new_env();
    env.repo("repo", crate::support::PROJECT);
    env.kickoff("The answer is wrong", &[]);
    let before = tree_state(&env.home());
    let run = || env.mini_ork(["run", "code-fix", "--repo", "repo", "kickoff.md"]);
    let garbage = [
        "0",
        "-1",
        "-0",
        "NaN",
        "inf",
        "1e99",
        "5m",
        "4.5.6",
        "one",
        " ",
        "0x10",
        "99999999999999999999",
        "1000000T",
    ];
    for (name, values) in [
        ("MO_SANDBOX_MEMORY", &garbage[..]),
        ("MO_SANDBOX_CPU", &garbage[..]),
        ("MO_SANDBOX_PIDS", &garbage[..]),
        // No age at all and minutes make sense.
        (
            "MO_SANDBOX_MAX_AGE",
            &["-1", "NaN", "1e99", "5x", " ", "99999999999d"][..],
        ),
    ] {
        for value in values {
            let call = run().env("MO_SANDBOX_BACKEND", "docker");
            let call = call
                .env("MO_SANDBOX_IMAGE", "x")
                .env("MO_SANDBOX_NETWORK", "none");
            refused(call.env(name, value).run(), &[name]);
        }
    }
    for value in ["-1", "NaN", "5x", "1e99"] {
        let output = env
            .mini_ork(["sandbox-gc"])
            .arg(format!("--max-age={value}"))
            .run();
        refused(output, &["--max-age"]);
    }
    before.assert_same(&tree_state(&env.home()), "after refusals");
}

#[test]
fn a_backend_or_an_image_that_is_not_for_this_machine() {
    let Some(world) = World::new() else {
        return;
    };
    let told = lane_that_tells(&world);
    let nothing = |call: Call<'_>, says: &[&str]| {
        refused(call.run(), says);
        assert_eq!(world.env.runs(), Vec::<String>::new());
        assert!(!told.exists());
        world.assert_nothing_is_left();
    };
    nothing(
        world.run().env("MO_SANDBOX_BACKEND", "microvm"),
        &["no workspace backend `microvm`", "known: local, docker"],
    );
    let image = world.engine.image_of_another_machine(&world.image);
    nothing(
        world.run().env("MO_SANDBOX_IMAGE", &image),
        &["is for linux/s390x", "use an image for this machine"],
    );
}

/// A real user, and a socket as the engine makes it: for root and its group.
#[test]
fn a_user_without_the_group_of_the_engine() {
    let Some(world) = World::new() else {
        return;
    };
    let told = lane_that_tells(&world);
    let endpoint = world.engine.endpoint();
    let socket = Path::new(endpoint.strip_prefix("unix://").unwrap());
    let open = std::fs::Permissions::from_mode(0o755);
    fs_err::set_permissions(socket.parent().unwrap(), open).unwrap();
    assert_eq!(
        fs_err::metadata(socket).unwrap().permissions().mode() & 0o777,
        0o660
    );
    let program = world.env.root().join("mini-ork-node");
    fs_err::copy(&world.node_program, &program).unwrap();
    let own = world.env.call("chown", ["-R", "65534:65534"]);
    own.arg(world.env.root()).run().expect(0);
    for arguments in [
        vec!["run", "code-fix", "--repo", "repo", "kickoff.md"],
        vec!["sandbox", "verify"],
    ] {
        let call = world.env.mini_ork_as(NOBODY, arguments);
        let call = in_container(call, &world.engine, &world.image, &program);
        let says = [
            "this user may not use the container engine",
            "usermod -aG docker",
        ];
        refused(call.run(), &says);
    }
    assert_eq!(world.env.runs(), Vec::<String>::new());
    assert!(!told.exists());
    world.assert_nothing_is_left();
}

#[test]
fn doctor_looks_at_the_engine() {
    let Some(world) = World::new() else {
        return;
    };
    let found = |call: Call<'_>| {
        let output = call.run();
        let checks = output.json()["checks"].clone();
        let check = checks
            .as_array()
            .unwrap()
            .iter()
            .find(|check| check["name"] == "sandbox");
        check.cloned()
    };
    let check = found(world.call(&["doctor", "--json"])).unwrap();
    assert_eq!(text(&check, "found"), "ok", "{check:#}");
    let said = text(&check, "text");
    let program = world.node_program.display().to_string();
    for part in [
        "engine ",
        &world.engine.endpoint(),
        &world.image,
        "sha256:",
        "runtime",
        &program,
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let check = found(
        world
            .call(&["doctor", "--json"])
            .env("MO_SANDBOX_IMAGE", "none:1"),
    );
    let check = check.unwrap();
    assert_eq!(text(&check, "found"), "missing", "{check:#}");
    assert!(
        text(&check, "remedy").contains("mini-ork image pull none:1"),
        "{check:#}"
    );
    let check = found(
        world
            .call(&["doctor", "--json"])
            .env("DOCKER_HOST", "unix:///nowhere"),
    );
    assert!(text(&check.unwrap(), "text").contains("no container engine answers"));
    let plain = world.env.mini_ork(["doctor", "--json"]);
    assert_eq!(found(plain), None);
    world.assert_nothing_is_left();
}
