use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err::os::unix::fs::OpenOptionsExt as _;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::{Attempt, judge};

/// Devices that every program may have.
const HARMLESS: &[&str] = &[
    "null", "zero", "full", "random", "urandom", "tty", "ptmx", "console",
];

/// Makes devices and reads them.
pub(crate) fn make(token: &str) -> Attempt {
    const DEVICES: &[(FileType, u32, u32)] = &[
        (FileType::CharacterDevice, 1, 1),
        (FileType::CharacterDevice, 1, 2),
        (FileType::CharacterDevice, 1, 4),
        (FileType::CharacterDevice, 10, 200),
        (FileType::CharacterDevice, 10, 229),
        (FileType::CharacterDevice, 10, 232),
        (FileType::BlockDevice, 8, 0),
        (FileType::BlockDevice, 253, 0),
        (FileType::BlockDevice, 254, 0),
        (FileType::BlockDevice, 7, 0),
    ];
    let mut places: Vec<PathBuf> = vec![
        "/tmp".into(),
        "/var/tmp".into(),
        "/dev/shm".into(),
        "/run".into(),
    ];
    places.push(std::env::current_dir().unwrap());
    let mut open = Vec::new();
    let mut tried = 0;
    for place in &places {
        for (kind, major, minor) in DEVICES {
            tried += 1;
            let path = place.join(format!("{token}-{major}-{minor}"));
            let made = mknodat(
                CWD,
                &path,
                *kind,
                Mode::from_raw_mode(0o666),
                makedev(*major, *minor),
            );
            // A node that cannot be opened is a name and nothing more.
            if made.is_ok() && opens(&path) {
                open.push(path.display().to_string());
            }
        }
    }
    judge(tried, &open, "none could be made and opened")
}

/// Opens the devices that are there.
pub(crate) fn open(_token: &str) -> Attempt {
    let mut found: Vec<PathBuf> = [
        "mem",
        "kmem",
        "port",
        "kmsg",
        "sda",
        "vda",
        "nvme0n1",
        "loop0",
        "kvm",
        "fuse",
        "net/tun",
        "vsock",
        "vhost-vsock",
    ]
    .iter()
    .map(|name| Path::new("/dev").join(name))
    .collect();
    found.extend([
        "/proc/kcore".into(),
        "/proc/keys".into(),
        "/proc/timer_list".into(),
        "/proc/kallsyms".into(),
    ]);
    let mut pending = vec![PathBuf::from("/dev")];
    while let Some(directory) = pending.pop() {
        for entry in fs_err::read_dir(&directory).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() && !entry.path().ends_with("pts") {
                pending.push(entry.path());
            } else if kind.is_char_device() || kind.is_block_device() {
                found.push(entry.path());
            }
        }
    }
    let tried = found.len();
    let open = found.iter().filter(|path| {
        let name = path
            .strip_prefix("/dev")
            .unwrap_or(path)
            .display()
            .to_string();
        let harmless = HARMLESS.contains(&name.as_str());
        let only_zeros = path.ends_with("kallsyms") || is_covered(path);
        !harmless && !only_zeros && opens(path)
    });
    let open: Vec<String> = open.map(|path| path.display().to_string()).collect();
    judge(tried, &open, "none but the harmless ones")
}

/// Whether the null device is mounted over it.
fn is_covered(path: &Path) -> bool {
    let mut byte = [0];
    fs_err::File::open(path).is_ok_and(|mut file| matches!(file.read(&mut byte), Ok(0)))
}

fn opens(path: &Path) -> bool {
    let mut options = fs_err::OpenOptions::new();
    options.read(true);
    options.custom_flags(libc::O_NONBLOCK);
    options.open(path).is_ok()
}

/// Connects to every socket in the file system and to all that the system shows.
pub(crate) fn connect(_token: &str) -> Attempt {
    let mut addresses: Vec<(String, SocketAddr)> = Vec::new();
    let mut add = |name: String| {
        let address = match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(&name),
        };
        if let Ok(address) = address {
            addresses.push((name, address));
        }
    };
    let engine = std::env::var("ENGINE_SOCKET").unwrap_or_default();
    for name in [
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/podman/podman.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
        "/run/user/0/bus",
        "/tmp/.X11-unix/X0",
        "@/tmp/.X11-unix/X0",
        "@/containerd-shim",
        &engine,
    ] {
        if !name.is_empty() {
            add(name.to_owned());
        }
    }
    let table = fs_err::read_to_string("/proc/net/unix").unwrap_or_default();
    for line in table.lines().skip(1) {
        if let Some(name) = line.split_whitespace().nth(7) {
            add(name.to_owned());
        }
    }
    for root in [
        "/run",
        "/tmp",
        "/var",
        "/home",
        "/root",
        "/opt",
        "/srv",
        "/workspace",
    ] {
        sockets_below(Path::new(root), 6, &mut add);
    }
    let tried = addresses.len();
    let mut open = Vec::new();
    for (name, address) in addresses {
        // The session's own is another attempt.
        if name == "@mini-ork-session" {
            continue;
        }
        if let Ok(mut stream) = UnixStream::connect_addr(&address) {
            let _ = stream.set_read_timeout(Some(Duration::from_millis(300)));
            let _ = stream.write_all(b"GET /version HTTP/1.0\r\n\r\n");
            let mut said = [0; 200];
            let count = stream.read(&mut said).unwrap_or(0);
            open.push(format!(
                "{name}: {:?}",
                String::from_utf8_lossy(&said[..count])
            ));
        }
    }
    judge(tried, &open, "nobody answers")
}

fn sockets_below(directory: &Path, levels: usize, found: &mut impl FnMut(String)) {
    for entry in fs_err::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_socket() {
            found(entry.path().display().to_string());
        } else if kind.is_dir() && levels > 0 {
            sockets_below(&entry.path(), levels - 1, found);
        }
    }
}
