use std::path::PathBuf;

use async_trait::async_trait;
use mini_ork_protocol::{ProcessIdentity, SecretBytes};
use serde::{Deserialize, Serialize};

use super::workspace::{Boundary, Sandbox};
use crate::workspace::{Drive, WorkspaceError};

/// What another process of this machine needs to run programs in a sandbox and to use its files.
/// Whoever has it can do no more than that: no connection from inside is led to it, and it opens
/// none to the outside.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WayIn {
    /// Where the server is.
    pub server: ServerAddress,
    /// What shows the server that it is the outside that speaks.
    pub token: SecretBytes,
    /// What programs inside see of this machine.
    pub drive: Drive,
}

/// Where processes of this machine find a session server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerAddress {
    /// In a container.
    Container {
        /// Address of the engine.
        engine: String,
        /// Name of the container.
        name: String,
        /// User and group of the processes in it that lead to the server.
        user: String,
    },
    /// At a socket, while the first process of the sandbox lives.
    Socket {
        /// The directory that the socket is in.
        directory: PathBuf,
        /// The first process.
        first: ProcessIdentity,
    },
}

/// The boundary of a sandbox that another process takes care of.
#[derive(Debug)]
pub(super) struct KeptByAnother;

#[async_trait]
impl Boundary for KeptByAnother {
    fn backend(&self) -> &'static str {
        "session"
    }

    fn isolation(&self) -> String {
        "session: a sandbox that another process keeps".to_owned()
    }

    async fn raise(&self, _drive: &Drive) -> Result<Sandbox, WorkspaceError> {
        Err(WorkspaceError::NotUp)
    }

    async fn lower(&self, _drive: &Drive) -> Result<(), WorkspaceError> {
        Ok(())
    }
}
