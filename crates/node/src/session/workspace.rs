use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use mini_ork_protocol::{
    ByteString, RefusalKind, SecretBytes, SessionAnswer, SessionEntryKind, SessionFound,
    SessionRequest, StdinSource, Welcome,
};

use super::SessionError;
use super::client::{Client, Dialer};
use super::frame::read_bytes;
use super::process::{SessionProcess, after_the_end};
use super::started::{make_shares, note_start, started_below, was_started};
use super::way_in::{KeptByAnother, WayIn};
use crate::egress::{Denial, LoopbackPlan, PolicyProxy};
use crate::supervise::{Stop, SuperviseError};
use crate::workspace::{
    Attached, Drive, Entry, EntryKind, FileError, InnerPath, Lead, ListRequest, Listing,
    SpawnRequest, Workspace, WorkspaceError, WorkspaceProcess, specification,
};

/// How long the start of a program may take, with the start of its supervisor.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Makes and removes the sandbox of a run.
#[async_trait]
pub trait Boundary: Send + Sync + fmt::Debug {
    /// The name of the backend.
    fn backend(&self) -> &'static str;

    /// Which boundary is asked for, in one sentence.
    fn isolation(&self) -> String;

    /// The drive as programs behind this boundary see it.
    fn place(&self, drive: &Drive) -> Drive {
        drive.clone()
    }

    /// The sandbox of `drive`: the one that is there, else a new one. The mount proof and what the
    /// server says of itself are checked by the caller.
    async fn raise(&self, drive: &Drive) -> Result<Sandbox, WorkspaceError>;

    /// Removes the sandbox of `drive`, with everything that runs in it, whether or not this process
    /// raised it. Makes nothing. May be called again at any time.
    async fn lower(&self, drive: &Drive) -> Result<(), WorkspaceError>;
}

/// A sandbox that was raised.
#[derive(Debug)]
pub struct Sandbox {
    /// How to reach its server.
    pub dialer: Arc<dyn Dialer>,
    /// What shows the server that it is the outside that speaks.
    pub token: SecretBytes,
    /// Where the mini-ork program lies inside.
    pub program: PathBuf,
    /// The environment that programs begin with.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether they have the caller's own environment as well, beneath this one.
    pub keeps_own: bool,
    /// What holds, in one sentence; what the server says of itself is added to it.
    pub isolation: String,
}

/// A workspace whose processes run behind a boundary, reached through its session server.
#[derive(Debug)]
pub struct SessionWorkspace<B> {
    boundary: B,
    proxy: Option<Arc<PolicyProxy>>,
    up: OnceLock<Up>,
}

#[derive(Debug)]
struct Up {
    drive: Drive,
    sandbox: Sandbox,
    client: Arc<Client>,
    welcome: Welcome,
}

impl<B: Boundary> SessionWorkspace<B> {
    /// A workspace behind `boundary`.
    pub fn new(boundary: B) -> Self {
        Self {
            boundary,
            proxy: None,
            up: OnceLock::new(),
        }
    }

    /// Lets programs reach what `proxy` lets through.
    pub fn through(mut self, proxy: PolicyProxy) -> Self {
        self.proxy = Some(Arc::new(proxy));
        self
    }

    fn up(&self) -> Result<&Up, WorkspaceError> {
        self.up.get().ok_or(WorkspaceError::NotUp)
    }
}

/// Enters a sandbox that another process keeps, to run programs there and to use its files. Proves
/// nothing that the other one has not proved, and makes nothing.
pub(crate) async fn enter(
    way_in: WayIn,
    dialer: Arc<dyn Dialer>,
) -> Result<impl Workspace, SessionError> {
    let WayIn { token, drive, .. } = way_in;
    let client = Client::beside(Arc::clone(&dialer), token.clone());
    let welcome = client.connect_anew(None).await?;
    let sandbox = Sandbox {
        dialer,
        token,
        program: PathBuf::new(),
        environment: Vec::new(),
        keeps_own: true,
        isolation: KeptByAnother.isolation(),
    };
    let workspace = SessionWorkspace::new(KeptByAnother);
    let up = Up {
        drive,
        sandbox,
        client: Arc::new(client),
        welcome,
    };
    let _ = workspace.up.set(up);
    Ok(workspace)
}

#[async_trait]
impl<B: Boundary> Workspace for SessionWorkspace<B> {
    fn backend(&self) -> &'static str {
        self.boundary.backend()
    }

    fn isolation(&self) -> String {
        let Some(up) = self.up.get() else {
            return self.boundary.isolation();
        };
        let welcome = &up.welcome;
        let reach = match &self.proxy {
            None => "what its network does".to_owned(),
            Some(proxy) => proxy.allowed().to_string(),
        };
        format!(
            "{}; reaches {reach}; kernel {}, user {}:{}, {} processors, network interfaces: {}",
            up.sandbox.isolation,
            plain(&welcome.kernel),
            welcome.uid,
            welcome.gid,
            welcome.processors,
            plain(&welcome.interfaces.join(", ")),
        )
    }

    async fn up(&self, drive: &Drive) -> Result<(), WorkspaceError> {
        if self.up.get().is_some() {
            return Ok(());
        }
        make_shares(drive).map_err(SessionError::Files)?;
        let sandbox = self.boundary.raise(drive).await?;
        let drive = &self.boundary.place(drive);
        let (dialer, token) = (Arc::clone(&sandbox.dialer), sandbox.token.clone());
        let client = Client::new(dialer, token, self.proxy.clone());
        let inside = drive.inside(&drive.proof);
        let welcome = match client.prove_mount(drive.proof.clone(), inside).await {
            Ok(welcome) => welcome,
            // It cannot be reached at the moment, and what runs in it may be of use yet.
            Err(error @ SessionError::Unreachable(_)) => return Err(error.into()),
            Err(error) => {
                // Why it is of no use says more than that it could not be removed; it stays on
                // record then.
                let _ = self.boundary.lower(drive).await;
                return Err(error.into());
            }
        };
        let up = Up {
            drive: drive.clone(),
            sandbox,
            client: Arc::new(client),
            welcome,
        };
        // Another caller was faster; both reach the same sandbox.
        let _ = self.up.set(up);
        Ok(())
    }

    fn inside(&self, host: &Path) -> PathBuf {
        self.up
            .get()
            .map_or_else(|| host.to_owned(), |up| up.drive.inside(host))
    }

    fn program(&self) -> PathBuf {
        self.up
            .get()
            .map(|up| up.sandbox.program.clone())
            .unwrap_or_default()
    }

    fn environment(&self, own: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
        const PASSED: [&str; 4] = ["LANG", "TZ", "TERM", "COLORTERM"];
        let mut environment = self
            .up
            .get()
            .map(|up| up.sandbox.environment.clone())
            .unwrap_or_default();
        if self.proxy.is_some() {
            let proxies = LoopbackPlan::environment().into_iter();
            environment.extend(proxies.map(|(name, value)| (name.into(), value.into())));
        }
        let keeps_own = self.up.get().is_some_and(|up| up.sandbox.keeps_own);
        for (name, value) in own {
            let passed = keeps_own
                || name
                    .to_str()
                    .is_some_and(|name| PASSED.contains(&name) || name.starts_with("LC_"));
            if passed && !environment.iter().any(|(other, _)| other == name) {
                environment.push((name.clone(), value.clone()));
            }
        }
        environment
    }

    async fn lead(&self, port: u16) -> Result<Lead, WorkspaceError> {
        let passage = self.up()?.client.lead(port).await?;
        Ok(Lead::through(passage))
    }

    async fn spawn(
        &self,
        mut request: SpawnRequest,
    ) -> Result<Box<dyn WorkspaceProcess>, WorkspaceError> {
        let up = self.up()?;
        let host = request.directory.clone();
        let inside = up.drive.inside(&host);
        request.cwd = up.drive.inside(&request.cwd);
        if let StdinSource::File(path) = &request.stdin {
            let path = up.drive.inside(Path::new(path.as_os_str()));
            request.stdin = StdinSource::File(path.as_path().into());
        }
        note_start(&up.drive, &host).map_err(SessionError::Files)?;
        let spec = specification(request)?;
        let directory = ByteString::from(inside.as_path());
        let ask = SessionRequest::Spawn {
            directory: directory.clone(),
            spec,
        };
        match up.client.ask(&ask, &[], Some(START_LIMIT)).await {
            Ok((SessionAnswer::Started { record }, _)) => Ok(Box::new(SessionProcess {
                client: Arc::clone(&up.client),
                host,
                directory,
                record,
            })),
            Ok(_) => Err(SessionError::Confused.into()),
            Err(error) if error.refusal() == Some(RefusalKind::Taken) => {
                Err(SuperviseError::Taken { directory: host }.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn attach(&self, directory: &Path) -> Result<Attached, WorkspaceError> {
        // Without a sandbox nothing runs in it.
        let Some(up) = self.up.get() else {
            return Ok(after_the_end(directory)?);
        };
        // What lies there is a program's own work, made to look like records.
        if !was_started(&up.drive, directory) {
            return Ok(Attached::NeverStarted);
        }
        let inside = ByteString::from(up.drive.inside(directory).as_path());
        let found = match ask_found(&up.client, inside.clone()).await {
            Err(SessionError::Gone { .. }) => return Ok(after_the_end(directory)?),
            found => found?,
        };
        Ok(match found {
            SessionFound::NeverStarted => Attached::NeverStarted,
            SessionFound::Running { record } => Attached::Running(Box::new(SessionProcess {
                client: Arc::clone(&up.client),
                host: directory.to_owned(),
                directory: inside,
                record,
            })),
            SessionFound::Ended { exit } => Attached::Ended(exit),
            SessionFound::Lost => Attached::Lost,
        })
    }

    fn way_in(&self) -> Option<WayIn> {
        let up = self.up.get()?;
        Some(WayIn {
            server: up.sandbox.dialer.address()?,
            token: up.sandbox.token.clone(),
            drive: up.drive.clone(),
        })
    }

    async fn stop_below(&self, directory: &Path) -> Result<(), WorkspaceError> {
        let Some(up) = self.up.get() else {
            return Ok(());
        };
        for started in started_below(&up.drive, directory).map_err(SessionError::Files)? {
            if let Attached::Running(process) = self.attach(&started).await? {
                process.stop(Stop::Immediate)?;
                match process.wait().await {
                    Ok(_)
                    | Err(WorkspaceError::OutOfMemory { .. })
                    | Err(WorkspaceError::Supervise(SuperviseError::Lost { .. })) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    async fn get(&self, root: &Path, path: &InnerPath, limit: u64) -> Result<Vec<u8>, FileError> {
        let failed = failed("read", path);
        let (up, root) = self.file_root(root).map_err(&failed)?;
        let request = SessionRequest::Get {
            root,
            path: path.as_path().into(),
            limit,
        };
        let (answer, mut stream) = up
            .client
            .ask(&request, &[], Some(START_LIMIT))
            .await
            .map_err(|error| failed(file_error(error)))?;
        match answer {
            SessionAnswer::Content { length } if length <= limit => {
                let bytes = read_bytes(&mut stream, length);
                bytes.await.map_err(failed)
            }
            _ => Err(failed(io::Error::other(SessionError::Confused))),
        }
    }

    async fn put(&self, root: &Path, path: &InnerPath, content: Vec<u8>) -> Result<(), FileError> {
        let failed = failed("write", path);
        let (up, root) = self.file_root(root).map_err(&failed)?;
        let request = SessionRequest::Put {
            root,
            path: path.as_path().into(),
            length: content.len() as u64,
        };
        match up.client.ask(&request, &content, Some(START_LIMIT)).await {
            Ok((SessionAnswer::Done, _)) => Ok(()),
            Ok(_) => Err(failed(io::Error::other(SessionError::Confused))),
            Err(error) => Err(failed(file_error(error))),
        }
    }

    async fn list(
        &self,
        root: &Path,
        path: &InnerPath,
        request: ListRequest,
    ) -> Result<Listing, FileError> {
        let failed = failed("list", path);
        let (up, root) = self.file_root(root).map_err(&failed)?;
        let ask = SessionRequest::List {
            root,
            path: path.as_path().into(),
            levels: u32::try_from(request.levels).unwrap_or(u32::MAX),
            most: u32::try_from(request.most).unwrap_or(u32::MAX),
            not_entered: request
                .not_entered
                .iter()
                .map(|name| (*name).to_owned())
                .collect(),
        };
        match up.client.ask_briefly(&ask).await {
            Ok(SessionAnswer::Listing { entries, complete }) => {
                let mut listing = Listing {
                    entries: Vec::new(),
                    complete: complete && entries.len() <= request.most,
                };
                for entry in entries.into_iter().take(request.most) {
                    let path = PathBuf::from(entry.path.as_os_str());
                    let below = path
                        .components()
                        .all(|part| matches!(part, std::path::Component::Normal(_)));
                    if !below {
                        return Err(failed(io::Error::other(SessionError::Confused)));
                    }
                    listing.entries.push(Entry {
                        path,
                        kind: kind_of(entry.kind),
                        size: entry.size,
                    });
                }
                Ok(listing)
            }
            Ok(_) => Err(failed(io::Error::other(SessionError::Confused))),
            Err(error) => Err(failed(file_error(error))),
        }
    }

    async fn down(&self, drive: &Drive) -> Result<(), WorkspaceError> {
        self.boundary.lower(drive).await
    }

    fn denials(&self) -> Vec<Denial> {
        self.proxy
            .as_ref()
            .map_or_else(Vec::new, |proxy| proxy.denials())
    }
}

impl<B: Boundary> SessionWorkspace<B> {
    fn file_root(&self, root: &Path) -> io::Result<(&Up, ByteString)> {
        let up = self.up().map_err(io::Error::other)?;
        let inside = up.drive.inside(root);
        Ok((up, inside.as_path().into()))
    }
}

async fn ask_found(client: &Client, directory: ByteString) -> Result<SessionFound, SessionError> {
    match client
        .ask_briefly(&SessionRequest::Attach { directory })
        .await?
    {
        SessionAnswer::Found(found) => Ok(found),
        _ => Err(SessionError::Confused),
    }
}

fn failed<'a>(
    action: &'static str,
    path: &'a InnerPath,
) -> impl Fn(io::Error) -> FileError + use<'a> {
    move |source| FileError {
        action,
        path: path.as_path().to_owned(),
        source,
    }
}

fn file_error(error: SessionError) -> io::Error {
    let kind = match error.refusal() {
        Some(RefusalKind::NotFound) => io::ErrorKind::NotFound,
        Some(RefusalKind::NotPermitted) => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    match error {
        SessionError::Refused(refusal) if refusal.kind != RefusalKind::Unauthorised => {
            io::Error::new(kind, plain(&refusal.message))
        }
        other => io::Error::other(other),
    }
}

fn kind_of(kind: SessionEntryKind) -> EntryKind {
    match kind {
        SessionEntryKind::File => EntryKind::File,
        SessionEntryKind::Directory => EntryKind::Directory,
        SessionEntryKind::Link => EntryKind::Link,
        SessionEntryKind::Special => EntryKind::Special,
    }
}

/// What the inside says, fit to be shown.
fn plain(text: &str) -> String {
    const LONGEST: usize = 500;
    let shown: String = text.chars().take(LONGEST).collect();
    crate::text::on_one_line(&shown)
}
