//! Where the processes of a node run, whatever holds them there.

mod catalog;
mod confined;
pub mod docker;
mod drive;
pub(crate) mod files;
mod ledger;
mod local;
mod specification;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use mini_ork_protocol::{ByteString, ExitRecord, ProcessRecord, SecretBytes, StdinSource};

pub use catalog::{BackendSettings, DOCKER, LOCAL, UnknownBackend, backend_names, enter, open};
pub use confined::{ConfinedBoundary, ConfinedSettings};
pub use drive::{Access, Drive, Lead, Share};
pub use files::{Entry, EntryKind, FileError, InnerPath, InnerPathError, ListRequest, Listing};
pub use ledger::{Ledger, SandboxKind, SandboxRecord, SandboxState};
pub use local::LocalWorkspace;
pub(crate) use specification::specification;

use crate::egress::Denial;
use crate::session::{SessionError, WayIn};
use crate::supervise::{Stop, SuperviseError};

/// A place in which programs run on behalf of one node or one run.
///
/// Guarantees of every backend:
/// - Arguments, environment and standard input reach the program byte for byte; it has no other
///   variables than those of the request and the run marker.
/// - Standard input is at its end at once unless the request names a file.
/// - Output is bytes, in the request's record directory, whether or not somebody reads it. How much
///   memory it takes does not depend on how much there is.
/// - A process does not depend on the control plane that started it: limits are kept and the end is
///   recorded without it.
/// - Once the end of a process is reported, nothing that it started is left.
#[async_trait]
pub trait Workspace: Send + Sync + fmt::Debug {
    /// The name of the backend, as the catalog and the run's record have it.
    fn backend(&self) -> &'static str;

    /// Which boundary holds, in one sentence for the run's record; before [`Self::up`] the one that
    /// is asked for.
    fn isolation(&self) -> String;

    /// Makes the workspace ready for the run whose directories `drive` names. May be called again
    /// at any time, also after a crash.
    async fn up(&self, drive: &Drive) -> Result<(), WorkspaceError>;

    /// Where programs find the path `host` of this machine; the same path where there is no
    /// boundary.
    fn inside(&self, host: &Path) -> PathBuf;

    /// The mini-ork program as programs find it.
    fn program(&self) -> PathBuf;

    /// The environment that programs begin with, made from the caller's own.
    fn environment(&self, own: &[(OsString, OsString)]) -> Vec<(OsString, OsString)>;

    /// Lets programs reach the loopback port `port` of this machine at the same address.
    async fn lead(&self, port: u16) -> Result<Lead, WorkspaceError>;

    /// Runs a program. Paths in its arguments and environment are as [`Self::inside`] gives them;
    /// the directory of its records, its working directory and its standard input are of this
    /// machine. Returns once it runs, or is known not to:
    /// [`WorkspaceProcess::wait`] then reports [`SpawnFailed`](mini_ork_protocol::ExitOutcome).
    async fn spawn(
        &self,
        request: SpawnRequest,
    ) -> Result<Box<dyn WorkspaceProcess>, WorkspaceError>;

    /// Finds the process of a record directory again, after a restart of the control plane. Never
    /// starts one.
    async fn attach(&self, directory: &Path) -> Result<Attached, WorkspaceError>;

    /// How another process of this machine can run programs here and use the files; none where there
    /// is no boundary to pass, or before [`Self::up`].
    fn way_in(&self) -> Option<WayIn> {
        None
    }

    /// Ends every process behind the boundary that has its records below `directory`, whoever
    /// started it. Afterwards none of them is left.
    async fn stop_below(&self, _directory: &Path) -> Result<(), WorkspaceError> {
        Ok(())
    }

    /// Reads the regular file at `path` below the directory `root`. More than `limit` bytes is an
    /// error, and so is whatever is no regular file.
    ///
    /// For this and the other calls on files: `root` is an absolute path that the caller chose,
    /// and what is below it is hostile. Links are followed as long as they stay inside; nothing
    /// outside is read, written or listed, whatever is swapped for a link meanwhile, and nothing
    /// waits for the other end of a FIFO.
    async fn get(&self, root: &Path, path: &InnerPath, limit: u64) -> Result<Vec<u8>, FileError>;

    /// Writes the file at `path`, with the directories above it. A reader sees the old content or
    /// the new one. A file that is replaced hands on its permissions and not its other names.
    async fn put(&self, root: &Path, path: &InnerPath, content: Vec<u8>) -> Result<(), FileError>;

    /// Lists what is below the directory at `path`.
    async fn list(
        &self,
        root: &Path,
        path: &InnerPath,
        request: ListRequest,
    ) -> Result<Listing, FileError>;

    /// Connections to the network that programs asked for and did not get, the most frequent first.
    fn denials(&self) -> Vec<Denial> {
        Vec::new()
    }

    /// Frees what the workspace holds for the run of `drive`. May be called again at any time, also
    /// without [`Self::up`], and makes nothing. Behind a boundary nothing runs afterwards; else
    /// processes are stopped through their handles before.
    async fn down(&self, drive: &Drive) -> Result<(), WorkspaceError>;
}

/// A program to run, and where its records go.
#[derive(Clone)]
pub struct SpawnRequest {
    /// Absolute path of the record directory: it serves one process, and is made if it is not
    /// there. The logs in it are [`STDOUT_LOG`](crate::supervise::STDOUT_LOG) and
    /// [`STDERR_LOG`](crate::supervise::STDERR_LOG).
    pub directory: PathBuf,
    /// Program and arguments; a program without a slash is looked up on the `PATH` of `env`.
    pub argv: Vec<ByteString>,
    /// Absolute working directory.
    pub cwd: PathBuf,
    /// The whole environment.
    pub env: Vec<(ByteString, ByteString)>,
    /// What the program reads.
    pub stdin: StdinSource,
    /// After this time it is stopped, with its grace time.
    pub timeout: Option<Duration>,
    /// Time between the polite signal and the final one.
    pub grace: Duration,
    /// Most bytes that standard output and error may take together.
    pub output_limit: u64,
    /// Values in `env` that must not be in the logs, in no form that
    /// [`Redactor`](crate::redact::Redactor) knows. Each is at least
    /// [`SHORTEST`](crate::redact::SHORTEST) bytes long, else nothing is started.
    pub secrets: Vec<SecretBytes>,
}

/// The values of the environment are not shown.
impl fmt::Debug for SpawnRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&ByteString> = self.env.iter().map(|(name, _)| name).collect();
        formatter
            .debug_struct("SpawnRequest")
            .field("directory", &self.directory)
            .field("argv", &self.argv)
            .field("cwd", &self.cwd)
            .field("env", &names)
            .field("secrets", &self.secrets)
            .finish_non_exhaustive()
    }
}

/// A program in a workspace. Dropping it leaves the program alone.
#[async_trait]
pub trait WorkspaceProcess: Send + Sync + fmt::Debug {
    /// Waits for the end. May be called again and gives the same. A lost process is an error and
    /// never an end.
    async fn wait(&self) -> Result<ExitRecord, WorkspaceError>;

    /// Asks for the end; returns at once. Does nothing when it has ended.
    fn stop(&self, how: Stop) -> Result<(), WorkspaceError>;

    /// What is known of the running program; none when the system refused to run it.
    fn record(&self) -> Option<&ProcessRecord>;
}

/// What became of a process.
#[derive(Debug)]
pub enum Attached {
    /// Nothing was ever started there.
    NeverStarted,
    /// It runs.
    Running(Box<dyn WorkspaceProcess>),
    /// It ended while nobody was there.
    Ended(ExitRecord),
    /// It is gone without a record of its end. What it left running has been killed.
    Lost,
}

/// Why a workspace could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// A process could not be started, found, awaited or stopped.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
    /// The machine gave no randomness for a run marker.
    #[error("could not make a run marker")]
    Marker(#[source] std::io::Error),
    /// A sandbox cannot be reached, or refuses.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// There is no container.
    #[error(transparent)]
    Docker(#[from] docker::DockerError),
    /// Programs cannot be confined on this machine.
    #[error(transparent)]
    Confine(#[from] crate::confine::ConfineError),
    /// What the user trusts cannot be read.
    #[error(transparent)]
    Authorities(#[from] crate::certificates::AuthorityError),
    /// What is remembered of a sandbox cannot be read or written.
    #[error("what is known of the sandbox cannot be used")]
    Remembered(#[source] std::io::Error),
    /// All that ran in a sandbox was killed, and how it would have ended is not known.
    #[error("the sandbox is gone: {reason}")]
    OutOfMemory {
        /// What became of it.
        reason: String,
    },
    /// It was to be used before it was made ready.
    #[error("the workspace is not up")]
    NotUp,
}

impl WorkspaceError {
    /// Whether memory ran out, which would happen again.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(
            self,
            Self::OutOfMemory { .. }
                | Self::Session(SessionError::Gone {
                    out_of_memory: true,
                    ..
                })
        )
    }
}
