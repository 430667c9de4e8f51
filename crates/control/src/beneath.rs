//! Opening files below a directory whose content is not trusted: nothing that is opened here lies
//! outside it, whatever symbolic links it holds and however they change meanwhile.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The kernel asks to try again when a rename elsewhere kept it from proving that the path stays
/// inside; it succeeds at once unless someone renames in a loop.
const ATTEMPTS: usize = 64;

/// A directory that is held open.
#[derive(Debug)]
pub(crate) struct Directory {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens a directory that the caller chose; symbolic links on the way are followed.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| explain(errno, path))?;
        Ok(Self {
            descriptor,
            path: path.to_owned(),
        })
    }

    /// Opens a directory below this one. With `links` symbolic links are followed as long as they
    /// stay inside, else they are refused.
    pub(crate) fn directory(&self, relative: &Path, links: Links) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let descriptor = self.open_below(relative, flags, Mode::empty(), links)?;
        Ok(Self {
            descriptor,
            path: self.path.join(relative),
        })
    }

    /// Reads a regular file below this directory that has at most `limit` bytes.
    pub(crate) fn read(&self, relative: &Path, limit: u64, links: Links) -> io::Result<Vec<u8>> {
        // Without NONBLOCK opening a FIFO would wait for a writer for ever.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let file = File::from(self.open_below(relative, flags, Mode::empty(), links)?);
        let path = self.path.join(relative);
        if !file.metadata()?.is_file() {
            return Err(refused(&path, "is not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(refused(&path, &format!("is larger than {limit} bytes")));
        }
        Ok(bytes)
    }

    /// Opens a regular file below this directory for writing, without following any symbolic
    /// link.
    pub(crate) fn create(&self, relative: &Path, write: OFlags) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | write;
        let mode = Mode::from_raw_mode(0o666);
        let file = File::from(self.open_below(relative, flags, mode, Links::Refused)?);
        if !file.metadata()?.is_file() {
            return Err(refused(&self.path.join(relative), "is not a regular file"));
        }
        Ok(file)
    }

    /// Makes one directory directly in this one; that it exists already is fine.
    pub(crate) fn make_directory(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.descriptor, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(explain(errno, &self.path.join(name))),
        }
    }

    /// Removes one file or symbolic link directly in this directory.
    pub(crate) fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        rustix::fs::unlinkat(&self.descriptor, name, rustix::fs::AtFlags::empty())
            .map_err(|errno| explain(errno, &self.path.join(name)))
    }

    fn open_below(
        &self,
        relative: &Path,
        flags: OFlags,
        mode: Mode,
        links: Links,
    ) -> io::Result<OwnedFd> {
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if links == Links::Refused {
            resolve |= ResolveFlags::NO_SYMLINKS;
        }
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let mut outcome = Err(Errno::AGAIN);
        for _ in 0..ATTEMPTS {
            outcome = rustix::fs::openat2(&self.descriptor, relative, flags, mode, resolve);
            if !matches!(outcome, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        outcome.map_err(|errno| explain(errno, &self.path.join(relative)))
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// What happens at a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// It is followed when it stays inside the directory.
    Inside,
    /// It is an error.
    Refused,
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("`{}` {why}", path.display()),
    )
}

fn explain(errno: Errno, path: &Path) -> io::Error {
    let path = path.display();
    let error = io::Error::from(errno);
    let message = match errno {
        Errno::XDEV => format!("`{path}` leads out of its directory through a symbolic link"),
        Errno::LOOP => format!("`{path}` is or goes through a symbolic link"),
        Errno::NOSYS => format!("`{path}` cannot be opened safely: Linux 5.6 or newer is needed"),
        _ => format!("`{path}`: {error}"),
    };
    io::Error::new(error.kind(), message)
}
