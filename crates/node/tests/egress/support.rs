use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use async_trait::async_trait;
use mini_ork_node::egress::{HostName, Resolve};

/// Answers as the test says: each name with one list after the other, the last one for ever.
#[derive(Debug, Default)]
pub(crate) struct Zone {
    answers: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    pub(crate) questions: AtomicUsize,
}

impl Zone {
    pub(crate) fn of(names: &[(&str, &[&str])]) -> Arc<Self> {
        let zone = Self::default();
        for (name, addresses) in names {
            let addresses = addresses.iter().map(|address| address.parse().unwrap());
            let mut answers = zone.answers.lock().unwrap();
            let list = answers.entry((*name).to_owned()).or_default();
            list.push(addresses.collect());
        }
        Arc::new(zone)
    }
}

#[async_trait]
impl Resolve for Zone {
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        self.questions.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        match answers.get_mut(name.as_str()) {
            Some(list) if list.len() > 1 => Ok(list.remove(0)),
            Some(list) => Ok(list[0].clone()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// A server on loopback that notes what it gets.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) received: Arc<Mutex<Vec<u8>>>,
}

impl Server {
    /// Says `greeting` to everybody and then returns what comes.
    pub(crate) fn echo(greeting: &'static [u8]) -> Self {
        Self::start(move |mut stream, received| {
            let _ = stream.write_all(greeting);
            let mut buffer = [0; 64 * 1024];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                received.lock().unwrap().extend_from_slice(&buffer[..count]);
                if stream.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        })
    }

    /// Answers each web request with its path, and keeps the connection.
    pub(crate) fn web() -> Self {
        Self::start(|mut stream, received| {
            let mut bytes = Vec::new();
            let mut buffer = [0; 4096];
            loop {
                while let Some(end) = find(&bytes, b"\r\n\r\n") {
                    let head: Vec<u8> = bytes.drain(..end + 4).collect();
                    received.lock().unwrap().extend_from_slice(&head);
                    let text = String::from_utf8_lossy(&head).into_owned();
                    let path = text.split(' ').nth(1).unwrap_or("?").to_owned();
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}",
                        path.len()
                    );
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
                match stream.read(&mut buffer) {
                    Ok(count @ 1..) => bytes.extend_from_slice(&buffer[..count]),
                    _ => return,
                }
            }
        })
    }

    /// Answers the first web request with this, and returns what comes after it.
    pub(crate) fn changing(answer: &'static str) -> Self {
        Self::start(move |mut stream, received| {
            let mut bytes = Vec::new();
            let mut buffer = [0; 4096];
            while find(&bytes, b"\r\n\r\n").is_none() {
                match stream.read(&mut buffer) {
                    Ok(count @ 1..) => bytes.extend_from_slice(&buffer[..count]),
                    _ => return,
                }
            }
            received.lock().unwrap().extend_from_slice(&bytes);
            let _ = stream.write_all(answer.as_bytes());
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                received.lock().unwrap().extend_from_slice(&buffer[..count]);
                if stream.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        })
    }

    /// Answers one web request and then ends the connection, as after a time without any.
    pub(crate) fn hasty() -> Self {
        Self::start(|mut stream, received| {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).unwrap_or(0);
            received.lock().unwrap().extend_from_slice(&buffer[..count]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        })
    }

    /// Says `bye`, ends its side and goes on to listen.
    pub(crate) fn parting() -> Self {
        Self::start(|mut stream, received| {
            let _ = stream.write_all(b"bye\n");
            let _ = stream.shutdown(Shutdown::Write);
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                received.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        })
    }

    /// As much of PostgreSQL as a client needs for a query: it answers each with `1`.
    pub(crate) fn database() -> Self {
        Self::start(|mut stream, received| {
            let _ = speak_to_client(&mut stream, received);
        })
    }

    fn start(serve: impl Fn(TcpStream, &Mutex<Vec<u8>>) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            received: Arc::default(),
        };
        let (connections, received) = (
            Arc::clone(&server.connections),
            Arc::clone(&server.received),
        );
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::SeqCst);
                let (serve, received) = (Arc::clone(&serve), Arc::clone(&received));
                thread::spawn(move || serve(stream, &received));
            }
        });
        server
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn got(&self) -> String {
        String::from_utf8_lossy(&self.received.lock().unwrap()).into_owned()
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

fn speak_to_client(stream: &mut TcpStream, received: &Mutex<Vec<u8>>) -> io::Result<()> {
    const ENCRYPTION: [u8; 4] = 80_877_103_u32.to_be_bytes();
    let message = |kind: u8, content: &[u8]| {
        let length = u32::try_from(content.len() + 4).unwrap().to_be_bytes();
        [&[kind][..], &length, content].concat()
    };
    let read = |stream: &mut TcpStream| {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut content = vec![0; u32::from_be_bytes(length) as usize - 4];
        stream.read_exact(&mut content)?;
        received.lock().unwrap().extend_from_slice(&content);
        Ok::<_, io::Error>(content)
    };
    while read(stream)?.starts_with(&ENCRYPTION) {
        stream.write_all(b"N")?;
    }
    let ready = message(b'Z', b"I");
    let version = message(b'S', b"server_version\x0015.0\0");
    stream.write_all(&[message(b'R', &[0; 4]), version, ready.clone()].concat())?;
    loop {
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        read(stream)?;
        if kind != *b"Q" {
            return Ok(());
        }
        // One column of text, one row.
        let column = b"\0\x01?column?\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";
        let answer = [
            message(b'T', column),
            message(b'D', b"\0\x01\0\0\0\x011"),
            message(b'C', b"SELECT 1\0"),
            ready.clone(),
        ];
        stream.write_all(&answer.concat())?;
    }
}
