//! What can happen in a run: a closed set, journaled in order, from which the state is rebuilt.

use mini_ork_node::git::{CommitId, TreeId};
use mini_ork_protocol::NodeId;
use serde::{Deserialize, Serialize};

use crate::reason::{Reason, Status};

/// One step of a run. [`super::RunState::apply`] is the only reader that decides anything from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum RunEvent {
    /// The run's directory and, for a recipe that changes files, its control repository are there.
    Opened {
        /// Where the work starts; absent for a recipe that changes nothing.
        base: Option<Base>,
    },
    /// A node is about to run. Journaled before its process exists.
    NodeStarted(NodeStart),
    /// A node ended.
    NodeEnded {
        /// The node.
        node: NodeId,
        /// Its round, from 1.
        round: u32,
        /// Its attempt in the round, from 1.
        attempt: u32,
        /// How.
        outcome: NodeOutcome,
    },
    /// A verdict sends the work back: the target and all that depends on it run once more.
    RoundStarted {
        /// The nodes whose findings are carried back.
        from: Vec<NodeId>,
        /// The node that works again.
        target: NodeId,
        /// What it is told.
        evidence: String,
    },
    /// No further node may start: cancelled, past the deadline, out of budget.
    StopRequested {
        /// Why.
        reason: Reason,
        /// More exactly.
        detail: String,
    },
    /// Something that the user should know and that stops nothing.
    Warned {
        /// One sentence.
        text: String,
    },
    /// The work stands on a branch.
    Published(Publication),
    /// Work that was not published is reachable here.
    Kept {
        /// Full name of the ref, in the user's repository.
        reference: String,
        /// What it points at.
        commit: CommitId,
    },
    /// A finished run is taken up again: what failed, and what never ran, is to run.
    Reopened,
    /// The run's one terminal status. Nothing follows but [`RunEvent::Reopened`], and
    /// [`RunEvent::Kept`] when its worktrees are removed later.
    Closed(Closing),
}

/// Where the work of a run starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// HEAD of the user's repository when the run was opened.
    pub commit: CommitId,
    /// Its tree.
    pub tree: TreeId,
}

/// What is known of a node when it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStart {
    /// The node.
    pub node: NodeId,
    /// Its round, from 1.
    pub round: u32,
    /// Its attempt in the round, from 1.
    pub attempt: u32,
    /// The lane that does it.
    pub lane: Option<String>,
    /// The merged work of all nodes before it: what its own change is measured against.
    pub input: Option<TreeId>,
    /// What it finds: its input, or in a later round its own last result on top of that.
    pub start: Option<TreeId>,
    /// Which worktree of the run it works in.
    pub place: Option<String>,
}

/// How a node ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeOutcome {
    /// Absent when it did what it should.
    pub failure: Option<Failure>,
    /// One line for a person.
    pub summary: String,
    /// What speaks for the verdict, line by line.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// The tree after it, for a node that changes files.
    pub output: Option<TreeId>,
    /// Files that differ between its input and its output.
    pub changed_files: u64,
    /// What it cost in US dollars, as far as that is known; absent when nothing of it is.
    pub cost_usd: Option<f64>,
    /// The agent's own name for what it remembers, by which a later round of the same lane can go
    /// on with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Whether part of its cost is not known.
    #[serde(default)]
    pub cost_unknown: bool,
    /// Whether a gateway metered it: each of its calls is in the database by itself, and the
    /// dispatcher has added them up above. Else the cost is the lane's own word.
    #[serde(default)]
    pub metered: bool,
    /// Wall-clock time.
    pub duration_ms: u64,
    /// It had nothing to do.
    #[serde(default)]
    pub skipped: bool,
}

/// Why a node failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind.
    pub reason: Reason,
    /// What exactly, in one sentence.
    pub detail: String,
    /// What to do about it.
    pub remedy: Remedy,
}

/// What the engine may do about a failed node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// The same node may be tried again, within its `retries`.
    Attempt,
    /// The next lane of the node may do it; after the last one it is as [`Remedy::Attempt`].
    Lane,
    /// The findings may go back along a `retries` edge, within its `max_rounds`.
    Round,
    /// Neither helps.
    None,
}

/// Where published work stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    /// The branch, and what is on it; absent for a recipe that changes nothing.
    pub branch: Option<PublishedBranch>,
    /// Outputs that were collected, relative to the run directory.
    pub artifacts: Vec<String>,
}

/// A branch that a run made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedBranch {
    /// Short name of the branch.
    pub name: String,
    /// Its tip.
    pub commit: CommitId,
    /// The tip's tree.
    pub tree: TreeId,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    /// The terminal status.
    pub status: Status,
    /// Why, unless it was published.
    pub reason: Option<Reason>,
    /// One sentence.
    pub detail: String,
    /// The node that decided it.
    pub node: Option<NodeId>,
}
