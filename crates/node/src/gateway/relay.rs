//! A stream on its way from the vendor to the client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::Incoming;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::attempt::{Head, complained, seconds};
use super::body::{AnswerBody, Piece};
use super::call::{Begun, Client};
use super::meter::StreamMeter;
use super::standing::CallNumber;
use super::upstream::root_cause;
use super::{Shared, words};
use crate::model::FailureClass;
use crate::redact::{RedactingStream, Redactor};

/// After its last event a stream may end by itself, so that its connection can be used again.
const LINGER: Duration = Duration::from_secs(2);

/// Passes a stream on, piece by piece, at the speed of the client.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) shared: Arc<Shared>,
    pub(super) number: CallNumber,
    pub(super) begun: Begun,
    pub(super) head: Head,
    pub(super) rest: Incoming,
    pub(super) meter: Box<StreamMeter>,
}

/// How a stream ends.
enum End {
    /// As the API has it, well or with an error.
    Proper,
    /// With this about the vendor.
    Broken(String),
    /// Nobody listens any more.
    Unheard,
}

/// The client's side.
struct Sink {
    pieces: mpsc::Sender<Piece>,
    redacting: RedactingStream,
    open: watch::Receiver<()>,
}

impl Sink {
    /// Passes `data` on as far as no secret can begin there. False when nobody listens.
    async fn pass(&mut self, data: &[u8]) -> bool {
        let mut clean = Vec::with_capacity(data.len());
        self.redacting.push(data, &mut clean);
        clean.is_empty() || self.send(Piece::Data(Bytes::from(clean))).await
    }

    async fn send(&mut self, piece: Piece) -> bool {
        tokio::select! {
            sent = self.pieces.send(piece) => sent.is_ok(),
            _ = self.open.changed() => false,
        }
    }

    async fn unheard(&mut self) {
        tokio::select! {
            () = self.pieces.closed() => {}
            _ = self.open.changed() => {}
        }
    }

    /// Passes on what was kept back, and the end.
    async fn finish(mut self) {
        let mut clean = Vec::new();
        // Finishing consumes it; the one in its place passes nothing.
        let redacting = std::mem::replace(&mut self.redacting, Redactor::new().stream());
        redacting.finish(&mut clean);
        if clean.is_empty() || self.send(Piece::Data(Bytes::from(clean))).await {
            self.send(Piece::End).await;
        }
    }
}

impl Relay {
    /// Passes on `beginning`, which the meter has read, and the rest. The end is on record when
    /// this returns.
    pub(super) async fn run(mut self, beginning: Bytes, client: Client) {
        let (pieces, receiver) = mpsc::channel(1);
        let mut response = Response::new(AnswerBody::Relayed(receiver, client.cut));
        *response.status_mut() = self.head.status;
        *response.headers_mut() = std::mem::take(&mut self.head.headers);
        let mut sink = Sink {
            pieces,
            redacting: self.shared.redactor.stream(),
            open: client.open,
        };
        // When the client left, the receiver is gone with the response.
        let _ = client.answer.send(response);
        let end = if sink.pass(&beginning).await {
            drop(beginning);
            self.pass_rest(&mut sink).await
        } else {
            End::Unheard
        };
        self.conclude(end, sink).await;
    }

    async fn pass_rest(&mut self, sink: &mut Sink) -> End {
        let stall = self.shared.limits.stall;
        let mut over_since = None;
        loop {
            let patience = if self.meter.is_over() {
                let over_since = over_since.get_or_insert_with(Instant::now);
                LINGER.saturating_sub(over_since.elapsed())
            } else {
                stall
            };
            let frame = tokio::select! {
                biased;
                () = sink.unheard() => return End::Unheard,
                frame = timeout(patience, self.rest.frame()) => frame,
            };
            let broken = match frame {
                Ok(Some(Ok(frame))) => {
                    let data = frame.into_data().unwrap_or_default();
                    match self.meter.push(&data) {
                        Ok(()) if sink.pass(&data).await => continue,
                        Ok(()) => return End::Unheard,
                        Err(error) => format!("sent a broken stream: {error}"),
                    }
                }
                Ok(None) => "ended the stream before the answer was whole".to_owned(),
                Ok(Some(Err(error))) => format!("broke off the stream: {}", root_cause(&error)),
                Err(_) => format!("sent nothing for {}", seconds(stall)),
            };
            return if self.meter.is_over() || self.meter.is_whole() {
                End::Proper
            } else {
                End::Broken(broken)
            };
        }
    }

    async fn conclude(self, end: End, mut sink: Sink) {
        let shared = &self.shared;
        let failure = match (&end, self.meter.complaint()) {
            (_, Some(complaint)) => Some(complained(shared, complaint).failure),
            (End::Broken(what), None) => Some(shared.failure(FailureClass::Stream, what)),
            // Who has the whole answer need not wait for the connection to end.
            (End::Unheard, None) if !self.meter.is_whole() => Some(shared.abandoned()),
            (End::Unheard | End::Proper, None) => None,
        };
        // Ended before it is on record, so that a vendor writes nothing for nobody.
        drop(self.rest);
        let usage = self.meter.usage();
        let complete = self.meter.is_final();
        self.begun
            .record(
                shared,
                Some(self.head.status),
                usage,
                complete,
                failure.clone(),
            )
            .await;
        match (&end, &failure) {
            (_, None) => shared.standing.succeeded(self.number),
            (End::Unheard, Some(_)) if self.meter.complaint().is_none() => {}
            (_, Some(failure)) => shared.standing.failed(failure),
        }
        match (end, failure) {
            (End::Broken(_), Some(failure)) => {
                let told = words::for_client(&failure, shared.base_url.host());
                let event = words::error_event(shared.api, &told);
                sink.send(Piece::Cut(event)).await;
            }
            (End::Unheard, _) => {}
            _ => sink.finish().await,
        }
    }
}
