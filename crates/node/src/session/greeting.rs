//! Who it is that speaks to a session server, and what it says of the place where it is.

use std::io::{self, Write as _};
use std::path::Path;

use mini_ork_protocol::{GENERATION, MountProof, Welcome};
use tokio::net::UnixStream;

use super::server::path_of;
use crate::beneath::{Directory, Links};
use crate::sys::process;

/// Longest mount question.
const LONGEST_QUESTION: u64 = 64;

/// Answers a file of the outside, which is there when both sides see the same directory.
pub(super) fn answer_proof(proof: &MountProof) -> io::Result<()> {
    let directory = Directory::open(&path_of(&proof.directory))?;
    let question = Path::new(MountProof::QUESTION);
    let bytes = directory.read(question, LONGEST_QUESTION, Links::Refused)?;
    let answer = Path::new(MountProof::ANSWER);
    directory.replace(answer, |file| file.write_all(&bytes))
}

/// What the outside is told first.
pub(super) fn welcome() -> Welcome {
    Welcome {
        generation: GENERATION,
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        interfaces: interfaces(),
        processors: std::thread::available_parallelism()
            .map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX)),
    }
}

/// Whether whoever is at the other end of `connection` was not started by anything in here: it is
/// of another namespace of processes, or the engine has put it into this one. A program could else
/// take up all the room that there is for those who have not shown the token yet.
pub(super) fn is_from_outside(connection: &UnixStream) -> bool {
    let own = rustix::process::getpid().as_raw_pid();
    match connection.peer_cred().ok().and_then(|peer| peer.pid()) {
        // Some kernels name the one who asks, which tells nothing.
        None | Some(..=0) => true,
        Some(pid) if pid == own => true,
        Some(pid) => process::status(pid).is_some_and(|status| status.parent == 0),
    }
}

/// The names of the network interfaces that this process sees.
fn interfaces() -> Vec<String> {
    let table = fs_err::read_to_string("/proc/net/dev").unwrap_or_default();
    let mut names: Vec<String> = table
        .lines()
        .skip(2)
        .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
        .collect();
    names.sort();
    names
}
