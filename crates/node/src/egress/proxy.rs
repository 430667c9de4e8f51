use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::denials::{Denial, DenialKind, Denials};
use super::dial::{Resolve, dial};
use super::host::Host;
use super::opening::{Opening, Protocol};
use super::policy::AllowList;
use super::stream::{ByteStream, Rewound};
use super::web;
use super::wire::{self, Answer};

/// Most connections at once. A workspace that opens more waits for its own.
const MOST_CONNECTIONS: usize = 512;
/// How long a request may take to arrive, and a client on a TLS port to say what it wants.
const OPENING_LIMIT: Duration = Duration::from_secs(30);
/// How much of a connection is on its way at once, in each direction.
pub(super) const BUFFER: usize = 64 * 1024;
/// A port on which nothing but TLS is let through.
const TLS_PORT: u16 = 443;

/// Decides about each connection that a workspace asks for, and makes it.
///
/// It stands outside of the workspace and believes nothing that comes from there: neither that a
/// shim speaks, nor what it has checked. Each stream is a connection of its own; none waits for
/// another.
#[derive(Debug)]
pub struct PolicyProxy {
    allowed: AllowList,
    resolver: Arc<dyn Resolve>,
    denials: Denials,
    slots: Semaphore,
}

impl PolicyProxy {
    /// One that lets through what `allowed` lists.
    pub fn new(allowed: AllowList, resolver: Arc<dyn Resolve>) -> Self {
        Self {
            allowed,
            resolver,
            denials: Denials::default(),
            slots: Semaphore::new(MOST_CONNECTIONS),
        }
    }

    /// What it lets through.
    pub fn allowed(&self) -> &AllowList {
        &self.allowed
    }

    /// What was refused so far, the most frequent first.
    pub fn denials(&self) -> Vec<Denial> {
        self.denials.list()
    }

    /// Serves one stream until the connection is over. Dropping the future ends it at once.
    pub async fn serve(&self, mut stream: impl ByteStream) {
        let wanted = match timeout(OPENING_LIMIT, wire::read_wanted(&mut stream)).await {
            Ok(Ok(wanted)) => wanted,
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                self.denials.count(DenialKind::Malformed, None, 0);
                let _ = wire::write_answer(&mut stream, Answer::Malformed).await;
                return;
            }
            _ => return,
        };
        let host = std::str::from_utf8(&wanted.host).ok();
        let Some(host) = host.and_then(|host| Host::parse(host).ok()) else {
            self.denials.count(DenialKind::Malformed, None, 0);
            let _ = wire::write_answer(&mut stream, Answer::Malformed).await;
            return;
        };
        let Ok(_slot) = self.slots.try_acquire() else {
            let _ = wire::write_answer(&mut stream, Answer::Busy).await;
            return;
        };
        match self.connect(&host, wanted.port).await {
            Err(answer) => {
                let _ = wire::write_answer(&mut stream, answer).await;
            }
            Ok(outside) => {
                if wire::write_answer(&mut stream, Answer::Connected)
                    .await
                    .is_ok()
                {
                    self.relay(stream, outside, &host, wanted.port).await;
                }
            }
        }
    }

    async fn connect(&self, host: &Host, port: u16) -> Result<TcpStream, Answer> {
        let asked_only = port == 0 && self.allowed.knows(host);
        if asked_only {
            return Err(Answer::Unreachable);
        }
        if !self.allowed.permits(host, port) {
            self.denials.count(DenialKind::NotListed, Some(host), port);
            return Err(Answer::NotListed);
        }
        let dialed = dial(host, port, &self.allowed, &*self.resolver).await;
        if let Err(Answer::Reserved) = dialed {
            self.denials.count(DenialKind::Reserved, Some(host), port);
        }
        dialed
    }

    /// Carries bytes both ways; nothing goes out before it is known for whom it is.
    ///
    /// The other side may speak first, as in SSH.
    async fn relay(&self, inside: impl ByteStream, outside: TcpStream, host: &Host, port: u16) {
        let (mut inside_read, mut inside_write) = tokio::io::split(inside);
        let (mut outside_read, outside_write) = outside.into_split();
        let mut opening = Opening::default();
        let mut buffer = vec![0; 16 * 1024];
        let hello_limit = tokio::time::sleep(OPENING_LIMIT);
        tokio::pin!(hello_limit);
        let protocol = loop {
            let mut greeting = [0; 4096];
            tokio::select! {
                read = inside_read.read(&mut buffer) => match read {
                    Err(_) => return,
                    Ok(0) => break opening.at_end(),
                    Ok(count) => match opening.push(&buffer[..count]) {
                        Protocol::Undecided => {}
                        decided => break decided,
                    },
                },
                read = outside_read.read(&mut greeting), if port != TLS_PORT => match read {
                    Err(_) => return,
                    // It may still be told something.
                    Ok(0) => break opening.at_end(),
                    Ok(count) => if inside_write.write_all(&greeting[..count]).await.is_err() {
                        return;
                    },
                },
                () = &mut hello_limit, if port == TLS_PORT => return,
            }
        };
        let inside = inside_read.unsplit(inside_write);
        let Ok(mut outside) = outside_read.reunite(outside_write) else {
            return;
        };
        let mut inside = Rewound::new(opening.into_bytes(), inside);
        let fits = match &protocol {
            Protocol::Tls(name) => self.is_meant(host, port, name.as_ref()),
            // Web requests name their host one by one.
            Protocol::Web if port != TLS_PORT => {
                let wrong = web::relay(inside, outside, host, port, &self.allowed).await;
                for _ in 0..wrong {
                    self.denials.count(DenialKind::OtherName, Some(host), port);
                }
                return;
            }
            // It said nothing at all: somebody looks whether the port is open.
            Protocol::Other if port == TLS_PORT && inside.is_plain() => return,
            Protocol::Other => port != TLS_PORT,
            Protocol::Web | Protocol::Undecided | Protocol::Refused => false,
        };
        if !fits {
            self.denials.count(DenialKind::OtherName, Some(host), port);
            return;
        }
        let _ = copy_bidirectional_with_sizes(&mut inside, &mut outside, BUFFER, BUFFER).await;
    }

    /// Whether a TLS client that asks for `name` may talk to `host`.
    fn is_meant(&self, host: &Host, port: u16, name: Option<&super::HostName>) -> bool {
        match (host, name) {
            (Host::Name(host), Some(name)) => host == name,
            (Host::Name(_), None) => false,
            // Whoever listed an address listed what is there; a name has to be listed too.
            (Host::Address(_), None) => true,
            (Host::Address(_), Some(name)) => self.allowed.permits(&Host::Name(name.clone()), port),
        }
    }
}
