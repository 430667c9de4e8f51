//! The backend `local` behind a network policy.

use std::path::Path;
use std::sync::Arc;

use mini_ork_node::egress::{NetworkPolicy, SystemResolver};
use mini_ork_node::supervise::Supervisor;
use mini_ork_node::workspace::docker::DockerSettings;
use mini_ork_node::workspace::{
    Access, BackendSettings, ConfinedBoundary, ConfinedSettings, Drive, Share, Workspace, open,
};
use mini_ork_testkit::skip;

use crate::bench::Bench;
use crate::contract;

const NODE_PROGRAM: &str = env!("CARGO_BIN_EXE_mini-ork-node");

#[test]
fn a_confined_local_keeps_the_contract() {
    let place = tempfile::tempdir().unwrap();
    let check = place.path().join("check");
    fs_err::create_dir(&check).unwrap();
    let confined = ConfinedSettings {
        program: NODE_PROGRAM.into(),
        ..ConfinedSettings::default()
    };
    if let Err(error) = ConfinedBoundary::new(confined.clone()).check(&check) {
        return skip(&error.to_string());
    }
    contract("local, confined", async || {
        let settings = BackendSettings {
            supervisor: Supervisor::new(NODE_PROGRAM.into()),
            docker: DockerSettings::default(),
            confined,
            network: NetworkPolicy::None,
            resolver: Arc::new(SystemResolver),
            authorities: Vec::new(),
        };
        let reopen = move || -> Arc<dyn Workspace> { open("local", &settings).unwrap() };
        let drive = drive_at(place.path());
        let root = place.path().join("work");
        Bench::new(drive, root, Box::new(reopen), Some(1), true)
    });
}

fn drive_at(place: &Path) -> Drive {
    let share = |name: &str| {
        fs_err::create_dir_all(place.join(name)).unwrap();
        Share {
            host: place.join(name),
            inside: Path::new("/workspace").join(name),
            access: Access::ReadWrite,
        }
    };
    fs_err::create_dir_all(place.join("private")).unwrap();
    Drive {
        name: "contract".to_owned(),
        private: place.join("private"),
        proof: place.join("records"),
        shares: vec![share("records"), share("work")],
    }
}
