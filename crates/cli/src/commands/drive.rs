//! Driving a run from the terminal: signals, progress, and the exit status of its end.

use std::future::Future;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use mini_ork_control::reason::{Reason, Status};
use mini_ork_control::run::{
    Execution, FaultPoint, MissingKeys, RunDirectory, RunError, RunObserver, RunRecord, RunView,
    StopLevel, load_view,
};
use mini_ork_node::egress::NetworkPolicy;
use mini_ork_node::git::Git;
use mini_ork_node::session::SessionError;
use mini_ork_node::text::with_sources;
use mini_ork_node::workspace::{self, LOCAL, Workspace, WorkspaceError};
use mini_ork_protocol::RunId;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::runtime;
use super::sandbox::sandbox_error;
use super::select::open_reader;
use crate::env_vars;
use crate::error::{CommandError, ExitStatus};
use crate::render::{self, Progress};
use crate::settings::{GlobalSettings, Surroundings};

/// How often the live display is brought up to date between events.
const REFRESH: Duration = Duration::from_millis(200);

/// The git program of the user's `PATH`.
pub(crate) fn find_git(global: &GlobalSettings) -> Result<Git, CommandError> {
    let path = global.environment.raw("PATH").unwrap_or_default();
    let git = Git::find(path).map_err(|error| {
        CommandError::usage("git cannot be used")
            .caused_by(&error)
            .hint("install git 2.38 or later, or put it on PATH")
    })?;
    Ok(git.with_lfs(global.program.clone()))
}

/// The workspace of `backend`, which was checked before.
pub(crate) fn open_workspace(
    global: &GlobalSettings,
    backend: &str,
    surroundings: &Surroundings,
) -> Result<Arc<dyn Workspace>, CommandError> {
    workspace::open(backend, &global.backend_settings(backend, surroundings)?)
        .map_err(|error| CommandError::usage(error.to_string()))
}

/// The workspace of a run that has begun, and what it began with.
pub(crate) fn reopen_workspace(
    global: &GlobalSettings,
    run: &RunId,
    backend: &str,
) -> Result<(Arc<dyn Workspace>, Surroundings), CommandError> {
    let home = &global.home.value;
    if !RunDirectory::of(home, run).root().is_dir() {
        // Nothing can go on in it; it only has to be closed.
        let surroundings = Surroundings::plain(NetworkPolicy::Full);
        let workspace = open_workspace(global, LOCAL, &surroundings)?;
        return Ok((workspace, surroundings));
    }
    let record = RunRecord::load(home, run).map_err(|error| {
        CommandError::failure(format!("the record of run {run} cannot be read")).caused_by(&error)
    })?;
    let surroundings = Surroundings::recorded(&record, backend)?;
    let workspace = open_workspace(global, backend, &surroundings)?;
    Ok((workspace, surroundings))
}

/// How the programs of a run are run.
pub(crate) fn execution(global: &GlobalSettings, surroundings: &Surroundings) -> Execution {
    Execution {
        program: global.program.clone(),
        environment: global.environment.for_programs(),
        profile: surroundings.variables(),
    }
}

/// Where a test wants this process to die.
pub(crate) fn fault_point(global: &GlobalSettings) -> Result<FaultPoint, CommandError> {
    Ok(FaultPoint::parse(
        global.environment.text(env_vars::MO_FAULT)?.as_deref(),
    ))
}

/// The user's own ignore rules outside the repository: what git calls `core.excludesFile`, at the
/// place where it lies when nobody moved it. What they ignore is no part of the work.
pub(crate) fn user_excludes(global: &GlobalSettings) -> Vec<u8> {
    let configuration = global
        .environment
        .path("XDG_CONFIG_HOME")
        .or_else(|| Some(global.environment.path("HOME")?.join(".config")));
    configuration
        .and_then(|directory| fs_err::read(directory.join("git/ignore")).ok())
        .unwrap_or_default()
}

/// Runs `work` with progress on standard error. The first interrupt stops the run in order, the
/// second kills what is left of it.
pub(crate) fn drive<E>(
    work: impl AsyncFnOnce(&mut dyn RunObserver, watch::Receiver<StopLevel>) -> Result<RunView, E>,
    live: bool,
) -> Result<Result<RunView, E>, CommandError> {
    let runtime = runtime()?;
    let progress = Progress::new(live && std::io::stderr().is_terminal());
    let outcome = runtime.block_on(async {
        let signals = Signals::listen()
            .map_err(|error| CommandError::failure("cannot listen to signals").caused_by(&error))?;
        let (ask, asked) = watch::channel(StopLevel::Run);
        let mut observer = progress.observer();
        let work = work(&mut observer, asked);
        Ok(until_done(work, signals, &ask, &progress).await)
    });
    progress.finish();
    outcome
}

/// What a finished run means for the exit status.
pub(crate) fn exit_status(view: &RunView) -> ExitStatus {
    match view.terminal() {
        Some(Status::Published) => ExitStatus::Success,
        Some(Status::Blocked) => ExitStatus::Blocked,
        Some(Status::Cancelled) => ExitStatus::Cancelled,
        Some(Status::Failed) if view.reason == Some(Reason::BudgetExhausted) => ExitStatus::Budget,
        Some(Status::Failed) | None => ExitStatus::Failure,
    }
}

/// A run that is on record and could not be brought to an end. Scripts get the same object as for
/// one that ended.
pub(crate) fn broken_off(
    global: &GlobalSettings,
    run: &RunId,
    error: &RunError,
    json: bool,
) -> CommandError {
    if json {
        let reader = open_reader(global).ok().flatten();
        let row = reader
            .as_ref()
            .and_then(|reader| reader.run(run).ok().flatten());
        let view = reader
            .zip(row)
            .and_then(|(reader, row)| load_view(&reader, &row).ok());
        if let Some(mut view) = view {
            view.reason = Some(error.reason());
            view.detail = Some(error_sentence(error));
            view.hint = Some(error.reason().hint(run.as_str()));
            // The error that is returned says what happened; that standard output is closed too
            // would add nothing.
            let _ = render::json(&view);
        }
    }
    run_error(error)
}

/// Keys that lanes need and nobody has.
pub(crate) fn missing_keys(missing: &MissingKeys) -> CommandError {
    CommandError::usage("a lane has no key")
        .details(missing.to_string().lines().map(ToOwned::to_owned))
        .hint(missing.remedy())
}

/// Why a run does not go on.
pub(crate) fn run_error(error: &RunError) -> CommandError {
    let failed = CommandError::failure(error_sentence(error));
    match error {
        RunError::DiskLow { .. } => CommandError::usage(error_sentence(error))
            .hint("free space (`mini-ork clean` helps), or use another home with --home DIR"),
        RunError::Keys(missing) => missing_keys(missing),
        RunError::Lock(_) => failed.hint("`mini-ork status` shows it; `mini-ork kill` ends it"),
        RunError::Damaged { run, .. } => {
            failed.hint(format!("`mini-ork status {run}` shows what is known of it"))
        }
        RunError::Blocked { run } => failed.hint(format!(
            "`mini-ork status {run}` shows the questions; answer them in the kickoff, or with \
             --answer ID=TEXT, and start a new run"
        )),
        RunError::AlreadyPublished { run } => {
            failed.hint(format!("`mini-ork diff {run}` shows its work"))
        }
        RunError::Workspace(WorkspaceError::Docker(error)) => sandbox_error(error),
        RunError::Workspace(WorkspaceError::Session(SessionError::NotShared { .. })) => {
            CommandError::usage(error_sentence(error)).hint(
                "use a home below a directory that the container engine shares, with --home DIR",
            )
        }
        _ => failed.hint(error.reason().hint("@")),
    }
}

fn error_sentence(error: &RunError) -> String {
    let text = with_sources(error);
    match error.reason() {
        Reason::DiskFull if !matches!(error, RunError::DiskLow { .. }) => {
            format!("the disk is full: {text}")
        }
        _ => text,
    }
}

async fn until_done<T>(
    work: impl Future<Output = T>,
    mut signals: Signals,
    ask: &watch::Sender<StopLevel>,
    progress: &Progress,
) -> T {
    tokio::pin!(work);
    let mut refresh = tokio::time::interval(REFRESH);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = signals.next() => {
                let next = match *ask.borrow() {
                    StopLevel::Run => StopLevel::Graceful,
                    StopLevel::Graceful | StopLevel::Immediate => StopLevel::Immediate,
                };
                progress.note(match next {
                    StopLevel::Graceful => "stopping; once more kills",
                    _ => "killing",
                });
                ask.send_replace(next);
            }
            _ = refresh.tick(), if progress.is_live() => progress.refresh(),
        }
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}

/// Ends a command whose run has ended: the summary for people on standard error, or the object for
/// scripts on standard output.
pub(crate) fn conclude(view: &RunView, json: bool) -> Result<ExitStatus, CommandError> {
    if json {
        render::json(view)?;
    } else {
        render::out(&render::summary(view))?;
    }
    Ok(exit_status(view))
}
