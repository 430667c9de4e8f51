//! The session server: what runs inside and does what the outside asks.

use std::collections::BTreeMap;
use std::io::{self, Seek as _, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use mini_ork_protocol::{
    ByteString, GENERATION, Hello, ProcessSpec, RefusalKind, SessionAnswer, SessionCall,
    SessionEntry, SessionEntryKind, SessionFound, SessionRefusal, SessionRequest,
};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::timeout;

use super::egress::Egress;
use super::frame::{read_bytes, read_frame, write_frame};
use super::greeting::{answer_proof, welcome};
use super::init::{duplicate, protect};
use super::mux::{Mux, MuxStream, Side};
use crate::supervise::{Found, Stop, SuperviseError, Supervisor, find};
use crate::workspace::{Entry, EntryKind, FileError, InnerPath, files};

/// First argument of a session server. Its standard input is a listening socket and its standard
/// output a file that outlives it.
pub const SESSION_ARGUMENT: &str = "__session";

/// How long the outside may take to say what it wants.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// Most connections that have not shown the token, which anything inside can open.
const MOST_STRANGERS: usize = 32;
/// Most requests of a connection at a time, and most connections of a forwarded port.
const MOST_AT_ONCE: usize = 480;
/// Most bytes of a file that is got or put, for it is held in memory.
const LARGEST_FILE: u64 = 64 << 20;
/// Most bytes of the names in a listing, so that it fits into a frame.
const LONGEST_LISTING: usize = 4 << 20;

/// Serves until it is killed.
pub fn session_main() -> ExitCode {
    let served = prepare().and_then(|(listener, token)| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(64)
            .build()?;
        let supervisor = Supervisor::new(std::env::current_exe()?);
        runtime.block_on(serve(listener, token, supervisor))
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn prepare() -> io::Result<(StdUnixListener, fs_err::File)> {
    protect()?;
    let listener = StdUnixListener::from(duplicate(rustix::stdio::stdin())?);
    let token = duplicate(rustix::stdio::stdout())?.into();
    let null = fs_err::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    listener.set_nonblocking(true)?;
    Ok((listener, fs_err::File::from_parts(token, "token")))
}

async fn serve(
    listener: StdUnixListener,
    token: fs_err::File,
    supervisor: Supervisor,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let (outside, _) = watch::channel(None);
    let server = Arc::new(Server {
        supervisor,
        token: StdMutex::new(token),
        outside,
        forwards: Mutex::new(BTreeMap::new()),
        egress: Egress::default(),
    });
    let strangers = Arc::new(Semaphore::new(MOST_STRANGERS));
    loop {
        let (connection, _) = listener.accept().await?;
        // One too many is closed at once.
        if let Ok(permit) = Arc::clone(&strangers).try_acquire_owned() {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                if let Some(connection) = server.meet(connection).await {
                    drop(permit);
                    connection.run(server).await;
                }
            });
        }
    }
}

struct Server {
    supervisor: Supervisor,
    /// Holds the token of the outside, once there is one.
    token: StdMutex<fs_err::File>,
    /// The latest connection that has shown it.
    outside: watch::Sender<Option<Mux>>,
    /// Ports inside that are listened on, by their service.
    forwards: Mutex<BTreeMap<String, u16>>,
    egress: Egress,
}

/// A connection of the outside.
struct Connection {
    mux: Mux,
    requests: tokio::sync::mpsc::Receiver<MuxStream>,
}

impl Connection {
    async fn run(mut self, server: Arc<Server>) {
        server.outside.send_replace(Some(self.mux.clone()));
        drop(self.mux);
        let room = Arc::new(Semaphore::new(MOST_AT_ONCE));
        while let Some(stream) = self.requests.recv().await {
            let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
                continue;
            };
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let _permit = permit;
                // Whoever asked is gone, and asks again.
                let _ = server.answer(stream).await;
            });
        }
    }
}

impl Server {
    /// Waits for the first words of a connection; none when they are not the outside's.
    async fn meet(&self, connection: UnixStream) -> Option<Connection> {
        let (mux, mut requests) = Mux::start(connection, Side::Inside);
        let greeted = timeout(REQUEST_LIMIT, async {
            let mut stream = requests.recv().await?;
            let SessionRequest::Hello(hello) = read_frame(&mut stream).await.ok()? else {
                return None;
            };
            let answer = self.greet(&hello);
            write_frame(&mut stream, &answer).await.ok()?;
            stream.shutdown().await.ok()?;
            if matches!(answer, SessionAnswer::Welcome(_)) {
                return Some(());
            }
            // Dropping the connection would take the answer with it.
            let _ = stream.read(&mut [0]).await;
            None
        });
        greeted.await.ok().flatten()?;
        Some(Connection { mux, requests })
    }

    fn greet(&self, hello: &Hello) -> SessionAnswer {
        if hello.generation > GENERATION {
            let message = format!(
                "it knows generations up to {GENERATION}, and was asked in {}",
                hello.generation
            );
            return refused(RefusalKind::Generation, message);
        }
        match self.check_token(hello.token.expose()) {
            Ok(true) => {}
            Ok(false) => return refused(RefusalKind::Unauthorised, "the token is another one"),
            Err(error) => return refused(RefusalKind::Failed, error.to_string()),
        }
        if let Some(proof) = &hello.proof
            && let Err(error) = answer_proof(proof)
        {
            return refused(RefusalKind::Mount, error.to_string());
        }
        SessionAnswer::Welcome(welcome())
    }

    /// The first token that is ever shown is kept.
    fn check_token(&self, shown: &[u8]) -> io::Result<bool> {
        let digest = Sha256::digest(shown);
        let mut file = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        file.rewind()?;
        let mut kept = Vec::new();
        io::Read::read_to_end(&mut *file, &mut kept)?;
        if kept.is_empty() {
            file.rewind()?;
            file.write_all(&digest)?;
            return Ok(true);
        }
        // Digests tell nothing by how much of them is equal.
        Ok(kept == digest.as_slice())
    }

    async fn answer(self: Arc<Self>, mut stream: MuxStream) -> io::Result<()> {
        let request: SessionRequest = timeout(REQUEST_LIMIT, read_frame(&mut stream)).await??;
        match request {
            SessionRequest::Wait { directory } => {
                let waited = {
                    let ended = self.wait(path_of(&directory));
                    let mut left = [0];
                    tokio::select! {
                        answer = ended => answer,
                        _ = stream.read(&mut left) => return Ok(()),
                    }
                };
                write_frame(&mut stream, &waited).await?;
            }
            SessionRequest::Get { root, path, limit } => {
                let limit = limit.min(LARGEST_FILE);
                let got = on_files(root, path, move |root, path| files::get(root, path, limit));
                match got.await {
                    Ok(content) => {
                        let length = content.len() as u64;
                        write_frame(&mut stream, &SessionAnswer::Content { length }).await?;
                        stream.write_all(&content).await?;
                    }
                    Err(refusal) => write_frame(&mut stream, &refusal).await?,
                }
            }
            SessionRequest::Put { root, path, length } => {
                let answer = if length > LARGEST_FILE {
                    refused(RefusalKind::Failed, format!("{length} bytes are too many"))
                } else {
                    let content = timeout(REQUEST_LIMIT, read_bytes(&mut stream, length)).await??;
                    let put = on_files(root, path, move |root, path| {
                        files::put(root, path, &content)
                    });
                    put.await
                        .map_or_else(|refusal| refusal, |()| SessionAnswer::Done)
                };
                write_frame(&mut stream, &answer).await?;
            }
            other => write_frame(&mut stream, &self.answer_shortly(other).await).await?,
        }
        stream.shutdown().await
    }

    async fn answer_shortly(self: &Arc<Self>, request: SessionRequest) -> SessionAnswer {
        match request {
            SessionRequest::Spawn { directory, spec } => {
                self.spawn(path_of(&directory), &spec).await
            }
            SessionRequest::Attach { directory } => found(path_of(&directory)).await,
            SessionRequest::Stop { directory, now } => stop(path_of(&directory), now).await,
            SessionRequest::List {
                root,
                path,
                levels,
                most,
                not_entered,
            } => {
                let listed = on_files(root, path, move |root, path| {
                    let bounds = (levels as usize, most as usize);
                    files::list(root, path, bounds, &not_entered)
                });
                listed.await.map_or_else(
                    |refusal| refusal,
                    |listing| listing_of(listing.entries, listing.complete),
                )
            }
            SessionRequest::Forward { port, service } => self.forward(port, service).await,
            SessionRequest::Egress { allow, canary } => {
                let started = self.egress.start(allow, &canary, self.outside.subscribe());
                match started.await {
                    Ok(()) => SessionAnswer::Done,
                    Err(message) => refused(RefusalKind::Failed, message),
                }
            }
            _ => refused(RefusalKind::Failed, "this was not to be asked now"),
        }
    }

    async fn spawn(&self, directory: PathBuf, spec: &ProcessSpec) -> SessionAnswer {
        match self.supervisor.start(&directory, spec).await {
            Ok(process) => SessionAnswer::Started {
                record: process.record().cloned(),
            },
            Err(error) => refused_by_supervisor(&error),
        }
    }

    async fn wait(&self, directory: PathBuf) -> SessionAnswer {
        match look(directory.clone()).await {
            Ok(Found::Running(process)) => match process.wait().await {
                Ok(exit) => SessionAnswer::Found(SessionFound::Ended { exit }),
                Err(SuperviseError::Lost { .. }) => SessionAnswer::Found(SessionFound::Lost),
                Err(error) => refused_by_supervisor(&error),
            },
            _ => found(directory).await,
        }
    }

    async fn forward(self: &Arc<Self>, port: u16, service: String) -> SessionAnswer {
        let mut forwards = self.forwards.lock().await;
        if let Some(port) = forwards.get(&service) {
            return SessionAnswer::Listening { port: *port };
        }
        if forwards.len() >= MOST_AT_ONCE {
            return refused(RefusalKind::Failed, "too many ports are forwarded");
        }
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
        match bound {
            Ok((port, listener)) => {
                forwards.insert(service.clone(), port);
                tokio::spawn(Arc::clone(self).accept(listener, service));
                SessionAnswer::Listening { port }
            }
            Err(error) => {
                let message = format!("could not listen on 127.0.0.1:{port}: {error}");
                refused(RefusalKind::Failed, message)
            }
        }
    }

    /// Carries connections to a forwarded port to the outside. While there is none they are closed.
    async fn accept(self: Arc<Self>, listener: TcpListener, service: String) {
        let room = Arc::new(Semaphore::new(MOST_AT_ONCE));
        loop {
            let Ok((connection, _)) = listener.accept().await else {
                // Out of descriptors, most likely; they come back.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let outside = self.outside.borrow().clone();
            let (Some(mux), Ok(permit)) = (outside, Arc::clone(&room).try_acquire_owned()) else {
                continue;
            };
            let call = SessionCall {
                service: service.clone(),
            };
            tokio::spawn(async move {
                let _permit = permit;
                // It is over when one side says so, whatever the reason.
                let _ = carry(connection, &mux, &call).await;
            });
        }
    }
}

async fn carry(mut connection: TcpStream, mux: &Mux, call: &SessionCall) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut stream = mux.open().await?;
    write_frame(&mut stream, call).await?;
    tokio::io::copy_bidirectional(&mut connection, &mut stream).await?;
    Ok(())
}

async fn look(directory: PathBuf) -> Result<Found, SuperviseError> {
    tokio::task::spawn_blocking(move || find(&directory))
        .await
        .map_err(|error| SuperviseError::Process {
            action: "run a task",
            source: error.into(),
        })?
}

async fn found(directory: PathBuf) -> SessionAnswer {
    match look(directory).await {
        Ok(Found::NeverStarted) => SessionAnswer::Found(SessionFound::NeverStarted),
        Ok(Found::Running(process)) => SessionAnswer::Found(SessionFound::Running {
            record: process.record().cloned(),
        }),
        Ok(Found::Ended(exit)) => SessionAnswer::Found(SessionFound::Ended { exit }),
        Ok(Found::Lost) => SessionAnswer::Found(SessionFound::Lost),
        Err(error) => refused_by_supervisor(&error),
    }
}

async fn stop(directory: PathBuf, now: bool) -> SessionAnswer {
    let how = if now { Stop::Immediate } else { Stop::Graceful };
    match look(directory).await {
        Ok(Found::Running(process)) => match process.stop(how) {
            Ok(()) => SessionAnswer::Done,
            Err(error) => refused_by_supervisor(&error),
        },
        Ok(_) => SessionAnswer::Done,
        Err(error) => refused_by_supervisor(&error),
    }
}

/// Does `work` on a file, on a thread of its own.
async fn on_files<T: Send + 'static>(
    root: ByteString,
    path: ByteString,
    work: impl FnOnce(&Path, &InnerPath) -> Result<T, FileError> + Send + 'static,
) -> Result<T, SessionAnswer> {
    let root = path_of(&root);
    let text = String::from_utf8(path.as_bytes().to_vec())
        .map_err(|_| refused(RefusalKind::Failed, "the path is no text"))?;
    let path = InnerPath::parse(&root, &text)
        .map_err(|error| refused(RefusalKind::NotPermitted, error.to_string()))?;
    let worked = tokio::task::spawn_blocking(move || work(&root, &path)).await;
    match worked {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(refused_file(&error)),
        Err(error) => Err(refused(RefusalKind::Failed, error.to_string())),
    }
}

fn listing_of(entries: Vec<Entry>, mut complete: bool) -> SessionAnswer {
    let mut room = LONGEST_LISTING;
    let mut listed = Vec::new();
    for entry in entries {
        let Some(left) = room.checked_sub(entry.path.as_os_str().len() + 64) else {
            complete = false;
            break;
        };
        room = left;
        listed.push(SessionEntry {
            path: entry.path.as_path().into(),
            kind: match entry.kind {
                EntryKind::File => SessionEntryKind::File,
                EntryKind::Directory => SessionEntryKind::Directory,
                EntryKind::Link => SessionEntryKind::Link,
                EntryKind::Special => SessionEntryKind::Special,
            },
            size: entry.size,
        });
    }
    SessionAnswer::Listing {
        entries: listed,
        complete,
    }
}

pub(super) fn path_of(bytes: &ByteString) -> PathBuf {
    PathBuf::from(bytes.as_os_str())
}

fn refused(kind: RefusalKind, message: impl Into<String>) -> SessionAnswer {
    SessionAnswer::Refused(SessionRefusal {
        kind,
        message: message.into(),
    })
}

fn refused_by_supervisor(error: &SuperviseError) -> SessionAnswer {
    let kind = match error {
        SuperviseError::Taken { .. } => RefusalKind::Taken,
        _ => RefusalKind::Failed,
    };
    refused(kind, with_causes(error))
}

fn refused_file(error: &FileError) -> SessionAnswer {
    let kind = match error.source.kind() {
        io::ErrorKind::NotFound => RefusalKind::NotFound,
        io::ErrorKind::PermissionDenied => RefusalKind::NotPermitted,
        _ => RefusalKind::Failed,
    };
    refused(kind, error.source.to_string())
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
