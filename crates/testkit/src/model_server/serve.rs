use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::body::AnswerBody;
use super::dialect::{Dialect, Tokens};
use super::ledger::{Ending, Progress, Received};
use super::reply::{Reply, refused, reply};
use super::request::ModelRequest;
use super::trouble::Trouble;
use super::turn::Turn;
use super::{Shared, check};

const LONGEST_BODY: usize = 64 << 20;

/// Takes connections until it is told to stop; dropping the runtime then ends those that are open.
pub(super) async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    mut stopped: oneshot::Receiver<()>,
) {
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => continue,
            },
            _ = &mut stopped => return,
        };
        let _ = stream.set_nodelay(true);
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            let _open = Open::new(Arc::clone(&shared));
            match tls {
                None => connection(stream, shared).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        connection(stream, shared).await;
                    }
                }
            }
        });
    }
}

/// Counts a connection as long as it is open.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: Arc<Shared>) -> Self {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let service = service_fn(|request| exchange(request, &shared));
    // An error here is a client that went away, or a script that breaks the connection.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn exchange(
    request: Request<Incoming>,
    shared: &Shared,
) -> Result<Response<AnswerBody>, io::Error> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, LONGEST_BODY)
        .collect()
        .await
        .map_err(io::Error::other)?
        .to_bytes();
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        })
        .collect();
    let mut received = Received {
        method: head.method.as_str().to_owned(),
        path: head.uri.to_string(),
        headers,
        body: body.to_vec(),
        dialect: None,
        side: false,
        status: None,
        tokens: None,
        ending: Ending::Running,
    };
    let number = shared.ledger.count();
    let call = match Target::of(&head.method, head.uri.path(), &shared.prefix) {
        Target::Call(dialect) => {
            received.dialect = Some(dialect);
            Some(read(&received, dialect, number, &shared.key))
        }
        _ => None,
    };
    if let Some(Ok(request)) = &call {
        received.side = ModelRequest::is_side(&received, request);
    }
    let side = received.side;
    // A test may wait for a request to which the script has not said anything yet.
    let progress = shared.ledger.begin(received.clone());
    let reply = match call {
        Some(Ok(request)) if side => reply(side_turn(), &request),
        Some(Ok(request)) => reply(shared.script.turn(&request), &request),
        Some(Err((trouble, dialect))) => refused(&trouble, dialect),
        None => other(&received, &head.method, head.uri.path(), shared),
    };
    send(reply, progress).await
}

/// What a request is for.
enum Target {
    Probe,
    Call(Dialect),
    CountTokens,
    WebSocket,
    Nothing,
}

impl Target {
    fn of(method: &Method, path: &str, prefix: &str) -> Self {
        let Some(path) = path.strip_prefix(prefix) else {
            return Self::Nothing;
        };
        let dialect = Dialect::ALL
            .into_iter()
            .find(|dialect| dialect.path() == path);
        match (method, dialect) {
            (&Method::POST, Some(dialect)) => Self::Call(dialect),
            (&Method::GET, Some(Dialect::Responses)) => Self::WebSocket,
            (&Method::POST, None) if path == "/v1/messages/count_tokens" => Self::CountTokens,
            (&Method::HEAD, None) if path.is_empty() || path == "/" => Self::Probe,
            _ => Self::Nothing,
        }
    }
}

fn read(
    received: &Received,
    dialect: Dialect,
    number: usize,
    key: &str,
) -> Result<ModelRequest, (Trouble, Dialect)> {
    check::key(received, dialect, key)
        .and_then(|()| check::body(received, dialect))
        .map(|body| ModelRequest::new(number, dialect, received, body))
        .map_err(|trouble| (trouble, dialect))
}

/// What the model says when a client asks for the title of its session.
fn side_turn() -> Turn {
    Turn::text(r#"{"title": "A session"}"#).tokens(Tokens::new(7, 3))
}

/// The answer to what is no call.
fn other(received: &Received, method: &Method, path: &str, shared: &Shared) -> Reply {
    let dialect = Dialect::near(path);
    match Target::of(method, path, &shared.prefix) {
        Target::Probe => Reply::plain(200, ""),
        Target::WebSocket => Reply::plain(426, "Upgrade Required"),
        Target::CountTokens => match check::key(received, dialect, &shared.key) {
            Ok(()) => {
                let count = received.body.len() / 4;
                Reply::plain(200, json!({ "input_tokens": count }).to_string())
            }
            Err(trouble) => refused(&trouble, dialect),
        },
        Target::Call(_) | Target::Nothing => {
            let message = format!("no such endpoint: {method} {path}");
            let trouble = Trouble::Other(404, "not_found_error".to_owned(), message);
            refused(&trouble, dialect)
        }
    }
}

async fn send(reply: Reply, progress: Progress) -> Result<Response<AnswerBody>, io::Error> {
    tokio::time::sleep(reply.wait).await;
    let Some((status, headers)) = reply.head else {
        progress.end(Ending::Cut);
        return Err(io::Error::other("the script closes the connection"));
    };
    progress.status(status);
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response
        .body(AnswerBody::new(reply.steps, progress))
        .map_err(io::Error::other)
}
