//! An inside that does what no client does.

use std::time::Duration;

use mini_ork_node::gateway::GatewayLimits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::lane::{CHAT, Lane, MESSAGES, ask, path, plain, quick, read_reply, read_until, until};
use super::upstream::Answer;
use crate::support::{PATIENCE, block_on};

const HIDDEN: &str = "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";

async fn lane() -> Lane {
    Lane::open(MESSAGES, vec![Answer::json(200, plain(MESSAGES))]).await
}

/// Sends `text`, and gives all that comes back until the connection ends.
async fn send(lane: &Lane, text: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(lane.gateway.address()).await.unwrap();
    // A gateway that refuses does not read on.
    let _ = stream.write_all(text).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer))
        .await
        .unwrap();
    answer
}

/// What is no request, or two that one takes for one, is not passed on as any.
#[test]
fn no_request_is_smuggled_past_the_gateway() {
    block_on(async {
        let lane = lane().await;
        let head = lane.head(path(MESSAGES), &[]);
        let body = ask(MESSAGES);
        let (length, chunk) = (body.len(), format!("{:x}\r\n{body}\r\n", body.len()));
        let chunked = format!("{chunk}0\r\n\r\n");
        for request in [
            format!("{head}Content-Length: {length}\r\nContent-Length: 5\r\n\r\n{body}"),
            format!("{head}Content-Length: {length}, 5\r\n\r\n{body}"),
            format!("{head}Content-Length: +{length}\r\n\r\n{body}"),
            format!("{head}Content-Length : {length}\r\n\r\n{body}"),
            format!("{head}Transfer-Encoding: gzip\r\n\r\n{chunked}"),
            format!("{head}Transfer-Encoding: chunked, gzip\r\n\r\n{chunked}"),
            format!("{head}Transfer-Encoding: xchunked\r\n\r\n{chunked}"),
            format!("{head}Transfer-Encoding: chunked\r\n\r\n-5\r\n{chunked}"),
            format!("{head}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n{chunked}"),
            format!("{head}X-Folded: a\r\n b\r\nContent-Length: {length}\r\n\r\n{body}"),
            format!("{head}X\0: a\r\nContent-Length: {length}\r\n\r\n{body}"),
            format!("{head}X: a\rb\r\nContent-Length: {length}\r\n\r\n{body}"),
            format!("{head}Upgrade: h2c\r\nContent-Length: {length}\r\n\r\n{body}"),
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
            "POST /v1/messages\r\n".to_owned(),
            "\u{16}\u{3}\u{1}\u{2}\0".to_owned(),
        ] {
            let answer = send(&lane, request.as_bytes()).await;
            let text = String::from_utf8_lossy(&answer);
            assert!(!text.contains(" 200 "), "{request:?}: {text}");
        }
        assert!(lane.upstream.seen().is_empty());
    });
}

/// What follows a request is judged as one of its own, and of one that has two lengths nothing
/// follows.
#[test]
fn what_is_left_of_a_request_is_judged_by_itself() {
    block_on(async {
        let lane = lane().await;
        let body = ask(MESSAGES);
        let length = body.len().to_string();
        let head = lane.head(path(MESSAGES), &[("Content-Length", &length)]);
        let mut stream = TcpStream::connect(lane.gateway.address()).await.unwrap();
        let request = format!("{head}\r\n{body}{HIDDEN}");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answers = read_until(&mut stream, "HTTP/1.1 421").await;
        assert!(answers.starts_with("HTTP/1.1 200"), "{answers}");

        let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n{HIDDEN}", body.len());
        let length = chunked.len().to_string();
        let lengths = [
            ("Content-Length", length.as_str()),
            ("Transfer-Encoding", "chunked"),
        ];
        let head = lane.head(path(MESSAGES), &lengths);
        let mut stream = TcpStream::connect(lane.gateway.address()).await.unwrap();
        let request = format!("{head}\r\n{chunked}");
        stream.write_all(request.as_bytes()).await.unwrap();
        let reply = read_reply(stream).await;
        assert!(reply.is_ended, "{reply:?}");

        let seen = lane.upstream.seen();
        assert_eq!(seen.len(), 2);
        for seen in seen {
            assert_eq!(seen.target, "/vendor/v1/messages");
            assert_eq!(seen.body, body.as_bytes());
            assert!(!seen.headers.contains_key("transfer-encoding"));
        }
    });
}

#[test]
fn heads_and_chunks_have_a_bound() {
    block_on(async {
        let lane = lane().await;
        let long = "x".repeat(1 << 20);
        let many: String = (0..500)
            .map(|number| format!("X-{number}: a\r\n"))
            .collect();
        let head = lane.head(path(MESSAGES), &[]);
        for request in [
            format!("{head}X: {long}\r\n\r\n"),
            format!("{head}{many}\r\n"),
            format!("POST /{long} HTTP/1.1\r\n\r\n"),
            format!("{head}Transfer-Encoding: chunked\r\n\r\n1;{long}\r\nx\r\n0\r\n\r\n"),
            format!("{head}Transfer-Encoding: chunked\r\n\r\n0\r\nX: {long}\r\n\r\n"),
        ] {
            let answer = send(&lane, request.as_bytes()).await;
            let answer = String::from_utf8_lossy(&answer).into_owned();
            assert!(!answer.contains(" 200 "), "{answer}");
        }
        assert!(lane.upstream.seen().is_empty());
    });
}

/// A lane that opens as many connections as it can holds nobody up but itself, and no more
/// descriptors than it may.
#[test]
fn a_lane_that_hogs_its_gateway_starves_no_other() {
    block_on(async {
        let limits = GatewayLimits {
            max_connections: 4,
            ..quick()
        };
        let answers = || vec![Answer::json(200, plain(CHAT))];
        let hog = Lane::limited(CHAT, answers(), limits).await;
        let other = Lane::open(CHAT, answers()).await;
        let mut half = Vec::new();
        // Fewer than may wait to be accepted.
        for _ in 0..100 {
            let mut stream = TcpStream::connect(hog.gateway.address()).await.unwrap();
            stream.write_all(b"POST /v1/chat/comp").await.unwrap();
            half.push(stream);
        }
        let address = hog.gateway.address();
        until("four connections", || accepted(address) >= 4).await;
        for _ in 0..20 {
            assert_eq!(other.ask().await.status, 200);
        }
        assert_eq!(accepted(address), 4);

        // Whoever waits is served when there is room.
        let mut waiting = hog.begin().await;
        drop(half);
        read_until(&mut waiting, "HTTP/1.1 200").await;
        let closing = tokio::time::timeout(Duration::from_secs(20), hog.gateway.close()).await;
        assert_eq!(closing.unwrap().calls, 1);
    });
}

/// How many descriptors of this process are connections that a gateway at `address` accepted.
fn accepted(address: std::net::SocketAddr) -> usize {
    let directory = fs_err::read_dir("/proc/self/fd").unwrap();
    let links = directory.filter_map(|entry| fs_err::read_link(entry.ok()?.path()).ok());
    let own: Vec<String> = links.map(|link| link.display().to_string()).collect();
    let table = fs_err::read_to_string("/proc/self/net/tcp").unwrap();
    let local = format!("0100007F:{:04X}", address.port());
    table
        .lines()
        .filter(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.get(1) == Some(&local.as_str())
                && fields.get(3) == Some(&"01")
                && fields
                    .get(9)
                    .is_some_and(|inode| own.contains(&format!("socket:[{inode}]")))
        })
        .count()
}

#[test]
fn a_request_that_never_ends_is_ended() {
    block_on(async {
        let limits = GatewayLimits {
            stall: Duration::from_millis(200),
            ..quick()
        };
        let lane = Lane::limited(MESSAGES, vec![Answer::json(200, plain(MESSAGES))], limits).await;
        for framing in ["Content-Length: 9999", "Transfer-Encoding: chunked"] {
            let head = lane.head(path(MESSAGES), &[]);
            let mut stream = TcpStream::connect(lane.gateway.address()).await.unwrap();
            let request = format!("{head}Connection: close\r\n{framing}\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            assert_eq!(read_reply(stream).await.status, 408, "{framing}");
        }
        assert!(lane.upstream.seen().is_empty());
    });
}
