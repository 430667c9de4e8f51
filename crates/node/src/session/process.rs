use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use mini_ork_protocol::{
    ByteString, ExitRecord, ProcessRecord, SessionAnswer, SessionFound, SessionRequest,
};

use super::SessionError;
use super::client::Client;
use crate::supervise::{CLAIM, Stop, SuperviseError, recorded_exit};
use crate::workspace::{Attached, WorkspaceError, WorkspaceProcess};

/// A program behind the boundary.
#[derive(Debug, Clone)]
pub(super) struct SessionProcess {
    pub(super) client: Arc<Client>,
    /// Where its records are on this machine.
    pub(super) host: PathBuf,
    pub(super) directory: ByteString,
    pub(super) record: Option<ProcessRecord>,
}

#[async_trait]
impl WorkspaceProcess for SessionProcess {
    async fn wait(&self) -> Result<ExitRecord, WorkspaceError> {
        let request = SessionRequest::Wait {
            directory: self.directory.clone(),
        };
        let lost = || SuperviseError::Lost {
            directory: self.host.clone(),
            detail: String::new(),
        };
        match self.client.ask(&request, &[], None).await {
            Ok((SessionAnswer::Found(SessionFound::Ended { exit }), _)) => Ok(exit),
            Ok((SessionAnswer::Found(SessionFound::Lost), _)) => Err(lost().into()),
            Ok(_) => Err(SessionError::Confused.into()),
            // It may have ended before its sandbox did.
            Err(SessionError::Gone {
                reason,
                out_of_memory,
            }) => match recorded_exit(&self.host)? {
                Some(exit) => Ok(exit),
                None if out_of_memory => Err(WorkspaceError::OutOfMemory { reason }),
                None => Err(SuperviseError::Lost {
                    directory: self.host.clone(),
                    detail: format!(": {reason}"),
                }
                .into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    fn stop(&self, how: Stop) -> Result<(), WorkspaceError> {
        let request = SessionRequest::Stop {
            directory: self.directory.clone(),
            now: how == Stop::Immediate,
        };
        let client = Arc::clone(&self.client);
        // Where it cannot be asked, the wait for the end fails in the same way.
        tokio::spawn(async move { client.ask_briefly(&request).await });
        Ok(())
    }

    fn record(&self) -> Option<&ProcessRecord> {
        self.record.as_ref()
    }
}

/// What became of a process whose sandbox is gone.
pub(super) fn after_the_end(directory: &Path) -> Result<Attached, SuperviseError> {
    Ok(match recorded_exit(directory)? {
        Some(exit) => Attached::Ended(exit),
        None if directory.join(CLAIM).exists() => Attached::Lost,
        None => Attached::NeverStarted,
    })
}
