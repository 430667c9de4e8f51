//! Removing sandboxes that no run needs any more.
//!
//! A sandbox is on record before it exists and until it is known to be gone, so nothing has to be
//! guessed: what is open in the ledger is looked at together with its run. A run that some process
//! drives is never touched.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mini_ork_node::text::with_sources;
use mini_ork_node::workspace::docker::{self, DockerError};
use mini_ork_node::workspace::{DOCKER, Ledger, SandboxKind, SandboxRecord, WorkspaceError};
use mini_ork_protocol::RunId;
use serde::Serialize;

use crate::run::{LockError, RunDirectory, RunLock, now_ms};
use crate::store::{StoreError, StoreReader};

/// What to remove.
#[derive(Debug, Clone)]
pub struct SweepRequest {
    /// Home of mini-ork.
    pub home: PathBuf,
    /// Only those of this backend; all when absent.
    pub backend: Option<&'static str>,
    /// The sandbox of a run that was interrupted goes when it is older than this.
    pub max_age: Duration,
    /// An engine on which to look for containers of this home that are on no record.
    pub engine: Option<String>,
    /// Whether that engine must be there.
    pub engine_needed: bool,
    /// Removes nothing.
    pub dry_run: bool,
}

/// A sandbox that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SweptSandbox {
    /// What it was made for.
    pub run: String,
    /// What holds its programs.
    pub backend: &'static str,
    /// What became of it.
    pub action: SweepAction,
    /// Why, as half a sentence.
    pub why: String,
}

/// What a sweep has looked at.
#[derive(Debug)]
pub struct Swept {
    /// The sandboxes, each once.
    pub sandboxes: Vec<SweptSandbox>,
    /// Why containers that are on no record could not be looked for, where they were to be.
    pub no_engine: Option<DockerError>,
}

/// What a sweep does with a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SweepAction {
    /// It is gone.
    Removed,
    /// It stays.
    Kept,
    /// It was to go and may still be there. It stays on record.
    Failed,
}

/// Why nothing could be looked at.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The state database refused.
    #[error("the state of the runs cannot be read")]
    Store(#[source] StoreError),
    /// The records of sandboxes cannot be read.
    #[error("the records of sandboxes cannot be read")]
    Records(#[source] io::Error),
}

/// Where the records of the sandboxes of `home` are.
pub fn ledger_directory(home: &Path) -> PathBuf {
    home.join("sandboxes")
}

/// The records of the sandboxes of `home`.
pub fn ledger(home: &Path) -> Ledger {
    Ledger::at(ledger_directory(home))
}

/// Removes the sandbox of `run`, whatever its backend; `why` as half a sentence. The caller holds
/// the run.
pub async fn release(home: &Path, run: &RunId, why: &str) -> Result<(), WorkspaceError> {
    let ledger = ledger(home);
    let record = ledger.read(run.as_str());
    if let Some(mut record) = record.map_err(WorkspaceError::Remembered)? {
        ledger.release(&mut record, why).await?;
    }
    Ok(())
}

/// Removes the sandboxes of runs that have ended or are gone, and of interrupted ones that are too
/// old. What cannot be removed does not keep the others.
pub async fn sweep(request: &SweepRequest) -> Result<Swept, SweepError> {
    let reader = StoreReader::open(&request.home).map_err(SweepError::Store)?;
    let mut sweep = Sweep {
        request,
        reader,
        ledger: ledger(&request.home),
        silent: BTreeSet::new(),
        swept: Vec::new(),
    };
    let names = sweep.ledger.names().map_err(SweepError::Records)?;
    for name in names {
        sweep.look_at(&name).await?;
    }
    let no_engine = match &request.engine {
        Some(endpoint) => sweep.strays(endpoint).await.err(),
        None => None,
    };
    Ok(Swept {
        sandboxes: sweep.swept,
        no_engine,
    })
}

struct Sweep<'a> {
    request: &'a SweepRequest,
    reader: Option<StoreReader>,
    ledger: Ledger,
    /// Engines that do not answer; each is asked once.
    silent: BTreeSet<String>,
    swept: Vec<SweptSandbox>,
}

impl Sweep<'_> {
    async fn look_at(&mut self, name: &str) -> Result<(), SweepError> {
        let record = match self.ledger.read(name) {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.note_unread(name, &error);
                return Ok(());
            }
        };
        let chosen = self.request.backend;
        if !record.is_open() || chosen.is_some_and(|backend| backend != record.backend()) {
            return Ok(());
        }
        let backend = record.backend();
        // Nobody else takes the run up meanwhile.
        let held = match self.hold(name) {
            Ok(held) => held,
            Err(why) => {
                self.note(name, backend, SweepAction::Kept, why);
                return Ok(());
            }
        };
        // What was true before may not be by now.
        let record = match self.ledger.read(name) {
            Ok(Some(record)) if record.is_open() => record,
            Ok(_) => return Ok(()),
            Err(error) => {
                self.note_unread(name, &error);
                return Ok(());
            }
        };
        let standing = self.standing(&record, &held)?;
        let age = Duration::from_millis(now_ms().saturating_sub(record.made_at_ms));
        let (action, why) = match standing.verdict(age, self.request.max_age) {
            Err(why) => (SweepAction::Kept, why),
            Ok(why) if self.request.dry_run => (SweepAction::Removed, why),
            Ok(why) => match self.remove(record, &why).await {
                Ok(true) => (SweepAction::Removed, why),
                Ok(false) => (SweepAction::Kept, "it may just be being made".to_owned()),
                Err(problem) => (SweepAction::Failed, problem),
            },
        };
        self.note(name, backend, action, why);
        Ok(())
    }

    /// Keeps others from the run, where it has a directory.
    fn hold(&self, name: &str) -> Result<Held, String> {
        let Some(directory) = run_directory(&self.request.home, name) else {
            return Ok(Held::Nothing);
        };
        match RunLock::owner(&directory) {
            Ok(None) if self.request.dry_run => return Ok(Held::Looked),
            Ok(None) => {}
            Ok(Some(_)) => return Err(IN_USE.to_owned()),
            Err(error) => return Err(error.to_string()),
        }
        match RunLock::take(&directory) {
            Ok(lock) => Ok(Held::Run { _lock: lock }),
            Err(LockError::Held { .. }) => Err(IN_USE.to_owned()),
            Err(error) => Err(with_sources(&error)),
        }
    }

    fn standing(&self, record: &SandboxRecord, held: &Held) -> Result<Standing, SweepError> {
        let row = match (&self.reader, RunId::parse(&record.run)) {
            (Some(reader), Ok(run)) => reader.run(&run).map_err(SweepError::Store)?,
            _ => None,
        };
        Ok(match (row.map(|row| row.status), held) {
            // Its lock went with its directory.
            (_, Held::Nothing) if record.maker_is_alive() => Standing::Live,
            (Some(Some(_)), _) => Standing::Ended,
            (Some(None), Held::Run { .. } | Held::Looked) => Standing::Interrupted,
            _ => Standing::Vanished,
        })
    }

    /// Says whether it is known to be gone.
    async fn remove(&mut self, mut record: SandboxRecord, why: &str) -> Result<bool, String> {
        let endpoint = match &record.kind {
            SandboxKind::Docker(container) => Some(container.endpoint.clone()),
            SandboxKind::Local { .. } => None,
        };
        if let Some(endpoint) = endpoint.as_ref().filter(|one| self.silent.contains(*one)) {
            return Err(format!("no container engine answers at {endpoint}"));
        }
        match self.ledger.release(&mut record, why).await {
            Ok(_) => Ok(!record.is_open()),
            Err(error) => {
                if let WorkspaceError::Docker(DockerError::EngineDown { .. }) = &error {
                    self.silent.extend(endpoint);
                }
                Err(with_sources(&error))
            }
        }
    }

    /// Containers of this home that are on no record: those of a home whose records were deleted.
    async fn strays(&mut self, endpoint: &str) -> Result<(), DockerError> {
        const WHY: &str = "it is on no record";
        let found = docker::strays(endpoint, &self.request.home, &self.ledger).await;
        let strays = match found {
            Ok(strays) => strays,
            // Where nobody named it, there need not be one; what is on record has said so already.
            Err(DockerError::EngineDown { .. } | DockerError::NotPermitted { .. })
                if !self.request.engine_needed =>
            {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for (id, run) in strays {
            let removed = if self.request.dry_run {
                Ok(())
            } else {
                docker::remove_stray(endpoint, &id).await
            };
            match removed {
                Ok(()) => self.note(&run, DOCKER, SweepAction::Removed, WHY.to_owned()),
                Err(error) => {
                    self.note(&run, DOCKER, SweepAction::Failed, with_sources(&error));
                }
            }
        }
        Ok(())
    }

    /// What cannot be read may be of any backend. Its sandbox stays.
    fn note_unread(&mut self, run: &str, error: &io::Error) {
        let backend = self.request.backend.unwrap_or("unknown");
        self.note(run, backend, SweepAction::Failed, error.to_string());
    }

    fn note(&mut self, run: &str, backend: &'static str, action: SweepAction, why: String) {
        self.swept.push(SweptSandbox {
            run: run.to_owned(),
            backend,
            action,
            why,
        });
    }
}

const IN_USE: &str = "its run goes on";

/// What keeps others from a run.
enum Held {
    Run {
        _lock: RunLock,
    },
    /// Only for a look: nobody had it at that moment.
    Looked,
    /// There is no directory to hold.
    Nothing,
}

/// How the run of a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Live,
    Ended,
    /// It has no end, and nobody drives it; `recover` may go on in the sandbox.
    Interrupted,
    Vanished,
}

impl Standing {
    /// Why the sandbox goes, else why it stays.
    fn verdict(self, age: Duration, max_age: Duration) -> Result<String, String> {
        match self {
            Self::Live => Err(IN_USE.to_owned()),
            Self::Ended => Ok("its run has ended".to_owned()),
            Self::Vanished => Ok("its run is gone".to_owned()),
            Self::Interrupted if max_age.is_zero() => Ok("its run was interrupted".to_owned()),
            Self::Interrupted if age > max_age => Ok(format!(
                "its run was interrupted, and it is older than {}",
                human_time(max_age)
            )),
            Self::Interrupted => Err("its run was interrupted and can be recovered".to_owned()),
        }
    }
}

/// The directory of the run `name`, when there is one.
fn run_directory(home: &Path, name: &str) -> Option<RunDirectory> {
    let directory = RunDirectory::of(home, &RunId::parse(name).ok()?);
    directory.root().is_dir().then_some(directory)
}

fn human_time(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds % 3600 == 0 => format!("{} h", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_cannot_be_read_is_told_and_stops_nothing() {
        let home = tempfile::tempdir().unwrap();
        let directory = ledger_directory(home.path());
        fs_err::create_dir(&directory).unwrap();
        fs_err::write(directory.join("long.json"), " ".repeat(70 << 10)).unwrap();
        fs_err::write(directory.join("other.json"), "{}").unwrap();
        let request = SweepRequest {
            home: home.path().to_owned(),
            backend: None,
            max_age: Duration::ZERO,
            engine: None,
            engine_needed: false,
            dry_run: false,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let swept = runtime.unwrap().block_on(sweep(&request)).unwrap();
        let told: Vec<_> = swept
            .sandboxes
            .iter()
            .map(|one| (one.run.as_str(), one.action))
            .collect();
        let failed = SweepAction::Failed;
        assert_eq!(told, [("long", failed), ("other", failed)]);
        assert!(
            swept.sandboxes[0].why.contains("longer than"),
            "{}",
            swept.sandboxes[0].why
        );
        assert_eq!(fs_err::read_dir(directory).unwrap().count(), 2);
    }

    #[test]
    fn what_may_go_on_stays_for_a_while() {
        let hour = Duration::from_secs(3600);
        let goes = |standing: Standing, age| standing.verdict(age, 6 * hour).is_ok();
        assert!(!goes(Standing::Live, 1000 * hour));
        assert!(goes(Standing::Ended, Duration::ZERO));
        assert!(goes(Standing::Vanished, Duration::ZERO));
        assert!(!goes(Standing::Interrupted, 6 * hour));
        assert!(goes(Standing::Interrupted, 7 * hour));
        let why = Standing::Interrupted.verdict(7 * hour, 6 * hour).unwrap();
        assert!(why.ends_with("older than 6 h"), "{why}");
    }
}
