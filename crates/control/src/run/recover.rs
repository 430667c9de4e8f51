//! Taking up a run whose control plane died, or that failed and may be tried again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use mini_ork_node::git::{Git, Repository};
use mini_ork_node::workspace::Workspace;
use mini_ork_protocol::RunId;
use tokio::sync::watch;

use super::context::{Execution, StopLevel};
use super::directory::{RunDirectory, RunLock, read_json};
use super::engine::RunObserver;
use super::event::RunEvent;
use super::fault::FaultPoint;
use super::models::{ModelSources, Models};
use super::open::{Pieces, drive, lost};
use super::plan::{PLAN_FORMAT, Plan};
use super::record::{RECORD_FORMAT, RunRecord};
use super::unopened::block;
use super::{RunError, RunView, now_ms};
use crate::kickoff::Kickoff;
use crate::reason::Status;
use crate::sandboxes;
use crate::store::{RunSummaryUpdate, Store, StoreReader};

/// What recovery needs besides what the run itself recorded.
#[derive(Debug)]
pub struct Recovery {
    /// Home of mini-ork.
    pub home: PathBuf,
    /// The run.
    pub run: RunId,
    /// The git program.
    pub git: Git,
    /// Where programs run.
    pub workspace: Arc<dyn Workspace>,
    /// How programs run.
    pub execution: Execution,
    /// Where keys and prices come from.
    pub models: ModelSources,
    /// As in a new run.
    pub excludes: Vec<u8>,
    /// A new budget for the whole run, when the user gives one.
    pub budget_usd: Option<f64>,
    /// As in a new run.
    pub daily_budget_usd: f64,
    /// For tests.
    pub fault: FaultPoint,
}

/// Continues a run from its last good node: attaches to a node that still runs, harvests one that
/// has ended, tries again what failed.
///
/// A run that is driven by another process is left to it (an error says who it is). A run whose
/// directory is gone is closed as lost, so that it is never "running" for ever.
pub async fn recover(
    recovery: Recovery,
    store: &Store,
    observer: &mut dyn RunObserver,
    asked: watch::Receiver<StopLevel>,
) -> Result<RunView, RunError> {
    let directory = RunDirectory::of(&recovery.home, &recovery.run);
    if !directory.root().is_dir() {
        return finalise_lost(&recovery, &directory, store).await;
    }
    let _lock = RunLock::take(&directory).map_err(RunError::Lock)?;
    // Read under the lock: what another process journaled before it let go is seen.
    let mut events: Vec<RunEvent> = read_events(&recovery)?;
    let closed = events.iter().rev().find_map(|event| match event {
        RunEvent::Closed(closing) => Some(Some(closing.status)),
        RunEvent::Reopened => Some(None),
        _ => None,
    });
    if closed.flatten() == Some(Status::Published) {
        return Err(RunError::AlreadyPublished { run: recovery.run });
    }
    if closed.flatten() == Some(Status::Blocked) {
        return Err(RunError::Blocked { run: recovery.run });
    }
    let mut plan: Plan = read_json(&directory.plan()).map_err(RunError::Io)?;
    let record: RunRecord = read_json(&directory.record()).map_err(RunError::Io)?;
    check_formats(&recovery.run, &plan, &record)?;
    if recovery.budget_usd.is_some() {
        plan.limits.budget_usd = recovery.budget_usd;
    }
    let models = Models::resolve(recovery.models, &plan)
        .await
        .map_err(RunError::Keys)?;
    let repository = Repository::discover(&recovery.git, &record.repository_path())
        .map_err(RunError::Repository)?;
    let answers: BTreeMap<String, String> =
        read_json(&directory.answers()).map_err(RunError::Io)?;
    let kickoff = read_kickoff(&recovery.run, &directory, &answers)?;
    clear_stale_locks(&directory);
    if closed.flatten().is_some() {
        // What ran in a sandbox that outlived its run must not work beside what is begun now.
        sandboxes::release(&recovery.home, &recovery.run, "its run began anew")
            .await
            .map_err(RunError::Workspace)?;
        store
            .append(
                &recovery.run,
                now_ms(),
                &RunEvent::Reopened,
                RunSummaryUpdate::default(),
            )
            .await
            .map_err(RunError::Store)?;
        events.push(RunEvent::Reopened);
    }
    let pieces = Pieces {
        plan: Arc::new(plan),
        directory,
        record,
        repository,
        workspace: recovery.workspace,
        kickoff,
        execution: recovery.execution,
        models,
        excludes: recovery.excludes,
        daily_budget_usd: recovery.daily_budget_usd,
        fault: recovery.fault,
        store: store.clone(),
    };
    if !pieces.record.questions.is_empty() {
        // Its control plane died before it could say so.
        return block(pieces, observer).await;
    }
    drive(pieces, &events, observer, asked).await
}

fn read_events(recovery: &Recovery) -> Result<Vec<RunEvent>, RunError> {
    let reader = StoreReader::open(&recovery.home).map_err(RunError::Store)?;
    let Some(reader) = reader else {
        return Ok(Vec::new());
    };
    let events = reader.events(&recovery.run, 0).map_err(RunError::Store)?;
    Ok(events
        .into_iter()
        .map(|journaled| journaled.event)
        .collect())
}

fn check_formats(run: &RunId, plan: &Plan, record: &RunRecord) -> Result<(), RunError> {
    if plan.format > PLAN_FORMAT || record.format > RECORD_FORMAT {
        return Err(RunError::Damaged {
            run: run.clone(),
            problem: "it was made by a later mini-ork".to_owned(),
        });
    }
    if &plan.run != run || &record.run != run {
        return Err(RunError::Damaged {
            run: run.clone(),
            problem: format!("its directory holds the plan of run {}", plan.run),
        });
    }
    Ok(())
}

fn read_kickoff(
    run: &RunId,
    directory: &RunDirectory,
    answers: &BTreeMap<String, String>,
) -> Result<Kickoff, RunError> {
    let bytes = fs_err::read(directory.kickoff()).map_err(RunError::Io)?;
    Kickoff::parse(&bytes, "kickoff.md")
        .and_then(|kickoff| kickoff.with_answers(answers))
        .map_err(|error| RunError::Damaged {
            run: run.clone(),
            problem: error.to_string(),
        })
}

/// A git that was killed leaves its lock beside the index. Nothing else can hold one: the run's
/// own lock is ours.
fn clear_stale_locks(directory: &RunDirectory) {
    let Ok(entries) = fs_err::read_dir(directory.control_git()) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "lock")
        {
            // When it stays, the next git names it.
            let _ = fs_err::remove_file(path);
        }
    }
}

async fn finalise_lost(
    recovery: &Recovery,
    directory: &RunDirectory,
    store: &Store,
) -> Result<RunView, RunError> {
    let damaged = |problem: String| RunError::Damaged {
        run: recovery.run.clone(),
        problem,
    };
    let reader = StoreReader::open(&recovery.home).map_err(RunError::Store)?;
    let row = reader
        .and_then(|reader| reader.run(&recovery.run).transpose())
        .transpose()
        .map_err(RunError::Store)?
        .ok_or_else(|| damaged("there is no record of it".to_owned()))?;
    let problem = format!("its directory {} is gone", directory.root().display());
    // Where it cannot be removed now, it stays on record for the next sweep.
    let _ = sandboxes::release(&recovery.home, &recovery.run, "its run is gone").await;
    if row.status.is_none() {
        close_lost(store, &recovery.run, &problem).await?;
    }
    Err(damaged(problem))
}

/// Writes the terminal status of a run of which nothing is left to drive.
pub(crate) async fn close_lost(store: &Store, run: &RunId, problem: &str) -> Result<(), RunError> {
    let closing = lost(problem.to_owned());
    let summary = RunSummaryUpdate {
        status: Some(closing.status),
        reason: closing.reason,
        detail: Some(closing.detail.clone()),
        ended_at_ms: Some(now_ms()),
        ..RunSummaryUpdate::default()
    };
    store
        .append(run, now_ms(), &RunEvent::Closed(closing), summary)
        .await
        .map_err(RunError::Store)
}
