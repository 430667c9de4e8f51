//! The first process of a sandbox, and the bridge to its server.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use super::server::{Handed, session_main};
use crate::sys::birth::fork_with_usual_signals;
use crate::sys::descriptors::{take_handed_over, wait_readable};
use crate::sys::namespaces::{allow_usual_sockets_only, forbid_users_and_keys};
use crate::sys::process::protect;

/// First argument of the first process in a sandbox; the second is the address to listen at.
pub const SERVE_ARGUMENT: &str = "serve";
/// First argument of a bridge between standard input and output and the server at an address,
/// which is the second.
pub const BRIDGE_ARGUMENT: &str = "bridge";

/// A server that ends within this time of its start is not started anew at once.
const SOON: Duration = Duration::from_millis(200);
/// How long programs may take to end when the sandbox is told to.
const GRACE: Duration = Duration::from_secs(2);
/// Nothing but signals wakes the first process.
const LONG: Duration = Duration::from_secs(3600);

/// Is the first process of a sandbox until that is told to end by TERM or INT: it listens at
/// `address`, keeps a server running that answers there, and takes note of the end of orphans.
///
/// `address` is a path, or `@` and a name that exists in the network namespace only, where no
/// program can take it away, or `&` and the number of a listening socket that it was handed.
/// At `door` the outside may wait for the first server to come.
pub fn init_main(address: &Path, door: Option<&Path>) -> ExitCode {
    report(init(address, door))
}

fn report(ended: io::Result<()>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// Carries bytes from standard input to the server at `address`, and from there to standard output,
/// until one of them ends.
pub fn bridge_main(address: &Path) -> ExitCode {
    let bridged = protect()
        .and_then(|()| UnixStream::connect_addr(&socket_address(address)?))
        .and_then(carry);
    report(bridged)
}

fn init(address: &Path, door: Option<&Path>) -> io::Result<()> {
    protect()?;
    // For everything that runs in the sandbox: not every engine keeps programs from sockets that
    // lead past the network of a container.
    rustix::thread::set_no_new_privs(true)?;
    allow_usual_sockets_only()?;
    if rustix::process::getpid() == Pid::INIT && handed(address).is_none() {
        // The first process of a container, and of nothing that was made here.
        forbid_users_and_keys()?;
    }
    let ended = listen_for(&[Signal::CHILD])?;
    let told = listen_for(&[Signal::TERM, Signal::INT])?;
    // Where it is not the first process of a namespace, orphans come to it nevertheless.
    rustix::process::set_child_subreaper(Pid::from_raw(1))?;
    let listener = listener(address)?;
    // Nobody is there when this is an engine of another machine.
    let mut outside = door.and_then(|door| UnixStream::connect(door).ok());
    let memory = rustix::fs::memfd_create("session", MemfdFlags::CLOEXEC)?;
    rustix::process::chdir("/")?;
    loop {
        let started = Instant::now();
        let Some(server) = start_server(&listener, &memory, outside.take())? else {
            return Ok(());
        };
        while !reap(server)? {
            wait_readable([ended.as_fd(), told.as_fd()].into_iter(), LONG)?;
            drain(&ended)?;
            if drain(&told)? {
                return end(server);
            }
        }
        if started.elapsed() < SOON {
            wait_readable([told.as_fd()].into_iter(), SOON)?;
        }
    }
}

/// Starts a session server. It is a fork and no program of its own: between the start of a program
/// and its first words others could look into it. Returns its process id; in the fork, once that has
/// served, none.
fn start_server(
    listener: &OwnedFd,
    memory: &OwnedFd,
    outside: Option<UnixStream>,
) -> io::Result<Option<i32>> {
    let handed = Handed {
        listener: duplicate(listener.as_fd())?,
        memory: duplicate(memory.as_fd())?,
        outside,
        alone: rustix::process::getpid() == Pid::INIT,
    };
    match fork_with_usual_signals(&[Signal::CHILD, Signal::TERM, Signal::INT])? {
        0 => session_main(handed).map(|()| None),
        pid => Ok(Some(pid)),
    }
}

/// Takes note of every child that has ended; whether `server` is one of them.
fn reap(server: i32) -> io::Result<bool> {
    let mut found = false;
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, _))) => found |= pid.as_raw_pid() == server,
            Ok(None) | Err(Errno::CHILD) => return Ok(found),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ends the server, and as the first process of a namespace everything else in it.
fn end(server: i32) -> io::Result<()> {
    if rustix::process::getpid() != Pid::INIT {
        return Ok(Pid::from_raw(server).map_or(Ok(()), |server| {
            rustix::process::kill_process(server, Signal::TERM)
        })?);
    }
    // With this number it is every process but the first one itself.
    let _ = rustix::process::kill_process_group(Pid::INIT, Signal::TERM);
    let until = Instant::now() + GRACE;
    while Instant::now() < until {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Err(Errno::CHILD) => break,
            Ok(Some(_)) => {}
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    Ok(())
}

/// The socket at `address`; `&` and a number is one that this process was handed.
fn listener(address: &Path) -> io::Result<OwnedFd> {
    match handed(address) {
        Some(number) => take_handed_over(number),
        None => Ok(UnixListener::bind_addr(&socket_address(address)?)?.into()),
    }
}

fn handed(address: &Path) -> Option<i32> {
    let number = address.to_str()?.strip_prefix('&')?;
    number.parse().ok()
}

fn socket_address(address: &Path) -> io::Result<SocketAddr> {
    match address.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(address),
    }
}

fn listen_for(signals: &[Signal]) -> io::Result<UnixStream> {
    let (heard, sender) = UnixStream::pair()?;
    heard.set_nonblocking(true)?;
    for signal in signals {
        signal_hook::low_level::pipe::register(signal.as_raw(), sender.try_clone()?)?;
    }
    Ok(heard)
}

/// Whether anything was there.
fn drain(mut stream: &UnixStream) -> io::Result<bool> {
    let mut found = false;
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(0) => return Ok(found),
            Ok(_) => found = true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(found),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns with the first direction that ends: the other one would wait for ever for a side that is
/// gone.
fn carry(server: UnixStream) -> io::Result<()> {
    let mut from = server.try_clone()?;
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut from);
        let _ = from.shutdown(std::net::Shutdown::Both);
    });
    let mut server = server;
    let mut output = fs_err::File::from_parts(duplicate(rustix::stdio::stdout())?.into(), "output");
    let mut buffer = vec![0; 64 << 10];
    loop {
        match server.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => io::Write::write_all(&mut output, &buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A descriptor of this process that no program inherits.
pub(super) fn duplicate(descriptor: std::os::fd::BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(descriptor, 3)?)
}

fn fail(error: &io::Error) -> ExitCode {
    let message = format!("mini-ork-node: {error}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), message.as_bytes());
    ExitCode::FAILURE
}
