//! What mini-ork is as a process of the measurement: the vendor, or a gateway.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use mini_ork_node::gateway::{
    BaseUrl, Gateway, GatewayLimits, GatewaySettings, Placeholder, Roots,
};
use mini_ork_node::model::{Api, CallLedger, CallTicket, FinishedCall, PlannedCall, Refusal};
use mini_ork_node::redact::Redactor;
use mini_ork_node::secret::Secret;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use super::load::FLOOD;
use super::parties::{AUTHORITY, KEY};
use crate::render;

/// First argument of a process of the measurement.
pub(crate) const PARTY_ARGUMENT: &str = "__bench-party";

/// Connections that wait, as nginx has it.
const BACKLOG: i32 = 511;
/// Events of an answer, and the time between two.
const EVENTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);
/// What an answer has that nobody reads: far more than the buffers on the way.
const FLOOD_EVENTS: usize = 4096;

/// Is a process of the measurement until its standard input ends.
pub(crate) fn party_main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (role, directory) = (arguments.next(), arguments.next().map(PathBuf::from));
    let vendor = arguments.next();
    let served = match (role, directory, vendor) {
        (Some(role), Some(directory), None) if role == "vendor" => {
            serve(async |listener| vendor_role(listener, &directory).await)
        }
        (Some(role), Some(directory), Some(base_url)) if role == "gateway" => {
            let base_url = base_url.to_string_lossy().into_owned();
            serve(async |listener| gateway_role(listener, &directory, &base_url).await)
        }
        _ => Err("it is part of `mini-ork bench gateway`".into()),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            render::err(&format!("{PARTY_ARGUMENT}: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Lets `begin` serve until standard input ends. What it returns lives as long.
fn serve<T>(begin: impl AsyncFnOnce(TcpListener) -> Result<T, Failure>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        // All may come at once; of more than fit, some would be late by a second.
        rustix::net::listen(&listener, BACKLOG)?;
        let _served = begin(listener).await?;
        tokio::task::spawn_blocking(|| io::copy(&mut io::stdin().lock(), &mut io::sink()))
            .await??;
        Ok(())
    })
}

async fn gateway_role(
    listener: TcpListener,
    directory: &Path,
    base_url: &str,
) -> Result<Gateway, Failure> {
    let placeholder = Placeholder::new()?;
    let settings = GatewaySettings {
        api: Api::AnthropicMessages,
        base_url: BaseUrl::parse(base_url, Api::AnthropicMessages)?,
        key: Secret::new(KEY.as_bytes().to_vec())?,
        placeholder: placeholder.clone(),
        redactor: Redactor::new(),
        roots: Roots {
            system: false,
            extra_pem: Some(directory.join(AUTHORITY)),
        },
        limits: GatewayLimits {
            max_calls: u64::MAX,
            max_connections: 1024,
            ..GatewayLimits::default()
        },
    };
    let gateway = Gateway::open(listener, settings, Arc::new(Unlimited)).await?;
    let address = gateway.address();
    render::out(&format!("{address} {}\n", placeholder.expose()))
        .map_err(|_| "no standard output")?;
    Ok(gateway)
}

/// Admits everything and keeps nothing.
#[derive(Debug)]
struct Unlimited;

#[async_trait]
impl CallLedger for Unlimited {
    async fn admit(&self, _call: &PlannedCall) -> Result<CallTicket, Refusal> {
        Ok(CallTicket(0))
    }

    async fn record(&self, _ticket: CallTicket, _call: FinishedCall) {}
}

async fn vendor_role(listener: TcpListener, directory: &Path) -> Result<(), Failure> {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    fs_err::write(directory.join(AUTHORITY), certified.cert.pem())?;
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let provider = tokio_rustls::rustls::crypto::aws_lc_rs::default_provider();
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key.into())?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    render::out(&format!("{address} -\n")).map_err(|_| "no standard output")?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                if let Ok(stream) = acceptor.accept(stream).await {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service_fn(answer))
                        .await;
                }
            });
        }
    });
    Ok(())
}

async fn answer(request: Request<Incoming>) -> Result<Response<Events>, Infallible> {
    let is_flood = request.headers().contains_key(FLOOD);
    // A request that broke off is answered as well: the answer goes nowhere.
    let _ = request.into_body().collect().await;
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        if sender.send(Bytes::from_static(BEGIN)).await.is_err() {
            return;
        }
        if is_flood {
            let event = Bytes::from(event(&"x".repeat(16 << 10)));
            for _ in 0..FLOOD_EVENTS {
                if sender.send(event.clone()).await.is_err() {
                    return;
                }
            }
        }
        for number in 0..EVENTS {
            tokio::time::sleep(PAUSE).await;
            let event = Bytes::from(event(&format!("word {number} and some more of them ")));
            if sender.send(event).await.is_err() {
                return;
            }
        }
        let _ = sender.send(Bytes::from_static(END)).await;
    });
    let mut response = Response::new(Events(receiver));
    response.headers_mut().insert(
        hyper::header::CONTENT_TYPE,
        hyper::header::HeaderValue::from_static("text/event-stream"),
    );
    Ok(response)
}

const BEGIN: &[u8] = b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"usage\":{\"input_tokens\":9000,\"output_tokens\":1}}}\n\n";
const END: &[u8] = b"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":140}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

fn event(text: &str) -> String {
    format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\
         \"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"
    )
}

/// The rest of an answer.
struct Events(mpsc::Receiver<Bytes>);

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
