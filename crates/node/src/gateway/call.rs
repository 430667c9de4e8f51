//! A request of the client, from its admission to the record of its end.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hyper::header::HeaderMap;
use hyper::{Response, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use super::attempt::{self, Failed, Opened};
use super::body::{AnswerBody, Cut};
use super::guard::Endpoint;
use super::relay::Relay;
use super::request::ModelRequest;
use super::standing::CallNumber;
use super::{Shared, words};
use crate::model::{CallFailure, CallTicket, FailureClass, FinishedCall, TokenUsage};

/// A request that may go to the vendor as far as the gateway is concerned.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) shared: Arc<Shared>,
    pub(super) number: CallNumber,
    pub(super) endpoint: Endpoint,
    /// Below the base URL.
    pub(super) path: &'static str,
    /// Without the key.
    pub(super) headers: HeaderMap,
    pub(super) request: ModelRequest,
    /// For the memory of the request, which is freed with it.
    pub(super) _memory: OwnedSemaphorePermit,
}

/// Who waits for the answer.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) answer: oneshot::Sender<Response<AnswerBody>>,
    pub(super) cut: Cut,
    /// Ends with the gateway.
    pub(super) open: watch::Receiver<()>,
}

impl Client {
    /// Returns when nobody waits any more.
    async fn gone(&mut self) {
        tokio::select! {
            () = self.answer.closed() => {}
            _ = self.open.changed() => {}
        }
    }
}

/// A request that was sent, until its end is on record.
#[derive(Debug)]
pub(super) struct Begun {
    ticket: CallTicket,
    started_at_ms: u64,
    started: Instant,
}

impl Begun {
    fn new(ticket: CallTicket) -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            ticket,
            started_at_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
            started: Instant::now(),
        }
    }

    pub(super) async fn record(
        self,
        shared: &Shared,
        status: Option<StatusCode>,
        usage: Option<TokenUsage>,
        complete: bool,
        failure: Option<CallFailure>,
    ) {
        let duration = self.started.elapsed().as_millis();
        let finished = FinishedCall {
            usage,
            complete,
            failure,
            status: status.map(|status| status.as_u16()),
            started_at_ms: self.started_at_ms,
            duration_ms: u64::try_from(duration).unwrap_or(u64::MAX),
        };
        shared.ledger.record(self.ticket, finished).await;
    }
}

impl Call {
    /// Makes the call, again if need be, and answers the client. The client may leave at any time;
    /// what was sent by then is ended and on record when this returns.
    pub(super) async fn run(self, mut client: Client) {
        let shared = Arc::clone(&self.shared);
        let mut tried = 0;
        loop {
            tried += 1;
            let ticket = match shared.ledger.admit(&self.request.planned).await {
                Ok(ticket) => ticket,
                Err(refusal) => {
                    let message = shared.fit(&refusal.message);
                    let class = refusal.class;
                    return self.fail(client, &CallFailure { class, message });
                }
            };
            let begun = Begun::new(ticket);
            let made = tokio::select! {
                biased;
                () = client.gone() => None,
                made = self.attempt() => Some(made),
            };
            let failed = match made {
                None => {
                    let failure = shared.abandoned();
                    return begun
                        .record(&shared, None, None, false, Some(failure))
                        .await;
                }
                Some(Ok(Opened::Plain { head, body, usage })) => {
                    let complete = usage.is_some();
                    begun
                        .record(&shared, Some(head.status), usage, complete, None)
                        .await;
                    if self.endpoint == Endpoint::Answer {
                        shared.standing.succeeded(self.number);
                    }
                    let mut response = Response::new(AnswerBody::Whole(body));
                    *response.status_mut() = head.status;
                    *response.headers_mut() = head.headers;
                    // A client that left is not told.
                    let _ = client.answer.send(response);
                    return;
                }
                Some(Ok(Opened::Stream {
                    head,
                    begun: beginning,
                    rest,
                    meter,
                })) => {
                    // It can no longer be tried again, so the request is needed no more.
                    let number = self.number;
                    drop(self);
                    let relay = Relay {
                        shared,
                        number,
                        begun,
                        head,
                        rest,
                        meter,
                    };
                    return relay.run(beginning, client).await;
                }
                Some(Err(failed)) => failed,
            };
            let Failed {
                mut failure,
                status,
                usage,
                is_counted,
                is_transient,
                retry_after,
            } = failed;
            begun
                .record(&shared, status, usage, is_counted, Some(failure.clone()))
                .await;
            let delay = is_transient
                .then(|| shared.limits.retry.delay(tried, retry_after))
                .flatten();
            let Some(delay) = delay else {
                if tried > 1 {
                    failure.message =
                        shared.fit(&format!("{} (asked {tried} times)", failure.message));
                }
                return self.fail(client, &failure);
            };
            tokio::select! {
                () = client.gone() => return,
                () = tokio::time::sleep(delay) => {}
            }
        }
    }

    async fn attempt(&self) -> Result<Opened, Failed> {
        let shared = &self.shared;
        let uri = shared
            .base_url
            .join(self.path)
            .map_err(|error| Failed::unmade(shared, &error))?;
        let mut headers = self.headers.clone();
        let (name, value) = &shared.key_header;
        headers.insert(name.clone(), value.clone());
        let body = self.request.body.clone();
        attempt::make(shared, self.endpoint, uri, headers, body).await
    }

    /// Ends the request for good.
    fn fail(self, client: Client, failure: &CallFailure) {
        // Not every vendor can count tokens, and nothing depends on it.
        if self.endpoint == Endpoint::Answer {
            self.shared.standing.failed(failure);
        }
        let told = words::for_client(failure, self.shared.base_url.host());
        let body = words::error_body(self.shared.api, &told);
        let response = error_response(StatusCode::BAD_REQUEST, AnswerBody::Whole(body));
        let _ = client.answer.send(response);
    }
}

/// An answer of the gateway itself.
pub(super) fn error_response(status: StatusCode, body: AnswerBody) -> Response<AnswerBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(
        hyper::header::CONTENT_TYPE,
        hyper::header::HeaderValue::from_static("application/json"),
    );
    response
}

impl Shared {
    /// A failure of the vendor, in one sentence that is fit for anybody.
    pub(super) fn failure(&self, class: FailureClass, what: &str) -> CallFailure {
        let message = format!("the model API at {} {what}", self.base_url.host());
        CallFailure {
            class,
            message: self.fit(&message),
        }
    }

    pub(super) fn abandoned(&self) -> CallFailure {
        CallFailure {
            class: FailureClass::Stream,
            message: "the agent left before the answer was whole".to_owned(),
        }
    }

    /// `text` without secrets, on one line, and short.
    pub(super) fn fit(&self, text: &str) -> String {
        const LONGEST: usize = 400;
        // Before it is shortened: half a secret would not be found.
        let text = crate::text::on_one_line(&self.redactor.redact_text(text));
        match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }
}
