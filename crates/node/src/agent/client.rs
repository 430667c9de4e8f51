//! One call to the model through the lane gateway, which is on this machine.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::api::{self, Answer, ReadError};
use crate::model::{Api, SseParser};
use crate::secret::Secret;

/// Longest event and longest answer that are read.
const LONGEST_EVENT: usize = 8 << 20;
const LONGEST_ANSWER: usize = 32 << 20;
const LONGEST_ERROR: usize = 64 << 10;
/// How long a connection may take. The gateway is on this machine.
const CONNECT: Duration = Duration::from_secs(10);
/// How long it may be silent. The gateway waits for the vendor several times and ends what stalls;
/// it is done with that before.
const SILENCE: Duration = Duration::from_secs(45 * 60);
/// The version of the Messages API that this agent speaks.
const MESSAGES_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// Makes calls. Shows neither the token nor what is said when it is printed.
pub(super) struct Client {
    api: Api,
    address: SocketAddr,
    path: String,
    token: Secret,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Client").finish_non_exhaustive()
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("could not reach the lane gateway at {address}: {why}")]
    Unreachable { address: SocketAddr, why: String },
    #[error("{message}")]
    Refused { status: StatusCode, message: String },
    #[error("{0}")]
    Answer(ReadError),
    #[error("{0}")]
    Stream(String),
}

impl Client {
    pub(super) fn new(api: Api, (address, base): (SocketAddr, &str), token: Secret) -> Self {
        Self {
            api,
            address,
            path: format!("{base}{}", api::path(api)),
            token,
        }
    }

    /// Sends a request and reads its answer to the end. Tries once: the gateway has tried again
    /// whatever was worth it.
    pub(super) async fn call(&self, body: Bytes) -> Result<Answer, CallError> {
        let unreachable = |why: &dyn std::fmt::Display| CallError::Unreachable {
            address: self.address,
            why: why.to_string(),
        };
        let request = self.request(body).map_err(|error| unreachable(&error))?;
        let stream = match timeout(CONNECT, TcpStream::connect(self.address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(unreachable(&error)),
            Err(_) => return Err(unreachable(&"it does not answer")),
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| unreachable(&error))?;
        let _connection = AbortOnDrop(tokio::spawn(connection));
        let response = match timeout(SILENCE, sender.send_request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let why = format!("the lane gateway gave no answer: {error}");
                return Err(CallError::Stream(why));
            }
            Err(_) => return Err(CallError::Stream("the lane gateway is silent".to_owned())),
        };
        if response.status() == StatusCode::OK {
            self.read(response).await
        } else {
            Err(refusal(response).await)
        }
    }

    fn request(&self, body: Bytes) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let token = match self.api {
            Api::AnthropicMessages => HeaderValue::from_str(self.token.expose()),
            Api::OpenaiChat | Api::OpenaiResponses => {
                HeaderValue::from_str(&format!("Bearer {}", self.token.expose()))
            }
        };
        let mut token = token?;
        token.set_sensitive(true);
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header(header::HOST, self.address.to_string())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "text/event-stream")
            .header(
                header::USER_AGENT,
                concat!("mini-ork/", env!("CARGO_PKG_VERSION")),
            )
            .header(header::CONNECTION, "close");
        let request = match self.api {
            Api::AnthropicMessages => request
                .header("x-api-key", token)
                .header("anthropic-version", MESSAGES_VERSION),
            Api::OpenaiChat | Api::OpenaiResponses => request.header(header::AUTHORIZATION, token),
        };
        request.body(Full::new(body))
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Answer, CallError> {
        let kind = response.headers().get(header::CONTENT_TYPE);
        let is_stream = kind
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"));
        if !is_stream {
            let what = "the answer is not a stream of events";
            return Err(CallError::Stream(what.to_owned()));
        }
        let mut body = response.into_body();
        let mut parser = SseParser::new(LONGEST_EVENT);
        let mut reader = api::reader(self.api);
        let mut length = 0;
        loop {
            let frame = match timeout(SILENCE, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => break,
                Ok(Some(Err(_))) => return Err(CallError::Answer(ReadError::Cut)),
                Err(_) => return Err(CallError::Stream("the answer stalled".to_owned())),
            };
            let Some(data) = frame.data_ref() else {
                continue;
            };
            length += data.len();
            if length > LONGEST_ANSWER {
                let what = format!("the answer is longer than {} MiB", LONGEST_ANSWER >> 20);
                return Err(CallError::Stream(what));
            }
            let mut outcome = Ok(());
            parser
                .push(data, |event| {
                    if outcome.is_ok() {
                        outcome = reader.event(event.data);
                    }
                })
                .map_err(|error| CallError::Stream(error.to_string()))?;
            outcome.map_err(CallError::Answer)?;
        }
        reader.finish().map_err(CallError::Answer)
    }
}

async fn refusal(response: Response<Incoming>) -> CallError {
    let status = response.status();
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while bytes.len() < LONGEST_ERROR
        && let Ok(Some(Ok(frame))) = timeout(CONNECT, body.frame()).await
    {
        if let Some(data) = frame.data_ref() {
            bytes.extend_from_slice(data);
        }
    }
    let value: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
    let message = value.as_ref().and_then(api::error_message);
    CallError::Refused {
        status,
        message: match message {
            Some(message) => message.to_owned(),
            None => format!("the lane gateway answered {status}"),
        },
    }
}

#[derive(Debug)]
struct AbortOnDrop(JoinHandle<hyper::Result<()>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
