use std::io;
use std::path::Path;

use async_trait::async_trait;
use mini_ork_protocol::{ByteString, ExitRecord, GENERATION, ProcessRecord, ProcessSpec};

use super::{Attached, SpawnRequest, Workspace, WorkspaceError, WorkspaceProcess};
use crate::supervise::{Found, Stop, SuperviseError, SupervisedProcess, Supervisor, find};
use crate::sys::random_bytes;

/// Programs run on this machine as this user. There is no boundary; only the processes are held
/// together.
#[derive(Debug, Clone)]
pub struct LocalWorkspace {
    supervisor: Supervisor,
}

impl LocalWorkspace {
    /// A workspace whose processes belong to supervisors of this kind.
    pub fn new(supervisor: Supervisor) -> Self {
        Self { supervisor }
    }
}

#[async_trait]
impl Workspace for LocalWorkspace {
    fn backend(&self) -> &'static str {
        "local"
    }

    fn isolation(&self) -> String {
        "local: no boundary; programs run as this user, held together by their supervisors"
            .to_owned()
    }

    async fn up(&self) -> Result<(), WorkspaceError> {
        Ok(())
    }

    async fn spawn(
        &self,
        request: SpawnRequest,
    ) -> Result<Box<dyn WorkspaceProcess>, WorkspaceError> {
        let milliseconds =
            |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let spec = ProcessSpec {
            generation: GENERATION,
            argv: request.argv,
            cwd: ByteString::from(request.cwd.as_path()),
            env: request.env,
            stdin: request.stdin,
            marker: new_marker().map_err(WorkspaceError::Marker)?,
            timeout_ms: request.timeout.map(milliseconds),
            grace_ms: milliseconds(request.grace),
            output_limit: request.output_limit,
        };
        Ok(Box::new(
            self.supervisor.start(&request.directory, &spec).await?,
        ))
    }

    async fn attach(&self, directory: &Path) -> Result<Attached, WorkspaceError> {
        let directory = directory.to_owned();
        let found = tokio::task::spawn_blocking(move || find(&directory)).await;
        let failed = |error| SuperviseError::Process {
            action: "run a task",
            source: io::Error::from(error),
        };
        Ok(match found.map_err(failed)?? {
            Found::NeverStarted => Attached::NeverStarted,
            Found::Running(process) => Attached::Running(Box::new(process)),
            Found::Ended(exit) => Attached::Ended(exit),
            Found::Lost => Attached::Lost,
        })
    }

    async fn down(&self) -> Result<(), WorkspaceError> {
        Ok(())
    }
}

#[async_trait]
impl WorkspaceProcess for SupervisedProcess {
    async fn wait(&self) -> Result<ExitRecord, WorkspaceError> {
        Ok(Self::wait(self).await?)
    }

    fn stop(&self, how: Stop) -> Result<(), WorkspaceError> {
        Ok(Self::stop(self, how)?)
    }

    fn record(&self) -> Option<&ProcessRecord> {
        Self::record(self)
    }
}

/// Text that no other process has: 128 random bits.
fn new_marker() -> io::Result<String> {
    let bytes = random_bytes::<16>()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
