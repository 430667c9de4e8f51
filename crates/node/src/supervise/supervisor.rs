use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use mini_ork_protocol::{
    Containment, ExitOutcome, ExitRecord, GENERATION, ProcessIdentity, ProcessRecord, ProcessSpec,
};
use zeroize::Zeroizing;

use super::disk::Disk;
use super::family::Family;
use super::output::Output;
use super::records::{self, Claim, ReservedExit};
use super::watch::{Limits, Signals, Watch};
use super::{STDERR_LOG, STDOUT_LOG, program};
use crate::sys::cgroup::Cgroup;
use crate::sys::counters::Counters;
use crate::sys::written::Written;
use crate::sys::{descriptors, process};

/// First argument of a mini-ork that is to be a supervisor; the second is the record directory.
pub const SUPERVISE_ARGUMENT: &str = "__supervise";

/// What the supervisor answers once the program runs, or once the record says why it does not.
pub(super) const ANSWER_READY: &str = "ready";
/// What the supervisor answers when the directory has an owner.
pub(super) const ANSWER_TAKEN: &str = "taken";

/// Runs one program as its supervisor, until nothing of it is left.
///
/// To be called first thing in `main`, before a thread, a runtime or a file is there: every
/// descriptor above standard error is closed. Reads a [`ProcessSpec`] as JSON from standard input
/// to its end and gives a one-line answer on standard output, which then is closed; see
/// [`super::Supervisor::start`] for the other side.
///
/// Signals: TERM stops the program with its grace time, a second TERM or USR1 at once. HUP, INT and
/// QUIT do nothing.
pub fn supervise_main(directory: &Path) -> ExitCode {
    let begun = begin(directory);
    let answer = match &begun {
        Ok(_) => ANSWER_READY.to_owned(),
        Err(Refusal::Taken) => ANSWER_TAKEN.to_owned(),
        Err(Refusal::Failed(message)) => message.replace('\n', " "),
    };
    // Nobody may be there to hear it, which changes nothing.
    let _ = rustix::io::write(rustix::stdio::stdout(), answer.as_bytes());
    let detached = null_device().and_then(|null| Ok(rustix::stdio::dup2_stdout(&null)?));
    let ended = match begun {
        Ok(None) => return ExitCode::SUCCESS,
        Ok(Some(watch)) => watch.run(),
        Err(_) => return ExitCode::FAILURE,
    };
    match ended.and(detached.map_err(|error| error.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            records::write_failure(directory, &message);
            ExitCode::FAILURE
        }
    }
}

/// Why there is no program. Nothing has run.
enum Refusal {
    Taken,
    Failed(String),
}

/// Starts the program. None when the system refused to run it, which then is on record.
fn begin(directory: &Path) -> Result<Option<Watch>, Refusal> {
    let (signals, written, adopts) = become_supervisor().map_err(because("become a supervisor"))?;
    let spec = read_spec()?;
    let supervisor = process::own_identity().map_err(because("identify itself"))?;
    let cgroup = Cgroup::create(supervisor);
    let begun = claim(directory, &spec, supervisor, cgroup.as_ref()).and_then(|()| {
        let family = Family {
            ancestor: Some(supervisor.pid),
            program: None,
            // What does not come back to the supervisor has to be looked for.
            marker: Some(spec.marker.clone()).filter(|marker| !adopts && !marker.is_empty()),
            cgroup: cgroup.clone(),
        };
        let disk = Disk::new(directory.to_owned(), written);
        start(directory, &spec, supervisor, family, (signals, disk))
    });
    if !matches!(begun, Ok(Some(_)))
        && let Some(cgroup) = cgroup
    {
        cgroup.remove();
    }
    begun
}

/// The signals, what counts the bytes that are written, and whether orphans come back to this
/// process.
fn become_supervisor() -> io::Result<(Signals, Written, bool)> {
    descriptors::close_inherited()?;
    let written = Written::by_this_process();
    // What it runs is of the same user, and must not look into it or make it do anything.
    process::protect()?;
    let signals = Signals::register()?;
    // Not for the leader of a process group, which then has no terminal to be freed from either.
    process::begin_session();
    let adopts = process::adopt_orphans()?;
    // The directory in which mini-ork was started must not be kept busy.
    rustix::process::chdir("/")?;
    Ok((signals, written, adopts))
}

fn read_spec() -> Result<ProcessSpec, Refusal> {
    let mut json = Zeroizing::new(Vec::new());
    io::stdin()
        .lock()
        .read_to_end(&mut json)
        .map_err(because("read what to run"))?;
    null_device()
        .and_then(|null| Ok(rustix::stdio::dup2_stdin(&null)?))
        .map_err(because("let go of its standard input"))?;
    // Whoever was writing died before the end: nothing may run that nobody knows of.
    let spec: ProcessSpec =
        serde_json::from_slice(&json).map_err(because("understand what to run"))?;
    if spec.generation > GENERATION {
        let message = format!("generation {} is later than {GENERATION}", spec.generation);
        return Err(because("understand what to run")(message));
    }
    Ok(spec)
}

fn claim(
    directory: &Path,
    spec: &ProcessSpec,
    supervisor: ProcessIdentity,
    cgroup: Option<&Cgroup>,
) -> Result<(), Refusal> {
    let claim = Claim {
        generation: GENERATION,
        supervisor,
        marker: spec.marker.clone(),
        cgroup: cgroup.and_then(path_of),
    };
    match claim.write(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(Refusal::Taken),
        Err(error) => return Err(because("write its records")(error)),
    }
    // Asked after the claim: whoever comes after a starter that died either sees the claim, or
    // took the directory first.
    if descriptors::reader_is_gone(rustix::stdio::stdout()) {
        // Nothing ran, which is known only as long as the claim does not say otherwise.
        Claim::withdraw(directory).map_err(because("withdraw its records"))?;
        return Err(Refusal::Failed("whoever asked for it is gone".to_owned()));
    }
    Ok(())
}

fn start(
    directory: &Path,
    spec: &ProcessSpec,
    supervisor: ProcessIdentity,
    mut family: Family,
    (signals, disk): (Signals, Disk),
) -> Result<Option<Watch>, Refusal> {
    let stdout = open_log(&directory.join(STDOUT_LOG))?;
    let stderr = open_log(&directory.join(STDERR_LOG))?;
    let reserved = ReservedExit::new(directory).map_err(because("write its records"))?;
    let logs = [stdout, stderr];
    let counters = Counters::start(family.cgroup.as_ref());
    let started_at_ms = process::now_ms();
    let (output, spawned) = if spec.secrets.is_empty() {
        let spawned = program::spawn(spec, logs.each_ref(), family.cgroup.as_ref());
        (Output::straight(logs), spawned)
    } else {
        let (output, pipes) = Output::redacted(logs, &spec.secrets)
            .map_err(because("keep secrets out of the logs"))?;
        let spawned = program::spawn(spec, pipes.each_ref(), family.cgroup.as_ref());
        (output, spawned)
    };
    let born = match spawned {
        Ok(born) => born,
        Err(message) => {
            let ended_at_ms = process::now_ms();
            let outcome = ExitOutcome::SpawnFailed { message };
            let exit = ExitRecord {
                generation: GENERATION,
                outcome,
                started_at_ms,
                ended_at_ms,
                stragglers: 0,
                shortage: None,
            };
            reserved
                .write(directory, &exit)
                .map_err(because("write its records"))?;
            return Ok(None);
        }
    };
    let pid = born.pid;
    process::let_end_first(pid);
    if let Some(unused) = family.cgroup.take_if(|_| !born.in_group) {
        unused.remove();
    }
    let limits = Limits::new(spec, Instant::now());
    // Not yet reaped, so it is there to be looked up even if it has ended.
    let recorded = process::status(pid)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "/proc does not show the program"))
        .and_then(|program| {
            let record = ProcessRecord {
                generation: GENERATION,
                supervisor,
                program: program.identity,
                marker: spec.marker.clone(),
                containment: match (&family.cgroup, &family.marker) {
                    (Some(_), _) => Containment::Cgroup,
                    (None, None) => Containment::Subreaper,
                    (None, Some(_)) => Containment::Marker,
                },
                cgroup: family.cgroup.as_ref().and_then(path_of),
                started_at_ms,
            };
            records::write_process(directory, &record)?;
            Ok(program.identity)
        });
    match recorded {
        Ok(program) => {
            let directory = directory.to_owned();
            Ok(Some(Watch {
                directory,
                program,
                started_at_ms,
                limits,
                family,
                output,
                reserved,
                signals,
                counters,
                disk,
            }))
        }
        Err(error) => {
            let _ = family.kill();
            Err(because("record the program")(error))
        }
    }
}

fn open_log(path: &Path) -> Result<File, Refusal> {
    let log = records::create_private().append(true).open(path);
    log.map(fs_err::File::into_file)
        .map_err(because("create the logs"))
}

fn null_device() -> io::Result<File> {
    Ok(fs_err::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?
        .into_file())
}

fn path_of(cgroup: &Cgroup) -> Option<String> {
    cgroup.path().to_str().map(str::to_owned)
}

fn because<E: ToString>(action: &'static str) -> impl FnOnce(E) -> Refusal {
    move |error| Refusal::Failed(format!("could not {action}: {}", error.to_string()))
}
