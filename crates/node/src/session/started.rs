//! What the outside keeps of a session on its own disk.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::workspace::{Access, Drive};

/// Where the notes of [`note_start`] are.
const STARTED: &str = "started";

/// Makes what can be written inside and is not there yet, for this user alone.
pub(super) fn make_shares(drive: &Drive) -> io::Result<()> {
    let written = drive
        .shares
        .iter()
        .filter(|share| share.access == Access::ReadWrite);
    let directories = written.map(|share| &share.host).chain([&drive.private]);
    for directory in directories {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    Ok(())
}

/// Notes where nothing inside can write that a process is to have its records in `directory`.
pub(super) fn note_start(drive: &Drive, directory: &Path) -> io::Result<()> {
    let note = start_note(drive, directory);
    if let Some(parent) = note.parent() {
        fs_err::create_dir_all(parent)?;
    }
    fs_err::write(note, directory.as_os_str().as_bytes())
}

/// The directories below `directory` that [`note_start`] was told of.
pub(super) fn started_below(drive: &Drive, directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let notes = match fs_err::read_dir(drive.private.join(STARTED)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        notes => notes?,
    };
    for note in notes {
        let path = PathBuf::from(OsString::from_vec(fs_err::read(note?.path())?));
        if path.starts_with(directory) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Whether [`note_start`] was told of `directory`.
pub(super) fn was_started(drive: &Drive, directory: &Path) -> bool {
    start_note(drive, directory).exists()
}

fn start_note(drive: &Drive, directory: &Path) -> PathBuf {
    let digest = Sha256::digest(directory.as_os_str().as_bytes());
    let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    drive.private.join(STARTED).join(name)
}
