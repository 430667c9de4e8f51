//! Without the proxy: sockets, as a program makes them that knows nothing of any policy.

use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};

use rustix::net::{AddressFamily, Protocol, RawProtocol, SocketType, ipproto};

use super::{ATTEMPT_LIMIT, Log, ProbeSpec, Verdict};

/// Addresses of others that a machine typically reaches: the metadata of a cloud, a public
/// resolver, and its own gateways to containers.
const OTHERS: [&str; 7] = [
    "169.254.169.254",
    "fd00:ec2::254",
    "1.1.1.1",
    "2606:4700:4700::1111",
    "172.17.0.1",
    "10.0.2.2",
    "192.168.65.2",
];

pub(super) fn try_all(spec: &ProbeSpec, log: &mut Log<'_>) {
    interfaces(log);
    for address in &spec.addresses {
        let place = SocketAddr::new(*address, spec.port);
        let way = if place.is_ipv4() { "TCP" } else { "TCP, IPv6" };
        log.closed(way, place, greeting(place, &spec.word));
        let way = if place.is_ipv4() { "UDP" } else { "UDP, IPv6" };
        log.closed(
            way,
            place,
            datagram(place, spec.word.as_bytes(), &spec.word),
        );
        log.closed(
            "QUIC",
            place,
            datagram(place, &quic(&spec.word), &spec.word),
        );
        if let IpAddr::V4(address) = address {
            let mapped = SocketAddr::new(address.to_ipv6_mapped().into(), spec.port);
            log.closed("TCP, IPv4 as IPv6", mapped, greeting(mapped, &spec.word));
        }
        log.closed("ICMP", address, echo(*address));
    }
    for (address, port) in OTHERS
        .iter()
        .flat_map(|address| [(address, 80), (address, 443)])
    {
        if let Ok(address) = address.parse() {
            let place = SocketAddr::new(address, port);
            log.closed("TCP", place, connect(place).map(drop));
        }
    }
    for place in ["255.255.255.255", "224.0.0.1", "ff02::1"] {
        if let Ok(address) = place.parse() {
            let place = SocketAddr::new(address, spec.port);
            log.closed(
                "broadcast",
                place,
                datagram(place, spec.word.as_bytes(), &spec.word),
            );
        }
    }
    families(log);
}

/// Whether there is an interface but loopback, or a route.
fn interfaces(log: &mut Log<'_>) {
    let table = fs_err::read_to_string("/proc/net/dev").unwrap_or_default();
    let names = table.lines().filter_map(|line| line.split_once(':'));
    let names: Vec<&str> = names.map(|(name, _)| name.trim()).collect();
    let others: Vec<&str> = names
        .into_iter()
        .filter(|name| !is_idle_interface(name))
        .collect();
    let result = match others.as_slice() {
        [] => Err(io::Error::other("none but loopback")),
        others => Ok(others.join(", ")),
    };
    log.closed("interfaces", "/proc/net/dev", result);
    let routes = fs_err::read_to_string("/proc/net/route").unwrap_or_default();
    let result = match routes.lines().skip(1).count() {
        0 => Err(io::Error::other("none")),
        count => Ok(format!("{count} routes")),
    };
    log.closed("routes", "/proc/net/route", result);
}

/// Loopback, and what some kernels put into every namespace and leave down.
pub(crate) fn is_idle_interface(name: &str) -> bool {
    const OF_THE_KERNEL: [&str; 8] = [
        "tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0",
    ];
    name == "lo" || OF_THE_KERNEL.contains(&name) || name == "ip6gre0"
}

pub(super) fn connect(place: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&place, ATTEMPT_LIMIT)?;
    stream.set_read_timeout(Some(ATTEMPT_LIMIT))?;
    stream.set_write_timeout(Some(ATTEMPT_LIMIT))?;
    Ok(stream)
}

/// What the canary says. Something else that listens inside is not the canary.
pub(super) fn greeting(place: SocketAddr, word: &str) -> io::Result<String> {
    expect_word(&mut connect(place)?, word)
}

pub(super) fn expect_word(stream: &mut impl io::Read, word: &str) -> io::Result<String> {
    let mut said = Vec::new();
    let _ = stream.take(4096).read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said).into_owned();
    if said.contains(word) {
        Ok("the canary answered".to_owned())
    } else {
        Err(io::Error::other("the canary was not there"))
    }
}

fn datagram(place: SocketAddr, content: &[u8], word: &str) -> io::Result<String> {
    let any: IpAddr = match place {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    let _ = socket.set_broadcast(true);
    socket.set_read_timeout(Some(std::time::Duration::from_millis(200)))?;
    socket.send_to(content, place)?;
    let mut buffer = [0; 512];
    let (count, _) = socket.recv_from(&mut buffer)?;
    expect_word(&mut &buffer[..count], word)
}

/// As much of a QUIC packet as a firewall looks at.
fn quic(word: &str) -> Vec<u8> {
    let mut packet = vec![0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0];
    packet.extend_from_slice(word.as_bytes());
    packet.resize(1200, 0);
    packet
}

/// A ping by the sockets that need no privilege, and by raw ones.
fn echo(address: IpAddr) -> io::Result<String> {
    if address.is_loopback() {
        return Err(io::Error::other("loopback is the workspace's own"));
    }
    let (family, protocol, kind) = match address {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, 8),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, 128),
    };
    let socket = ping_socket(family, protocol)?;
    let packet = [kind, 0, 0, 0, 0, 1, 0, 1, b'm', b'o'];
    let place = SocketAddr::new(address, 0);
    rustix::net::sendto(&socket, &packet, rustix::net::SendFlags::empty(), &place)?;
    Ok("sent".to_owned())
}

fn ping_socket(family: AddressFamily, protocol: Protocol) -> io::Result<std::os::fd::OwnedFd> {
    let socket = rustix::net::socket(family, SocketType::DGRAM, Some(protocol));
    match socket {
        Ok(socket) => Ok(socket),
        Err(_) => Ok(rustix::net::socket(
            family,
            SocketType::RAW,
            Some(protocol),
        )?),
    }
}

/// Sockets that go past the network of a workspace.
fn families(log: &mut Log<'_>) {
    let every = RawProtocol::new(u32::from(3u16.to_be())).map(Protocol::from_raw);
    for (name, family, kind, protocol) in [
        (
            "IPv4",
            AddressFamily::INET,
            SocketType::RAW,
            Some(ipproto::TCP),
        ),
        (
            "IPv6",
            AddressFamily::INET6,
            SocketType::RAW,
            Some(ipproto::TCP),
        ),
        ("packets", AddressFamily::PACKET, SocketType::RAW, every),
        (
            "packets, cooked",
            AddressFamily::PACKET,
            SocketType::DGRAM,
            every,
        ),
    ] {
        let made = rustix::net::socket(family, kind, protocol);
        log.closed("raw socket", name, made.map_err(io::Error::from));
    }
    // Reaches the machine below a virtual one.
    let made = rustix::net::socket(AddressFamily::VSOCK, SocketType::STREAM, None);
    let result = made.map_err(io::Error::from);
    match &result {
        Ok(_) => log.attempt(
            "other families",
            "vsock",
            "a socket can be made".to_owned(),
            Verdict::Breach,
        ),
        Err(error) => log.attempt(
            "other families",
            "vsock",
            error.to_string(),
            Verdict::Closed,
        ),
    }
}
