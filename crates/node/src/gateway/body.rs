//! The body of an answer on its way to the client.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// A part of an answer that is passed on as it comes.
#[derive(Debug)]
pub(super) enum Piece {
    /// Bytes, never none.
    Data(Bytes),
    /// The answer is whole.
    End,
    /// These bytes are the last, and the connection ends without a word, so that no client takes
    /// the answer for whole.
    Cut(Bytes),
}

/// What hyper sends to the client.
#[derive(Debug)]
pub(super) enum AnswerBody {
    /// All of it.
    Whole(Bytes),
    /// Pieces. When they stop without [`Piece::End`], the connection is cut.
    Relayed(mpsc::Receiver<Piece>, Cut),
    /// The connection is about to end.
    Cutting,
}

/// Has a connection end as soon as all was sent that was given to it.
#[derive(Debug, Clone, Default)]
pub(super) struct Cut(Arc<AtomicBool>);

/// A connection that can be [cut](Cut).
///
/// When the body of an answer fails, hyper ends the connection at once and drops what it has not
/// sent yet, the explanation with it. It flushes a connection when it has sent everything.
#[derive(Debug)]
pub(super) struct CuttableStream {
    stream: TcpStream,
    cut: Cut,
}

/// The answer ended in the middle.
#[derive(Debug, thiserror::Error)]
#[error("the answer was broken off")]
pub(super) struct BrokenOff;

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let frame = |bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => frame(std::mem::take(bytes)),
            Self::Relayed(pieces, cut) => match std::task::ready!(pieces.poll_recv(context)) {
                Some(Piece::Data(bytes)) => frame(bytes),
                Some(Piece::End) => {
                    *self = Self::Whole(Bytes::new());
                    Poll::Ready(None)
                }
                Some(Piece::Cut(bytes)) => {
                    cut.0.store(true, Ordering::Release);
                    *self = Self::Cutting;
                    frame(bytes)
                }
                None => Poll::Ready(Some(Err(BrokenOff))),
            },
            Self::Cutting => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Relayed(..) | Self::Cutting => SizeHint::default(),
        }
    }
}

impl CuttableStream {
    pub(super) fn new(stream: TcpStream, cut: Cut) -> Self {
        Self { stream, cut }
    }
}

impl AsyncRead for CuttableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for CuttableStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.cut.0.load(Ordering::Acquire) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
