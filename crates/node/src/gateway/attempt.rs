//! One request to the vendor, up to the moment that something can be passed on.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap};
use hyper::{Response, StatusCode, Uri};
use tokio::time::timeout;

use super::Shared;
use super::classify::{Complaint, class_of_status, retry_after};
use super::guard::Endpoint;
use super::headers::to_inside;
use super::meter::{StreamMeter, read_plain};
use super::upstream::root_cause;
use crate::model::{CallFailure, FailureClass, TokenUsage};

/// Longest answer without a stream. It is read whole, so that one that breaks off can be asked for
/// again, and its count is on record before anybody acts on it.
const LONGEST_PLAIN: usize = 16 << 20;
/// Of an answer that is an error, this much is read.
const LONGEST_COMPLAINT: usize = 64 << 10;
/// A stream is passed on from its first event, or after so many bytes without one.
const LONGEST_PRELUDE: usize = 64 << 10;

/// An answer.
#[derive(Debug)]
pub(super) enum Opened {
    /// All of it.
    Plain {
        head: Head,
        body: Bytes,
        usage: Option<TokenUsage>,
    },
    /// The beginning, of which nothing was passed on.
    Stream {
        head: Head,
        begun: Bytes,
        rest: Incoming,
        meter: Box<StreamMeter>,
    },
}

/// What comes before the body, fit for the client.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) failure: CallFailure,
    pub(super) status: Option<StatusCode>,
    pub(super) usage: Option<TokenUsage>,
    /// Nothing was dealt that is not in `usage`.
    pub(super) is_counted: bool,
    pub(super) is_transient: bool,
    pub(super) retry_after: Option<Duration>,
}

impl Failed {
    fn new(shared: &Shared, class: FailureClass, message: &str) -> Self {
        Self {
            failure: shared.failure(class, message),
            status: None,
            usage: None,
            is_counted: false,
            is_transient: class.is_transient(),
            retry_after: None,
        }
    }

    /// The request cannot even be put together.
    pub(super) fn unmade(shared: &Shared, error: &hyper::http::Error) -> Self {
        let what = format!("cannot be addressed: {error}");
        Self {
            is_counted: true,
            ..Self::new(shared, FailureClass::Request, &what)
        }
    }

    fn with_status(self, status: StatusCode) -> Self {
        let status = Some(status);
        Self { status, ..self }
    }
}

/// Makes the request once. Dropping the future ends the call.
pub(super) async fn make(
    shared: &Shared,
    endpoint: Endpoint,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Opened, Failed> {
    let limit = shared.limits.first_byte;
    let response = match timeout(limit, shared.upstream.send(uri, headers, body)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            let what = if error.is_unsent {
                format!("could not be reached: {}", error.message)
            } else {
                format!("did not answer: {}", error.message)
            };
            return Err(Failed {
                is_counted: error.is_unsent,
                is_transient: error.is_transient,
                ..Failed::new(shared, FailureClass::Network, &what)
            });
        }
        Err(_) => {
            let what = format!("did not answer within {}", seconds(limit));
            return Err(Failed::new(shared, FailureClass::Network, &what));
        }
    };
    let status = response.status();
    let opened = if status.is_success() {
        open(shared, endpoint, response).await
    } else {
        Err(refused(shared, response).await)
    };
    opened.map_err(|failed| failed.with_status(status))
}

async fn open(
    shared: &Shared,
    endpoint: Endpoint,
    response: Response<Incoming>,
) -> Result<Opened, Failed> {
    let broken = |what: &str| Failed::new(shared, FailureClass::Stream, what);
    let (parts, body) = response.into_parts();
    let head = Head {
        status: parts.status,
        headers: to_inside(&parts.headers, &shared.redactor),
    };
    let encoding = parts.headers.get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| encoding != "identity") {
        return Err(broken("answered in an encoding that was not asked for"));
    }
    match media_type(&parts.headers).as_deref() {
        Some("text/event-stream") => begin(shared, head, body).await,
        Some(kind) if kind == "application/json" || kind.ends_with("+json") => {
            let body = read_all(body, LONGEST_PLAIN, shared.limits.stall)
                .await
                .map_err(|what| broken(&what))?;
            let plain = read_plain(shared.api, &body)
                .map_err(|error| broken(&format!("answered, but {error}")))?;
            if let Some(complaint) = plain.complaint {
                return Err(complained(shared, &complaint));
            }
            let usage = match endpoint {
                Endpoint::Answer => plain.usage,
                Endpoint::CountTokens => Some(TokenUsage::default()),
            };
            Ok(Opened::Plain {
                head,
                body: Bytes::from(shared.redactor.redact(&body)),
                usage,
            })
        }
        Some(_) | None => Err(broken("answered, but not with JSON or a stream of events")),
    }
}

/// Waits for the first event: a stream that ends, or fails, before it can be asked for again.
async fn begin(shared: &Shared, head: Head, mut rest: Incoming) -> Result<Opened, Failed> {
    let mut meter = Box::new(StreamMeter::new(shared.api));
    let mut begun = BytesMut::new();
    while !meter.has_begun() && begun.len() < LONGEST_PRELUDE {
        let what = match timeout(shared.limits.stall, rest.frame()).await {
            Ok(Some(Ok(frame))) => {
                let data = frame.into_data().unwrap_or_default();
                begun.extend_from_slice(&data);
                match meter.push(&data) {
                    Ok(()) => continue,
                    Err(error) => format!("sent a broken stream: {error}"),
                }
            }
            Ok(Some(Err(error))) => format!("broke off the stream: {}", root_cause(&error)),
            Ok(None) => "ended the stream before its first event".to_owned(),
            Err(_) => format!("sent nothing for {}", seconds(shared.limits.stall)),
        };
        return Err(Failed {
            usage: meter.usage(),
            ..Failed::new(shared, FailureClass::Stream, &what)
        });
    }
    if let Some(complaint) = meter.complaint() {
        return Err(Failed {
            usage: meter.usage(),
            is_counted: meter.is_final(),
            ..complained(shared, complaint)
        });
    }
    Ok(Opened::Stream {
        head,
        begun: begun.freeze(),
        rest,
        meter,
    })
}

/// An error that came with a status of success.
pub(super) fn complained(shared: &Shared, complaint: &Complaint) -> Failed {
    let class = complaint.class().unwrap_or(FailureClass::Server);
    let message = complaint.message().unwrap_or("it did not say why");
    Failed::new(shared, class, &format!("reported an error: {message}"))
}

async fn refused(shared: &Shared, response: Response<Incoming>) -> Failed {
    let status = response.status();
    let retry_after = retry_after(response.headers(), SystemTime::now());
    // What was said until it broke off or became too long tells more than that it did.
    let complaint =
        match read_all(response.into_body(), LONGEST_COMPLAINT, shared.limits.stall).await {
            Ok(body) => Complaint::of_body(&body),
            Err(_) => Complaint::default(),
        };
    let class = class_of_status(status.as_u16(), &complaint);
    let mut what = format!("answered {}", status.as_u16());
    if let Some(reason) = status.canonical_reason() {
        what.push_str(&format!(" ({reason})"));
    }
    if status.is_redirection() {
        what.push_str(", which is not followed");
    }
    if let Some(message) = complaint.message() {
        what.push_str(": ");
        what.push_str(message);
    }
    Failed {
        is_counted: true,
        retry_after,
        ..Failed::new(shared, class, &what)
    }
}

async fn read_all(mut body: Incoming, most: usize, stall: Duration) -> Result<Bytes, String> {
    let mut read = BytesMut::new();
    loop {
        match timeout(stall, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                let data = frame.into_data().unwrap_or_default();
                if read.len().saturating_add(data.len()) > most {
                    return Err(format!("answered with more than {most} bytes"));
                }
                read.extend_from_slice(&data);
            }
            Ok(Some(Err(error))) => {
                return Err(format!("broke off the answer: {}", root_cause(&error)));
            }
            Ok(None) => return Ok(read.freeze()),
            Err(_) => return Err(format!("sent nothing for {}", seconds(stall))),
        }
    }
}

fn media_type(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let kind = text.split(';').next().unwrap_or_default();
    Some(kind.trim().to_ascii_lowercase())
}

pub(super) fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}
