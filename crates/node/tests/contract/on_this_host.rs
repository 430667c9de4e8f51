//! Backends without a boundary.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;

use async_trait::async_trait;
use mini_ork_node::session::{
    Boundary, Channel, DialError, Dialer, SERVE_ARGUMENT, Sandbox, SessionWorkspace,
};
use mini_ork_node::supervise::Supervisor;
use mini_ork_node::workspace::{Drive, LocalWorkspace, Workspace, WorkspaceError};
use mini_ork_protocol::SecretBytes;
use tokio::net::UnixStream;

use crate::bench::{Bench, until};
use crate::contract;

const NODE_PROGRAM: &str = env!("CARGO_BIN_EXE_mini-ork-node");

#[test]
fn local_keeps_the_contract() {
    let place = tempfile::tempdir().unwrap();
    contract("local", async || {
        let open = || -> Arc<dyn Workspace> {
            Arc::new(LocalWorkspace::new(Supervisor::new(NODE_PROGRAM.into())))
        };
        let drive = drive_at(place.path());
        Bench::new(
            drive,
            place.path().join("work"),
            Box::new(open),
            None,
            false,
        )
    });
}

#[test]
fn a_session_keeps_the_contract() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("session.sock");
    let server = Server::start(&socket);
    contract("a session on this host", async || {
        until("socket", || socket.exists()).await;
        let boundary = Socket(socket.clone());
        let open =
            move || -> Arc<dyn Workspace> { Arc::new(SessionWorkspace::new(boundary.clone())) };
        let drive = drive_at(place.path());
        let init = Some(server.0.id());
        Bench::new(
            drive,
            place.path().join("work"),
            Box::new(open),
            init,
            false,
        )
    });
}

fn drive_at(place: &Path) -> Drive {
    for name in ["private", "records", "work"] {
        fs_err::create_dir_all(place.join(name)).unwrap();
    }
    Drive {
        name: "contract".to_owned(),
        private: place.join("private"),
        proof: place.join("records"),
        shares: Vec::new(),
    }
}

/// The first process of a session, which ends with the test.
struct Server(Child);

impl Server {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one constructor of the server"
    )]
    fn start(socket: &Path) -> Self {
        let mut command = Command::new(NODE_PROGRAM);
        command.arg(SERVE_ARGUMENT).arg(socket);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok();
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// No boundary: the server is a process of this machine.
#[derive(Debug, Clone)]
struct Socket(PathBuf);

#[async_trait]
impl Boundary for Socket {
    fn backend(&self) -> &'static str {
        "session"
    }

    fn isolation(&self) -> String {
        "session: no boundary".to_owned()
    }

    async fn raise(&self, _drive: &Drive) -> Result<Sandbox, WorkspaceError> {
        Ok(Sandbox {
            dialer: Arc::new(self.clone()),
            token: SecretBytes::from(b"a token for tests".as_slice()),
            program: NODE_PROGRAM.into(),
            environment: Vec::new(),
            keeps_own: false,
            isolation: self.isolation(),
        })
    }

    async fn lower(&self, _drive: &Drive) -> Result<(), WorkspaceError> {
        Ok(())
    }
}

#[async_trait]
impl Dialer for Socket {
    async fn dial(&self) -> Result<Box<dyn Channel>, DialError> {
        match UnixStream::connect(&self.0).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(DialError::Failed(error)),
        }
    }
}
