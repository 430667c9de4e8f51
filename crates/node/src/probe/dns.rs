//! Names, in all the ways in which they are asked for.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::time::Duration;

use super::direct::connect;
use super::names::ALLOWED;
use super::{Log, ProbeSpec};
use crate::egress::NAME_SERVER;

/// Resolvers of the public, and names of machines around a workspace.
const RESOLVERS: [&str; 3] = ["8.8.8.8", "1.1.1.1", "2001:4860:4860::8888"];
const AROUND: [&str; 4] = [
    "host.docker.internal",
    "gateway.docker.internal",
    "metadata.google.internal",
    "host.containers.internal",
];

/// How long an answer may take. A packet that goes nowhere is an error at once.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Kinds of records. A text carries the most data back.
const A: u16 = 1;
const POINTER: u16 = 12;
const TXT: u16 = 16;
const ANY: u16 = 255;

pub(super) fn try_all(spec: &ProbeSpec, log: &mut Log<'_>) {
    // Data can leave in a name that somebody else's server is asked for.
    let told = format!("{}.example.com", spec.word);
    for name in AROUND.into_iter().chain([told.as_str(), "dns.google"]) {
        log.closed("resolver", name, resolve(name));
    }
    let mut servers: Vec<SocketAddr> = spec
        .addresses
        .iter()
        .filter(|address| !address.is_loopback())
        .map(|address| SocketAddr::new(*address, spec.port))
        .collect();
    let public = RESOLVERS
        .iter()
        .filter_map(|address| address.parse::<IpAddr>().ok());
    servers.extend(public.map(|address| SocketAddr::new(address, 53)));
    let configured = fs_err::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let configured = configured.lines().filter_map(|line| {
        let address = line.strip_prefix("nameserver")?.trim();
        address.parse::<IpAddr>().ok()
    });
    servers.extend(configured.map(|address| SocketAddr::new(address, 53)));
    for server in servers {
        log.closed(
            "DNS over UDP",
            format!("{told} from {server}"),
            over_udp(server, &question(&told, TXT)),
        );
        log.closed(
            "DNS over TCP",
            format!("{told} from {server}"),
            over_tcp(server, &question(&told, TXT)),
        );
    }
    // No list has it.
    own_server(&format!("{}.mini-ork.invalid", spec.word), log);
    for resolver in RESOLVERS {
        if let Ok(address) = resolver.parse() {
            let place = SocketAddr::new(address, 853);
            log.closed("DNS over TLS", place, connect(place).map(drop));
            let place = SocketAddr::new(address, 443);
            log.closed("DNS over HTTPS", place, connect(place).map(drop));
        }
    }
}

/// The name server of the workspace, asked for what it must not know or find out.
fn own_server(told: &str, log: &mut Log<'_>) {
    let server = SocketAddr::from(NAME_SERVER);
    let below = format!("{}.{ALLOWED}", told.replace('.', "-"));
    let long = format!("{}.{ALLOWED}", "a".repeat(63));
    for (name, kind) in [
        (told, A),
        (below.as_str(), A),
        (below.as_str(), TXT),
        (long.as_str(), A),
        (ALLOWED, TXT),
        ("127.0.0.1.nip.io", A),
        ("1.0.0.127.in-addr.arpa", POINTER),
        ("", ANY),
    ] {
        let what = format!("`{name}`, of kind {kind}");
        log.closed(
            "DNS of its own",
            what,
            over_udp(server, &question(name, kind)),
        );
    }
    let header = [0x6d, 0x6f, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let label = |bytes: &[u8]| [&[u8::try_from(bytes.len()).unwrap_or(63)][..], bytes].concat();
    let ends = [0, 0, 16, 0, 1];
    for (what, name) in [
        ("a name that points to itself", vec![0xc0, 12]),
        ("a name with dots in a label", label(told.as_bytes())),
        ("a name with a NUL", label(b"allowed\0probe")),
        ("a name that is too long", label(&[b'a'; 63]).repeat(5)),
        ("a name without an end", vec![63, b'a']),
    ] {
        let message = [&header[..], &name, &ends].concat();
        log.closed("DNS of its own", what, over_udp(server, &message));
    }
    for port in [853, 443, 5353] {
        let place = SocketAddr::new(server.ip(), port);
        log.closed("DNS of its own", place, connect(place).map(drop));
    }
}

fn resolve(name: &str) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> = (name, 80).to_socket_addrs()?.collect();
    // An address of its own loopback leads to the proxy, which decides.
    let outside = found.iter().filter(|address| !address.ip().is_loopback());
    let outside: Vec<SocketAddr> = outside.copied().collect();
    if outside.is_empty() {
        return Err(io::Error::other("an address of the workspace itself"));
    }
    Ok(outside)
}

fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut message = vec![0x6d, 0x6f, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        message.push(u8::try_from(label.len()).unwrap_or(63));
        message.extend_from_slice(label.as_bytes());
    }
    let [high, low] = kind.to_be_bytes();
    message.extend_from_slice(&[0, high, low, 0, 1]);
    message
}

/// An answer with content. That there is no such name is what has to come.
fn judged(answer: &[u8]) -> io::Result<String> {
    match answer {
        [_, _, _, code, _, _, 0, 0, ..] => Err(io::Error::other(format!(
            "no such name (code {})",
            code & 15
        ))),
        answer => Ok(format!("{} bytes", answer.len())),
    }
}

fn over_udp(server: SocketAddr, question: &[u8]) -> io::Result<String> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_read_timeout(Some(ANSWER_LIMIT))?;
    socket.send_to(question, server)?;
    let mut answer = [0; 2048];
    let (count, _) = socket.recv_from(&mut answer)?;
    judged(&answer[..count])
}

fn over_tcp(server: SocketAddr, question: &[u8]) -> io::Result<String> {
    let mut stream = connect(server)?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(question)?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    judged(&answer)
}
