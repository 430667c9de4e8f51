//! Files that nobody but their owner can have written, or read: everything is looked at through the
//! descriptor that is then used, so that nothing changes in between.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

use super::error::VaultError;

const READABLE_BY_OTHERS: u32 = 0o077;
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Larger than any file with a few hundred keys.
const LONGEST_IMPORT: u64 = 1 << 20;

/// A directory that is ours and that others cannot change.
pub(super) struct Directory {
    descriptor: OwnedFd,
    path: PathBuf,
}

/// What others may do with a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// Nothing at all.
    Nothing,
    /// Reading tells them nothing.
    Read,
    /// Its owner decides.
    Anything,
}

/// Makes home and `config` below it where they are not there, for their owner alone.
pub(super) fn make_directories(home: &Path) -> Result<(), VaultError> {
    let config = home.join("config");
    for path in [home, &config] {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|source| failed("make", path, source))?;
    }
    Ok(())
}

/// The content of a file that is to be imported: a regular file of this user, not a link.
pub(super) fn read_import(path: &Path) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    let descriptor = rustix::fs::open(path, reading(), Mode::empty())
        .map_err(|errno| refused_or_failed("read", path, errno))?;
    content(descriptor.into(), path, LONGEST_IMPORT, Others::Anything)
}

impl Directory {
    /// Opens a directory; none when it is not there. The path may lead over symbolic links, as the
    /// directory that they lead to is looked at.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, VaultError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(descriptor) => descriptor,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed("open", path, errno.into())),
        };
        let directory = File::from(descriptor);
        let metadata = directory
            .metadata()
            .map_err(|source| failed("look at", path, source))?;
        check_owner(&metadata, path)?;
        if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(VaultError::Unsafe {
                path: path.to_owned(),
                problem: "can be changed by other users",
                remedy: format!("`chmod go-w {}`", path.display()),
            });
        }
        Ok(Some(Self {
            descriptor: directory.into(),
            path: path.to_owned(),
        }))
    }

    /// The same for one that must be there.
    pub(super) fn existing(path: &Path) -> Result<Self, VaultError> {
        Self::open(path)?.ok_or_else(|| failed("open", path, io::ErrorKind::NotFound.into()))
    }

    /// Whether there is nothing of this name, not even a link.
    pub(super) fn lacks(&self, name: &str) -> Result<bool, VaultError> {
        match rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(false),
            Err(Errno::NOENT) => Ok(true),
            Err(errno) => Err(failed("look at", &self.path.join(name), errno.into())),
        }
    }

    /// The content of a regular file of this user; none when there is nothing of this name.
    pub(super) fn read(
        &self,
        name: &str,
        limit: u64,
        others: Others,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, VaultError> {
        let path = self.path.join(name);
        match rustix::fs::openat(&self.descriptor, name, reading(), Mode::empty()) {
            Ok(descriptor) => content(descriptor.into(), &path, limit, others).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(refused_or_failed("read", &path, errno)),
        }
    }

    /// Puts a file with this content, for its owner alone, in the place of what has the name.
    /// Readers see the old one or the new one, also after a crash. The caller holds the lock.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), VaultError> {
        let beside = format!("{name}.new");
        let path = self.path.join(&beside);
        // Somebody was killed while writing.
        match rustix::fs::unlinkat(&self.descriptor, &*beside, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("remove", &path, errno.into())),
        }
        let written = self
            .create(&beside, OFlags::WRONLY | OFlags::EXCL)
            .and_then(|mut file| {
                file.write_all(bytes)?;
                file.sync_all()
            });
        let renamed = written.and_then(|()| {
            rustix::fs::renameat(&self.descriptor, &*beside, &self.descriptor, name)?;
            // Without this a power cut could bring the old file back.
            rustix::fs::fsync(&self.descriptor)?;
            Ok(())
        });
        renamed.map_err(|source| {
            // Nothing is left beside it but after a crash.
            let _ = rustix::fs::unlinkat(&self.descriptor, &*beside, AtFlags::empty());
            failed("write", &self.path.join(name), source)
        })
    }

    /// Removes a file, also from what a power cut would bring back.
    pub(super) fn remove(&self, name: &str) -> Result<(), VaultError> {
        rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty())
            .and_then(|()| rustix::fs::fsync(&self.descriptor))
            .map_err(|errno| failed("remove", &self.path.join(name), errno.into()))
    }

    /// Opens a file for its owner alone, and makes it where it is not there.
    pub(super) fn create(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let file = File::from(rustix::fs::openat(&self.descriptor, name, flags, mode)?);
        // The mask of the process may have taken more than it should.
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        Ok(file)
    }
}

/// Without NONBLOCK opening a FIFO would wait for a writer for ever.
fn reading() -> OFlags {
    OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC
}

fn content(
    file: File,
    path: &Path,
    limit: u64,
    others: Others,
) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    let metadata = file
        .metadata()
        .map_err(|source| failed("look at", path, source))?;
    if !metadata.is_file() {
        return Err(VaultError::Unsafe {
            path: path.to_owned(),
            problem: "is not a regular file",
            remedy: "put a regular file in its place".to_owned(),
        });
    }
    check_owner(&metadata, path)?;
    let (refused, problem) = match others {
        Others::Nothing => (READABLE_BY_OTHERS, "can be read or changed by other users"),
        Others::Read => (WRITABLE_BY_OTHERS, "can be changed by other users"),
        Others::Anything => (0, ""),
    };
    if metadata.mode() & refused != 0 {
        return Err(VaultError::Unsafe {
            path: path.to_owned(),
            problem,
            remedy: format!(
                "`chmod 600 {}`; if others may have used it, replace the keys that it protects",
                path.display()
            ),
        });
    }
    // The exact length at once: a buffer that grows leaves copies behind in memory.
    let length = usize::try_from(metadata.len().min(limit)).unwrap_or(0);
    let mut bytes = Zeroizing::new(Vec::with_capacity(length + 1));
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| failed("read", path, source))?;
    if bytes.len() as u64 > limit {
        return Err(failed("read", path, io::ErrorKind::FileTooLarge.into()));
    }
    Ok(bytes)
}

fn check_owner(metadata: &std::fs::Metadata, path: &Path) -> Result<(), VaultError> {
    if metadata.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(VaultError::Unsafe {
        path: path.to_owned(),
        problem: "belongs to another user",
        remedy: format!("`chown $(id -u) {}`, if it is yours", path.display()),
    })
}

fn refused_or_failed(doing: &'static str, path: &Path, errno: Errno) -> VaultError {
    if errno == Errno::LOOP {
        return VaultError::Unsafe {
            path: path.to_owned(),
            problem: "is a symbolic link",
            remedy: "put the file itself in its place".to_owned(),
        };
    }
    failed(doing, path, errno.into())
}

pub(super) fn failed(doing: &'static str, path: &Path, source: io::Error) -> VaultError {
    VaultError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}
