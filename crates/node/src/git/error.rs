//! Why git did not answer.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a git command gave no result.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// No `git` in any absolute directory of the search path.
    #[error("found no git program on the search path `{}`", search_path.display())]
    NotFound {
        /// The search path, as `PATH` spells it.
        search_path: OsString,
    },
    /// The program is older than what mini-ork needs.
    #[error("{} is version {found}, and 2.38 or later is needed", program.display())]
    TooOld {
        /// The program.
        program: PathBuf,
        /// What it calls itself.
        found: String,
    },
    /// The program could not be started.
    #[error("could not start `git {command}` in {}", directory.display())]
    Spawn {
        /// The sub-command.
        command: &'static str,
        /// Where.
        directory: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Talking to the program failed.
    #[error("lost the connection to `git {command}` in {}", directory.display())]
    Pipe {
        /// The sub-command.
        command: &'static str,
        /// Where.
        directory: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It ended with a code that is not an answer.
    #[error("`git {command}` in {} {ending}: {message}", directory.display())]
    Failed {
        /// The sub-command.
        command: &'static str,
        /// Where.
        directory: PathBuf,
        /// How it ended, in words.
        ending: String,
        /// What it wrote to stderr, without control characters.
        message: String,
    },
    /// It was killed at its deadline.
    #[error("`git {command}` in {} was stopped after {} s", directory.display(), after.as_secs())]
    TimedOut {
        /// The sub-command.
        command: &'static str,
        /// Where.
        directory: PathBuf,
        /// The deadline.
        after: Duration,
    },
    /// It was killed because it wrote too much.
    #[error("`git {command}` in {} wrote more than {limit} bytes", directory.display())]
    TooMuchOutput {
        /// The sub-command.
        command: &'static str,
        /// Where.
        directory: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// Its output has another form than its documentation says.
    #[error("could not understand the output of `git {command}`: {what}")]
    Unreadable {
        /// The sub-command.
        command: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// A file beside the command could not be read or written; the message names it.
    #[error(transparent)]
    Files(#[from] io::Error),
}
