use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use mini_ork_protocol::SecretBytes;
use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, pipe_with};

use crate::redact::{RedactingStream, Redactor};

/// How much of a stream is passed on before somebody else has a turn.
const PIECE: usize = 64 * 1024;

/// The way of a program's output into its logs.
///
/// Without secrets the program writes into them by itself. With secrets it writes into pipes, and
/// what comes out is redacted on its way. A program that is faster than that waits, so the memory
/// for it does not depend on how much there is.
pub(super) struct Output {
    logs: [File; 2],
    /// Streams that are passed on and have not ended.
    pipes: Vec<Pipe>,
}

/// One stream on its way.
struct Pipe {
    reader: File,
    /// Which of the logs it goes into.
    log: usize,
    redacting: RedactingStream,
}

impl Output {
    /// The program is to be given the logs themselves.
    pub(super) fn straight(logs: [File; 2]) -> Self {
        let pipes = Vec::new();
        Self { logs, pipes }
    }

    /// The program is to be given the two files that are returned; they must not be kept, for a
    /// stream ends when nobody can write to it. The error is a sentence.
    pub(super) fn redacted(
        logs: [File; 2],
        secrets: &[SecretBytes],
    ) -> Result<(Self, [File; 2]), String> {
        let redactor = Redactor::new();
        for secret in secrets {
            redactor
                .register(secret.expose())
                .map_err(|error| error.to_string())?;
        }
        let (reader, stdout) = pipe().map_err(|error| error.to_string())?;
        let (complaints, stderr) = pipe().map_err(|error| error.to_string())?;
        let pipes = [reader, complaints].into_iter().enumerate();
        let pipes = pipes
            .map(|(log, reader)| Pipe {
                reader: reader.into(),
                log,
                redacting: redactor.stream(),
            })
            .collect();
        Ok((Self { logs, pipes }, [stdout.into(), stderr.into()]))
    }

    /// What becomes readable when there is something to pass on.
    pub(super) fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pipes.iter().map(|pipe| pipe.reader.as_fd())
    }

    /// Passes on some of what is there. Does not wait for more.
    pub(super) fn pass_on(&mut self) -> io::Result<()> {
        let mut ended = Vec::new();
        for (index, pipe) in self.pipes.iter_mut().enumerate() {
            if pipe.pass_on(&mut self.logs)? == Passed::End {
                ended.push(index);
            }
        }
        for index in ended.into_iter().rev() {
            self.pipes.remove(index).end(&mut self.logs)?;
        }
        Ok(())
    }

    /// Passes on the rest. Nothing of the program may be left: what somebody else writes to a pipe
    /// that it was handed is not waited for.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        for mut pipe in self.pipes.drain(..) {
            // All that the program can have left there. Whoever still writes may do so for ever.
            let mut left = fcntl_getpipe_size(&pipe.reader)?;
            while left > 0 {
                match pipe.pass_on(&mut self.logs)? {
                    Passed::Bytes(count) => left = left.saturating_sub(count),
                    Passed::Nothing | Passed::End => break,
                }
            }
            pipe.end(&mut self.logs)?;
        }
        Ok(())
    }

    /// Bytes in both logs.
    pub(super) fn length(&self) -> io::Result<u64> {
        let mut total = 0_u64;
        for log in &self.logs {
            total = total.saturating_add(log.metadata()?.len());
        }
        Ok(total)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Passed {
    Bytes(usize),
    /// There is nothing at the moment.
    Nothing,
    /// Nobody can write any more.
    End,
}

impl Pipe {
    fn pass_on(&mut self, logs: &mut [File; 2]) -> io::Result<Passed> {
        let mut piece = [0; PIECE];
        let count = match self.reader.read(&mut piece) {
            Ok(0) => return Ok(Passed::End),
            Ok(count) => count,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return Ok(Passed::Nothing);
            }
            Err(error) => return Err(error),
        };
        let mut certain = Vec::with_capacity(count);
        self.redacting.push(&piece[..count], &mut certain);
        logs[self.log].write_all(&certain)?;
        Ok(Passed::Bytes(count))
    }

    /// Writes what was kept back.
    fn end(self, logs: &mut [File; 2]) -> io::Result<()> {
        let mut rest = Vec::new();
        self.redacting.finish(&mut rest);
        logs[self.log].write_all(&rest)
    }
}

/// A pipe whose reader never waits. The program's side is as programs expect it.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK)?;
    Ok((reader, writer))
}
