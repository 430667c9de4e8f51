use std::io;
use std::path::Path;

use async_trait::async_trait;
use mini_ork_protocol::{ByteString, ExitRecord, GENERATION, ProcessRecord, ProcessSpec};

use super::{
    Attached, FileError, InnerPath, ListRequest, Listing, SpawnRequest, Workspace, WorkspaceError,
    WorkspaceProcess, files,
};
use crate::supervise::{
    Found, MARKER_SEPARATOR, RUN_MARKER_VARIABLE, Stop, SuperviseError, SupervisedProcess,
    Supervisor, find,
};
use crate::sys::random_bytes;

/// A program inside of a program inside of a program is as deep as it gets.
const LONGEST_OUTER_MARKER: usize = 256;

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
        let marker = new_marker(&request.env).map_err(WorkspaceError::Marker)?;
        let spec = ProcessSpec {
            generation: GENERATION,
            argv: request.argv,
            cwd: ByteString::from(request.cwd.as_path()),
            env: request.env,
            stdin: request.stdin,
            marker,
            timeout_ms: request.timeout.map(milliseconds),
            grace_ms: milliseconds(request.grace),
            output_limit: request.output_limit,
            secrets: request.secrets,
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

    async fn get(&self, root: &Path, path: &InnerPath, limit: u64) -> Result<Vec<u8>, FileError> {
        blocking(root, path, move |root, path| files::get(root, path, limit)).await
    }

    async fn put(&self, root: &Path, path: &InnerPath, content: Vec<u8>) -> Result<(), FileError> {
        blocking(root, path, move |root, path| {
            files::put(root, path, &content)
        })
        .await
    }

    async fn list(
        &self,
        root: &Path,
        path: &InnerPath,
        request: ListRequest,
    ) -> Result<Listing, FileError> {
        blocking(root, path, move |root, path| {
            files::list(root, path, request)
        })
        .await
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

async fn blocking<T: Send + 'static>(
    root: &Path,
    path: &InnerPath,
    work: impl FnOnce(&Path, &InnerPath) -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    let (root, path) = (root.to_owned(), path.clone());
    let failed_on = path.as_path().to_owned();
    let worked = tokio::task::spawn_blocking(move || work(&root, &path)).await;
    worked.map_err(|error| FileError {
        action: "run a task for",
        path: failed_on,
        source: error.into(),
    })?
}

/// Text that no other process has: 128 random bits. When the starter is itself a program of a
/// supervisor its own marker comes first, so that the outer supervisor knows what the inner one
/// runs.
fn new_marker(environment: &[(ByteString, ByteString)]) -> io::Result<String> {
    let outer = environment
        .iter()
        .rev()
        .find(|(name, _)| name.as_bytes() == RUN_MARKER_VARIABLE.as_bytes())
        .and_then(|(_, marker)| std::str::from_utf8(marker.as_bytes()).ok())
        .filter(|marker| !marker.is_empty() && marker.len() <= LONGEST_OUTER_MARKER);
    let bytes = random_bytes::<16>()?;
    let mut marker = outer.map_or_else(String::new, |outer| format!("{outer}{MARKER_SEPARATOR}"));
    marker.extend(bytes.iter().map(|byte| format!("{byte:02x}")));
    Ok(marker)
}
