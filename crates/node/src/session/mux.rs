use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt as _, TokioAsyncReadCompatExt as _};
use yamux::{Config, Connection, Mode};

/// Most streams of a connection at a time.
const MOST_STREAMS: usize = 512;
/// Most bytes that wait in memory for the readers of all streams: each may have the 256 KiB that
/// the format promises, and no more.
const MOST_WAITING: usize = MOST_STREAMS * (256 << 10);
/// How many streams may wait for somebody to take them, on either side.
const QUEUE: usize = 64;

/// One of the streams of a connection.
pub type MuxStream = Compat<yamux::Stream>;

/// Which end of a connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The control plane.
    Outside,
    /// The session server.
    Inside,
}

/// A connection that carries any number of streams, which both sides may open. It ends when the
/// last clone is dropped, and all its streams end with it.
#[derive(Debug, Clone)]
pub struct Mux {
    wanted: mpsc::Sender<oneshot::Sender<io::Result<MuxStream>>>,
}

impl Mux {
    /// Runs a connection over `transport` on the current runtime. The other side's streams arrive
    /// at the receiver; it ends with the connection. A stream for which there is no room is
    /// refused, so that whoever takes them late stops nothing else.
    pub fn start(
        transport: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        side: Side,
    ) -> (Self, mpsc::Receiver<MuxStream>) {
        let mut config = Config::default();
        config.set_max_num_streams(MOST_STREAMS);
        config.set_max_connection_receive_window(Some(MOST_WAITING));
        let mode = match side {
            Side::Outside => Mode::Client,
            Side::Inside => Mode::Server,
        };
        let (wanted, asks) = mpsc::channel(QUEUE);
        let (arrived, arriving) = mpsc::channel(QUEUE);
        let driver = Driver {
            connection: Connection::new(transport.compat(), config, mode),
            asks,
            arrived,
            waiting: VecDeque::new(),
        };
        tokio::spawn(driver.run());
        (Self { wanted }, arriving)
    }

    /// Opens a stream. The other side learns of it with the first bytes.
    pub async fn open(&self) -> io::Result<MuxStream> {
        let (answer, opened) = oneshot::channel();
        let gone = || io::Error::from(io::ErrorKind::ConnectionAborted);
        self.wanted.send(answer).await.map_err(|_| gone())?;
        opened.await.map_err(|_| gone())?
    }

    /// Returns when the connection has ended.
    pub async fn closed(&self) {
        self.wanted.closed().await;
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.wanted.is_closed()
    }
}

/// Owns the connection: nothing moves on it unless it is polled.
struct Driver<T> {
    connection: Connection<T>,
    asks: mpsc::Receiver<oneshot::Sender<io::Result<MuxStream>>>,
    arrived: mpsc::Sender<MuxStream>,
    waiting: VecDeque<oneshot::Sender<io::Result<MuxStream>>>,
}

impl<T: futures_util::AsyncRead + futures_util::AsyncWrite + Unpin> Driver<T> {
    async fn run(mut self) {
        poll_fn(|context| self.poll(context)).await;
        // No answer to wait for: the other side may be gone or not listen.
        let closed = poll_fn(|context| self.connection.poll_close(context));
        let _ = tokio::time::timeout(std::time::Duration::from_secs(1), closed).await;
    }

    /// Ready when the connection has ended, or nobody is left who could use it.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            while self.waiting.len() < QUEUE {
                match self.asks.poll_recv(context) {
                    Poll::Ready(Some(ask)) => self.waiting.push_back(ask),
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => break,
                }
            }
            while let Some(ask) = self.waiting.pop_front() {
                if ask.is_closed() {
                    continue;
                }
                match self.connection.poll_new_outbound(context) {
                    Poll::Ready(Ok(stream)) => {
                        // Whoever does not want it any more drops it.
                        let _ = ask.send(Ok(stream.compat()));
                    }
                    Poll::Ready(Err(error)) => {
                        let _ = ask.send(Err(io::Error::other(error)));
                        return Poll::Ready(());
                    }
                    Poll::Pending => {
                        self.waiting.push_front(ask);
                        break;
                    }
                }
            }
            match self.connection.poll_next_inbound(context) {
                Poll::Ready(Some(Ok(stream))) => {
                    // Without room it is dropped, which the other side sees as its end.
                    let _ = self.arrived.try_send(stream.compat());
                }
                Poll::Ready(None | Some(Err(_))) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let limit = std::time::Duration::from_secs(60);
        runtime.block_on(async { tokio::time::timeout(limit, future).await.unwrap() })
    }

    #[test]
    fn both_sides_open_streams_and_an_unread_one_holds_up_no_other() {
        block_on(async {
            let (near, far) = tokio::io::duplex(4096);
            let (outside, mut calls) = Mux::start(near, Side::Outside);
            let (inside, mut requests) = Mux::start(far, Side::Inside);
            let mut unread = outside.open().await.unwrap();
            let flood = tokio::spawn(async move {
                let written = unread.write_all(&vec![7; 4 << 20]).await;
                (written, unread)
            });
            let kept = requests.recv().await.unwrap();
            let mut call = inside.open().await.unwrap();
            call.write_all(b"from inside").await.unwrap();
            call.shutdown().await.unwrap();
            let mut heard = String::new();
            let mut called = calls.recv().await.unwrap();
            called.read_to_string(&mut heard).await.unwrap();
            assert_eq!(heard, "from inside");
            assert!(!flood.is_finished(), "nobody read 4 MiB");
            drop(kept);
            let (written, _) = flood.await.unwrap();
            assert!(written.is_err());
        });
    }

    #[test]
    fn the_end_of_one_side_is_seen_by_the_other() {
        block_on(async {
            let (near, far) = tokio::io::duplex(4096);
            let (outside, _calls) = Mux::start(near, Side::Outside);
            let (inside, mut requests) = Mux::start(far, Side::Inside);
            let mut stream = outside.open().await.unwrap();
            stream.write_all(b"x").await.unwrap();
            let mut served = requests.recv().await.unwrap();
            drop(inside);
            drop(requests);
            outside.closed().await;
            assert!(outside.open().await.is_err());
            let mut rest = Vec::new();
            let _ = served.read_to_end(&mut rest).await;
            assert!(matches!(stream.read(&mut [0; 8]).await, Ok(0) | Err(_)));
        });
    }

    #[test]
    fn garbage_ends_the_connection() {
        block_on(async {
            let (near, mut far) = tokio::io::duplex(4096);
            let (outside, mut calls) = Mux::start(near, Side::Outside);
            far.write_all(&[0xff; 64]).await.unwrap();
            assert!(calls.recv().await.is_none());
            outside.closed().await;
        });
    }
}
