//! Web requests without TLS, one by one: each says for which host it is, and a connection that is
//! kept may carry one for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderValue, UPGRADE};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::host::{Host, split_port};
use super::policy::AllowList;
use super::proxy::BUFFER;
use super::stream::ByteStream;

type Body = BoxBody<Bytes, hyper::Error>;

/// The sending half of the connection to the host. Requests of one connection follow each other.
type Sender = Arc<Mutex<client::SendRequest<Incoming>>>;

const DEFAULT_PORT: u16 = 80;
const HTTP2_SETTINGS: &str = "http2-settings";
const MOST_HEADERS: usize = 200;

/// Carries requests and answers until either side has had enough. Returns how many requests were
/// for another host; the first of them ends the connection.
pub(super) async fn relay(
    inside: impl ByteStream,
    outside: TcpStream,
    host: &Host,
    port: u16,
    allowed: &AllowList,
) -> u64 {
    let Ok((sender, connection)) = client::Builder::new()
        .preserve_header_case(true)
        .handshake::<_, Incoming>(TokioIo::new(outside))
        .await
    else {
        return 0;
    };
    let sender = Arc::new(Mutex::new(sender));
    let wrong = Arc::new(AtomicU64::new(0));
    let service = service_fn(|request: Request<Incoming>| {
        let is_meant = is_meant(&request, host, port, allowed);
        let (sender, wrong) = (Arc::clone(&sender), Arc::clone(&wrong));
        async move {
            if is_meant {
                forward(request, &sender).await
            } else {
                wrong.fetch_add(1, Ordering::Relaxed);
                Ok(refuse(
                    StatusCode::FORBIDDEN,
                    "the request is for another host than the connection\n",
                ))
            }
        }
    });
    let serve = server::Builder::new()
        .preserve_header_case(true)
        .half_close(true)
        .max_headers(MOST_HEADERS)
        .serve_connection(TokioIo::new(inside), service)
        .with_upgrades();
    tokio::pin!(serve);
    let connection = connection.with_upgrades();
    tokio::pin!(connection);
    // Both have to be moved on; the one towards the workspace says when it is over. When the host
    // ends its own, what it has said is passed on, and then the program sees the end.
    let mut host_is_there = true;
    loop {
        tokio::select! {
            _ = &mut serve => break,
            _ = &mut connection, if host_is_there => {
                host_is_there = false;
                serve.as_mut().graceful_shutdown();
            }
        }
    }
    wrong.load(Ordering::Relaxed)
}

/// Whether a request is for the host that the connection goes to.
fn is_meant(request: &Request<Incoming>, host: &Host, port: u16, allowed: &AllowList) -> bool {
    if request.method() == Method::CONNECT || request.version() > Version::HTTP_11 {
        return false;
    }
    let fits = |authority: &str| {
        let Some((name, own_port)) = split_port(authority) else {
            return false;
        };
        let Ok(name) = Host::parse(name) else {
            return false;
        };
        let named = &name == host
            // Whoever listed an address listed what is there; a name has to be listed too.
            || (matches!(host, Host::Address(_)) && allowed.permits(&name, port));
        named && own_port.unwrap_or(DEFAULT_PORT) == port
    };
    let mut hosts = request.headers().get_all(HOST).iter();
    let header = match (hosts.next(), hosts.next()) {
        (Some(value), None) => value.to_str().is_ok_and(fits),
        (None, _) => request.version() == Version::HTTP_10,
        _ => false,
    };
    header
        && request
            .uri()
            .authority()
            .is_none_or(|authority| fits(authority.as_str()))
}

/// Sends the request on and brings the answer. An error is for a host that went away instead of
/// answering; the program then sees the end of its connection, as it would without a proxy, and may
/// try again.
async fn forward(
    mut request: Request<Incoming>,
    sender: &Sender,
) -> Result<Response<Body>, hyper::Error> {
    let inside = hyper::upgrade::on(&mut request);
    let is_websocket = is_websocket(request.headers());
    keep_to_http(request.headers_mut(), is_websocket);
    let mut sender = sender.lock().await;
    sender.ready().await?;
    let mut answer = match sender.send_request(request).await {
        Ok(answer) => answer,
        Err(error) if error.is_parse() => {
            return Ok(refuse(
                StatusCode::BAD_GATEWAY,
                "the host gave no answer that can be read\n",
            ));
        }
        Err(error) => return Err(error),
    };
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        if !is_websocket || !self::is_websocket(answer.headers()) {
            return Ok(refuse(
                StatusCode::BAD_GATEWAY,
                "the host changed to a protocol that nobody asked for\n",
            ));
        }
        let outside = hyper::upgrade::on(&mut answer);
        tokio::spawn(async move {
            if let (Ok(inside), Ok(outside)) = tokio::join!(inside, outside) {
                let (mut inside, mut outside) = (TokioIo::new(inside), TokioIo::new(outside));
                let _ =
                    copy_bidirectional_with_sizes(&mut inside, &mut outside, BUFFER, BUFFER).await;
            }
        });
    }
    Ok(answer.map(BodyExt::boxed))
}

/// Whether these headers are of a change to WebSocket and to nothing else. It is the one protocol
/// that is changed to: what comes after it is for the host of the request. Others, such as HTTP/2,
/// carry more requests, each of which names a host.
fn is_websocket(headers: &HeaderMap) -> bool {
    let mut wanted = headers.get_all(UPGRADE).iter();
    match (wanted.next(), wanted.next()) {
        (Some(one), None) => one
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"websocket"),
        _ => false,
    }
}

/// Removes the wish to change to another protocol. A server may go on without, and does.
fn keep_to_http(headers: &mut HeaderMap, but_for_websocket: bool) {
    let mut removed = vec![HTTP2_SETTINGS];
    if !but_for_websocket {
        removed.push(UPGRADE.as_str());
    }
    let is_removed = |token: &str| {
        removed
            .iter()
            .any(|name| token.trim().eq_ignore_ascii_case(name))
    };
    let kept: Vec<HeaderValue> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .map(|value| {
            let kept: Vec<&str> = value
                .split(',')
                .filter(|token| !is_removed(token))
                .collect();
            kept.join(",")
        })
        .filter(|value| !value.trim().is_empty())
        .filter_map(|value| HeaderValue::try_from(value).ok())
        .collect();
    headers.remove(CONNECTION);
    for value in kept {
        headers.append(CONNECTION, value);
    }
    for name in removed {
        headers.remove(name);
    }
}

fn refuse(status: StatusCode, text: &'static str) -> Response<Body> {
    let body = Full::new(Bytes::from_static(text.as_bytes()));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}
