//! Reaching a path below a directory without following links.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, Stat, openat, statat, unlinkat};
use rustix::io::Errno;

use crate::git::RepoPath;
use crate::sys::removal::{DIRECTORY, open_fully, remove_entry};

/// A directory, held open: what is reached through it stays below it, whatever is swapped for a
/// link meanwhile.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    descriptor: OwnedFd,
}

/// A path whose directory is held open.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub(crate) parent: OwnedFd,
    pub(crate) name: &'a OsStr,
}

impl Root {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|error| named(error, path))?;
        Ok(Self {
            path: path.to_owned(),
            descriptor,
        })
    }

    /// The directory that holds `path`. Fails with `NotADirectory` where a component is a file or a
    /// link.
    pub(crate) fn target<'a>(&self, path: &'a [u8]) -> io::Result<Target<'a>> {
        let path = OsStr::from_bytes(path);
        let wrap = |error: Errno| {
            // What the system says of a link that must not be followed.
            let error = if error == Errno::LOOP {
                Errno::NOTDIR
            } else {
                error
            };
            named(error, &self.path.join(path))
        };
        let mut parent = openat(&self.descriptor, c".", DIRECTORY, Mode::empty()).map_err(wrap)?;
        let mut components = Path::new(path)
            .components()
            .map(Component::as_os_str)
            .peekable();
        while let Some(component) = components.next() {
            if components.peek().is_none() {
                return Ok(Target {
                    parent,
                    name: component,
                });
            }
            parent = openat(&parent, component, DIRECTORY, Mode::empty()).map_err(wrap)?;
        }
        Err(named(Errno::INVAL, &self.path.join(path)))
    }

    /// The directory at `path`. Fails with `NotADirectory` where it, or a component above it, is a
    /// file or a link.
    pub(crate) fn enter(&self, path: &[u8]) -> io::Result<Self> {
        let target = self.target(path)?;
        let full = self.path.join(OsStr::from_bytes(path));
        match openat(&target.parent, target.name, DIRECTORY, Mode::empty()) {
            Ok(descriptor) => Ok(Self {
                path: full,
                descriptor,
            }),
            Err(Errno::LOOP) => Err(named(Errno::NOTDIR, &full)),
            Err(error) => Err(named(error, &full)),
        }
    }

    /// What is at `path`, itself and not what it links to; none when nothing is, or when a file or
    /// link is where a directory above it would be.
    pub(crate) fn stat(&self, path: &RepoPath) -> io::Result<Option<Stat>> {
        let target = match self.target(path.as_bytes()) {
            Ok(target) => target,
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        match statat(&target.parent, target.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(named(error, &self.path.join(path.as_path()))),
        }
    }

    /// Opens the file at `path` for reading; fails when it is a link.
    pub(crate) fn open_file(&self, path: &RepoPath) -> io::Result<std::fs::File> {
        let target = self.target(path.as_bytes())?;
        // A pipe must not make us wait for its other end.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        openat(&target.parent, target.name, flags, Mode::empty())
            .map(std::fs::File::from)
            .map_err(|error| named(error, &self.path.join(path.as_path())))
    }

    /// Removes what is at `path`, with all that is below it. Nothing there is success.
    pub(crate) fn remove(&self, path: &[u8]) -> io::Result<()> {
        let target = match self.target(path) {
            Ok(target) => target,
            Err(error) if is_absence(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        remove_entry(&target.parent, target.name)
            .map_err(|error| named(error, &self.path.join(OsStr::from_bytes(path))))
    }

    /// Removes the directory at `path` and then those above it, as far as they are empty.
    pub(crate) fn remove_empty(&self, path: &[u8]) -> io::Result<()> {
        let mut path = path;
        loop {
            let target = match self.target(path) {
                Ok(target) => target,
                Err(error) if is_absence(&error) => return Ok(()),
                Err(error) => return Err(error),
            };
            match unlinkat(&target.parent, target.name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => return Ok(()),
                Err(error) => {
                    return Err(named(error, &self.path.join(OsStr::from_bytes(path))));
                }
            }
            match path.iter().rposition(|byte| *byte == b'/') {
                Some(end) => path = &path[..end],
                None => return Ok(()),
            }
        }
    }

    /// Sees to it that the owner of the directory at `path` may list and change it.
    pub(crate) fn open_up(&self, path: &[u8]) -> io::Result<()> {
        let target = match self.target(path) {
            Ok(target) => target,
            Err(error) if is_absence(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        match open_fully(&target.parent, target.name) {
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(error) => Err(named(error, &self.path.join(OsStr::from_bytes(path)))),
        }
    }

    pub(crate) fn descriptor(&self) -> impl AsFd + '_ {
        self.descriptor.as_fd()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// An error that names its path.
pub(crate) fn named(error: Errno, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Whether the error says that there is no such path without following a link.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
