//! Removing what runs left behind, and never the only copy of anything.
//!
//! [`plan`] looks and changes nothing that counts; [`carry_out`] looks again, at one run after the
//! other and under its lock, saves what nothing else has under refs in the user's repository, and
//! removes. What is removed is first renamed to a name that only a clean knows, so that a clean that
//! is killed leaves no half of anything, and the next one finishes it.

mod examine;
mod ground;
mod listing;
mod remove;
mod run;
mod trash;

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use mini_ork_node::git::Git;
use serde::Serialize;

use crate::reserve::hold_room;
use crate::run::{FaultPoint, RunError, now_ms};
use crate::store::{Store, StoreError};
use listing::{ListedRun, Listing};
use run::Verdict;

/// What to clean, resolved by the caller.
#[derive(Debug)]
pub struct CleanRequest {
    /// Home of mini-ork.
    pub home: PathBuf,
    /// The git program.
    pub git: Git,
    /// Finished runs that ended longer ago than this are forgotten.
    pub older_than: Duration,
    /// The oldest finished runs are forgotten until all runs together take at most so many bytes.
    pub max_size: Option<u64>,
    /// For tests.
    pub fault: FaultPoint,
}

/// What a clean does, or did.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CleanPlan {
    /// One thing each, the oldest run first.
    pub items: Vec<CleanItem>,
    /// Bytes that all runs take together, before.
    pub total_bytes: u64,
}

/// One thing that can be removed, or that is not.
#[derive(Debug, Clone, Serialize)]
pub struct CleanItem {
    /// What it is.
    pub what: Subject,
    /// The run that it belongs to.
    pub run: Option<String>,
    /// Where it is.
    pub path: String,
    /// Bytes on disk.
    pub bytes: u64,
    /// Why it may go, or why it was looked at.
    pub why: String,
    /// What happens to it.
    #[serde(flatten)]
    pub action: Action,
    /// Refs that keep what was in it, once it is gone.
    pub rescued: Vec<RescuedItem>,
}

/// Something that can be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A worktree of a run.
    Worktree,
    /// The git directory of a run, after its last worktree.
    ControlGit,
    /// A run: its directory and its record.
    Run,
    /// The directory of a run that was never recorded.
    Orphan,
    /// The record of a run whose directory is gone.
    Record,
    /// What an earlier clean that was killed had already set aside.
    Trash,
}

/// What happens to a thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "action")]
pub enum Action {
    /// It goes; nothing in it is the only copy of anything.
    Remove,
    /// It goes after these have been saved under refs.
    RescueThenRemove {
        /// One sentence each.
        finds: Vec<String>,
    },
    /// A record gets its terminal status and stays.
    Finalise,
    /// It stays.
    Keep {
        /// Why.
        reason: String,
        /// Whether it was to go, and could not.
        failed: bool,
    },
}

/// A ref that keeps what was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RescuedItem {
    /// Its full name, in the user's repository.
    pub reference: String,
    /// What it points at.
    pub commit: String,
    /// What that is.
    pub what: String,
}

/// Why nothing could be cleaned at all. What keeps a single run is said of that run.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    /// The state database refused.
    #[error("the state of the runs cannot be used")]
    Store(#[source] StoreError),
    /// The directory of runs cannot be used.
    #[error("the directory of runs cannot be used")]
    Files(#[source] io::Error),
    /// Two at once would get in each other's way.
    #[error("another clean is at work")]
    Busy,
    /// A run could not be closed.
    #[error("the record of a run cannot be closed")]
    Record(#[source] RunError),
}

/// What a clean would do. Removes nothing, and changes nothing in any worktree.
pub fn plan(request: &CleanRequest) -> Result<CleanPlan, CleanError> {
    let listing = Listing::read(request)?;
    let mut plan = CleanPlan {
        items: listing.trash_items(),
        total_bytes: listing.total_bytes(),
    };
    for (listed, verdict) in verdicts(request, &listing) {
        plan.items
            .extend(run::look(request, &listing.processes, listed, &verdict));
    }
    Ok(plan)
}

/// Does it, and says what was done. Waits for git and the disk on the calling thread.
///
/// An item that could not be removed is kept, says why, and does not keep the others.
pub async fn carry_out(request: &CleanRequest, store: &Store) -> Result<CleanPlan, CleanError> {
    let Some(_alone) = trash::Alone::take(&request.home)? else {
        return Ok(CleanPlan::default());
    };
    let listing = Listing::read(request)?;
    let mut done = CleanPlan {
        items: listing.finish_trash(),
        total_bytes: listing.total_bytes(),
    };
    for (listed, verdict) in verdicts(request, &listing) {
        let items = run::act(request, &listing.processes, store, listed, &verdict).await?;
        done.items.extend(items);
    }
    // For the next time; there is no need to say that it failed.
    drop(hold_room(&request.home));
    Ok(done)
}

impl CleanPlan {
    /// Bytes of everything that goes.
    pub fn freed_bytes(&self) -> u64 {
        let gone = self.items.iter().filter(|item| item.goes());
        gone.map(|item| item.bytes).sum()
    }
}

impl CleanItem {
    /// Whether it goes, or went.
    pub fn goes(&self) -> bool {
        matches!(
            self.action,
            Action::Remove | Action::RescueThenRemove { .. }
        )
    }
}

/// What is to become of each run, the oldest first.
fn verdicts<'a>(request: &CleanRequest, listing: &'a Listing) -> Vec<(&'a ListedRun, Verdict)> {
    let now = now_ms();
    let limit = u64::try_from(request.older_than.as_millis()).unwrap_or(u64::MAX);
    let mut verdicts: Vec<(&ListedRun, Verdict)> = listing
        .runs
        .iter()
        .map(|run| (run, Verdict::by_age(run, now, limit)))
        .collect();
    let Some(most) = request.max_size else {
        return verdicts;
    };
    let remaining = |verdicts: &[(&ListedRun, Verdict)]| -> u64 {
        verdicts
            .iter()
            .map(|(run, verdict)| verdict.remaining(run))
            .sum()
    };
    for at in 0..verdicts.len() {
        if remaining(&verdicts) <= most {
            break;
        }
        let (run, verdict) = &mut verdicts[at];
        if matches!(verdict, Verdict::Strip)
            || matches!(verdict, Verdict::Ignore) && run.is_finished()
        {
            let most = human_bytes(most);
            *verdict = Verdict::Forget {
                why: format!("it is the oldest, and all runs are to take at most {most}"),
            };
        }
    }
    verdicts
}

/// `512 B`, `1.5 MiB`.
pub fn human_bytes(bytes: u64) -> String {
    let mut unit = "B";
    let mut whole = bytes;
    let mut tenths = 0;
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if whole < 1024 {
            break;
        }
        tenths = whole % 1024 * 10 / 1024;
        whole /= 1024;
        unit = next;
    }
    if unit == "B" || whole >= 100 {
        format!("{whole} {unit}")
    } else {
        format!("{whole}.{tenths} {unit}")
    }
}
