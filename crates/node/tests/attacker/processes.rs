#![expect(unsafe_code, reason = "tracing is not offered by a library")]

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use crate::{Attempt, judge};

/// Files of a process that tell what is in it.
const TELLING: &[&str] = &["mem", "environ", "maps", "auxv", "fd/0", "fd/1", "fd/3"];

/// Processes that are neither this one nor its parents up to the one that a supervisor started.
fn others() -> Vec<(i32, String)> {
    let own = ancestors();
    processes()
        .into_iter()
        .filter(|pid| !own.contains(pid))
        .map(|pid| (pid, command_line(pid)))
        .collect()
}

fn processes() -> Vec<i32> {
    let entries = fs_err::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// This process and its parents, as far as they are of the same session of work: the supervisor is
/// not among them.
fn ancestors() -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut pid = i32::try_from(std::process::id()).unwrap();
    while pid > 1 && !command_line(pid).contains("__supervise") {
        found.insert(pid);
        pid = parent(pid).unwrap_or(0);
    }
    found
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

fn command_line(pid: i32) -> String {
    let bytes = fs_err::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Reads what is in the processes that run everything: the first one, the server, the supervisor.
pub(crate) fn look_into(_token: &str) -> Attempt {
    let others = others();
    let mut open = Vec::new();
    for (pid, name) in &others {
        for file in TELLING {
            let path = format!("/proc/{pid}/{file}");
            if fs_err::File::open(&path).is_ok()
                || fs_err::OpenOptions::new().write(true).open(&path).is_ok()
            {
                open.push(format!("{path} of `{name}`"));
            }
        }
        for link in ["root", "cwd", "exe"] {
            if let Ok(target) = fs_err::read_link(format!("/proc/{pid}/{link}")) {
                open.push(format!(
                    "/proc/{pid}/{link} of `{name}`: {}",
                    target.display()
                ));
            }
        }
        // Its descriptors may be counted; what they are may not be seen.
        let descriptors = fs_err::read_dir(format!("/proc/{pid}/fd"));
        for entry in descriptors.into_iter().flatten().flatten() {
            if fs_err::read_link(entry.path()).is_ok() {
                open.push(format!("{} of `{name}`", entry.path().display()));
            }
        }
    }
    judge(others.len() * TELLING.len(), &open, "none can be read")
}

/// Takes hold of them.
pub(crate) fn trace(_token: &str) -> Attempt {
    let others = others();
    let mut open = Vec::new();
    for (pid, name) in &others {
        if seize(*pid).is_ok() {
            open.push(format!("{pid} `{name}`"));
        }
        if read_memory(*pid).is_ok() {
            open.push(format!("memory of {pid} `{name}`"));
        }
        if take_descriptor(*pid).is_ok() {
            open.push(format!("a descriptor of {pid} `{name}`"));
        }
    }
    judge(3 * others.len(), &open, "none can be traced")
}

fn result(value: libc::c_long) -> io::Result<libc::c_long> {
    if value < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value)
}

fn seize(pid: i32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    result(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0_usize, 0_usize) }).map(drop)
}

fn read_memory(pid: i32) -> io::Result<()> {
    let mut byte = 0_u8;
    let local = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // Where nothing is: who is let so far is told EFAULT.
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(4096),
        iov_len: 1,
    };
    // SAFETY: the kernel writes into `byte` at most.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    match result(read as libc::c_long) {
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Ok(()),
        other => other.map(drop),
    }
}

fn take_descriptor(pid: i32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let process = result(process)?;
    // SAFETY: as above.
    result(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, 1, 0) }).map(drop)
}

/// For some seconds tries to take hold of every process in the moment of its birth, and ends the
/// server from time to time so that there are births. The test has connections made meanwhile.
pub(crate) fn watch(seconds: u64) -> std::process::ExitCode {
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut known: BTreeSet<i32> = processes().into_iter().collect();
    let (mut births, mut caught) = (0, BTreeSet::new());
    let mut kill_at = Instant::now() + Duration::from_millis(500);
    let own = ancestors();
    while Instant::now() < until {
        if Instant::now() > kill_at {
            kill_at += Duration::from_millis(700);
            for pid in processes() {
                if parent(pid) == Some(1) && command_line(pid).contains(" serve ") {
                    // SAFETY: no memory is involved.
                    unsafe { libc::kill(pid, libc::SIGKILL) };
                }
            }
        }
        for pid in processes() {
            if known.contains(&pid) || own.contains(&pid) {
                continue;
            }
            // As often as it takes it to protect itself.
            let mut name = String::new();
            for _ in 0..2000 {
                if seize(pid).is_ok() {
                    caught.insert(format!("{pid} `{}`", command_line(pid)));
                    break;
                }
                name = command_line(pid);
                if name.is_empty() {
                    break;
                }
            }
            // One that is only just born is looked at again.
            if !name.is_empty() && known.insert(pid) {
                births += 1;
            }
        }
    }
    let caught: Vec<String> = caught
        .into_iter()
        // What runs beside this program can be disturbed by it.
        .filter(|name| {
            !name.contains("__supervise") && (name.contains("mini-ork") || name.contains("serve"))
        })
        .collect();
    println!("births {births} caught {caught:?}");
    std::process::ExitCode::SUCCESS
}
