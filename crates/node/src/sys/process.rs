use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use mini_ork_protocol::ProcessIdentity;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::descriptors::wait_ready;

/// Most listings of the process table that go into one look at it.
const LISTINGS: usize = 20;

/// One line of the process table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessStatus {
    /// The process.
    pub(crate) identity: ProcessIdentity,
    /// Its parent's number.
    pub(crate) parent: i32,
    /// Nothing of it runs any more; it waits for its parent to notice.
    pub(crate) ended: bool,
}

/// Reads one line of the process table; none when there is no such process.
pub(crate) fn status(pid: i32) -> Option<ProcessStatus> {
    let bytes = fs_err::read(format!("/proc/{pid}/stat")).ok()?;
    parse_status(pid, &String::from_utf8_lossy(&bytes))
}

/// All processes that this one may see, ended ones included.
///
/// The listing is repeated until it shows nothing new: every process that is alive at the last
/// listing is in the table. With one listing, a process that forks and exits all the time hides:
/// its next life begins after the listing, its last one ends before its line is read. On a machine
/// where something new is always to be seen, the repetition ends nevertheless.
pub(crate) fn table() -> io::Result<Vec<ProcessStatus>> {
    let mut listed = HashSet::new();
    let mut all = Vec::new();
    for _ in 0..LISTINGS {
        let before = listed.len();
        for entry in fs_err::read_dir("/proc")? {
            let name = entry?.file_name();
            let pid = name.to_str().and_then(|name| name.parse::<i32>().ok());
            if let Some(pid) = pid.filter(|pid| listed.insert(*pid)) {
                all.extend(status(pid));
            }
        }
        if listed.len() == before {
            break;
        }
    }
    Ok(all)
}

/// This process.
pub fn own_identity() -> io::Result<ProcessIdentity> {
    let pid = rustix::process::getpid().as_raw_pid();
    let missing = || io::Error::new(io::ErrorKind::NotFound, "/proc does not show this process");
    status(pid)
        .map(|status| status.identity)
        .ok_or_else(missing)
}

/// A descriptor of exactly this process, ready to read once it has ended; none when it has ended.
///
/// The start time is compared after the descriptor is open: from then on the number cannot come to
/// mean another process.
pub(crate) fn open(process: ProcessIdentity) -> io::Result<Option<OwnedFd>> {
    // Numbers below 2 are not ours to touch, whatever a record says.
    let Some(pid) = Pid::from_raw(process.pid).filter(|_| process.pid > 1) else {
        return Ok(None);
    };
    let descriptor = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(descriptor) => descriptor,
        // EINVAL: the number now names a thread of another process.
        Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let same = status(process.pid).is_some_and(|now| now.identity == process && !now.ended);
    Ok(same.then_some(descriptor))
}

/// Sends a signal to exactly this process; nothing happens when it has ended.
pub fn signal(process: ProcessIdentity, signal: Signal) -> io::Result<()> {
    let Some(descriptor) = open(process)? else {
        return Ok(());
    };
    match rustix::process::pidfd_send_signal(&descriptor, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until this process has ended; says whether it has.
pub(crate) fn wait_ended(process: ProcessIdentity, deadline: Instant) -> io::Result<bool> {
    match open(process)? {
        None => Ok(true),
        Some(descriptor) => {
            let left = deadline.saturating_duration_since(Instant::now());
            let [ended] = wait_ready([(descriptor.as_fd(), PollFlags::IN)], left)?;
            Ok(ended)
        }
    }
}

/// Whether the environment that this process was started with has an entry of this kind.
///
/// Not so for a process whose memory this user may not read.
pub(crate) fn environment_has(pid: i32, is_it: impl Fn(&[u8]) -> bool) -> bool {
    fs_err::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(is_it))
}

/// The whole milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.unwrap_or(Duration::ZERO).as_millis()).unwrap_or(u64::MAX)
}

fn parse_status(pid: i32, line: &str) -> Option<ProcessStatus> {
    // The name in front is the program's own choice and may contain spaces and parentheses.
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let state = *fields.first()?;
    let threads: i64 = fields.get(17)?.parse().ok()?;
    Some(ProcessStatus {
        identity: ProcessIdentity {
            pid,
            start_ticks: fields.get(19)?.parse().ok()?,
        },
        parent: fields.get(1)?.parse().ok()?,
        // A process whose first thread has ended is shown as a zombie while the others run on.
        ended: state == "X" || (state == "Z" && threads <= 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: &str = "10 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 777 0 0";

    #[test]
    fn a_name_cannot_pretend_to_be_the_fields_after_it() {
        let line = format!("5 (x) Z 1 ) S {TAIL}");
        let status = parse_status(5, &line).unwrap();
        assert_eq!(status.parent, 10);
        assert_eq!(status.identity.start_ticks, 777);
        assert!(!status.ended);
    }

    #[test]
    fn a_zombie_with_running_threads_has_not_ended() {
        assert!(!parse_status(5, &format!("5 (x) Z {TAIL}")).unwrap().ended);
        let alone = TAIL.replace(" 20 0 3 0 ", " 20 0 1 0 ");
        assert!(parse_status(5, &format!("5 (x) Z {alone}")).unwrap().ended);
        assert_eq!(parse_status(5, "5 (x"), None);
        assert_eq!(parse_status(5, "5 (x) S 1 2"), None);
    }

    #[test]
    fn a_number_with_another_start_time_is_another_process() {
        let own = own_identity().unwrap();
        assert!(open(own).unwrap().is_some());
        let later = ProcessIdentity {
            start_ticks: own.start_ticks + 1,
            ..own
        };
        assert!(open(later).unwrap().is_none());
        assert!(wait_ended(later, Instant::now()).unwrap());
        let first = ProcessIdentity {
            pid: 1,
            start_ticks: status(1).unwrap().identity.start_ticks,
        };
        assert!(open(first).unwrap().is_none());
    }
}
