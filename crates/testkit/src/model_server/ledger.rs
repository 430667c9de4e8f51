use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::dialect::{Dialect, Tokens};

/// A request, and what became of it.
#[derive(Debug, Clone)]
pub struct Received {
    /// Such as `POST`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names in lower case, in the order of the wire.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The API, when it was a call to one.
    pub dialect: Option<Dialect>,
    /// Whether a client asked on its own account, as for the title of a session. The script is not
    /// asked for those.
    pub side: bool,
    /// Status of the answer, once there is one.
    pub status: Option<u16>,
    /// What the answer told so far of the tokens that it costs.
    pub tokens: Option<Tokens>,
    /// How it ended.
    pub ending: Ending,
}

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Not yet.
    Running,
    /// The whole answer went out.
    Complete,
    /// The script broke the connection, or let the answer end early.
    Cut,
    /// The client went away before the end of the answer.
    Disconnected,
}

impl Received {
    /// The value of a header, when it is there once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(other, _)| other == name);
        let (_, value) = values.next()?;
        values.next().is_none().then_some(value.as_str())
    }

    /// Whether `text` occurs anywhere in it: path, headers or body.
    pub fn contains(&self, text: &str) -> bool {
        let head = format!("{} {:?}", self.path, self.headers);
        head.contains(text) || crate::processes::contains(&self.body, text.as_bytes())
    }

    /// Whether the client ended it.
    pub fn disconnected(&self) -> bool {
        self.ending == Ending::Disconnected
    }
}

/// All requests of a server.
#[derive(Debug, Default, Clone)]
pub(super) struct Ledger {
    inner: Arc<(Mutex<Vec<Received>>, Condvar)>,
}

impl Ledger {
    pub(super) fn all(&self) -> Vec<Received> {
        self.inner.0.lock().unwrap().clone()
    }

    pub(super) fn count(&self) -> usize {
        self.inner.0.lock().unwrap().len()
    }

    /// Waits for `condition`. The requests, and whether it held in time.
    pub(super) fn wait(
        &self,
        limit: Duration,
        mut condition: impl FnMut(&[Received]) -> bool,
    ) -> (Vec<Received>, bool) {
        let until = Instant::now() + limit;
        let (lock, changed) = &*self.inner;
        let mut requests = lock.lock().unwrap();
        loop {
            if condition(&requests) {
                return (requests.clone(), true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (requests.clone(), false);
            }
            (requests, _) = changed.wait_timeout(requests, left).unwrap();
        }
    }

    /// Takes down a request that has arrived.
    pub(super) fn begin(&self, request: Received) -> Progress {
        let mut requests = self.inner.0.lock().unwrap();
        requests.push(request);
        self.inner.1.notify_all();
        Progress {
            ledger: self.clone(),
            index: requests.len() - 1,
        }
    }
}

/// Keeps the record of one request. Dropped before the end of the answer, the client has gone.
#[derive(Debug)]
pub(super) struct Progress {
    ledger: Ledger,
    index: usize,
}

impl Progress {
    pub(super) fn status(&self, status: u16) {
        self.update(|request| request.status = Some(status));
    }

    pub(super) fn told(&self, tokens: Tokens) {
        self.update(|request| request.tokens = Some(tokens));
    }

    pub(super) fn end(&self, ending: Ending) {
        self.update(|request| {
            if request.ending == Ending::Running {
                request.ending = ending;
            }
        });
    }

    fn update(&self, change: impl FnOnce(&mut Received)) {
        // In a destructor beside a panic of a test there may be nothing to write to any more.
        if let Ok(mut requests) = self.ledger.inner.0.lock() {
            change(&mut requests[self.index]);
            self.ledger.inner.1.notify_all();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end(Ending::Disconnected);
    }
}
