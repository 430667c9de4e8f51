//! What a confined program sees of the file system.
//!
//! Directories that are to be seen are opened as detached mounts first; then everything becomes
//! read-only and the hidden directories are covered; then what was opened comes back on top.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags as Flags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    move_mount, open_tree,
};

use super::enter::{c_path, failed, open_low_ports};
use super::{Confinement, sockets};
use crate::sys::namespaces::{MountFlags, set_mount};

/// Directories in which programs of the machine have their sockets and everybody their files.
const HIDDEN: [&str; 3] = ["/run", "/tmp", "/var/tmp"];
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Parts of `/proc` that change the machine for whoever is its root.
const MACHINE: [&str; 5] = ["sys", "sysrq-trigger", "irq", "bus", "fs"];
/// Parts of it that tell of the machine.
const SECRET: [&str; 3] = ["kcore", "keys", "timer_list"];
/// Files that this module writes, below `/run`.
const OWN: &str = "/run/mini-ork";
/// A directory with nothing in it, there as well.
const EMPTY: &str = "/run/mini-ork/empty";

/// What was seen of the outside, before it was left.
#[derive(Debug)]
pub(super) struct Surroundings {
    /// Sockets that may lead to programs outside.
    sockets: BTreeSet<PathBuf>,
    /// The outermost first, as with `shown`.
    covered: Vec<Covered>,
    hosts: Option<PathBuf>,
    resolver: Option<PathBuf>,
    /// What comes back on top, by where it is.
    shown: Vec<Shown>,
}

#[derive(Debug)]
struct Covered {
    path: PathBuf,
    /// Its files are seen; its sockets lead nowhere.
    is_quiet: bool,
}

#[derive(Debug)]
struct Shown {
    /// What is there.
    source: PathBuf,
    /// Where it is seen.
    target: PathBuf,
    is_directory: bool,
    read_only: bool,
}

/// Why the file system cannot be arranged.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The system does not let this user.
    Refused(String),
    /// Something else.
    Failed(String),
}

impl From<String> for Trouble {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

impl Surroundings {
    /// To be called in the namespaces of the outside.
    pub(super) fn look(spec: &Confinement) -> Result<Self, String> {
        let hidden = HIDDEN.iter().map(PathBuf::from);
        let own = spec
            .hidden
            .iter()
            .map(|path| PathBuf::from(path.as_os_str()));
        let hidden = hidden
            .chain(own)
            .filter_map(|path| fs_err::canonicalize(path).ok());
        let mut shown = Vec::new();
        for target in TEMPORARY {
            // Where one is a link to the other, once is enough.
            if fs_err::symlink_metadata(target).is_ok_and(|found| found.is_dir()) {
                shown.push(Shown::look(spec.temporary.as_os_str(), false)?.at(target));
            }
        }
        for path in &spec.readable {
            shown.push(Shown::look(path.as_os_str(), true)?);
        }
        for path in &spec.writable {
            shown.push(Shown::look(path.as_os_str(), false)?);
        }
        for (file, covered) in &spec.replaced {
            let place = Shown::look(covered.as_os_str(), true)?.target;
            shown.push(Shown::look(file.as_os_str(), true)?.at(place));
        }
        // What is inside of another comes after it. The sort is stable: of two for the same place
        // the one that can be written is on top.
        shown.sort_by_key(|shown| depth(&shown.target));
        let hidden: Vec<PathBuf> = hidden.filter(|path| path.is_dir()).collect();
        let is_seen = |path: &Path| {
            let is_hidden = hidden.iter().any(|directory| path.starts_with(directory));
            !is_hidden || shown.iter().any(|shown| path.starts_with(&shown.target))
        };
        let sockets = sockets::find(is_seen)?;
        let quiet = spec
            .quiet
            .iter()
            .filter_map(|path| fs_err::canonicalize(Path::new(path.as_os_str())).ok());
        // What lies in something that can be written belongs to the run, and stays so.
        let is_own = |path: &PathBuf| {
            let mut own = shown.iter().filter(|shown| !shown.read_only);
            own.any(|shown| path.starts_with(&shown.target))
        };
        let quiet = quiet.filter(|path| path.is_dir() && !is_own(path));
        let quiet: Vec<PathBuf> = quiet.collect();
        let cover = |is_quiet| move |path| Covered { path, is_quiet };
        let mut covered: Vec<Covered> = hidden.into_iter().map(cover(false)).collect();
        covered.extend(quiet.into_iter().map(cover(true)));
        covered.sort_by_key(|covered| depth(&covered.path));
        Ok(Self {
            sockets,
            covered,
            hosts: fs_err::canonicalize("/etc/hosts").ok(),
            resolver: fs_err::canonicalize("/etc/resolv.conf").ok(),
            shown,
        })
    }
}

impl Covered {
    fn cover(&self) -> Result<(), Trouble> {
        if self.is_quiet {
            fs_err::create_dir_all(EMPTY).map_err(failed("make a directory of its own"))?;
            sockets::quiet(&self.path, Path::new(EMPTY))
        } else {
            hide(&self.path)
        }
    }
}

impl Shown {
    fn look(path: impl AsRef<Path>, read_only: bool) -> Result<Self, String> {
        let path = path.as_ref();
        let shown = path.display();
        if !path.is_absolute() {
            return Err(format!("`{shown}` is not an absolute path"));
        }
        let source = fs_err::canonicalize(path).map_err(|error| error.to_string())?;
        let is_directory = source.is_dir();
        Ok(Self {
            target: source.clone(),
            source,
            is_directory,
            read_only,
        })
    }

    fn at(mut self, target: impl Into<PathBuf>) -> Self {
        self.target = target.into();
        self
    }
}

/// Arranges everything, in new namespaces for users and mounts.
pub(super) fn arrange(spec: &Confinement, surroundings: &Surroundings) -> Result<(), Trouble> {
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .map_err(|error| refused("keep mounts to itself")(error))?;
    let mut shown = Vec::new();
    for one in &surroundings.shown {
        shown.push((one, open(&one.source, one.read_only, true)?));
    }
    let mut devices = Vec::new();
    for name in DEVICES {
        devices.push((name, open(&Path::new("/dev").join(name), false, false)?));
    }
    let root = open_directory(Path::new("/"))?;
    let everything = MountFlags {
        read_only: true,
        no_devices: true,
    };
    set_mount(root.as_fd(), c"/", everything)
        .map_err(|error| refused("make the file system read-only")(error))?;
    arrange_processes()?;
    arrange_devices(devices)?;
    let mut covered = surroundings.covered.iter().peekable();
    for (one, tree) in shown {
        // What is hidden inside of something that is shown comes after it, and what is shown
        // inside of something that is hidden comes after that.
        while let Some(next) = covered.next_if(|next| depth(&next.path) <= depth(&one.target)) {
            next.cover()?;
        }
        make_place(&one.target, one.is_directory)?;
        put(&tree, &one.target)?;
    }
    for next in covered {
        next.cover()?;
    }
    arrange_names(spec, surroundings)?;
    sockets::cover(&surroundings.sockets)
}

/// A `/proc` that shows the processes inside, and changes nothing of the machine.
fn arrange_processes() -> Result<(), Trouble> {
    let flags = Flags::NOSUID | Flags::NODEV | Flags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)
        .map_err(|error| refused("mount a `/proc` of its own")(error))?;
    open_low_ports()?;
    for name in MACHINE {
        let path = Path::new("/proc").join(name);
        if path.exists() {
            put(&open(&path, true, true)?, &path)?;
        }
    }
    for name in SECRET {
        let path = Path::new("/proc").join(name);
        if path.exists() {
            put(&open(Path::new("/dev/null"), true, true)?, &path)?;
        }
    }
    Ok(())
}

/// A `/dev` with the devices that any program may use.
fn arrange_devices(devices: Vec<(&str, OwnedFd)>) -> Result<(), Trouble> {
    let directory = Path::new("/dev");
    memory(directory, "mode=0755,size=64k")?;
    for (name, device) in devices {
        let path = directory.join(name);
        make_place(&path, false)?;
        put(&device, &path)?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(target, directory.join(name)).map_err(failed("make a link in `/dev`"))?;
    }
    let (terminals, shared) = (directory.join("pts"), directory.join("shm"));
    make_place(&terminals, true)?;
    make_place(&shared, true)?;
    let flags = MountFlags {
        read_only: true,
        no_devices: false,
    };
    set_mount(open_directory(Path::new("/dev"))?.as_fd(), c"", flags)
        .map_err(|error| refused("make `/dev` read-only")(error))?;
    mount(
        "devpts",
        &terminals,
        "devpts",
        Flags::NOSUID | Flags::NOEXEC,
        c"newinstance,ptmxmode=0666,mode=620",
    )
    .map_err(|error| refused("mount terminals of its own")(error))?;
    memory(&shared, "mode=1777,size=50%")?;
    Ok(())
}

/// The files by which names are looked up.
fn arrange_names(spec: &Confinement, surroundings: &Surroundings) -> Result<(), Trouble> {
    fs_err::create_dir_all(OWN).map_err(failed("make a directory of its own"))?;
    for (name, content, target) in [
        ("hosts", &spec.hosts, &surroundings.hosts),
        ("resolv.conf", &spec.resolver, &surroundings.resolver),
    ] {
        let Some(target) = target else {
            continue;
        };
        let file = Path::new(OWN).join(name);
        fs_err::write(&file, content).map_err(failed("write the names"))?;
        let readable = std::fs::Permissions::from_mode(0o444);
        fs_err::set_permissions(&file, readable).map_err(failed("write the names"))?;
        make_place(target, false)?;
        put(&open(&file, true, true)?, target)?;
    }
    Ok(())
}

/// A copy of the mount at `path`, with all that is mounted below it, which is nowhere yet.
pub(super) fn open(path: &Path, read_only: bool, no_devices: bool) -> Result<OwnedFd, Trouble> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let shown = path.display();
    let tree = open_tree(CWD, path, flags)
        .map_err(|error| refused(format!("take `{shown}` along"))(error))?;
    let flags = MountFlags {
        read_only,
        no_devices,
    };
    set_mount(tree.as_fd(), c"", flags)
        .map_err(|error| refused(format!("take `{shown}` along"))(error))?;
    Ok(tree)
}

pub(super) fn put(tree: &OwnedFd, target: &Path) -> Result<(), Trouble> {
    let place = c_path(target)?;
    move_mount(
        tree,
        c"",
        CWD,
        place.as_c_str(),
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
    .map_err(|error| refused(format!("put something at `{}`", target.display()))(error))
}

fn depth(path: &Path) -> usize {
    path.components().count()
}

/// Covers a directory. One that is not seen any more is hidden with what is around it.
pub(super) fn hide(path: &Path) -> Result<(), Trouble> {
    match fs_err::symlink_metadata(path) {
        Ok(found) if found.is_dir() => memory(path, "mode=0755,size=16m"),
        _ => Ok(()),
    }
}

fn memory(path: &Path, options: &str) -> Result<(), Trouble> {
    let options = std::ffi::CString::new(options).map_err(failed("mount memory"))?;
    mount(
        "tmpfs",
        path,
        "tmpfs",
        Flags::NOSUID | Flags::NODEV,
        options.as_c_str(),
    )
    .map_err(|error| refused(format!("cover `{}`", path.display()))(error))
}

/// Makes what a mount needs to be put on, where it is not there because it is hidden.
fn make_place(path: &Path, is_directory: bool) -> Result<(), Trouble> {
    if fs_err::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let made = if is_directory {
        fs_err::create_dir_all(path)
    } else {
        path.parent()
            .map_or(Ok(()), fs_err::create_dir_all)
            .and_then(|()| fs_err::File::create(path).map(drop))
    };
    Ok(made.map_err(failed("make a place for what is seen"))?)
}

pub(super) fn open_directory(path: &Path) -> Result<OwnedFd, Trouble> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, rustix::fs::Mode::empty());
    Ok(opened.map_err(failed(format!("open `{}`", path.display())))?)
}

/// The two errors by which a system says that an ordinary user may not do something.
fn refused<E>(what: impl std::fmt::Display) -> impl FnOnce(E) -> Trouble
where
    E: Into<io::Error>,
{
    move |error| {
        let error = error.into();
        let message = failed(what)(&error);
        match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS) => Trouble::Refused(message),
            _ => Trouble::Failed(message),
        }
    }
}
