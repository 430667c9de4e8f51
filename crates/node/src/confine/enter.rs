use std::convert::Infallible;
use std::ffi::CString;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use super::files::{self, Surroundings};
use super::{Confinement, SOCKET_DESCRIPTOR};
use crate::sys::birth;
use crate::sys::descriptors::{close_inherited, hand_over};
use crate::sys::namespaces::{
    Namespaces, allow_usual_sockets_only, fork_alone, leave_keyring, loopback_up, unshare,
};
use crate::sys::process;

/// Above the descriptors that have a meaning.
const FIRST_FREE: i32 = 10;
const LONGEST_SPEC: u64 = 16 * 1024 * 1024;
const UNPRIVILEGED_PORTS: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// Reads a [`Confinement`] from standard input and becomes its first program, as a child that
/// outlives the caller. To be called first of all, with one thread and no runtime.
pub fn confine_main() -> ExitCode {
    let prepared = close_inherited().and_then(|()| keep_answer());
    let Ok(answer) = prepared else {
        return ExitCode::FAILURE;
    };
    let (kind, message) = match enter(&answer) {
        Ok(never) => match never {},
        Err(Step::Parent) => return ExitCode::SUCCESS,
        Err(Step::Refused(message)) => ("refused", message),
        Err(Step::Failed(message)) => ("failed", message),
    };
    let line = format!("{kind} {}\n", message.replace('\n', " "));
    let _ = rustix::io::write(&answer, line.as_bytes());
    ExitCode::FAILURE
}

/// Takes the pipe of the answer off standard output, so that it is closed once the program runs,
/// and lets the log take its place.
fn keep_answer() -> io::Result<OwnedFd> {
    let answer = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), FIRST_FREE)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok(answer)
}

/// Why the work stops here.
enum Step {
    /// This is the process that was called; its child goes on.
    Parent,
    /// The system does not let this user.
    Refused(String),
    /// Something else.
    Failed(String),
}

/// An error with what was tried.
pub(super) fn failed<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> String {
    move |error| format!("cannot {what}: {error}")
}

fn enter(answer: &OwnedFd) -> Result<Infallible, Step> {
    let fail = |message: String| Step::Failed(message);
    let spec = read_spec().map_err(fail)?;
    let socket = spec.socket.as_ref().map(|path| {
        listen(Path::new(path.as_os_str())).map_err(failed(format!(
            "listen at `{}`",
            Path::new(path.as_os_str()).display()
        )))
    });
    let socket = socket.transpose().map_err(fail)?;
    // What of the outside is to be known is looked up while it can be seen.
    let surroundings = Surroundings::look(&spec).map_err(fail)?;
    let (user, group) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let refuse = |message: String| Step::Refused(message);
    unshare(Namespaces::NEWUSER)
        .map_err(failed("make a user namespace"))
        .map_err(refuse)?;
    map_ids(0, user, 0, group).map_err(refuse)?;
    unshare(Namespaces::NEWNS | Namespaces::NEWPID | Namespaces::NEWNET | Namespaces::NEWIPC)
        .map_err(failed(
            "make namespaces for mounts, processes and the network",
        ))
        .map_err(refuse)?;
    let (go, recorded) = pipe_with(PipeFlags::CLOEXEC)
        .map_err(failed("make a pipe"))
        .map_err(fail)?;
    match fork_alone().map_err(failed("fork")).map_err(fail)? {
        0 => {
            drop(recorded);
            // What is not on record must not run: nobody would find it.
            if rustix::io::read(&go, &mut [0]) != Ok(1) {
                return Err(Step::Failed("it could not be recorded".to_owned()));
            }
        }
        pid => {
            drop(go);
            record(&spec, pid).map_err(fail)?;
            rustix::io::write(&recorded, &[1])
                .map_err(failed("go on"))
                .map_err(fail)?;
            let line = format!("pid {pid}\n");
            let told = rustix::io::write(answer, line.as_bytes());
            told.map_err(failed("answer")).map_err(fail)?;
            return Err(Step::Parent);
        }
    }
    rustix::process::setsid()
        .map_err(failed("make a session"))
        .map_err(fail)?;
    loopback_up()
        .map_err(failed("turn loopback on"))
        .map_err(refuse)?;
    files::arrange(&spec, &surroundings).map_err(|error| match error {
        files::Trouble::Refused(message) => Step::Refused(message),
        files::Trouble::Failed(message) => Step::Failed(message),
    })?;
    leave_keyring()
        .map_err(failed("leave the keyring"))
        .map_err(fail)?;
    bound_processes(spec.processes).map_err(fail)?;
    give_up_privileges(user, group).map_err(fail)?;
    let socket = socket.map(OwnedFd::from);
    let error = become_first(&spec, socket.as_ref());
    Err(Step::Failed(error))
}

/// The path may be longer than an address of a socket can be.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let missing = || io::Error::from(io::ErrorKind::InvalidInput);
    let directory = fs_err::File::open(path.parent().ok_or_else(missing)?)?;
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string());
    UnixListener::bind(short.join(path.file_name().ok_or_else(missing)?))
}

/// Writes down who the first program is; a reader sees all of it or nothing.
fn record(spec: &Confinement, pid: i32) -> Result<(), String> {
    let status = process::status(pid).ok_or("the child is gone")?;
    let path = Path::new(spec.record.as_os_str());
    let draft = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = fs_err::File::create(&draft)?;
        file.write_all(&serde_json::to_vec(&status.identity)?)?;
        file.sync_all()?;
        fs_err::rename(&draft, path)
    };
    write().map_err(failed("record what was started"))
}

fn read_spec() -> Result<Confinement, String> {
    let mut json = Vec::new();
    io::stdin()
        .lock()
        .take(LONGEST_SPEC)
        .read_to_end(&mut json)
        .map_err(failed("read what to confine"))?;
    serde_json::from_slice(&json).map_err(failed("read what to confine"))
}

/// In a new user namespace: the one user and group that exist in it.
fn map_ids(user: u32, outer_user: u32, group: u32, outer_group: u32) -> Result<(), String> {
    let write = |file: &str, text: String| {
        fs_err::write(format!("/proc/self/{file}"), text).map_err(failed("name the user inside"))
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{user} {outer_user} 1"))?;
    write("gid_map", format!("{group} {outer_group} 1"))
}

/// Opens the low ports of loopback to everybody inside. Only while `/proc` is still writable.
pub(super) fn open_low_ports() -> Result<(), String> {
    fs_err::write(UNPRIVILEGED_PORTS, "0").map_err(failed("open the low ports"))
}

/// Bounds how many processes there are of the user inside; those of a user namespace are counted for
/// themselves.
fn bound_processes(most: u32) -> Result<(), String> {
    let inherited = getrlimit(Resource::Nproc);
    let most = Some(u64::from(most).min(inherited.maximum.unwrap_or(u64::MAX)));
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    setrlimit(Resource::Nproc, limit).map_err(failed("bound the number of processes"))
}

/// Becomes the user again that started all this, in a namespace below the one that owns the mounts
/// and the network, so that nothing of them can be changed any more.
fn give_up_privileges(user: u32, group: u32) -> Result<(), String> {
    unshare(Namespaces::NEWUSER).map_err(failed("make the inner user namespace"))?;
    map_ids(user, 0, group, 0)?;
    rustix::thread::set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )
    .map_err(failed("lock privileges"))?;
    for bit in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::remove_capability_from_bounding_set(one) {
            // Beyond the last one that this kernel has.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(failed("bound privileges")(error)),
        }
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).map_err(failed("drop privileges"))?;
    rustix::thread::set_no_new_privs(true).map_err(failed("refuse new privileges"))?;
    allow_usual_sockets_only().map_err(failed("filter sockets"))
}

/// Only returns with the reason why not.
fn become_first(spec: &Confinement, socket: Option<&OwnedFd>) -> String {
    let prepared = || -> Result<(CString, Vec<CString>, Vec<CString>), String> {
        let text = |bytes: &[u8]| CString::new(bytes).map_err(failed("hand over what holds a NUL"));
        let arguments: Result<Vec<CString>, String> = spec
            .argv
            .iter()
            .map(|argument| text(argument.as_bytes()))
            .collect();
        let arguments = arguments?;
        let file = arguments
            .first()
            .cloned()
            .ok_or("there is no program to run")?;
        let environment: Result<Vec<CString>, String> = spec
            .env
            .iter()
            .map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect();
        Ok((file, arguments, environment?))
    };
    let (file, arguments, environment) = match prepared() {
        Ok(prepared) => prepared,
        Err(message) => return message,
    };
    let directory = Path::new(spec.cwd.as_os_str());
    if let Err(error) = rustix::process::chdir(directory) {
        return failed(format!("enter `{}`", directory.display()))(error);
    }
    let shown = String::from_utf8_lossy(file.as_bytes()).into_owned();
    match stand_ready(socket.map(OwnedFd::as_fd)) {
        Ok(()) => failed(format!("run `{shown}`"))(birth::exec(&file, &arguments, &environment)),
        Err(error) => failed("hand over descriptors")(error),
    }
}

/// The descriptors of the first program: nothing to read, the log twice, and the socket.
fn stand_ready(socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let null = fs_err::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(null.file())?;
    match socket {
        Some(socket) => hand_over(socket, SOCKET_DESCRIPTOR),
        None => Ok(()),
    }
}

/// For the file system: a path as C has it.
pub(super) fn c_path(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_bytes()).map_err(failed("use a path that holds a NUL"))
}
