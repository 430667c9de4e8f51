use std::path::{Path, PathBuf};

use super::cgroup::{self, Cgroup};

/// Limits from here on are none.
const UNLIMITED: u64 = 1 << 60;

/// What the control groups of a program count: processes that were killed because memory ran out,
/// and processes that were not made because there were too many.
#[derive(Debug)]
pub(crate) struct Counters {
    memory: Option<(PathBuf, MemoryFiles)>,
    processes: Option<PathBuf>,
    at_start: Counts,
}

/// Names of the files, which differ by the version of control groups.
#[derive(Debug, Clone, Copy)]
struct MemoryFiles {
    events: &'static str,
    limit: &'static str,
    peak: &'static str,
}

const FIRST_VERSION: MemoryFiles = MemoryFiles {
    events: "memory.oom_control",
    limit: "memory.limit_in_bytes",
    peak: "memory.max_usage_in_bytes",
};
const SECOND_VERSION: MemoryFiles = MemoryFiles {
    events: "memory.events",
    limit: "memory.max",
    peak: "memory.peak",
};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    killed: u64,
    forks_refused: u64,
}

/// What was counted since the start of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) killed: u64,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) memory_peak: Option<u64>,
    pub(crate) forks_refused: u64,
    pub(crate) process_limit: Option<u64>,
}

impl Counters {
    /// Begins to count for a program that will be in `group`, else in the groups of this process.
    /// Where a system shows no counters, nothing is counted.
    pub(crate) fn start(group: Option<&Cgroup>) -> Self {
        let unified: Vec<PathBuf> = group
            .map(|group| group.path().to_owned())
            .into_iter()
            .chain(cgroup::own_groups(None))
            .collect();
        let of = |controller: &str, file: &'static str| {
            let mut found = cgroup::own_groups(Some(controller)).into_iter();
            found.find(|path| path.join(file).is_file())
        };
        let memory = of("memory", FIRST_VERSION.events).map(|path| (path, FIRST_VERSION));
        let mut counters = Self {
            memory: memory.or_else(|| {
                let path = upward(&unified, SECOND_VERSION.events)?;
                Some((path, SECOND_VERSION))
            }),
            processes: of("pids", PROCESSES.0).or_else(|| upward(&unified, PROCESSES.0)),
            at_start: Counts::default(),
        };
        counters.at_start = counters.read();
        counters
    }

    /// What was counted since; none when nothing was.
    pub(crate) fn since_start(&self) -> Option<Counted> {
        let now = self.read();
        let killed = now.killed.saturating_sub(self.at_start.killed);
        let forks_refused = now
            .forks_refused
            .saturating_sub(self.at_start.forks_refused);
        if (killed, forks_refused) == (0, 0) {
            return None;
        }
        let memory = |name: fn(MemoryFiles) -> &'static str| {
            let (path, files) = self.memory.as_ref()?;
            number(&path.join(name(*files)))
        };
        let processes = self.processes.as_ref();
        Some(Counted {
            killed,
            memory_limit: memory(|files| files.limit).filter(|limit| *limit < UNLIMITED),
            memory_peak: memory(|files| files.peak),
            forks_refused,
            process_limit: processes.and_then(|path| number(&path.join(PROCESSES.1))),
        })
    }

    fn read(&self) -> Counts {
        let memory = self.memory.as_ref();
        let processes = self.processes.as_ref();
        Counts {
            killed: memory
                .and_then(|(path, files)| field(&path.join(files.events), "oom_kill"))
                .unwrap_or(0),
            forks_refused: processes
                .and_then(|path| field(&path.join(PROCESSES.0), "max"))
                .unwrap_or(0),
        }
    }
}

/// Where refused processes are counted, and what their limit is.
const PROCESSES: (&str, &str) = ("pids.events", "pids.max");

/// The first of `groups`, or of those around them, that has `file`.
fn upward(groups: &[PathBuf], file: &str) -> Option<PathBuf> {
    let around = groups.iter().flat_map(|group| group.ancestors());
    around
        .take_while(|path| cgroup::is_cgroup(path))
        .find(|path| path.join(file).is_file())
        .map(Path::to_owned)
}

/// The number behind `name` in a file with a name and a number in each line.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs_err::read_to_string(path).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .find(|(found, _)| *found == name)
        .and_then(|(_, number)| number.trim().parse().ok())
}

/// The number in a file; none when it says that there is no limit.
fn number(path: &Path) -> Option<u64> {
    fs_err::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(directory: &Path, files: MemoryFiles) -> Counters {
        let mut counters = Counters {
            memory: Some((directory.to_owned(), files)),
            processes: Some(directory.to_owned()),
            at_start: Counts::default(),
        };
        counters.at_start = counters.read();
        counters
    }

    #[test]
    fn what_happened_before_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs_err::write(directory.path().join(name), text);
        put(
            "memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        )
        .unwrap();
        put("memory.limit_in_bytes", "67108864\n").unwrap();
        put("memory.max_usage_in_bytes", "67108860\n").unwrap();
        put("pids.events", "max 7\n").unwrap();
        put("pids.max", "16\n").unwrap();
        let counters = counters(directory.path(), FIRST_VERSION);
        assert_eq!(counters.since_start(), None);
        put(
            "memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        )
        .unwrap();
        put("pids.events", "max 9\n").unwrap();
        let counted = counters.since_start().unwrap();
        assert_eq!(
            counted,
            Counted {
                killed: 1,
                memory_limit: Some(64 << 20),
                memory_peak: Some((64 << 20) - 4),
                forks_refused: 2,
                process_limit: Some(16),
            }
        );
    }

    #[test]
    fn no_limit_is_no_number() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs_err::write(directory.path().join(name), text);
        put("memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n").unwrap();
        let counters = counters(directory.path(), SECOND_VERSION);
        put("memory.events", "oom_kill 1\n").unwrap();
        put("memory.max", "max\n").unwrap();
        let counted = counters.since_start().unwrap();
        assert_eq!((counted.killed, counted.memory_limit), (1, None));
        assert_eq!((counted.memory_peak, counted.process_limit), (None, None));
    }

    #[test]
    fn whatever_this_machine_shows_is_no_failure() {
        let _ = Counters::start(None).since_start();
    }
}
