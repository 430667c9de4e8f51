use std::fs::DirBuilder;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mini_ork_protocol::{ExitRecord, ProcessIdentity, ProcessRecord, ProcessSpec};
use rustix::event::PollFlags;
use rustix::process::Signal;
use zeroize::Zeroizing;

use super::SuperviseError;
use super::family::{Family, failed_to};
use super::records::{self, Claim, Stored};
use super::supervisor::{ANSWER_READY, ANSWER_TAKEN, SUPERVISE_ARGUMENT};
use crate::sys::cgroup::Cgroup;
use crate::sys::descriptors::wait_ready;
use crate::sys::process;

/// How long a supervisor may take to start its program. It takes milliseconds; only a machine that
/// is out of memory, or a program that stops its own supervisor, comes near.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How often a supervisor in the middle of its start is looked at, by whoever did not start it.
const START_STEP: Duration = Duration::from_millis(5);

/// How hard to stop a process. Either way nothing of it is left afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// TERM, and KILL after the grace time of its [`ProcessSpec`]. Asked twice, KILL at once.
    Graceful,
    /// KILL.
    Immediate,
}

/// Starts supervisors. Clones share what they know.
#[derive(Debug, Clone)]
pub struct Supervisor {
    program: PathBuf,
    children: Children,
}

impl Supervisor {
    /// Uses `program`, which calls [`super::supervise_main`] when its first argument is
    /// [`SUPERVISE_ARGUMENT`].
    pub fn new(program: PathBuf) -> Self {
        Self {
            program,
            children: Children::default(),
        }
    }

    /// The program that supervisors are.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Starts a program with `directory`, an absolute path, for its records; it is made, for this
    /// user only, when it is not there.
    ///
    /// Returns once the program runs, or is known not to: [`SupervisedProcess::wait`] then says
    /// why. An error means that nothing was started and nothing is left. One directory serves one
    /// process: a second start in it is [`SuperviseError::Taken`]. A start whose future is dropped
    /// takes place nevertheless.
    pub async fn start(
        &self,
        directory: &Path,
        spec: &ProcessSpec,
    ) -> Result<SupervisedProcess, SuperviseError> {
        let json = serde_json::to_vec(spec)
            .map(Zeroizing::new)
            .map_err(|error| records_error(directory, error.into()))?;
        let (supervisor, directory) = (self.clone(), directory.to_owned());
        blocking(move || supervisor.start_blocking(&directory, &json)).await
    }

    fn start_blocking(
        &self,
        directory: &Path,
        spec: &[u8],
    ) -> Result<SupervisedProcess, SuperviseError> {
        self.children.reap();
        create_directory(directory).map_err(|source| records_error(directory, source))?;
        let mut child = command(&self.program, directory)
            .spawn()
            .map_err(|source| SuperviseError::Launch {
                program: self.program.clone(),
                source,
            })?;
        let answer = converse(&mut child, spec);
        if answer.as_ref().is_ok_and(|answer| answer == ANSWER_READY) {
            self.children.keep(child);
            return load(directory, Some(self.children.clone()));
        }
        let _ = child.kill();
        let status = child.wait();
        match answer {
            Ok(answer) if answer == ANSWER_TAKEN => {
                return Err(SuperviseError::Taken {
                    directory: directory.to_owned(),
                });
            }
            // What has a claim may have run.
            _ => match Claim::read(directory)?.whole() {
                Some(claim) if i32::try_from(child.id()) == Ok(claim.supervisor.pid) => {
                    clear(directory, &claim)?;
                    if answer.as_ref().is_ok_and(String::is_empty) {
                        return Err(lost(directory));
                    }
                }
                _ => {}
            },
        }
        let message = match (answer, status) {
            (Ok(answer), _) if !answer.is_empty() => answer,
            (Ok(_), Ok(status)) => format!("it said nothing ({status})"),
            (Ok(_), Err(error)) | (Err(error), _) => error.to_string(),
        };
        Err(SuperviseError::NotStarted {
            directory: directory.to_owned(),
            message,
        })
    }
}

/// What became of the process whose records are in a directory.
#[derive(Debug)]
pub enum Found {
    /// Nothing was ever started there.
    NeverStarted,
    /// Its supervisor is at work.
    Running(SupervisedProcess),
    /// It ended while nobody was there.
    Ended(ExitRecord),
    /// Its supervisor is gone and left no record. What it left running has been killed.
    Lost,
}

/// Looks up the process whose records are in `directory`. Starts nothing.
///
/// Blocks: for as long as survivors of a lost supervisor take to die, or for as long as a
/// supervisor takes that is starting its program at this moment.
pub fn find(directory: &Path) -> Result<Found, SuperviseError> {
    let claim = match Claim::read(directory)? {
        Stored::Absent => return Ok(Found::NeverStarted),
        Stored::Damaged => None,
        Stored::Whole(claim) => Some(claim),
    };
    // A supervisor that has written its last record may still be seen for a moment.
    if let Stored::Whole(exit) = records::read_exit(directory)? {
        return Ok(Found::Ended(exit));
    }
    if let Some(claim) = claim {
        let deadline = Instant::now() + START_LIMIT;
        while let Some(supervisor) =
            process::open(claim.supervisor).map_err(failed_to("look for the supervisor"))?
        {
            if let Stored::Whole(_) = records::read_process(directory)? {
                return load(directory, None).map(Found::Running);
            }
            if Instant::now() >= deadline {
                // The program of a supervisor that hangs has nobody to stop it.
                process::signal(claim.supervisor, Signal::KILL)
                    .and_then(|()| process::wait_ended(claim.supervisor, deadline + START_LIMIT))
                    .map_err(failed_to("end the supervisor"))?;
                break;
            }
            supervisor
                .wait_ended(START_STEP)
                .map_err(failed_to("await the supervisor"))?;
        }
        // Its starter was gone before it started anything.
        if let Stored::Absent = Claim::read(directory)? {
            return Ok(Found::NeverStarted);
        }
    }
    match settle(directory) {
        Ok(exit) => Ok(Found::Ended(exit)),
        Err(SuperviseError::Lost { .. }) => Ok(Found::Lost),
        Err(error) => Err(error),
    }
}

/// Whether the process of `directory` was started with the run marker `marker`.
pub fn taken_with(directory: &Path, marker: &str) -> Result<bool, SuperviseError> {
    let claim = Claim::read(directory)?.whole();
    Ok(claim.is_some_and(|claim| claim.marker == marker))
}

/// How the process ended whose records are in `directory`, when that is on record. For a machine
/// that the supervisor did not run on: nothing is looked for, and nothing killed.
pub fn recorded_exit(directory: &Path) -> Result<Option<ExitRecord>, SuperviseError> {
    Ok(records::read_exit(directory)?.whole())
}

/// A process with a supervisor. Dropping it changes nothing for the process; any number of these,
/// in any number of programs, may refer to one process.
#[derive(Debug, Clone)]
pub struct SupervisedProcess {
    directory: PathBuf,
    supervisor: ProcessIdentity,
    record: Option<ProcessRecord>,
    children: Option<Children>,
}

impl SupervisedProcess {
    /// Waits for the end. Afterwards no process of the program is left, whatever is returned,
    /// except for [`SuperviseError::Survivors`]. May be called again and gives the same.
    pub async fn wait(&self) -> Result<ExitRecord, SuperviseError> {
        let failed = || failed_to("await the supervisor");
        if let Some(supervisor) = process::open(self.supervisor).map_err(failed())? {
            supervisor.ended().await.map_err(failed())?;
        }
        if let Some(children) = &self.children {
            children.reap();
        }
        let directory = self.directory.clone();
        blocking(move || settle(&directory)).await
    }

    /// Asks the supervisor to end the program; returns at once. Does nothing when it has ended.
    pub fn stop(&self, how: Stop) -> Result<(), SuperviseError> {
        let signal = match how {
            Stop::Graceful => Signal::TERM,
            Stop::Immediate => Signal::USR1,
        };
        process::signal(self.supervisor, signal)
            // A supervisor that somebody has stopped hears nothing.
            .and_then(|()| process::signal(self.supervisor, Signal::CONT))
            .map_err(failed_to("signal the supervisor"))
    }

    /// What is known of the running program; none when the system refused to run it.
    pub fn record(&self) -> Option<&ProcessRecord> {
        self.record.as_ref()
    }
}

/// Supervisors that this process started and has to reap. They are kept here and not in their
/// handles, because a handle may be dropped before the end.
#[derive(Debug, Clone, Default)]
struct Children(Arc<Mutex<Vec<Child>>>);

impl Children {
    fn keep(&self, child: Child) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(child);
    }

    fn reap(&self) {
        let mut children = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

/// The one constructor of a supervisor process.
#[expect(
    clippy::disallowed_methods,
    reason = "the one constructor of a supervisor"
)]
fn command(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .arg(SUPERVISE_ARGUMENT)
        .arg(directory)
        // The supervisor needs nothing of it, and anybody may read it for hours in `/proc`.
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

fn create_directory(directory: &Path) -> io::Result<()> {
    if !directory.is_absolute() {
        let message = format!("`{}` is not an absolute path", directory.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

/// Tells the supervisor what to run and returns its answer; empty when it went away without one.
fn converse(child: &mut Child, spec: &[u8]) -> io::Result<String> {
    let missing = || io::Error::other("the pipes of the supervisor are missing");
    let mut stdin = child.stdin.take().ok_or_else(missing)?;
    let mut stdout = child.stdout.take().ok_or_else(missing)?;
    match stdin.write_all(spec) {
        // It went away; its answer says why.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other?,
    }
    drop(stdin);
    let deadline = Instant::now() + START_LIMIT;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let [ready] = wait_ready([(stdout.as_fd(), PollFlags::IN)], left)?;
        if !ready {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "it did not answer in time",
            ));
        }
        let count = stdout.read(&mut buffer)?;
        if count == 0 {
            return Ok(String::from_utf8_lossy(&answer).into_owned());
        }
        answer.extend_from_slice(&buffer[..count]);
    }
}

fn load(directory: &Path, children: Option<Children>) -> Result<SupervisedProcess, SuperviseError> {
    let Some(claim) = Claim::read(directory)?.whole() else {
        return Err(lost(directory));
    };
    let record = records::read_process(directory)?.whole();
    Ok(SupervisedProcess {
        directory: directory.to_owned(),
        supervisor: claim.supervisor,
        record,
        children,
    })
}

/// How a process ended whose supervisor is gone. Without a record, its survivors are killed.
fn settle(directory: &Path) -> Result<ExitRecord, SuperviseError> {
    if let Stored::Whole(exit) = records::read_exit(directory)? {
        return Ok(exit);
    }
    if let Some(claim) = Claim::read(directory)?.whole() {
        clear(directory, &claim)?;
    }
    Err(lost(directory))
}

fn clear(directory: &Path, claim: &Claim) -> Result<(), SuperviseError> {
    let cgroup = claim
        .cgroup
        .as_ref()
        .and_then(|path| Cgroup::reopen(Path::new(path), claim.supervisor));
    let family = Family {
        ancestor: None,
        program: records::read_process(directory)?
            .whole()
            .map(|record| record.program),
        marker: Some(claim.marker.clone()).filter(|marker| !marker.is_empty()),
        cgroup,
    };
    family.kill()?;
    if let Some(cgroup) = family.cgroup {
        cgroup.remove();
    }
    Ok(())
}

fn lost(directory: &Path) -> SuperviseError {
    let failure = records::read_failure(directory);
    let detail = if failure.is_empty() {
        failure
    } else {
        format!(": {failure}")
    };
    SuperviseError::Lost {
        directory: directory.to_owned(),
        detail,
    }
}

fn records_error(directory: &Path, source: io::Error) -> SuperviseError {
    SuperviseError::Records {
        directory: directory.to_owned(),
        source,
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SuperviseError> + Send + 'static,
) -> Result<T, SuperviseError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(failed_to("run a task")(error.into())),
    }
}
