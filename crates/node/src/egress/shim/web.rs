//! The proxy that `HTTP_PROXY` and its kin name: `CONNECT`, and requests with a whole URL.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};

use super::super::host::split_port;
use super::super::stream::ByteStream;
use super::super::wire::Answer;
use super::way_out::{WayOut, carry, connect};

type Body = BoxBody<Bytes, hyper::Error>;

const HEAD_LIMIT: Duration = Duration::from_secs(60);
const DEFAULT_PORT: u16 = 80;
/// What a header means for one connection only.
const OF_ONE_CONNECTION: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(super) async fn serve(program: impl ByteStream, way_out: &Arc<dyn WayOut>) {
    let service = service_fn(|request| {
        let way_out = Arc::clone(way_out);
        async move { Ok::<_, Infallible>(answer(request, &way_out).await) }
    });
    let _ = server::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .half_close(true)
        .preserve_header_case(true)
        .serve_connection(TokioIo::new(program), service)
        .with_upgrades()
        .await;
}

async fn answer(request: Request<Incoming>, way_out: &Arc<dyn WayOut>) -> Response<Body> {
    let is_tunnel = request.method() == Method::CONNECT;
    let uri = request.uri();
    let target = match uri.scheme_str() {
        None if is_tunnel => uri.authority(),
        Some("http") if !is_tunnel => uri.authority(),
        _ => None,
    };
    let default_port = if is_tunnel { None } else { Some(DEFAULT_PORT) };
    let target = target
        .and_then(|target| split_port(target.as_str()))
        .and_then(|(host, port)| Some((host.to_owned(), port.or(default_port)?)));
    let Some((host, port)) = target else {
        return refuse(
            StatusCode::BAD_REQUEST,
            "this is a proxy: ask it to CONNECT to `host:port`, or for an `http://` URL",
        );
    };
    let outside = match connect(way_out, &host, port).await {
        Ok(Ok(outside)) => outside,
        Ok(Err(answer)) => return refuse(status_of(answer), &answer.sentence(&host, port)),
        Err(_) => {
            return refuse(
                StatusCode::BAD_GATEWAY,
                "the way out of this workspace is closed",
            );
        }
    };
    if is_tunnel {
        tunnel(request, outside)
    } else {
        match forward(request, outside).await {
            Ok(answer) => answer,
            Err(_) => refuse(
                StatusCode::BAD_GATEWAY,
                &format!("{host}:{port} gave no answer"),
            ),
        }
    }
}

fn tunnel(request: Request<Incoming>, outside: Box<dyn ByteStream>) -> Response<Body> {
    tokio::spawn(async move {
        if let Ok(program) = hyper::upgrade::on(request).await {
            carry(TokioIo::new(program), outside).await;
        }
    });
    Response::new(empty())
}

/// One request on a connection of its own: the next one may be for another host.
async fn forward(
    mut request: Request<Incoming>,
    outside: Box<dyn ByteStream>,
) -> Result<Response<Body>, hyper::Error> {
    let authority = request.uri().authority().map(ToString::to_string);
    let path = request.uri().path_and_query().cloned();
    let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    strip(request.headers_mut());
    if let Some(value) = authority.and_then(|text| HeaderValue::try_from(text).ok()) {
        request.headers_mut().insert(HOST, value);
    }
    request
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    let (mut sender, connection) = client::Builder::new()
        .preserve_header_case(true)
        .handshake(TokioIo::new(outside))
        .await?;
    tokio::spawn(connection);
    let mut answer = sender.send_request(request).await?;
    strip(answer.headers_mut());
    Ok(answer.map(BodyExt::boxed))
}

fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in OF_ONE_CONNECTION {
        headers.remove(name);
    }
}

fn status_of(answer: Answer) -> StatusCode {
    match answer {
        Answer::NotListed | Answer::Reserved => StatusCode::FORBIDDEN,
        Answer::Malformed => StatusCode::BAD_REQUEST,
        Answer::Busy => StatusCode::SERVICE_UNAVAILABLE,
        Answer::Connected | Answer::Unknown | Answer::Unreachable => StatusCode::BAD_GATEWAY,
    }
}

fn refuse(status: StatusCode, sentence: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(format!("mini-ork: {sentence}\n")));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn empty() -> Body {
    Full::new(Bytes::new())
        .map_err(|never| match never {})
        .boxed()
}

/// The first byte tells SOCKS from HTTP.
pub(super) async fn first_byte(program: &tokio::net::TcpStream) -> io::Result<u8> {
    let mut first = [0];
    match program.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(first[0]),
    }
}
