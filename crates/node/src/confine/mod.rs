//! Confinement on this machine without a privilege: a program with namespaces of its own for users,
//! mounts, processes and the network.
//!
//! What holds inside:
//! - There is no interface but loopback, so no way out but the descriptors that were handed in.
//!   Sockets of other families cannot be made, and sockets in the file system that existed before
//!   are covered or hidden; in the directories that were named so are later ones.
//! - Nothing can be written but the directories that were named, a temporary one, and memory.
//! - No process outside is seen or signalled; when the first program ends, all end.
//! - The program runs as the user that started it, without a privilege and without a way to one.
//!
//! What does not hold: files that the user can read are read, except where they are hidden; the
//! kernel is shared.

mod enter;
mod files;
mod sockets;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mini_ork_protocol::{ByteString, ProcessIdentity};
use rustix::event::PollFlags;
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd as _;

pub use enter::confine_main;

use crate::sys::descriptors::wait_ready;
use crate::sys::process;

/// The first argument of a program that calls [`confine_main`].
pub const CONFINE_ARGUMENT: &str = "__confine";
/// The descriptor of the socket that the first program inside gets.
pub const SOCKET_DESCRIPTOR: i32 = 3;

/// It takes about 10 ms; only a machine that is out of memory comes near.
const START_LIMIT: Duration = Duration::from_secs(30);
const LONGEST_ANSWER: usize = 16 * 1024;

/// A program to confine, and what it sees. All paths are absolute.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confinement {
    /// The program, a path, with its arguments. It is process 1, and has to reap.
    pub argv: Vec<ByteString>,
    /// Its whole environment.
    pub env: Vec<(ByteString, ByteString)>,
    /// Its working directory.
    pub cwd: ByteString,
    /// Directories that can be written.
    pub writable: Vec<ByteString>,
    /// Files and directories that are seen even where what is around them is hidden.
    pub readable: Vec<ByteString>,
    /// Files that are seen in the place of others: each with the one that it covers.
    pub replaced: Vec<(ByteString, ByteString)>,
    /// Directories that are empty inside, beside `/run`, `/tmp`, `/var/tmp` and `/dev`.
    pub hidden: Vec<ByteString>,
    /// Directories whose files are seen and whose sockets lead nowhere, also later ones. Those that
    /// do not exist are left out, as are those in a directory that can be written.
    pub quiet: Vec<ByteString>,
    /// The directory that is `/tmp` and `/var/tmp` inside.
    pub temporary: ByteString,
    /// The content of `/etc/hosts`.
    pub hosts: String,
    /// The content of `/etc/resolv.conf`.
    pub resolver: String,
    /// Where the [`ProcessIdentity`] of the program is written before it is run.
    pub record: ByteString,
    /// Most processes and threads inside. The system does not hold its root to it.
    pub processes: u32,
    /// Where to listen, outside; the program gets the socket as [`SOCKET_DESCRIPTOR`].
    pub socket: Option<ByteString>,
}

/// Starts the program of `confinement` by way of `program`, which calls [`confine_main`] when its
/// first argument is [`CONFINE_ARGUMENT`]. What goes to standard output and error goes to `log`.
///
/// Returns once the program runs. It lives on when this process ends. After an error a process may
/// be left that got stuck on the way to the program; [`Confinement::record`] tells which. Blocks for
/// about 10 ms.
pub fn confine(
    program: &Path,
    confinement: &Confinement,
    log: File,
) -> Result<ProcessIdentity, ConfineError> {
    let spec =
        serde_json::to_vec(confinement).map_err(|error| ConfineError::Launch(error.into()))?;
    let mut child = command(program, log)
        .spawn()
        .map_err(ConfineError::Launch)?;
    let answer = child
        .stdin
        .take()
        .zip(child.stdout.take())
        .ok_or_else(|| io::Error::other("the pipes are missing"))
        .and_then(|(mut stdin, mut stdout)| {
            match stdin.write_all(&spec) {
                // It went away; its answer says why.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                other => other?,
            }
            drop(stdin);
            read_answer(&mut stdout)
        });
    if answer.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    let answer = answer.map_err(ConfineError::Launch)?;
    let mut pid = None;
    for line in answer.lines() {
        match line.split_once(' ') {
            Some(("pid", number)) => pid = number.parse::<i32>().ok(),
            Some(("refused", message)) => return Err(ConfineError::Refused(message.to_owned())),
            Some(("failed", message)) => return Err(ConfineError::Failed(message.to_owned())),
            _ => {}
        }
    }
    let status = pid.and_then(process::status);
    match status {
        Some(status) => Ok(status.identity),
        None => Err(ConfineError::Failed("it ended at once".to_owned())),
    }
}

/// Ends a confined program and all that it started. Does nothing when it has ended.
pub fn end(first: ProcessIdentity) -> io::Result<()> {
    process::signal(first, process_signal())?;
    if process::wait_ended(first, Instant::now() + START_LIMIT)? {
        Ok(())
    } else {
        Err(io::ErrorKind::TimedOut.into())
    }
}

fn process_signal() -> crate::sys::Signal {
    crate::sys::Signal::KILL
}

/// Why a program could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// The system does not let this user make the namespaces.
    #[error("this system does not let an ordinary user make namespaces: {0}")]
    Refused(String),
    /// Something else was in the way.
    #[error("the confined program could not be started: {0}")]
    Failed(String),
    /// The program that confines could not be run.
    #[error("the program that confines could not be run")]
    Launch(#[source] io::Error),
}

/// The one constructor of a confined program.
#[expect(
    clippy::disallowed_methods,
    reason = "the one constructor of a confined program"
)]
fn command(program: &Path, log: File) -> Command {
    let mut command = Command::new(program);
    command
        .arg(CONFINE_ARGUMENT)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log);
    command
}

fn read_answer(stdout: &mut std::process::ChildStdout) -> io::Result<String> {
    let deadline = Instant::now() + START_LIMIT;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let [ready] = wait_ready([(stdout.as_fd(), PollFlags::IN)], left)?;
        if !ready || answer.len() > LONGEST_ANSWER {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "it did not answer in time",
            ));
        }
        let count = stdout.read(&mut buffer)?;
        if count == 0 {
            return Ok(String::from_utf8_lossy(&answer).into_owned());
        }
        answer.extend_from_slice(&buffer[..count]);
    }
}
