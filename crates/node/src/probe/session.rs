//! The server of the workspace itself, and whatever else listens on a socket inside.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};

use super::{ATTEMPT_LIMIT, Log};
use crate::session::knock;

/// Most sockets that are tried.
const MOST: usize = 64;
/// How the system marks a socket that is listened on.
const LISTENS: &str = "00010000";

pub(super) fn try_all(log: &mut Log<'_>) {
    let table = fs_err::read("/proc/net/unix").unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let names: Vec<&str> = table.lines().filter_map(listener).take(MOST).collect();
    if names.is_empty() {
        let none = Err::<(), _>(io::Error::other("no socket is listened on"));
        log.closed("session server", "/proc/net/unix", none);
    }
    for name in names {
        for (manner, token) in [
            ("without a token", None),
            ("with no token", Some(&b""[..])),
            ("with a wrong token", Some(&[7; 16][..])),
        ] {
            let knocked = connect(name).and_then(|stream| knock(stream, token, ATTEMPT_LIMIT));
            log.closed("session server", format!("{name}, {manner}"), knocked);
        }
    }
}

/// The name of a socket that is listened on.
fn listener(line: &str) -> Option<&str> {
    let mut parts = line.split_whitespace();
    let flags = parts.nth(3)?;
    let name = parts.nth(3)?;
    (flags == LISTENS).then_some(name)
}

fn connect(name: &str) -> io::Result<UnixStream> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixStream::connect_addr(&address)
}
