use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use mini_ork_protocol::{ExitRecord, ProcessRecord};

use super::{
    Attached, Drive, FileError, InnerPath, LOCAL, Lead, ListRequest, Listing, SpawnRequest,
    Workspace, WorkspaceError, WorkspaceProcess, files, specification,
};
use crate::supervise::{Found, Stop, SuperviseError, SupervisedProcess, Supervisor, find};

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
        LOCAL
    }

    fn isolation(&self) -> String {
        "local: no boundary; programs run as this user, held together by their supervisors"
            .to_owned()
    }

    async fn up(&self, _drive: &Drive) -> Result<(), WorkspaceError> {
        Ok(())
    }

    fn inside(&self, host: &Path) -> PathBuf {
        host.to_owned()
    }

    fn program(&self) -> PathBuf {
        self.supervisor.program().to_owned()
    }

    fn environment(&self, own: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
        own.to_vec()
    }

    async fn lead(&self, _port: u16) -> Result<Lead, WorkspaceError> {
        Ok(Lead::open())
    }

    async fn spawn(
        &self,
        request: SpawnRequest,
    ) -> Result<Box<dyn WorkspaceProcess>, WorkspaceError> {
        let directory = request.directory.clone();
        let spec = specification(request)?;
        Ok(Box::new(self.supervisor.start(&directory, &spec).await?))
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
            let bounds = (request.levels, request.most);
            files::list(root, path, bounds, request.not_entered)
        })
        .await
    }

    async fn down(&self, _drive: &Drive) -> Result<(), WorkspaceError> {
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
