//! A server that speaks the APIs of model vendors and says what a script tells it to.
//!
//! It is strict like a vendor (keys, versions, the form of conversations), deals exact numbers of
//! tokens, and fails on request in the ways that vendors and networks do. It writes down every
//! request and what of the answer really went out.

mod body;
mod chat;
mod check;
mod conversation;
mod dialect;
mod ledger;
mod messages;
mod recorded;
mod reply;
mod request;
mod responses;
mod script;
mod serve;
mod tls;
mod tools;
mod trouble;
mod turn;

#[cfg(test)]
mod tests;

pub use dialect::{Dialect, Tokens};
pub use ledger::{Ending, Received};
pub use request::ModelRequest;
pub use script::Script;
pub use tools::Act;
pub use trouble::Trouble;
pub use turn::{Stop, Turn};

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use ledger::Ledger;
use tls::Tls;

/// How long the waits of a server take at most.
const LIMIT: Duration = Duration::from_secs(60);

/// A running server on a loopback port of its own. It ends with this value, and so do all
/// connections to it.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    tls: Option<Tls>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the server's thread and the test both see.
#[derive(Debug)]
struct Shared {
    key: String,
    prefix: String,
    script: Script,
    ledger: Ledger,
    connections: AtomicUsize,
}

impl ModelServer {
    /// Starts a server that speaks plain HTTP.
    pub fn start(script: Script) -> Self {
        Self::launch(script, "", None)
    }

    /// Starts a server that speaks HTTPS, with a certificate for `localhost` and `127.0.0.1` of an
    /// authority of its own: see [`Self::ca_file`].
    pub fn start_tls(script: Script) -> Self {
        Self::launch(script, "", Some(Tls::new()))
    }

    /// Starts a server whose APIs are below the path `prefix` (such as `/gateway/team`) and nowhere
    /// else.
    pub fn start_below(prefix: &str, script: Script) -> Self {
        Self::launch(script, prefix, None)
    }

    fn launch(script: Script, prefix: &str, tls: Option<Tls>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime
            .block_on(TcpListener::bind(("127.0.0.1", 0)))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            key: fresh_key(address.port()),
            prefix: prefix.to_owned(),
            script,
            ledger: Ledger::default(),
            connections: AtomicUsize::new(0),
        });
        let acceptor = tls.as_ref().map(Tls::acceptor);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || runtime.block_on(serve::accept(listener, acceptor, shared, stopped))
        });
        Self {
            address,
            shared,
            tls,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// The one key that it takes. No other server has it, so it can be searched for.
    pub fn key(&self) -> &str {
        &self.shared.key
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL as clients of `dialect` want it: with `/v1` for OpenAI's, without for
    /// Anthropic's.
    pub fn base_url(&self, dialect: Dialect) -> String {
        let (scheme, host) = match self.tls {
            Some(_) => ("https", "localhost"),
            None => ("http", "127.0.0.1"),
        };
        let version = match dialect {
            Dialect::Messages => "",
            Dialect::Chat | Dialect::Responses => "/v1",
        };
        let (port, prefix) = (self.address.port(), &self.shared.prefix);
        format!("{scheme}://{host}:{port}{prefix}{version}")
    }

    /// The certificate of the authority that vouches for it, in a PEM file. Panics when it speaks
    /// plain HTTP.
    pub fn ca_file(&self) -> PathBuf {
        self.tls.as_ref().unwrap().ca_file()
    }

    /// Every request so far, in the order in which they came, with what became of each.
    pub fn requests(&self) -> Vec<Received> {
        self.shared.ledger.all()
    }

    /// The tokens that all answers together told their readers so far.
    pub fn dealt(&self) -> Tokens {
        self.requests()
            .iter()
            .filter_map(|request| request.tokens)
            .sum()
    }

    /// Waits until there are `count` requests or more; returns them.
    #[track_caller]
    pub fn wait_for_requests(&self, count: usize) -> Vec<Received> {
        self.wait_until(&format!("request number {count}"), |requests| {
            requests.len() >= count
        })
    }

    /// Waits until `condition` holds for the requests; returns them.
    #[track_caller]
    pub fn wait_until(
        &self,
        what: &str,
        condition: impl FnMut(&[Received]) -> bool,
    ) -> Vec<Received> {
        let (requests, held) = self.shared.ledger.wait(LIMIT, condition);
        assert!(held, "no {what} within {LIMIT:?}: {requests:#?}");
        requests
    }

    /// How many connections are open to it now.
    pub fn open_connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there has been printed; a second one here would abort the test.
            let _ = thread.join();
        }
    }
}

/// A key that looks like one and is not to be found anywhere else.
fn fresh_key(port: u16) -> String {
    let now = std::time::SystemTime::now();
    let seed = format!("{port} {} {now:?}", std::process::id());
    let digest = Sha256::digest(seed.as_bytes());
    let hex: String = digest
        .iter()
        .take(20)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sk-test-{hex}")
}
