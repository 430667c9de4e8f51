//! The backend `docker`, with images of several kinds.

use std::path::Path;
use std::sync::Arc;

use mini_ork_node::session::SessionWorkspace;
use mini_ork_node::text::with_sources;
use mini_ork_node::workspace::docker::{DockerBoundary, DockerSettings};
use mini_ork_node::workspace::{Access, Drive, Ledger, SandboxKind, Share, Workspace};
use mini_ork_testkit::{ContainerEngine, GVISOR, static_node_program};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use crate::bench::{Bench, block_on};
use crate::contract;

/// User and group without a name, a home or a privilege.
const ORDINARY_USER: u32 = 65534;

#[test]
fn docker_keeps_the_contract_in_an_image_with_busybox_only() {
    let engine = ContainerEngine::start();
    keep_contract(
        "docker, busybox",
        engine,
        None,
        ContainerEngine::busybox_image,
    );
}

#[test]
fn docker_keeps_the_contract_in_an_image_with_debian() {
    keep_contract("docker, debian", ContainerEngine::start(), None, debian);
}

#[test]
fn gvisor_keeps_the_contract_in_an_image_with_busybox_only() {
    let engine = ContainerEngine::start_with_gvisor();
    let image = ContainerEngine::busybox_image;
    keep_contract("docker with gVisor, busybox", engine, Some(GVISOR), image);
}

#[test]
fn gvisor_keeps_the_contract_in_an_image_with_debian() {
    let engine = ContainerEngine::start_with_gvisor();
    keep_contract("docker with gVisor, debian", engine, Some(GVISOR), debian);
}

#[test]
fn podman_keeps_the_contract_in_an_image_with_busybox_only() {
    let engine = ContainerEngine::start_podman(0);
    keep_contract(
        "podman, busybox",
        engine,
        None,
        ContainerEngine::busybox_image,
    );
}

#[test]
fn podman_keeps_the_contract_in_an_image_with_debian() {
    keep_contract(
        "podman, debian",
        ContainerEngine::start_podman(0),
        None,
        debian,
    );
}

/// An engine without any privilege, of a user with one number only.
#[test]
fn rootless_podman_keeps_the_contract() {
    let engine = ContainerEngine::start_podman(ORDINARY_USER);
    let image = ContainerEngine::busybox_image;
    keep_contract("rootless podman, busybox", engine, None, image);
}

/// It is refused before there is anything: podman would take the wish, and its own runtime.
#[test]
fn a_runtime_that_is_not_there_is_refused() {
    let Some(node_program) = static_node_program() else {
        return;
    };
    for (engine, word) in [
        (ContainerEngine::start(), "has no runtime `kata`; it has"),
        (
            ContainerEngine::start_podman(0),
            "with `runc`, and not with",
        ),
    ] {
        let Some(engine) = engine else {
            return;
        };
        let settings = DockerSettings {
            endpoint: engine.endpoint(),
            image: Some(engine.busybox_image()),
            runtime: Some("kata".to_owned()),
            node_program: node_program.clone(),
            ..DockerSettings::default()
        };
        let place = tempfile::tempdir().unwrap();
        let workspace = SessionWorkspace::new(DockerBoundary::new(settings));
        let drive = drive_at(place.path());
        let error = block_on(workspace.up(&drive)).unwrap_err();
        let text = with_sources(&error);
        assert!(text.contains(word), "{text}");
        assert_eq!(engine.containers(), Vec::<String>::new());
        assert!(!drive.private.join("container.json").exists());
    }
}

fn debian(engine: &ContainerEngine) -> String {
    engine.image_of_this_machine(&[
        "sh", "bash", "env", "cat", "cut", "sort", "tr", "seq", "sleep", "kill", "yes", "setsid",
        "ln", "head",
    ])
}

fn keep_contract(
    name: &str,
    engine: Option<ContainerEngine>,
    runtime: Option<&str>,
    image: impl Fn(&ContainerEngine) -> String,
) {
    let (Some(engine), Some(node_program)) = (engine, static_node_program()) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    // Where another user finds it, too.
    let program = place.path().join("mini-ork-node");
    fs_err::copy(node_program, &program).unwrap();
    let settings = DockerSettings {
        endpoint: engine.endpoint(),
        image: Some(image(&engine)),
        runtime: runtime.map(ToOwned::to_owned),
        node_program: program,
        ..DockerSettings::default()
    };
    let drive = drive_at(place.path());
    as_user(engine.owner(), place.path(), || {
        contract(name, async || {
            let open = move || -> Arc<dyn Workspace> {
                Arc::new(SessionWorkspace::new(DockerBoundary::new(settings.clone())))
            };
            let root = place.path().join("worktree");
            fs_err::create_dir_all(&root).unwrap();
            Bench::new(drive.clone(), root, Box::new(open), Some(1), true)
        });
    });
    let record = Ledger::at(drive.private.clone()).read(&drive.name);
    let SandboxKind::Docker(container) = record.unwrap().unwrap().kind else {
        panic!("it was no container");
    };
    assert_eq!(
        container.made_with.as_deref(),
        Some(runtime.unwrap_or("runc"))
    );
    assert_eq!(engine.containers(), Vec::<String>::new());
}

/// Does `work` as a user to whom `place` is given.
fn as_user(user: u32, place: &Path, work: impl FnOnce() + Send) {
    std::os::unix::fs::chown(place, Some(user), Some(user)).unwrap();
    let worker = || {
        // For this thread and those that it starts alone.
        let group = Gid::from_raw(user);
        set_thread_res_gid(group, group, group).unwrap();
        let user = Uid::from_raw(user);
        set_thread_res_uid(user, user, user).unwrap();
        work();
    };
    std::thread::scope(|scope| scope.spawn(worker).join()).unwrap();
}

fn drive_at(place: &Path) -> Drive {
    let share = |host: &str, inside: &str| Share {
        host: place.join(host),
        inside: inside.into(),
        access: Access::ReadWrite,
    };
    Drive {
        name: "contract".to_owned(),
        private: place.join("private"),
        proof: place.join("nodes"),
        shares: vec![
            share("nodes", "/workspace/run/nodes"),
            share("worktree", "/workspace/target"),
            share("home", "/workspace/home"),
        ],
    }
}
