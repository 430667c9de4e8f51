use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use mini_ork_protocol::ProcessIdentity;
use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags};

use super::descriptors::wait_ready;

/// `CGROUP2_SUPER_MAGIC` of the kernel. Something else may be mounted over a cgroup mount.
const MAGIC: u64 = 0x6367_7270;

/// A cgroup v2 that holds the processes of one program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Makes a group for the program of `supervisor`, below the group that this process is in.
    ///
    /// None when this machine does not let us: no cgroup v2, no permission, or a kernel before
    /// 5.14, which cannot kill a group as one.
    pub(crate) fn create(supervisor: ProcessIdentity) -> Option<Self> {
        let path = own_group()?.join(name_of(supervisor));
        fs_err::create_dir(&path).ok()?;
        let group = Self { path };
        if group.path.join("cgroup.kill").exists() {
            Some(group)
        } else {
            group.remove();
            None
        }
    }

    /// The group that the record of `supervisor` names, when it still exists.
    ///
    /// The record is not believed: any other path than one that [`Self::create`] can have given is
    /// none. A group is killed as a whole, so a wrong path is the user's session gone.
    pub(crate) fn reopen(path: &Path, supervisor: ProcessIdentity) -> Option<Self> {
        let plain = path.is_absolute()
            && path
                .components()
                .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let named = path
            .file_name()
            .is_some_and(|name| name == name_of(supervisor).as_str());
        (plain && named && is_cgroup(path)).then(|| Self {
            path: path.to_owned(),
        })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A descriptor of the group, for a process to be born in it.
    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::open(&self.path, flags, Mode::empty())?)
    }

    /// The processes in the group itself. Those in groups that they made below it are not listed.
    pub(crate) fn members(&self) -> Vec<i32> {
        let text = fs_err::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Kills all processes in the group and below it, those that are being born included.
    pub(crate) fn kill(&self) -> io::Result<()> {
        match fs_err::write(self.path.join("cgroup.kill"), "1") {
            Err(error) if !is_missing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits until no process is in the group or below it; says whether so.
    pub(crate) fn wait_empty(&self, deadline: Instant) -> io::Result<bool> {
        loop {
            let events = match fs_err::File::open(self.path.join("cgroup.events")) {
                Ok(events) => events.into_file(),
                Err(error) if is_missing(&error) => return Ok(true),
                Err(error) => return Err(error),
            };
            if io::read_to_string(&events)?
                .lines()
                .any(|line| line == "populated 0")
            {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return Ok(false);
            }
            // A change since the read makes this ready at once.
            wait_ready([(events.as_fd(), PollFlags::PRI)], left)?;
        }
    }

    /// Removes the group, with groups that its processes made below it. One that cannot be removed
    /// is an empty directory in the kernel's memory and nothing more.
    pub(crate) fn remove(&self) {
        let mut pending = vec![self.path.clone()];
        while let Some(path) = pending.pop() {
            if fs_err::remove_dir(&path).is_ok() {
                continue;
            }
            let below = directories_in(&path);
            if !below.is_empty() {
                pending.push(path);
                pending.extend(below);
            } else if path != self.path {
                // It cannot go, so those above it cannot either; trying again would never end.
                return;
            }
        }
    }
}

fn name_of(supervisor: ProcessIdentity) -> String {
    format!("mini-ork-{}-{}", supervisor.pid, supervisor.start_ticks)
}

fn is_missing(error: &io::Error) -> bool {
    // ENODEV: removed while it was open.
    let removed = Some(rustix::io::Errno::NODEV.raw_os_error());
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == removed
}

/// Whether `path` is in a hierarchy of the second version.
pub(super) fn is_cgroup(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|status| u64::try_from(status.f_type) == Ok(MAGIC))
}

fn directories_in(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs_err::read_dir(path) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// The directory of the group that this process is in.
fn own_group() -> Option<PathBuf> {
    own_groups(None).into_iter().find(|path| is_cgroup(path))
}

/// Where the group of this process is to be found: that of `controller` in its hierarchy of the
/// first version, else the one in the hierarchy of the second.
pub(super) fn own_groups(controller: Option<&str>) -> Vec<PathBuf> {
    let mounts = fs_err::read("/proc/self/mountinfo").unwrap_or_default();
    let own = fs_err::read("/proc/self/cgroup").unwrap_or_default();
    match own_line(&own, controller) {
        Some(group) => group_directories(&mounts, &group, controller),
        None => Vec::new(),
    }
}

/// The path of this process in a hierarchy, as `/proc` shows it: `NUMBER:CONTROLLERS:PATH`.
fn own_line(text: &[u8], controller: Option<&str>) -> Option<PathBuf> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let found = match controller {
            None => number == b"0" && controllers.is_empty(),
            Some(name) => names(controllers, name),
        };
        found.then(|| PathBuf::from(std::ffi::OsStr::from_bytes(path)))
    })
}

/// Whether `name` is in a list with commas.
fn names(list: &[u8], name: &str) -> bool {
    let mut names = list.split(|byte| *byte == b',');
    names.any(|one| one == name.as_bytes())
}

/// Where `group` is to be found, on each mount of its hierarchy that shows it.
fn group_directories(mounts: &[u8], group: &Path, controller: Option<&str>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in mounts.split(|byte| *byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let Some(separator) = fields.iter().position(|field| *field == b"-") else {
            continue;
        };
        let kind = fields.get(separator + 1).copied();
        let is_it = match controller {
            None => kind == Some(b"cgroup2"),
            Some(name) => {
                let options = fields.get(separator + 3).copied().unwrap_or_default();
                kind == Some(b"cgroup") && names(options, name)
            }
        };
        if !is_it || separator < 5 {
            continue;
        }
        // A container may see a part of the hierarchy only: the mount then starts below its root.
        if let Ok(inner) = group.strip_prefix(unescape(fields[3])) {
            found.push(unescape(fields[4]).join(inner));
        }
    }
    found
}

/// Undoes the octal escapes of `/proc/self/mountinfo`.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\');
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(value.unwrap_or(first));
        rest = if value.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_v2_hierarchy_is_found_alone_beside_v1_and_in_a_container() {
        let pure = b"30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
        let expected = vec![PathBuf::from("/sys/fs/cgroup/user.slice")];
        assert_eq!(
            group_directories(pure, Path::new("/user.slice"), None),
            expected
        );

        let hybrid = b"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw - cgroup2 cgroup2 rw\n";
        let of_processors = group_directories(hybrid, Path::new("/a"), Some("cpu"));
        assert_eq!(of_processors, [PathBuf::from("/sys/fs/cgroup/cpu/a")]);
        let expected = vec![PathBuf::from("/sys/fs/cgroup/uni fied")];
        assert_eq!(group_directories(hybrid, Path::new("/"), None), expected);

        let part = b"41 31 0:38 /docker/a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let expected = vec![PathBuf::from("/sys/fs/cgroup/b")];
        assert_eq!(
            group_directories(part, Path::new("/docker/a/b"), None),
            expected
        );
        assert!(group_directories(part, Path::new("/other"), None).is_empty());
        assert!(group_directories(b"- cgroup2\n\n1 - \n", Path::new("/"), None).is_empty());
    }

    #[test]
    fn the_line_of_a_hierarchy_is_found() {
        let text = b"9:name=systemd:/s\n4:cpu,memory:/a:b\n0::/u\n";
        assert_eq!(own_line(text, None), Some(PathBuf::from("/u")));
        assert_eq!(own_line(text, Some("memory")), Some(PathBuf::from("/a:b")));
        assert_eq!(own_line(text, Some("mem")), None);
        assert_eq!(own_line(b"0:\n::\n", None), None);
    }

    #[test]
    fn a_record_cannot_name_another_group() {
        let supervisor = ProcessIdentity {
            pid: 7,
            start_ticks: 9,
        };
        let directory = tempfile::tempdir().unwrap();
        let named = directory.path().join("mini-ork-7-9");
        fs_err::create_dir(&named).unwrap();
        assert_eq!(Cgroup::reopen(&named, supervisor), None, "not a cgroup");
        if let Some(own) = own_group() {
            assert_eq!(Cgroup::reopen(&own, supervisor), None);
            let upward = own.join("..").join("mini-ork-7-9");
            assert_eq!(Cgroup::reopen(&upward, supervisor), None);
        }
    }
}
