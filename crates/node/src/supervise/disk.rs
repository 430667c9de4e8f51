use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::family::Family;
use super::watch::TICK;
use crate::sys::disk_free;
use crate::sys::written::Written;

/// How long next to nothing may be left until a program ends for it that wrote little: whoever took
/// the room has its own supervisor, which ends it within that time.
const PATIENCE: Duration = Duration::from_millis(200);

/// How often it is asked how much a program wrote until it is taken to have written much.
const TRIES: u32 = 3;

/// The room on the disk that a program shares with everything else of this user, and who took it.
#[derive(Debug)]
pub(super) struct Disk {
    /// The record directory, which is on it.
    directory: PathBuf,
    written: Written,
    /// What was left when the program was last found to have written little, and when.
    spared: Option<(u64, Instant)>,
    /// How often in a row it could not be told how much the program wrote.
    untold: u32,
    /// Since when next to nothing is left.
    lowest_since: Option<Instant>,
    /// What was left when the program had to end for the sake of the disk.
    pub(super) left: Option<u64>,
}

impl Disk {
    pub(super) fn new(directory: PathBuf, written: Written) -> Self {
        Self {
            directory,
            written,
            spared: None,
            untold: 0,
            lowest_since: None,
            left: None,
        }
    }

    /// Looks whether the program has to end, which [`Self::left`] then tells; gives how long it is
    /// until the next look. A disk that cannot be asked is no reason to end.
    ///
    /// While little is left, a program ends when it wrote much itself, or when that cannot be told:
    /// what another one has filled does not end it. When next to nothing is left it ends in any
    /// case, for then nothing could be written down any more.
    pub(super) fn look(&mut self, family: &Family) -> Duration {
        let Ok(free) = disk_free(&self.directory) else {
            return TICK;
        };
        let now = Instant::now();
        if !free.is_low() {
            (self.spared, self.lowest_since, self.untold) = (None, None, 0);
            return free.lasts();
        }
        self.lowest_since = free.is_lowest().then(|| self.lowest_since.unwrap_or(now));
        let is_out = self
            .lowest_since
            .is_some_and(|since| now.duration_since(since) >= PATIENCE);
        // The process table is read again when there is less by now, or after a while.
        let much = free.much();
        let is_spared = self.spared.is_some_and(|(left, at)| {
            free.bytes.saturating_add(much / 4) > left && now.duration_since(at) < TICK
        });
        if is_out || !is_spared && self.has_written(much, family) {
            self.left = Some(free.bytes);
        } else if !is_spared && self.untold == 0 {
            self.spared = Some((free.bytes, now));
        }
        free.lasts()
    }

    fn has_written(&mut self, much: u64, family: &Family) -> bool {
        let Some(wrote) = self.wrote(family) else {
            self.untold += 1;
            return self.untold >= TRIES;
        };
        self.untold = 0;
        wrote >= much
    }

    fn wrote(&self, family: &Family) -> Option<u64> {
        let processes = family.processes().ok()?;
        // Children tend to come after their parents in the table, and whoever is waited for
        // meanwhile is to be found in its parent's account.
        let pids = processes.iter().rev().map(|status| status.identity.pid);
        self.written.so_far(pids, &self.directory)
    }
}
