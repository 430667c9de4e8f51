use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::error::VaultError;
use mini_ork_node::secret::Secret;

/// Counts up when a key changes its meaning; a reader refuses a later one.
const FORMAT: u32 = 1;
/// Longest command, all arguments together, in bytes.
const LONGEST_COMMAND: usize = 8 << 10;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// The value is in the vault.
    Value,
    /// The value is what a program prints.
    Command,
}

/// What the file holds once it is decrypted.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entries {
    format: u32,
    entries: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) set_at_ms: u64,
    pub(super) source: Source,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Source {
    Value(Zeroizing<String>),
    Command(Vec<String>),
}

/// The format alone, for a file whose other keys this version does not know.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

impl Default for Entries {
    fn default() -> Self {
        Self {
            format: FORMAT,
            entries: BTreeMap::new(),
        }
    }
}

impl Entries {
    /// Reads what [`to_json`](Self::to_json) wrote; `path` is for messages.
    pub(super) fn from_json(bytes: &[u8], path: &Path) -> Result<Self, VaultError> {
        // The text of such an error can hold a part of a value, so it is not kept.
        let damaged = |_| VaultError::NoEntries {
            path: path.to_owned(),
        };
        let Version { format } = serde_json::from_slice(bytes).map_err(damaged)?;
        if format > FORMAT {
            return Err(VaultError::Later {
                path: path.to_owned(),
                format,
                known: FORMAT,
            });
        }
        serde_json::from_slice(bytes).map_err(damaged)
    }

    pub(super) fn to_json(&self) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        serde_json::to_vec(self)
            .map(Zeroizing::new)
            .map_err(VaultError::Serialize)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// Says whether an entry of this name was replaced.
    pub(super) fn insert(&mut self, name: &str, entry: Entry) -> bool {
        self.entries.insert(name.to_owned(), entry).is_some()
    }

    /// Says whether there was one.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.entries.remove(name).is_some()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.entries.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl Entry {
    pub(super) fn new(source: Source, set_at_ms: u64) -> Self {
        Self { set_at_ms, source }
    }

    pub(super) fn kind(&self) -> EntryKind {
        match self.source {
            Source::Value(_) => EntryKind::Value,
            Source::Command(_) => EntryKind::Command,
        }
    }
}

impl Source {
    pub(super) fn value(secret: &Secret) -> Self {
        Self::Value(Zeroizing::new(secret.expose().to_owned()))
    }

    /// A program is an absolute path or a name that is looked up in `PATH`: a relative path would
    /// mean another program in each directory.
    pub(super) fn command(argv: Vec<String>) -> Result<Self, VaultError> {
        let program = argv.first().map_or("", String::as_str);
        if program.is_empty() || (program.contains('/') && !program.starts_with('/')) {
            return Err(VaultError::RelativeProgram);
        }
        let length: usize = argv.iter().map(String::len).sum();
        if length > LONGEST_COMMAND || argv.iter().any(|argument| argument.contains('\0')) {
            return Err(VaultError::BadCommand {
                most: LONGEST_COMMAND,
            });
        }
        Ok(Self::Command(argv))
    }
}
