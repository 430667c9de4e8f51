//! What becomes of one run.

use mini_ork_node::tree::Look;

use super::examine::{Examination, Purpose, examine};
use super::listing::{Condition, ListedRun, Processes};
use super::remove;
use super::{Action, CleanError, CleanItem, CleanRequest, Subject};
use crate::run::{LockError, RunLock, close_lost, now_ms};
use crate::store::{RunRow, Store, StoreReader};

/// What is to become of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is nothing to do.
    Ignore,
    /// It stays, and the user should know why.
    Stay { why: String },
    /// Its worktrees go; it can still be recovered.
    Strip,
    /// All of it goes.
    Forget { why: String },
    /// It is given an end.
    Finalise,
    /// Its record goes; there is nothing else.
    ForgetRecord { why: String },
}

impl Verdict {
    /// By its condition, and for a finished one by its age.
    pub(super) fn by_age(listed: &ListedRun, now_ms: u64, limit_ms: u64) -> Self {
        let old = |since_ms: u64| {
            let age = now_ms.saturating_sub(since_ms);
            (age >= limit_ms).then(|| {
                let (age, limit) = (human_time(age), human_time(limit_ms));
                format!("it ended {age} ago, and runs are kept for {limit}")
            })
        };
        match &listed.condition {
            Condition::Live { pid } => Self::Stay {
                why: pid.map_or("it runs".to_owned(), |pid| format!("process {pid} runs it")),
            },
            Condition::Interrupted => Self::Stay {
                why: format!(
                    "its control plane died; `mini-ork recover {0}` continues it, `mini-ork kill {0}` ends it",
                    listed.run
                ),
            },
            Condition::Unknown { problem } => Self::Stay {
                why: problem.clone(),
            },
            Condition::Orphan { young: true, .. } => Self::Stay {
                why: "it was made a moment ago".to_owned(),
            },
            Condition::Orphan { changed_at_ms, .. } => {
                // Without work it is the beginning of a run that never was.
                if !listed.has_begun() {
                    let why = "it was never recorded: its run died before it began".to_owned();
                    return Self::Forget { why };
                }
                match old(*changed_at_ms) {
                    Some(_) => Self::Forget {
                        why: "it is not recorded, and old".to_owned(),
                    },
                    None if listed.has_work() => Self::Strip,
                    None => Self::Ignore,
                }
            }
            Condition::Vanished { status: None, .. } => Self::Finalise,
            Condition::Vanished { since_ms, .. } => {
                old(*since_ms).map_or(Self::Ignore, |why| Self::ForgetRecord { why })
            }
            Condition::Finished { ended_at_ms, .. } => match old(*ended_at_ms) {
                Some(why) => Self::Forget { why },
                None if listed.has_work() => Self::Strip,
                None => Self::Ignore,
            },
        }
    }

    /// Bytes that `listed` takes after this.
    pub(super) fn remaining(&self, listed: &ListedRun) -> u64 {
        match self {
            Self::Forget { .. } => 0,
            Self::Strip => listed.bytes.saturating_sub(listed.work_bytes),
            _ => listed.bytes,
        }
    }
}

/// What carrying out `verdict` would do.
pub(super) fn look(
    request: &CleanRequest,
    processes: &Processes,
    listed: &ListedRun,
    verdict: &Verdict,
) -> Vec<CleanItem> {
    match verdict {
        Verdict::Ignore => Vec::new(),
        Verdict::Stay { why } => vec![stay(listed, why)],
        Verdict::Finalise => vec![vanished(listed, Action::Finalise)],
        Verdict::ForgetRecord { why } => {
            let mut item = vanished(listed, Action::Remove);
            item.why.clone_from(why);
            vec![item]
        }
        Verdict::Strip => {
            // Nobody takes the run up while its trees are looked at.
            let _lock = match lock(listed) {
                Ok(lock) => lock,
                Err(item) => return vec![*item],
            };
            match examine(
                request,
                processes,
                listed,
                Purpose::Recover,
                Look::Everything,
            ) {
                Ok(examination) => worktree_items(listed, &examination),
                Err(reason) => vec![refused(whole_work(listed), reason, false)],
            }
        }
        Verdict::Forget { why } => {
            let _lock = match lock(listed) {
                Ok(lock) => lock,
                Err(item) => return vec![*item],
            };
            let item = forget_item(listed, why);
            if let Some(holder) = processes.holder(listed.directory.root()) {
                return vec![refused(item, holder, false)];
            }
            match examine(
                request,
                processes,
                listed,
                Purpose::Forget,
                Look::Everything,
            ) {
                Ok(examination) => vec![forget_action(item, &examination)],
                Err(reason) => vec![refused(item, reason, false)],
            }
        }
    }
}

/// The lock of the run, or the item that says who has it.
fn lock(listed: &ListedRun) -> Result<RunLock, Box<CleanItem>> {
    RunLock::take(&listed.directory).map_err(|error| match error {
        LockError::Held { owner } => {
            let why = owner.map_or("it runs".to_owned(), |owner| {
                format!("process {} runs it", owner.pid)
            });
            Box::new(stay(listed, &why))
        }
        LockError::Io(error) => Box::new(refused(whole_work(listed), error.to_string(), true)),
    })
}

/// Carries out `verdict`, if the run is still as it was.
pub(super) async fn act(
    request: &CleanRequest,
    processes: &Processes,
    store: &Store,
    listed: &ListedRun,
    verdict: &Verdict,
) -> Result<Vec<CleanItem>, CleanError> {
    match verdict {
        Verdict::Ignore | Verdict::Stay { .. } => Ok(look(request, processes, listed, verdict)),
        Verdict::Finalise => {
            let problem = format!(
                "its directory {} is gone",
                listed.directory.root().display()
            );
            close_lost(store, &listed.run, &problem)
                .await
                .map_err(CleanError::Record)?;
            Ok(vec![vanished(listed, Action::Finalise)])
        }
        Verdict::ForgetRecord { .. } => {
            let items = look(request, processes, listed, verdict);
            store
                .remove_run(&listed.run)
                .await
                .map_err(CleanError::Store)?;
            Ok(items)
        }
        Verdict::Strip | Verdict::Forget { .. } => {
            let _lock = match lock(listed) {
                Ok(lock) => lock,
                Err(item) => return Ok(vec![*item]),
            };
            if !unchanged(request, listed)? {
                return Ok(vec![stay(listed, "it was taken up again a moment ago")]);
            }
            // Not the list of when all runs were listed: that may be minutes ago.
            let root = listed.directory.root();
            let processes = &Processes::below(root).map_err(CleanError::Files)?;
            match verdict {
                Verdict::Forget { why } => {
                    let item = forget_item(listed, why);
                    let item = match processes.holder(root) {
                        Some(holder) => refused(item, holder, false),
                        None => remove::forget(request, processes, store, listed, item).await?,
                    };
                    Ok(vec![item])
                }
                _ => remove::strip(request, processes, store, listed).await,
            }
        }
    }
}

/// Whether the run has the same end as when it was listed. Asked under its lock.
fn unchanged(request: &CleanRequest, listed: &ListedRun) -> Result<bool, CleanError> {
    let reader = StoreReader::open(&request.home).map_err(CleanError::Store)?;
    let now = match reader {
        Some(reader) => reader.run(&listed.run).map_err(CleanError::Store)?,
        None => None,
    };
    let end = |row: &RunRow| (row.status, row.ended_at_ms);
    Ok(now.as_ref().map(end) == listed.row.as_ref().map(end))
}

pub(super) fn worktree_items(listed: &ListedRun, examination: &Examination) -> Vec<CleanItem> {
    let why = ended(listed);
    let mut items: Vec<CleanItem> = examination
        .places
        .iter()
        .map(|place| CleanItem {
            what: Subject::Worktree,
            run: Some(listed.run.to_string()),
            path: place.path.display().to_string(),
            bytes: place.bytes,
            why: why.clone(),
            action: match &place.unsaved {
                Err(reason) => Action::Keep {
                    reason: reason.clone(),
                    failed: false,
                },
                Ok(unsaved) => removal(unsaved.finds.iter().map(|find| find.what.clone())),
            },
            rescued: Vec::new(),
        })
        .collect();
    let control = listed.directory.control_git();
    if control.is_dir() {
        let action = match examination.obstacle() {
            Some(_) => Action::Keep {
                reason: "a worktree that stays needs it".to_owned(),
                failed: false,
            },
            None => removal(examination.result_finds()),
        };
        items.push(CleanItem {
            what: Subject::ControlGit,
            run: Some(listed.run.to_string()),
            bytes: mini_ork_node::tree::disk_usage(&control).unwrap_or(0),
            path: control.display().to_string(),
            why,
            action,
            rescued: Vec::new(),
        });
    }
    items
}

pub(super) fn forget_action(mut item: CleanItem, examination: &Examination) -> CleanItem {
    item.action = match examination.obstacle() {
        Some(reason) => Action::Keep {
            reason: reason.clone(),
            failed: false,
        },
        None => removal(examination.finds()),
    };
    item
}

/// `item`, which stays for `reason`.
pub(super) fn refused(mut item: CleanItem, reason: String, failed: bool) -> CleanItem {
    item.action = Action::Keep { reason, failed };
    item
}

/// All that a run works with, as one thing.
pub(super) fn whole_work(listed: &ListedRun) -> CleanItem {
    CleanItem {
        what: Subject::Worktree,
        bytes: listed.work_bytes,
        ..forget_item(listed, &ended(listed))
    }
}

fn forget_item(listed: &ListedRun, why: &str) -> CleanItem {
    CleanItem {
        what: match listed.row {
            Some(_) => Subject::Run,
            None => Subject::Orphan,
        },
        run: Some(listed.run.to_string()),
        path: listed.directory.root().display().to_string(),
        bytes: listed.bytes,
        why: why.to_owned(),
        action: Action::Remove,
        rescued: Vec::new(),
    }
}

fn stay(listed: &ListedRun, why: &str) -> CleanItem {
    let mut item = forget_item(listed, "it has not ended");
    item.action = Action::Keep {
        reason: why.to_owned(),
        failed: false,
    };
    item
}

fn vanished(listed: &ListedRun, action: Action) -> CleanItem {
    let mut item = forget_item(listed, "its directory is gone");
    item.what = Subject::Record;
    item.action = action;
    item
}

fn removal(finds: impl IntoIterator<Item = String>) -> Action {
    let finds: Vec<String> = finds.into_iter().collect();
    if finds.is_empty() {
        Action::Remove
    } else {
        Action::RescueThenRemove { finds }
    }
}

fn ended(listed: &ListedRun) -> String {
    match &listed.condition {
        Condition::Finished {
            status,
            ended_at_ms,
        } => {
            let age = human_time(now_ms().saturating_sub(*ended_at_ms));
            format!("its run ended {age} ago: {status}")
        }
        _ => "its run is not recorded".to_owned(),
    }
}

fn human_time(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}
