use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fs_err::os::unix::fs::OpenOptionsExt as _;

use crate::{Attempt, judge};

/// Directories that are worth a try beside all mounts.
const PLACES: &[&str] = &[
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/etc/cron.d",
    "/home",
    "/lib",
    "/opt",
    "/opt/mini-ork",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/usr",
    "/usr/bin",
    "/usr/local/bin",
    "/var",
    "/var/lib",
    "/var/lib/docker",
    "/var/run",
    "/var/spool/cron",
    "/workspace",
    "/workspace/recipe",
    "/workspace/run",
];
/// File systems in which a new file is nobody's loss.
const OWN: &[&str] = &["tmpfs", "mqueue", "devpts"];
/// More files than this are not looked at.
const MOST_FILES: usize = 60_000;

/// The mounts that this process sees: where, and of which kind.
pub(crate) fn mounts() -> Vec<(PathBuf, String)> {
    let table = fs_err::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = table.lines().filter_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let place = front.split(' ').nth(4)?.replace("\\040", " ");
        Some((place.into(), back.split(' ').next()?.to_owned()))
    });
    mounts.collect()
}

/// Makes a file called by the token wherever that can be done. The test looks for it outside; in
/// here only those are found that are neither in memory nor in a directory that was given.
pub(crate) fn write_outside(token: &str) -> Attempt {
    let given = given();
    let mut tried = 0;
    let mut open = Vec::new();
    let mut places: Vec<PathBuf> = PLACES.iter().map(PathBuf::from).collect();
    places.extend(mounts().into_iter().map(|(place, _)| place));
    for place in places {
        tried += 1;
        let Ok(found) = fs_err::metadata(&place) else {
            continue;
        };
        let worked = if found.is_dir() {
            fs_err::write(place.join(token), token).is_ok()
        } else {
            found.is_file() && fs_err::OpenOptions::new().append(true).open(&place).is_ok()
        };
        let place = fs_err::canonicalize(&place).unwrap_or(place);
        if worked && !given.iter().any(|given| place.starts_with(given)) && !is_own(&place) {
            open.push(place.display().to_string());
        }
    }
    judge(tried, &open, "all of them read-only, or in memory")
}

/// Directories that the test says may be written.
fn given() -> Vec<PathBuf> {
    let list = std::env::var("GIVEN").unwrap_or_default();
    list.split(':')
        .filter(|one| !one.is_empty())
        .map(PathBuf::from)
        .collect()
}

fn is_own(place: &Path) -> bool {
    let mounts = mounts();
    let around = mounts.iter().filter(|(mount, _)| place.starts_with(mount));
    let innermost = around.max_by_key(|(mount, _)| mount.components().count());
    innermost.is_some_and(|(_, kind)| OWN.contains(&kind.as_str()))
}

/// Opens whatever of `/proc` and `/sys` changes the machine. Nothing is written.
pub(crate) fn write_to_kernel(_token: &str) -> Attempt {
    const NAMED: &[&str] = &[
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hotplug",
        "/proc/sys/kernel/ns_last_pid",
        "/proc/sys/fs/binfmt_misc/register",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sysrq-trigger",
        "/proc/acpi/ibm",
        "/proc/mtrr",
        "/sys/kernel/uevent_helper",
        "/sys/power/state",
        "/sys/fs/cgroup/release_agent",
        "/sys/fs/cgroup/memory/release_agent",
        "/sys/fs/cgroup/devices/devices.allow",
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/pids/pids.max",
        "/sys/kernel/security/apparmor/.replace",
    ];
    let mut files: Vec<PathBuf> = NAMED.iter().map(PathBuf::from).collect();
    for root in [
        "/proc/sys",
        "/proc/irq",
        "/proc/bus",
        "/proc/fs",
        "/proc/driver",
        "/sys",
    ] {
        walk(Path::new(root), &mut files);
    }
    let tried = files.len();
    let open = files.iter().filter(|path| {
        // Without waiting, and without cutting anything off.
        let mut options = fs_err::OpenOptions::new();
        options.write(true);
        options.custom_flags(libc::O_NONBLOCK);
        options.open(path).is_ok()
    });
    let open: Vec<String> = open.map(|path| path.display().to_string()).collect();
    judge(tried, &open, "none can be opened for writing")
}

fn walk(root: &Path, files: &mut Vec<PathBuf>) {
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        let Ok(entries) = fs_err::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                pending.push(entry.path());
            } else if kind.is_file() && files.len() < MOST_FILES {
                files.push(entry.path());
            }
        }
    }
}

/// Gives a file away, or to itself what only a privileged program can give.
pub(crate) fn become_owner(token: &str) -> Attempt {
    let file = std::env::current_dir()
        .unwrap()
        .join(format!("{token}-own"));
    fs_err::write(&file, token).unwrap();
    let mut open = Vec::new();
    let own = fs_err::metadata(&file).unwrap().uid();
    for user in [0, 1, 65534].into_iter().filter(|user| *user != own) {
        if std::os::unix::fs::chown(&file, Some(user), None).is_ok() {
            open.push(format!("a file was given to user {user}"));
        }
    }
    // `cap_setuid=ep` as the kernel keeps it.
    let capability = [
        1, 0, 0, 2, 0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&file, "security.capability", &capability, flags).is_ok() {
        open.push("a program was given a capability".to_owned());
    }
    if rustix::fs::setxattr(&file, "trusted.x", b"x", flags).is_ok() {
        open.push("a trusted attribute was set".to_owned());
    }
    judge(5, &open, "not permitted")
}

/// Files of the system under a name on the drive: what the outside does to the drive it would do to
/// them.
pub(crate) fn hard_link_outside(token: &str) -> Attempt {
    let directory = std::env::current_dir().unwrap();
    let mut open = Vec::new();
    let targets = [
        "/etc/passwd",
        "/etc/hosts",
        "/proc/self/status",
        "/dev/null",
        "/bin/sh",
    ];
    for (number, target) in targets.iter().enumerate() {
        let link = directory.join(format!("{token}-link-{number}"));
        if fs_err::hard_link(target, &link).is_ok() {
            open.push((*target).to_owned());
        }
        let flags = libc::O_PATH;
        let opened = fs_err::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(target);
        if let Ok(file) = opened {
            let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
            let linked = rustix::fs::linkat(
                rustix::fs::CWD,
                name.as_str(),
                rustix::fs::CWD,
                &link,
                rustix::fs::AtFlags::SYMLINK_FOLLOW,
            );
            if linked.is_ok() {
                open.push(format!("{target} by its descriptor"));
            }
        }
    }
    judge(
        2 * targets.len(),
        &open,
        "not on one file system with the drive",
    )
}
