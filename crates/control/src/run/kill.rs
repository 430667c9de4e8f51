//! Ending a run from outside.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mini_ork_node::supervise::Stop;
use mini_ork_node::sys::{self, Signal};
use mini_ork_node::workspace::{Attached, Workspace};
use mini_ork_protocol::RunId;

use super::close::sandbox_left;
use super::directory::{LockError, RunDirectory, RunLock};
use super::event::{Closing, RunEvent};
use super::{RunError, now_ms};
use crate::reason::{Reason, Status};
use crate::sandboxes;
use crate::store::{RunSummaryUpdate, Store, StoreReader};

/// How long the control plane of a run may take to end it in order.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(20);

/// How a run came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KillOutcome {
    /// It had already ended.
    AlreadyEnded(Status),
    /// It is cancelled, and no process of it is left.
    Killed,
    /// It is cancelled, and its sandbox could not be removed; the sentence says why and what to do.
    SandboxLeft(String),
}

/// Ends `run`: asks the control plane that drives it, and does it in its place when there is none
/// or it does not answer. `workspace` is that of the run, and `outside` this machine, for agents that
/// are not in it. When it returns, the run has a terminal status and no process of it is left, but
/// for what is in a sandbox that could not be removed. Never starts anything.
pub async fn kill(
    home: &Path,
    run: &RunId,
    store: &Store,
    workspace: &dyn Workspace,
    outside: &dyn Workspace,
) -> Result<KillOutcome, RunError> {
    let directory = RunDirectory::of(home, run);
    if let Some(status) = terminal_status(home, run)? {
        return Ok(KillOutcome::AlreadyEnded(status));
    }
    ask_owner(&directory).await?;
    let _lock = match RunLock::take(&directory) {
        Ok(lock) => Some(lock),
        // A run whose directory is gone has nobody who could drive it.
        Err(LockError::Io(_)) if !directory.root().is_dir() => None,
        Err(error) => return Err(RunError::Lock(error)),
    };
    // Behind a boundary everything ends with it.
    let left = sandboxes::release(home, run, "its run was killed").await;
    let left = left.err().map(|error| sandbox_left(&error));
    end_all(workspace, directory.process_directories()).await?;
    end_all(outside, directory.processes_outside()).await?;
    if let Some(status) = terminal_status(home, run)? {
        return Ok(match status {
            Status::Cancelled => KillOutcome::Killed,
            other => KillOutcome::AlreadyEnded(other),
        });
    }
    let mut detail = "it was killed; its work is kept in its directory".to_owned();
    if let Some(left) = &left {
        detail = format!("{detail}; {left}");
    }
    let closing = Closing {
        status: Status::Cancelled,
        reason: Some(Reason::Cancelled),
        detail: detail.clone(),
        node: None,
    };
    let summary = RunSummaryUpdate {
        status: Some(Status::Cancelled),
        reason: Some(Reason::Cancelled),
        detail: Some(detail),
        ended_at_ms: Some(now_ms()),
        ..RunSummaryUpdate::default()
    };
    store
        .append(run, now_ms(), &RunEvent::Closed(closing), summary)
        .await
        .map_err(RunError::Store)?;
    Ok(left.map_or(KillOutcome::Killed, KillOutcome::SandboxLeft))
}

async fn end_all(workspace: &dyn Workspace, processes: Vec<PathBuf>) -> Result<(), RunError> {
    for path in processes {
        let attached = workspace.attach(&path).await.map_err(RunError::Workspace)?;
        if let Attached::Running(process) = attached {
            process.stop(Stop::Immediate).map_err(RunError::Workspace)?;
            process.wait().await.map_err(RunError::Workspace)?;
        }
    }
    Ok(())
}

/// Asks the owner to end the run, and ends the owner when it does not.
async fn ask_owner(directory: &RunDirectory) -> Result<(), RunError> {
    let Some(owner) = RunLock::owner(directory).map_err(RunError::Io)? else {
        return Ok(());
    };
    for signal in [Signal::TERM, Signal::KILL] {
        if let Some(identity) = owner.identity {
            sys::signal(identity, signal).map_err(RunError::Io)?;
        }
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if RunLock::owner(directory).map_err(RunError::Io)?.is_none() {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

fn terminal_status(home: &Path, run: &RunId) -> Result<Option<Status>, RunError> {
    let reader = StoreReader::open(home).map_err(RunError::Store)?;
    let row = reader
        .map(|reader| reader.run(run))
        .transpose()
        .map_err(RunError::Store)?
        .flatten()
        .ok_or_else(|| RunError::Damaged {
            run: run.clone(),
            problem: "there is no record of it".to_owned(),
        })?;
    Ok(row.status)
}
