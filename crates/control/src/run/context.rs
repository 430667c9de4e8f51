//! What every executor of a run needs, and the one way in which it runs a program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mini_ork_node::git::Repository;
use mini_ork_node::session::SessionError;
use mini_ork_node::supervise::{Stop, SuperviseError};
use mini_ork_node::sys;
use mini_ork_node::workspace::{
    Attached, Drive, LocalWorkspace, SpawnRequest, Workspace, WorkspaceError, WorkspaceProcess,
};
use mini_ork_protocol::{ByteString, ExitOutcome, ExitRecord, SecretBytes, StdinSource};
use tokio::sync::{Mutex, watch};

use super::directory::{RunDirectory, make_directory};
use super::event::{Failure, Remedy};
use super::failure::{ground_failure, hint_of_shortage, says_disk_full, shortage};
use super::fault::FaultPoint;
use super::models::Models;
use super::plan::{AgentPlace, Plan};
use super::trees::Trees;
use crate::kickoff::Kickoff;
use crate::reason::Reason;
use crate::store::Store;

/// How long a program may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(2);
/// Most bytes of output that one process may leave on disk.
const OUTPUT_LIMIT: u64 = 1 << 30;

/// What every executor of a run needs.
#[derive(Debug)]
pub(crate) struct RunContext {
    pub(crate) plan: Arc<Plan>,
    pub(crate) directory: RunDirectory,
    pub(crate) repository: Repository,
    /// Absent for a recipe that changes nothing: it works in the repository, in place.
    pub(crate) trees: Option<Trees>,
    pub(crate) workspace: Arc<dyn Workspace>,
    /// This machine, for agents that are not to run in the workspace.
    pub(crate) outside: LocalWorkspace,
    pub(crate) kickoff: Kickoff,
    pub(crate) execution: Execution,
    pub(crate) models: Models,
    pub(crate) store: Store,
    pub(crate) stop: watch::Receiver<StopLevel>,
    pub(crate) started_at_ms: u64,
    /// Most US dollars that all runs of the home together may spend in a day.
    pub(crate) daily_budget_usd: f64,
    pub(crate) isolation: String,
    /// What programs see of this machine.
    pub(crate) drive: Drive,
    pub(crate) fault: FaultPoint,
    /// Test runs on the base are shared by all rounds; one at a time makes each of them once.
    pub(crate) baseline: Mutex<()>,
}

/// What the caller decides about the programs of a run.
#[derive(Debug, Clone)]
pub struct Execution {
    /// This program, which also replays scripted lanes.
    pub program: PathBuf,
    /// The environment that programs of a run get, before what their node adds. An allowlist of
    /// the user's own, chosen by the caller.
    pub environment: Vec<(OsString, OsString)>,
    /// Variables of the profile, on top of it in every workspace.
    pub profile: Vec<(OsString, OsString)>,
}

/// Whether a run was asked to end, and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopLevel {
    /// It goes on.
    Run,
    /// Programs are asked to end, and killed after a grace period.
    Graceful,
    /// Programs are killed.
    Immediate,
}

/// One program to run.
#[derive(Debug)]
pub(crate) struct ProcessRequest {
    /// Where it runs; behind no boundary when it is not inside.
    pub(crate) place: AgentPlace,
    /// Where its records and output go. What already ran there is not run again.
    pub(crate) directory: PathBuf,
    pub(crate) argv: Vec<ByteString>,
    pub(crate) cwd: PathBuf,
    /// Added to [`Execution::environment`]; the later value of a name wins. Of an agent whose tools
    /// alone are inside it is the whole environment.
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) stdin: StdinSource,
    pub(crate) timeout: Duration,
    /// Values that the program knows and that must not be in its output.
    pub(crate) secrets: Vec<SecretBytes>,
}

impl RunContext {
    /// Runs a program to its end, or takes up the one that an earlier control plane started in the
    /// same directory: attached while it runs, harvested when it has ended.
    pub(crate) async fn run_process(&self, request: ProcessRequest) -> Result<ExitRecord, Failure> {
        let existing = self.existing(request.place, &request.directory).await?;
        let found = match existing {
            Attached::NeverStarted => self.start(&request).await?,
            found => found,
        };
        match found {
            Attached::Ended(record) => Ok(record),
            Attached::Running(process) => {
                self.fault.hit("process-started");
                self.wait(process).await
            }
            // Its survivors are gone. The directory makes room for the next attempt.
            Attached::Lost | Attached::NeverStarted => {
                set_aside(&request.directory).map_err(|error| ground_failure(&error))?;
                Err(Failure {
                    reason: Reason::InfraLost,
                    detail: "its supervisor was killed, so how it ended is not known".to_owned(),
                    remedy: Remedy::Attempt,
                })
            }
        }
    }

    /// How long the node may take.
    pub(crate) fn timeout(&self, timeout: Option<Duration>) -> Duration {
        timeout.unwrap_or(Duration::from_millis(self.plan.limits.node_timeout_ms))
    }

    /// Where the program of an agent at `place` runs.
    pub(crate) fn workspace_of(&self, place: AgentPlace) -> &dyn Workspace {
        match place {
            AgentPlace::Inside => &*self.workspace,
            AgentPlace::ToolsInside | AgentPlace::Host => &self.outside,
        }
    }

    async fn existing(&self, place: AgentPlace, directory: &Path) -> Result<Attached, Failure> {
        if !directory.is_dir() {
            return Ok(Attached::NeverStarted);
        }
        self.workspace_of(place)
            .attach(directory)
            .await
            .map_err(|error| lost_process(&error))
    }

    async fn start(&self, request: &ProcessRequest) -> Result<Attached, Failure> {
        make_directory(&request.directory).map_err(|error| ground_failure(&error))?;
        let spawn = SpawnRequest {
            directory: request.directory.clone(),
            argv: match request.place {
                AgentPlace::Inside => self.arguments(&request.argv),
                AgentPlace::ToolsInside | AgentPlace::Host => request.argv.clone(),
            },
            cwd: request.cwd.clone(),
            env: match request.place {
                AgentPlace::Inside => self.environment(&request.environment),
                // What is for its tools is not for itself: an image decides a part of it.
                AgentPlace::ToolsInside => merged_environment(&[], &request.environment),
                AgentPlace::Host => {
                    let profile = &self.execution.profile;
                    let added = [profile.as_slice(), &request.environment].concat();
                    merged_environment(&self.execution.environment, &added)
                }
            },
            stdin: request.stdin.clone(),
            timeout: Some(request.timeout),
            grace: GRACE,
            output_limit: OUTPUT_LIMIT,
            secrets: request.secrets.clone(),
        };
        match self.workspace_of(request.place).spawn(spawn).await {
            Ok(process) => Ok(Attached::Running(process)),
            // A supervisor of an earlier control plane was just being born when this one looked.
            Err(WorkspaceError::Supervise(SuperviseError::Taken { .. })) => {
                self.existing(request.place, &request.directory).await
            }
            Err(error) => Err(lost_process(&error)),
        }
    }

    /// `argv` as it is inside: whatever is a path of the run is named as it is there, and so is the
    /// mini-ork program.
    fn arguments(&self, argv: &[ByteString]) -> Vec<ByteString> {
        let mut arguments: Vec<_> = argv.iter().map(|text| self.inside(text)).collect();
        if let Some(program) = arguments.first_mut()
            && program.as_os_str() == self.execution.program
        {
            *program = self.workspace.program().as_path().into();
        }
        arguments
    }

    /// The whole environment of a program in the workspace.
    pub(crate) fn environment(
        &self,
        added: &[(OsString, OsString)],
    ) -> Vec<(ByteString, ByteString)> {
        let own = self.workspace.environment(&self.execution.environment);
        let added = [self.execution.profile.as_slice(), added].concat();
        merged_environment(&own, &added)
            .into_iter()
            .map(|(name, value)| (name, self.inside(&value)))
            .collect()
    }

    fn inside(&self, text: &ByteString) -> ByteString {
        let path = Path::new(text.as_os_str());
        if path.starts_with(self.directory.root()) {
            self.workspace.inside(path).as_path().into()
        } else {
            text.clone()
        }
    }

    async fn wait(&self, process: Box<dyn WorkspaceProcess>) -> Result<ExitRecord, Failure> {
        let mut stop = self.stop.clone();
        let mut asked = StopLevel::Run;
        loop {
            let level = *stop.borrow_and_update();
            if level > asked {
                let how = if level == StopLevel::Immediate {
                    Stop::Immediate
                } else {
                    Stop::Graceful
                };
                process.stop(how).map_err(|error| lost_process(&error))?;
                asked = level;
            }
            tokio::select! {
                ended = process.wait() => {
                    let record = ended.map_err(|error| lost_process(&error))?;
                    // Whoever ends a sandbox tells everything in it to stop first.
                    if record.outcome == ExitOutcome::Stopped && *stop.borrow() == StopLevel::Run {
                        return Err(Failure {
                            reason: Reason::InfraLost,
                            detail: "it was stopped, and not by this run".to_owned(),
                            remedy: Remedy::Attempt,
                        });
                    }
                    return Ok(record);
                }
                changed = stop.changed() => {
                    if changed.is_err() {
                        // Nobody is left who could ask.
                        return process.wait().await.map_err(|error| lost_process(&error));
                    }
                }
            }
        }
    }

    /// The failure that `record` stands for, or `None` when the program ended with 0.
    pub(crate) fn failure_of(&self, record: &ExitRecord, said: &str) -> Option<Failure> {
        if let Some(failure) = self.shortage(record) {
            return Some(failure);
        }
        let says_full = says_disk_full(said);
        let hint = hint_of_shortage(record);
        let said = if said.is_empty() {
            String::new()
        } else {
            format!(": {said}")
        };
        let (reason, detail, remedy) = match &record.outcome {
            ExitOutcome::Exited { code: 0 } => return None,
            ExitOutcome::Exited { code } => (
                Reason::CommandFailed,
                format!("ended with exit code {code}{said}{hint}"),
                Remedy::Attempt,
            ),
            ExitOutcome::Signaled { signal } => (
                Reason::CommandFailed,
                format!("was killed by signal {signal}{said}{hint}"),
                Remedy::Attempt,
            ),
            ExitOutcome::TimedOut => {
                let seconds = record.ended_at_ms.saturating_sub(record.started_at_ms) / 1000;
                (
                    Reason::Timeout,
                    format!("did not end within its limit ({seconds} s)"),
                    Remedy::None,
                )
            }
            ExitOutcome::Stopped => (Reason::Cancelled, "was stopped".to_owned(), Remedy::None),
            ExitOutcome::OutputLimit => (
                Reason::DiskFull,
                format!("wrote more than {} MiB of output", OUTPUT_LIMIT >> 20),
                Remedy::None,
            ),
            ExitOutcome::SpawnFailed { message } => (
                Reason::Config,
                format!("could not be started: {message}"),
                Remedy::None,
            ),
        };
        let starved = reason == Reason::CommandFailed && (says_full || self.disk_is_full());
        Some(Failure {
            reason: if starved { Reason::DiskFull } else { reason },
            detail,
            remedy: if starved { Remedy::None } else { remedy },
        })
    }

    /// What a program failed for want of. Where a disk has room again, which is so when somebody
    /// made some before a recovery, another attempt may go well.
    pub(crate) fn shortage(&self, record: &ExitRecord) -> Option<Failure> {
        let mut failure = shortage(record)?;
        if failure.reason == Reason::DiskFull && !self.disk_is_full() {
            failure.remedy = Remedy::Attempt;
        }
        Some(failure)
    }

    /// Variables by which a program that heeds the user's proxy still finds what listens on this
    /// machine.
    pub(crate) fn past_proxies(&self) -> Vec<(OsString, OsString)> {
        const HERE: &str = "127.0.0.1,localhost";
        ["NO_PROXY", "no_proxy"]
            .into_iter()
            .map(|name| {
                let environment = self.execution.environment.iter();
                let own = environment.rev().find(|(known, _)| known == name);
                let mut value = OsString::from(HERE);
                if let Some((_, own)) = own.filter(|(_, own)| !own.is_empty()) {
                    value.push(",");
                    value.push(own);
                }
                (OsString::from(name), value)
            })
            .collect()
    }

    fn disk_is_full(&self) -> bool {
        sys::disk_free(self.directory.root()).is_ok_and(|free| free.is_low())
    }
}

/// `first` with the values of `second` on top, each name once.
fn merged_environment(
    first: &[(OsString, OsString)],
    second: &[(OsString, OsString)],
) -> Vec<(ByteString, ByteString)> {
    let mut merged: Vec<(OsString, OsString)> = first.to_vec();
    for (name, value) in second {
        match merged.iter_mut().find(|(existing, _)| existing == name) {
            Some(slot) => slot.1.clone_from(value),
            None => merged.push((name.clone(), value.clone())),
        }
    }
    merged
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

fn set_aside(directory: &Path) -> std::io::Result<()> {
    for number in 1..=u32::MAX {
        let mut name = directory.as_os_str().to_owned();
        name.push(format!(".lost{number}"));
        let target = PathBuf::from(name);
        if !target.exists() {
            return fs_err::rename(directory, target);
        }
    }
    Ok(())
}

/// A workspace that could not run a program may do so at the next attempt. Not one that cannot be
/// reached: what runs in it may still be at work, and must not be begun a second time beside it.
pub(crate) fn lost_process(error: &WorkspaceError) -> Failure {
    let mut failure = ground_failure(error);
    let unreachable = matches!(error, WorkspaceError::Session(SessionError::Unreachable(_)));
    if failure.reason == Reason::InfraLost && !unreachable {
        failure.remedy = Remedy::Attempt;
    }
    failure
}
