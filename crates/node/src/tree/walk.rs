//! Listing everything below a directory.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use super::beneath::{Root, named};

/// Git takes paths of up to 4,095 bytes; some of them go to names of its own.
const LONGEST_PATH: usize = 4000;

/// One thing that a walk meets. Paths are relative to where it began.
pub(crate) enum Found<'a> {
    /// An entry of a directory.
    Entry {
        path: &'a [u8],
        name: &'a [u8],
        kind: FileType,
        directory: BorrowedFd<'a>,
    },
    /// A directory without entries.
    Empty { path: &'a [u8] },
    /// A directory that we may not list.
    Closed { path: &'a [u8] },
    /// A path that is too long for git. Nothing below it is met.
    TooLong { path: &'a [u8] },
}

impl Found<'_> {
    /// The metadata of an entry; none when it has gone meanwhile.
    pub(crate) fn stat(&self) -> io::Result<Option<Stat>> {
        let Self::Entry {
            name,
            directory,
            path,
            ..
        } = self
        else {
            return Ok(None);
        };
        match statat(
            directory,
            OsStr::from_bytes(name),
            AtFlags::SYMLINK_NOFOLLOW,
        ) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT | Errno::ACCESS) => Ok(None),
            Err(error) => Err(named(error, OsStr::from_bytes(path).as_ref())),
        }
    }
}

/// Visits everything below `root`, entries of one directory in the order of their names. A
/// directory is entered when `visit` says so.
///
/// No link is followed and no file is opened. One directory is open at a time, so no depth is too
/// deep.
pub(crate) fn walk(
    root: &Root,
    visit: &mut dyn FnMut(&Found<'_>) -> io::Result<bool>,
) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut pending: Vec<Vec<u8>> = vec![Vec::new()];
    while let Some(path) = pending.pop() {
        let name: &[u8] = if path.is_empty() { b"." } else { &path };
        let wrap = |error: Errno| named(error, &root.path().join(OsStr::from_bytes(&path)));
        let opened = openat(
            root.descriptor(),
            OsStr::from_bytes(name),
            flags,
            Mode::empty(),
        );
        let directory = match opened {
            Ok(directory) => directory,
            Err(Errno::ACCESS | Errno::PERM) => {
                visit(&Found::Closed { path: &path })?;
                continue;
            }
            // It went, or became something else, while we walked.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if !path.is_empty() => continue,
            Err(error) => return Err(wrap(error)),
        };
        let mut entries = Vec::new();
        for entry in Dir::read_from(&directory).map_err(wrap)? {
            let entry = entry.map_err(wrap)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                entries.push((name.to_vec(), entry.file_type()));
            }
        }
        if entries.is_empty() && !path.is_empty() {
            visit(&Found::Empty { path: &path })?;
        }
        entries.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        let mut below = Vec::new();
        for (name, kind) in entries {
            let mut full = path.clone();
            if !full.is_empty() {
                full.push(b'/');
            }
            full.extend_from_slice(&name);
            if full.len() > LONGEST_PATH {
                visit(&Found::TooLong { path: &full })?;
                continue;
            }
            // Some file systems do not tell the type with the name.
            let kind = if kind == FileType::Unknown {
                match statat(
                    &directory,
                    OsStr::from_bytes(&name),
                    AtFlags::SYMLINK_NOFOLLOW,
                ) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(_) => FileType::Unknown,
                }
            } else {
                kind
            };
            let found = Found::Entry {
                path: &full,
                name: &name,
                kind,
                directory: directory.as_fd(),
            };
            if visit(&found)? && kind == FileType::Directory {
                below.push(full);
            }
        }
        below.reverse();
        pending.append(&mut below);
    }
    Ok(())
}
