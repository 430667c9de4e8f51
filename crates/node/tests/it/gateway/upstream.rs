//! A vendor that does what a test tells it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

/// What the vendor does after the head of an answer.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Send(Vec<u8>),
    /// Until the test says so.
    Wait(Arc<Notify>),
    /// For ever.
    Stall,
    /// The connection ends without the end of the answer.
    Cut,
    /// Sends so many pieces of 16 KiB, and counts them.
    Flood(usize),
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) steps: Vec<Step>,
    /// Not even the head comes.
    pub(crate) is_silent: bool,
}

impl Answer {
    pub(crate) fn new(status: u16, kind: &str, body: &str) -> Self {
        Self {
            status,
            headers: vec![("content-type", kind.to_owned())],
            steps: vec![Step::Send(body.as_bytes().to_vec())],
            is_silent: false,
        }
    }

    pub(crate) fn json(status: u16, body: &str) -> Self {
        Self::new(status, "application/json", body)
    }

    pub(crate) fn stream(body: &str) -> Self {
        Self::new(200, "text/event-stream; charset=utf-8", body)
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(crate) fn send(self, text: &str) -> Self {
        self.then(Step::Send(text.as_bytes().to_vec()))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug, Default)]
struct Vendor {
    /// The last one is given again and again.
    answers: Mutex<VecDeque<Answer>>,
    seen: Mutex<Vec<Seen>>,
    /// Answers that are not at their end, and whose client is there.
    open: AtomicUsize,
    flooded: AtomicUsize,
}

pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    pub(crate) authority: Option<PathBuf>,
    vendor: Arc<Vendor>,
    _directory: tempfile::TempDir,
}

impl Upstream {
    /// Without TLS.
    pub(crate) async fn plain(answers: Vec<Answer>) -> Self {
        Self::start(answers, None).await
    }

    /// With TLS and a certificate for `name`.
    pub(crate) async fn tls(answers: Vec<Answer>, name: &str) -> Self {
        Self::start(answers, Some(name)).await
    }

    async fn start(answers: Vec<Answer>, name: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let vendor = Arc::new(Vendor {
            answers: Mutex::new(answers.into()),
            ..Vendor::default()
        });
        let mut authority = None;
        let mut acceptor = None;
        if let Some(name) = name {
            let certified = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
            let path = directory.path().join("authority.pem");
            fs_err::write(&path, certified.cert.pem()).unwrap();
            authority = Some(path);
            let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
            let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
            let config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certified.cert.der().clone()], key.into())
                .unwrap();
            acceptor = Some(TlsAcceptor::from(Arc::new(config)));
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = Arc::clone(&vendor);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let vendor = Arc::clone(&accepting);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    match acceptor {
                        None => serve(stream, vendor).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, vendor).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            authority,
            vendor,
            _directory: directory,
        }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.vendor.seen.lock().unwrap().clone()
    }

    pub(crate) fn open_answers(&self) -> usize {
        self.vendor.open.load(Ordering::SeqCst)
    }

    pub(crate) fn flooded(&self) -> usize {
        self.vendor.flooded.load(Ordering::SeqCst)
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, vendor: Arc<Vendor>) {
    let service = service_fn(|request| {
        let vendor = Arc::clone(&vendor);
        async move { Ok::<_, Infallible>(vendor.answer(request).await) }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

impl Vendor {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Steps> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        self.seen.lock().unwrap().push(Seen {
            method: parts.method.to_string(),
            target: parts.uri.to_string(),
            headers: parts.headers,
            body,
        });
        let answer = {
            let mut answers = self.answers.lock().unwrap();
            if answers.len() > 1 {
                answers.pop_front().unwrap()
            } else {
                answers.front().unwrap().clone()
            }
        };
        let open = Open::new(&self);
        if answer.is_silent {
            std::future::pending::<()>().await;
        }
        let (sender, receiver) = mpsc::channel(1);
        let mut response = Response::builder().status(answer.status);
        for (name, value) in answer.headers {
            response = response.header(name, value);
        }
        let vendor = Arc::clone(&self);
        tokio::spawn(async move {
            let _open = open;
            tokio::select! {
                () = sender.closed() => {}
                () = perform(answer.steps, &sender, &vendor) => {}
            }
        });
        response.body(Steps(receiver)).unwrap()
    }
}

struct Open(Arc<Vendor>);

impl Open {
    fn new(vendor: &Arc<Vendor>) -> Self {
        vendor.open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(vendor))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn perform(steps: Vec<Step>, sender: &mpsc::Sender<Result<Bytes, Broken>>, vendor: &Vendor) {
    for step in steps {
        match step {
            Step::Send(bytes) => {
                let _ = sender.send(Ok(Bytes::from(bytes))).await;
            }
            Step::Wait(notify) => notify.notified().await,
            Step::Stall => std::future::pending::<()>().await,
            Step::Cut => {
                // What was given before has to be sent first.
                tokio::time::sleep(std::time::Duration::from_millis(30)).await;
                let _ = sender.send(Err(Broken)).await;
            }
            Step::Flood(count) => {
                let event = format!(": {}\n\n", "x".repeat((16 << 10) - 4));
                for _ in 0..count {
                    let _ = sender.send(Ok(Bytes::from(event.clone()))).await;
                    vendor.flooded.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    }
}

struct Steps(mpsc::Receiver<Result<Bytes, Broken>>);

#[derive(Debug, thiserror::Error)]
#[error("the vendor breaks off")]
struct Broken;

impl Body for Steps {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
