use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::body::{AnswerBody, Cut, CuttableStream};
use super::call::{Call, Client, error_response};
use super::guard::{Endpoint, Verdict, judge};
use super::headers::{key_header, to_upstream};
use super::standing::Standing;
use super::upstream::Upstream;
use super::{
    BaseUrl, GatewayLimits, GatewayReport, GatewaySettings, Placeholder, RootsError, request, words,
};
use crate::model::{Api, CallFailure, CallLedger, FailureClass};
use crate::redact::{Redactor, RegisterError};

/// Requests of full length whose memory may be in use at a time; the next one waits.
const MOST_REQUESTS: u64 = 4;
/// Longest head of a request. So much stays with each connection once it was needed.
const LONGEST_HEAD: usize = 32 << 10;

/// A gateway that is open. Dropping it ends whatever passes through it, without waiting.
#[derive(Debug)]
pub struct Gateway {
    api: Api,
    address: SocketAddr,
    standing: Arc<Standing>,
    /// All tasks end when this is dropped.
    open: watch::Sender<()>,
    /// Ends when all tasks have.
    tasks: mpsc::Receiver<Infallible>,
}

/// Why a gateway cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// Others than the lane could reach it.
    #[error("a gateway listens on a loopback address alone, not on {0}")]
    NotLoopback(SocketAddr),
    /// The listener is of no use.
    #[error("the gateway's listener cannot be used")]
    Listener(#[source] io::Error),
    /// The key cannot be kept out of what comes back.
    #[error("the key of the lane cannot be used")]
    Key(#[source] RegisterError),
    /// The key cannot be sent.
    #[error("the key of the lane has characters that no header can have")]
    KeyCharacters,
    /// The vendor could not be recognised.
    #[error("the vendor's certificate could not be checked")]
    Roots(#[source] RootsError),
}

/// What all connections of a gateway have in common.
pub(super) struct Shared {
    pub(super) api: Api,
    pub(super) base_url: BaseUrl,
    pub(super) key_header: (HeaderName, HeaderValue),
    pub(super) redactor: Redactor,
    pub(super) limits: GatewayLimits,
    pub(super) upstream: Upstream,
    pub(super) ledger: Arc<dyn CallLedger>,
    pub(super) standing: Arc<Standing>,
    placeholder: Placeholder,
    address: SocketAddr,
    /// Each permit is for a KiB of a request.
    memory: Arc<Semaphore>,
}

/// Whatever a task needs to end with its gateway.
#[derive(Clone)]
struct Life {
    open: watch::Receiver<()>,
    _task: mpsc::Sender<Infallible>,
}

impl Gateway {
    /// Begins to answer on `listener`, which may have been made in another network namespace. The
    /// tasks run on the current runtime, which needs time and IO.
    pub async fn open(
        listener: TcpListener,
        settings: GatewaySettings,
        ledger: Arc<dyn CallLedger>,
    ) -> Result<Self, GatewayError> {
        let address = listener.local_addr().map_err(GatewayError::Listener)?;
        if !address.ip().is_loopback() {
            return Err(GatewayError::NotLoopback(address));
        }
        listener
            .set_nonblocking(true)
            .map_err(GatewayError::Listener)?;
        let listener =
            tokio::net::TcpListener::from_std(listener).map_err(GatewayError::Listener)?;
        settings
            .redactor
            .register(settings.key.expose().as_bytes())
            .map_err(GatewayError::Key)?;
        let key_header =
            key_header(settings.api, &settings.key).ok_or(GatewayError::KeyCharacters)?;
        let (base_url, roots) = (settings.base_url.clone(), settings.roots);
        // It reads files.
        let upstream = tokio::task::spawn_blocking(move || Upstream::new(&base_url, &roots))
            .await
            .map_err(|error| GatewayError::Roots(RootsError::BrokenOff(error)))?
            .map_err(GatewayError::Roots)?;
        let standing = Arc::new(Standing::default());
        let api = settings.api;
        let memory = settings
            .limits
            .max_request_bytes
            .saturating_mul(MOST_REQUESTS);
        let shared = Arc::new(Shared {
            api,
            base_url: settings.base_url,
            key_header,
            redactor: settings.redactor,
            upstream,
            ledger,
            standing: Arc::clone(&standing),
            placeholder: settings.placeholder,
            address,
            memory: Arc::new(Semaphore::new(kibibytes(memory) as usize)),
            limits: settings.limits,
        });
        let (open, receiver) = watch::channel(());
        let (task, tasks) = mpsc::channel(1);
        let life = Life {
            open: receiver,
            _task: task,
        };
        tokio::spawn(accept(listener, shared, life));
        Ok(Self {
            api,
            address,
            standing,
            open,
            tasks,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL that the agent is given, in the form that clients of the API expect.
    pub fn inside_base_url(&self) -> String {
        match self.api {
            Api::AnthropicMessages => format!("http://{}", self.address),
            Api::OpenaiChat | Api::OpenaiResponses => format!("http://{}/v1", self.address),
        }
    }

    /// How the lane fares.
    pub fn report(&self) -> GatewayReport {
        self.standing.report()
    }

    /// Stops listening and ends every call. All of them are on record, and the key is forgotten,
    /// when this returns.
    pub async fn close(self) -> GatewayReport {
        let Self {
            open,
            mut tasks,
            standing,
            ..
        } = self;
        drop(open);
        while tasks.recv().await.is_some() {}
        standing.report()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Shared")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

async fn accept(listener: tokio::net::TcpListener, shared: Arc<Shared>, life: Life) {
    let connections = Arc::new(Semaphore::new(shared.limits.max_connections));
    let mut open = life.open.clone();
    let serve = async {
        // The semaphore is never closed.
        while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let connection = converse(stream, Arc::clone(&shared), life.clone());
                    tokio::spawn(async move {
                        connection.await;
                        drop(permit);
                    });
                }
                // Such as no more descriptors: it may be better in a moment.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::select! {
        _ = open.changed() => {}
        () = serve => {}
    }
}

async fn converse(stream: TcpStream, shared: Arc<Shared>, life: Life) {
    // Without it, small events would wait for each other; with an error, they do.
    let _ = stream.set_nodelay(true);
    let cut = Cut::default();
    let stream = CuttableStream::new(stream, cut.clone());
    let mut open = life.open.clone();
    let service = service_fn(move |request| {
        let (shared, cut, life) = (Arc::clone(&shared), cut.clone(), life.clone());
        async move { Ok::<_, Infallible>(answer(shared, request, cut, life).await) }
    });
    let connection = http1::Builder::new()
        // To end an idle connection would race with its next request, which the client would then
        // have to make again; to keep it costs nobody but the lane.
        .header_read_timeout(None)
        .max_buf_size(LONGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _ = open.changed() => {}
        // A client that breaks off is no event.
        _ = connection => {}
    }
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    cut: Cut,
    life: Life,
) -> Response<AnswerBody> {
    let refuse = |status, sentence: &str| {
        let body = words::error_body(shared.api, sentence);
        error_response(status, AnswerBody::Whole(body))
    };
    let verdict = judge(&request, shared.api, shared.address, &shared.placeholder);
    let (endpoint, path) = match verdict {
        Verdict::Call(endpoint, path) => (endpoint, path),
        Verdict::Greeting => return Response::new(AnswerBody::Whole(Bytes::new())),
        Verdict::Refused(status, sentence) => return refuse(status, sentence),
    };
    let number = match shared.standing.begin(shared.limits.max_calls) {
        Ok(number) => number,
        Err(failure) => return refuse(StatusCode::BAD_REQUEST, &failure.message),
    };
    let (parts, body) = request.into_parts();
    let read = match read_body(&shared, &parts.headers, body).await {
        Ok((body, memory)) => request::read(shared.api, body)
            .map(|request| (request, memory))
            .map_err(|error| (StatusCode::BAD_REQUEST, shared.fit(&error.to_string()))),
        Err((status, sentence)) => Err((status, sentence.to_owned())),
    };
    let (request, memory) = match read {
        Ok(read) => read,
        Err((status, message)) => {
            if endpoint == Endpoint::Answer {
                shared.standing.failed(&CallFailure {
                    class: FailureClass::Request,
                    message: message.clone(),
                });
            }
            return refuse(status, &message);
        }
    };
    let call = Call {
        number,
        endpoint,
        path,
        headers: to_upstream(&parts.headers, &shared.placeholder),
        request,
        _memory: memory,
        shared: Arc::clone(&shared),
    };
    let (sender, receiver) = oneshot::channel();
    let client = Client {
        answer: sender,
        cut,
        open: life.open.clone(),
    };
    // A task of its own: this one ends when the client leaves, and the call must be put on record.
    tokio::spawn(async move {
        call.run(client).await;
        drop(life);
    });
    match receiver.await {
        Ok(response) => response,
        Err(_) => refuse(StatusCode::BAD_GATEWAY, "the gateway is closed"),
    }
}

/// Reads a request whole: its cost has to be judged before it goes out, and it may have to go out
/// again.
async fn read_body(
    shared: &Shared,
    headers: &HeaderMap,
    mut body: Incoming,
) -> Result<(Bytes, OwnedSemaphorePermit), (StatusCode, &'static str)> {
    const TOO_LONG: (StatusCode, &str) = (StatusCode::PAYLOAD_TOO_LARGE, "the request is too long");
    let encoding = headers.get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| encoding != "identity") {
        return Err((
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the request is encoded, so its cost cannot be judged",
        ));
    }
    let most = shared.limits.max_request_bytes;
    let length = hyper::body::Body::size_hint(&body).exact();
    if length.is_some_and(|length| length > most) {
        return Err(TOO_LONG);
    }
    // All at once, so that no two requests wait for each other's rest.
    let permits = kibibytes(length.unwrap_or(most));
    let memory = Arc::clone(&shared.memory)
        .acquire_many_owned(permits)
        .await
        .map_err(|_| TOO_LONG)?;
    // The memory is granted, and a request that grows bit by bit takes twice as much.
    let mut read = BytesMut::with_capacity(usize::try_from(length.unwrap_or(0)).unwrap_or(0));
    loop {
        let frame = tokio::time::timeout(shared.limits.stall, body.frame())
            .await
            .map_err(|_| {
                (
                    StatusCode::REQUEST_TIMEOUT,
                    "the rest of the request did not come",
                )
            })?;
        let Some(frame) = frame else {
            return Ok((read.freeze(), memory));
        };
        let data = frame
            .map_err(|_| (StatusCode::BAD_REQUEST, "the request broke off"))?
            .into_data()
            .unwrap_or_default();
        if (read.len() as u64).saturating_add(data.len() as u64) > most {
            return Err(TOO_LONG);
        }
        read.extend_from_slice(&data);
    }
}

/// How many permits are for so many bytes. More than a semaphore can have are never asked for.
fn kibibytes(bytes: u64) -> u32 {
    const MOST: u64 = 1 << 28;
    u32::try_from(bytes.div_ceil(1 << 10).clamp(1, MOST)).unwrap_or(1 << 28)
}
