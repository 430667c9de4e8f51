//! Where the keys of lanes come from: exported variables, and a file that is encrypted with age.
//!
//! `<home>/vault.age` holds the entries, `<home>/config/vault.key` the key to it, `vault.lock` keeps
//! writers apart. Both files can be used with the age program. The key may be in the keyring of the
//! user's session instead, which is only asked where a vault has no key file.

mod command;
mod entry;
mod error;
mod file;
mod guard;
mod import;
mod key;
mod keyring;
mod lock;
mod place;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mini_ork_node::redact::Redactor;

pub use entry::EntryKind;
pub use error::{CommandFailure, Damage, ImportError, MissingSecret, VaultError, WhyMissing};
pub use import::{ImportMistake, LineProblem, parse_import};
pub use keyring::{Keyring, KeyringFailure};
pub use place::KeyPlace;

use crate::run::now_ms;
use entry::{Entries, Entry, Source};
use key::Key;
use mini_ork_node::secret::{Secret, SecretName};

/// A password manager that asks its owner takes seconds; one that takes longer waits for something
/// that nobody sees.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);
/// More than anybody has keys, and few enough for one redactor.
const MOST_ENTRIES: usize = 500;

/// The vault of one home.
///
/// Any number of processes may use it at once: writers wait for each other, readers see the entries
/// as they were before or after a change, and a change that was interrupted did not happen.
#[derive(Debug)]
pub struct Vault {
    home: PathBuf,
    keyring: Keyring,
    redactor: Redactor,
    command_limit: Duration,
}

/// What an entry is to be.
#[derive(Debug)]
pub enum NewEntry {
    /// A value, kept in the file.
    Value(Secret),
    /// A program with arguments that prints the value. It is run without a shell.
    Command(Vec<String>),
}

/// An entry without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEntry {
    /// Its name.
    pub name: SecretName,
    /// What it is.
    pub kind: EntryKind,
    /// When it was set, in milliseconds since the epoch.
    pub set_at_ms: u64,
}

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Names that were not in the vault, in the order of the file.
    pub added: Vec<SecretName>,
    /// Names whose entries were replaced.
    pub replaced: Vec<SecretName>,
}

impl Vault {
    /// The vault of `home`, which need not be there yet. Its key may be in `keyring`. Values that are
    /// resolved are made known to `redactor`.
    pub fn new(home: &Path, keyring: Keyring, redactor: Redactor) -> Self {
        Self {
            home: home.to_owned(),
            keyring,
            redactor,
            command_limit: COMMAND_LIMIT,
        }
    }

    /// The encrypted file.
    pub fn file(&self) -> PathBuf {
        file::path(&self.home)
    }

    /// The file with its key.
    pub fn key_file(&self) -> PathBuf {
        key::path(&self.home)
    }

    /// Adds an entry, or replaces the one of this name; says whether there was one. The first one
    /// makes home, key and vault.
    pub fn set(&self, name: &SecretName, new: NewEntry) -> Result<bool, VaultError> {
        let source = match new {
            NewEntry::Value(secret) => {
                // A message of a failure that comes now must not have it either.
                self.register(&secret)?;
                Source::value(&secret)
            }
            NewEntry::Command(argv) => Source::command(argv)?,
        };
        let entry = Entry::new(source, now_ms());
        self.change(|entries| Ok(entries.insert(name.as_str(), entry)))
    }

    /// Removes an entry; says whether there was one.
    pub fn remove(&self, name: &SecretName) -> Result<bool, VaultError> {
        // Nothing is made for a removal.
        if file::is_absent(&self.home)? {
            return Ok(false);
        }
        self.change(|entries| Ok(entries.remove(name.as_str())))
    }

    /// All entries by name. None where no vault is; a key file that is unsafe is an error also then.
    pub fn list(&self) -> Result<Vec<ListedEntry>, VaultError> {
        let entries = self.read()?;
        Ok(entries
            .iter()
            .filter_map(|(name, entry)| {
                Some(ListedEntry {
                    name: SecretName::parse(name).ok()?,
                    kind: entry.kind(),
                    set_at_ms: entry.set_at_ms,
                })
            })
            .collect())
    }

    /// The value of `name`, which the redactor knows when this returns.
    ///
    /// `exported` gives variables of the user's environment. One that is not blank wins over the
    /// vault, which is then not looked at. May run the command of an entry, for 30 seconds at most.
    pub fn resolve(
        &self,
        name: &SecretName,
        exported: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Secret, MissingSecret> {
        let missing = |why| MissingSecret::new(name.clone(), why);
        let variable = exported(name.as_str());
        let was_exported = variable.is_some();
        if let Some(value) = variable {
            match Secret::new(value.into_vec()) {
                Ok(secret) => return self.known(secret).map_err(missing),
                Err(mini_ork_node::secret::SecretError::Blank) => {}
                Err(error) => return Err(missing(WhyMissing::BadVariable(error))),
            }
        }
        let entries = self.read().map_err(|error| missing(error.into()))?;
        let Some(entry) = entries.get(name.as_str()) else {
            return Err(missing(WhyMissing::NoEntry { was_exported }));
        };
        let secret = match &entry.source {
            Source::Value(value) => Secret::new(value.as_bytes().to_vec())
                .map_err(|error| missing(WhyMissing::BadEntry(error)))?,
            Source::Command(argv) => command::run(argv, &self.home, self.command_limit)
                .map_err(|error| missing(WhyMissing::Command(error)))?,
        };
        self.known(secret).map_err(missing)
    }

    /// Takes all values of a `.env` file, or of a shell script that only exports: read, never run.
    ///
    /// Either every line can be taken, or nothing is and all mistakes are told.
    pub fn import(&self, path: &Path) -> Result<Imported, ImportError> {
        let bytes = guard::read_import(path)?;
        let found = import::parse_import(&bytes).map_err(|mistakes| ImportError::Mistakes {
            path: path.to_owned(),
            mistakes,
        })?;
        for (_, secret) in &found {
            self.register(secret)?;
        }
        if found.is_empty() {
            return Ok(Imported {
                added: Vec::new(),
                replaced: Vec::new(),
            });
        }
        let now = now_ms();
        let imported = self.change(|entries| {
            let (mut added, mut replaced) = (Vec::new(), Vec::new());
            for (name, secret) in &found {
                let entry = Entry::new(Source::value(secret), now);
                if entries.insert(name.as_str(), entry) {
                    replaced.push(name.clone());
                } else {
                    added.push(name.clone());
                }
            }
            Ok(Imported { added, replaced })
        })?;
        Ok(imported)
    }

    fn read(&self) -> Result<Entries, VaultError> {
        match self.key()? {
            Some(key) => file::read(&self.home, &key),
            None => Ok(Entries::default()),
        }
    }

    /// The key: that of the file, else, where there is a vault, that of the keyring. None where there
    /// is no vault.
    fn key(&self) -> Result<Option<Key>, VaultError> {
        if let Some(key) = key::read(&self.home)? {
            return Ok(Some(key));
        }
        if file::is_absent(&self.home)? {
            return Ok(None);
        }
        let keyring = match self.keyring.read(&self.home) {
            Ok(key) => return Ok(Some(key)),
            Err(failure) => failure,
        };
        // Another process may have moved it meanwhile.
        match key::read(&self.home)? {
            Some(key) => Ok(Some(key)),
            None => Err(VaultError::NoKey {
                path: self.file(),
                key: self.key_file(),
                keyring,
            }),
        }
    }

    /// Reads, changes and writes the entries while no other process does.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Entries) -> Result<T, VaultError>,
    ) -> Result<T, VaultError> {
        guard::make_directories(&self.home)?;
        let _lock = lock::take(&self.home)?;
        let key = match self.key()? {
            Some(key) => key,
            // Not beside an old vault: that would lock its owner out for good.
            None => key::make(&self.home)?,
        };
        let mut entries = file::read(&self.home, &key)?;
        let outcome = change(&mut entries)?;
        if entries.len() > MOST_ENTRIES {
            return Err(VaultError::Full { most: MOST_ENTRIES });
        }
        file::write(&self.home, &key, &entries)?;
        Ok(outcome)
    }

    fn known(&self, secret: Secret) -> Result<Secret, WhyMissing> {
        self.register(&secret)?;
        Ok(secret)
    }

    fn register(&self, secret: &Secret) -> Result<(), VaultError> {
        self.redactor
            .register(secret.expose().as_bytes())
            .map_err(VaultError::Redactor)
    }
}

#[cfg(test)]
mod tests;
