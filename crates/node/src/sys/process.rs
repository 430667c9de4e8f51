use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use mini_ork_protocol::ProcessIdentity;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Signal, set_dumpable_behavior};

use super::descriptors::{readable, wait_ready};

/// How often a process without a descriptor is looked at, at first and in the end.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(32);

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

/// A process that is watched: it cannot come to mean another one.
#[derive(Debug)]
pub(crate) enum Watched {
    /// Ready to read once the process has ended.
    Descriptor(OwnedFd),
    /// On kernels that give no descriptor of a process, such as gVisor's, its line in the process
    /// table is compared each time. A signal could still meet another process if the numbers of all
    /// processes went round once between the comparison and the signal.
    Table(ProcessIdentity),
}

/// How processes are watched on this kernel.
#[derive(Debug, Clone, Copy)]
enum Way {
    Descriptor,
    Table,
}

impl Way {
    /// Found out once, by trying: what calls itself an old kernel may have the call, and a filter
    /// may take it away from a new one.
    fn of_this_kernel() -> Self {
        static DESCRIPTORS: OnceLock<bool> = OnceLock::new();
        let own = rustix::process::getpid();
        let works = DESCRIPTORS.get_or_init(|| {
            let opened = rustix::process::pidfd_open(own, PidfdFlags::empty());
            !matches!(opened, Err(Errno::NOSYS | Errno::PERM))
        });
        if *works {
            Self::Descriptor
        } else {
            Self::Table
        }
    }
}

/// Watches exactly this process; none when it has ended.
pub(crate) fn open(process: ProcessIdentity) -> io::Result<Option<Watched>> {
    open_by(Way::of_this_kernel(), process)
}

fn open_by(way: Way, process: ProcessIdentity) -> io::Result<Option<Watched>> {
    // Numbers below 2 are not ours to touch, whatever a record says.
    let Some(pid) = Pid::from_raw(process.pid).filter(|_| process.pid > 1) else {
        return Ok(None);
    };
    let watched = match way {
        Way::Table => Watched::Table(process),
        Way::Descriptor => match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => Watched::Descriptor(descriptor),
            // EINVAL: the number now names a thread of another process.
            Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
            Err(error) => return Err(error.into()),
        },
    };
    // The start time is compared after the descriptor is open: from then on the number cannot come
    // to mean another process.
    Ok(runs(process).then_some(watched))
}

impl Watched {
    /// Waits until the process has ended, or `limit` has passed; says whether it has ended.
    pub(crate) fn wait_ended(&self, limit: Duration) -> io::Result<bool> {
        match self {
            Self::Descriptor(descriptor) => {
                let [ended] = wait_ready([(descriptor.as_fd(), PollFlags::IN)], limit)?;
                Ok(ended)
            }
            Self::Table(process) => {
                let began = Instant::now();
                let mut pause = FIRST_LOOK;
                while runs(*process) {
                    let left = limit.saturating_sub(began.elapsed());
                    if left == Duration::ZERO {
                        return Ok(false);
                    }
                    std::thread::sleep(pause.min(left));
                    pause = (pause * 2).min(LAST_LOOK);
                }
                Ok(true)
            }
        }
    }

    /// Waits until the process has ended, without holding a thread.
    pub(crate) async fn ended(self) -> io::Result<()> {
        match self {
            Self::Descriptor(descriptor) => readable(descriptor).await,
            Self::Table(process) => {
                let mut pause = FIRST_LOOK;
                while runs(process) {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LAST_LOOK);
                }
                Ok(())
            }
        }
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let sent = match self {
            Self::Descriptor(descriptor) => rustix::process::pidfd_send_signal(descriptor, signal),
            Self::Table(process) => match Pid::from_raw(process.pid) {
                Some(pid) if runs(*process) => rustix::process::kill_process(pid, signal),
                _ => Ok(()),
            },
        };
        match sent {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Sends a signal to exactly this process; nothing happens when it has ended.
pub fn signal(process: ProcessIdentity, signal: Signal) -> io::Result<()> {
    match open(process)? {
        Some(watched) => watched.signal(signal),
        None => Ok(()),
    }
}

/// Waits until this process has ended; says whether it has.
pub(crate) fn wait_ended(process: ProcessIdentity, deadline: Instant) -> io::Result<bool> {
    match open(process)? {
        None => Ok(true),
        Some(watched) => watched.wait_ended(deadline.saturating_duration_since(Instant::now())),
    }
}

fn runs(process: ProcessIdentity) -> bool {
    status(process.pid).is_some_and(|now| now.identity == process && !now.ended)
}

/// Has orphaned descendants become children of this process; says whether the kernel does that.
/// gVisor's does it for the first process alone.
pub(crate) fn adopt_orphans() -> io::Result<bool> {
    match rustix::process::set_child_subreaper(Pid::from_raw(1)) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOSYS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Makes this process the leader of a session; nothing happens where it leads a group already.
#[expect(
    unsafe_code,
    reason = "some kernels answer with no number, on which the library stops the program"
)]
pub(crate) fn begin_session() {
    // SAFETY: the call takes nothing and changes no memory.
    unsafe { libc::setsid() };
}

/// Whether the environment that this process was started with has an entry of this kind.
///
/// Not so for a process whose memory this user may not read.
pub(crate) fn environment_has(pid: i32, is_it: impl Fn(&[u8]) -> bool) -> bool {
    fs_err::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(is_it))
}

/// Keeps other programs of the same user from looking into this process.
pub(crate) fn protect() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Sees to it that when memory runs out the program `pid` ends before its supervisor, and before
/// what the user works with. Where that cannot be said, the system decides by size alone.
pub(crate) fn let_end_first(pid: i32) {
    const RATHER: i32 = 500;
    let path = format!("/proc/{pid}/oom_score_adj");
    let now = fs_err::read_to_string(&path).ok();
    if now
        .and_then(|text| text.trim().parse::<i32>().ok())
        .is_some_and(|now| now < RATHER)
    {
        let _ = fs_err::write(&path, RATHER.to_string());
    }
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

    /// A process that sleeps until it is killed, and is reaped by the test.
    #[expect(clippy::disallowed_methods, reason = "a process that sleeps")]
    fn sleeper() -> (std::process::Child, ProcessIdentity) {
        let child = std::process::Command::new("sleep")
            .arg("97")
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let identity = status(pid).unwrap().identity;
        (child, identity)
    }

    #[test]
    fn a_number_with_another_start_time_is_another_process() {
        for way in [Way::Descriptor, Way::Table] {
            let (mut child, process) = sleeper();
            let later = ProcessIdentity {
                start_ticks: process.start_ticks + 1,
                ..process
            };
            assert!(open_by(way, later).unwrap().is_none());
            let first = ProcessIdentity {
                pid: 1,
                start_ticks: status(1).unwrap().identity.start_ticks,
            };
            assert!(open_by(way, first).unwrap().is_none());
            let watched = open_by(way, process).unwrap().unwrap();
            Watched::Table(later).signal(Signal::KILL).unwrap();
            assert!(!watched.wait_ended(Duration::from_millis(5)).unwrap());
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn an_end_is_noticed_in_every_way() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        for way in [Way::Descriptor, Way::Table] {
            let (mut child, process) = sleeper();
            let watched = open_by(way, process).unwrap().unwrap();
            let again = open_by(way, process).unwrap().unwrap();
            watched.signal(Signal::KILL).unwrap();
            // Not reaped yet, which makes no difference.
            assert!(watched.wait_ended(Duration::from_secs(60)).unwrap());
            runtime.block_on(again.ended()).unwrap();
            assert!(open_by(way, process).unwrap().is_none());
            watched.signal(Signal::KILL).unwrap();
            child.wait().unwrap();
        }
    }
}
