//! A gateway with all that it needs, and a client that sends what no library would.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mini_ork_node::gateway::{
    BaseUrl, Gateway, GatewayLimits, GatewayReport, GatewaySettings, Placeholder, RetryPolicy,
    Roots,
};
use mini_ork_node::model::{
    Api, CallLedger, CallTicket, FinishedCall, PlannedCall, Refusal, TokenUsage,
};
use mini_ork_node::redact::Redactor;
use mini_ork_node::secret::Secret;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::upstream::{Answer, Upstream};
use crate::support::PATIENCE;

/// Has signs that each encoding spells in its own way.
pub(crate) const KEY: &str = "sk-SENTINEL/+key\"9\"&=~";

pub(crate) const MESSAGES: Api = Api::AnthropicMessages;
pub(crate) const CHAT: Api = Api::OpenaiChat;
pub(crate) const RESPONSES: Api = Api::OpenaiResponses;
pub(crate) const APIS: [Api; 3] = [MESSAGES, CHAT, RESPONSES];

pub(crate) fn path(api: Api) -> &'static str {
    match api {
        Api::AnthropicMessages => "/v1/messages",
        Api::OpenaiChat => "/v1/chat/completions",
        Api::OpenaiResponses => "/v1/responses",
    }
}

/// Events of a whole answer, in order.
pub(crate) fn events(api: Api) -> &'static [&'static str] {
    match api {
        Api::AnthropicMessages => &[
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"cache_read_input_tokens\":5,\"output_tokens\":1}}}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"hi\"}}\n\n",
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":42}}\n\n",
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ],
        Api::OpenaiChat => &[
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":15,\"completion_tokens\":42,\"prompt_tokens_details\":{\"cached_tokens\":5}}}\n\n",
            "data: [DONE]\n\n",
        ],
        Api::OpenaiResponses => &[
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{}}\n\n",
            "data: {\"type\":\"response.output_item.done\",\"item\":{}}\n\n",
            "data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":15,\"input_tokens_details\":{\"cached_tokens\":5},\"output_tokens\":42}}}\n\n",
        ],
    }
}

/// What [`events`] and [`plain`] deal.
pub(crate) const DEALT: TokenUsage = TokenUsage {
    input: 10,
    cache_read: 5,
    cache_write: 0,
    output: 42,
};

pub(crate) fn whole(api: Api) -> String {
    events(api).concat()
}

/// A whole answer without a stream.
pub(crate) fn plain(api: Api) -> &'static str {
    match api {
        Api::AnthropicMessages => {
            r#"{"type":"message","usage":{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":42}}"#
        }
        Api::OpenaiChat => {
            r#"{"choices":[],"usage":{"prompt_tokens":15,"completion_tokens":42,"prompt_tokens_details":{"cached_tokens":5}}}"#
        }
        Api::OpenaiResponses => {
            r#"{"output":[],"usage":{"input_tokens":15,"output_tokens":42,"input_tokens_details":{"cached_tokens":5}}}"#
        }
    }
}

/// As a client of the API asks for a stream.
pub(crate) fn ask(api: Api) -> &'static str {
    match api {
        Api::AnthropicMessages => r#"{"model":"m", "max_tokens":7, "stream":true}"#,
        Api::OpenaiChat => {
            r#"{"model":"m", "max_tokens":7, "stream":true, "stream_options":{"include_usage":true}}"#
        }
        Api::OpenaiResponses => r#"{"model":"m", "max_output_tokens":7, "stream":true}"#,
    }
}

#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) planned: Mutex<Vec<PlannedCall>>,
    finished: Mutex<Vec<(u64, FinishedCall)>>,
    pub(crate) refusal: Mutex<Option<Refusal>>,
}

impl Book {
    /// The calls that ended, in the order of their beginning.
    pub(crate) fn finished(&self) -> Vec<FinishedCall> {
        let mut finished = self.finished.lock().unwrap().clone();
        finished.sort_by_key(|(ticket, _)| *ticket);
        finished.into_iter().map(|(_, call)| call).collect()
    }

    pub(crate) fn admitted(&self) -> usize {
        self.planned.lock().unwrap().len()
    }
}

#[async_trait]
impl CallLedger for Book {
    async fn admit(&self, call: &PlannedCall) -> Result<CallTicket, Refusal> {
        if let Some(refusal) = self.refusal.lock().unwrap().clone() {
            return Err(refusal);
        }
        let mut planned = self.planned.lock().unwrap();
        planned.push(call.clone());
        Ok(CallTicket(planned.len() as u64))
    }

    async fn record(&self, ticket: CallTicket, call: FinishedCall) {
        // As a database does.
        tokio::task::yield_now().await;
        self.finished.lock().unwrap().push((ticket.0, call));
    }
}

pub(crate) struct Lane {
    pub(crate) api: Api,
    pub(crate) upstream: Upstream,
    pub(crate) gateway: Gateway,
    pub(crate) book: Arc<Book>,
    pub(crate) placeholder: Placeholder,
}

pub(crate) fn quick() -> GatewayLimits {
    GatewayLimits {
        max_calls: 100,
        max_connections: 64,
        max_request_bytes: 1 << 20,
        first_byte: PATIENCE,
        stall: PATIENCE,
        retry: RetryPolicy {
            attempts: 3,
            first_delay: Duration::from_millis(1),
            longest_delay: Duration::from_millis(5),
            longest_retry_after: Duration::from_secs(10),
        },
    }
}

pub(crate) fn settings(api: Api, base_url: &str, roots: Roots) -> GatewaySettings {
    GatewaySettings {
        api,
        base_url: BaseUrl::parse(base_url, api).unwrap(),
        key: Secret::new(KEY.as_bytes().to_vec()).unwrap(),
        placeholder: Placeholder::new().unwrap(),
        redactor: Redactor::new(),
        roots,
        limits: quick(),
    }
}

pub(crate) fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// Of a vendor that is reached without TLS.
pub(crate) fn base_url(api: Api, address: SocketAddr) -> String {
    match api {
        Api::AnthropicMessages => format!("http://{address}/vendor"),
        Api::OpenaiChat | Api::OpenaiResponses => format!("http://{address}/vendor/v1"),
    }
}

impl Lane {
    pub(crate) async fn open(api: Api, answers: Vec<Answer>) -> Self {
        Self::limited(api, answers, quick()).await
    }

    pub(crate) async fn limited(api: Api, answers: Vec<Answer>, limits: GatewayLimits) -> Self {
        let upstream = Upstream::plain(answers).await;
        let address = upstream.address;
        Self::between(api, upstream, address, limits).await
    }

    /// One whose vendor is not there.
    pub(crate) async fn at(api: Api, address: SocketAddr) -> Self {
        let upstream = Upstream::plain(Vec::new()).await;
        Self::between(api, upstream, address, quick()).await
    }

    async fn between(
        api: Api,
        upstream: Upstream,
        address: SocketAddr,
        limits: GatewayLimits,
    ) -> Self {
        let roots = Roots {
            system: false,
            extra_pem: None,
        };
        let mut settings = settings(api, &base_url(api, address), roots);
        settings.limits = limits;
        let placeholder = settings.placeholder.clone();
        let book = Arc::new(Book::default());
        let gateway = Gateway::open(listener(), settings, Arc::<Book>::clone(&book))
            .await
            .unwrap();
        Self {
            api,
            upstream,
            gateway,
            book,
            placeholder,
        }
    }

    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.placeholder.expose())
    }

    /// A request as a client of the API makes it.
    pub(crate) async fn ask(&self) -> Reply {
        self.post(path(self.api), ask(self.api)).await
    }

    pub(crate) async fn post(&self, target: &str, body: &str) -> Reply {
        let head = self.head(target, &[]);
        exchange(self.gateway.address(), &head, body.as_bytes()).await
    }

    /// The first lines of a request with the placeholder.
    pub(crate) fn head(&self, target: &str, more: &[(&str, &str)]) -> String {
        let mut head = format!(
            "POST {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: {}\r\n",
            self.gateway.address(),
            self.bearer()
        );
        for (name, value) in more {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        head
    }

    /// Begins a request and leaves its answer unread.
    pub(crate) async fn begin(&self) -> TcpStream {
        let body = ask(self.api);
        let mut stream = TcpStream::connect(self.gateway.address()).await.unwrap();
        let head = self.head(path(self.api), &[]);
        let text = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    pub(crate) fn report(&self) -> GatewayReport {
        self.gateway.report()
    }

    /// Waits until so many calls are on record.
    pub(crate) async fn recorded(&self, count: usize) -> Vec<FinishedCall> {
        until(&format!("{count} records"), || {
            self.book.finished().len() >= count
        })
        .await;
        let finished = self.book.finished();
        assert_eq!(finished.len(), count, "{finished:?}");
        finished
    }
}

pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "no {what} within {PATIENCE:?}");
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
    /// The answer has an end, and is not only cut off.
    pub(crate) is_ended: bool,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The sentence of an error.
    pub(crate) fn message(&self) -> String {
        let value: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        value["error"]["message"].as_str().unwrap().to_owned()
    }

    pub(crate) fn read(bytes: &[u8]) -> Self {
        // What comes first when it was asked for.
        let go_on = b"HTTP/1.1 100 Continue\r\n\r\n";
        let bytes = bytes.strip_prefix(go_on).unwrap_or(bytes);
        let split = find(bytes, b"\r\n\r\n").unwrap_or_else(|| {
            panic!("no head in {:?}", String::from_utf8_lossy(bytes));
        });
        let head = String::from_utf8(bytes[..split].to_vec()).unwrap();
        let status = head[9..12].parse().unwrap();
        let mut reply = Self {
            status,
            head,
            body: String::new(),
            is_ended: false,
        };
        let rest = &bytes[split + 4..];
        let (body, is_ended) = if reply.header("transfer-encoding") == Some("chunked") {
            unchunk(rest)
        } else {
            let length = reply.header("content-length").unwrap_or("0");
            (
                rest.to_vec(),
                length.parse::<usize>().unwrap() == rest.len(),
            )
        };
        reply.body = String::from_utf8(body).unwrap();
        reply.is_ended = is_ended;
        reply
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

fn unchunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(end) = find(rest, b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        rest = &rest[end + 2..];
        if size == 0 {
            return (body, rest == b"\r\n");
        }
        body.extend_from_slice(&rest[..size.min(rest.len())]);
        rest = rest.get(size + 2..).unwrap_or_default();
    }
    (body, false)
}

/// Sends `head` with `body` on a connection of its own, and reads until that ends.
pub(crate) async fn exchange(address: SocketAddr, head: &str, body: &[u8]) -> Reply {
    let length = if body.is_empty() {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let head = format!("{head}{length}Connection: close\r\n\r\n");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    // A gateway that refuses does not read on.
    let _ = stream.write_all(body).await;
    read_reply(stream).await
}

pub(crate) async fn read_reply(mut stream: TcpStream) -> Reply {
    let mut bytes = Vec::new();
    // One that was cut may end with an error.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes))
        .await
        .unwrap();
    Reply::read(&bytes)
}

/// Reads until `text` has come.
pub(crate) async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut bytes = Vec::new();
    let mut looked = 0_usize;
    while find(&bytes[looked.saturating_sub(text.len())..], text.as_bytes()).is_none() {
        looked = bytes.len();
        let mut piece = [0; 16 << 10];
        let count = tokio::time::timeout(PATIENCE, stream.read(&mut piece))
            .await
            .unwrap()
            .unwrap();
        assert!(
            count > 0,
            "no {text:?} in {:?}",
            String::from_utf8_lossy(&bytes)
        );
        bytes.extend_from_slice(&piece[..count]);
    }
    String::from_utf8(bytes).unwrap()
}
