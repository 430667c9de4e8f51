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
    parse(&bytes)
        .map(Some)
        .ok_or_else(|| VaultError::BadKey { path: path(home) })
}

/// Makes a new key where there is none. The caller holds the lock and has looked.
pub(super) fn make(home: &Path) -> Result<Key, VaultError> {
    let identity = Identity::generate();
    let secret = identity.to_string();
    let text = Zeroizing::new(format!(
        "# The key of vault.age. Without it the vault cannot be read; with it, anybody can.\n\
         # public key: {}\n{}\n",
        identity.to_public(),
        secret.expose_secret()
    ));
    Directory::existing(&home.join(DIRECTORY))?.write(NAME, text.as_bytes())?;
    Ok(Key(identity))
}

fn parse(bytes: &[u8]) -> Option<Key> {
    let mut lines = std::str::from_utf8(bytes)
        .ok()?
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let identity = lines.next()?.parse().ok()?;
    lines.next().is_none().then_some(Key(identity))
}
