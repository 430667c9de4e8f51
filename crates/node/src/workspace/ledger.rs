use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use fs_err::os::unix::fs::OpenOptionsExt as _;
use mini_ork_protocol::{ByteString, ProcessIdentity, SecretBytes};
use serde::{Deserialize, Serialize};

use super::docker::ContainerRecord;
use super::{DOCKER, Drive, LOCAL, WorkspaceError, confined, docker};
use crate::sys::files::read_bounded;
use crate::sys::process::{self, now_ms};

/// Version of the format.
const FORMAT: u32 = 1;
/// What the names of records end with.
const EXTENSION: &str = ".json";
/// Longest record that is read and written.
const LONGEST: u64 = 64 << 10;
/// What a record may grow by from its first state to its last, bytes of JSON.
const GROWTH: u64 = 4 << 10;
/// How long an engine may take to make what it was asked for.
const LONGEST_BIRTH_MS: u64 = 60_000;
/// Longest reason that is kept.
const LONGEST_REASON: usize = 500;

/// The records of the sandboxes of a home, one file each. They are outside of the directories of
/// runs, so that a sandbox is known whatever becomes of its run.
#[derive(Debug, Clone)]
pub struct Ledger {
    directory: PathBuf,
}

/// What is known of a sandbox: written before it is made, and kept when it is gone.
///
/// The file is for this user alone, for it holds what opens the session inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// Version of the format.
    pub format: u32,
    /// What it was made for: a run, else a name that no run has.
    pub run: String,
    /// How far it has come.
    pub state: SandboxState,
    /// The process that made it.
    pub maker: ProcessIdentity,
    /// The user that made it.
    pub user: u32,
    /// When the record was made, in milliseconds since the Unix epoch.
    pub made_at_ms: u64,
    /// When it was known to be gone.
    pub released_at_ms: Option<u64>,
    /// Why it is gone, as half a sentence.
    pub reason: Option<String>,
    /// Where the backend keeps what it has to remember.
    pub private: ByteString,
    /// What shows the session server that the outside speaks.
    pub token: SecretBytes,
    /// What it is.
    #[serde(flatten)]
    pub kind: SandboxKind,
}

/// How far a sandbox has come.
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

/// What holds the programs of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "backend")]
pub enum SandboxKind {
    /// A container.
    Docker(ContainerRecord),
    /// Namespaces on this machine.
    Local {
        /// The first process in them, once it runs.
        first: Option<ProcessIdentity>,
    },
}

impl SandboxState {
    /// The name in records and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Intended => "intended",
            Self::Running => "running",
            Self::Released => "released",
        }
    }
}

impl SandboxRecord {
    pub(super) fn new(drive: &Drive, token: &[u8], kind: SandboxKind) -> io::Result<Self> {
        Ok(Self {
            format: FORMAT,
            run: drive.name.clone(),
            state: SandboxState::Intended,
            maker: process::own_identity()?,
            user: rustix::process::geteuid().as_raw(),
            made_at_ms: now_ms(),
            released_at_ms: None,
            reason: None,
            private: drive.private.as_path().into(),
            token: SecretBytes::from(token),
            kind,
        })
    }

    /// Where the backend keeps what it has to remember.
    pub fn private(&self) -> &Path {
        Path::new(self.private.as_os_str())
    }

    /// The name of the backend.
    pub fn backend(&self) -> &'static str {
        match self.kind {
            SandboxKind::Docker(_) => DOCKER,
            SandboxKind::Local { .. } => LOCAL,
        }
    }

    /// Whether the process that made it still runs.
    pub fn maker_is_alive(&self) -> bool {
        process::status(self.maker.pid)
            .is_some_and(|status| status.identity == self.maker && !status.ended)
    }

    /// Whether it may come into being although nothing is there: an engine goes on with what it was
    /// asked for when whoever asked was killed.
    fn may_yet_appear(&self) -> bool {
        let age = now_ms().saturating_sub(self.made_at_ms);
        self.state == SandboxState::Intended && age < LONGEST_BIRTH_MS && !self.maker_is_alive()
    }

    /// Whether something may be left of it.
    pub fn is_open(&self) -> bool {
        self.state != SandboxState::Released
    }
}

impl Ledger {
    /// The records in `directory`, which is made with the first of them.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The record of the sandbox of `run`; none when there is none.
    pub fn read(&self, run: &str) -> io::Result<Option<SandboxRecord>> {
        let path = self.file(run);
        let Some(bytes) = read_bounded(&path, LONGEST)? else {
            return Ok(None);
        };
        let wrong = |problem: String| {
            let message = format!("{}: {problem}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, message)
        };
        let record: SandboxRecord =
            serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        if record.format > FORMAT {
            let found = record.format;
            return Err(wrong(format!(
                "it is of format {found}, and this mini-ork knows up to {FORMAT}"
            )));
        }
        if record.run != run {
            return Err(wrong(format!("it is of `{}`", record.run)));
        }
        Ok(Some(record))
    }

    /// What sandboxes there are records of, in the order of their names.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let entries = match fs_err::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name().into_string().ok();
            let run = name.and_then(|name| Some(name.strip_suffix(EXTENSION)?.to_owned()));
            names.extend(run);
        }
        names.sort();
        Ok(names)
    }

    /// Forgets a sandbox that is gone. One that may be there stays on record.
    pub fn forget(&self, run: &str) -> io::Result<()> {
        match self.read(run)? {
            Some(record) if !record.is_open() => fs_err::remove_file(self.file(run)),
            _ => Ok(()),
        }
    }

    /// Removes the sandbox of `record` with everything that runs in it, `why` as half a sentence;
    /// says whether there was one. Makes nothing, and may be called again at any time. After an
    /// error it is still on record, and so is one that may yet appear.
    pub async fn release(
        &self,
        record: &mut SandboxRecord,
        why: &str,
    ) -> Result<bool, WorkspaceError> {
        if !record.is_open() {
            return Ok(false);
        }
        let found = match &record.kind {
            SandboxKind::Docker(container) => docker::remove(record, container).await?,
            SandboxKind::Local { first } => confined::remove(record.private(), *first).await?,
        };
        if !found && record.may_yet_appear() {
            return Ok(false);
        }
        let why = if found {
            why
        } else {
            "it was gone when somebody looked"
        };
        self.close(record, why)
            .map_err(WorkspaceError::Remembered)?;
        Ok(found)
    }

    /// Removes the sandbox of `run`, when there is one: the run does not need it any more.
    pub(super) async fn lower(&self, run: &str) -> Result<(), WorkspaceError> {
        let record = self.read(run).map_err(WorkspaceError::Remembered)?;
        if let Some(mut record) = record {
            self.release(&mut record, "its run had no more use for it")
                .await?;
        }
        Ok(())
    }

    /// Notes that nothing of the sandbox is left.
    pub(super) fn close(&self, record: &mut SandboxRecord, why: &str) -> io::Result<()> {
        record.state = SandboxState::Released;
        record.released_at_ms = Some(now_ms());
        record.reason = Some(crate::text::on_one_line(crate::text::beginning(
            why,
            LONGEST_REASON,
        )));
        self.write(record)
    }

    /// Writes the record; a reader sees the old or the new one. What could not be read again is
    /// not written, and a sandbox that was not made yet then is not made.
    pub(super) fn write(&self, record: &SandboxRecord) -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(record)?;
        let longest = match record.state {
            SandboxState::Intended => LONGEST - GROWTH,
            SandboxState::Running | SandboxState::Released => LONGEST,
        };
        if bytes.len() as u64 > longest {
            let message = format!(
                "the record of the sandbox would have {} bytes, and {longest} is the most; the \
                 variables of the image are in it",
                bytes.len()
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)?;
        let path = self.file(&record.run);
        let draft = path.with_extension("new");
        let mut file = fs_err::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs_err::rename(draft, path)
    }

    fn file(&self, run: &str) -> PathBuf {
        self.directory.join(format!("{run}{EXTENSION}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: SandboxKind) -> SandboxRecord {
        let drive = Drive {
            name: "abc".to_owned(),
            private: "/h/runs/abc/sandbox".into(),
            proof: "/h/runs/abc/nodes".into(),
            shares: Vec::new(),
        };
        SandboxRecord::new(&drive, b"SENTINEL", kind).unwrap()
    }

    fn container(environment: Vec<(String, String)>) -> ContainerRecord {
        ContainerRecord {
            name: "mini-ork-abc".to_owned(),
            endpoint: "unix:///x".to_owned(),
            image: "debian".to_owned(),
            image_id: "sha256:0".to_owned(),
            runtime: None,
            made_with: Some("runc".to_owned()),
            keeps_limits: true,
            bridge_user: "65534:65534".to_owned(),
            node_program: "/opt/x".into(),
            environment,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let place = tempfile::tempdir().unwrap();
        let ledger = Ledger::at(place.path().join("sandboxes"));
        assert_eq!(ledger.read("abc").unwrap(), None);
        assert_eq!(ledger.names().unwrap(), Vec::<String>::new());
        let container = container(vec![("PATH".to_owned(), "/bin".to_owned())]);
        for kind in [
            SandboxKind::Docker(container),
            SandboxKind::Local {
                first: Some(process::own_identity().unwrap()),
            },
        ] {
            let record = record(kind);
            ledger.write(&record).unwrap();
            assert_eq!(ledger.read("abc").unwrap(), Some(record.clone()));
            assert!(!format!("{record:?}").contains("SENTINEL"));
        }
        assert_eq!(ledger.names().unwrap(), ["abc"]);
        let mut later = record(SandboxKind::Local { first: None });
        later.format = FORMAT + 1;
        ledger.write(&later).unwrap();
        assert!(ledger.read("abc").is_err());
    }

    /// And what is written once can be written to its end.
    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let place = tempfile::tempdir().unwrap();
        let ledger = Ledger::at(place.path().to_owned());
        let with = |length: usize| {
            let environment = vec![("X".to_owned(), "y".repeat(length))];
            record(SandboxKind::Docker(container(environment)))
        };
        for length in [LONGEST, LONGEST - GROWTH] {
            let error = ledger
                .write(&with(usize::try_from(length).unwrap()))
                .unwrap_err();
            assert!(
                error.to_string().contains("variables of the image"),
                "{error}"
            );
            assert_eq!(ledger.names().unwrap(), Vec::<String>::new());
        }
        let room = LONGEST - GROWTH - serde_json::to_vec_pretty(&with(0)).unwrap().len() as u64;
        let mut longest = with(usize::try_from(room).unwrap());
        ledger.write(&longest).unwrap();
        ledger
            .close(&mut longest, &"\u{1f600}".repeat(1000))
            .unwrap();
        assert_eq!(ledger.read("abc").unwrap(), Some(longest));
    }

    #[test]
    fn only_what_is_gone_is_forgotten() {
        let place = tempfile::tempdir().unwrap();
        let ledger = Ledger::at(place.path().to_owned());
        let mut record = record(SandboxKind::Local { first: None });
        assert!(record.maker_is_alive());
        ledger.write(&record).unwrap();
        ledger.forget("abc").unwrap();
        assert!(ledger.read("abc").unwrap().is_some());
        ledger.close(&mut record, "its run has\nended").unwrap();
        assert!(!record.reason.as_deref().unwrap().contains('\n'));
        ledger.forget("abc").unwrap();
        assert_eq!(ledger.read("abc").unwrap(), None);
    }
}
