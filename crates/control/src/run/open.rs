//! The beginning of a run: everything is checked before anything is made, and what is made is
//! complete before the first node may start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mini_ork_node::git::{ControlGit, Repository};
use mini_ork_node::supervise::Supervisor;
use mini_ork_node::sys;
use mini_ork_node::workspace::{LocalWorkspace, Workspace};
use mini_ork_protocol::RunId;
use tokio::sync::{Mutex, watch};

use super::clock::now_ms;
use super::context::{Execution, RunContext, StopLevel};
use super::directory::{
    RunDirectory, RunLock, make_directory, make_runs, write_atomically, write_json,
};
use super::engine::{Engine, RunObserver};
use super::event::{Base, Closing, RunEvent};
use super::failure::WorkError;
use super::fault::FaultPoint;
use super::look::opening_notes;
use super::models::{MissingKeys, ModelSources, Models};
use super::plan::{AgentPlace, Limits, PLAN_FORMAT, Plan, PlannedNode, Scope};
use super::record::{RECORD_FORMAT, RunRecord, SettingRecord, path_forms};
use super::state::RunState;
use super::trees::{Trees, blocking, repository_root};
use super::unopened::{block, close_unopened};
use super::{RunError, RunView};
use crate::kickoff::{Kickoff, Question};
use crate::lanes::{LaneConfig, ResolveError};
use crate::reason::{Reason, Status};
use crate::recipe::{Graph, GraphError, Recipe};
use crate::reserve;
use crate::store::{NewRun, RunSummaryUpdate, Store};

/// Without `0`, `1`, `i`, `l`, `o`, which people mistake for each other.
const ID_ALPHABET: &[u8; 31] = b"23456789abcdefghjkmnpqrstuvwxyz";
const ID_LENGTH: usize = 6;

/// Everything that decides a run, resolved by the caller.
#[derive(Debug)]
pub struct RunRequest {
    /// Home of mini-ork.
    pub home: PathBuf,
    /// The user's repository.
    pub repository: Repository,
    /// What to do.
    pub recipe: Recipe,
    /// On what, with the user's answers already in it.
    pub kickoff: Kickoff,
    /// Where the kickoff was read from.
    pub kickoff_path: PathBuf,
    /// What is still open; such a run ends `blocked` at once.
    pub questions: Vec<Question>,
    /// The user's answers by question id, for the record; the kickoff already holds them.
    pub answers: BTreeMap<String, String>,
    /// The lanes there are.
    pub lanes: LaneConfig,
    /// `--lane` choices: role or node name → lane, or several with commas between them.
    pub lane_overrides: BTreeMap<String, String>,
    /// Bounds.
    pub limits: Limits,
    /// Most US dollars that all runs of the home together may spend in a day. No part of the plan:
    /// it is the home's, and holds as it is when a node is to start.
    pub daily_budget_usd: f64,
    /// Where programs run.
    pub workspace: Arc<dyn Workspace>,
    /// How much of an agent runs there.
    pub scope: Scope,
    /// How programs run.
    pub execution: Execution,
    /// The user's own ignore rules outside the repository, for what counts as a change.
    pub excludes: Vec<u8>,
    /// Settings for the record.
    pub settings: Vec<SettingRecord>,
    /// For tests.
    pub fault: FaultPoint,
}

/// The plan of `request` as run `run`. Pure but for reading the recipe that is already loaded.
pub fn make_plan(request: &RunRequest, run: RunId) -> Result<Plan, PlanError> {
    let recipe = &request.recipe;
    let graph = Graph::new(&recipe.nodes, &recipe.edges).map_err(PlanError::Graph)?;
    let mut nodes = Vec::with_capacity(recipe.nodes.len());
    for id in graph.order() {
        let Some(node) = recipe.nodes.iter().find(|node| &node.id == id) else {
            continue;
        };
        let lanes = if node.kind.uses_lane() {
            let lanes = &request.lanes;
            lanes
                .resolve(node.id.as_str(), node.role(), &request.lane_overrides)
                .map_err(PlanError::Lane)?
        } else {
            Vec::new()
        };
        let mut lanes = lanes.into_iter().cloned();
        nodes.push(PlannedNode {
            node: node.clone(),
            lane: lanes.next(),
            fallbacks: lanes.collect(),
        });
    }
    let lanes = nodes.iter().flat_map(PlannedNode::lanes);
    let agents = lanes.map(|lane| (lane.name.clone(), request.scope.place(lane)));
    let agents = agents.filter(|(_, place)| *place != AgentPlace::Inside);
    Ok(Plan {
        format: PLAN_FORMAT,
        agents: agents.collect(),
        run,
        recipe: recipe.name.clone(),
        recipe_digest: recipe.digest.clone(),
        title: request.kickoff.title.clone(),
        backend: request.workspace.backend().to_owned(),
        nodes,
        edges: recipe.edges.clone(),
        contract: recipe.contract.clone(),
        serial: recipe.serial,
        limits: request.limits.clone(),
    })
}

/// Opens a run and drives it to its terminal status.
///
/// Nothing is made when an error is returned before the run has its directory; afterwards the run
/// is on record and can be recovered.
pub async fn start(
    request: RunRequest,
    sources: ModelSources,
    store: &Store,
    observer: &mut dyn RunObserver,
    asked: watch::Receiver<StopLevel>,
) -> Result<RunView, StartError> {
    let (run, directory) = make_run_directory(&request.home).map_err(StartError::Run)?;
    let plan = match make_plan(&request, run) {
        Ok(plan) => Arc::new(plan),
        Err(error) => {
            // Nothing is in it yet.
            let _ = fs_err::remove_dir(directory.root());
            return Err(StartError::Plan(error));
        }
    };
    let models = match Models::resolve(sources, &plan).await {
        Ok(models) => models,
        Err(missing) => {
            let _ = fs_err::remove_dir(directory.root());
            return Err(StartError::Keys(missing));
        }
    };
    let run = plan.run.clone();
    drive_new(request, models, plan, directory, store, observer, asked)
        .await
        .map_err(|error| StartError::Broken { run, error })
}

/// Why a run did not come to a terminal status.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no plan; nothing was made.
    #[error(transparent)]
    Plan(PlanError),
    /// Keys are missing; nothing was made.
    #[error(transparent)]
    Keys(MissingKeys),
    /// The run could not be given a directory; nothing was made.
    #[error(transparent)]
    Run(RunError),
    /// The run is on record and can be recovered.
    #[error("run {run} broke off")]
    Broken {
        /// The run.
        run: RunId,
        /// Why.
        #[source]
        error: RunError,
    },
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A node has no lane.
    #[error(transparent)]
    Lane(ResolveError),
    /// The recipe's graph cannot be carried out.
    #[error(transparent)]
    Graph(GraphError),
}

async fn drive_new(
    request: RunRequest,
    models: Models,
    plan: Arc<Plan>,
    directory: RunDirectory,
    store: &Store,
    observer: &mut dyn RunObserver,
    asked: watch::Receiver<StopLevel>,
) -> Result<RunView, RunError> {
    let _lock = RunLock::take(&directory).map_err(RunError::Lock)?;
    request.fault.hit("directory-made");
    let base = plan.mutates().then(|| Base {
        commit: request.repository.head.clone(),
        tree: request.repository.head_tree.clone(),
    });
    let (repository, repository_bytes) = path_forms(repository_root(&request.repository));
    let record = RunRecord {
        format: RECORD_FORMAT,
        run: plan.run.clone(),
        started_at_ms: now_ms(),
        repository,
        repository_bytes,
        kickoff: request.kickoff_path.display().to_string(),
        base,
        isolation: request.workspace.isolation(),
        agents: plan.agents.clone(),
        questions: request.questions.clone(),
        settings: request.settings.clone(),
    };
    write_files(&directory, &request, &plan, &record).map_err(RunError::Io)?;
    request.fault.hit("plan-written");
    store
        .add_run(NewRun {
            run: plan.run.clone(),
            recipe: plan.recipe.clone(),
            title: plan.title.clone(),
            repository: repository_root(&request.repository).to_owned(),
            directory: directory.root().to_owned(),
            backend: plan.backend.clone(),
            started_at_ms: record.started_at_ms,
        })
        .await
        .map_err(RunError::Store)?;
    request.fault.hit("run-recorded");
    let pieces = Pieces {
        plan,
        directory,
        record,
        repository: request.repository,
        workspace: request.workspace,
        kickoff: request.kickoff,
        execution: request.execution,
        models,
        excludes: request.excludes,
        daily_budget_usd: request.daily_budget_usd,
        fault: request.fault,
        store: store.clone(),
    };
    if pieces.record.questions.is_empty() {
        drive(pieces, &[], observer, asked).await
    } else {
        block(pieces, observer).await
    }
}

/// What an opened or reopened run consists of.
pub(super) struct Pieces {
    pub(super) plan: Arc<Plan>,
    pub(super) directory: RunDirectory,
    pub(super) record: RunRecord,
    pub(super) repository: Repository,
    pub(super) workspace: Arc<dyn Workspace>,
    pub(super) kickoff: Kickoff,
    pub(super) execution: Execution,
    pub(super) models: Models,
    pub(super) excludes: Vec<u8>,
    pub(super) daily_budget_usd: f64,
    pub(super) fault: FaultPoint,
    pub(super) store: Store,
}

/// Drives a run whose journal holds `events`.
pub(super) async fn drive(
    mut pieces: Pieces,
    events: &[RunEvent],
    observer: &mut dyn RunObserver,
    asked: watch::Receiver<StopLevel>,
) -> Result<RunView, RunError> {
    let mut state = replay(&pieces.plan, events)?;
    let opened = events
        .iter()
        .any(|event| matches!(event, RunEvent::Opened { .. }));
    let trees = open_trees(&pieces, opened).await?;
    let drive = match super::drive::up(&mut pieces).await {
        Ok(drive) => drive,
        Err(error) if opened => return Err(error),
        Err(error) => {
            close_unopened(&pieces, &error, &mut state, observer).await?;
            return Err(error);
        }
    };
    if !opened {
        let base = pieces.record.base.clone();
        let event = RunEvent::Opened { base };
        let summary = RunSummaryUpdate::default();
        append(&pieces, &mut state, event, summary, observer).await?;
        pieces.fault.hit("opened");
    }
    let notes = match &trees {
        Some(trees) if !opened => {
            let (git, repository) = (trees.git(), pieces.repository.clone());
            Some(tokio::task::spawn_blocking(move || {
                opening_notes(&git, &repository)
            }))
        }
        _ => None,
    };
    let level = *asked.borrow();
    let (told, stop) = watch::channel(level);
    let context = Arc::new(RunContext {
        plan: pieces.plan,
        directory: pieces.directory,
        repository: pieces.repository,
        trees,
        isolation: pieces.record.isolation.clone(),
        outside: LocalWorkspace::new(Supervisor::new(pieces.execution.program.clone())),
        workspace: pieces.workspace,
        kickoff: pieces.kickoff,
        execution: pieces.execution,
        models: pieces.models,
        store: pieces.store,
        stop,
        started_at_ms: pieces.record.started_at_ms,
        daily_budget_usd: pieces.daily_budget_usd,
        drive,
        fault: pieces.fault,
        baseline: Mutex::new(()),
    });
    let engine = Engine::new(Arc::clone(&context), observer, state, asked, told, notes)?;
    let state = engine.drive().await?;
    super::view::finished(&context, &state).map_err(RunError::Io)
}

/// The run's own git directory and worktrees; made new when the run was not opened before, since
/// what an earlier attempt left there may be half.
async fn open_trees(pieces: &Pieces, opened: bool) -> Result<Option<Trees>, RunError> {
    let Some(mut base) = pieces.record.base.clone() else {
        return Ok(None);
    };
    let path = pieces.directory.control_git();
    let repository = pieces.repository.clone();
    let excludes = pieces.excludes.clone();
    let (git, base) = blocking(move || -> Result<_, WorkError> {
        let git = if opened && path.is_dir() {
            ControlGit::open(&repository.git, &path)?
        } else {
            sys::remove_tree(&path)?;
            ControlGit::create(&path, &repository, &excludes)?
        };
        base.tree = git.expanded(&base.tree)?;
        Ok((git, base))
    })
    .await
    .map_err(RunError::Work)?;
    let repository = pieces.repository.clone();
    let directory = pieces.directory.clone();
    Ok(Some(Trees::new(
        git,
        repository,
        directory,
        &pieces.plan.run,
        base,
    )))
}

pub(super) async fn append(
    pieces: &Pieces,
    state: &mut RunState,
    event: RunEvent,
    summary: RunSummaryUpdate,
    observer: &mut dyn RunObserver,
) -> Result<(), RunError> {
    let appended = pieces
        .store
        .append(&pieces.plan.run, now_ms(), &event, summary);
    appended.await.map_err(RunError::Store)?;
    state.apply(&event);
    observer.observe(&event, state, pieces.directory.root());
    Ok(())
}

/// Refuses to begin a run where there is no room for it. Makes nothing, so that it can be asked
/// before anything of a home is made.
pub fn require_room(home: &Path) -> Result<(), RunError> {
    let existing = home
        .ancestors()
        .find(|directory| directory.is_dir())
        .unwrap_or(home);
    let free = sys::disk_free(existing).map_err(RunError::Io)?;
    if !free.has_room() {
        return Err(RunError::DiskLow {
            path: existing.to_owned(),
            free,
        });
    }
    Ok(())
}

fn make_run_directory(home: &Path) -> Result<(RunId, RunDirectory), RunError> {
    require_room(home)?;
    make_runs(home).map_err(RunError::Io)?;
    // Only a full disk misses it.
    drop(reserve::hold_room(home));
    loop {
        let run = random_run_id().map_err(RunError::Io)?;
        let directory = RunDirectory::of(home, &run);
        match directory.create() {
            Ok(()) => return Ok((run, directory)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(RunError::Io(error)),
        }
    }
}

fn random_run_id() -> std::io::Result<RunId> {
    let random = sys::random_bytes::<16>()?;
    let mut number = u128::from_le_bytes(random);
    let text: String = (0..ID_LENGTH)
        .map(|_| {
            let digit = (number % ID_ALPHABET.len() as u128) as usize;
            number /= ID_ALPHABET.len() as u128;
            ID_ALPHABET.get(digit).copied().map_or('x', char::from)
        })
        .collect();
    RunId::parse(&text).map_err(std::io::Error::other)
}

fn write_files(
    directory: &RunDirectory,
    request: &RunRequest,
    plan: &Plan,
    record: &RunRecord,
) -> std::io::Result<()> {
    let recipe = directory.recipe();
    make_directory(&recipe)?;
    for (name, bytes) in &request.recipe.files {
        let path = recipe.join(name);
        if let Some(parent) = path.parent() {
            make_directory(parent)?;
        }
        write_atomically(&path, bytes)?;
    }
    write_atomically(&directory.kickoff(), request.kickoff.text.as_bytes())?;
    write_json(&directory.answers(), &request.answers)?;
    write_json(&directory.record(), record)?;
    // Last: a directory with a plan is a whole one.
    write_json(&directory.plan(), plan)
}

pub(super) fn replay(plan: &Arc<Plan>, events: &[RunEvent]) -> Result<RunState, RunError> {
    RunState::replay(Arc::clone(plan), events).map_err(|error| RunError::Damaged {
        run: plan.run.clone(),
        problem: error.to_string(),
    })
}

/// The end of a run of which nothing is left to drive.
pub(super) fn lost(detail: String) -> Closing {
    Closing {
        status: Status::Failed,
        reason: Some(Reason::InfraLost),
        detail,
        node: None,
    }
}
