//! Opening files below a directory whose content is not trusted: nothing that is opened here lies
//! outside it, whatever symbolic links it holds and however they change meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags, ResolveFlags, fchmod, renameat};
use rustix::io::Errno;

use crate::sys::random_bytes;

mod stepwise;

/// The kernel asks to try again when a rename elsewhere kept it from proving that the path stays
/// inside; it succeeds at once unless someone renames in a loop.
const ATTEMPTS: usize = 64;

/// A directory that is held open.
#[derive(Debug)]
pub struct Directory {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens a directory that the caller chose; symbolic links on the way are followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| explain(errno, path))?;
        Ok(Self {
            descriptor,
            path: path.to_owned(),
        })
    }

    /// Opens a directory at an absolute path without following any symbolic link: whoever may write
    /// somewhere on the way cannot lead elsewhere.
    pub fn open_strictly(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let opened = resolve(rustix::fs::CWD, path, flags, Mode::empty(), Rule::Straight);
        Ok(Self {
            descriptor: opened.map_err(|errno| explain(errno, path))?,
            path: path.to_owned(),
        })
    }

    /// Opens a directory below this one. With `links` symbolic links are followed as long as they
    /// stay inside, else they are refused.
    pub fn directory(&self, relative: &Path, links: Links) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let descriptor = self.open_below(relative, flags, Mode::empty(), links)?;
        Ok(Self {
            descriptor,
            path: self.path.join(relative),
        })
    }

    /// Opens a regular file below this directory for reading.
    pub fn file(&self, relative: &Path, links: Links) -> io::Result<File> {
        // Without NONBLOCK opening a FIFO would wait for a writer for ever.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let file = File::from(self.open_below(relative, flags, Mode::empty(), links)?);
        if !file.metadata()?.is_file() {
            return Err(refused(&self.path.join(relative), "is not a regular file"));
        }
        Ok(file)
    }

    /// Reads a regular file below this directory that has at most `limit` bytes.
    pub fn read(&self, relative: &Path, limit: u64, links: Links) -> io::Result<Vec<u8>> {
        let file = self.file(relative, links)?;
        let path = self.path.join(relative);
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(refused(&path, &format!("is larger than {limit} bytes")));
        }
        Ok(bytes)
    }

    /// Opens a regular file below this directory for writing, without following any symbolic
    /// link.
    pub fn create(&self, relative: &Path, write: OFlags) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | write;
        let mode = Mode::from_raw_mode(0o666);
        let file = File::from(self.open_below(relative, flags, mode, Links::Refused)?);
        if !file.metadata()?.is_file() {
            return Err(refused(&self.path.join(relative), "is not a regular file"));
        }
        Ok(file)
    }

    /// Lets `write` write the file at `relative`, and makes what is missing of the directories on
    /// the way. A reader sees the old file or the new one, never a part. No symbolic link is
    /// followed: one on the way is an error, and one in the file's place is replaced. The file is
    /// for this user alone.
    pub fn replace(
        &self,
        relative: &Path,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        let (Some(parent), Some(name)) = (relative.parent(), relative.file_name()) else {
            return Err(refused(
                &self.path.join(relative),
                "is not the path of a file",
            ));
        };
        let mut directory = self.directory(Path::new("."), Links::Refused)?;
        for name in parent {
            directory.make_directory(name)?;
            directory = directory.directory(Path::new(name), Links::Refused)?;
        }
        directory.replace_entry(name, Some(Mode::from_raw_mode(0o600)), write)
    }

    /// [`replace`](Self::replace) for a name directly in this directory. The file has the
    /// permissions `mode`, else those that the system gives a new one.
    pub(crate) fn replace_entry(
        &self,
        name: &OsStr,
        mode: Option<Mode>,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        let draft = draft_name()?;
        let written = self
            .create(Path::new(&draft), OFlags::EXCL)
            .and_then(|mut file| {
                write(&mut file)?;
                if let Some(mode) = mode {
                    fchmod(&file, mode)?;
                }
                renameat(self, &draft, self, name)
                    .map_err(|errno| explain(errno, &self.path.join(name)))
            });
        if written.is_err() {
            // It may not have come into being.
            let _ = self.remove_file(&draft);
        }
        written
    }

    /// Makes one directory directly in this one; that it exists already is fine.
    pub fn make_directory(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.descriptor, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(explain(errno, &self.path.join(name))),
        }
    }

    /// The same, for this user alone.
    pub fn make_private_directory(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.descriptor, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(explain(errno, &self.path.join(name))),
        }
    }

    /// Gives an entry directly in this directory another name in it; what has that name is replaced.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        rustix::fs::renameat(&self.descriptor, from, &self.descriptor, to)
            .map_err(|errno| explain(errno, &self.path.join(from)))
    }

    /// Removes one file or symbolic link directly in this directory.
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
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
        resolve(self.as_fd(), relative, flags, mode, Rule::Below(links))
            .map_err(|errno| explain(errno, &self.path.join(relative)))
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// What happens at a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// It is followed when it stays inside the directory.
    Inside,
    /// It is an error.
    Refused,
}

/// What holds on the way to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// The way stays below its start.
    Below(Links),
    /// There is no link on it.
    Straight,
}

fn resolve(
    start: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    rule: Rule,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
    let way = if kernel_resolves() {
        by_kernel
    } else {
        stepwise::open
    };
    let mut outcome = Err(Errno::AGAIN);
    for _ in 0..ATTEMPTS {
        outcome = way(start, path, flags, mode, rule);
        if !matches!(outcome, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    outcome
}

/// Whether this kernel has `openat2`. Found out once, by trying: what calls itself an old kernel
/// may have it, and a filter of system calls may take it away from a new one.
fn kernel_resolves() -> bool {
    static RESOLVES: OnceLock<bool> = OnceLock::new();
    #[cfg(test)]
    if tests::STEPWISE.get() {
        return false;
    }
    *RESOLVES.get_or_init(|| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = by_kernel(
            rustix::fs::CWD,
            Path::new("/"),
            flags,
            Mode::empty(),
            Rule::Straight,
        );
        !matches!(opened, Err(Errno::NOSYS | Errno::PERM))
    })
}

fn by_kernel(
    start: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    rule: Rule,
) -> Result<OwnedFd, Errno> {
    let how = match rule {
        Rule::Below(Links::Inside) => ResolveFlags::BENEATH,
        Rule::Below(Links::Refused) => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        Rule::Straight => ResolveFlags::NO_SYMLINKS,
    };
    rustix::fs::openat2(start, path, flags, mode, how | ResolveFlags::NO_MAGICLINKS)
}

/// A name that nobody can have taken, or put a link at.
fn draft_name() -> io::Result<OsString> {
    let random = random_bytes::<8>()?;
    let mut name = ".mini-ork-write-".to_owned();
    name.extend(random.iter().map(|byte| format!("{byte:02x}")));
    Ok(name.into())
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
        _ => format!("`{path}`: {error}"),
    };
    io::Error::new(error.kind(), message)
}

#[cfg(test)]
pub(crate) mod tests;
