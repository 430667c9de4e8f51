//! Namespaces, mounts and filters of system calls, as far as no library has them.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr;

use rustix::thread::UnshareFlags;

use super::birth::fork;

pub(crate) use rustix::thread::UnshareFlags as Namespaces;

/// Leaves the namespaces of the parent. One thread only.
#[expect(
    unsafe_code,
    reason = "the call is unsafe for the sake of shared descriptors"
)]
pub(crate) fn unshare(namespaces: UnshareFlags) -> io::Result<()> {
    // SAFETY: `UnshareFlags::FILES`, which is what makes it unsafe, is never among them.
    Ok(unsafe { rustix::thread::unshare_unsafe(namespaces & !UnshareFlags::FILES) }?)
}

/// Forks in a process that has one thread; 0 in the child.
pub(crate) fn fork_alone() -> io::Result<i32> {
    fork()
}

/// What holds for a mount.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MountFlags {
    pub(crate) read_only: bool,
    pub(crate) no_devices: bool,
}

/// `struct mount_attr` of the kernel.
#[repr(C)]
#[derive(Debug, Default)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    namespace: u64,
}

/// Changes the mount at `path` below `directory`, with all that is mounted in it. An empty path is
/// the mount of `directory` itself.
#[expect(unsafe_code, reason = "no library offers this call")]
pub(crate) fn set_mount(
    directory: BorrowedFd<'_>,
    path: &CStr,
    flags: MountFlags,
) -> io::Result<()> {
    const READ_ONLY: u64 = 1;
    const NO_SET_USER: u64 = 2;
    const NO_DEVICES: u64 = 4;
    const RECURSIVE: libc::c_int = 0x8000;
    let mut attributes = MountAttributes {
        set: NO_SET_USER,
        ..MountAttributes::default()
    };
    if flags.read_only {
        attributes.set |= READ_ONLY;
    }
    if flags.no_devices {
        attributes.set |= NO_DEVICES;
    }
    // SAFETY: the kernel reads the path up to its NUL and as many bytes of the attributes as it is
    // told.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            directory.as_raw_fd(),
            path.as_ptr(),
            libc::AT_EMPTY_PATH | RECURSIVE,
            ptr::from_ref(&attributes),
            size_of::<MountAttributes>(),
        )
    };
    success(result)
}

/// Turns on the loopback of a new network namespace.
#[expect(unsafe_code, reason = "an ioctl")]
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: all zero is a valid value of this plain structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).map_err(io::Error::other)?;
    // SAFETY: the request is what this ioctl reads, and outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) };
    success(result.into())
}

/// Leaves the keyring of the session behind for an empty one. Where the kernel has no keys there is
/// nothing to leave.
#[expect(unsafe_code, reason = "no library offers this call")]
pub(crate) fn leave_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    let no_name: *const libc::c_char = ptr::null();
    // SAFETY: without a name no memory is read.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, no_name) };
    match success(result) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        other => other,
    }
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// What a filter answers.
const RETURN_ALLOW: u32 = 0x7fff_0000;
const RETURN_ERROR: u32 = 0x0005_0000;

/// From now on this process and its descendants make sockets of the internet, of Unix and of
/// netlink only.
///
/// Other families do not belong to a network namespace: with `AF_VSOCK` a program on a virtual
/// machine would reach the machine below it. `io_uring`, which makes sockets without the call that
/// is looked at, is off, and so are the calls of other architectures. A process that may gain
/// privileges is refused.
pub(crate) fn allow_usual_sockets_only() -> io::Result<()> {
    const NUMBER: u32 = 0;
    const ARCHITECTURE_AT: u32 = 4;
    const FIRST_ARGUMENT: u32 = 16;
    /// Numbers of the x32 interface begin here.
    const X32: u32 = 0x4000_0000;
    let load = |at| statement(0x20, at);
    let give = |value| statement(0x06, value);
    let error = |code: i32| give(RETURN_ERROR | code.unsigned_abs());
    let number = |call: libc::c_long| u32::try_from(call).unwrap_or(u32::MAX);
    let families = [
        libc::AF_UNIX,
        libc::AF_INET,
        libc::AF_INET6,
        libc::AF_NETLINK,
    ];
    let mut program = vec![
        load(ARCHITECTURE_AT),
        jump(0x15, ARCHITECTURE, 1, 0),
        error(libc::ENOSYS),
        load(NUMBER),
        jump(0x35, X32, 0, 1),
        error(libc::ENOSYS),
        jump(0x15, number(libc::SYS_io_uring_setup), 0, 1),
        error(libc::ENOSYS),
        jump(0x15, number(libc::SYS_socket), 1, 0),
        give(RETURN_ALLOW),
        load(FIRST_ARGUMENT),
    ];
    for family in families {
        program.push(jump(0x15, family.unsigned_abs(), 0, 1));
        program.push(give(RETURN_ALLOW));
    }
    program.push(error(libc::EAFNOSUPPORT));
    install(&mut program)
}

/// From now on this process and its descendants make no namespaces of users, in which they would be
/// root, and have no keys of the kernel, which know no container. Not every engine sees to both.
pub(crate) fn forbid_users_and_keys() -> io::Result<()> {
    const FIRST_ARGUMENT: u32 = 16;
    let give = |value| statement(0x06, value);
    let error = |code: i32| give(RETURN_ERROR | code.unsigned_abs());
    let is =
        |call: libc::c_long, yes, no| jump(0x15, u32::try_from(call).unwrap_or(u32::MAX), yes, no);
    let new_user = libc::CLONE_NEWUSER.unsigned_abs();
    let mut program = [
        statement(0x20, 0),
        is(libc::SYS_add_key, 8, 0),
        is(libc::SYS_request_key, 7, 0),
        is(libc::SYS_keyctl, 6, 0),
        // Its flags are out of reach, and whoever calls it can do without.
        is(libc::SYS_clone3, 6, 0),
        is(libc::SYS_clone, 1, 0),
        is(libc::SYS_unshare, 0, 2),
        statement(0x20, FIRST_ARGUMENT),
        jump(0x45, new_user, 1, 0),
        give(RETURN_ALLOW),
        error(libc::EPERM),
        error(libc::ENOSYS),
    ];
    install(&mut program)
}

/// Adds a filter to those that hold for this process.
#[expect(unsafe_code, reason = "a filter is handed over as a pointer")]
fn install(program: &mut [libc::sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the filter points to its program, of which the length is right; both outlive the call.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            ptr::from_ref(&filter),
        )
    };
    success(result.into())
}

fn statement(code: u16, value: u32) -> libc::sock_filter {
    jump(code, value, 0, 0)
}

fn jump(code: u16, value: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter {
        code,
        jt: yes,
        jf: no,
        k: value,
    }
}

fn success(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    /// A filter holds for the thread that asks for it, and those that it starts.
    #[test]
    fn without_users_and_keys_programs_run_as_before() {
        let thread = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            forbid_users_and_keys().unwrap();
            let error = unshare(Namespaces::NEWUSER).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::PERM.raw_os_error()));
            std::thread::spawn(|| refused(libc::SYS_keyctl))
                .join()
                .unwrap();
            refused(libc::SYS_add_key);
            refused(libc::SYS_request_key);
            match fork_alone().unwrap() {
                0 => exit(),
                child => {
                    let child = rustix::process::Pid::from_raw(child);
                    let options = rustix::process::WaitOptions::empty();
                    let (_, status) = rustix::process::waitpid(child, options).unwrap().unwrap();
                    assert_eq!(status.exit_status(), Some(7));
                }
            }
        });
        thread.join().unwrap();
    }

    #[expect(unsafe_code, reason = "calls that are refused")]
    fn refused(call: libc::c_long) {
        // SAFETY: with no arguments none of these calls reads or writes memory.
        let result = unsafe { libc::syscall(call, 0, 0, 0, 0, 0) };
        let error = io::Error::last_os_error();
        assert_eq!(
            (result, error.raw_os_error()),
            (-1, Some(Errno::PERM.raw_os_error()))
        );
    }

    #[expect(unsafe_code, reason = "the end of a fork")]
    fn exit() -> ! {
        // SAFETY: it does not return.
        unsafe { libc::_exit(7) }
    }
}
