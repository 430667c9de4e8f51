use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional_with_sizes,
};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::denials::{Denial, DenialKind, Denials};
use super::dial::{Resolve, dial};
use super::host::Host;
use super::opening::{Opening, Protocol};
use super::policy::AllowList;
use super::stream::{ByteStream, Rewound};
use super::web;
use super::wire::{self, Answer};

/// Most connections at once. A workspace that opens more waits for its own.
const MOST_CONNECTIONS: usize = 256;
/// How long a request may take to arrive, and a client to say what it speaks: from its first bytes
/// on, and on a TLS port from the beginning.
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
        let ways = (&mut inside_read, &mut inside_write, &mut outside_read);
        let Some((protocol, beginning)) = open(ways, port, OPENING_LIMIT).await else {
            return;
        };
        let inside = inside_read.unsplit(inside_write);
        let Ok(mut outside) = outside_read.reunite(outside_write) else {
            return;
        };
        let mut inside = Rewound::new(beginning, inside);
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

/// Reads until it is known what the client speaks, which is nothing when it takes too long, and
/// passes on what the host says meanwhile. Returns what was read as well.
async fn open(
    (inside_read, inside_write, outside_read): (
        &mut (impl AsyncRead + Unpin),
        &mut (impl AsyncWrite + Unpin),
        &mut (impl AsyncRead + Unpin),
    ),
    port: u16,
    limit: Duration,
) -> Option<(Protocol, Vec<u8>)> {
    let mut opening = Opening::default();
    let mut buffer = vec![0; 16 * 1024];
    let deadline = tokio::time::sleep(limit);
    tokio::pin!(deadline);
    let mut has_begun = port == TLS_PORT;
    let mut host_speaks = port != TLS_PORT;
    let protocol = loop {
        let mut greeting = [0; 4096];
        tokio::select! {
            read = inside_read.read(&mut buffer) => match read {
                Err(_) => return None,
                Ok(0) => break opening.at_end(),
                Ok(count) => match opening.push(&buffer[..count]) {
                    Protocol::Undecided if has_begun => {}
                    Protocol::Undecided => {
                        has_begun = true;
                        deadline.as_mut().reset(Instant::now() + limit);
                    }
                    decided => break decided,
                },
            },
            read = outside_read.read(&mut greeting), if host_speaks => match read {
                Err(_) => return None,
                Ok(0) => {
                    // It may still be told something.
                    host_speaks = false;
                    if inside_write.shutdown().await.is_err() {
                        return None;
                    }
                }
                Ok(count) => if inside_write.write_all(&greeting[..count]).await.is_err() {
                    return None;
                },
            },
            () = &mut deadline, if has_begun => return None,
        }
    };
    Some((protocol, opening.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_beginning_without_an_end_is_given_up_and_silence_is_not() {
        const LIMIT: Duration = Duration::from_millis(50);
        let (mut program, inside) = tokio::io::duplex(64);
        let (mut inside_read, mut inside_write) = tokio::io::split(inside);
        let (mut host, mut outside) = tokio::io::duplex(64);
        let ways = (&mut inside_read, &mut inside_write, &mut outside);
        let opened = tokio::spawn(async move { host.write_all(b"hello").await.map(|()| host) });
        // A host may speak first, and whoever says nothing is waited for.
        assert!(timeout(3 * LIMIT, open(ways, 22, LIMIT)).await.is_err());
        let _host = opened.await.unwrap().unwrap();
        let mut greeting = [0; 5];
        program.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"hello");
        program.write_all(b"GET / HT").await.unwrap();
        let ways = (&mut inside_read, &mut inside_write, &mut outside);
        assert_eq!(open(ways, 22, LIMIT).await, None);
        let ways = (&mut inside_read, &mut inside_write, &mut outside);
        assert_eq!(open(ways, TLS_PORT, LIMIT).await, None, "silence with TLS");
    }
}
