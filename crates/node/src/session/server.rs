//! The session server: what runs inside and does what the outside asks.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mini_ork_protocol::{
    ByteString, GENERATION, Hello, ProcessSpec, RefusalKind, SessionAnswer, SessionCall,
    SessionFound, SessionRequest,
};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::answers::{listing_of, refused, refused_by_supervisor, refused_file};
use super::egress::Egress;
use super::frame::{read_bytes, read_frame, write_frame};
use super::greeting::{answer_proof, is_from_outside, welcome};
use super::memory::Memory;
use super::mux::{Mux, MuxStream, Side};
use crate::supervise::{Found, Stop, SuperviseError, Supervisor, find, taken_with};
use crate::workspace::{FileError, InnerPath, files};

/// How long the outside may take to say what it wants.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// Most connections that have not shown the token, which anything inside can open.
const MOST_STRANGERS: usize = 32;
/// Most requests of a connection at a time, and most connections of a forwarded port.
const MOST_AT_ONCE: usize = 480;
/// Most bytes of a file that is got or put, for it is held in memory.
const LARGEST_FILE: u64 = 64 << 20;

/// What the first process hands to a server.
pub(super) struct Handed {
    pub(super) listener: OwnedFd,
    /// The outside, when it waited for the first process.
    pub(super) outside: Option<StdUnixStream>,
    /// A file for what outlives the server.
    pub(super) memory: OwnedFd,
    /// Whether whoever is not in this namespace of processes is the outside.
    pub(super) alone: bool,
}

/// Serves until it is killed. To be called in a fork that others cannot look into.
pub(super) fn session_main(handed: Handed) -> io::Result<()> {
    prepare()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(64)
        .build()?;
    let supervisor = Supervisor::new(std::env::current_exe()?);
    runtime.block_on(serve(handed, supervisor))
}

fn prepare() -> io::Result<()> {
    let null = fs_err::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(rustix::stdio::dup2_stdout(&null)?)
}

async fn serve(handed: Handed, supervisor: Supervisor) -> io::Result<()> {
    let listener = StdUnixListener::from(handed.listener);
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let (outside, _) = watch::channel(None);
    let server = Arc::new(Server {
        supervisor,
        memory: Memory::of(handed.memory),
        outside,
        alone: handed.alone,
        forwards: Mutex::new(BTreeMap::new()),
        egress: Egress::default(),
    });
    if let Some(outside) = handed.outside {
        outside.set_nonblocking(true)?;
        let connection = UnixStream::from_std(outside)?;
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            if let Some(connection) = server.meet(connection).await {
                connection.run(server).await;
            }
        });
    }
    let strangers = Arc::new(Semaphore::new(MOST_STRANGERS));
    loop {
        let (connection, _) = listener.accept().await?;
        if handed.alone && !is_from_outside(&connection) {
            continue;
        }
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
    memory: Memory,
    /// The latest connection that has shown it.
    outside: watch::Sender<Option<Mux>>,
    alone: bool,
    /// Ports inside that are listened on, by their service.
    forwards: Mutex<BTreeMap<String, Forwarded>>,
    egress: Egress,
}

/// A port that is listened on.
struct Forwarded {
    port: u16,
    listening: JoinHandle<()>,
}

/// A connection of the outside.
struct Connection {
    mux: Mux,
    /// Another one answers for the outside.
    only_asks: bool,
    requests: tokio::sync::mpsc::Receiver<MuxStream>,
}

impl Connection {
    async fn run(mut self, server: Arc<Server>) {
        // The connection lasts for as long as somebody has it.
        let _kept = if self.only_asks {
            Some(self.mux)
        } else {
            server.outside.send_replace(Some(self.mux));
            None
        };
        let room = Arc::new(Semaphore::new(MOST_AT_ONCE));
        while let Some(stream) = self.requests.recv().await {
            let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
                continue;
            };
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let _permit = permit;
                // Whoever asked is gone, and asks again.
                let _ = server.answer(stream, self.only_asks).await;
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
                return Some(hello.only_asks);
            }
            // Dropping the connection would take the answer with it.
            let _ = stream.read(&mut [0]).await;
            None
        });
        let only_asks = greeted.await.ok().flatten()?;
        Some(Connection {
            mux,
            only_asks,
            requests,
        })
    }

    fn greet(&self, hello: &Hello) -> SessionAnswer {
        if hello.generation > GENERATION {
            let message = format!(
                "it knows generations up to {GENERATION}, and was asked in {}",
                hello.generation
            );
            return refused(RefusalKind::Generation, message);
        }
        match self.memory.is_token(hello.token.expose()) {
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

    async fn answer(self: Arc<Self>, mut stream: MuxStream, only_asks: bool) -> io::Result<()> {
        let request: SessionRequest = timeout(REQUEST_LIMIT, read_frame(&mut stream)).await??;
        match request {
            SessionRequest::Forward { .. }
            | SessionRequest::Unforward { .. }
            | SessionRequest::Egress { .. }
                if only_asks =>
            {
                let message = "this connection opens no way out";
                write_frame(&mut stream, &refused(RefusalKind::NotPermitted, message)).await?;
            }
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
            SessionRequest::Attach { directory } => self.found(path_of(&directory)).await,
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
            SessionRequest::Unforward { service } => self.unforward(&service).await,
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
        if let Err(error) = self.memory.remember(&directory) {
            return refused(RefusalKind::Failed, error.to_string());
        }
        let error = match self.supervisor.start(&directory, spec).await {
            Ok(process) => {
                return SessionAnswer::Started {
                    record: process.record().cloned(),
                };
            }
            Err(error) => error,
        };
        // Asked again, since the answer to the same request was lost; it may have ended by now.
        if matches!(error, SuperviseError::Taken { .. })
            && taken_with(&directory, &spec.marker).is_ok_and(|taken| taken)
        {
            return match look(directory).await {
                Ok(Found::Running(process)) => SessionAnswer::Started {
                    record: process.record().cloned(),
                },
                Ok(Found::Ended(_) | Found::Lost) => SessionAnswer::Started { record: None },
                Ok(Found::NeverStarted) => refused_by_supervisor(&error),
                Err(error) => refused_by_supervisor(&error),
            };
        }
        refused_by_supervisor(&error)
    }

    async fn wait(&self, directory: PathBuf) -> SessionAnswer {
        match look(directory.clone()).await {
            Ok(Found::Running(process)) => match process.wait().await {
                Ok(exit) => SessionAnswer::Found(SessionFound::Ended { exit }),
                Err(SuperviseError::Lost { .. }) => self.found(directory).await,
                Err(error) => refused_by_supervisor(&error),
            },
            _ => self.found(directory).await,
        }
    }

    async fn found(&self, directory: PathBuf) -> SessionAnswer {
        match look(directory.clone()).await {
            Ok(Found::NeverStarted) => SessionAnswer::Found(SessionFound::NeverStarted),
            Ok(Found::Running(process)) => SessionAnswer::Found(SessionFound::Running {
                record: process.record().cloned(),
            }),
            Ok(Found::Ended(exit)) => SessionAnswer::Found(SessionFound::Ended { exit }),
            Ok(Found::Lost) => {
                self.end_everything(&directory);
                SessionAnswer::Found(SessionFound::Lost)
            }
            Err(error) => refused_by_supervisor(&error),
        }
    }

    /// Ends all programs after the supervisor of one was lost. A program that has killed its own
    /// may have hidden something that would look on at the next one's work; what runs beside it is
    /// lost as well.
    fn end_everything(&self, directory: &Path) {
        // Only where this is a namespace of its own: the number means every process that there is.
        let is_own = self.alone && rustix::process::getppid() == Some(Pid::INIT);
        // Once for each, and not for those of a sandbox that was here before.
        if is_own && self.memory.forget(directory).is_ok_and(|known| known) {
            let _ = rustix::process::kill_process_group(Pid::INIT, Signal::KILL);
        }
    }

    async fn forward(self: &Arc<Self>, port: u16, service: String) -> SessionAnswer {
        let mut forwards = self.forwards.lock().await;
        if let Some(Forwarded { port, .. }) = forwards.get(&service) {
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
                let listening = tokio::spawn(Arc::clone(self).accept(listener, service.clone()));
                forwards.insert(service, Forwarded { port, listening });
                SessionAnswer::Listening { port }
            }
            Err(error) => {
                let message = format!("could not listen on 127.0.0.1:{port}: {error}");
                refused(RefusalKind::Failed, message)
            }
        }
    }

    async fn unforward(&self, service: &str) -> SessionAnswer {
        let mut forwards = self.forwards.lock().await;
        if let Some(Forwarded { listening, .. }) = forwards.remove(service) {
            listening.abort();
            // The port is free when that has happened.
            let _ = listening.await;
        }
        SessionAnswer::Done
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

pub(super) fn path_of(bytes: &ByteString) -> PathBuf {
    PathBuf::from(bytes.as_os_str())
}
