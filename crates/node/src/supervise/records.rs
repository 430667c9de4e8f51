use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use fs_err::os::unix::fs::OpenOptionsExt as _;
use mini_ork_protocol::{ExitRecord, GENERATION, ProcessIdentity, ProcessRecord};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{CLAIM, SuperviseError};
use crate::sys::files::read_bounded;
use crate::text::on_one_line;

const PROCESS: &str = "process.json";
const EXIT: &str = "exit.json";
const EXIT_RESERVED: &str = ".exit.json.new";
const FAILURE: &str = "failure.txt";

/// Longest record that is read. One holds no output, only numbers and a message.
const RECORD_LIMIT: u64 = 64 * 1024;
/// Room that is taken for the exit record before the program runs.
const RESERVED_LENGTH: usize = 4096;

/// Says who owns a record directory. Written before the program runs, so that there is no moment
/// at which something runs and nothing says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    /// [`GENERATION`] of the writer.
    pub(super) generation: u32,
    pub(super) supervisor: ProcessIdentity,
    pub(super) marker: String,
    /// Absolute path of the group that was made for the program, if one was.
    pub(super) cgroup: Option<String>,
}

impl Claim {
    /// Takes the directory for this supervisor. Fails with `AlreadyExists` when it was taken
    /// before; of any number that try at once, one succeeds.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let draft = directory.join(format!(".{CLAIM}.{}", self.supervisor.pid));
        write_private(&draft, &to_json(self)?)?;
        // A link, unlike a rename, never replaces what is there.
        let linked = fs_err::hard_link(&draft, directory.join(CLAIM));
        fs_err::remove_file(&draft)?;
        linked
    }

    /// Gives the directory back. Only for the supervisor that took it and has started nothing.
    pub(super) fn withdraw(directory: &Path) -> io::Result<()> {
        fs_err::remove_file(directory.join(CLAIM))
    }

    /// None when no supervisor took the directory, or the one that did withdrew.
    pub(super) fn read(directory: &Path) -> Result<Stored<Self>, SuperviseError> {
        read(directory, CLAIM)
    }
}

/// Writes `process.json`.
pub(super) fn write_process(directory: &Path, record: &ProcessRecord) -> io::Result<()> {
    let draft = directory.join(format!(".{PROCESS}.new"));
    write_private(&draft, &to_json(record)?)?;
    fs_err::rename(&draft, directory.join(PROCESS))
}

/// Reads `process.json`.
pub(super) fn read_process(directory: &Path) -> Result<Stored<ProcessRecord>, SuperviseError> {
    read(directory, PROCESS)
}

/// Reads `exit.json`.
pub(super) fn read_exit(directory: &Path) -> Result<Stored<ExitRecord>, SuperviseError> {
    read(directory, EXIT)
}

/// Writes `failure.txt`, as far as that is possible: there is nobody left to tell.
pub(super) fn write_failure(directory: &Path, message: &str) {
    let _ = write_private(&directory.join(FAILURE), message.as_bytes());
}

/// What `failure.txt` says, in one line; empty when there is none.
pub(super) fn read_failure(directory: &Path) -> String {
    let bytes = read_bounded(&directory.join(FAILURE), RECORD_LIMIT)
        .ok()
        .flatten();
    let text = bytes.unwrap_or_default();
    on_one_line(&String::from_utf8_lossy(&text))
}

/// The exit record to be, with its place on the disk: the end of a program that filled the disk can
/// still be written down.
pub(super) struct ReservedExit(fs_err::File);

impl ReservedExit {
    /// Takes the place.
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        let mut file = create_private().open(directory.join(EXIT_RESERVED))?;
        file.write_all(&[b' '; RESERVED_LENGTH])?;
        Ok(Self(file))
    }

    /// Writes `exit.json`.
    pub(super) fn write(self, directory: &Path, record: &ExitRecord) -> io::Result<()> {
        let json = to_json(record)?;
        self.0.file().write_all_at(&json, 0)?;
        self.0.set_len(json.len() as u64)?;
        fs_err::rename(directory.join(EXIT_RESERVED), directory.join(EXIT))
    }
}

/// What is in the place of a record.
#[derive(Debug)]
pub(super) enum Stored<T> {
    /// Nothing.
    Absent,
    /// Something else. Records appear whole, so the machine went down while it was written, or
    /// somebody meddled.
    Damaged,
    Whole(T),
}

impl<T> Stored<T> {
    pub(super) fn whole(self) -> Option<T> {
        match self {
            Self::Whole(record) => Some(record),
            Self::Absent | Self::Damaged => None,
        }
    }
}

/// A new file for this user alone.
pub(super) fn create_private() -> fs_err::OpenOptions {
    let mut options = fs_err::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create_private().open(path)?.write_all(bytes)
}

fn to_json<T: Serialize>(record: &T) -> io::Result<Vec<u8>> {
    let mut json = serde_json::to_vec(record)?;
    json.push(b'\n');
    Ok(json)
}

fn read<T: DeserializeOwned>(directory: &Path, name: &str) -> Result<Stored<T>, SuperviseError> {
    #[derive(Deserialize)]
    struct Generation {
        generation: u32,
    }

    let path = directory.join(name);
    let bytes = match read_bounded(&path, RECORD_LIMIT) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(Stored::Absent),
        Err(source) => {
            return Err(SuperviseError::Records {
                directory: directory.to_owned(),
                source,
            });
        }
    };
    // Before the rest, which a later generation may have changed.
    if let Ok(Generation { generation }) = serde_json::from_slice(&bytes)
        && generation > GENERATION
    {
        return Err(SuperviseError::Generation {
            path,
            found: generation,
            known: GENERATION,
        });
    }
    Ok(serde_json::from_slice(&bytes).map_or(Stored::Damaged, Stored::Whole))
}

#[cfg(test)]
mod tests {
    use mini_ork_protocol::ExitOutcome;

    use super::*;

    fn claim(pid: i32) -> Claim {
        Claim {
            generation: GENERATION,
            supervisor: ProcessIdentity {
                pid,
                start_ticks: 1,
            },
            marker: "marker".to_owned(),
            cgroup: None,
        }
    }

    #[test]
    fn a_directory_is_taken_once() {
        let directory = tempfile::tempdir().unwrap();
        claim(5).write(directory.path()).unwrap();
        let second = claim(6).write(directory.path()).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(
            Claim::read(directory.path()).unwrap().whole().unwrap(),
            claim(5)
        );
        assert_eq!(fs_err::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_exit_record_replaces_its_reservation() {
        let directory = tempfile::tempdir().unwrap();
        let reserved = ReservedExit::new(directory.path()).unwrap();
        assert!(matches!(
            read_exit(directory.path()).unwrap(),
            Stored::Absent
        ));
        let record = ExitRecord {
            generation: GENERATION,
            outcome: ExitOutcome::SpawnFailed {
                message: "x".repeat(2 * RESERVED_LENGTH),
            },
            started_at_ms: 1,
            ended_at_ms: 2,
            stragglers: 3,
            shortage: None,
        };
        reserved.write(directory.path(), &record).unwrap();
        assert_eq!(
            read_exit(directory.path()).unwrap().whole().unwrap(),
            record
        );
        assert_eq!(fs_err::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn damage_is_told_from_a_later_generation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(EXIT);
        for damaged in ["", "\0\0\0", "{}", "[1]", r#"{"generation":1}"#] {
            fs_err::write(&path, damaged).unwrap();
            assert!(
                matches!(read_exit(directory.path()).unwrap(), Stored::Damaged),
                "{damaged:?}"
            );
        }
        fs_err::write(&path, r#"{"generation":3,"new":true}"#).unwrap();
        let error = read_exit(directory.path()).unwrap_err();
        assert!(
            matches!(
                error,
                SuperviseError::Generation {
                    found: 3,
                    known: 2,
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn a_failure_is_one_harmless_line() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read_failure(directory.path()), "");
        write_failure(directory.path(), "could not\n\u{1b}[2Jdie");
        assert_eq!(read_failure(directory.path()), "could not  [2Jdie");
    }
}
