use std::collections::HashSet;
use std::time::{Duration, Instant};

use mini_ork_protocol::ProcessIdentity;
use rustix::process::Signal;

use super::{MARKER_SEPARATOR, RUN_MARKER_VARIABLE, SuperviseError};
use crate::sys::cgroup::Cgroup;
use crate::sys::process::{self, ProcessStatus};

/// How long the processes of a program may take to disappear once they were killed. Only one that
/// the kernel cannot let go (a dead network file system) or that belongs to another user takes it.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// How often the process table is read again to find what was forked meanwhile, before what was
/// found is killed.
const FREEZE_ROUNDS: usize = 50;

/// All processes of one program, by every way in which they can be recognised.
#[derive(Debug)]
pub(super) struct Family {
    /// Every descendant of this process belongs, not itself.
    pub(super) ancestor: Option<i32>,
    /// The program, with its descendants.
    pub(super) program: Option<ProcessIdentity>,
    /// Whoever carries this marker, with its descendants. Costs a read of every process.
    pub(super) marker: Option<String>,
    /// Whoever is in this group, with its descendants.
    pub(super) cgroup: Option<Cgroup>,
}

impl Family {
    /// Asks every member to end, those included that are forked meanwhile.
    pub(super) fn ask_to_end(&self) -> Result<(), SuperviseError> {
        // While all are stopped, none can fork one that is not asked. One that may not be
        // signalled must not keep the signal from the others.
        let stopped = self.stop_all()?;
        for signal in [Signal::TERM, Signal::CONT] {
            for member in &stopped {
                let _ = process::signal(*member, signal);
            }
        }
        Ok(())
    }

    /// Kills every member and waits until none is left, those included that are forked meanwhile.
    /// Returns those that were found running.
    pub(super) fn kill(&self) -> Result<Vec<ProcessIdentity>, SuperviseError> {
        let deadline = Instant::now() + KILL_LIMIT;
        let mut killed = Vec::new();
        loop {
            // First everything is stopped, then killed: where a parent dies before its child was
            // seen, the child is nobody's descendant any more.
            let stopped = self.stop_all()?;
            if let Some(cgroup) = &self.cgroup {
                cgroup.kill().map_err(failed_to("kill a control group"))?;
            }
            for member in &stopped {
                let _ = process::signal(*member, Signal::KILL);
            }
            let mut left = Vec::new();
            for member in &stopped {
                if !process::wait_ended(*member, deadline).map_err(failed_to("await a process"))? {
                    left.push(*member);
                }
            }
            if let Some(cgroup) = &self.cgroup
                && !cgroup
                    .wait_empty(deadline)
                    .map_err(failed_to("await a control group"))?
            {
                left.extend(
                    cgroup
                        .members()
                        .into_iter()
                        .filter_map(process::status)
                        .map(|status| status.identity),
                );
            }
            let found_none = stopped.is_empty();
            killed.extend(stopped);
            if found_none && left.is_empty() {
                return Ok(killed);
            }
            if Instant::now() >= deadline {
                left.extend(self.members()?);
                return Err(SuperviseError::Survivors {
                    survivors: describe(&left),
                });
            }
        }
    }

    fn stop_all(&self) -> Result<Vec<ProcessIdentity>, SuperviseError> {
        let mut stopped = Vec::new();
        let mut seen = HashSet::new();
        for _ in 0..FREEZE_ROUNDS {
            let members = self.members()?;
            let before = stopped.len();
            for member in members {
                if seen.insert((member.pid, member.start_ticks)) {
                    stopped.push(member);
                    let _ = process::signal(member, Signal::STOP);
                }
            }
            if stopped.len() == before {
                break;
            }
        }
        Ok(stopped)
    }

    fn members(&self) -> Result<Vec<ProcessIdentity>, SuperviseError> {
        let mut processes = self.processes()?;
        processes.retain(|status| !status.ended);
        Ok(processes
            .into_iter()
            .map(|status| status.identity)
            .collect())
    }

    /// Every member, those included that have ended and are still to be waited for.
    pub(super) fn processes(&self) -> Result<Vec<ProcessStatus>, SuperviseError> {
        let table = process::table().map_err(failed_to("read the process table"))?;
        let marker = self
            .marker
            .as_ref()
            .map(|marker| format!("{RUN_MARKER_VARIABLE}={marker}"));
        let carries = |pid: i32, entry: &str| {
            process::environment_has(pid, |text| {
                text.strip_prefix(entry.as_bytes())
                    .is_some_and(|rest| rest.is_empty() || rest[0] == MARKER_SEPARATOR as u8)
            })
        };
        let grouped: HashSet<i32> = self.cgroup.iter().flat_map(Cgroup::members).collect();
        let is_root = |status: &ProcessStatus| {
            let pid = status.identity.pid;
            Some(status.parent) == self.ancestor
                || Some(status.identity) == self.program
                || grouped.contains(&pid)
                || marker.as_ref().is_some_and(|entry| carries(pid, entry))
        };
        let own = rustix::process::getpid().as_raw_pid();
        let mut found = with_descendants(&table, is_root);
        // Whoever asks may itself run inside of another program's family.
        found.retain(|status| status.identity.pid > 1 && status.identity.pid != own);
        Ok(found)
    }
}

/// An adapter for `map_err`.
pub(super) fn failed_to(action: &'static str) -> impl FnOnce(std::io::Error) -> SuperviseError {
    move |source| SuperviseError::Process { action, source }
}

fn with_descendants(
    table: &[ProcessStatus],
    is_root: impl Fn(&ProcessStatus) -> bool,
) -> Vec<ProcessStatus> {
    let (mut inside, mut rest): (Vec<ProcessStatus>, Vec<ProcessStatus>) =
        table.iter().partition(|status| is_root(status));
    let mut pids: HashSet<i32> = inside.iter().map(|status| status.identity.pid).collect();
    loop {
        let (found, others): (Vec<ProcessStatus>, Vec<ProcessStatus>) = rest
            .into_iter()
            .partition(|status| pids.contains(&status.parent));
        if found.is_empty() {
            return inside;
        }
        pids.extend(found.iter().map(|status| status.identity.pid));
        inside.extend(found);
        rest = others;
    }
}

fn describe(processes: &[ProcessIdentity]) -> String {
    let mut pids: Vec<i32> = processes.iter().map(|process| process.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let names = pids.iter().map(|pid| {
        let name = fs_err::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("process {pid} ({})", name.trim().escape_debug())
    });
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: i32, parent: i32) -> ProcessStatus {
        let identity = ProcessIdentity {
            pid,
            start_ticks: 1,
        };
        ProcessStatus {
            identity,
            parent,
            ended: false,
        }
    }

    #[test]
    fn descendants_are_found_in_any_order_of_the_table() {
        let table = [
            entry(9, 8),
            entry(8, 5),
            entry(5, 2),
            entry(6, 1),
            entry(7, 6),
        ];
        let found = with_descendants(&table, |status| status.parent == 2);
        let mut pids: Vec<i32> = found.iter().map(|status| status.identity.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [5, 8, 9]);
    }
}
