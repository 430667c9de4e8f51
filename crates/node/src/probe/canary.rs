use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::ATTEMPT_LIMIT;

/// How often the listeners look whether they are to end.
const STEP: Duration = Duration::from_millis(50);

/// A server on all addresses of this machine that nobody in a workspace may reach.
#[derive(Debug)]
pub struct Canary {
    port: u16,
    word: String,
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<()>>,
}

/// What reached the canary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Connections over TCP.
    pub connections: u64,
    /// Datagrams over UDP.
    pub datagrams: u64,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    datagrams: AtomicU64,
    over: AtomicBool,
}

impl Canary {
    /// Listens on a free port of both families and both protocols.
    pub fn start() -> io::Result<Self> {
        let bytes = crate::sys::random_bytes::<8>()?;
        let number: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let word = format!("canary-{number}");
        let four = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let port = four.local_addr()?.port();
        let mut listeners = vec![four];
        let mut sockets = vec![UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?];
        // A machine without IPv6 has nothing to be reached by it.
        if let Ok((listener, socket)) = listen_on_six(port) {
            listeners.push(listener);
            sockets.push(socket);
        }
        let counts = Arc::new(Counts::default());
        let mut threads = Vec::new();
        for listener in listeners {
            listener.set_nonblocking(true)?;
            let (counts, word) = (Arc::clone(&counts), word.clone());
            threads.push(thread::spawn(move || greet(&listener, &counts, &word)));
        }
        for socket in sockets {
            socket.set_read_timeout(Some(STEP))?;
            let (counts, word) = (Arc::clone(&counts), word.clone());
            threads.push(thread::spawn(move || note(&socket, &counts, &word)));
        }
        Ok(Self {
            port,
            word,
            counts,
            threads,
        })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it says, and what it knows datagrams by.
    pub fn word(&self) -> &str {
        &self.word
    }

    /// What has reached it so far.
    pub fn seen(&self) -> Seen {
        Seen {
            connections: self.counts.connections.load(Ordering::SeqCst),
            datagrams: self.counts.datagrams.load(Ordering::SeqCst),
        }
    }

    /// The addresses at which this machine is reached.
    pub fn addresses() -> Vec<IpAddr> {
        let mut addresses: Vec<IpAddr> =
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let routes = fs_err::read_to_string("/proc/net/fib_trie").unwrap_or_default();
        let mut last = None;
        for line in routes.lines().map(str::trim) {
            if let Some(address) = line.strip_prefix("|-- ") {
                last = address.parse::<Ipv4Addr>().ok();
            } else if line == "/32 host LOCAL" {
                addresses.extend(last.map(IpAddr::V4));
            }
        }
        let six = fs_err::read_to_string("/proc/net/if_inet6").unwrap_or_default();
        for line in six.lines() {
            let digits = line.split(' ').next().unwrap_or_default();
            let number = u128::from_str_radix(digits, 16).ok();
            addresses.extend(number.map(|number| IpAddr::V6(Ipv6Addr::from(number))));
        }
        let mut seen = std::collections::BTreeSet::new();
        addresses.retain(|address| seen.insert(*address));
        addresses
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.counts.over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn listen_on_six(port: u16) -> io::Result<(TcpListener, UdpSocket)> {
    let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let socket = |kind| {
        let socket =
            rustix::net::socket_with(AddressFamily::INET6, kind, SocketFlags::CLOEXEC, None)?;
        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
        rustix::net::bind(&socket, &address)?;
        Ok::<_, io::Error>(socket)
    };
    let stream = socket(SocketType::STREAM)?;
    rustix::net::listen(&stream, 64)?;
    Ok((stream.into(), socket(SocketType::DGRAM)?.into()))
}

fn greet(listener: &TcpListener, counts: &Counts, word: &str) {
    while !counts.over.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((mut stream, _)) => {
                counts.connections.fetch_add(1, Ordering::SeqCst);
                let _ = stream.set_write_timeout(Some(ATTEMPT_LIMIT));
                let _ = stream.write_all(format!("{word}\n").as_bytes());
            }
            Err(_) => thread::sleep(STEP),
        }
    }
}

fn note(socket: &UdpSocket, counts: &Counts, word: &str) {
    let mut buffer = [0; 2048];
    while !counts.over.load(Ordering::SeqCst) {
        let Ok((count, from)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let received = &buffer[..count];
        if received
            .windows(word.len())
            .any(|window| window == word.as_bytes())
        {
            counts.datagrams.fetch_add(1, Ordering::SeqCst);
            let _ = socket.send_to(word.as_bytes(), from);
        }
    }
}
