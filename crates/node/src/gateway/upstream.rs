//! The way to the vendor.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};

use super::{BaseUrl, Roots};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// An idle connection that the vendor closes at this moment would cost a try.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Room for the head of an answer. Of its body no more than this is ever read ahead, so that a slow
/// reader costs no more memory.
const BUFFER: usize = 64 << 10;

/// The connections of one gateway, to one host.
#[derive(Debug, Clone)]
pub(super) struct Upstream {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// Why a vendor's certificate could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    /// A file with certificates that was asked for.
    #[error("the certificates in {0} cannot be read")]
    File(PathBuf, #[source] rustls_native_certs::Error),
    /// The runtime ends.
    #[error("reading the certificates was broken off")]
    BrokenOff(#[source] tokio::task::JoinError),
    /// Nobody could vouch for anybody.
    #[error("no certificate authority is known on this machine (package `ca-certificates`)")]
    None,
    /// The TLS library does not offer what is needed.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SendFailure {
    /// Nothing of the request went out.
    pub(super) is_unsent: bool,
    /// Another try may help.
    pub(super) is_transient: bool,
    /// What was wrong.
    pub(super) message: String,
}

impl Upstream {
    pub(super) fn new(base_url: &BaseUrl, roots: &Roots) -> Result<Self, RootsError> {
        let store = if base_url.is_https() {
            load(roots)?
        } else {
            RootCertStore::empty()
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        if base_url.is_https() {
            // A process gathers randomness for 30 ms when it needs some for the first time. In the
            // first call, all others would wait for it.
            let gathered = provider.secure_random.fill(&mut [0]);
            gathered.map_err(|error| RootsError::Tls(error.into()))?;
        }
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(RootsError::Tls)?
            .with_root_certificates(store)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls);
        let builder = if base_url.is_https() {
            builder.https_only()
        } else {
            builder.https_or_http()
        };
        let connector = builder.enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .http1_max_buf_size(BUFFER)
            .build(connector);
        Ok(Self { client })
    }

    /// Sends a request and waits for the head of its answer. Dropping the future ends the call.
    pub(super) async fn send(
        &self,
        uri: Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, SendFailure> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        self.client
            .request(request)
            .await
            .map_err(|error| SendFailure {
                is_unsent: error.is_connect(),
                is_transient: !is_distrust(&error),
                message: root_cause(&error),
            })
    }
}

/// The innermost sentence of an error.
pub(super) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = inner(cause) {
        cause = source;
    }
    cause.to_string()
}

/// Whether the vendor's certificate is at fault, which no second try mends.
fn is_distrust(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return matches!(tls, rustls::Error::InvalidCertificate(_));
        }
        cause = inner(error);
    }
    false
}

/// An IO error does not count what it wraps among its sources.
fn inner<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    if let Some(wrapped) = error
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref)
    {
        return Some(wrapped);
    }
    error.source()
}

fn load(roots: &Roots) -> Result<RootCertStore, RootsError> {
    let mut store = RootCertStore::empty();
    if roots.system {
        // Some systems have certificates that cannot be read; the others count.
        let found = rustls_native_certs::load_native_certs();
        store.add_parsable_certificates(found.certs);
    }
    if let Some(path) = &roots.extra_pem {
        add(path, &mut store)?;
    }
    if store.is_empty() {
        return Err(RootsError::None);
    }
    Ok(store)
}

fn add(path: &Path, store: &mut RootCertStore) -> Result<(), RootsError> {
    let found = rustls_native_certs::load_certs_from_paths(Some(path), None);
    let failed = found.errors.into_iter().next();
    let (added, _) = store.add_parsable_certificates(found.certs);
    match failed {
        Some(error) => Err(RootsError::File(path.to_owned(), error)),
        None if added == 0 => Err(RootsError::None),
        None => Ok(()),
    }
}
