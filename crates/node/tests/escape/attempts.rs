//! All attempts of the attacker, behind each boundary.

use std::path::{Path, PathBuf};

use mini_ork_node::workspace::docker::ContainerLimits;
use mini_ork_testkit::{ContainerEngine, GVISOR};

use crate::world::{World, block_on};

/// How many attempts there are: one that is not made proves nothing.
const ATTEMPTS: usize = 19;

#[test]
fn nothing_leads_out_of_a_container() {
    if let Some(world) = World::of_containers(ContainerLimits::default()) {
        attack(&world, &[]);
    }
}

/// What leads to something of gVisor's own kernel, and not of this machine's: its settings, its
/// devices, its mounts, how it refuses what it does not have, and what its processes see of each
/// other.
const OF_GVISOR: &[&str] = &[
    "files of the system",
    "device nodes",
    "devices",
    "mounts",
    "privileges",
    "system calls",
    "processes of others",
    "the session by its bridge",
];

#[test]
fn nothing_leads_out_of_gvisor() {
    let engine = ContainerEngine::start_with_gvisor();
    let world =
        engine.and_then(|engine| World::on(engine, Some(GVISOR), ContainerLimits::default()));
    if let Some(world) = world {
        attack(&world, OF_GVISOR);
    }
}

#[test]
fn nothing_leads_out_of_a_container_of_podman() {
    let engine = ContainerEngine::start_podman(0);
    let world = engine.and_then(|engine| World::on(engine, None, ContainerLimits::default()));
    if let Some(world) = world {
        attack(&world, &[]);
    }
}

#[test]
fn nothing_leads_out_of_a_confined_workspace() {
    if let Some(world) = World::of_namespaces() {
        attack(&world, &[]);
    }
}

/// Makes all attempts; those of the kernel's `own` may come to something, and to nothing outside.
fn attack(world: &World, own: &[&str]) {
    let token = format!("mini-ork-escape-{}", std::process::id());
    let before = machine();
    put_key(&format!("mini-ork-{token}"));
    block_on(async {
        let inside = world.workspace("attempts").await;
        let ended = inside.attack(&["all", &token]).await;
        println!("{}", ended.stdout);
        let is_own = |line: &str| {
            let opened = |name: &&str| line.starts_with(&format!("{name} OPEN: "));
            own.iter().any(opened)
        };
        let lines = || ended.stdout.lines();
        let open: Vec<&str> = lines()
            .filter(|line| line.contains(" OPEN: ") && !is_own(line))
            .collect();
        assert_eq!(open, Vec::<&str>::new(), "{}", ended.stderr);
        let closed = lines().filter(|line| line.contains(" closed: "));
        let own = lines().filter(|line| is_own(line));
        assert_eq!(closed.count() + own.count(), ATTEMPTS, "{ended:?}");
        inside.down().await;
    });
    assert_eq!(machine(), before);
    assert_eq!(marks(&token), Vec::<PathBuf>::new());
    world.assert_nothing_is_left();
}

/// Puts a key into the keyrings that everything inherits which is started here. Where there is none
/// the attempt to find it says nothing.
#[expect(unsafe_code, reason = "keys are not offered by a library")]
fn put_key(description: &str) {
    const SESSION: i32 = -3;
    const USER: i32 = -4;
    let description = std::ffi::CString::new(description).unwrap();
    for keyring in [SESSION, USER] {
        // SAFETY: the kernel reads two strings up to their NUL, and one byte.
        let key = unsafe {
            libc::syscall(
                libc::SYS_add_key,
                c"user".as_ptr(),
                description.as_ptr(),
                c"x".as_ptr(),
                1_usize,
                keyring,
            )
        };
        if key < 0 {
            println!("no key in {keyring}: {}", std::io::Error::last_os_error());
        }
    }
}

/// What an attempt would have changed.
fn machine() -> Vec<(&'static str, Option<String>)> {
    [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hostname",
        "/sys/kernel/uevent_helper",
        "/etc/passwd",
        "/etc/hosts",
    ]
    .into_iter()
    .map(|path| (path, fs_err::read_to_string(path).ok()))
    .collect()
}

/// Files of the attacker on this machine, outside of what it was given.
fn marks(token: &str) -> Vec<PathBuf> {
    let table = fs_err::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = table.lines().filter_map(|line| line.split(' ').nth(4));
    let places = [
        "/",
        "/bin",
        "/boot",
        "/dev",
        "/dev/shm",
        "/etc",
        "/etc/cron.d",
        "/home",
        "/lib",
        "/opt",
        "/root",
        "/run",
        "/sbin",
        "/srv",
        "/tmp",
        "/usr",
        "/usr/bin",
        "/usr/local/bin",
        "/var",
        "/var/lib",
        "/var/tmp",
        "/workspace",
    ];
    let places = places.into_iter().chain(mounts);
    let marks = places.map(|place| Path::new(place).join(token));
    marks.filter(|path| path.exists()).collect()
}
