//! Through the proxy, and around it: what it is asked for is what it must not do.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use super::direct::{connect, expect_word};
use super::names::{ALLOWED, PROBE_NAMES};
use super::{Log, ProbeSpec};
use crate::egress::{AllowList, Host, PROXY_ADDRESS};

const END: &[u8] = b"\r\n\r\n";
/// How long more is waited for on a connection that may be kept.
const MORE_LIMIT: Duration = Duration::from_secs(1);

pub(super) fn try_all(spec: &ProbeSpec, log: &mut Log<'_>) {
    let port = spec.port;
    for address in &spec.addresses {
        let place = SocketAddr::new(*address, port).to_string();
        log.closed("CONNECT", &place, tunnel(&place));
        log.closed("SOCKS", &place, socks(&place, spec));
        log.closed("proxied request", &place, request(&place, spec));
    }
    for place in [
        format!("localhost:{port}"),
        format!("127.1:{port}"),
        format!("0x7f000001:{port}"),
        format!("2130706433:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("[::]:{port}"),
        format!("0.0.0.0:{port}"),
        format!("{ALLOWED}@127.0.0.1:{port}"),
        format!("127.0.0.1:{port}@{ALLOWED}"),
        format!("{ALLOWED}#@127.0.0.1:{port}"),
        format!("{ALLOWED}%00.example.com:{port}"),
        format!("x{ALLOWED}:{port}"),
        format!("{ALLOWED}.example.com:{port}"),
        format!("{ALLOWED}:22"),
        "dns.google:443".to_owned(),
        "cloudflare-dns.com:443".to_owned(),
        "1.1.1.1:443".to_owned(),
        "8.8.8.8:853".to_owned(),
        format!("host.docker.internal:{port}"),
        format!("gateway.docker.internal:{port}"),
        format!("host.containers.internal:{port}"),
        "169.254.169.254:80".to_owned(),
    ] {
        if !is_listed(&place, spec) {
            log.closed("CONNECT", &place, tunnel(&place));
        }
    }
    for (name, _) in PROBE_NAMES {
        let place = format!("{name}:{port}");
        // More than once: a zone may give another answer to the second question.
        for _ in 0..2 {
            log.closed("name of a reserved address", &place, tunnel(&place));
        }
        log.closed(
            "name of a reserved address",
            format!("{place}, directly"),
            named(name, spec),
        );
    }
    let other = format!("127.0.0.1:{port}");
    log.closed("SOCKS, for datagrams", &other, socks_command(3));
    log.closed("SOCKS, to be called", &other, socks_command(2));
    log.closed("pipelined CONNECT", &other, pipelined(&other, spec));
    let after = |first: &str| after_another(first, &other, spec);
    log.closed("second request", "by the proxy", after("denied.probe.test"));
    if spec.allowlist {
        allowed(spec, &other, log);
    }
}

/// Whether the user's own list opens it.
fn is_listed(place: &str, spec: &ProbeSpec) -> bool {
    let list = AllowList::parse(spec.allow.iter().map(String::as_str)).unwrap_or_default();
    let (host, port) = place.rsplit_once(':').unwrap_or((place, ""));
    match (Host::parse(host), port.parse()) {
        (Ok(host), Ok(port)) => list.permits(&host, port),
        _ => false,
    }
}

/// What may be reached is, and leads nowhere else.
fn allowed(spec: &ProbeSpec, other: &str, log: &mut Log<'_>) {
    let Some(port) = allowed_port() else {
        let missing = io::Error::other("the name is not known");
        return log.open::<()>("allowed host", ALLOWED, Err(missing));
    };
    let place = format!("{ALLOWED}:{port}");
    let get = |host: &str, path: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
    };
    let word_of = |mut stream: TcpStream, text: String| {
        stream.write_all(text.as_bytes())?;
        expect_word(&mut stream, "mini-ork-allowed")
    };
    let through = || ask(&place).and_then(|stream| word_of(stream, get(&place, "/")));
    let directly = || {
        let address = (ALLOWED, port).to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other("no address"))?;
        word_of(connect(address)?, get(&place, "/"))
    };
    log.open("allowed host", format!("{place}, by the proxy"), through());
    log.open("allowed host", format!("{place}, directly"), directly());
    let expect_canary = |stream: &mut TcpStream, text: &str| {
        stream.write_all(text.as_bytes())?;
        let mut said = Vec::new();
        let _ = stream.take(4096).read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said).into_owned();
        if said.contains("mini-ork-allowed") || said.contains(&spec.word) {
            Ok(said)
        } else {
            Err(io::Error::other("refused"))
        }
    };
    let with = |text: String| ask(&place).and_then(|mut stream| expect_canary(&mut stream, &text));
    log.closed("other Host", other, with(get(other, "/")));
    log.closed(
        "other Host",
        "whole URL",
        with(get(&place, &format!("http://{other}/"))),
    );
    let both = format!("GET / HTTP/1.1\r\nHost: {place}\r\nHost: {other}\r\n\r\n");
    log.closed("two Hosts", other, with(both));
    let smuggled = format!(
        "POST / HTTP/1.1\r\nHost: {place}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{}",
        get(other, "/")
    );
    let first = format!("GET / HTTP/1.1\r\nHost: {place}\r\n\r\n");
    let second = get(other, "/");
    for (way, text) in [
        ("pipelined requests", format!("{first}{second}")),
        ("smuggled request", smuggled),
    ] {
        let answers = ask(&place).and_then(|stream| answers(stream, &[text], spec));
        log.closed(way, other, answers);
    }
    let answers = ask(&place).and_then(|stream| answers(stream, &[first, second], spec));
    log.closed("second request", "in a tunnel", answers);
    log.closed(
        "second request",
        "by the proxy, after an allowed one",
        after_another(&place, other, spec),
    );
    let chained = format!("CONNECT {other} HTTP/1.1\r\nHost: {place}\r\n\r\n");
    log.closed("CONNECT in CONNECT", other, with(chained));
    let hello = |name: &str| {
        ask(&place).and_then(|mut stream| {
            stream.write_all(&client_hello(name))?;
            let mut first = [0];
            stream.read_exact(&mut first)?;
            Ok("the hello went through")
        })
    };
    log.closed("other name in TLS", "example.com", hello("example.com"));
    for name in [format!("x{ALLOWED}"), format!("{ALLOWED}.example.com")] {
        log.closed("other name in TLS", &name, hello(&name));
    }
    log.closed("no name in TLS", &place, hello(""));
    // The server answers with a redirection to the canary: following it is a request of its own.
    log.closed("redirection", other, request(other, spec));
}

/// The port on which the probe's own server is listed: the one that listens on its address inside.
fn allowed_port() -> Option<u16> {
    let address = (ALLOWED, 0).to_socket_addrs().ok()?.next()?.ip();
    let IpAddr::V4(address) = address else {
        return None;
    };
    let table = fs_err::read_to_string("/proc/net/tcp").ok()?;
    let wanted = format!("{:08X}:", u32::from_ne_bytes(address.octets()));
    table.lines().find_map(|line| {
        let mut parts = line.split_whitespace();
        let port = parts.nth(1)?.strip_prefix(&wanted)?;
        u16::from_str_radix(port, 16).ok()
    })
}

/// A tunnel to `place`.
fn ask(place: &str) -> io::Result<TcpStream> {
    let mut stream = connect(PROXY_ADDRESS.into())?;
    let text = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n");
    stream.write_all(text.as_bytes())?;
    let head = head(&mut stream)?;
    if head.starts_with("HTTP/1.1 200") {
        Ok(stream)
    } else {
        let line = head.lines().next().unwrap_or_default().to_owned();
        Err(io::Error::other(line))
    }
}

fn head(stream: &mut TcpStream) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(END) && bytes.len() < 4096 {
        stream.read_exact(&mut byte)?;
        bytes.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// For a host that is not allowed the answer alone must not be a good one.
fn tunnel(place: &str) -> io::Result<String> {
    ask(place).map(|_| "the tunnel was opened".to_owned())
}

fn named(name: &str, spec: &ProbeSpec) -> io::Result<String> {
    let found = (name, spec.port).to_socket_addrs()?.next();
    let place = found.ok_or_else(|| io::Error::other("no address"))?;
    super::direct::greeting(place, &spec.word)
}

fn request(place: &str, spec: &ProbeSpec) -> io::Result<String> {
    let mut stream = connect(PROXY_ADDRESS.into())?;
    let text =
        format!("GET http://{place}/ HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes())?;
    expect_word(&mut stream, &spec.word)
}

/// A second CONNECT in the same packet as a first one that is refused, and the canary's greeting.
fn pipelined(place: &str, spec: &ProbeSpec) -> io::Result<String> {
    let mut stream = connect(PROXY_ADDRESS.into())?;
    let first = format!("CONNECT {ALLOWED}:1 HTTP/1.1\r\nHost: {ALLOWED}:1\r\n\r\n");
    let second = format!("CONNECT {place} HTTP/1.1\r\nHost: {ALLOWED}:1\r\n\r\n");
    stream.write_all(format!("{first}{second}").as_bytes())?;
    stream.set_read_timeout(Some(MORE_LIMIT))?;
    expect_word(&mut stream, &spec.word)
}

/// Texts after each other in a connection to the allowed server: who gets more than one good answer
/// has got a request for another host through.
fn answers(mut stream: TcpStream, texts: &[String], spec: &ProbeSpec) -> io::Result<String> {
    stream.set_read_timeout(Some(MORE_LIMIT))?;
    let mut said = Vec::new();
    for text in texts {
        if stream.write_all(text.as_bytes()).is_err() {
            break;
        }
        let mut piece = [0; 4096];
        if let Ok(count) = stream.read(&mut piece) {
            said.extend_from_slice(&piece[..count]);
        }
    }
    let _ = stream.take(1 << 16).read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said).into_owned();
    match said.matches("mini-ork-allowed").count() {
        0 | 1 if !said.contains(&spec.word) => Err(io::Error::other("refused")),
        _ => Ok(said),
    }
}

/// A proxied request for `place` on a connection that was used for another one before.
fn after_another(first: &str, place: &str, spec: &ProbeSpec) -> io::Result<String> {
    let mut stream = connect(PROXY_ADDRESS.into())?;
    for host in [first, place] {
        let text = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(text.as_bytes())?;
        let _ = head(&mut stream)?;
    }
    stream.set_read_timeout(Some(MORE_LIMIT))?;
    expect_word(&mut stream, &spec.word)
}

fn socks(place: &str, spec: &ProbeSpec) -> io::Result<String> {
    let place: SocketAddr = place.parse().map_err(io::Error::other)?;
    let mut stream = connect(PROXY_ADDRESS.into())?;
    stream.write_all(&[5, 1, 0])?;
    let mut answer = [0; 2];
    stream.read_exact(&mut answer)?;
    let mut message = vec![5, 1, 0];
    match place.ip() {
        IpAddr::V4(address) => {
            message.push(1);
            message.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            message.push(4);
            message.extend_from_slice(&address.octets());
        }
    }
    message.extend_from_slice(&place.port().to_be_bytes());
    stream.write_all(&message)?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer)?;
    if answer[1] != 0 {
        return Err(io::Error::other(format!("refused with {}", answer[1])));
    }
    expect_word(&mut stream, &spec.word).or(Ok("the connection was opened".to_owned()))
}

fn socks_command(command: u8) -> io::Result<String> {
    let mut stream = connect(PROXY_ADDRESS.into())?;
    stream.write_all(&[5, 1, 0, 5, command, 0, 1, 0, 0, 0, 0, 0, 0])?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer)?;
    match answer[3] {
        0 => Ok("it was carried out".to_owned()),
        code => Err(io::Error::other(format!("refused with {code}"))),
    }
}

/// A hello with this name, or without one.
fn client_hello(name: &str) -> Vec<u8> {
    let count = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes();
    let sized = |bytes: &[u8]| [&count(bytes)[..], bytes].concat();
    let extensions = if name.is_empty() {
        Vec::new()
    } else {
        let entry = [&[0][..], &sized(name.as_bytes())].concat();
        [&[0, 0][..], &sized(&sized(&entry))].concat()
    };
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0, 2, 0x13, 1, 1, 0]);
    body.extend_from_slice(&sized(&extensions));
    let message = [&[1, 0][..], &sized(&body)].concat();
    [&[22, 3, 1][..], &sized(&message)].concat()
}
