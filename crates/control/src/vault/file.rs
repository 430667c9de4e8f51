use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::entry::Entries;
use super::error::VaultError;
use super::guard::{Directory, Others};
use super::key::Key;

const NAME: &str = "vault.age";
/// More than all entries of the greatest length take.
const LONGEST: u64 = 64 << 20;

pub(super) fn path(home: &Path) -> PathBuf {
    home.join(NAME)
}

/// Whether there is nothing in the place of the vault.
pub(super) fn is_absent(home: &Path) -> Result<bool, VaultError> {
    Directory::open(home)?.map_or(Ok(true), |directory| directory.lacks(NAME))
}

/// The entries; none where there is no vault.
pub(super) fn read(home: &Path, key: &Key) -> Result<Entries, VaultError> {
    let Some(directory) = Directory::open(home)? else {
        return Ok(Entries::default());
    };
    // What others read is encrypted; what they write would not be.
    let Some(encrypted) = directory.read(NAME, LONGEST, Others::Read)? else {
        return Ok(Entries::default());
    };
    let path = path(home);
    let plain = age::decrypt(key.identity(), &encrypted)
        .map(Zeroizing::new)
        .map_err(|source| VaultError::Undecryptable {
            path: path.clone(),
            source: source.into(),
        })?;
    Entries::from_json(&plain, &path)
}

/// Replaces the vault as a whole. The caller holds the lock.
pub(super) fn write(home: &Path, key: &Key, entries: &Entries) -> Result<(), VaultError> {
    let plain = entries.to_json()?;
    let encrypted =
        age::encrypt(&key.identity().to_public(), &plain).map_err(|_| VaultError::Encrypt)?;
    Directory::existing(home)?.write(NAME, &encrypted)
}
