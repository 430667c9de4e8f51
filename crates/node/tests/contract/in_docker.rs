//! The backend `docker`, with images of several kinds.

use std::path::Path;
use std::sync::Arc;

use mini_ork_node::session::SessionWorkspace;
use mini_ork_node::workspace::docker::{DockerBoundary, DockerSettings};
use mini_ork_node::workspace::{Access, Drive, Share, Workspace};
use mini_ork_testkit::{ContainerEngine, static_node_program};

use crate::bench::Bench;
use crate::contract;

#[test]
fn docker_keeps_the_contract_in_an_image_with_busybox_only() {
    keep_contract("docker, busybox", ContainerEngine::busybox_image);
}

#[test]
fn docker_keeps_the_contract_in_an_image_with_debian() {
    keep_contract("docker, debian", |engine| {
        engine.image_of_this_machine(&[
            "sh", "bash", "env", "cat", "cut", "sort", "tr", "seq", "sleep", "kill", "yes",
            "setsid", "ln", "head",
        ])
    });
}

fn keep_contract(name: &str, image: impl Fn(&ContainerEngine) -> String) {
    let Some(node_program) = static_node_program() else {
        return;
    };
    let Some(engine) = ContainerEngine::start() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let settings = DockerSettings {
        endpoint: engine.endpoint(),
        image: Some(image(&engine)),
        node_program,
        ..DockerSettings::default()
    };
    let drive = drive_at(place.path());
    contract(name, async || {
        let open = move || -> Arc<dyn Workspace> {
            Arc::new(SessionWorkspace::new(DockerBoundary::new(settings.clone())))
        };
        let root = place.path().join("worktree");
        fs_err::create_dir_all(&root).unwrap();
        Bench::new(drive, root, Box::new(open), Some(1), true)
    });
    assert_eq!(engine.containers(), Vec::<String>::new());
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
