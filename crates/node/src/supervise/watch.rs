use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mini_ork_protocol::{
    ExitOutcome, ExitRecord, GENERATION, ProcessIdentity, ProcessSpec, Shortage,
};
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, WaitStatus};

use super::disk::Disk;
use super::family::Family;
use super::output::Output;
use super::records::ReservedExit;
use crate::sys::counters::Counters;
use crate::sys::descriptors::wait_readable;
use crate::sys::process;

/// How often the size of the output and the room on the disk are looked at, while no output is
/// passed on. Nothing else wakes an idle supervisor.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// The same on a disk that is nearly full.
const SHORT_TICK: Duration = Duration::from_millis(10);

/// A running program and all that its supervisor knows of it.
pub(super) struct Watch {
    pub(super) directory: PathBuf,
    pub(super) program: ProcessIdentity,
    pub(super) started_at_ms: u64,
    pub(super) limits: Limits,
    pub(super) family: Family,
    pub(super) output: Output,
    pub(super) reserved: ReservedExit,
    pub(super) signals: Signals,
    pub(super) counters: Counters,
    pub(super) disk: Disk,
}

impl Watch {
    /// Waits for the end of the program, enforces its limits, kills what it leaves behind and
    /// writes the record of its end. The error is a sentence; then there is no record.
    pub(super) fn run(mut self) -> Result<(), String> {
        let ended = self.watch();
        let cleared = self.clear();
        let (outcome, status) =
            ended.map_err(|error| format!("could not watch the program: {error}"))?;
        let stragglers = cleared?;
        self.output
            .finish()
            .map_err(|error| format!("could not keep the output of the program: {error}"))?;
        let outcome = match (outcome, status) {
            (Some(outcome), _) => outcome,
            (None, Some(status)) => outcome_of(status),
            (None, None) => return Err("the program's end was not reported".to_owned()),
        };
        let record = ExitRecord {
            generation: GENERATION,
            outcome,
            started_at_ms: self.started_at_ms,
            ended_at_ms: process::now_ms(),
            stragglers,
            shortage: self.shortage(),
        };
        self.reserved
            .write(&self.directory, &record)
            .map_err(|error| format!("could not record the end of the program: {error}"))
    }

    /// Returns when the time has come to kill what is left. The outcome is given when it was not
    /// the program that decided on its end.
    fn watch(&mut self) -> io::Result<(Option<ExitOutcome>, Option<WaitStatus>)> {
        let mut status = None;
        let mut stopping: Option<(ExitOutcome, Instant)> = None;
        loop {
            // Before the look at the children: one that ends after it wakes the next wait.
            let orders = self.signals.take()?;
            let reaped = reap(self.program.pid)?;
            status = status.or(reaped.program);
            if status.is_some() && (stopping.is_none() || reaped.childless) {
                return Ok((stopping.map(|(outcome, _)| outcome), status));
            }
            let now = Instant::now();
            let disk_lasts = self.disk.look(&self.family);
            if self.disk.left.is_some() || self.output_is_over()? {
                let outcome = stopping.map_or(ExitOutcome::OutputLimit, |(outcome, _)| outcome);
                return Ok((Some(outcome), status));
            }
            let timed_out = self.limits.deadline.is_some_and(|deadline| now >= deadline);
            match &stopping {
                Some((_, until)) if orders.stops > 0 || orders.kills > 0 || now >= *until => {
                    return Ok((stopping.map(|(outcome, _)| outcome), status));
                }
                None if orders.kills > 0 || orders.stops > 1 => {
                    return Ok((Some(ExitOutcome::Stopped), status));
                }
                None if orders.stops > 0 || timed_out => {
                    let outcome = if orders.stops > 0 {
                        ExitOutcome::Stopped
                    } else {
                        ExitOutcome::TimedOut
                    };
                    self.family.ask_to_end().map_err(io::Error::other)?;
                    stopping = Some((outcome, now + self.limits.grace));
                }
                Some(_) | None => {}
            }
            let next = stopping
                .as_ref()
                .map(|(_, until)| *until)
                .or(self.limits.deadline);
            let left = next.map_or(TICK, |next| next.saturating_duration_since(now));
            let tick = disk_lasts.clamp(SHORT_TICK, TICK);
            self.signals.wait(self.output.sources(), left.min(tick))?;
            // A program whose output cannot be kept must not go on as if it were.
            self.output.pass_on().map_err(|error| {
                io::Error::new(error.kind(), format!("its output cannot be kept: {error}"))
            })?;
        }
    }

    /// Kills all that is left of the program. Counts the processes that outlived it.
    fn clear(&self) -> Result<u32, String> {
        let reaped = reap(self.program.pid).map_err(|error| error.to_string())?;
        // Without a child there is no descendant where orphans become children of the supervisor,
        // and need no marker to be found by.
        let killed = if reaped.childless && self.family.marker.is_none() {
            0
        } else {
            let killed = self.family.kill().map_err(|error| error.to_string())?;
            let _ = reap(self.program.pid);
            killed
                .iter()
                .filter(|process| **process != self.program)
                .count()
        };
        if let Some(cgroup) = &self.family.cgroup {
            cgroup.remove();
        }
        Ok(u32::try_from(killed).unwrap_or(u32::MAX))
    }

    fn shortage(&self) -> Option<Shortage> {
        let counted = self.counters.since_start();
        if counted.is_none() && self.disk.left.is_none() {
            return None;
        }
        let counted = counted.unwrap_or_default();
        Some(Shortage {
            killed: counted.killed,
            memory_limit: counted.memory_limit,
            memory_peak: counted.memory_peak,
            forks_refused: counted.forks_refused,
            process_limit: counted.process_limit,
            disk_left: self.disk.left,
        })
    }

    fn output_is_over(&self) -> io::Result<bool> {
        Ok(self.output.length()? > self.limits.output)
    }
}

/// When a program has to end, and how.
pub(super) struct Limits {
    deadline: Option<Instant>,
    grace: Duration,
    output: u64,
}

impl Limits {
    pub(super) fn new(spec: &ProcessSpec, started: Instant) -> Self {
        Self {
            // A limit beyond what the clock can tell is none.
            deadline: spec
                .timeout_ms
                .and_then(|limit| started.checked_add(Duration::from_millis(limit))),
            // A year, so that adding it to a time cannot overflow.
            grace: Duration::from_millis(spec.grace_ms)
                .min(Duration::from_secs(365 * 24 * 60 * 60)),
            output: spec.output_limit,
        }
    }
}

/// What arrived since it was last asked.
struct Orders {
    stops: usize,
    kills: usize,
}

/// The signals that mean something to a supervisor.
pub(super) struct Signals {
    child: UnixStream,
    stop: UnixStream,
    kill: UnixStream,
}

impl Signals {
    /// Takes over the handling of signals.
    ///
    /// Those without a meaning get a handler too, rather than being ignored: what is ignored stays
    /// so in the program, where a lane expects to be interrupted by INT.
    pub(super) fn register() -> io::Result<Self> {
        for signal in [Signal::HUP, Signal::INT, Signal::QUIT] {
            let (_, unheard) = UnixStream::pair()?;
            signal_hook::low_level::pipe::register(signal.as_raw(), unheard)?;
        }
        Ok(Self {
            child: listen_for(Signal::CHILD)?,
            stop: listen_for(Signal::TERM)?,
            kill: listen_for(Signal::USR1)?,
        })
    }

    fn take(&self) -> io::Result<Orders> {
        drain(&self.child)?;
        Ok(Orders {
            stops: drain(&self.stop)?,
            kills: drain(&self.kill)?,
        })
    }

    /// Waits for any of the signals, or for one of `others` to be readable, at most `limit` long.
    fn wait<'a>(
        &'a self,
        others: impl Iterator<Item = BorrowedFd<'a>>,
        limit: Duration,
    ) -> io::Result<()> {
        let streams = [&self.child, &self.stop, &self.kill];
        let awaited = streams.into_iter().map(|stream| stream.as_fd());
        wait_readable(awaited.chain(others), limit)
    }
}

struct Reaped {
    /// The program's end, the one time that it is reported.
    program: Option<WaitStatus>,
    /// No child is left, not even a running one.
    childless: bool,
}

/// Takes note of every child that has ended, orphans that were adopted included.
fn reap(program: i32) -> io::Result<Reaped> {
    let mut status = None;
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, ended))) if pid.as_raw_pid() == program => status = Some(ended),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => {
                return Ok(Reaped {
                    program: status,
                    childless: false,
                });
            }
            Err(Errno::CHILD) => {
                return Ok(Reaped {
                    program: status,
                    childless: true,
                });
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn outcome_of(status: WaitStatus) -> ExitOutcome {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ExitOutcome::Exited { code },
        (None, signal) => ExitOutcome::Signaled {
            signal: signal.unwrap_or_default(),
        },
    }
}

fn listen_for(signal: Signal) -> io::Result<UnixStream> {
    let (heard, sender) = UnixStream::pair()?;
    heard.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal.as_raw(), sender)?;
    Ok(heard)
}

fn drain(mut stream: &UnixStream) -> io::Result<usize> {
    let mut total = 0;
    let mut buffer = [0; 64];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(count) => total += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(total),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
