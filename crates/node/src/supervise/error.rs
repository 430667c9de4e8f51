use std::io;
use std::path::PathBuf;

/// Why a supervised process could not be started, found, awaited or stopped.
///
/// A program that could not be run is none of these: that is an
/// [`ExitOutcome`](mini_ork_protocol::ExitOutcome).
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// The supervisor itself could not be run.
    #[error("could not run the supervisor `{}`", program.display())]
    Launch {
        /// The program that was to be the supervisor.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The supervisor ran and did not get as far as the program. Nothing is left of either.
    #[error("the supervisor in `{}` started nothing: {message}", directory.display())]
    NotStarted {
        /// The record directory.
        directory: PathBuf,
        /// What the supervisor said.
        message: String,
    },
    /// The record directory belongs to a process already; it was left alone.
    #[error("`{}` already holds the records of a process", directory.display())]
    Taken {
        /// The record directory.
        directory: PathBuf,
    },
    /// The supervisor is gone and left no account of the end. What it left running was killed.
    #[error("the supervisor in `{}` ended without a record{detail}", directory.display())]
    Lost {
        /// The record directory.
        directory: PathBuf,
        /// What it could still say, after a colon; empty when it was killed.
        detail: String,
    },
    /// Processes of the program are still there after the final signal.
    #[error("{survivors} did not end when killed")]
    Survivors {
        /// Their numbers and names.
        survivors: String,
    },
    /// A record could not be read or written.
    #[error("could not use the records in `{}`", directory.display())]
    Records {
        /// The record directory.
        directory: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A record is of a later mini-ork.
    #[error("`{}` is of generation {found}; this mini-ork knows generations up to {known}", path.display())]
    Generation {
        /// The record.
        path: PathBuf,
        /// Its generation.
        found: u32,
        /// The latest one that this program reads.
        known: u32,
    },
    /// The process table could not be read, or a process could not be signalled or awaited.
    #[error("could not {action}")]
    Process {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}
