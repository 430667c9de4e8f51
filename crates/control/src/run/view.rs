//! A run as scripts and people see it: one shape for a run that goes on, one that is published and
//! one that failed.

use std::io;
use std::path::Path;
use std::sync::Arc;

use mini_ork_protocol::{NodeId, RunId};
use serde::{Deserialize, Serialize};

use super::context::RunContext;
use super::directory::{RunDirectory, RunLock, read_json};
use super::event::{Failure, RunEvent};
use super::plan::{AgentPlace, PLAN_FORMAT, Plan};
use super::record::RunRecord;
use super::state::{Phase, RunState};
use super::trees::repository_root;
use crate::lanes::Driver;
use crate::reason::{Reason, Status};
use crate::recipe::NodeKind;
use crate::spending::RunCosts;
use crate::store::{LaneCost, RunRow, StoreError, StoreReader};

/// Version of the JSON object; it grows by new keys, and counts up when one changes its meaning.
const VIEW_FORMAT: u32 = 1;

/// A run with everything that is known of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunView {
    /// Version of this shape.
    pub format: u32,
    /// The run.
    pub run: String,
    /// `running`, `interrupted`, or the terminal status.
    pub status: String,
    /// Why it ended so; absent for a published run.
    pub reason: Option<Reason>,
    /// In one sentence.
    pub detail: Option<String>,
    /// What to do next.
    pub hint: Option<String>,
    /// Name of the recipe.
    pub recipe: String,
    /// Title of the kickoff.
    pub title: String,
    /// Root of the user's repository.
    pub repository: String,
    /// The run directory.
    pub directory: String,
    /// Workspace backend.
    pub backend: String,
    /// The boundary that holds, in one sentence.
    pub isolation: String,
    /// Lanes whose agents ran on this machine, outside of that boundary.
    #[serde(default)]
    pub agents_on_host: Vec<String>,
    /// Lanes whose agents ran outside of it as well, and all that their tools did inside.
    #[serde(default)]
    pub tools_inside: Vec<String>,
    /// Lanes whose agents hold their key themselves (`inject: env`). Of all others it stays outside.
    #[serde(default)]
    pub keys_inside: Vec<String>,
    /// The branch with the work.
    pub branch: Option<String>,
    /// Where the work started.
    pub base_commit: Option<String>,
    /// Its tree.
    pub base_tree: Option<String>,
    /// Tip of the branch.
    pub result_commit: Option<String>,
    /// Its tree; for unpublished work, the tree of the last writer.
    pub result_tree: Option<String>,
    /// Every node of the plan, in its order.
    pub nodes: Vec<NodeView>,
    /// Known costs in US dollars; absent when no lane said what it cost.
    pub cost_usd: Option<f64>,
    /// Whether part of the costs is not known.
    pub cost_unknown: bool,
    /// Where the costs are from; absent when none are on record. Those of nodes that have not ended
    /// are among them.
    #[serde(default)]
    pub costs: Option<RunCosts>,
    /// Refs that keep unpublished work.
    pub kept: Vec<KeptView>,
    /// Collected outputs, relative to the run directory.
    pub artifacts: Vec<String>,
    /// What was in the worktree and is in no tree.
    pub not_carried: Vec<String>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// What a blocked run asks.
    pub questions: Vec<String>,
    /// Milliseconds since the Unix epoch.
    pub started_at_ms: u64,
    /// Milliseconds since the Unix epoch.
    pub ended_at_ms: Option<u64>,
}

/// A node with everything that is known of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeView {
    /// Its name.
    pub node: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `waiting`, `running`, `done`, `skipped`, `failed` or `blocked`.
    pub state: String,
    /// The lane that does it, or did it.
    pub lane: Option<String>,
    /// What its program prints is a transcript of this one; none for what asks no model.
    #[serde(skip)]
    pub driver: Option<Driver>,
    /// Lanes that were asked before it in this round and could not do it.
    #[serde(default)]
    pub instead_of: Vec<String>,
    /// Round of the retry loop, from 1.
    pub round: u32,
    /// Attempt in the round, from 1.
    pub attempt: u32,
    /// Why it failed.
    pub reason: Option<Reason>,
    /// One line.
    pub summary: Option<String>,
    /// What speaks for its verdict.
    pub evidence: Vec<String>,
    /// Files that it changed.
    pub changed_files: Option<u64>,
    /// Files that it published.
    pub published_files: Option<u64>,
    /// The tree after it.
    pub output_tree: Option<String>,
    /// What its last attempt cost in US dollars, as far as that is known.
    pub cost_usd: Option<f64>,
    /// Whether part of that is not known.
    #[serde(default)]
    pub cost_unknown: bool,
    /// When its last attempt began, in milliseconds since the Unix epoch.
    pub started_at_ms: Option<u64>,
    /// Wall-clock time.
    pub duration_ms: Option<u64>,
    /// Directory of its last attempt, relative to the run directory.
    pub directory: Option<String>,
    /// Nodes that have to be done before it.
    pub after: Vec<String>,
}

/// A ref that keeps work.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeptView {
    /// Its full name.
    pub reference: String,
    /// What it points at.
    pub commit: String,
}

impl RunView {
    pub(crate) fn of(
        state: &RunState,
        context: &Arc<RunContext>,
        not_carried: Vec<String>,
        costs: &[LaneCost],
    ) -> Self {
        let facts = Facts {
            repository: repository_root(&context.repository).display().to_string(),
            isolation: context.isolation.clone(),
            started_at_ms: context.started_at_ms,
        };
        let mut view = build(state, &context.directory, facts);
        view.not_carried = not_carried;
        view.take_costs(costs);
        view
    }

    /// The database knows each call, also of nodes that have not ended.
    fn take_costs(&mut self, costs: &[LaneCost]) {
        self.costs = RunCosts::of(costs);
        if let Some(costs) = &self.costs {
            self.cost_usd = costs.total.cost_usd;
            self.cost_unknown = costs.total.cost_unknown;
        }
    }

    /// The terminal status; absent while the run goes on.
    pub fn terminal(&self) -> Option<Status> {
        Status::from_name(&self.status)
    }
}

struct Facts {
    repository: String,
    isolation: String,
    started_at_ms: u64,
}

/// The view of a run that has just ended: what its report was made from.
pub(crate) fn finished(context: &Arc<RunContext>, state: &RunState) -> io::Result<RunView> {
    let mut view: RunView = read_json(&context.directory.verdict())?;
    view.ended_at_ms = Some(super::now_ms());
    debug_assert!(state.closing().is_some());
    Ok(view)
}

/// The view of a run from what it recorded.
pub(crate) fn of_record(state: &RunState, record: &RunRecord, directory: &RunDirectory) -> RunView {
    let facts = Facts {
        repository: record.repository.clone(),
        isolation: record.isolation.clone(),
        started_at_ms: record.started_at_ms,
    };
    build(state, directory, facts)
}

/// Reads everything that is known of the run in `row`. A run that has no terminal status and
/// nobody who drives it is `interrupted`.
pub fn load_view(reader: &StoreReader, row: &RunRow) -> Result<RunView, ViewError> {
    let directory = RunDirectory::at(row.directory.clone());
    let plan: Plan = match read_json(&directory.plan()) {
        Ok(plan) => plan,
        Err(_) => return Ok(view_of_row(row)),
    };
    let record: RunRecord = match read_json(&directory.record()) {
        Ok(record) => record,
        Err(_) => return Ok(view_of_row(row)),
    };
    if plan.format > PLAN_FORMAT {
        return Err(ViewError::TooNew {
            run: row.run.clone(),
        });
    }
    let run = plan.run.clone();
    let events = reader.events(&run, 0).map_err(ViewError::Store)?;
    let journal = events.iter().map(|journaled| &journaled.event);
    let Ok(state) = RunState::replay(Arc::new(plan), journal) else {
        return Ok(view_of_row(row));
    };
    let mut view = of_record(&state, &record, &directory);
    let costs = reader.costs_of_run(&row.run).map_err(ViewError::Store)?;
    view.take_costs(&costs);
    view.ended_at_ms = row.ended_at_ms;
    for journaled in &events {
        if let RunEvent::NodeStarted(start) = &journaled.event
            && let Some(node) = view
                .nodes
                .iter_mut()
                .find(|node| node.node == start.node.as_str())
        {
            node.started_at_ms = Some(journaled.at_ms);
        }
    }
    if state.closing().is_none() {
        let owned = RunLock::owner(&directory).map_err(ViewError::Io)?.is_some();
        if !owned {
            // It may have ended between the two looks.
            if let Some(ended) = ended_since(reader, row).map_err(ViewError::Store)? {
                return load_view(reader, &ended);
            }
            mark_interrupted(&mut view);
        }
    }
    if let Ok(last) = read_json::<RunView>(&directory.verdict()) {
        view.not_carried = last.not_carried;
        view.questions = last.questions;
    }
    Ok(view)
}

/// In one word where the run in `row` stands: its terminal status, `running` while somebody drives
/// it, else `interrupted`.
pub fn state_of(reader: &StoreReader, row: &RunRow) -> Result<&'static str, ViewError> {
    if let Some(status) = row.status {
        return Ok(status.name());
    }
    let directory = RunDirectory::at(row.directory.clone());
    if RunLock::owner(&directory).map_err(ViewError::Io)?.is_some() {
        return Ok("running");
    }
    let ended = ended_since(reader, row).map_err(ViewError::Store)?;
    Ok(ended
        .and_then(|row| row.status)
        .map_or("interrupted", Status::name))
}

/// The row of a run that had no terminal status in `row` and has one now.
fn ended_since(reader: &StoreReader, row: &RunRow) -> Result<Option<RunRow>, StoreError> {
    if row.status.is_some() {
        return Ok(None);
    }
    let Ok(run) = RunId::parse(&row.run) else {
        return Ok(None);
    };
    Ok(reader.run(&run)?.filter(|now| now.status.is_some()))
}

/// Why a run cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The state database refused.
    #[error("cannot read the state of the run")]
    Store(#[source] StoreError),
    /// A file of the run cannot be read.
    #[error("cannot read a file of the run")]
    Io(#[source] io::Error),
    /// A later mini-ork made it.
    #[error("run {run} was made by a later mini-ork")]
    TooNew {
        /// The run.
        run: String,
    },
}

fn mark_interrupted(view: &mut RunView) {
    "interrupted".clone_into(&mut view.status);
    view.detail = Some("its control plane died".to_owned());
    view.hint = Some(format!(
        "`mini-ork recover {}` continues from the last good node",
        view.run
    ));
}

fn build(state: &RunState, directory: &RunDirectory, facts: Facts) -> RunView {
    let plan = state.plan();
    let closing = state.closing();
    let branch = state
        .publication()
        .and_then(|publication| publication.branch.as_ref());
    let last_output = state
        .contributions(None)
        .last()
        .map(|contribution| contribution.output.to_string());
    let reason = closing.and_then(|closing| closing.reason);
    RunView {
        format: VIEW_FORMAT,
        run: plan.run.to_string(),
        status: closing.map_or_else(
            || "running".to_owned(),
            |closing| closing.status.name().to_owned(),
        ),
        reason,
        detail: closing.map(|closing| closing.detail.clone()),
        hint: reason.map(|reason| reason.hint(plan.run.as_str())),
        recipe: plan.recipe.clone(),
        title: plan.title.clone(),
        repository: facts.repository,
        directory: directory.root().display().to_string(),
        backend: plan.backend.clone(),
        isolation: facts.isolation,
        agents_on_host: plan.agents_at(AgentPlace::Host),
        tools_inside: plan.agents_at(AgentPlace::ToolsInside),
        keys_inside: plan.keys_inside(),
        branch: branch.map(|branch| branch.name.clone()),
        base_commit: state.base().map(|base| base.commit.to_string()),
        base_tree: state.base().map(|base| base.tree.to_string()),
        result_commit: branch.map(|branch| branch.commit.to_string()),
        result_tree: branch.map(|branch| branch.tree.to_string()).or(last_output),
        nodes: nodes(state, directory),
        cost_usd: known_cost(state),
        cost_unknown: state.cost_unknown(),
        costs: None,
        kept: state
            .kept()
            .iter()
            .map(|(reference, commit)| KeptView {
                reference: reference.clone(),
                commit: commit.to_string(),
            })
            .collect(),
        artifacts: state
            .publication()
            .map(|publication| publication.artifacts.clone())
            .unwrap_or_default(),
        not_carried: Vec::new(),
        warnings: state.warnings().to_vec(),
        questions: Vec::new(),
        started_at_ms: facts.started_at_ms,
        ended_at_ms: None,
    }
}

/// Unknown is not zero: without any known part there is no sum.
fn known_cost(state: &RunState) -> Option<f64> {
    (state.spent_usd() > 0.0 || !state.cost_unknown()).then(|| state.spent_usd())
}

fn nodes(state: &RunState, directory: &RunDirectory) -> Vec<NodeView> {
    state
        .nodes()
        .map(|(planned, progress)| {
            let id: &NodeId = &planned.node.id;
            let outcome = progress.outcome.as_ref();
            let failure: Option<&Failure> = outcome.and_then(|outcome| outcome.failure.as_ref());
            let attempt_directory = directory.attempt(id, progress.round, progress.attempt);
            let state_name = match progress.phase {
                Phase::Waiting if state.is_blocked(id) => "blocked",
                Phase::Waiting => "waiting",
                Phase::Running => "running",
                Phase::Done if outcome.is_some_and(|outcome| outcome.skipped) => "skipped",
                Phase::Done => "done",
                Phase::Failed => "failed",
            };
            NodeView {
                node: id.to_string(),
                kind: planned.node.kind.name().to_owned(),
                state: state_name.to_owned(),
                lane: progress.lane_name(planned).map(ToOwned::to_owned),
                driver: state.plan().driver(id, progress.lane_name(planned)),
                instead_of: planned
                    .lanes()
                    .take(progress.lane)
                    .map(|lane| lane.name.clone())
                    .collect(),
                round: progress.round,
                attempt: progress.attempt,
                reason: failure.map(|failure| failure.reason),
                summary: outcome.map(|outcome| outcome.summary.clone()),
                evidence: outcome
                    .map(|outcome| outcome.evidence.clone())
                    .unwrap_or_default(),
                changed_files: outcome
                    .filter(|_| planned.node.kind.writes())
                    .map(|outcome| outcome.changed_files),
                published_files: outcome
                    .filter(|_| planned.node.kind == NodeKind::Publisher)
                    .map(|outcome| outcome.changed_files),
                output_tree: outcome
                    .and_then(|outcome| outcome.output.as_ref())
                    .map(ToString::to_string),
                cost_usd: outcome.and_then(|outcome| outcome.cost_usd),
                cost_unknown: outcome.is_some_and(|outcome| outcome.cost_unknown),
                started_at_ms: None,
                duration_ms: outcome.map(|outcome| outcome.duration_ms),
                directory: relative(directory.root(), &attempt_directory),
                after: state
                    .graph()
                    .parents(id)
                    .into_iter()
                    .map(ToString::to_string)
                    .collect(),
            }
        })
        .collect()
}

fn relative(root: &Path, path: &Path) -> Option<String> {
    Some(path.strip_prefix(root).ok()?.display().to_string())
}

/// What the row alone tells of a run whose directory cannot be read.
fn view_of_row(row: &RunRow) -> RunView {
    let mut view = RunView {
        format: VIEW_FORMAT,
        run: row.run.clone(),
        status: row.status.map_or("interrupted", Status::name).to_owned(),
        reason: None,
        detail: row.detail.clone(),
        hint: None,
        recipe: row.recipe.clone(),
        title: row.title.clone(),
        repository: row.repository.display().to_string(),
        directory: row.directory.display().to_string(),
        backend: row.backend.clone(),
        isolation: String::new(),
        agents_on_host: Vec::new(),
        tools_inside: Vec::new(),
        keys_inside: Vec::new(),
        branch: row.branch.clone(),
        base_commit: None,
        base_tree: None,
        result_commit: None,
        result_tree: None,
        nodes: Vec::new(),
        cost_usd: (row.cost_usd > 0.0 || !row.cost_unknown).then_some(row.cost_usd),
        cost_unknown: row.cost_unknown,
        costs: None,
        kept: Vec::new(),
        artifacts: Vec::new(),
        not_carried: Vec::new(),
        warnings: Vec::new(),
        questions: Vec::new(),
        started_at_ms: row.started_at_ms,
        ended_at_ms: row.ended_at_ms,
    };
    view.reason = Reason::ALL
        .into_iter()
        .find(|reason| row.reason.as_deref() == Some(reason.name()));
    if row.status.is_none() {
        mark_interrupted(&mut view);
        if !row.directory.is_dir() {
            view.detail = Some("its directory is gone".to_owned());
            view.hint = Some("`mini-ork clean` closes it".to_owned());
        }
    }
    view
}
