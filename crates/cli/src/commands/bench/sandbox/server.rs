use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// Bytes that a client gets.
pub(super) const SIZE: usize = 256 << 20;

/// A server of this machine that sends everybody the same amount of nothing, as fast as it is read.
/// It ends with the process.
pub(super) struct Server {
    port: u16,
}

impl Server {
    pub(super) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        std::thread::Builder::new().spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that goes has had enough.
                let _ = serve(stream);
            }
        })?;
        Ok(Self { port })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => request.extend_from_slice(buffer.get(..count).unwrap_or_default()),
        }
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let nothing = vec![0; 256 << 10];
    for _ in 0..SIZE / nothing.len() {
        stream.write_all(&nothing)?;
    }
    Ok(())
}
