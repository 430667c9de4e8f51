//! What a session server has to know and must not lose when it dies.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

/// Length of a digest.
const LENGTH: usize = 32;
/// More programs are not remembered.
const MOST: usize = 1 << 16;

type Entry = [u8; LENGTH];

/// A file that the first process hands to each server, and that is nowhere in the file system:
/// the digest of the token, and then those of the directories of programs that were started.
#[derive(Debug)]
pub(super) struct Memory(Mutex<File>);

impl Memory {
    /// What is in `file`.
    pub(super) fn of(file: OwnedFd) -> Self {
        Self(Mutex::new(file.into()))
    }

    /// Whether `shown` is the token. The first one that is ever shown is kept.
    pub(super) fn is_token(&self, shown: &[u8]) -> io::Result<bool> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = digest(shown);
        match entries(&file)?.first() {
            // Digests tell nothing by how much of them is equal.
            Some(kept) => Ok(*kept == digest),
            None => {
                file.write_all_at(&digest, 0)?;
                Ok(true)
            }
        }
    }

    /// Remembers that a program is started with its records in `directory`.
    pub(super) fn remember(&self, directory: &Path) -> io::Result<()> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = entries(&file)?;
        let digest = digest(directory.as_os_str().as_bytes());
        if entries.len() > MOST || entries.iter().skip(1).any(|entry| *entry == digest) {
            return Ok(());
        }
        file.write_all_at(&digest, (entries.len().max(1) * LENGTH) as u64)
    }

    /// Forgets the program with its records in `directory`; whether it was remembered.
    pub(super) fn forget(&self, directory: &Path) -> io::Result<bool> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = digest(directory.as_os_str().as_bytes());
        let entries = entries(&file)?;
        let Some(at) = entries.iter().skip(1).position(|entry| *entry == digest) else {
            return Ok(false);
        };
        file.write_all_at(&[0; LENGTH], ((at + 1) * LENGTH) as u64)?;
        Ok(true)
    }
}

fn digest(bytes: &[u8]) -> Entry {
    Sha256::digest(bytes).into()
}

fn entries(file: &File) -> io::Result<Vec<Entry>> {
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut bytes = vec![0; length.min((MOST + 2) * LENGTH)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes.as_chunks().0.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_server_knows_what_the_last_one_did() {
        let file = tempfile::tempfile().unwrap();
        let again = || Memory::of(file.try_clone().unwrap().into());
        assert!(again().is_token(b"first").unwrap());
        assert!(!again().is_token(b"second").unwrap());
        assert!(again().is_token(b"first").unwrap());
        let (one, other) = (Path::new("/records/1"), Path::new("/records/2"));
        assert!(!again().forget(one).unwrap());
        again().remember(one).unwrap();
        again().remember(other).unwrap();
        again().remember(one).unwrap();
        assert!(again().forget(one).unwrap());
        assert!(!again().forget(one).unwrap(), "it was forgotten");
        assert!(again().forget(other).unwrap());
        assert!(again().is_token(b"first").unwrap());
    }
}
