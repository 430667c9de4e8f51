//! From the errors of the layers below to the closed set of reasons.

use std::error::Error;
use std::io;

use mini_ork_node::git::{GitError, PublishError};
use mini_ork_node::text::with_sources;
use mini_ork_node::tree::TreeError;
use mini_ork_node::workspace::WorkspaceError;
use mini_ork_protocol::{ExitOutcome, ExitRecord};

use super::event::{Failure, Remedy};
use crate::reason::Reason;

/// Git, a worktree or the user's repository refused.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// A worktree.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The user's repository.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

impl From<GitError> for WorkError {
    fn from(error: GitError) -> Self {
        Self::Tree(error.into())
    }
}

impl From<io::Error> for WorkError {
    fn from(error: io::Error) -> Self {
        Self::Tree(error.into())
    }
}

/// A failure of the ground that a node stands on, not of the node.
pub(crate) fn ground_failure(error: &(dyn Error + 'static)) -> Failure {
    let out_of_memory = error
        .downcast_ref::<WorkspaceError>()
        .is_some_and(WorkspaceError::is_out_of_memory);
    // Its program has closed something that belongs to its result.
    let unreadable = matches!(
        error.downcast_ref::<WorkError>(),
        Some(WorkError::Tree(TreeError::Unreadable { .. }))
    );
    Failure {
        reason: if is_disk_full(error) {
            Reason::DiskFull
        } else if out_of_memory {
            Reason::Oom
        } else if unreadable {
            Reason::ArtifactContract
        } else {
            Reason::InfraLost
        },
        detail: with_sources(error),
        remedy: Remedy::None,
    }
}

/// Whether the cause of `error` is a full disk.
pub(crate) fn is_disk_full(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let known = error.downcast_ref::<io::Error>().is_some_and(|error| {
            matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            )
        });
        let database = error
            .downcast_ref::<rusqlite::Error>()
            .is_some_and(|error| error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull));
        // Git and a supervisor say it in words, in the C locale; and a transparent wrapper hides
        // the error that it wraps.
        if known || database || says_disk_full(&error.to_string()) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether `text` says that a disk is full, in the words of the system or in git's own.
pub(crate) fn says_disk_full(text: &str) -> bool {
    [
        "No space left on device",
        "Disk quota exceeded",
        "Out of diskspace",
    ]
    .iter()
    .any(|words| text.contains(words))
}

/// What a program failed for want of, when that is on record: another attempt on the same machine
/// would end in the same way.
pub(crate) fn shortage(record: &ExitRecord) -> Option<Failure> {
    let short = record.shortage.as_ref()?;
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    let (reason, detail) = match (&record.outcome, short.disk_left) {
        (ExitOutcome::OutputLimit, Some(left)) => (
            Reason::DiskFull,
            format!(
                "was stopped because only {} were left on the disk",
                mebibytes(left)
            ),
        ),
        (ExitOutcome::Exited { code: 0 }, _) => return None,
        (ExitOutcome::Exited { .. } | ExitOutcome::Signaled { .. }, _) if short.killed > 0 => {
            let killed = match short.killed {
                1 => "1 process was killed".to_owned(),
                count => format!("{count} processes were killed"),
            };
            let limit = short.memory_limit.map_or_else(String::new, |limit| {
                format!(" at the limit of {}", mebibytes(limit))
            });
            let peak = short.memory_peak.map_or_else(String::new, |peak| {
                format!(" (most that was in use: {})", mebibytes(peak))
            });
            (
                Reason::Oom,
                format!("ran out of memory: {killed}{limit}{peak}"),
            )
        }
        _ => return None,
    };
    Some(Failure {
        reason,
        detail,
        remedy: Remedy::None,
    })
}

/// What explains a failure of `record` without being proof of it; empty when there is nothing.
pub(crate) fn hint_of_shortage(record: &ExitRecord) -> String {
    let Some(short) = record.shortage.as_ref().filter(|it| it.forks_refused > 0) else {
        return String::new();
    };
    let limit = short
        .process_limit
        .map_or_else(String::new, |limit| format!(" beyond {limit}"));
    format!(" (no more processes could be made{limit}: MO_SANDBOX_PIDS is the limit)")
}

#[cfg(test)]
mod tests {
    use mini_ork_protocol::{GENERATION, Shortage};

    use super::*;

    fn ended(outcome: ExitOutcome, shortage: Shortage) -> ExitRecord {
        ExitRecord {
            generation: GENERATION,
            outcome,
            started_at_ms: 0,
            ended_at_ms: 1,
            stragglers: 0,
            shortage: Some(shortage),
        }
    }

    #[test]
    fn bc_69_memory_that_ran_out_explains_a_failure_and_is_none() {
        let short = Shortage {
            killed: 1,
            memory_limit: Some(64 << 20),
            memory_peak: Some(63 << 20),
            ..Shortage::default()
        };
        let leader = ended(ExitOutcome::Signaled { signal: 9 }, short);
        let failure = shortage(&leader).unwrap();
        assert_eq!(
            (failure.reason, failure.remedy),
            (Reason::Oom, Remedy::None)
        );
        assert_eq!(
            failure.detail,
            "ran out of memory: 1 process was killed at the limit of 64 MiB (most that was in use: \
             63 MiB)"
        );
        assert!(shortage(&ended(ExitOutcome::Exited { code: 137 }, short)).is_some());
        assert!(shortage(&ended(ExitOutcome::Exited { code: 0 }, short)).is_none());
        assert!(shortage(&ended(ExitOutcome::TimedOut, short)).is_none());
        let none = ended(ExitOutcome::Exited { code: 1 }, Shortage::default());
        assert!(shortage(&none).is_none() && hint_of_shortage(&none).is_empty());
    }

    #[test]
    fn bc_70_a_disk_that_was_filled_is_told() {
        let short = Shortage {
            disk_left: Some(15 << 20),
            ..Shortage::default()
        };
        let failure = shortage(&ended(ExitOutcome::OutputLimit, short)).unwrap();
        assert_eq!(failure.reason, Reason::DiskFull);
        assert!(failure.detail.contains("15 MiB"), "{}", failure.detail);
    }

    #[test]
    fn a_full_disk_is_found_below() {
        let full = WorkError::from(io::Error::from_raw_os_error(28));
        assert_eq!(ground_failure(&full).reason, Reason::DiskFull);
        let said = io::Error::other("fatal: write error: No space left on device");
        assert!(is_disk_full(&said));
        let by_git = "fatal: sha1 file 'main.index.lock' write error. Out of diskspace";
        assert!(is_disk_full(&io::Error::other(by_git)));
        let other = io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(ground_failure(&other).reason, Reason::InfraLost);
    }
}
