use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ByteString, SecretBytes};

/// Everything that a supervisor needs to run one program.
///
/// It travels over a pipe and is never written to disk: the environment may hold what belongs in no
/// file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// [`crate::GENERATION`] of the writer.
    pub generation: u32,
    /// Program and arguments; the program is looked up on the `PATH` of `env`.
    pub argv: Vec<ByteString>,
    /// Absolute working directory.
    pub cwd: ByteString,
    /// The whole environment; nothing is inherited.
    pub env: Vec<(ByteString, ByteString)>,
    /// What the program reads.
    pub stdin: StdinSource,
    /// Text that no other process has, put into the environment as `MO_RUN_MARKER`, by which
    /// survivors are found after the supervisor itself is gone.
    pub marker: String,
    /// Wall-clock limit in milliseconds; none when absent.
    pub timeout_ms: Option<u64>,
    /// Time in milliseconds between the polite signal and the final one.
    pub grace_ms: u64,
    /// Most bytes that stdout and stderr together may take on disk; the process is stopped beyond.
    pub output_limit: u64,
    /// What the program must not leave in its logs, because it is in `env`. When there is none, the
    /// program writes straight into its logs; else the supervisor passes its output on.
    ///
    /// An earlier supervisor does not know of these and would write them down: they came with
    /// generation 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretBytes>,
}

/// The values of the environment are not shown.
impl fmt::Debug for ProcessSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&ByteString> = self.env.iter().map(|(name, _)| name).collect();
        formatter
            .debug_struct("ProcessSpec")
            .field("argv", &self.argv)
            .field("cwd", &self.cwd)
            .field("env", &names)
            .field("secrets", &self.secrets)
            .finish_non_exhaustive()
    }
}

/// What a program finds on its standard input. Never the terminal of whoever started mini-ork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdinSource {
    /// End of file at once.
    Null,
    /// A regular file: a prompt of any size is delivered whole, whether or not it is read.
    File(ByteString),
}

/// A process that cannot be mistaken for a later one that got the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot, field 22 of `/proc/<pid>/stat`.
    pub start_ticks: u64,
}

/// Which mechanism holds the descendants of a process together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Containment {
    /// A cgroup v2 of its own: nothing escapes, whatever it does to its parents.
    Cgroup,
    /// The supervisor is the reaper of orphans; survivors of a killed supervisor are found by
    /// their marker.
    Subreaper,
    /// Orphans are found by their marker, on a kernel that does not give them to the supervisor.
    Marker,
}

/// Written by the supervisor as `process.json` once the program runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// [`crate::GENERATION`] of the writer.
    pub generation: u32,
    /// The supervisor.
    pub supervisor: ProcessIdentity,
    /// The program; its process group has the same number.
    pub program: ProcessIdentity,
    /// As in the [`ProcessSpec`].
    pub marker: String,
    /// How descendants are held.
    pub containment: Containment,
    /// Absolute path of the cgroup, when there is one.
    pub cgroup: Option<String>,
    /// Milliseconds since the Unix epoch.
    pub started_at_ms: u64,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum ExitOutcome {
    /// By itself.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// By a signal that mini-ork did not send.
    Signaled {
        /// The signal's number.
        signal: i32,
    },
    /// Stopped at its time limit.
    TimedOut,
    /// Stopped because mini-ork was told to.
    Stopped,
    /// Stopped for the sake of the disk: more output than its limit, or little was left, which
    /// [`Shortage::disk_left`] then tells.
    OutputLimit,
    /// Never ran.
    SpawnFailed {
        /// What the system said.
        message: String,
    },
}

/// Written by the supervisor as `exit.json`, once and last: after it, no process of the program is
/// left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// [`crate::GENERATION`] of the writer.
    pub generation: u32,
    /// How it ended.
    pub outcome: ExitOutcome,
    /// Milliseconds since the Unix epoch.
    pub started_at_ms: u64,
    /// Milliseconds since the Unix epoch.
    pub ended_at_ms: u64,
    /// Descendants that were still there when the program ended, and were killed.
    pub stragglers: u32,
    /// What was short while it ran, when anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortage: Option<Shortage>,
}

/// What was short while a program ran.
///
/// The counts are those of the control group that it was in, which others may have been in as well:
/// they explain a failure and are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shortage {
    /// Processes that the system killed because memory ran out.
    pub killed: u64,
    /// Most bytes of memory that the group may have.
    pub memory_limit: Option<u64>,
    /// Most bytes of memory that it ever had.
    pub memory_peak: Option<u64>,
    /// How often a process or thread was not made because there were too many.
    pub forks_refused: u64,
    /// Most processes and threads that the group may have.
    pub process_limit: Option<u64>,
    /// Bytes that were left on the disk when the program was stopped for it.
    pub disk_left: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An old supervisor's record must stay readable: change the text here only with a new
    /// generation, and then keep this one beside it.
    #[test]
    fn generation_1_records_are_frozen() {
        let exit = r#"{"generation":1,"outcome":{"kind":"exited","code":7},"started_at_ms":1,"ended_at_ms":2,"stragglers":0}"#;
        let record: ExitRecord = serde_json::from_str(exit).unwrap();
        assert_eq!(record.outcome, ExitOutcome::Exited { code: 7 });
        assert_eq!(serde_json::to_string(&record).unwrap(), exit);

        let process = r#"{"generation":1,"supervisor":{"pid":10,"start_ticks":5},"program":{"pid":11,"start_ticks":6},"marker":"m","containment":"subreaper","cgroup":null,"started_at_ms":1}"#;
        let record: ProcessRecord = serde_json::from_str(process).unwrap();
        assert_eq!(serde_json::to_string(&record).unwrap(), process);

        let spec = r#"{"generation":1,"argv":["dHJ1ZQ=="],"cwd":"Lw==","env":[],"stdin":"null","marker":"m","timeout_ms":null,"grace_ms":2000,"output_limit":1}"#;
        let record: ProcessSpec = serde_json::from_str(spec).unwrap();
        assert_eq!(serde_json::to_string(&record).unwrap(), spec);
    }

    #[test]
    fn what_was_short_is_optional() {
        let exit = r#"{"generation":2,"outcome":{"kind":"signaled","signal":9},"started_at_ms":1,"ended_at_ms":2,"stragglers":0,"shortage":{"killed":1,"memory_limit":64,"memory_peak":64,"forks_refused":0,"process_limit":null,"disk_left":null}}"#;
        let record: ExitRecord = serde_json::from_str(exit).unwrap();
        assert_eq!(record.shortage.unwrap().killed, 1);
        assert_eq!(serde_json::to_string(&record).unwrap(), exit);
    }

    #[test]
    fn generation_2_records_are_frozen() {
        let spec = r#"{"generation":2,"argv":["dHJ1ZQ=="],"cwd":"Lw==","env":[],"stdin":"null","marker":"m","timeout_ms":null,"grace_ms":2000,"output_limit":1,"secrets":["U0VOVElORUw="]}"#;
        let record: ProcessSpec = serde_json::from_str(spec).unwrap();
        assert_eq!(record.secrets, [SecretBytes::from(b"SENTINEL".as_slice())]);
        assert_eq!(serde_json::to_string(&record).unwrap(), spec);
    }

    #[test]
    fn what_is_in_the_environment_is_not_shown() {
        let spec = r#"{"generation":2,"argv":["dHJ1ZQ=="],"cwd":"Lw==","env":[["S0VZ","U0VOVElORUw="]],"stdin":"null","marker":"m","timeout_ms":null,"grace_ms":2000,"output_limit":1,"secrets":["U0VOVElORUw="]}"#;
        let record: ProcessSpec = serde_json::from_str(spec).unwrap();
        let shown = format!("{record:?} {record:#?}");
        assert!(
            shown.contains("KEY") && !shown.contains("SENTINEL"),
            "{shown}"
        );
    }
}
