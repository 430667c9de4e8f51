use std::ffi::{CStr, CString, c_char, c_long};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions};

use super::cgroup::Cgroup;

/// `CLONE_CLEAR_SIGHAND`: the child forgets the handlers of its parent, which would write to the
/// parent's pipes.
const CLEAR_HANDLERS: u64 = 1 << 32;
/// `CLONE_INTO_CGROUP`: the child begins its life in the group of `Arguments::cgroup`.
const INTO_CGROUP: u64 = 1 << 33;

/// A program with all that it is started with. Nothing is looked up any more.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    /// The file.
    pub(crate) file: CString,
    pub(crate) arguments: Vec<CString>,
    /// Each `NAME=VALUE`.
    pub(crate) environment: Vec<CString>,
    pub(crate) directory: CString,
    /// Standard input, output and error. Numbers above 2.
    pub(crate) standard: [BorrowedFd<'a>; 3],
}

/// A child that runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Born {
    /// It is for the caller to reap.
    pub(crate) pid: i32,
    /// It was in the group before its first instruction.
    pub(crate) in_group: bool,
}

/// Starts `image` in a process group of its own, and in `group` where the system lets it.
///
/// A process that is moved into a cgroup waits for the kernel for 8 to 20 ms on an idle machine;
/// one that is born in it does not wait. Where that is refused (an older kernel, a filter of system
/// calls) the program runs outside of the group.
///
/// Returns once the program runs. An error is what the system said, and then nothing runs.
pub(crate) fn start(image: &Image<'_>, group: Option<&Cgroup>) -> io::Result<Born> {
    let (report, reporter) = pipe_with(PipeFlags::CLOEXEC)?;
    // Everything that takes memory comes before the fork.
    let arguments = pointers(&image.arguments);
    let environment = pointers(&image.environment);
    let group = group.and_then(|group| group.open().ok());
    let (pid, in_group) = match group.as_ref().map(clone_into) {
        Some(Ok(pid)) => (pid, true),
        Some(Err(_)) | None => (fork()?, false),
    };
    if pid == 0 {
        become_program(image, &arguments, &environment, &reporter);
    }
    drop(reporter);
    // The exec closes the other end; a failure is told before.
    let mut failure = Vec::new();
    std::fs::File::from(report).read_to_end(&mut failure)?;
    let Ok(code) = <[u8; 4]>::try_from(failure) else {
        return Ok(Born { pid, in_group });
    };
    if let Some(child) = Pid::from_raw(pid) {
        let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
    }
    Err(io::Error::from_raw_os_error(i32::from_ne_bytes(code)))
}

/// `struct clone_args` of the kernel, in its third version.
#[repr(C)]
#[derive(Debug, Default)]
struct Arguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Forks a child that is in `group`; 0 in the child.
#[expect(unsafe_code, reason = "no library offers this call")]
fn clone_into(group: &OwnedFd) -> io::Result<i32> {
    let arguments = Arguments {
        flags: CLEAR_HANDLERS | INTO_CGROUP,
        exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
        cgroup: u64::from(group.as_raw_fd().unsigned_abs()),
        ..Arguments::default()
    };
    // SAFETY: the kernel reads `arguments` and nothing else. Without shared memory and with the
    // stack of the parent this is a fork; the child only makes system calls until its exec (see
    // `become_program`), so that locks which it may have copied do not matter.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            ptr::from_ref(&arguments),
            size_of::<Arguments>(),
        )
    };
    child_number(pid)
}

#[expect(unsafe_code, reason = "a child that is not a `Command`")]
pub(super) fn fork() -> io::Result<i32> {
    // SAFETY: as in `clone_into`.
    let pid = unsafe { libc::fork() };
    child_number(c_long::from(pid))
}

/// Forks in a process that has one thread; 0 in the child, for which `signals` mean what they mean
/// to every program.
#[expect(
    unsafe_code,
    reason = "handlers of the parent would write to the parent's pipes"
)]
pub(crate) fn fork_with_usual_signals(signals: &[Signal]) -> io::Result<i32> {
    let pid = fork()?;
    if pid == 0 {
        for signal in signals {
            // SAFETY: there is one thread, and no handler to be replaced is running in it.
            unsafe { libc::signal(signal.as_raw(), libc::SIG_DFL) };
        }
    }
    Ok(pid)
}

fn child_number(pid: c_long) -> io::Result<i32> {
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(pid).map_err(io::Error::other)
}

/// The child's life: system calls only, since another thread of the parent may have held any lock.
#[expect(unsafe_code, reason = "what a child does before its exec")]
fn become_program(
    image: &Image<'_>,
    arguments: &[*const c_char],
    environment: &[*const c_char],
    reporter: &OwnedFd,
) -> ! {
    let code = match prepare(image) {
        Err(error) => error.raw_os_error(),
        Ok(()) => {
            // SAFETY: both lists end with a null pointer and their strings with a NUL; all of it is
            // borrowed for the time of the call. SIGPIPE is ignored by every Rust program, and a
            // program that is started has to have it as it was.
            unsafe {
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                libc::execve(
                    image.file.as_ptr(),
                    arguments.as_ptr(),
                    environment.as_ptr(),
                );
            }
            io::Error::last_os_error().raw_os_error().unwrap_or(0)
        }
    };
    let _ = rustix::io::write(reporter, &code.to_ne_bytes());
    // SAFETY: it does not return, and runs nothing of the parent's.
    unsafe { libc::_exit(127) }
}

/// Becomes another program. Only returns with the reason why not.
#[expect(unsafe_code, reason = "an exec with an environment of its own")]
pub(crate) fn exec(file: &CStr, arguments: &[CString], environment: &[CString]) -> io::Error {
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: as in `become_program`.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::execve(file.as_ptr(), arguments.as_ptr(), environment.as_ptr());
    }
    io::Error::last_os_error()
}

fn prepare(image: &Image<'_>) -> Result<(), Errno> {
    // Signals for the parent's group, from whatever source, are not the program's.
    rustix::process::setpgid(None, None)?;
    let [input, output, error] = image.standard;
    rustix::stdio::dup2_stdin(input)?;
    rustix::stdio::dup2_stdout(output)?;
    rustix::stdio::dup2_stderr(error)?;
    rustix::process::chdir(image.directory.as_c_str())
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    let pointers = strings.iter().map(CString::as_c_str).map(CStr::as_ptr);
    pointers.chain([ptr::null()]).collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    fn run(file: &str, arguments: &[&str], directory: &str) -> io::Result<(Born, String)> {
        let null = fs_err::File::open("/dev/null").unwrap();
        let (mut output, writer) = io::pipe().unwrap();
        let image = Image {
            file: CString::new(file).unwrap(),
            arguments: arguments
                .iter()
                .map(|text| CString::new(*text).unwrap())
                .collect(),
            environment: vec![c"A=b c".to_owned()],
            directory: CString::new(directory).unwrap(),
            standard: [null.file().as_fd(), writer.as_fd(), writer.as_fd()],
        };
        let born = start(&image, None)?;
        drop(writer);
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        let status = rustix::process::waitpid(Pid::from_raw(born.pid), WaitOptions::empty());
        assert_eq!(status.unwrap().unwrap().1.exit_status(), Some(0));
        Ok((born, text))
    }

    #[test]
    fn a_program_gets_what_it_is_given_and_nothing_else() {
        let script = "echo $0; pwd; env | grep ^A=; grep SigIgn /proc/self/status";
        let (born, text) = run("/bin/sh", &["name", "-c", script], "/usr").unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..3], ["name", "/usr", "A=b c"], "{text}");
        assert!(!born.in_group);
        let ignored = lines
            .iter()
            .find(|line| line.starts_with("SigIgn"))
            .unwrap();
        let mask = u64::from_str_radix(ignored.split_whitespace().nth(1).unwrap(), 16).unwrap();
        assert_eq!(mask & 1 << (libc::SIGPIPE - 1), 0, "{text}");
    }

    #[test]
    fn what_cannot_run_says_so_and_leaves_no_child() {
        let code = |file, directory| {
            let error = run(file, &["x"], directory).unwrap_err();
            Errno::from_io_error(&error).unwrap()
        };
        assert_eq!(code("/nowhere/x", "/"), Errno::NOENT);
        assert_eq!(code("/bin/sh", "/nowhere"), Errno::NOENT);
        assert_eq!(code("/etc/passwd", "/"), Errno::ACCESS);
        let root = tempfile::tempdir().unwrap();
        let text = root.path().join("text");
        fs_err::write(&text, "true\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs_err::set_permissions(&text, mode).unwrap();
        // A shell would take it for a script; the system does not, and neither do we.
        assert_eq!(code(text.to_str().unwrap(), "/"), Errno::NOEXEC);
    }
}
