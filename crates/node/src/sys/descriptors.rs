use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Closes every descriptor above standard error.
///
/// Whoever started mini-ork may have left descriptors open across its exec. A supervisor lives on
/// for hours: kept there, the other end of such a pipe would never see its end.
///
/// To be called before anything in this process has opened a file, and with one thread.
#[expect(unsafe_code, reason = "inherited descriptors are known by number only")]
pub(crate) fn close_inherited() -> io::Result<()> {
    let mut numbers = Vec::new();
    for entry in fs_err::read_dir("/proc/self/fd")? {
        if let Some(number) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        {
            numbers.push(number);
        }
    }
    // The listing's own descriptor is among the numbers; it was closed with the listing.
    let is_open =
        |number: &i32| fs_err::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
    for number in numbers
        .into_iter()
        .filter(|number| *number > 2)
        .filter(is_open)
    {
        // SAFETY: it is open, and nothing in this process has opened a file yet (the caller's
        // promise), so that no value owns it.
        unsafe { rustix::io::close(number) };
    }
    Ok(())
}

/// Lets the program that this process becomes next have `descriptor` under this number, on which
/// nothing else may be open.
#[expect(unsafe_code, reason = "a descriptor with a number of its own")]
pub(crate) fn hand_over(descriptor: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    // On its own number it would be closed by the exec as before.
    let other = rustix::io::fcntl_dupfd_cloexec(descriptor, number + 1)?;
    // SAFETY: both are numbers of descriptors; what was at `number` is the caller's promise.
    if unsafe { libc::dup2(other.as_raw_fd(), number) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Takes over a descriptor that [`hand_over`] put there. Called once, before anything was opened.
#[expect(unsafe_code, reason = "a descriptor that is known by its number only")]
pub(crate) fn take_handed_over(number: i32) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: it is open, or the next call fails; nothing else in this process owns it, which is
    // the caller's promise.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)?;
    Ok(descriptor)
}

/// Waits until one of `descriptors` is ready, or `limit` has passed. Says which are ready.
pub(crate) fn wait_ready<const N: usize>(
    descriptors: [(BorrowedFd<'_>, PollFlags); N],
    limit: Duration,
) -> io::Result<[bool; N]> {
    let mut polled =
        descriptors.map(|(descriptor, flags)| PollFd::from_borrowed_fd(descriptor, flags));
    Ok(match poll(&mut polled, limit)? {
        Waited::Ready => polled.map(|descriptor| !descriptor.revents().is_empty()),
        Waited::Enough => [false; N],
    })
}

/// Waits until one of `descriptors` is readable or at its end, or `limit` has passed.
pub(crate) fn wait_readable<'a>(
    descriptors: impl Iterator<Item = BorrowedFd<'a>>,
    limit: Duration,
) -> io::Result<()> {
    let mut polled: Vec<PollFd<'_>> = descriptors
        .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
        .collect();
    poll(&mut polled, limit).map(drop)
}

enum Waited {
    Ready,
    /// The time has passed.
    Enough,
}

fn poll(polled: &mut [PollFd<'_>], limit: Duration) -> io::Result<Waited> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up to whole milliseconds: rounded down, the last one would be spent spinning.
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_millis().saturating_add(1).min(999)) * 1_000_000,
        };
        match rustix::event::poll(polled, Some(&left)) {
            Ok(0) => return Ok(Waited::Enough),
            Ok(_) => return Ok(Waited::Ready),
            Err(rustix::io::Errno::INTR) if Instant::now() < deadline => {}
            Err(rustix::io::Errno::INTR) => return Ok(Waited::Enough),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until there is something to read, without holding a thread.
#[expect(
    unsafe_code,
    reason = "the runtime wants a promise that the descriptor stays open"
)]
pub(crate) async fn readable(descriptor: OwnedFd) -> io::Result<()> {
    // SAFETY: the registration takes over the only owner of the descriptor, so that it stays open
    // and the same until the registration is gone.
    let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE)? };
    registered.readable().await?.retain_ready();
    Ok(())
}

/// Whether nobody holds the reading end of this pipe any more.
pub(crate) fn reader_is_gone(pipe: impl AsFd) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut polled, Some(&now)).is_ok()
        && polled[0].revents().contains(PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_tells_whether_somebody_reads() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert!(!reader_is_gone(&writer));
        drop(reader);
        assert!(reader_is_gone(&writer));
    }

    #[test]
    fn waiting_ends_at_its_limit_and_says_who_is_ready() {
        let (silent, _writer) = rustix::pipe::pipe().unwrap();
        let (closed, writer) = rustix::pipe::pipe().unwrap();
        let limit = Duration::from_millis(20);
        let alone = wait_ready([(silent.as_fd(), PollFlags::IN)], limit).unwrap();
        assert_eq!(alone, [false]);
        drop(writer);
        let both = [
            (silent.as_fd(), PollFlags::IN),
            (closed.as_fd(), PollFlags::IN),
        ];
        assert_eq!(
            wait_ready(both, Duration::from_secs(60)).unwrap(),
            [false, true]
        );
    }
}
