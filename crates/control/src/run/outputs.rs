//! Which programs a run has started, in order, and where their output lies.

use std::path::{Path, PathBuf};

use mini_ork_node::supervise::{CLAIM, STDERR_LOG, STDOUT_LOG, last_line, last_line_in, log_edges};
use mini_ork_protocol::{ExitRecord, NodeId, ProcessRecord};

use super::directory::{RunDirectory, read_json};
use super::event::RunEvent;
use super::plan::Plan;
use crate::lanes::{Driver, TranscriptParser};
use crate::store::JournaledEvent;

/// How much of the end of a transcript is read for the last thing in it.
const LAST_ENTRY_WINDOW: usize = 64 << 10;

/// A program that a run started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessOutput {
    /// The node that it belongs to.
    pub node: NodeId,
    /// Round of the node, from 1.
    pub round: u32,
    /// Attempt in the round, from 1.
    pub attempt: u32,
    /// Its name in the attempt, such as `lane`; of a program that worked on the base for all
    /// rounds, it begins with `base/`.
    pub process: String,
    /// Where its `stdout.log` and `stderr.log` are.
    pub directory: PathBuf,
    /// Milliseconds since the Unix epoch; 0 while it is being started.
    pub started_at_ms: u64,
    /// Whether its output is complete.
    pub ended: bool,
    /// What its standard output is a transcript of; none for every program but an agent that asks
    /// a model.
    pub driver: Option<Driver>,
}

/// Every program that the run in `directory` has started, in the order in which they started.
///
/// `events` is the run's journal. Programs lie in the directory of their attempt; one that worked
/// on the base for all rounds belongs to the verifier that ran at that time.
pub fn process_outputs(directory: &RunDirectory, events: &[JournaledEvent]) -> Vec<ProcessOutput> {
    let mut found = Vec::new();
    let mut attempts: Vec<Attempt> = Vec::new();
    // Without a plan that can be read there is only output.
    let plan: Option<Plan> = read_json(&directory.plan()).ok();
    for journaled in events {
        let RunEvent::NodeStarted(start) = &journaled.event else {
            continue;
        };
        let root = directory.attempt(&start.node, start.round, start.attempt);
        let processes = process_directories_of(&root);
        let attempt = Attempt {
            node: start.node.clone(),
            round: start.round,
            attempt: start.attempt,
            started_at_ms: journaled.at_ms,
            ended_at_ms: ended_at(events, &start.node, start.round, start.attempt),
            verifies: processes.iter().any(|process| !is_lane(process)),
            driver: plan
                .as_ref()
                .and_then(|plan| plan.driver(&start.node, start.lane.as_deref())),
        };
        // A recovered run starts one attempt twice on record.
        let again = attempts.iter().any(|known| known.is_same(&attempt));
        if !again {
            for process in processes {
                found.push(attempt.output(&root, process, ""));
            }
        }
        attempts.push(attempt);
    }
    let baseline = directory.root().join("baseline");
    for process in process_directories_below(&baseline) {
        let started_at_ms = started_at(&process);
        let owner = attempts
            .iter()
            .filter(|attempt| attempt.verifies && attempt.covers(started_at_ms))
            .max_by_key(|attempt| attempt.started_at_ms);
        if let Some(owner) = owner {
            found.push(owner.output(&baseline, process, "base/"));
        }
    }
    found.sort_by(|left, right| {
        let key = |output: &ProcessOutput| (output.started_at_ms == 0, output.started_at_ms);
        key(left)
            .cmp(&key(right))
            .then_with(|| (&left.node, &left.process).cmp(&(&right.node, &right.process)))
    });
    found
}

/// The last line that the programs of the attempt in `directory` wrote, as text that is fit for a
/// terminal: of the program that started last, from the log that was written last.
///
/// Of an agent of `driver`, whose output is for machines, it is the last thing that the agent did or
/// said. None when that is too far from the end of what it printed.
pub fn last_words(directory: &Path, driver: Option<Driver>) -> Option<String> {
    let modified = |path: &Path| {
        fs_err::metadata(path)
            .and_then(|found| found.modified())
            .ok()
    };
    let process = process_directories_of(directory)
        .into_iter()
        .max_by_key(|process| modified(&process.join(CLAIM)))?;
    if let Some(driver) = driver.filter(|_| is_lane(&process)) {
        return last_entry(&process.join(STDOUT_LOG), driver)
            .or_else(|| last_line(&process.join(STDERR_LOG)).ok().flatten());
    }
    let mut logs = [STDERR_LOG, STDOUT_LOG].map(|log| process.join(log));
    // Stable: of two that are equally old, standard output wins.
    logs.sort_by_key(|log| modified(log));
    logs.iter()
        .rev()
        .find_map(|log| last_line(log).ok().flatten())
}

/// The last thing that an agent did or said, as one line.
fn last_entry(log: &Path, driver: Driver) -> Option<String> {
    let end = log_edges(log, 0, LAST_ENTRY_WINDOW).ok()?.tail;
    // A line that has no end yet is being written; one that has no beginning is not read.
    let entries = TranscriptParser::new(driver).push(&end);
    entries
        .iter()
        .rev()
        .find_map(|entry| last_line_in(entry.text.as_bytes()))
}

/// Whether `process` is the program of the lane itself.
fn is_lane(process: &Path) -> bool {
    process.ends_with("lane")
}

struct Attempt {
    node: NodeId,
    round: u32,
    attempt: u32,
    started_at_ms: u64,
    ended_at_ms: Option<u64>,
    verifies: bool,
    driver: Option<Driver>,
}

impl Attempt {
    fn is_same(&self, other: &Self) -> bool {
        (&self.node, self.round, self.attempt) == (&other.node, other.round, other.attempt)
    }

    fn covers(&self, at_ms: u64) -> bool {
        self.started_at_ms <= at_ms && self.ended_at_ms.is_none_or(|ended| at_ms <= ended)
    }

    fn output(&self, root: &Path, directory: PathBuf, prefix: &str) -> ProcessOutput {
        let outside = super::directory::outside_of(root);
        let name = directory
            .strip_prefix(root)
            .ok()
            .or_else(|| directory.strip_prefix(outside?).ok())
            .unwrap_or(&directory)
            .display();
        ProcessOutput {
            node: self.node.clone(),
            round: self.round,
            attempt: self.attempt,
            process: format!("{prefix}{name}"),
            started_at_ms: started_at(&directory),
            ended: directory.join("exit.json").is_file(),
            driver: self.driver.filter(|_| is_lane(&directory)),
            directory,
        }
    }
}

fn ended_at(events: &[JournaledEvent], of: &NodeId, of_round: u32, of_attempt: u32) -> Option<u64> {
    events
        .iter()
        .rev()
        .find_map(|journaled| match &journaled.event {
            RunEvent::NodeEnded {
                node,
                round,
                attempt,
                ..
            } if (node, *round, *attempt) == (of, of_round, of_attempt) => Some(journaled.at_ms),
            _ => None,
        })
}

/// The processes of the attempt in `directory`, also those that ran outside of the boundary of the
/// run: what programs inside left in the place of one of them is none.
fn process_directories_of(directory: &Path) -> Vec<PathBuf> {
    let outside = super::directory::outside_of(directory);
    let mut found = outside.map_or_else(Vec::new, |outside| process_directories_below(&outside));
    let is_outside = found.iter().any(|process| is_lane(process));
    let inside = process_directories_below(directory);
    found.extend(
        inside
            .into_iter()
            .filter(|process| !(is_outside && is_lane(process))),
    );
    found
}

fn process_directories_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    super::directory::collect_process_directories(root, 3, &mut found);
    found.sort();
    found
}

fn started_at(directory: &Path) -> u64 {
    read_json::<ProcessRecord>(&directory.join("process.json"))
        .map(|record| record.started_at_ms)
        .or_else(|_| {
            read_json::<ExitRecord>(&directory.join("exit.json")).map(|record| record.started_at_ms)
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use mini_ork_protocol::RunId;

    use super::*;
    use crate::run::{NodeOutcome, NodeStart};

    fn start(node: &str, round: u32, at_ms: u64) -> JournaledEvent {
        journaled(
            at_ms,
            RunEvent::NodeStarted(NodeStart {
                node: NodeId::parse(node).unwrap(),
                round,
                attempt: 1,
                lane: None,
                input: None,
                start: None,
                place: None,
            }),
        )
    }

    fn end(node: &str, round: u32, at_ms: u64) -> JournaledEvent {
        let outcome = NodeOutcome {
            failure: None,
            summary: String::new(),
            evidence: Vec::new(),
            output: None,
            changed_files: 0,
            cost_usd: None,
            session: None,
            cost_unknown: false,
            metered: false,
            duration_ms: 0,
            skipped: false,
        };
        journaled(
            at_ms,
            RunEvent::NodeEnded {
                node: NodeId::parse(node).unwrap(),
                round,
                attempt: 1,
                outcome,
            },
        )
    }

    fn journaled(at_ms: u64, event: RunEvent) -> JournaledEvent {
        JournaledEvent {
            sequence: at_ms,
            at_ms,
            event,
        }
    }

    fn process(directory: &Path, started_at_ms: u64, ended: bool) {
        fs_err::create_dir_all(directory).unwrap();
        fs_err::write(directory.join(CLAIM), "{}").unwrap();
        let identity = r#"{"pid":2,"start_ticks":3}"#;
        let record = format!(
            r#"{{"generation":1,"supervisor":{identity},"program":{identity},"marker":"m",
                "containment":"subreaper","cgroup":null,"started_at_ms":{started_at_ms}}}"#
        );
        fs_err::write(directory.join("process.json"), record).unwrap();
        if ended {
            fs_err::write(directory.join("exit.json"), "{}").unwrap();
        }
    }

    #[test]
    fn programs_are_listed_in_the_order_of_their_start() {
        let home = tempfile::tempdir().unwrap();
        let directory = RunDirectory::of(home.path(), &RunId::parse("abc").unwrap());
        let node = |name: &str| NodeId::parse(name).unwrap();
        process(
            &directory.attempt(&node("work"), 1, 1).join("lane"),
            11,
            true,
        );
        process(
            &directory.attempt(&node("work"), 2, 1).join("lane"),
            41,
            false,
        );
        process(
            &directory.attempt(&node("test"), 1, 1).join("verify-0"),
            22,
            true,
        );
        process(&directory.baseline("d1").join("verify-0"), 25, true);
        let events = [
            start("work", 1, 10),
            end("work", 1, 15),
            start("test", 1, 20),
            end("test", 1, 30),
            start("work", 2, 40),
            start("work", 2, 45),
        ];
        let found = process_outputs(&directory, &events);
        let shown: Vec<String> = found
            .iter()
            .map(|output| {
                format!(
                    "{} {} {} {}",
                    output.node, output.round, output.process, output.ended
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                "work 1 lane true",
                "test 1 verify-0 true",
                "test 1 base/d1/verify-0 true",
                "work 2 lane false",
            ]
        );
    }

    #[test]
    fn the_last_words_are_those_of_the_program_that_started_last() {
        let attempt = tempfile::tempdir().unwrap();
        assert_eq!(last_words(attempt.path(), None), None);
        let age = |path: &Path, seconds: u64| {
            let time = std::time::SystemTime::now() - std::time::Duration::from_secs(seconds);
            let file = fs_err::OpenOptions::new().append(true).open(path).unwrap();
            file.file().set_modified(time).unwrap();
        };
        for (name, seconds) in [("verify-0", 100), ("verify-1", 50)] {
            let directory = attempt.path().join(name);
            process(&directory, 1, false);
            age(&directory.join(CLAIM), seconds);
            fs_err::write(directory.join(STDOUT_LOG), format!("{name} out\n")).unwrap();
            fs_err::write(directory.join(STDERR_LOG), format!("{name} \x1b[31merr\n")).unwrap();
            age(&directory.join(STDOUT_LOG), 20);
            age(&directory.join(STDERR_LOG), 10);
        }
        let said = || last_words(attempt.path(), None);
        assert_eq!(said().as_deref(), Some("verify-1 err"));
        age(&attempt.path().join("verify-1").join(STDERR_LOG), 30);
        assert_eq!(said().as_deref(), Some("verify-1 out"));
    }

    #[test]
    fn the_last_words_of_an_agent_are_what_it_did_last() {
        let attempt = tempfile::tempdir().unwrap();
        let directory = attempt.path().join("lane");
        process(&directory, 1, false);
        let log = directory.join(STDOUT_LOG);
        let said = || last_words(attempt.path(), Some(Driver::BuiltIn));
        assert_eq!(said(), None);
        fs_err::write(directory.join(STDERR_LOG), "a warning\n").unwrap();
        assert_eq!(said().as_deref(), Some("a warning"));

        let text = r#"{"type":"text","text":"One\n\u001b[31mTwo\n"}"#;
        let edit = r#"{"type":"tool","name":"edit","input":"src/page.rs"}"#;
        fs_err::write(&log, format!("{text}\n")).unwrap();
        assert_eq!(said().as_deref(), Some("Two"));
        // What is being written does not count yet, and far back nothing is looked at.
        let padding = format!("{text}\n").repeat(LAST_ENTRY_WINDOW / 20);
        fs_err::write(&log, format!("{padding}{edit}\n{{\"type\":\"te")).unwrap();
        assert_eq!(said().as_deref(), Some("edits src/page.rs"));
        let flood = "x".repeat(LAST_ENTRY_WINDOW);
        fs_err::write(&log, format!("{edit}\n{flood}\n")).unwrap();
        assert_eq!(said().as_deref(), Some("a warning"));
    }

    #[test]
    fn a_run_that_started_nothing_has_no_output() {
        let home = tempfile::tempdir().unwrap();
        let directory = RunDirectory::of(home.path(), &RunId::parse("abc").unwrap());
        assert_eq!(process_outputs(&directory, &[start("work", 1, 1)]), []);
    }
}
