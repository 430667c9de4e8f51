//! What there is under a home, and in what condition.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mini_ork_node::{sys, tree};
use mini_ork_protocol::RunId;

use super::trash::{self, is_trash};
use super::{Action, CleanError, CleanItem, CleanRequest, Subject};
use crate::reason::Status;
use crate::run::{RunDirectory, RunLock};
use crate::store::{RunRow, StoreReader};

/// A directory without a record that is younger may be that of a run which is being made.
const YOUNGEST_ORPHAN: Duration = Duration::from_secs(60);

/// Everything under a home that a clean may touch.
pub(super) struct Listing {
    /// The oldest first.
    pub(super) runs: Vec<ListedRun>,
    trash: Vec<PathBuf>,
    pub(super) processes: Processes,
}

/// Who works where.
pub(super) struct Processes(BTreeSet<(i32, PathBuf)>);

/// A run, recorded or not.
pub(super) struct ListedRun {
    pub(super) run: RunId,
    pub(super) directory: RunDirectory,
    pub(super) row: Option<RunRow>,
    pub(super) condition: Condition,
    /// Of the whole directory.
    pub(super) bytes: u64,
    /// Of its worktrees and its git directory.
    pub(super) work_bytes: u64,
}

/// In what condition a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Condition {
    /// A process drives it.
    Live {
        /// Which one.
        pid: Option<i32>,
    },
    /// It has no end and nobody drives it.
    Interrupted,
    /// It has ended.
    Finished { status: Status, ended_at_ms: u64 },
    /// It is recorded and its directory is gone.
    Vanished {
        /// How it ended, when it had.
        status: Option<Status>,
        since_ms: u64,
    },
    /// It is not recorded.
    Orphan {
        /// When its directory was last changed.
        changed_at_ms: u64,
        young: bool,
    },
    /// It cannot be told.
    Unknown {
        /// Why.
        problem: String,
    },
}

impl Listing {
    pub(super) fn read(request: &CleanRequest) -> Result<Self, CleanError> {
        let runs_directory = request.home.join("runs");
        let reader = StoreReader::open(&request.home).map_err(CleanError::Store)?;
        let rows = match reader {
            Some(reader) => reader.runs().map_err(CleanError::Store)?,
            None => Vec::new(),
        };
        let mut directories: BTreeMap<RunId, PathBuf> = BTreeMap::new();
        let mut trash = Vec::new();
        for path in entries(&runs_directory).map_err(CleanError::Files)? {
            let name = path.file_name().and_then(|name| name.to_str());
            if name.is_some_and(is_trash) {
                trash.push(path);
            } else if let Some(run) = name.and_then(|name| RunId::parse(name).ok()) {
                directories.insert(run, path);
            }
        }
        let mut runs = Vec::new();
        // Newest first in the list, oldest first for us.
        for row in rows.into_iter().rev() {
            let Ok(run) = RunId::parse(&row.run) else {
                continue;
            };
            directories.remove(&run);
            let directory = RunDirectory::of(&request.home, &run);
            let condition = of_row(&row, &directory);
            runs.push(ListedRun::new(run, directory, Some(row), condition));
        }
        let mut orphans: Vec<ListedRun> = directories
            .into_iter()
            .map(|(run, path)| {
                let directory = RunDirectory::at(path);
                let condition = of_orphan(&directory);
                ListedRun::new(run, directory, None, condition)
            })
            .collect();
        orphans.append(&mut runs);
        Ok(Self {
            runs: orphans,
            trash,
            processes: Processes::below(&runs_directory).map_err(CleanError::Files)?,
        })
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes).sum()
    }

    pub(super) fn trash_items(&self) -> Vec<CleanItem> {
        self.trash.iter().map(|path| trash_item(path)).collect()
    }

    /// Finishes what an earlier clean began.
    pub(super) fn finish_trash(&self) -> Vec<CleanItem> {
        let mut items = self.trash_items();
        for (item, path) in items.iter_mut().zip(&self.trash) {
            if let Err(error) = sys::remove_tree(path) {
                item.action = Action::Keep {
                    reason: error.to_string(),
                    failed: true,
                };
            }
        }
        items
    }
}

impl Processes {
    /// Looks now.
    pub(super) fn below(directory: &Path) -> io::Result<Self> {
        Ok(Self(sys::processes_below(directory)?))
    }

    /// Who works below `path`, as a sentence; none when nobody does.
    pub(super) fn holder(&self, path: &Path) -> Option<String> {
        let path = fs_err::canonicalize(path).ok()?;
        self.0
            .iter()
            .find(|(_, held)| held.starts_with(&path))
            .map(|(pid, _)| format!("process {pid} works in it"))
    }
}

impl ListedRun {
    fn new(run: RunId, directory: RunDirectory, row: Option<RunRow>, condition: Condition) -> Self {
        // What cannot be measured counts as nothing: sizes inform, and decide only which goes first.
        let size = |path: &Path| tree::disk_usage(path).unwrap_or(0);
        let work: u64 = work_paths(&directory).iter().map(|path| size(path)).sum();
        Self {
            bytes: size(directory.root()),
            work_bytes: work,
            run,
            directory,
            row,
            condition,
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        matches!(self.condition, Condition::Finished { .. })
    }

    /// Whether it got as far as its first node.
    pub(super) fn has_begun(&self) -> bool {
        self.has_work()
            || self.directory.verdict().exists()
            || self.directory.root().join("nodes").exists()
    }

    /// Whether there are worktrees or a git directory.
    pub(super) fn has_work(&self) -> bool {
        work_paths(&self.directory)
            .iter()
            .any(|path| fs_err::symlink_metadata(path).is_ok())
    }
}

/// The condition of a run whose record is `row`.
fn of_row(row: &RunRow, directory: &RunDirectory) -> Condition {
    if !directory.root().is_dir() {
        return Condition::Vanished {
            status: row.status,
            since_ms: row.ended_at_ms.unwrap_or(row.started_at_ms),
        };
    }
    match RunLock::owner(directory) {
        Ok(Some(owner)) => Condition::Live {
            pid: owner.identity.map(|identity| identity.pid),
        },
        Ok(None) => row
            .status
            .map_or(Condition::Interrupted, |status| Condition::Finished {
                status,
                ended_at_ms: row.ended_at_ms.unwrap_or(row.started_at_ms),
            }),
        Err(error) => Condition::Unknown {
            problem: error.to_string(),
        },
    }
}

fn of_orphan(directory: &RunDirectory) -> Condition {
    let changed = fs_err::metadata(directory.root()).and_then(|metadata| metadata.modified());
    match (RunLock::owner(directory), changed) {
        (Ok(Some(owner)), _) => Condition::Live {
            pid: owner.identity.map(|identity| identity.pid),
        },
        (Ok(None), Ok(changed)) => {
            let since = changed.duration_since(UNIX_EPOCH).unwrap_or_default();
            let age = SystemTime::now()
                .duration_since(changed)
                .unwrap_or_default();
            Condition::Orphan {
                changed_at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
                young: age < YOUNGEST_ORPHAN,
            }
        }
        (Err(error), _) | (_, Err(error)) => Condition::Unknown {
            problem: error.to_string(),
        },
    }
}

fn work_paths(directory: &RunDirectory) -> [PathBuf; 3] {
    [
        directory.worktree("main"),
        directory.root().join("worktrees"),
        directory.control_git(),
    ]
}

fn trash_item(path: &Path) -> CleanItem {
    CleanItem {
        what: Subject::Trash,
        run: trash::run_of(path),
        path: path.display().to_string(),
        bytes: tree::disk_usage(path).unwrap_or(0),
        why: "an earlier clean was killed before it had removed this".to_owned(),
        action: Action::Remove,
        rescued: Vec::new(),
    }
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match fs_err::read_dir(directory) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
