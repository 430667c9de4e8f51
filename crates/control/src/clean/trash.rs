//! Names that only a clean knows, for what is to go.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use mini_ork_node::sys;
use mini_ork_protocol::RunId;

use super::CleanError;

const PREFIX: &str = ".trash-";

/// What the removal of a very deep directory leaves when it is killed.
const PART_PREFIX: &str = ".mini-ork-remove-";

/// Whether a name in the directory of runs is one of these.
pub(super) fn is_trash(name: &str) -> bool {
    name.starts_with(PREFIX) || name.starts_with(PART_PREFIX)
}

/// The run that something was set aside from.
pub(super) fn run_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    Some(name.split_once('.')?.0.to_owned())
}

/// A path in the directory of runs that nothing has: where something of `run` can be set aside.
pub(super) fn unused_path(home: &Path, run: &RunId) -> io::Result<PathBuf> {
    let digits: String = sys::random_bytes::<8>()?
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok(home.join("runs").join(format!("{PREFIX}{run}.{digits}")))
}

/// Renames `path` so that it is out of the way in one step; returns where it went.
pub(super) fn set_aside(home: &Path, run: &RunId, path: &Path) -> io::Result<PathBuf> {
    let target = unused_path(home, run)?;
    fs_err::rename(path, &target)?;
    Ok(target)
}

/// Held by the one clean at a time.
pub(super) struct Alone {
    _file: File,
}

impl Alone {
    /// None when there is nothing to clean yet.
    pub(super) fn take(home: &Path) -> Result<Option<Self>, CleanError> {
        let path = home.join(".clean-lock");
        let opened = fs_err::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(&path);
        let file = match opened {
            Ok(file) => file.into_parts().0,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CleanError::Files(error)),
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Err(CleanError::Busy),
            Err(TryLockError::Error(error)) => Err(CleanError::Files(error)),
        }
    }
}
