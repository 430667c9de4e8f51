//! Opening files below a directory whose content is not trusted: nothing that is opened here lies
//! outside it, whatever symbolic links it holds and however they change meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, fchmod, renameat};
use rustix::io::Errno;

use crate::sys::random_bytes;

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
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve);
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
pub enum Links {
    /// It is followed when it stays inside the directory.
    Inside,
    /// It is an error.
    Refused,
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
        Errno::NOSYS => format!("`{path}` cannot be opened safely: Linux 5.6 or newer is needed"),
        _ => format!("`{path}`: {error}"),
    };
    io::Error::new(error.kind(), message)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use fs_err::os::unix::fs::symlink;

    use super::*;

    fn replace(root: &Path, relative: &str) -> io::Result<()> {
        Directory::open(root)?.replace(Path::new(relative), |file| file.write_all(b"new"))
    }

    #[test]
    fn what_is_written_stays_below_and_takes_the_place_of_a_link() {
        let world = tempfile::tempdir().unwrap();
        let (root, outside) = (world.path().join("root"), world.path().join("outside"));
        fs_err::create_dir(&root).unwrap();
        fs_err::create_dir(&outside).unwrap();
        let precious = outside.join("precious");
        fs_err::write(&precious, "old").unwrap();

        replace(&root, "deep/down/file").unwrap();
        let made = root.join("deep/down/file");
        assert_eq!(fs_err::read(&made).unwrap(), b"new");
        let mode = fs_err::metadata(&made).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        symlink(&precious, root.join("link")).unwrap();
        fs_err::hard_link(&precious, root.join("twin")).unwrap();
        for name in ["link", "twin"] {
            replace(&root, name).unwrap();
            let found = fs_err::symlink_metadata(root.join(name)).unwrap();
            assert!(found.is_file());
        }
        symlink(&outside, root.join("way")).unwrap();
        for path in ["way/precious", "way/fresh", "../outside/precious", "deep"] {
            assert!(replace(&root, path).is_err(), "{path}");
        }
        assert_eq!(fs_err::read(&precious).unwrap(), b"old");
        let left = |directory: &Path| fs_err::read_dir(directory).unwrap().count();
        assert_eq!((left(&outside), left(&root)), (1, 4), "no draft is left");
    }
}
