use std::path::{Path, PathBuf};

use age::secrecy::ExposeSecret as _;
use age::x25519::Identity;
use zeroize::Zeroizing;

use super::error::VaultError;
use super::guard::{Directory, Others};

const DIRECTORY: &str = "config";
const NAME: &str = "vault.key";
/// A key is one line; comments may stand around it.
const LONGEST: u64 = 16 << 10;

/// The key of a vault.
pub(super) struct Key(Identity);

impl Key {
    pub(super) fn identity(&self) -> &Identity {
        &self.0
    }

    /// Whether it is the same key.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.0.to_public() == other.0.to_public()
    }

    /// The one line that it is.
    pub(super) fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(self.0.to_string().expose_secret().to_owned())
    }

    /// Reads what has this line, empty ones and comments.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(bytes)
            .ok()?
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let identity = lines.next()?.parse().ok()?;
        lines.next().is_none().then_some(Self(identity))
    }
}

pub(super) fn path(home: &Path) -> PathBuf {
    home.join(DIRECTORY).join(NAME)
}

/// The key; none when there is no key file. It must be a regular file of this user with mode 0600
/// or less, in a directory that others cannot change.
pub(super) fn read(home: &Path) -> Result<Option<Key>, VaultError> {
    let Some(directory) = Directory::open(&home.join(DIRECTORY))? else {
        return Ok(None);
    };
    let Some(bytes) = directory.read(NAME, LONGEST, Others::Nothing)? else {
        return Ok(None);
    };
    Key::parse(&bytes)
        .map(Some)
        .ok_or_else(|| VaultError::BadKey { path: path(home) })
}

/// Makes a new key where there is none. The caller holds the lock and has looked.
pub(super) fn make(home: &Path) -> Result<Key, VaultError> {
    let key = Key(Identity::generate());
    write(home, &key)?;
    Ok(key)
}

/// Writes the key file. The caller holds the lock.
pub(super) fn write(home: &Path, key: &Key) -> Result<(), VaultError> {
    let text = Zeroizing::new(format!(
        "# The key of vault.age. Without it the vault cannot be read; with it, anybody can.\n\
         # public key: {}\n{}\n",
        key.0.to_public(),
        *key.text()
    ));
    Directory::existing(&home.join(DIRECTORY))?.write(NAME, text.as_bytes())
}

/// Removes the key file. The caller holds the lock, and the key is somewhere else.
pub(super) fn remove(home: &Path) -> Result<(), VaultError> {
    Directory::existing(&home.join(DIRECTORY))?.remove(NAME)
}
