use std::io;
use std::path::PathBuf;

use mini_ork_protocol::{RefusalKind, SessionRefusal};

/// Why the other side of a session did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There is no connection, and none can be made.
    #[error("the sandbox cannot be reached")]
    Unreachable(#[source] io::Error),
    /// The sandbox is not there any more, and everything in it has ended.
    #[error("the sandbox is gone: {reason}")]
    Gone {
        /// What became of it.
        reason: String,
        /// Whether it ran out of memory.
        out_of_memory: bool,
    },
    /// The server refused.
    #[error("the sandbox refused: {}", .0.message)]
    Refused(SessionRefusal),
    /// What was answered is no answer to what was asked.
    #[error("the sandbox answered something else than it was asked")]
    Confused,
    /// Inside is something else than outside at the same place.
    #[error("`{}` is not seen inside the sandbox as it is on this machine: {detail}", directory.display())]
    NotShared {
        /// The directory of this machine.
        directory: PathBuf,
        /// What was found.
        detail: String,
    },
    /// There is a way out of the sandbox beside the one that its policy decides about.
    #[error("the network policy cannot be enforced: {way} can be reached from the sandbox")]
    OtherWayOut {
        /// What was found.
        way: String,
    },
    /// The hosts of the policy cannot be offered.
    #[error("the network policy cannot be carried out: {reason}")]
    NoEgress {
        /// What the sandbox said.
        reason: String,
    },
    /// A file of this machine that the session needs cannot be used.
    #[error("a file of the session cannot be used")]
    Files(#[source] io::Error),
}

impl SessionError {
    /// Which refusal it is, when it is one.
    pub(super) fn refusal(&self) -> Option<RefusalKind> {
        match self {
            Self::Refused(refusal) => Some(refusal.kind),
            _ => None,
        }
    }
}
