use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use super::{Dialect, Ending, ModelServer, Received};

/// What came back: all that did until the connection ended.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The data of all events.
    pub(super) fn events(&self) -> Vec<Value> {
        self.body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter_map(|data| serde_json::from_str(data).ok())
            .collect()
    }
}

pub(super) fn connect(
    server: &ModelServer,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let request = request(path, headers, body);
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// None when the connection was closed without an answer.
pub(super) fn exchange(
    server: &ModelServer,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Answer> {
    let mut bytes = Vec::new();
    let read = connect(server, path, headers, body).read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    if text.is_empty() {
        return None;
    }
    read.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let body = if head.contains("transfer-encoding: chunked") {
        unchunked(body)
    } else {
        body.to_owned()
    };
    Some(Answer {
        status: head[9..12].parse().unwrap(),
        head: head.to_owned(),
        body,
    })
}

/// As much as there is.
pub(super) fn unchunked(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = text.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        let chunk = &rest[..length.min(rest.len())];
        whole.push_str(chunk);
        text = rest.get(length + 2..).unwrap_or_default();
    }
    whole
}

pub(super) fn ask(server: &ModelServer, dialect: Dialect, body: &Value) -> Option<Answer> {
    let key = server.key();
    let bearer = format!("Bearer {key}");
    let headers = match dialect {
        Dialect::Messages => vec![("x-api-key", key), ("anthropic-version", "2023-06-01")],
        Dialect::Chat | Dialect::Responses => vec![("authorization", bearer.as_str())],
    };
    exchange(server, dialect.path(), &headers, &body.to_string())
}

pub(super) fn question(dialect: Dialect, stream: bool) -> Value {
    let messages = json!([{"role": "user", "content": "Do it."}]);
    match dialect {
        Dialect::Messages => {
            json!({"model": "m", "max_tokens": 9, "stream": stream, "messages": messages})
        }
        Dialect::Chat if stream => json!({
            "model": "m", "stream": true, "messages": messages,
            "stream_options": {"include_usage": true},
        }),
        Dialect::Chat => json!({"model": "m", "messages": messages}),
        Dialect::Responses => json!({"model": "m", "stream": stream, "input": messages}),
    }
}

pub(super) fn last(server: &ModelServer) -> Received {
    server
        .wait_until("end of the answer", |requests| {
            requests
                .last()
                .is_some_and(|request| request.ending != Ending::Running)
        })
        .pop()
        .unwrap()
}

/// All that comes back; nothing when the client does not trust the server.
pub(super) fn ask_over_tls(server: &ModelServer, ca_file: &Path) -> String {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca_file).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(server.address()).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    let bearer = format!("Bearer {}", server.key());
    let body = question(Dialect::Chat, false).to_string();
    let request = request(Dialect::Chat.path(), &[("authorization", &bearer)], &body);
    let mut answer = Vec::new();
    if stream.write_all(request.as_bytes()).is_ok() {
        // The server ends the connection without a farewell.
        let _ = stream.read_to_end(&mut answer);
    }
    String::from_utf8(answer).unwrap()
}

fn request(path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut request = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    for (name, value) in headers {
        let _ = write!(request, "{name}: {value}\r\n");
    }
    let _ = write!(request, "content-length: {}\r\n\r\n{body}", body.len());
    request
}
