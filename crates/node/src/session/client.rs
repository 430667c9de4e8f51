use std::fmt;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use mini_ork_protocol::{
    GENERATION, Hello, MountProof, RefusalKind, SecretBytes, SessionAnswer, SessionRequest, Welcome,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::egress::start_shim;
use super::frame::{read_frame, write_frame};
use super::mux::{Mux, MuxStream, Side};
use super::passages::{Passage, Passages, Services, answer_calls};
use super::{ServerAddress, SessionError};
use crate::beneath::{Directory, Links};
use crate::egress::PolicyProxy;
use crate::text::{beginning, on_one_line};

/// How long a server may take to answer what takes no time.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// How often a request is asked again whose connection broke, and how long is waited before: twice
/// as long each time. A server that died is there again after the first pauses, an engine that is
/// started anew before the last, which are 13 s together.
const RETRIES: u32 = 9;
const FIRST_PAUSE: Duration = Duration::from_millis(25);
/// A connection that held for so long was a good one.
const GOOD_WHILE: Duration = Duration::from_secs(10);
/// Longest proof of a mount that is read.
const LONGEST_NONCE: u64 = 64;

/// A byte stream to a session server.
pub trait Channel: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Channel for T {}

/// Opens connections to one session server.
#[async_trait]
pub trait Dialer: Send + Sync + fmt::Debug {
    /// Opens one.
    async fn dial(&self) -> Result<Box<dyn Channel>, DialError>;

    /// Where other processes of this machine find the server, when they can.
    fn address(&self) -> Option<ServerAddress> {
        None
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub enum DialError {
    /// The sandbox has ended and does not come back.
    Gone {
        /// What became of it, as half a sentence.
        reason: String,
        /// Whether it ran out of memory.
        out_of_memory: bool,
    },
    /// It did not work this time.
    Failed(io::Error),
}

/// Asks a session server, over one connection that is made when it is needed and made again when it
/// breaks.
#[derive(Debug)]
pub(super) struct Client {
    dialer: Arc<dyn Dialer>,
    token: SecretBytes,
    live: Mutex<Option<Live>>,
    passages: Passages,
    /// Held while a port is led out or given back, so that the two are not mixed up for one port.
    leading: Mutex<()>,
    /// Decides about connections to the network; without one there are none.
    proxy: Option<Arc<PolicyProxy>>,
    /// Another process answers for the outside.
    only_asks: bool,
}

#[derive(Debug)]
struct Live {
    mux: Mux,
    welcome: Welcome,
}

impl Client {
    pub(super) fn new(
        dialer: Arc<dyn Dialer>,
        token: SecretBytes,
        proxy: Option<Arc<PolicyProxy>>,
    ) -> Self {
        Self {
            dialer,
            token,
            live: Mutex::new(None),
            passages: Passages::default(),
            leading: Mutex::new(()),
            proxy,
            only_asks: false,
        }
    }

    /// A second client beside the one that answers for the outside.
    pub(super) fn beside(dialer: Arc<dyn Dialer>, token: SecretBytes) -> Self {
        Self {
            only_asks: true,
            ..Self::new(dialer, token, None)
        }
    }

    /// Connects and finds out whether `directory` of this machine is `inside` in the sandbox: what
    /// is written outside has to be read inside, and the other way round.
    pub(super) async fn prove_mount(
        &self,
        directory: PathBuf,
        inside: PathBuf,
    ) -> Result<Welcome, SessionError> {
        let nonce = crate::sys::random_bytes::<16>().map_err(SessionError::Files)?;
        let nonce: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
        // What ran in the sandbox before may have put links there.
        let shared = Directory::open(&directory).map_err(SessionError::Files)?;
        let (question, answer) = (MountProof::QUESTION, MountProof::ANSWER);
        shared
            .replace(Path::new(question), |file| file.write_all(nonce.as_bytes()))
            .map_err(SessionError::Files)?;
        let proof = MountProof {
            directory: inside.as_path().into(),
        };
        let welcome = self.connect_anew(Some(proof)).await;
        let answered = shared.read(Path::new(answer), LONGEST_NONCE, Links::Refused);
        for name in [question, answer] {
            let _ = shared.remove_file(name.as_ref());
        }
        let not_shared = |detail: String| SessionError::NotShared { directory, detail };
        match welcome {
            Err(SessionError::Refused(refusal)) if refusal.kind == RefusalKind::Mount => {
                Err(not_shared(on_one_line(beginning(&refusal.message, 500))))
            }
            Err(error) => Err(error),
            Ok(_) if !answered.is_ok_and(|bytes| bytes == nonce.as_bytes()) => Err(not_shared(
                "what was written inside is not there".to_owned(),
            )),
            Ok(welcome) => Ok(welcome),
        }
    }

    pub(super) async fn connect_anew(
        &self,
        proof: Option<MountProof>,
    ) -> Result<Welcome, SessionError> {
        let mut live = self.live.lock().await;
        *live = None;
        let made = self.dial(proof).await?;
        let welcome = made.welcome.clone();
        *live = Some(made);
        Ok(welcome)
    }

    /// Asks `request`, with `body` behind it, until it is answered. `limit` is for one try.
    ///
    /// A request may thus be carried out twice; for all but `Spawn` that makes no difference, and a
    /// second `Spawn` finds the directory taken.
    pub(super) async fn ask(
        &self,
        request: &SessionRequest,
        body: &[u8],
        limit: Option<Duration>,
    ) -> Result<(SessionAnswer, MuxStream), SessionError> {
        let mut failures = 0;
        loop {
            let mux = self.connected().await?;
            let began = Instant::now();
            let asked = exchange(&mux, request, body);
            let answered = match limit {
                Some(limit) => timeout(limit, asked)
                    .await
                    .unwrap_or_else(|elapsed| Err(elapsed.into())),
                None => asked.await,
            };
            match answered {
                Ok((SessionAnswer::Refused(refusal), _)) => {
                    return Err(SessionError::Refused(refusal));
                }
                Ok(answered) => return Ok(answered),
                Err(error) => {
                    failures = if began.elapsed() > GOOD_WHILE {
                        1
                    } else {
                        failures + 1
                    };
                    if failures > RETRIES {
                        return Err(SessionError::Unreachable(error));
                    }
                    tokio::time::sleep(pause(failures)).await;
                }
            }
        }
    }

    /// The same for what takes no time.
    pub(super) async fn ask_briefly(
        &self,
        request: &SessionRequest,
    ) -> Result<SessionAnswer, SessionError> {
        let (answer, _) = self.ask(request, &[], Some(ANSWER_LIMIT)).await?;
        Ok(answer)
    }

    /// Lets connections to the loopback port `port` inside arrive at the same port of this machine.
    pub(super) async fn lead(self: &Arc<Self>, port: u16) -> Result<Passage, SessionError> {
        self.give_back().await;
        let _leading = self.leading.lock().await;
        let service = format!("loopback:{port}");
        self.passages.open(service.clone(), port);
        let passage = Passage {
            service,
            passages: self.passages.clone(),
            client: Arc::downgrade(self),
        };
        let request = SessionRequest::Forward {
            port,
            service: passage.service.clone(),
        };
        match self.ask_briefly(&request).await? {
            SessionAnswer::Listening { port: taken } if taken == port => Ok(passage),
            _ => Err(SessionError::Confused),
        }
    }

    /// Gives back the ports inside that nobody has use for any more, where there is a connection.
    pub(super) async fn give_back(&self) {
        let _leading = self.leading.lock().await;
        let live = self.live.lock().await;
        let mux = live.as_ref().map(|live| live.mux.clone());
        drop(live);
        if let Some(mux) = mux {
            self.passages.give_back(&mux).await;
        }
    }

    /// The connection that holds, else a new one.
    async fn connected(&self) -> Result<Mux, SessionError> {
        let mut live = self.live.lock().await;
        if let Some(live) = live.as_ref().filter(|live| !live.mux.is_closed()) {
            return Ok(live.mux.clone());
        }
        *live = None;
        let made = self.dial(None).await?;
        let mux = made.mux.clone();
        *live = Some(made);
        Ok(mux)
    }

    async fn dial(&self, proof: Option<MountProof>) -> Result<Live, SessionError> {
        let mut failures = 0;
        loop {
            let failed = match self.dialer.dial().await {
                Err(DialError::Gone {
                    reason,
                    out_of_memory,
                }) => {
                    return Err(SessionError::Gone {
                        reason,
                        out_of_memory,
                    });
                }
                Err(DialError::Failed(error)) => error,
                Ok(channel) => match self.greet(channel, proof.clone()).await {
                    Ok(live) => return Ok(live),
                    Err(SessionError::Unreachable(error)) => error,
                    Err(error) => return Err(error),
                },
            };
            failures += 1;
            if failures > RETRIES {
                return Err(SessionError::Unreachable(failed));
            }
            tokio::time::sleep(pause(failures)).await;
        }
    }

    async fn greet(
        &self,
        channel: Box<dyn Channel>,
        proof: Option<MountProof>,
    ) -> Result<Live, SessionError> {
        let (mux, calls) = Mux::start(channel, Side::Outside);
        let hello = SessionRequest::Hello(Hello {
            generation: GENERATION,
            token: self.token.clone(),
            proof,
            only_asks: self.only_asks,
        });
        let greeted = timeout(ANSWER_LIMIT, exchange(&mux, &hello, &[])).await;
        let (answer, _) = greeted
            .unwrap_or_else(|elapsed| Err(elapsed.into()))
            .map_err(SessionError::Unreachable)?;
        match answer {
            SessionAnswer::Welcome(welcome) => {
                let services = Services {
                    passages: self.passages.clone(),
                    proxy: self.proxy.clone(),
                };
                tokio::spawn(answer_calls(calls, services));
                if let Some(proxy) = &self.proxy {
                    start_shim(&mux, &welcome, proxy).await?;
                }
                self.passages.lead_again(&mux).await?;
                Ok(Live { mux, welcome })
            }
            SessionAnswer::Refused(refusal) => Err(SessionError::Refused(refusal)),
            _ => Err(SessionError::Confused),
        }
    }
}

fn pause(failures: u32) -> Duration {
    FIRST_PAUSE * 2_u32.saturating_pow(failures.saturating_sub(1))
}

pub(super) async fn exchange(
    mux: &Mux,
    request: &SessionRequest,
    body: &[u8],
) -> io::Result<(SessionAnswer, MuxStream)> {
    let mut stream = mux.open().await?;
    write_frame(&mut stream, request).await?;
    stream.write_all(body).await?;
    stream.flush().await?;
    let answer = read_frame(&mut stream).await?;
    Ok((answer, stream))
}
