use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mini_ork_node::egress::{AllowList, DenialKind, PolicyProxy};
use mini_ork_testkit::wait_for;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::timeout;

use crate::support::{Server, Zone};

const CONNECTED: u8 = 0;
const NOT_LISTED: u8 = 1;
const RESERVED: u8 = 2;
const MALFORMED: u8 = 6;

fn proxy(entries: &[String], zone: &Arc<Zone>) -> Arc<PolicyProxy> {
    let allowed = AllowList::parse(entries.iter().map(String::as_str)).unwrap();
    Arc::new(PolicyProxy::new(allowed, Arc::clone(zone) as _))
}

/// A proxy that lets `a.test` through, which is the server.
pub(crate) fn for_server(server: &Server) -> Arc<PolicyProxy> {
    let port = server.port();
    let entries = [format!("a.test:{port}"), format!("127.0.0.1:{port}")];
    proxy(&entries, &Zone::of(&[("a.test", &["127.0.0.1"])]))
}

/// Asks for a connection as a shim does.
async fn ask(proxy: &Arc<PolicyProxy>, host: &str, port: u16) -> (u8, DuplexStream) {
    let (mut inside, outside) = tokio::io::duplex(1 << 16);
    let proxy = Arc::clone(proxy);
    tokio::spawn(async move { proxy.serve(outside).await });
    let mut request = vec![1, u8::try_from(host.len()).unwrap()];
    request.extend_from_slice(&port.to_be_bytes());
    request.extend_from_slice(host.as_bytes());
    inside.write_all(&request).await.unwrap();
    let answer = timeout(Duration::from_secs(20), inside.read_u8()).await;
    (answer.unwrap().unwrap(), inside)
}

pub(crate) async fn connect(proxy: &Arc<PolicyProxy>, host: &str, port: u16) -> DuplexStream {
    let (answer, stream) = ask(proxy, host, port).await;
    assert_eq!(answer, CONNECTED, "{host}:{port}");
    stream
}

/// All that comes until the end.
pub(crate) async fn rest(stream: &mut DuplexStream) -> String {
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    timeout(Duration::from_secs(20), read)
        .await
        .unwrap()
        .unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A client hello for `name`, or for none.
fn hello(name: Option<&str>) -> Vec<u8> {
    let extension = name.map_or(Vec::new(), |name| {
        let length = u16::try_from(name.len()).unwrap();
        let sizes = [length + 5, length + 3];
        let mut bytes = vec![0, 0];
        for size in sizes {
            bytes.extend_from_slice(&size.to_be_bytes());
        }
        bytes.push(0);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(name.as_bytes());
        bytes
    });
    let mut body = vec![3, 3];
    body.extend_from_slice(&[9; 32]);
    body.extend_from_slice(&[0, 0, 2, 0x13, 1, 1, 0]);
    body.extend_from_slice(&u16::try_from(extension.len()).unwrap().to_be_bytes());
    body.extend_from_slice(&extension);
    let mut message = vec![1, 0];
    message.extend_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
    message.extend_from_slice(&body);
    let mut record = vec![22, 3, 1];
    record.extend_from_slice(&u16::try_from(message.len()).unwrap().to_be_bytes());
    record.extend_from_slice(&message);
    record
}

#[tokio::test]
async fn bc_34_the_target_of_each_connection_decides() {
    let server = Server::echo(b"");
    let proxy = for_server(&server);
    for (host, port, answer) in [
        ("b.test", server.port(), NOT_LISTED),
        ("a.test", 22, NOT_LISTED),
        ("a.test", 0, 4),
        ("x.a.test", server.port(), NOT_LISTED),
        ("a.test@b.test", server.port(), MALFORMED),
        ("a.test\0.b.test", server.port(), MALFORMED),
        ("", server.port(), MALFORMED),
        ("2130706433", server.port(), MALFORMED),
        ("10.0.0.1", server.port(), NOT_LISTED),
        ("::1", server.port(), NOT_LISTED),
        ("A.TEST.", server.port(), CONNECTED),
        ("127.0.0.1", server.port(), CONNECTED),
        ("::ffff:127.0.0.1", server.port(), CONNECTED),
    ] {
        assert_eq!(ask(&proxy, host, port).await.0, answer, "{host}:{port}");
    }
    let denials = proxy.denials();
    let count = |place: &str, kind| {
        let mut found = denials.iter();
        found
            .find(|denial| denial.place == place && denial.kind == kind)
            .map_or(0, |denial| denial.count)
    };
    assert_eq!(count("a.test:22", DenialKind::NotListed), 1);
    assert_eq!(count("", DenialKind::Malformed), 4);
    wait_for("three connections", Duration::from_secs(20), || {
        server.count() == 3
    });
}

#[tokio::test]
async fn bc_36_an_allowed_name_does_not_open_what_is_not_public() {
    let canary = Server::echo(b"");
    let port = canary.port();
    let zone = Zone::of(&[
        ("loop.test", &["127.0.0.1", "::1", "::ffff:127.0.0.1"]),
        ("metadata.test", &["169.254.169.254", "fd00:ec2::254"]),
        ("private.test", &["10.0.0.1", "192.168.1.1", "172.17.0.1"]),
        ("nat.test", &["64:ff9b::7f00:1", "2002:7f00:1::"]),
        ("rebinding.test", &["10.0.0.1"]),
        ("rebinding.test", &["127.0.0.1"]),
    ]);
    let entries = [format!("*.test:{port}")];
    let proxy = proxy(&entries, &zone);
    for name in [
        "loop",
        "metadata",
        "private",
        "nat",
        "rebinding",
        "rebinding",
    ] {
        let host = format!("{name}.test");
        assert_eq!(ask(&proxy, &host, port).await.0, RESERVED, "{host}");
    }
    // Each connection asks once: there is no second answer to go to.
    assert_eq!(zone.questions.load(Ordering::SeqCst), 6);
    let reserved = proxy.denials();
    assert!(
        reserved
            .iter()
            .all(|denial| denial.kind == DenialKind::Reserved)
    );
    assert_eq!(canary.count(), 0);
}

#[tokio::test]
async fn bc_36_of_several_addresses_the_public_ones_are_tried_and_no_other() {
    let server = Server::echo(b"");
    let port = server.port();
    let zone = Zone::of(&[("mixed.test", &["::1", "127.0.0.1"])]);
    let entries = [format!("mixed.test:{port}"), format!("127.0.0.1:{port}")];
    let proxy = proxy(&entries, &zone);
    drop(connect(&proxy, "mixed.test", port).await);
    assert!(proxy.denials().is_empty());
}

#[tokio::test]
async fn tls_goes_through_for_the_name_that_was_asked_for_only() {
    let server = Server::echo(b"");
    let proxy = for_server(&server);
    let good = hello(Some("a.test"));
    let mut stream = connect(&proxy, "a.test", server.port()).await;
    // Slowly, and with what follows it.
    for byte in &good {
        stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    stream.write_all(b"more").await.unwrap();
    let mut echoed = vec![0; good.len() + 4];
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(echoed, [&good[..], b"more"].concat());
    let before = server.received.lock().unwrap().len();
    for bad in [hello(Some("b.test")), hello(None), vec![22, 3, 1, 0, 1, 2]] {
        let mut stream = connect(&proxy, "a.test", server.port()).await;
        stream.write_all(&bad).await.unwrap();
        assert_eq!(rest(&mut stream).await, "");
    }
    assert_eq!(server.received.lock().unwrap().len(), before);
    let denial = &proxy.denials()[0];
    assert_eq!((denial.kind, denial.count), (DenialKind::OtherName, 3));
    // An address that was listed has no name to ask for.
    let mut stream = connect(&proxy, "127.0.0.1", server.port()).await;
    stream.write_all(&hello(None)).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), 22);
}

#[tokio::test]
async fn bc_34_a_kept_connection_does_not_serve_another_host() {
    let server = Server::web();
    let port = server.port();
    let proxy = for_server(&server);
    let mut stream = connect(&proxy, "a.test", port).await;
    let good = format!("GET /one HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n");
    let bad = format!("GET /two HTTP/1.1\r\nHost: b.test:{port}\r\n\r\n");
    // Pipelined.
    stream
        .write_all(format!("{good}{bad}{good}").as_bytes())
        .await
        .unwrap();
    let answers = rest(&mut stream).await;
    assert!(answers.contains("/one"), "{answers}");
    assert!(answers.contains("403 Forbidden"), "{answers}");
    assert_eq!(answers.matches("HTTP/1.1").count(), 2, "{answers}");
    for bad in [
        format!("GET /two HTTP/1.1\r\nHost: b.test:{port}\r\n\r\n"),
        "GET /two HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(),
        "GET /two HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET /two HTTP/1.1\r\nHost: a.test:{port}\r\nHost: b.test\r\n\r\n"),
        format!("GET http://b.test:{port}/two HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"),
        format!("CONNECT b.test:443 HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"),
        format!("\r\nget /two http/1.1\r\nhost: b.test:{port}\r\n\r\n"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ] {
        let mut stream = connect(&proxy, "a.test", port).await;
        stream.write_all(bad.as_bytes()).await.unwrap();
        let answer = rest(&mut stream).await;
        assert!(!answer.contains("200 OK"), "{bad}: {answer}");
    }
    assert!(!server.got().contains("two"), "{}", server.got());
    assert!(!server.got().contains("b.test"), "{}", server.got());
}

#[tokio::test]
async fn a_server_may_speak_first_and_a_client_may_end_first() {
    let server = Server::echo(b"SSH-2.0-server\r\n");
    let proxy = for_server(&server);
    let mut stream = connect(&proxy, "a.test", server.port()).await;
    let mut greeting = [0; 16];
    stream.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"SSH-2.0-server\r\n");
    stream.write_all(b"SSH-2.0-client\r\n").await.unwrap();
    let big: Vec<u8> = (0..4_000_000u32)
        .map(|number| number.to_le_bytes()[0])
        .collect();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let expected = big.len() + 16;
    let written = tokio::spawn(async move {
        writer.write_all(&big).await.unwrap();
        writer.shutdown().await.unwrap();
        big
    });
    let mut back = Vec::new();
    let read = reader.read_to_end(&mut back);
    timeout(Duration::from_secs(30), read)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(back.len(), expected);
    assert!(back[16..] == written.await.unwrap()[..]);
}

#[tokio::test]
async fn protocols_of_text_that_end_no_line_go_through() {
    let server = Server::echo(b"");
    let proxy = for_server(&server);
    for text in [
        "( 2 ( edit-pipeline ) ",
        "<?xml version='1.0'?><stream:stream ",
    ] {
        let mut stream = connect(&proxy, "a.test", server.port()).await;
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut back = vec![0; text.len()];
        let read = stream.read_exact(&mut back);
        timeout(Duration::from_secs(20), read)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(back, text.as_bytes());
    }
    // A question without the end of its line, as of `finger`.
    let mut stream = connect(&proxy, "a.test", server.port()).await;
    stream.write_all(b"somebody").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(rest(&mut stream).await, "somebody");
    assert!(proxy.denials().is_empty(), "{:?}", proxy.denials());
}

#[tokio::test]
async fn what_may_become_a_request_is_looked_at_after_the_host_has_ended() {
    let server = Server::parting();
    let proxy = for_server(&server);
    let port = server.port();
    let mut stream = connect(&proxy, "a.test", port).await;
    stream.write_all(b"GET /two HT").await.unwrap();
    assert_eq!(rest(&mut stream).await, "bye\n");
    let others = format!("TP/1.1\r\nHost: b.test:{port}\r\n\r\n");
    let _ = stream.write_all(others.as_bytes()).await;
    // It is hung up on.
    let hung_up = async { while stream.write_all(b"more").await.is_ok() {} };
    timeout(Duration::from_secs(20), hung_up).await.unwrap();
    assert_eq!(server.got(), "");
    // Whoever leaves then has not been denied anything.
    let before = proxy.denials();
    let mut stream = connect(&proxy, "a.test", port).await;
    stream.write_all(b"hello").await.unwrap();
    assert_eq!(rest(&mut stream).await, "bye\n");
    drop(stream);
    let heard = async {
        while server.got() != "hello" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), heard).await.unwrap();
    assert_eq!(proxy.denials(), before);
}

#[tokio::test]
async fn peers_that_say_nothing_hold_nobody_up() {
    let server = Server::echo(b"");
    let proxy = for_server(&server);
    let mut silent = Vec::new();
    for _ in 0..300 {
        let (inside, outside) = tokio::io::duplex(64);
        let proxy = Arc::clone(&proxy);
        tokio::spawn(async move { proxy.serve(outside).await });
        silent.push(inside);
    }
    let mut half = Vec::new();
    for _ in 0..50 {
        let mut stream = connect(&proxy, "a.test", server.port()).await;
        stream.write_all(b"GET / HT").await.unwrap();
        half.push(stream);
    }
    let mut stream = connect(&proxy, "a.test", server.port()).await;
    stream.write_all(b"ping\r\n").await.unwrap();
    let mut back = [0; 6];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"ping\r\n");
}
