//! From the errors of the layers below to the closed set of reasons.

use std::error::Error;
use std::io;

use mini_ork_node::git::{GitError, PublishError};
use mini_ork_node::tree::TreeError;

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
    Failure {
        reason: if is_disk_full(error) {
            Reason::DiskFull
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
        let text = error.to_string();
        let said = ["No space left on device", "Disk quota exceeded"]
            .iter()
            .any(|words| text.contains(words));
        if known || database || said {
            return true;
        }
        cause = error.source();
    }
    false
}

/// `error` with all its causes, in one line.
pub fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let said = source.to_string();
        // A transparent wrapper says what its source says.
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_found_below() {
        let full = WorkError::from(io::Error::from_raw_os_error(28));
        assert_eq!(ground_failure(&full).reason, Reason::DiskFull);
        let said = io::Error::other("fatal: write error: No space left on device");
        assert!(is_disk_full(&said));
        let other = io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(ground_failure(&other).reason, Reason::InfraLost);
    }
}
