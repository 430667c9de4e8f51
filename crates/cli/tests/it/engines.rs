//! Runs behind the boundaries of other engines and runtimes.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use mini_ork_testkit::{ContainerEngine, GVISOR, checkout_state};

use crate::sandbox::{World, in_container};
use crate::support::text;

const NOBODY: u32 = 65534;

/// What a run does inside, whatever made the container.
const WORK: &str = "set -e\n\
    git log --oneline | grep -q first\n\
    test -z \"$(git status --porcelain)\"\n\
    git blame answer | grep -q 41\n\
    echo 42 > answer\n\
    git commit -qam 'the answer'\n\
    test $(git log --oneline | grep -c .) = 2\n\
    test $HOME = /workspace/home\n\
    if (echo x > /usr/bin/x) 2>/dev/null; then exit 9; fi\n\
    if ls $MINI_ORK_RUN_DIR/run.json 2>/dev/null; then exit 9; fi\n\
    bash -c 'exec 3<>/dev/tcp/127.1.0.1/3128\n\
       printf \"CONNECT denied.example:443 HTTP/1.1\\r\\n\\r\\n\" >&3\n\
       read -r line <&3; case $line in *403*) ;; *) exit 1 ;; esac'";

/// The record tells what really made the container, and which kernel answers in it.
#[test]
fn a_run_in_gvisor_publishes_and_its_kernel_is_on_record() {
    let Some(world) = World::on(ContainerEngine::start_with_gvisor()) else {
        return;
    };
    let before = checkout_state(world.repo().path());
    world.lane(WORK);
    let call = world.run().env("MO_SANDBOX_RUNTIME", GVISOR);
    let call = call
        .env("MO_SANDBOX_NETWORK", "allowlist")
        .env("MO_SANDBOX_ALLOW", "example.com");
    let view = call.run().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    assert_eq!(world.repo().show(text(&view, "branch"), "answer"), "42\n");
    assert_eq!(checkout_state(world.repo().path()), before);
    world.repo().git(["fsck", "--strict"]);
    let isolation = text(&view, "isolation");
    let own = rustix::system::uname();
    let own = own.release().to_str().unwrap();
    assert!(isolation.contains("runtime runsc"), "{isolation}");
    assert!(isolation.contains("kernel 4.4.0,"), "{isolation}");
    assert!(!isolation.contains(own), "{isolation}");
    let run = text(&view, "run");
    let record = world.env.run_directory(run).join("run.json");
    let record = fs_err::read_to_string(record).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!(text(&record, "isolation"), isolation);
    let container = world.call(&["sandbox", "inspect", "--json", run]).run();
    assert_eq!(container.expect(0).json()["container"]["runtime"], GVISOR);
    let warnings = view["warnings"].to_string();
    assert!(warnings.contains("denied.example:443"), "{warnings}");
    world.assert_nothing_is_left();
}

/// Podman of an ordinary user: what programs write inside is that user's.
#[test]
fn a_run_in_rootless_podman_publishes() {
    let Some(world) = World::on(ContainerEngine::start_podman(NOBODY)) else {
        return;
    };
    world.lane(WORK);
    let program = world.env.root().join("mini-ork-node");
    fs_err::copy(&world.node_program, &program).unwrap();
    let root = world.env.root();
    let own = world.env.call("chown", ["-R", "65534:65534"]).arg(root);
    own.run().expect(0);
    let run = |memory: Option<&str>| {
        let arguments = ["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"];
        let call = world.env.mini_ork_as(NOBODY, arguments);
        let call = in_container(call, &world.engine, &world.image, &program)
            .env("MO_SANDBOX_NETWORK", "allowlist")
            .env("MO_SANDBOX_ALLOW", "example.com");
        match memory {
            Some(memory) => call.env("MO_SANDBOX_MEMORY", memory).run(),
            None => call.run(),
        }
    };
    let view = run(None).expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    let first = Path::new("/sys/fs/cgroup/cgroup.controllers");
    if !first.exists() {
        // A user has no part in control groups of version 1, and that is told.
        let isolation = text(&view, "isolation");
        assert!(isolation.contains("no limits"), "{isolation}");
        let refused = run(Some("1G")).expect(2);
        let says = refused.errors().contains("keeps no limits on memory");
        assert!(says, "{}", refused.errors());
    }
    let mut pending = vec![world.env.run_directory(text(&view, "run")).join("nodes")];
    let mut seen = 0;
    while let Some(directory) = pending.pop() {
        for entry in fs_err::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let owner = entry.metadata().unwrap().uid();
            assert_eq!(owner, NOBODY, "{}", entry.path().display());
            seen += 1;
            if entry.file_type().unwrap().is_dir() {
                pending.push(entry.path());
            }
        }
    }
    assert!(seen > 5);
    world.assert_nothing_is_left();
}

/// Nothing gets out past the shim, whatever the kernel inside.
#[test]
fn bc_31_other_engines_and_runtimes_let_nothing_out() {
    for (engine, runtime) in [
        (ContainerEngine::start_with_gvisor(), Some(GVISOR)),
        (ContainerEngine::start_podman(0), None),
    ] {
        let Some(world) = World::on(engine) else {
            continue;
        };
        for policy in ["allowlist", "none"] {
            let mut call = world
                .call(&["sandbox", "verify", "--json"])
                .env("MO_SANDBOX_NETWORK", policy);
            if policy == "allowlist" {
                call = call.env("MO_SANDBOX_ALLOW", "example.com");
            }
            if let Some(runtime) = runtime {
                call = call.env("MO_SANDBOX_RUNTIME", runtime);
            }
            let verified = call.run().json();
            let attempts = verified["attempts"].as_array().unwrap();
            assert!(attempts.len() > 20, "{verified:#}");
            let breaches: Vec<_> = attempts
                .iter()
                .filter(|attempt| attempt["verdict"] == "breach")
                .collect();
            assert!(breaches.is_empty(), "{breaches:#?}");
            assert_eq!(verified["held"], true, "{}", verified["canary"]);
        }
        world.assert_nothing_is_left();
    }
}
