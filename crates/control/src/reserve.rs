//! Room for what has to be written on a full disk: how a run ended, and what a clean needs.

use std::io;
use std::path::{Path, PathBuf};

use mini_ork_node::sys;
use rustix::fs::{FallocateFlags, fallocate};

/// Enough for the state database to be opened and for git to look at a worktree.
const RESERVE: u64 = 4 << 20;

/// Holds a few MiB of the disk for [`make_room`]. When that cannot be, a run that fills the disk may
/// be left as an interrupted one, and a clean may have to begin with a file that the user removes.
pub(crate) fn hold_room(home: &Path) -> io::Result<()> {
    let path = reserve(home);
    if fs_err::symlink_metadata(&path).is_ok() {
        return Ok(());
    }
    if sys::disk_free(home)?.bytes < 4 * RESERVE {
        return Ok(());
    }
    let file = fs_err::OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(&path)?;
    if let Err(error) = fallocate(&file, FallocateFlags::empty(), 0, RESERVE) {
        // An empty one would be taken for a full one.
        drop(fs_err::remove_file(&path));
        return Err(error.into());
    }
    Ok(())
}

/// Gives back the room that is held for this moment, when the disk of `home` is full; says whether
/// there was some. To be called before the state is opened for a clean: without any room that could
/// not be done.
pub fn make_room(home: &Path) -> io::Result<bool> {
    let path = reserve(home);
    let is_held = fs_err::symlink_metadata(&path).is_ok();
    if !is_held || sys::disk_free(home)?.bytes >= RESERVE {
        return Ok(false);
    }
    fs_err::remove_file(&path)?;
    Ok(true)
}

fn reserve(home: &Path) -> PathBuf {
    home.join(".reserve")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_held_once_and_kept_while_there_is_enough() {
        let home = tempfile::tempdir().unwrap();
        hold_room(home.path()).unwrap();
        hold_room(home.path()).unwrap();
        let held = mini_ork_node::tree::disk_usage(&reserve(home.path())).unwrap();
        assert!(held >= RESERVE, "{held}");
        assert!(!make_room(home.path()).unwrap());
        assert!(reserve(home.path()).exists());
        assert!(!make_room(&home.path().join("missing")).unwrap());
    }
}
