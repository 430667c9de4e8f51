#![expect(unsafe_code, reason = "system calls that no library offers")]

use std::ffi::{CStr, c_long};
use std::io;
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    FsOpenFlags, MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsopen,
    mount as mount_fs, mount_bind, mount_remount, move_mount, open_tree, unmount,
};
use rustix::process::{getegid, geteuid};

use crate::{Attempt, files, judge};

fn call_kernel(number: c_long, arguments: [usize; 5]) -> io::Result<c_long> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: pointers among the arguments are to memory that outlives the call, or null.
    let result = unsafe { libc::syscall(number, a, b, c, d, e) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Mounts, binds, uncovers, moves.
pub(crate) fn mount(token: &str) -> Attempt {
    let open = mounts_that_work(token);
    judge(8 + 2 * files::mounts().len(), &open, "not permitted")
}

fn mounts_that_work(token: &str) -> Vec<String> {
    // Who may do this may do all of it, and no harm must be done to whoever that is.
    if call_kernel(libc::SYS_unshare, [libc::CLONE_NEWNS as usize, 0, 0, 0, 0]).is_ok() {
        return vec!["a namespace for mounts".to_owned()];
    }
    let place = std::env::current_dir()
        .unwrap()
        .join(format!("{token}-mount"));
    fs_err::create_dir_all(&place).unwrap();
    let mut open = Vec::new();
    let mut note = |name: &str, worked: bool| {
        if worked {
            open.push(name.to_owned());
        }
    };
    let none = MountFlags::empty();
    for kind in ["tmpfs", "proc", "sysfs", "cgroup", "overlay"] {
        note(kind, mount_fs("x", &place, kind, none, None).is_ok());
    }
    note("bind of /", mount_bind("/", &place).is_ok());
    note("context", fsopen("tmpfs", FsOpenFlags::empty()).is_ok());
    let tree = open_tree(CWD, "/", OpenTreeFlags::OPEN_TREE_CLONE);
    if let Ok(tree) = tree {
        let moved = move_mount(
            &tree,
            c"",
            CWD,
            &place,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        );
        note("move", moved.is_ok());
    }
    open.extend(uncovered());
    open
}

/// Mounts that could be taken off or made writable.
fn uncovered() -> Vec<String> {
    let mut open = Vec::new();
    for (path, _) in files::mounts() {
        if mount_remount(&path, MountFlags::BIND, "").is_ok() {
            open.push(format!("{} made writable", path.display()));
        }
        if path != Path::new("/") && unmount(&path, UnmountFlags::DETACH).is_ok() {
            open.push(format!("{} taken off", path.display()));
        }
    }
    open
}

/// With all privileges of a namespace of its own: what covers something must stay.
pub(crate) fn mount_in_new_namespace(_token: &str) -> Attempt {
    let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    if let Err(error) = call_kernel(libc::SYS_unshare, [flags as usize, 0, 0, 0, 0]) {
        return Ok(format!("no namespace: {error}"));
    }
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {user} 1")),
        ("gid_map", format!("0 {group} 1")),
    ] {
        let _ = fs_err::write(format!("/proc/self/{file}"), text);
    }
    let before = files::mounts().len();
    let mut open = uncovered();
    if let Err(what) = files::write_to_kernel("") {
        open.push(what);
    }
    judge(2 * before, &open, "they are locked")
}

/// Goes where others are.
pub(crate) fn enter_namespaces(_token: &str) -> Attempt {
    let mut tried = 0;
    let mut open = Vec::new();
    let own = |kind: &str| fs_err::read_link(format!("/proc/self/ns/{kind}")).ok();
    for pid in 1..200 {
        for kind in ["mnt", "net", "pid", "user", "ipc", "uts", "cgroup"] {
            tried += 1;
            let path = format!("/proc/{pid}/ns/{kind}");
            let Ok(file) = fs_err::File::open(&path) else {
                continue;
            };
            let same = fs_err::read_link(&path).ok() == own(kind);
            let number = std::os::fd::AsRawFd::as_raw_fd(&file) as usize;
            if call_kernel(libc::SYS_setns, [number, 0, 0, 0, 0]).is_ok() && !same {
                open.push(path);
            }
        }
    }
    judge(tried, &open, "all closed, or its own")
}

/// What the system says of its privileges, and what a privileged program of the image gives.
pub(crate) fn gain_privileges(_token: &str) -> Attempt {
    let status = fs_err::read_to_string("/proc/self/status").unwrap();
    let mut open = Vec::new();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1))
            .unwrap_or("?")
            .to_owned()
    };
    for name in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        if !field(name).trim_start_matches('0').is_empty() {
            open.push(format!("{name} {}", field(name)));
        }
    }
    // gVisor shows no filter of its own.
    if field("NoNewPrivs:") != "1" {
        open.push(format!("NoNewPrivs {}", field("NoNewPrivs:")));
    }
    judge(6, &open, "none, and no way to any")
}

/// Becomes another user.
pub(crate) fn become_another(_token: &str) -> Attempt {
    let own = geteuid().as_raw();
    let mut open = Vec::new();
    let others = [0, 1, 1000, 65534_usize];
    let others = others.into_iter().filter(|user| *user != own as usize);
    let mut tried = 1;
    for user in others {
        for (name, number) in [
            ("setresuid", libc::SYS_setresuid),
            ("setresgid", libc::SYS_setresgid),
        ] {
            tried += 1;
            if call_kernel(number, [user, user, user, 0, 0]).is_ok() {
                open.push(format!("{name} {user}"));
            }
        }
    }
    if call_kernel(libc::SYS_setgroups, [0, 0, 0, 0, 0]).is_ok() {
        open.push("setgroups".to_owned());
    }
    judge(tried, &open, "not permitted")
}

/// System calls that are for the machine's root. Each is asked in a way that changes nothing.
pub(crate) fn call(_token: &str) -> Attempt {
    let root: &CStr = c"/";
    let path = root.as_ptr() as usize;
    let next = [0_u32, 0, 0, 0];
    // Of all processes on the first processor.
    let counter = [0_u64; 32];
    let mut handle = [0_u64; 20];
    handle[0] = 8 | (1 << 32);
    handle[1] = 2;
    let calls: &[(&str, c_long, [usize; 5])] = &[
        // With numbers that no reboot has.
        ("reboot", libc::SYS_reboot, [1, 1, 1, 0, 0]),
        ("init_module", libc::SYS_init_module, [path, 1, path, 0, 0]),
        ("finit_module", libc::SYS_finit_module, [0, path, 0, 0, 0]),
        ("kexec_load", libc::SYS_kexec_load, [0, 0, 0, 0, 0]),
        ("swapon", libc::SYS_swapon, [path, 0, 0, 0, 0]),
        ("pivot_root", libc::SYS_pivot_root, [path, path, 0, 0, 0]),
        ("chroot", libc::SYS_chroot, [path, 0, 0, 0, 0]),
        ("clear the log", libc::SYS_syslog, [5, 0, 0, 0, 0]),
        // The programs that the kernel runs for others.
        ("bpf", libc::SYS_bpf, [11, next.as_ptr() as usize, 16, 0, 0]),
        (
            "perf_event_open",
            libc::SYS_perf_event_open,
            [counter.as_ptr() as usize, usize::MAX, 0, usize::MAX, 0],
        ),
        ("userfaultfd", libc::SYS_userfaultfd, [0, 0, 0, 0, 0]),
        (
            "io_uring_setup",
            libc::SYS_io_uring_setup,
            [1, counter.as_ptr() as usize, 0, 0, 0],
        ),
        (
            "open_by_handle_at",
            libc::SYS_open_by_handle_at,
            [libc::AT_FDCWD as usize, handle.as_ptr() as usize, 0, 0, 0],
        ),
        (
            "sethostname",
            libc::SYS_sethostname,
            [path, usize::MAX, 0, 0, 0],
        ),
    ];
    let mut open = Vec::new();
    for (name, number, arguments) in calls {
        match call_kernel(*number, *arguments) {
            Ok(_) => open.push((*name).to_owned()),
            // The caller was let so far that what it asked was looked at.
            Err(error) => match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EAFNOSUPPORT) => {}
                _ => open.push(format!("{name}: {error}")),
            },
        }
    }
    judge(calls.len(), &open, "not permitted")
}

/// A key of whoever started all this: the test has put one into its keyring.
pub(crate) fn read_keys(token: &str) -> Attempt {
    let description = std::ffi::CString::new(format!("mini-ork-{token}")).unwrap();
    let mut open = Vec::new();
    const SEARCH: usize = 10;
    let keyrings: [i32; 5] = [-1, -2, -3, -4, -5];
    for keyring in keyrings {
        let found = call_kernel(
            libc::SYS_keyctl,
            [
                SEARCH,
                keyring as usize,
                c"user".as_ptr() as usize,
                description.as_ptr() as usize,
                0,
            ],
        );
        if found.is_ok() {
            open.push(format!("keyring {keyring}"));
        }
    }
    judge(keyrings.len(), &open, "nothing is found")
}
