//! Names, in all the ways in which they are asked for.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use super::direct::connect;
use super::{ATTEMPT_LIMIT, Log, ProbeSpec};

/// Resolvers of the public, and names of machines around a workspace.
const RESOLVERS: [&str; 3] = ["8.8.8.8", "1.1.1.1", "2001:4860:4860::8888"];
const AROUND: [&str; 4] = [
    "host.docker.internal",
    "gateway.docker.internal",
    "metadata.google.internal",
    "host.containers.internal",
];

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
            over_udp(server, &told),
        );
        log.closed(
            "DNS over TCP",
            format!("{told} from {server}"),
            over_tcp(server, &told),
        );
    }
    for resolver in RESOLVERS {
        if let Ok(address) = resolver.parse() {
            let place = SocketAddr::new(address, 853);
            log.closed("DNS over TLS", place, connect(place).map(drop));
            let place = SocketAddr::new(address, 443);
            log.closed("DNS over HTTPS", place, connect(place).map(drop));
        }
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

fn question(name: &str) -> Vec<u8> {
    let mut message = vec![0x6d, 0x6f, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap_or(63));
        message.extend_from_slice(label.as_bytes());
    }
    // TXT, which carries the most data back.
    message.extend_from_slice(&[0, 0, 16, 0, 1]);
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

fn over_udp(server: SocketAddr, name: &str) -> io::Result<String> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_read_timeout(Some(ATTEMPT_LIMIT))?;
    socket.send_to(&question(name), server)?;
    let mut answer = [0; 2048];
    let (count, _) = socket.recv_from(&mut answer)?;
    judged(&answer[..count])
}

fn over_tcp(server: SocketAddr, name: &str) -> io::Result<String> {
    let mut stream = connect(server)?;
    let question = question(name);
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(&question)?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    judged(&answer)
}
