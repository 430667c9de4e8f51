//! Processes that outlive their watchers.
//!
//! Each program is owned by a small supervisor process, which is mini-ork itself, started again.
//! The program writes straight into append-only files, unless there are secrets to be kept out of
//! them; the supervisor holds its descendants together, enforces its limits, and writes how it
//! ended. The control plane may die and come back:
//! everything it needs to know is in the record directory.
//!
//! | file | written | holds |
//! |---|---|---|
//! | `supervisor.json` | once, first | who owns the directory; a second supervisor refuses to |
//! | `stdout.log`, `stderr.log` | by the program, or from it | its output |
//! | `process.json` | once the program runs | [`ProcessRecord`](mini_ork_protocol::ProcessRecord) |
//! | `exit.json` | once, last | [`ExitRecord`](mini_ork_protocol::ExitRecord); nothing of the program is left |
//! | `failure.txt` | instead of `exit.json` | why the supervisor could not finish its work |
//!
//! Limits, all of them only without a cgroup: a program whose processes live for less time than a
//! look at the process table takes (a millisecond) may resist until that is given up and reported;
//! one that kills its supervisor *and* has wiped the marker from the environment of a process that
//! is no longer its descendant keeps that process. On a kernel that gives orphans to its first
//! process alone (gVisor's) it keeps an orphan without the marker in any case. What a program asks
//! another service of the machine to start (`systemd-run`, `at`, a tmux server that was there
//! before) is that service's child and is not followed.

mod client;
mod disk;
mod error;
mod family;
mod logs;
mod output;
mod program;
mod records;
mod supervisor;
mod watch;

pub use client::{Found, Stop, SupervisedProcess, Supervisor, find, recorded_exit, taken_with};
pub use error::SuperviseError;
pub use logs::{LogCursor, LogEdges, last_line, last_line_in, log_edges};
pub use supervisor::{SUPERVISE_ARGUMENT, supervise_main};

/// The environment variable by which a program's processes are recognised.
pub const RUN_MARKER_VARIABLE: &str = "MO_RUN_MARKER";

/// Stands between the marker of a program and that of one that it has a supervisor for: whoever
/// looks for the outer marker finds the inner program as well.
pub(crate) const MARKER_SEPARATOR: char = '/';

/// Name of the file by which a supervisor takes a record directory for its program.
pub const CLAIM: &str = "supervisor.json";

/// Name of the file in a record directory that takes the program's standard output.
pub const STDOUT_LOG: &str = "stdout.log";

/// Name of the file in a record directory that takes the program's standard error.
pub const STDERR_LOG: &str = "stderr.log";
