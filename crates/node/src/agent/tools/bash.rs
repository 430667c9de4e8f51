use std::sync::Arc;
use std::time::Duration;

use mini_ork_protocol::{ByteString, ExitOutcome, StdinSource};
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Outcome, Toolbox, records_of};
use crate::agent::excerpt::read_shortened;
use crate::supervise::{STDOUT_LOG, Stop, SuperviseError};
use crate::sys::remove_tree_strictly;
use crate::workspace::{SpawnRequest, Workspace, WorkspaceError};

/// The system takes arguments of less than 128 KiB.
const LONGEST_COMMAND: usize = 100 << 10;
/// A command that writes more is ended: what it writes takes room on the disk.
const MOST_OUTPUT: u64 = 64 << 20;
const GRACE: Duration = Duration::from_secs(2);
/// Runs its first argument with bash, or with sh where there is none. Errors come in their place
/// between the rest of the output.
const SHELL: &str = "if command -v bash >/dev/null 2>&1; then exec bash -c \"$1\" 2>&1; \
                     else exec sh -c \"$1\" 2>&1; fi";

#[derive(Debug, Deserialize)]
pub(super) struct Bash {
    command: String,
    timeout_s: Option<u64>,
}

impl Toolbox {
    /// Runs a command. It is over, with all that it started, when this returns.
    pub(super) async fn bash(&mut self, bash: &Bash, deadline: Option<Instant>) -> Outcome {
        if bash.command.len() > LONGEST_COMMAND {
            return Outcome::refused(&format!(
                "the command is longer than {LONGEST_COMMAND} bytes; write it to a file first"
            ));
        }
        if bash.command.contains('\0') {
            return Outcome::refused("the command has a NUL in it, which no argument can");
        }
        let mut limit = self.longest_command;
        if let Some(seconds) = bash.timeout_s {
            limit = limit.min(Duration::from_secs(seconds.max(1)));
        }
        if let Some(deadline) = deadline {
            limit = limit.min(deadline.saturating_duration_since(Instant::now()));
        }
        self.commands += 1;
        let records = records_of(&self.records, self.commands);
        let request = SpawnRequest {
            directory: records.clone(),
            argv: ["sh", "-c", SHELL, "sh", &bash.command]
                .into_iter()
                .map(ByteString::from)
                .collect(),
            cwd: self.root.clone(),
            env: self.environment.clone(),
            stdin: StdinSource::Null,
            timeout: Some(limit),
            grace: GRACE,
            output_limit: MOST_OUTPUT,
            secrets: Vec::new(),
        };
        let ended = run(Arc::clone(&self.workspace), request).await;
        let output = read_shortened(&records.join(STDOUT_LOG), self.longest_output);
        // They are not needed any more, and a second try is made for all of them at the end.
        let _ = tokio::task::spawn_blocking(move || remove_tree_strictly(&records)).await;
        let mut content = output.unwrap_or_default();
        let end = match ended {
            Ok(outcome) => outcome,
            Err(error) => {
                return Outcome::refused(&format!("the command could not be run: {error}"));
            }
        };
        let ok = end == ExitOutcome::Exited { code: 0 };
        let note = match end {
            ExitOutcome::Exited { code: 0 } if !content.is_empty() => None,
            ExitOutcome::Exited { code } => Some(format!("exit code {code}")),
            ExitOutcome::Signaled { signal } => Some(format!("ended by signal {signal}")),
            ExitOutcome::TimedOut => Some(format!(
                "ended after {} s, which was its time limit",
                limit.as_secs()
            )),
            ExitOutcome::Stopped => Some("it was stopped".to_owned()),
            ExitOutcome::OutputLimit => Some(format!(
                "ended because it wrote more than {} MiB",
                MOST_OUTPUT >> 20
            )),
            ExitOutcome::SpawnFailed { message } => Some(message),
        };
        if let Some(note) = note {
            if !content.is_empty() && !content.ends_with('\n') {
                content.push('\n');
            }
            content.push_str(&format!("[{note}]"));
        }
        Outcome {
            content,
            ok,
            finished: None,
        }
    }
}

/// Runs a program to its end. When the future is dropped the program is stopped, also when it is
/// only being started: that is why a task of its own has it.
async fn run(
    workspace: Arc<dyn Workspace>,
    request: SpawnRequest,
) -> Result<ExitOutcome, WorkspaceError> {
    let (waiting, abandoned) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let process = workspace.spawn(request).await?;
        tokio::select! {
            exit = process.wait() => return exit,
            _ = abandoned => {}
        }
        process.stop(Stop::Immediate)?;
        process.wait().await
    });
    let ended = task.await;
    drop(waiting);
    match ended {
        Ok(exit) => Ok(exit?.outcome),
        Err(error) => Err(WorkspaceError::Supervise(SuperviseError::Process {
            action: "run a task",
            source: error.into(),
        })),
    }
}
