//! Reading, writing and listing files below the root of a workspace, on this machine.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, statat};
use rustix::io::Errno;

use crate::beneath::{Directory, Links};

/// The system takes paths of up to 4,095 bytes; the root needs some of them.
const LONGEST_PATH: usize = 3000;

/// A path below the root of a workspace: relative, without `..`. It may lead through links; what
/// is reached by it is in the root nevertheless, or an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerPath(PathBuf);

/// Why a text is not a path inside a workspace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InnerPathError {
    /// It is absolute and not below the root, or has `..` in it.
    #[error("`{path}` is outside of `{}`, or may be: paths begin there and have no `..`", root.display())]
    Outside {
        /// The text.
        path: String,
        /// The root of the workspace.
        root: PathBuf,
    },
    /// It has a NUL in it, or is longer than a path can be.
    #[error("this is not a path: it is longer than {LONGEST_PATH} bytes, or has a NUL in it")]
    Malformed,
}

impl InnerPath {
    /// Takes `text` as a path below `root`; an absolute one has to begin with `root`. Nothing and
    /// `.` are the root itself.
    pub fn parse(root: &Path, text: &str) -> Result<Self, InnerPathError> {
        if text.len() > LONGEST_PATH || text.contains('\0') {
            return Err(InnerPathError::Malformed);
        }
        let outside = || InnerPathError::Outside {
            path: text.to_owned(),
            root: root.to_owned(),
        };
        let path = Path::new(text);
        let path = if path.is_absolute() {
            path.strip_prefix(root).map_err(|_| outside())?
        } else {
            path
        };
        let mut inner = PathBuf::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => inner.push(name),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(outside());
                }
            }
        }
        Ok(Self(inner))
    }

    /// The path; `.` for the root itself.
    pub fn as_path(&self) -> &Path {
        if self.0.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &self.0
        }
    }

    /// What `name`, an entry of a listing, is when this path was listed.
    pub(crate) fn below(&self, relative: &Path) -> Self {
        Self(self.0.join(relative))
    }
}

/// Why a file could not be read, written or listed.
#[derive(Debug, thiserror::Error)]
#[error("could not {action} `{}`", path.display())]
pub struct FileError {
    /// What was tried.
    pub action: &'static str,
    /// On what, below the root.
    pub path: PathBuf,
    /// What the system said, or why it was not asked.
    #[source]
    pub source: io::Error,
}

/// What is to be listed.
#[derive(Debug, Clone, Copy)]
pub struct ListRequest {
    /// How many levels of directories: 1 is the directory alone.
    pub levels: usize,
    /// Most entries; the upper levels come first.
    pub most: usize,
    /// Names of directories that are listed and not entered.
    pub not_entered: &'static [&'static str],
}

/// What is below a directory, level by level, each directory in the order of its names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// What was found.
    pub entries: Vec<Entry>,
    /// Whether that is all, down to the last level that was asked for.
    pub complete: bool,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path, relative to the directory that was listed.
    pub path: PathBuf,
    /// What it is; a link is itself and not what it leads to.
    pub kind: EntryKind,
    /// Its length in bytes.
    pub size: u64,
}

/// What an entry of a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket or a device.
    Special,
}

/// See [`super::Workspace::get`].
pub(crate) fn get(root: &Path, path: &InnerPath, limit: u64) -> Result<Vec<u8>, FileError> {
    Directory::open(root)
        .and_then(|root| root.read(path.as_path(), limit, Links::Inside))
        .map_err(failed("read", path))
}

/// See [`super::Workspace::put`].
pub(crate) fn put(root: &Path, path: &InnerPath, content: &[u8]) -> Result<(), FileError> {
    put_inside(root, path.as_path(), content).map_err(failed("write", path))
}

fn put_inside(root: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    };
    let directory = make_directories(&Directory::open(root)?, parent)?;
    let mode = mode_of_file(&directory, name)?;
    directory.replace_entry(name, mode, |file| file.write_all(content))
}

/// The directory at `path` below `root`; what is missing of it is made.
fn make_directories(root: &Directory, path: &Path) -> io::Result<Directory> {
    let at = |path: &Path| {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        root.directory(path, Links::Inside)
    };
    match at(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    let mut reached = PathBuf::new();
    let mut directory = at(&reached)?;
    for name in path {
        reached.push(name);
        directory = match at(&reached) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                directory.make_directory(name)?;
                at(&reached)?
            }
            found => found?,
        };
    }
    Ok(directory)
}

/// The permissions of the file that is to be replaced; none when there is nothing. Anything but a
/// regular file is an error: a link would be lost, and what it leads to would not be written.
fn mode_of_file(directory: &Directory, name: &OsStr) -> io::Result<Option<Mode>> {
    let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        stat => stat?,
    };
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(Some(Mode::from_raw_mode(stat.st_mode & 0o777))),
        FileType::Symlink => "a symbolic link; write to the file that it leads to",
        FileType::Directory => "a directory",
        _ => "neither a file nor a directory",
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("it is {what}"),
    ))
}

/// See [`super::Workspace::list`].
pub(crate) fn list(
    root: &Path,
    path: &InnerPath,
    (levels, most): (usize, usize),
    not_entered: &[impl AsRef<str>],
) -> Result<Listing, FileError> {
    Directory::open(root)
        .and_then(|root| root.directory(path.as_path(), Links::Inside))
        .and_then(|directory| list_inside(&directory, levels, most, not_entered))
        .map_err(failed("list", path))
}

fn list_inside(
    top: &Directory,
    levels: usize,
    most: usize,
    not_entered: &[impl AsRef<str>],
) -> io::Result<Listing> {
    let mut listing = Listing {
        complete: true,
        ..Listing::default()
    };
    let mut pending = VecDeque::from([(PathBuf::new(), levels)]);
    while let Some((path, levels)) = pending.pop_front() {
        let Some(levels) = levels.checked_sub(1) else {
            continue;
        };
        let opened = if path.as_os_str().is_empty() {
            top.directory(Path::new("."), Links::Refused)
        } else {
            match top.directory(&path, Links::Refused) {
                // It went, became something else, or is closed to us.
                Err(_) => {
                    listing.complete = false;
                    continue;
                }
                opened => opened,
            }
        };
        let directory = opened?;
        let left = most.saturating_sub(listing.entries.len());
        let (names, complete) = names_in(&directory, left)?;
        listing.complete &= complete;
        for name in names {
            let Ok(stat) = statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let kind = kind_of(FileType::from_raw_mode(stat.st_mode));
            let path = path.join(&name);
            let entered = kind == EntryKind::Directory
                && !not_entered.iter().any(|other| name == *other.as_ref());
            if path.as_os_str().len() > LONGEST_PATH {
                listing.complete = false;
                continue;
            }
            if entered {
                pending.push_back((path.clone(), levels));
            }
            listing.entries.push(Entry {
                path,
                kind,
                size: u64::try_from(stat.st_size).unwrap_or(0),
            });
        }
    }
    Ok(listing)
}

/// At most `most` names, in their order, and whether those are all.
fn names_in(directory: &Directory, most: usize) -> io::Result<(Vec<OsString>, bool)> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() == most {
            names.sort_unstable();
            return Ok((names, false));
        }
        names.push(OsString::from_vec(name.to_vec()));
    }
    names.sort_unstable();
    Ok((names, true))
}

fn kind_of(kind: FileType) -> EntryKind {
    match kind {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Special,
    }
}

fn failed(action: &'static str, path: &InnerPath) -> impl FnOnce(io::Error) -> FileError {
    move |source| FileError {
        action,
        path: path.as_path().to_owned(),
        source,
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
