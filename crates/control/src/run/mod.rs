//! The run engine: from a recipe and a kickoff to one terminal status.
//!
//! [`start`] opens a run and drives it, [`recover()`] takes one up again, [`kill()`] ends one from
//! outside. The parts: [`Plan`] is fixed before anything happens; [`RunEvent`]s are journaled in
//! order and are the only way in which [`RunState`] changes; the engine journals, decides and
//! starts executors; executors (`nodes`) do the work and report.

mod clock;
mod close;
mod context;
mod decide;
mod directory;
mod drive;
mod engine;
mod event;
mod failure;
mod fault;
mod fold;
mod inspect;
mod kill;
mod look;
mod models;
mod nodes;
mod open;
mod outputs;
mod plan;
mod record;
mod recover;
mod state;
mod trees;
mod unopened;
mod view;

use std::io;
use std::path::PathBuf;

pub(crate) use close::{journaled_trees, rescue_prefix, safe, unpublished};
pub(crate) use directory::read_json;
pub(crate) use recover::close_lost;
pub(crate) use trees::{commit_on, kept_reference};

pub use clock::now_ms;
pub use context::{Execution, StopLevel};
pub use decide::Decision;
pub use directory::{LockError, Owner, RunDirectory, RunLock};
pub use engine::{DAY_MS, RunObserver};
pub use event::{
    Base, Closing, Failure, NodeOutcome, NodeStart, Publication, PublishedBranch, Remedy, RunEvent,
};
pub use failure::WorkError;
pub(crate) use failure::is_disk_full;
pub use fault::{CLEAN_FAULT_POINTS, FAULT_POINTS, FaultPoint};
pub use fold::{Conflict, Folded, fold};
pub use inspect::{InspectError, Inspection, NodeWork, Work, WorkPlace};
pub use kill::{KillOutcome, kill};
pub use look::shows_its_tests;
pub use models::{Exported, MissingKeys, ModelSources};
pub use open::{PlanError, RunRequest, StartError, make_plan, require_room, start};
pub use outputs::{ProcessOutput, last_words, process_outputs};
pub use plan::{AgentPlace, Limits, PLAN_FORMAT, Plan, PlannedNode, Scope};
pub use record::{RunRecord, SettingRecord};
pub use recover::{Recovery, recover};
pub use state::{Contribution, NodeProgress, Phase, RunState};
pub use view::{KeptView, NodeView, RunView, ViewError, load_view, state_of};

use mini_ork_node::git::DiscoverError;
use mini_ork_node::session::SessionError;
use mini_ork_node::sys::DiskFree;
use mini_ork_node::workspace::WorkspaceError;
use mini_ork_protocol::RunId;

use crate::reason::Reason;
use crate::store::StoreError;

/// Why a run could not be driven to a terminal status. What is recorded of it stays valid, and
/// `recover` takes it up again.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The state database refused.
    #[error("the state of the run cannot be written")]
    Store(#[source] StoreError),
    /// Git or a worktree refused.
    #[error("the run's trees cannot be used")]
    Work(#[source] WorkError),
    /// The workspace refused.
    #[error("the run's workspace cannot be used")]
    Workspace(#[source] WorkspaceError),
    /// A file of the run cannot be used.
    #[error("a file of the run cannot be used")]
    Io(#[source] io::Error),
    /// Somebody else drives it.
    #[error("the run cannot be taken over")]
    Lock(#[source] LockError),
    /// The repository that it works for is gone or has changed its form.
    #[error("the run's repository cannot be used")]
    Repository(#[source] DiscoverError),
    /// Keys of its lanes are missing.
    #[error(transparent)]
    Keys(MissingKeys),
    /// There is too little room to begin.
    #[error("{} has {free}", path.display())]
    DiskLow {
        /// Where.
        path: PathBuf,
        /// What is free.
        free: DiskFree,
    },
    /// A file of the run says something that cannot be.
    #[error("run {run} is damaged: {problem}")]
    Damaged {
        /// The run.
        run: RunId,
        /// What is wrong.
        problem: String,
    },
    /// The run never began, for want of an answer.
    #[error("run {run} waits for an answer and never began")]
    Blocked {
        /// The run.
        run: RunId,
    },
    /// The run has ended in a way that leaves nothing to do.
    #[error("run {run} is published; there is nothing to recover")]
    AlreadyPublished {
        /// The run.
        run: RunId,
    },
}

impl RunError {
    /// The reason that scripts match on.
    pub fn reason(&self) -> Reason {
        if matches!(self, Self::Keys(_)) {
            return Reason::SecretMissing;
        }
        if matches!(self, Self::DiskLow { .. }) || failure::is_disk_full(self) {
            return Reason::DiskFull;
        }
        match self {
            Self::Workspace(WorkspaceError::Docker(_)) => Reason::BackendUnavailable,
            Self::Workspace(
                WorkspaceError::Confine(_)
                | WorkspaceError::Session(
                    SessionError::NotShared { .. }
                    | SessionError::OtherWayOut { .. }
                    | SessionError::NoEgress { .. },
                ),
            ) => Reason::IsolationUnavailable,
            _ => Reason::InfraLost,
        }
    }
}
