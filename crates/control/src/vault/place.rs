//! Where the key of a vault is, and how it gets from one place to the other.

use serde::Serialize;

use super::error::VaultError;
use super::keyring::KeyringFailure;
use super::{Vault, file, key, lock};

/// Where the key of a vault is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyPlace {
    /// In the key file.
    File,
    /// In the keyring of the user's session.
    Keyring,
}

impl Vault {
    /// Where the key is; none where there is no vault. The keyring is only asked when there is no
    /// key file.
    pub fn key_place(&self) -> Result<Option<KeyPlace>, VaultError> {
        if key::read(&self.home)?.is_some() {
            return Ok(Some(KeyPlace::File));
        }
        Ok(self.key()?.map(|_| KeyPlace::Keyring))
    }

    /// Moves the key to `place`; says whether it was somewhere else.
    ///
    /// The key is written there, read back, and has opened the vault before it is removed here. A
    /// move that is cut off leaves the key in both places, of which the file counts; the same move
    /// again ends it.
    pub fn move_key(&self, place: KeyPlace) -> Result<bool, VaultError> {
        if key::read(&self.home)?.is_none() && file::is_absent(&self.home)? {
            return Err(VaultError::NoVault);
        }
        let _lock = lock::take(&self.home)?;
        match place {
            KeyPlace::Keyring => self.to_keyring(),
            KeyPlace::File => self.to_file(),
        }
    }

    fn to_keyring(&self) -> Result<bool, VaultError> {
        let failed = |source| VaultError::Keyring {
            doing: "put the key into the keyring",
            source,
        };
        let Some(key) = key::read(&self.home)? else {
            self.key()?;
            return Ok(false);
        };
        // A key that does not fit is not moved but told.
        file::read(&self.home, &key)?;
        self.keyring.store(&self.home, &key).map_err(failed)?;
        let kept = self.keyring.read(&self.home).map_err(failed)?;
        if !kept.is(&key) {
            return Err(failed(KeyringFailure::OtherKey));
        }
        file::read(&self.home, &kept)?;
        key::remove(&self.home)?;
        Ok(true)
    }

    fn to_file(&self) -> Result<bool, VaultError> {
        let failed = |source| VaultError::Keyring {
            doing: "remove the key from the keyring; it is in the key file now",
            source,
        };
        if let Some(key) = key::read(&self.home)? {
            // What a move that was cut off has left; without a keyring nothing is left there.
            return match self.keyring.read(&self.home) {
                Ok(left) if left.is(&key) => {
                    file::read(&self.home, &key)?;
                    self.keyring.remove(&self.home, &key).map_err(failed)?;
                    Ok(true)
                }
                _ => Ok(false),
            };
        }
        let Some(key) = self.key()? else {
            return Err(VaultError::NoVault);
        };
        file::read(&self.home, &key)?;
        key::write(&self.home, &key)?;
        let Some(written) = key::read(&self.home)? else {
            return Err(VaultError::BadKey {
                path: self.key_file(),
            });
        };
        file::read(&self.home, &written)?;
        self.keyring.remove(&self.home, &written).map_err(failed)?;
        Ok(true)
    }
}
