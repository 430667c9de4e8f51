use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fs_err::os::unix::fs::OpenOptionsExt as _;
use mini_ork_protocol::SecretBytes;
use serde::{Deserialize, Serialize};

use crate::sys::files::read_bounded;

/// Version of the format.
const FORMAT: u32 = 1;
/// Name of the file in the private directory of a drive.
const FILE: &str = "container.json";
/// Longest record that is read.
const LONGEST: u64 = 64 << 10;

/// What is known of a run's container: written before it is made, and kept when it is gone.
///
/// The file is for this user alone, for it holds what opens the session inside. That is worth
/// nothing without access to the container engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// Version of the format.
    pub format: u32,
    /// Name of the container.
    pub name: String,
    /// Address of the engine.
    pub endpoint: String,
    /// The image as the user named it.
    pub image: String,
    /// The image itself: its digest.
    pub image_id: String,
    /// The runtime that was asked for; the engine's own when absent.
    pub runtime: Option<String>,
    /// The program that is mounted into it.
    pub node_program: PathBuf,
    /// What shows the session server that the outside speaks.
    pub token: SecretBytes,
    /// The environment that programs begin with.
    pub environment: Vec<(String, String)>,
    /// How far it has come.
    pub state: SandboxState,
    /// When the record was made, in milliseconds since the Unix epoch.
    pub made_at_ms: u64,
    /// When the container was known to be gone.
    pub released_at_ms: Option<u64>,
}

/// How far a container has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxState {
    /// It may or may not have been made.
    Intended,
    /// It runs, or did when it was last seen.
    Running,
    /// It is gone.
    Released,
}

impl SandboxRecord {
    pub(super) const FORMAT: u32 = FORMAT;

    /// The record in the private directory of a drive; none when there is none.
    pub fn read(private: &Path) -> io::Result<Option<Self>> {
        let path = private.join(FILE);
        let Some(bytes) = read_bounded(&path, LONGEST)? else {
            return Ok(None);
        };
        let wrong = |problem: String| {
            let message = format!("{}: {problem}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, message)
        };
        let record: Self =
            serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        if record.format > FORMAT {
            let found = record.format;
            return Err(wrong(format!(
                "it is of format {found}, and this mini-ork knows up to {FORMAT}"
            )));
        }
        Ok(Some(record))
    }

    /// Writes the record; a reader sees the old or the new one.
    pub(super) fn write(&self, private: &Path) -> io::Result<()> {
        let draft = private.join(format!("{FILE}.new"));
        let mut file = fs_err::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        fs_err::rename(draft, private.join(FILE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(SandboxRecord::read(place.path()).unwrap(), None);
        let record = SandboxRecord {
            format: FORMAT,
            name: "mini-ork-abc".to_owned(),
            endpoint: "unix:///x".to_owned(),
            image: "debian".to_owned(),
            image_id: "sha256:0".to_owned(),
            runtime: None,
            node_program: "/opt/x".into(),
            token: SecretBytes::from(b"SENTINEL".as_slice()),
            environment: vec![("PATH".to_owned(), "/bin".to_owned())],
            state: SandboxState::Intended,
            made_at_ms: 1,
            released_at_ms: None,
        };
        record.write(place.path()).unwrap();
        assert_eq!(
            SandboxRecord::read(place.path()).unwrap(),
            Some(record.clone())
        );
        assert!(!format!("{record:?}").contains("SENTINEL"));
        let later = SandboxRecord {
            format: FORMAT + 1,
            ..record
        };
        later.write(place.path()).unwrap();
        assert!(SandboxRecord::read(place.path()).is_err());
    }
}
