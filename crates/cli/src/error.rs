//! What a command that cannot do its work says, and with which exit code. The one place where
//! wording for people is chosen.

use std::fmt;
use std::process::ExitCode;

use mini_ork_node::redact::Redactor;
use mini_ork_node::text::with_sources;

/// The exit codes of `mini-ork`, for scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// Done.
    Success,
    /// The work failed, or could not be carried out.
    Failure,
    /// Wrong usage or configuration; nothing was made.
    Usage,
    /// The user has to answer something first.
    Blocked,
    /// A budget is used up; the work so far is kept.
    Budget,
    /// Cancelled.
    Cancelled,
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(match status {
            ExitStatus::Success => 0,
            ExitStatus::Failure => 1,
            ExitStatus::Usage => 2,
            ExitStatus::Blocked => 6,
            ExitStatus::Budget => 75,
            ExitStatus::Cancelled => 130,
        })
    }
}

/// One sentence on what failed, details line by line, and one hint.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) status: ExitStatus,
    pub(crate) message: String,
    pub(crate) details: Vec<String>,
    pub(crate) hint: Option<String>,
}

impl CommandError {
    /// Wrong usage or configuration.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitStatus::Usage, message)
    }

    /// Anything else that keeps the command from its work.
    pub(crate) fn failure(message: impl Into<String>) -> Self {
        Self::new(ExitStatus::Failure, message)
    }

    fn new(status: ExitStatus, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            details: Vec::new(),
            hint: None,
        }
    }

    /// With the remedy.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With more lines.
    pub(crate) fn details(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }

    /// Without any value that `redactor` knows.
    pub(crate) fn redacted(mut self, redactor: &Redactor) -> Self {
        let texts = [&mut self.message].into_iter().chain(&mut self.details);
        for text in texts.chain(&mut self.hint) {
            *text = redactor.redact_text(text);
        }
        self
    }

    /// With `error` and all its causes as the reason.
    pub(crate) fn caused_by(mut self, error: &dyn std::error::Error) -> Self {
        self.message.push_str(": ");
        self.message.push_str(&with_sources(error));
        self
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

/// How every command ends.
pub(crate) type CommandResult = Result<ExitStatus, CommandError>;
