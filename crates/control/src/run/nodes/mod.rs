//! What each type of node does. An executor works on one attempt and reports to the dispatcher; it
//! never changes the run's state, and talks to no other executor.

mod blame;
mod channel;
mod gates;
mod lane;
mod outputs;
mod program;
mod prompt;
mod publisher;
mod tests_verifier;
mod verifier;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use mini_ork_node::git::{Change, TreeId};
use mini_ork_protocol::{NodeId, NodeSegment};
use tokio::sync::{mpsc, oneshot};

use super::context::{RunContext, StopLevel};
use super::directory::RunDirectory;
use super::event::{Failure, NodeOutcome, NodeStart, Remedy, RunEvent};
use super::failure::ground_failure;
use super::fold::Folded;
use super::plan::{AgentPlace, PlannedNode};
use super::state::Contribution;
use crate::lanes::Lane;
use crate::reason::Reason;
use crate::recipe::NodeKind;

/// One attempt of a node, with all that it may know of the run.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) planned: PlannedNode,
    /// Which of its lanes is asked this time.
    pub(crate) lane: Option<Lane>,
    /// What that lane calls its memory of an earlier round.
    pub(crate) session: Option<String>,
    pub(crate) round: u32,
    pub(crate) attempt: u32,
    /// What earlier verdicts said of this node's work.
    pub(crate) evidence: Option<String>,
    /// This node's result of an earlier round.
    pub(crate) previous: Option<Contribution>,
    /// The work before it, in the order of the graph.
    pub(crate) contributions: Vec<Contribution>,
    /// Whether other nodes may run at the same time.
    pub(crate) fans_out: bool,
    /// The last good attempt of every node before it, in the order of the graph.
    pub(crate) ancestors: Vec<Ancestor>,
    /// The start that an earlier control plane journaled for this very attempt.
    pub(crate) resume: Option<NodeStart>,
    /// What counted against the budget of the run when the attempt was decided.
    pub(crate) spent_usd: f64,
    /// What counted against the daily budget then.
    pub(crate) spent_today_usd: f64,
}

/// A node that is done before another starts.
#[derive(Debug, Clone)]
pub(crate) struct Ancestor {
    pub(crate) id: NodeId,
    pub(crate) kind: NodeKind,
    pub(crate) round: u32,
    pub(crate) attempt: u32,
    pub(crate) summary: String,
    pub(crate) skipped: bool,
}

/// What an executor tells the dispatcher.
#[derive(Debug)]
pub(crate) enum Message {
    /// To be journaled; the executor goes on when that is done.
    Journal(RunEvent, oneshot::Sender<()>),
    /// The attempt is over.
    Ended {
        node: NodeId,
        round: u32,
        attempt: u32,
        outcome: NodeOutcome,
    },
}

/// An executor's line to the dispatcher.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    messages: mpsc::UnboundedSender<Message>,
}

impl Reporter {
    pub(crate) fn new(messages: mpsc::UnboundedSender<Message>) -> Self {
        Self { messages }
    }

    /// Returns when `event` is durable. An error means that the run is being given up.
    pub(crate) async fn journal(&self, event: RunEvent) -> Result<(), Failure> {
        let given_up = || Failure {
            reason: Reason::InfraLost,
            detail: "the run was given up".to_owned(),
            remedy: Remedy::None,
        };
        let (done, wait) = oneshot::channel();
        self.messages
            .send(Message::Journal(event, done))
            .map_err(|_| given_up())?;
        wait.await.map_err(|_| given_up())
    }

    async fn warn(&self, text: String) -> Result<(), Failure> {
        self.journal(RunEvent::Warned { text }).await
    }

    fn ended(&self, job: &Job, outcome: NodeOutcome) {
        // Without a dispatcher the end is found again by recovery.
        let _ = self.messages.send(Message::Ended {
            node: job.id().clone(),
            round: job.round,
            attempt: job.attempt,
            outcome,
        });
    }
}

/// Works on `job` and reports its end.
pub(crate) async fn execute(context: Arc<RunContext>, job: Job, reporter: Reporter) {
    let began = Instant::now();
    let worked = match job.planned.node.kind {
        _ if *context.stop.borrow() != StopLevel::Run && job.resume.is_none() => Err(stopped()),
        NodeKind::Verifier => verifier::run(&context, &job, &reporter).await,
        NodeKind::Publisher => publisher::run(&context, &job, &reporter).await,
        NodeKind::Rollback => publisher::roll_back(&context, &job, &reporter).await,
        NodeKind::Planner
        | NodeKind::Researcher
        | NodeKind::Transform
        | NodeKind::Implementer
        | NodeKind::Reviewer
        | NodeKind::Eval => lane::run(&context, &job, &reporter).await,
    };
    let mut outcome = worked.unwrap_or_else(NodeOutcome::failed);
    outcome.duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    reporter.ended(&job, outcome);
}

impl Job {
    pub(crate) fn id(&self) -> &NodeId {
        &self.planned.node.id
    }

    fn kind(&self) -> NodeKind {
        self.planned.node.kind
    }

    /// The directory of this attempt.
    fn directory(&self, context: &RunContext) -> PathBuf {
        context
            .directory
            .attempt(self.id(), self.round, self.attempt)
    }

    /// Where this attempt puts the outputs that its recipe declares.
    fn output_directory(&self, context: &RunContext) -> PathBuf {
        self.directory(context).join("out")
    }

    /// The work before this node, merged; conflicts are a failure unless the node takes them.
    async fn input(&self, context: &RunContext) -> Result<Option<Folded>, Failure> {
        let Some(trees) = &context.trees else {
            return Ok(None);
        };
        let folded = trees
            .fold(self.contributions.clone())
            .await
            .map_err(|error| ground_failure(&error))?;
        if !folded.conflicts.is_empty() && !self.planned.node.accepts_conflicts {
            let paths: Vec<String> = folded
                .conflicts
                .iter()
                .map(|found| found.conflict.path.to_string())
                .collect();
            return Err(Failure {
                reason: Reason::MergeConflict,
                detail: format!("parallel changes exclude each other in {}", listed(&paths)),
                remedy: Remedy::None,
            });
        }
        Ok(Some(folded))
    }

    /// Refuses to go on when the work before this node changed nothing: whoever reviews or
    /// publishes it would be paid for nothing.
    fn require_work(&self, context: &RunContext, input: Option<&Folded>) -> Result<(), Failure> {
        let (Some(trees), Some(folded)) = (&context.trees, input) else {
            return Ok(());
        };
        let after_writers = self.ancestors.iter().any(|ancestor| ancestor.kind.writes());
        if after_writers && folded.tree == trees.base().tree {
            return Err(Failure {
                reason: Reason::NoOp,
                detail: "nothing differs from where the run started".to_owned(),
                remedy: Remedy::None,
            });
        }
        Ok(())
    }

    /// The worktree, and the tree that it held, in which an earlier control plane already started a
    /// program for this very attempt: it is not to be touched.
    fn resumed_place(&self, context: &RunContext) -> Option<(&str, &TreeId)> {
        let start = self.resume.as_ref()?;
        self.resumed_program(context)
            .then_some((start.place.as_deref()?, start.start.as_ref()?))
    }

    /// Whether an earlier control plane already started a program for this very attempt.
    fn resumed_program(&self, context: &RunContext) -> bool {
        self.resume.is_some() && RunDirectory::has_processes(&self.process_parent(context))
    }

    /// The directory that holds the records of its program, which programs inside of a boundary can
    /// write only where it is inside itself.
    fn process_parent(&self, context: &RunContext) -> PathBuf {
        match self.place(context) {
            AgentPlace::Inside => self.directory(context),
            AgentPlace::ToolsInside | AgentPlace::Host => self.outside(context),
        }
    }

    /// What this attempt has outside of the boundary of the run.
    fn outside(&self, context: &RunContext) -> PathBuf {
        context
            .directory
            .outside(self.id(), self.round, self.attempt)
    }

    /// Where its agent runs.
    fn place(&self, context: &RunContext) -> AgentPlace {
        let lane = self.lane.as_ref();
        lane.map_or(AgentPlace::Inside, |lane| context.plan.place(&lane.name))
    }

    fn start(&self, input: Option<&Folded>, found: &Found) -> NodeStart {
        NodeStart {
            node: self.id().clone(),
            round: self.round,
            attempt: self.attempt,
            lane: self.lane.as_ref().map(|lane| lane.name.clone()),
            input: input.map(|folded| folded.tree.clone()),
            start: found.tree.clone(),
            place: Some(found.place.clone()),
        }
    }

    /// What a program that works for this node learns from its environment.
    fn environment(&self, context: &RunContext) -> BTreeMap<&'static str, std::ffi::OsString> {
        let directory = &context.directory;
        BTreeMap::from([
            ("MO_NODE_ID", self.id().as_str().into()),
            ("MO_NODE_TYPE", self.kind().name().into()),
            ("MO_NODE_ROLE", self.planned.node.role().into()),
            ("MO_NODE_ROUND", self.round.to_string().into()),
            ("MO_NODE_ATTEMPT", self.attempt.to_string().into()),
            ("MO_OUTPUT_DIR", self.output_directory(context).into()),
            ("MINI_ORK_RUN_ID", context.plan.run.as_str().into()),
            ("MINI_ORK_RUN_DIR", directory.root().into()),
            ("MINI_ORK_PLAN_PATH", directory.plan().into()),
            (
                // Containers and networks that nodes make with it are not each other's.
                "COMPOSE_PROJECT_NAME",
                format!(
                    "{}-{}",
                    context.plan.run.as_str(),
                    NodeSegment::from(self.id()).as_str()
                )
                .into(),
            ),
        ])
    }
}

/// What a node finds where it works.
#[derive(Debug)]
struct Found {
    place: String,
    tree: Option<TreeId>,
}

impl NodeOutcome {
    pub(crate) fn done(summary: impl Into<String>) -> Self {
        Self {
            failure: None,
            summary: summary.into(),
            evidence: Vec::new(),
            output: None,
            changed_files: 0,
            cost_usd: None,
            session: None,
            cost_unknown: false,
            metered: false,
            duration_ms: 0,
            skipped: false,
        }
    }

    pub(crate) fn failed(failure: Failure) -> Self {
        let mut outcome = Self::done(failure.detail.clone());
        outcome.failure = Some(failure);
        outcome
    }
}

fn stopped() -> Failure {
    Failure {
        reason: Reason::Cancelled,
        detail: "the run was stopped before it started".to_owned(),
        remedy: Remedy::None,
    }
}

/// The paths of `changes` as a person reads them.
fn paths(changes: &[Change]) -> Vec<String> {
    changes
        .iter()
        .map(|change| change.path.to_string())
        .collect()
}

/// A few of `items`, and how many more there are.
fn listed(items: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = items
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match items.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The directory that an ancestor's last good attempt left.
fn ancestor_directory(context: &RunContext, ancestor: &Ancestor) -> PathBuf {
    context
        .directory
        .attempt(&ancestor.id, ancestor.round, ancestor.attempt)
}

/// Name of the ref that keeps what a node did in a round.
pub(crate) fn kept_name(node: &NodeId, round: u32) -> String {
    // Names of recipes are valid in refs; anything else is spelled by its segment.
    let plain = node
        .as_str()
        .bytes()
        .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
    if plain {
        format!("{node}.{round}")
    } else {
        format!("{}.{round}", NodeSegment::from(node).as_str())
    }
}
