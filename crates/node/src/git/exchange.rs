//! Talking to a child process through all its pipes at once.

use std::io::{self, Read as _, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

/// How much of stderr is kept.
const ERROR_LIMIT: usize = 16 << 10;
/// As much as a pipe holds.
const CHUNK: usize = 64 << 10;

/// How an exchange ended.
pub(super) enum End {
    Complete,
    DeadlinePassed,
    LimitReached,
    Broken(io::Error),
}

/// What came of it.
pub(super) struct Exchange {
    pub(super) end: End,
    /// The first bytes of stderr.
    pub(super) error_output: Vec<u8>,
}

/// Feeds and drains all three pipes at once: a program that blocks on one of them while we wait on
/// another would never end. Kills the process group when it cannot go on.
///
/// By turns and not by a thread for each: a run starts hundreds of git commands, and most of them
/// are over before a thread has started.
pub(super) fn exchange(
    child: &mut Child,
    input: Option<Vec<u8>>,
    sink: &mut (dyn Write + Send),
    output_limit: usize,
    deadline: Duration,
) -> Exchange {
    let ends_at = Instant::now() + deadline;
    let mut pipes = Pipes {
        input: child.stdin.take().zip(input),
        written: 0,
        output: child.stdout.take(),
        errors: child.stderr.take(),
        room: output_limit,
        error_output: Vec::new(),
    };
    let end = pipes.serve(sink, ends_at).unwrap_or_else(End::Broken);
    if !matches!(end, End::Complete) {
        // Only before the child has been waited for: until then its number is its own.
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            // It may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
    Exchange {
        end,
        error_output: pipes.error_output,
    }
}

/// Our ends of the pipes that are still open.
struct Pipes {
    input: Option<(ChildStdin, Vec<u8>)>,
    /// How much of the input.
    written: usize,
    output: Option<ChildStdout>,
    errors: Option<ChildStderr>,
    /// Bytes of output that may still come.
    room: usize,
    error_output: Vec<u8>,
}

impl Pipes {
    fn serve(&mut self, sink: &mut (dyn Write + Send), ends_at: Instant) -> io::Result<End> {
        if let Some((stdin, _)) = &self.input {
            // A write that waited for room would keep us from making room.
            rustix::io::ioctl_fionbio(stdin, true)?;
        }
        let mut buffer = vec![0; CHUNK];
        while self.output.is_some() || self.errors.is_some() {
            let left = ends_at.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return Ok(End::DeadlinePassed);
            }
            let [input, output, errors] = self.ready(left)?;
            if input {
                self.feed()?;
            }
            if output && let Some(end) = self.take_output(&mut buffer, sink)? {
                return Ok(end);
            }
            if errors {
                self.take_errors(&mut buffer)?;
            }
        }
        Ok(End::Complete)
    }

    /// Which of input, output and errors can go on now.
    fn ready(&self, limit: Duration) -> io::Result<[bool; 3]> {
        let input = self.input.as_ref().map(|(stdin, _)| stdin.as_fd());
        let pipes = [
            (input, PollFlags::OUT),
            (self.output.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (self.errors.as_ref().map(AsFd::as_fd), PollFlags::IN),
        ];
        let mut polled: Vec<PollFd<'_>> = pipes
            .iter()
            .filter_map(|(pipe, flags)| Some(PollFd::from_borrowed_fd((*pipe)?, *flags)))
            .collect();
        let limit = Timespec::try_from(limit).ok();
        match poll(&mut polled, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut answers = polled.iter().map(|polled| !polled.revents().is_empty());
        Ok(pipes.map(|(pipe, _)| pipe.is_some() && answers.next().unwrap_or_default()))
    }

    fn feed(&mut self) -> io::Result<()> {
        let Some((stdin, bytes)) = &mut self.input else {
            return Ok(());
        };
        match stdin.write(bytes.get(self.written..).unwrap_or_default()) {
            Ok(count) => self.written += count,
            Err(error) if will_pass(&error) => return Ok(()),
            // A program that ends early closes the pipe; its exit code tells why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.written = bytes.len(),
            Err(error) => return Err(error),
        }
        if self.written >= bytes.len() {
            self.input = None;
        }
        Ok(())
    }

    fn take_output(
        &mut self,
        buffer: &mut [u8],
        sink: &mut (dyn Write + Send),
    ) -> io::Result<Option<End>> {
        let Some(pipe) = &mut self.output else {
            return Ok(None);
        };
        match pipe.read(buffer) {
            Ok(0) => self.output = None,
            Ok(count) if count > self.room => return Ok(Some(End::LimitReached)),
            Ok(count) => {
                self.room -= count;
                sink.write_all(buffer.get(..count).unwrap_or_default())?;
            }
            Err(error) if will_pass(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    /// Keeps the first bytes and drains the rest.
    fn take_errors(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let Some(pipe) = &mut self.errors else {
            return Ok(());
        };
        match pipe.read(buffer) {
            Ok(0) => self.errors = None,
            Ok(count) => {
                let room = ERROR_LIMIT.saturating_sub(self.error_output.len());
                let kept = buffer.get(..count.min(room)).unwrap_or_default();
                self.error_output.extend_from_slice(kept);
            }
            Err(error) if will_pass(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn will_pass(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
    )
}
