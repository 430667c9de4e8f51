use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bollard::container::LogOutput;
use bytes::{Buf as _, Bytes};
use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>;

/// The standard input and output of a process in a container, through the engine.
pub(super) struct ExecChannel {
    output: Output,
    input: Pin<Box<dyn AsyncWrite + Send>>,
    /// What has arrived and was not read yet.
    rest: Bytes,
}

impl ExecChannel {
    pub(super) fn new(output: Output, input: Pin<Box<dyn AsyncWrite + Send>>) -> Self {
        Self {
            output,
            input,
            rest: Bytes::new(),
        }
    }
}

impl fmt::Debug for ExecChannel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ExecChannel")
    }
}

impl AsyncRead for ExecChannel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(self.output.as_mut().poll_next(context)) {
                None => return Poll::Ready(Ok(())),
                Some(Ok(LogOutput::StdOut { message } | LogOutput::Console { message })) => {
                    self.rest = message;
                }
                // Nothing is expected there.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let count = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest[..count]);
        self.rest.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ExecChannel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.input.as_mut().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_shutdown(context)
    }
}
