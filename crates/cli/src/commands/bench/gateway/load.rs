//! Agents that listen to their models.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::parties::Party;
use crate::commands::bench::lab::{failed, milliseconds};
use crate::error::CommandError;

/// Asks the vendor for more than fits anywhere.
pub(super) const FLOOD: &str = "x-flood";
/// Length of a request: a conversation that has gone on for a while.
const REQUEST: usize = 64 << 10;
/// Between the beginnings of two clients. With 200 of them the last begins when the first answer is
/// near its end, so that calls begin at any time.
const STEP: Duration = Duration::from_millis(5);
/// In the middle of an answer.
const HALF: Duration = Duration::from_millis(500);

/// Who asks how often.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) clients: usize,
    /// Of each client, one after the other, on one connection.
    pub(super) calls: usize,
    /// All begin in the same moment, else one after the other.
    pub(super) is_burst: bool,
    /// So many of the clients read the beginning of a very long answer and no more.
    pub(super) slow: usize,
}

/// Milliseconds from the beginning of a call to the first byte of the body of its answer.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Of first calls, with the time for the connection.
    pub(super) new: Vec<f64>,
    /// Of further calls.
    pub(super) kept: Vec<f64>,
    /// Bytes of memory while all listen.
    pub(super) shared: f64,
}

/// Whatever goes wrong makes the measurement worthless.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Puts `load` on `party`.
pub(super) async fn run(party: &Party, load: Load) -> Result<Measured, CommandError> {
    let caller = Arc::new(Caller::new(party).map_err(|error| failed(&*error))?);
    let mut slow = JoinSet::new();
    for _ in 0..load.slow {
        let caller = Arc::clone(&caller);
        slow.spawn(async move { caller.stall().await });
    }
    // Whoever does not read has filled the buffers by then.
    if load.slow > 0 {
        tokio::time::sleep(2 * HALF).await;
    }
    let mut clients = JoinSet::new();
    for number in load.slow..load.clients {
        let caller = Arc::clone(&caller);
        let before = u32::try_from(number).unwrap_or(u32::MAX);
        let delay = if load.is_burst {
            Duration::ZERO
        } else {
            STEP.saturating_mul(before)
        };
        clients.spawn(async move {
            tokio::time::sleep(delay).await;
            caller.listen(load.calls).await
        });
    }
    let mut measured = Measured::default();
    let begun = if load.is_burst { 0 } else { load.clients };
    let begun = u32::try_from(begun).unwrap_or(u32::MAX);
    tokio::time::sleep(STEP.saturating_mul(begun).saturating_add(HALF)).await;
    measured.shared = party.shared()?;
    while let Some(listened) = clients.join_next().await {
        let took = listened
            .map_err(Failure::from)
            .flatten()
            .map_err(|error| failed(&*error))?;
        measured.new.extend(took.first());
        measured.kept.extend(took.iter().skip(1));
    }
    slow.shutdown().await;
    Ok(measured)
}

struct Caller {
    address: std::net::SocketAddr,
    token: String,
    tls: Option<TlsConnector>,
    body: Bytes,
}

impl Caller {
    fn new(party: &Party) -> Result<Self, Failure> {
        let tls = match &party.authority {
            None => None,
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(pem)?)?;
                let provider = tokio_rustls::rustls::crypto::aws_lc_rs::default_provider();
                let config = ClientConfig::builder_with_provider(Arc::new(provider))
                    .with_safe_default_protocol_versions()?
                    .with_root_certificates(roots)
                    .with_no_client_auth();
                Some(TlsConnector::from(Arc::new(config)))
            }
        };
        let body = format!(
            r#"{{"model":"m","max_tokens":1000,"stream":true,"messages":[{{"role":"user","content":"{}"}}]}}"#,
            "word ".repeat(REQUEST / 5)
        );
        Ok(Self {
            address: party.address,
            token: party.token.clone(),
            tls,
            body: Bytes::from(body),
        })
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => handshake(stream).await,
            Some(tls) => {
                let name = ServerName::try_from("localhost")?;
                handshake(tls.connect(name, stream).await?).await
            }
        }
    }

    fn request(&self, more: Option<&'static str>) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::post("/v1/messages")
            .header("host", self.address.to_string())
            .header("x-api-key", &self.token)
            .header("content-type", "application/json")
            .header("anthropic-version", "2023-06-01");
        if let Some(name) = more {
            request = request.header(name, "1");
        }
        Ok(request.body(Full::new(self.body.clone()))?)
    }

    /// Makes calls one after the other; how long the first byte of each took.
    async fn listen(&self, calls: usize) -> Result<Vec<f64>, Failure> {
        let mut took = Vec::new();
        let mut sender = None;
        for _ in 0..calls {
            let began = Instant::now();
            let sender = match &mut sender {
                Some(sender) => sender,
                None => sender.insert(self.connect().await?),
            };
            sender.ready().await?;
            let mut response = sender.send_request(self.request(None)?).await?;
            if response.status() != 200 {
                return Err(format!("the answer was {}", response.status()).into());
            }
            let first = response.frame().await.ok_or("the answer was empty")??;
            took.push(milliseconds(began));
            let mut end = first.into_data().unwrap_or_default();
            while let Some(frame) = response.frame().await {
                end = frame?.into_data().unwrap_or_default();
            }
            if !end.ends_with(b"{\"type\":\"message_stop\"}\n\n") {
                return Err("the answer was not whole".into());
            }
        }
        Ok(took)
    }

    /// Reads the beginning of an answer and no more.
    async fn stall(&self) -> Result<(), Failure> {
        let mut sender = self.connect().await?;
        let mut response = sender.send_request(self.request(Some(FLOOD))?).await?;
        let _first = response.frame().await;
        std::future::pending().await
    }
}

async fn handshake<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
