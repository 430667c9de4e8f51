//! Connections that carry web requests: each request is looked at, to the end.

use std::time::Duration;

use mini_ork_testkit::wait_for;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::proxy::{connect, for_server, rest};
use crate::support::Server;

const LIMIT: Duration = Duration::from_secs(20);

fn change(server: &Server, headers: &str) -> String {
    let port = server.port();
    format!("GET /one HTTP/1.1\r\nHost: a.test:{port}\r\n{headers}\r\n")
}

#[tokio::test]
async fn a_connection_becomes_no_other_protocol_whose_requests_nobody_would_look_at() {
    for headers in [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n",
        "Connection: upgrade\r\nUpgrade: TLS/1.0\r\n",
        "Connection: upgrade\r\nUpgrade: websocket, h2c\r\n",
        "Connection: upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n",
        "Connection: upgrade\r\nUpgrade: websocket/13\r\n",
        "Connection: upgrade\r\n",
        "",
    ] {
        let server = Server::changing(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        );
        let proxy = for_server(&server);
        let mut stream = connect(&proxy, "a.test", server.port()).await;
        let wanted = change(&server, headers);
        let other = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nb.test";
        let _ = stream
            .write_all(format!("{wanted}{other}").as_bytes())
            .await;
        let answer = rest(&mut stream).await;
        assert!(!answer.contains(" 101 "), "{headers}: {answer}");
        let got = server.got().to_lowercase();
        assert!(got.contains("/one"), "{got}");
        for word in ["upgrade", "h2c", "http2-settings", "b.test", "pri *"] {
            assert!(!got.contains(word), "{word} in {got}");
        }
    }
}

#[tokio::test]
async fn a_server_that_changes_to_something_else_than_websocket_is_refused() {
    let server = Server::changing(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    );
    let proxy = for_server(&server);
    let mut stream = connect(&proxy, "a.test", server.port()).await;
    let wanted = change(&server, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    stream.write_all(wanted.as_bytes()).await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
}

#[tokio::test]
async fn websocket_goes_through() {
    let server = Server::changing(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    );
    let proxy = for_server(&server);
    let mut stream = connect(&proxy, "a.test", server.port()).await;
    let headers = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
    stream
        .write_all(change(&server, headers).as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    while !answer.ends_with("\r\n\r\n") {
        let byte = timeout(LIMIT, stream.read_u8()).await.unwrap().unwrap();
        answer.push(char::from(byte));
    }
    assert!(answer.contains(" 101 "), "{answer}");
    for _ in 0..3 {
        stream.write_all(b"\x81\x02hi").await.unwrap();
        let mut back = [0; 4];
        let read = stream.read_exact(&mut back);
        timeout(LIMIT, read).await.unwrap().unwrap();
        assert_eq!(&back, b"\x81\x02hi");
    }
}

#[tokio::test]
async fn a_program_sees_the_end_of_a_connection_that_the_host_ends() {
    let server = Server::hasty();
    let proxy = for_server(&server);
    let port = server.port();
    let mut stream = connect(&proxy, "a.test", port).await;
    let request = format!("GET /one HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    // It comes to its end although the program goes on to hold its own side.
    let answer = rest(&mut stream).await;
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    // Two at once: the second has no answer, and none is invented.
    let mut stream = connect(&proxy, "a.test", port).await;
    stream
        .write_all(format!("{request}{request}").as_bytes())
        .await
        .unwrap();
    let answer = rest(&mut stream).await;
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    wait_for("both", LIMIT, || server.count() == 2);
    assert!(proxy.denials().is_empty());
}
