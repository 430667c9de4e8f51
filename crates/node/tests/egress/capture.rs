use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How the word of each canary begins, and how long it is.
const WORD: &[u8] = b"canary-";
const WORD_LENGTH: usize = 7 + 16;

/// Sees every packet of this machine, as `tcpdump` does. What stays inside of another network
/// namespace is not seen.
pub(crate) struct Capture {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Captured>>,
}

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    ports: HashMap<u16, u64>,
    words: BTreeSet<String>,
}

impl Captured {
    /// How many packets were for this port, wherever it is.
    pub(crate) fn to(&self, port: u16) -> u64 {
        self.ports.get(&port).copied().unwrap_or_default()
    }

    /// Whether any packet to anywhere had the word of a canary in it, also as the name in a question.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.contains(word)
    }
}

impl Capture {
    /// None for an ordinary user.
    pub(crate) fn start() -> Option<Self> {
        // All protocols, as the system call has them.
        let every = rustix::net::RawProtocol::new(u32::from(3_u16.to_be()));
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::PACKET,
            rustix::net::SocketType::DGRAM,
            every.map(rustix::net::Protocol::from_raw),
        );
        let socket = socket.ok()?;
        let limit = Some(Duration::from_millis(50));
        let timeout = rustix::net::sockopt::Timeout::Recv;
        rustix::net::sockopt::set_socket_timeout(&socket, timeout, limit).unwrap();
        // A flood of another test must not push anything out.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20);
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let mut captured = Captured::default();
            let mut packet = vec![0; 1 << 16];
            loop {
                let flags = rustix::net::RecvFlags::empty();
                match rustix::net::recv(&socket, packet.as_mut_slice(), flags) {
                    Ok((count, _)) => captured.take(&packet[..count]),
                    Err(_) if stop.load(Ordering::SeqCst) => return captured,
                    Err(_) => {}
                }
            }
        });
        Some(Self {
            over,
            thread: Some(thread),
        })
    }

    pub(crate) fn end(mut self) -> Captured {
        self.over.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Captured {
    fn take(&mut self, packet: &[u8]) {
        if let Some(port) = destination(packet) {
            *self.ports.entry(port).or_default() += 1;
        }
        let found = packet
            .windows(WORD_LENGTH)
            .filter(|part| part.starts_with(WORD));
        for word in found {
            self.words
                .insert(String::from_utf8_lossy(word).into_owned());
        }
    }
}

fn destination(packet: &[u8]) -> Option<u16> {
    let (protocol, at) = match packet.first()? >> 4 {
        4 => (*packet.get(9)?, usize::from(packet[0] & 15) * 4),
        6 => (*packet.get(6)?, 40),
        _ => return None,
    };
    let port = packet.get(at + 2..at + 4)?;
    matches!(protocol, 6 | 17).then(|| u16::from_be_bytes([port[0], port[1]]))
}
