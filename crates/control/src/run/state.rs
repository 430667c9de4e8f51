//! The state of a run, rebuilt from its events, and what to do next. Pure: no IO, no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mini_ork_node::git::{CommitId, TreeId};
use mini_ork_protocol::NodeId;

use super::event::{Base, Closing, NodeOutcome, NodeStart, Publication, Remedy, RunEvent};
use super::plan::{Plan, PlannedNode};
use crate::reason::Reason;
use crate::recipe::{Graph, GraphError, NodeKind};
use crate::store::NodeCost;

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It has not started in this round.
    Waiting,
    /// It started and has not ended.
    Running,
    /// It did what it should, or its failure decides nothing.
    Done,
    /// It failed.
    Failed,
}

/// What is known of one node.
#[derive(Debug, Clone)]
pub struct NodeProgress {
    /// Where it stands.
    pub phase: Phase,
    /// Its round, from 1.
    pub round: u32,
    /// Its attempt in the round, from 1; the next one while it waits.
    pub attempt: u32,
    /// Which of its lanes does it, from 0.
    pub lane: usize,
    /// How many attempts of the round that lane has begun, the next one included while it waits.
    pub tries: u32,
    /// Its last start.
    pub start: Option<NodeStart>,
    /// Its last end.
    pub outcome: Option<NodeOutcome>,
    /// What earlier verdicts said of its work.
    pub evidence: Option<String>,
    /// Its last result of an earlier round, on which a new round builds.
    pub previous: Option<Contribution>,
    /// The lane that did an earlier round, with what it calls its memory of it.
    pub session: Option<(String, String)>,
}

/// What a writer did: the change from one tree to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contribution {
    /// The writer.
    pub node: NodeId,
    /// The merged work before it.
    pub input: TreeId,
    /// Its result.
    pub output: TreeId,
    /// It was given the conflicts of the work before it and left none.
    pub resolves: bool,
}

/// The state of a run.
#[derive(Debug, Clone)]
pub struct RunState {
    pub(super) plan: Arc<Plan>,
    pub(super) graph: Graph,
    pub(super) nodes: BTreeMap<NodeId, NodeProgress>,
    pub(super) rounds_used: BTreeMap<(NodeId, NodeId), u32>,
    pub(super) base: Option<Base>,
    pub(super) stop: Option<(Reason, String)>,
    pub(super) spent_usd: f64,
    pub(super) cost_unknown: bool,
    pub(super) warnings: Vec<String>,
    pub(super) kept: BTreeMap<String, CommitId>,
    pub(super) publication: Option<Publication>,
    pub(super) closing: Option<Closing>,
}

impl RunState {
    /// The state before the first event.
    pub fn new(plan: Arc<Plan>) -> Result<Self, GraphError> {
        let graph = plan.graph()?;
        let nodes = plan
            .nodes
            .iter()
            .map(|planned| (planned.node.id.clone(), NodeProgress::new()))
            .collect();
        Ok(Self {
            plan,
            graph,
            nodes,
            rounds_used: BTreeMap::new(),
            base: None,
            stop: None,
            spent_usd: 0.0,
            cost_unknown: false,
            warnings: Vec::new(),
            kept: BTreeMap::new(),
            publication: None,
            closing: None,
        })
    }

    /// The state after `events`.
    pub fn replay<'a>(
        plan: Arc<Plan>,
        events: impl IntoIterator<Item = &'a RunEvent>,
    ) -> Result<Self, GraphError> {
        let mut state = Self::new(plan)?;
        for event in events {
            state.apply(event);
        }
        Ok(state)
    }

    /// Takes `event` into the state. Total: an event that does not fit (a node that the plan does
    /// not have) changes nothing, so that a damaged journal cannot stop a reader.
    pub fn apply(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Opened { base } => self.base.clone_from(base),
            RunEvent::NodeStarted(start) => {
                if let Some(progress) = self.nodes.get_mut(&start.node) {
                    progress.phase = Phase::Running;
                    progress.round = start.round;
                    progress.attempt = start.attempt;
                    progress.start = Some(start.clone());
                    progress.outcome = None;
                }
            }
            RunEvent::NodeEnded {
                node,
                round,
                attempt,
                outcome,
            } => {
                self.end_node(node, *round, *attempt, outcome);
            }
            RunEvent::RoundStarted {
                from,
                target,
                evidence,
            } => {
                for source in from {
                    *self
                        .rounds_used
                        .entry((source.clone(), target.clone()))
                        .or_default() += 1;
                }
                self.restart_from(target, Some(evidence));
            }
            RunEvent::StopRequested { reason, detail } => {
                self.stop.get_or_insert_with(|| (*reason, detail.clone()));
            }
            RunEvent::Warned { text } => self.warnings.push(text.clone()),
            RunEvent::Published(publication) => self.publication = Some(publication.clone()),
            RunEvent::Kept { reference, commit } => {
                self.kept.insert(reference.clone(), commit.clone());
            }
            RunEvent::Reopened => self.reopen(),
            RunEvent::Closed(closing) => self.closing = Some(closing.clone()),
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The plan's graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What is known of `node`.
    pub fn node(&self, node: &NodeId) -> Option<&NodeProgress> {
        self.nodes.get(node)
    }

    /// Every node of the plan with what is known of it, in the order of the plan.
    pub fn nodes(&self) -> impl Iterator<Item = (&PlannedNode, &NodeProgress)> {
        self.plan
            .nodes
            .iter()
            .filter_map(|planned| Some((planned, self.nodes.get(&planned.node.id)?)))
    }

    /// Nodes that started and have not ended, in the order of the plan.
    pub fn running(&self) -> Vec<NodeId> {
        self.nodes()
            .filter(|(_, progress)| progress.phase == Phase::Running)
            .map(|(planned, _)| planned.node.id.clone())
            .collect()
    }

    /// Whether `node` can no longer run because something before it failed.
    pub fn is_blocked(&self, node: &NodeId) -> bool {
        self.nodes
            .get(node)
            .is_some_and(|progress| progress.phase == Phase::Waiting)
            && self.graph.ancestors(node).into_iter().any(|ancestor| {
                self.nodes
                    .get(ancestor)
                    .is_some_and(|progress| progress.phase == Phase::Failed)
            })
    }

    /// What the writers before `node` did (all writers when absent), in the order of the graph.
    pub fn contributions(&self, before: Option<&NodeId>) -> Vec<Contribution> {
        self.nodes()
            .filter(|(planned, progress)| {
                planned.node.kind.writes()
                    && progress.phase == Phase::Done
                    && before.is_none_or(|node| self.graph.is_ancestor(&planned.node.id, node))
            })
            .filter_map(|(planned, progress)| contribution(planned, progress))
            .collect()
    }

    /// Where the work starts.
    pub fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    /// Known costs so far in US dollars.
    pub fn spent_usd(&self) -> f64 {
        self.spent_usd
    }

    /// Whether some lane did not say what it cost.
    pub fn cost_unknown(&self) -> bool {
        self.cost_unknown
    }

    /// What the user should know.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Refs that keep unpublished work.
    pub fn kept(&self) -> &BTreeMap<String, CommitId> {
        &self.kept
    }

    /// What was published.
    pub fn publication(&self) -> Option<&Publication> {
        self.publication.as_ref()
    }

    /// The terminal status, when there is one.
    pub fn closing(&self) -> Option<&Closing> {
        self.closing.as_ref()
    }

    /// Why no further node may start, when that is so.
    pub fn stop(&self) -> Option<&(Reason, String)> {
        self.stop.as_ref()
    }

    /// What `event`, which comes next, adds to the costs besides calls through gateways: something
    /// only for the end of a node whose lane was asked and is not metered.
    pub(super) fn cost_of(&self, event: &RunEvent) -> Option<NodeCost> {
        let RunEvent::NodeEnded {
            node,
            round,
            attempt,
            outcome,
        } = event
        else {
            return None;
        };
        let planned = self.plan.node(node)?;
        let progress = self.nodes.get(node)?;
        let asked = lane_was_asked(planned, progress, *round, *attempt, outcome);
        (!outcome.metered && (asked || outcome.cost_usd.is_some())).then(|| NodeCost {
            node: node.clone(),
            round: *round,
            attempt: *attempt,
            lane: progress.lane_name(planned).unwrap_or_default().to_owned(),
            cost_usd: outcome.cost_usd,
        })
    }

    fn end_node(&mut self, node: &NodeId, round: u32, attempt: u32, outcome: &NodeOutcome) {
        let Some(planned) = self.plan.node(node).cloned() else {
            return;
        };
        let Some(progress) = self.nodes.get_mut(node) else {
            return;
        };
        let stopped = self.stop.is_some();
        let asked = lane_was_asked(&planned, progress, round, attempt, outcome);
        progress.round = round;
        progress.attempt = attempt;
        progress.outcome = Some(outcome.clone());
        progress.phase = match &outcome.failure {
            None => Phase::Done,
            Some(failure)
                if failure.remedy == Remedy::Lane
                    && progress.lane < planned.fallbacks.len()
                    && !stopped =>
            {
                progress.attempt = attempt + 1;
                progress.lane += 1;
                progress.tries = 1;
                Phase::Waiting
            }
            // An eval informs and never decides.
            Some(_) if planned.node.kind == NodeKind::Eval => Phase::Done,
            Some(failure)
                if matches!(failure.remedy, Remedy::Attempt | Remedy::Lane)
                    && progress.tries <= planned.node.retries
                    && !stopped =>
            {
                progress.attempt = attempt + 1;
                progress.tries += 1;
                if failure.reason == Reason::ArtifactContract {
                    progress.evidence = Some(failure.detail.clone());
                }
                Phase::Waiting
            }
            Some(_) => Phase::Failed,
        };
        self.spent_usd += outcome.cost_usd.unwrap_or_default();
        let silent = asked && !outcome.metered && outcome.cost_usd.is_none();
        self.cost_unknown |= outcome.cost_unknown || silent;
    }

    fn restart_from(&mut self, target: &NodeId, evidence: Option<&String>) {
        for node in self.affected(target) {
            let contribution = self
                .plan
                .node(&node)
                .zip(self.nodes.get(&node))
                .and_then(|(planned, progress)| contribution(planned, progress));
            let Some(progress) = self.nodes.get_mut(&node) else {
                continue;
            };
            if progress.phase == Phase::Waiting && progress.outcome.is_none() {
                continue;
            }
            if contribution.is_some() {
                progress.previous = contribution;
            }
            progress.remember();
            progress.phase = Phase::Waiting;
            progress.round += 1;
            progress.attempt = 1;
            progress.lane = 0;
            progress.tries = 1;
            progress.outcome = None;
            progress.start = None;
        }
        if let (Some(evidence), Some(progress)) = (evidence, self.nodes.get_mut(target)) {
            progress.evidence = Some(evidence.clone());
        }
    }

    /// What runs again when `target` does.
    pub(super) fn affected(&self, target: &NodeId) -> BTreeSet<NodeId> {
        std::iter::once(target)
            .chain(self.graph.descendants(target))
            .cloned()
            .collect()
    }

    fn reopen(&mut self) {
        self.closing = None;
        self.stop = None;
        self.publication = None;
        self.rounds_used.clear();
        let failed: Vec<NodeId> = self
            .nodes()
            .filter(|(_, progress)| matches!(progress.phase, Phase::Failed | Phase::Running))
            .map(|(planned, _)| planned.node.id.clone())
            .collect();
        for node in failed {
            let loops = self
                .nodes
                .get(&node)
                .and_then(|progress| progress.outcome.as_ref())
                .and_then(|outcome| outcome.failure.as_ref())
                .is_some_and(|failure| failure.remedy == Remedy::Round)
                && self.plan.retry_targets(&node).next().is_some();
            // A verdict that may go back is left standing: the next decision starts its round.
            if !loops {
                self.restart_from(&node, None);
            }
        }
        let rollbacks: Vec<NodeId> = self
            .nodes()
            .filter(|(planned, _)| planned.node.kind == NodeKind::Rollback)
            .map(|(planned, _)| planned.node.id.clone())
            .collect();
        for node in rollbacks {
            self.restart_from(&node, None);
        }
    }
}

impl NodeProgress {
    fn new() -> Self {
        Self {
            phase: Phase::Waiting,
            round: 1,
            attempt: 1,
            lane: 0,
            tries: 1,
            start: None,
            outcome: None,
            evidence: None,
            previous: None,
            session: None,
        }
    }

    /// The lane of its last attempt; before the first, the one that will be asked.
    pub fn lane_name<'a>(&'a self, planned: &'a PlannedNode) -> Option<&'a str> {
        let started = self.start.as_ref().and_then(|start| start.lane.as_deref());
        started.or_else(|| Some(planned.lanes().nth(self.lane)?.name.as_str()))
    }

    /// Keeps the session of the round that is over.
    fn remember(&mut self) {
        let lane = self.start.as_ref().and_then(|start| start.lane.clone());
        let session = self
            .outcome
            .as_ref()
            .and_then(|outcome| outcome.session.clone());
        if let Some(session) = lane.zip(session) {
            self.session = Some(session);
        }
    }
}

fn contribution(planned: &PlannedNode, progress: &NodeProgress) -> Option<Contribution> {
    let start = progress.start.as_ref()?;
    let outcome = progress.outcome.as_ref()?;
    Some(Contribution {
        node: planned.node.id.clone(),
        input: start.input.clone()?,
        output: outcome.output.clone()?,
        resolves: planned.node.accepts_conflicts,
    })
}

/// Whether the attempt that ended so had got as far as its lane. One that was refused before, for
/// want of money for example, has cost nothing, which is not the same as nobody knows what.
fn lane_was_asked(
    planned: &PlannedNode,
    progress: &NodeProgress,
    round: u32,
    attempt: u32,
    outcome: &NodeOutcome,
) -> bool {
    let started = progress
        .start
        .as_ref()
        .is_some_and(|start| (start.round, start.attempt) == (round, attempt));
    planned.node.kind.uses_lane() && started && !outcome.skipped
}
