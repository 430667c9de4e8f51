//! What of the inside reaches the vendor.

use std::sync::Arc;

use mini_ork_node::gateway::{Gateway, GatewayError, Roots};
use mini_ork_node::model::FailureClass;

use super::lane::{
    APIS, Book, CHAT, KEY, Lane, MESSAGES, RESPONSES, ask, exchange, listener, path, plain,
    settings, whole,
};
use super::upstream::{Answer, Upstream};
use crate::support::block_on;

#[test]
fn a_request_arrives_as_it_was_with_the_real_key() {
    block_on(async {
        for (api, target) in [
            (MESSAGES, "/vendor/v1/messages"),
            (CHAT, "/vendor/v1/chat/completions"),
            (RESPONSES, "/vendor/v1/responses"),
        ] {
            let lane = Lane::open(api, vec![Answer::stream(&whole(api))]).await;
            let reply = lane.ask().await;
            assert_eq!((reply.status, &reply.body), (200, &whole(api)));
            assert!(reply.is_ended);
            let seen = lane.upstream.seen();
            let [seen] = &seen[..] else {
                panic!("{seen:?}");
            };
            assert_eq!(
                (seen.method.as_str(), seen.target.as_str()),
                ("POST", target)
            );
            assert_eq!(seen.body, ask(api).as_bytes());
            let header = |name: &str| {
                let value = seen.headers.get(name)?;
                Some(value.to_str().unwrap().to_owned())
            };
            let (key, bearer) = if api == MESSAGES {
                (Some(KEY.to_owned()), None)
            } else {
                (None, Some(format!("Bearer {KEY}")))
            };
            assert_eq!(header("x-api-key"), key);
            assert_eq!(header("authorization"), bearer);
            assert_eq!(
                seen.headers["host"],
                lane.upstream.address.to_string().as_str()
            );
            let planned = lane.book.planned.lock().unwrap().clone();
            assert_eq!(planned[0].model, "m");
            assert_eq!(planned[0].max_output_tokens, Some(7));
            assert_eq!(planned[0].body_bytes, ask(api).len() as u64);
        }
    });
}

#[test]
fn credentials_and_traces_of_the_inside_do_not_reach_the_vendor() {
    block_on(async {
        let lane = Lane::open(MESSAGES, vec![Answer::json(200, plain(MESSAGES))]).await;
        let stripped = [
            ("X-Api-Key", "canary-key"),
            ("Api-Key", "canary"),
            ("X-Goog-Api-Key", "canary"),
            ("Cookie", "canary=1"),
            ("Proxy-Authorization", "Basic canary"),
            ("Proxy-Canary", "canary"),
            ("Forwarded", "for=canary"),
            ("X-Forwarded-For", "canary"),
            ("X-Forwarded-Host", "canary.example"),
            ("X-Real-IP", "canary"),
            ("Openai-Organization", "canary"),
            ("X-Original-URL", "/canary"),
            ("X-HTTP-Method-Override", "CANARY"),
            ("Via", "1.1 canary"),
            ("X-Custom", lane.placeholder.expose()),
            ("Connection", "X-Hop"),
            ("X-Hop", "canary"),
            ("Keep-Alive", "timeout=canary"),
            ("TE", "canary"),
            ("Expect", "100-continue"),
            ("Accept-Encoding", "gzip, br, zstd"),
        ];
        let passed = [
            ("Anthropic-Version", "2023-06-01"),
            ("Anthropic-Beta", "a,b"),
            ("User-Agent", "claude-cli/2.1.197 (external, sdk-cli)"),
            ("X-Stainless-Lang", "js"),
            ("Content-Type", "application/json"),
        ];
        let all = [&stripped[..], &passed].concat();
        let head = lane.head("/v1/messages?key=canary&beta=true&token=canary", &all);
        let reply = exchange(lane.gateway.address(), &head, ask(MESSAGES).as_bytes()).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let seen = lane.upstream.seen().remove(0);
        assert_eq!(seen.target, "/vendor/v1/messages?beta=true");
        assert_eq!(seen.headers["x-api-key"], KEY);
        assert_eq!(seen.headers["accept-encoding"], "identity");
        for (name, value) in passed {
            assert_eq!(seen.headers[name], value, "{name}");
        }
        let shown = format!("{seen:?}");
        assert!(!shown.contains("canary"), "{shown}");
        assert!(!shown.contains(lane.placeholder.expose()), "{shown}");
        for (name, _) in stripped {
            let is_set = ["X-Api-Key", "Accept-Encoding"].contains(&name);
            assert_eq!(seen.headers.contains_key(name), is_set, "{name}");
        }
    });
}

#[test]
fn other_hosts_paths_and_schemes_are_refused_here() {
    block_on(async {
        let lane = Lane::open(CHAT, vec![Answer::json(200, plain(CHAT))]).await;
        let elsewhere = Upstream::plain(vec![Answer::json(200, plain(CHAT))]).await;
        let own = lane.gateway.address().to_string();
        let other = elsewhere.address.to_string();
        let bearer = lane.bearer();
        let path = path(CHAT);
        for (status, line, host) in [
            (421, format!("POST http://{other}{path}"), &other),
            (421, format!("POST http://{own}{path}"), &own),
            (421, format!("POST https://{own}{path}"), &own),
            (421, format!("CONNECT {other}"), &other),
            (421, format!("POST {path}"), &other),
            (421, format!("POST {path}"), &"api.example.com".to_owned()),
            (404, "POST /v1/models".to_owned(), &own),
            (404, "POST /v1/messages".to_owned(), &own),
            (404, format!("POST /vendor{path}"), &own),
            (404, "POST /v1/chat/../chat/completions".to_owned(), &own),
            (404, "POST /v1/chat%2fcompletions".to_owned(), &own),
            (404, format!("POST /{path}"), &own),
            (404, "GET /v1/models".to_owned(), &own),
            (404, "OPTIONS *".to_owned(), &own),
            (405, format!("GET {path}"), &own),
            (405, format!("DELETE {path}"), &own),
        ] {
            let head = format!("{line} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {bearer}\r\n");
            let reply = exchange(lane.gateway.address(), &head, ask(CHAT).as_bytes()).await;
            assert_eq!(reply.status, status, "{line} {host}: {}", reply.body);
            assert!(!reply.message().is_empty());
        }
        let upgrade = lane.head(path, &[("Connection", "Upgrade"), ("Upgrade", "websocket")]);
        let reply = exchange(lane.gateway.address(), &upgrade, b"").await;
        assert_eq!(reply.status, 426);
        assert!(lane.upstream.seen().is_empty() && elsewhere.seen().is_empty());
        assert_eq!(lane.book.admitted(), 0);
        assert_eq!(lane.report().calls, 0);
    });
}

#[test]
fn bc_47_a_placeholder_is_good_for_its_own_gateway_while_that_is_open() {
    block_on(async {
        let lane = Lane::open(MESSAGES, vec![Answer::json(200, plain(MESSAGES))]).await;
        let sibling = Lane::open(MESSAGES, vec![Answer::json(200, plain(MESSAGES))]).await;
        let address = lane.gateway.address();
        let with = |token: &str| {
            format!("POST /v1/messages HTTP/1.1\r\nHost: {address}\r\nX-Api-Key: {token}\r\n")
        };
        for token in ["", "x", KEY, sibling.placeholder.expose()] {
            let reply = exchange(address, &with(token), ask(MESSAGES).as_bytes()).await;
            assert_eq!(reply.status, 401, "{token}");
        }
        let greeting = format!("HEAD / HTTP/1.1\r\nHost: {address}\r\n");
        assert_eq!(exchange(address, &greeting, b"").await.status, 200);
        assert!(lane.upstream.seen().is_empty());
        assert_eq!(lane.ask().await.status, 200);

        let placeholder = lane.placeholder.clone();
        let report = lane.gateway.close().await;
        assert_eq!((report.calls, report.failure), (1, None));
        assert!(tokio::net::TcpStream::connect(address).await.is_err());
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\n",
            sibling.gateway.address(),
            placeholder.expose()
        );
        let reply = exchange(sibling.gateway.address(), &head, b"{}").await;
        assert_eq!(reply.status, 401);
        assert!(sibling.upstream.seen().is_empty());
    });
}

#[test]
fn what_cannot_be_judged_is_not_sent() {
    block_on(async {
        let lane = Lane::open(CHAT, vec![Answer::json(200, plain(CHAT))]).await;
        let path = path(CHAT);
        for body in ["", "no", "[]", "{}", r#"{"model":"a","model":"b"}"#] {
            let reply = lane.post(path, body).await;
            assert_eq!(reply.status, 400, "{body}");
        }
        let encoded = lane.head(path, &[("Content-Encoding", "zstd")]);
        let reply = exchange(lane.gateway.address(), &encoded, b"xyz").await;
        assert_eq!(reply.status, 415);
        let long = format!("{{\"model\":\"m\",\"x\":\"{}\"}}", "x".repeat(1 << 20));
        assert_eq!(lane.post(path, &long).await.status, 413);
        let head = lane.head(path, &[("Transfer-Encoding", "chunked")]);
        let chunked = format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len());
        let head = format!("{head}Connection: close\r\n\r\n{chunked}");
        let reply = raw(lane.gateway.address(), &head).await;
        assert_eq!(reply.status, 413);
        assert!(lane.upstream.seen().is_empty());
        assert_eq!(lane.book.admitted(), 0);
        let failure = lane.report().failure.unwrap();
        assert_eq!(failure.class, FailureClass::Request);

        let head = lane.head(path, &[("Transfer-Encoding", "chunked")]);
        let head = format!(
            "{head}Connection: close\r\n\r\n3\r\n{{\"m\r\na\r\nodel\":\"m\"}}\r\n0\r\n\r\n"
        );
        assert_eq!(raw(lane.gateway.address(), &head).await.status, 200);
        assert_eq!(lane.upstream.seen()[0].body, br#"{"model":"m"}"#);
    });
}

async fn raw(address: std::net::SocketAddr, text: &str) -> super::lane::Reply {
    use tokio::io::AsyncWriteExt as _;
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(text.as_bytes()).await;
    super::lane::read_reply(stream).await
}

#[test]
fn an_unmetered_chat_stream_is_made_to_tell_its_usage() {
    block_on(async {
        let lane = Lane::open(CHAT, vec![Answer::stream(&whole(CHAT))]).await;
        lane.post(path(CHAT), r#"{"model":"m", "stream":true}"#)
            .await;
        assert_eq!(
            lane.upstream.seen()[0].body,
            br#"{"model":"m", "stream":true,"stream_options":{"include_usage":true}}"#
        );
    });
}

#[test]
fn counting_tokens_costs_nothing_and_proves_nothing() {
    block_on(async {
        let count = "/v1/messages/count_tokens";
        let answers = vec![
            Answer::json(
                400,
                r#"{"type":"error","error":{"type":"billing_error","message":"m"}}"#,
            ),
            Answer::json(200, r#"{"input_tokens":99}"#),
            Answer::json(404, "{}"),
        ];
        let lane = Lane::open(MESSAGES, answers).await;
        assert_eq!(lane.ask().await.status, 400);
        assert_eq!(lane.post(count, ask(MESSAGES)).await.status, 200);
        let finished = lane.recorded(2).await;
        assert_eq!(
            finished[1].usage,
            Some(mini_ork_node::model::TokenUsage::default())
        );
        assert!(finished[1].complete);
        assert_eq!(lane.post(count, ask(MESSAGES)).await.status, 400);
        let failure = lane.report().failure.unwrap();
        assert_eq!(failure.class, FailureClass::Quota);
        assert_eq!(
            lane.upstream.seen()[1].target,
            "/vendor/v1/messages/count_tokens"
        );
    });
}

#[test]
fn a_vendor_is_who_its_certificate_says() {
    block_on(async {
        for api in APIS {
            let vendor = Upstream::tls(vec![Answer::stream(&whole(api))], "localhost").await;
            let url = |host: &str| {
                let base = format!("https://{host}:{}", vendor.address.port());
                if api == MESSAGES {
                    base
                } else {
                    format!("{base}/v1")
                }
            };
            let known = Roots {
                system: false,
                extra_pem: vendor.authority.clone(),
            };
            let stranger = Upstream::tls(vec![], "localhost").await;
            let unknown = Roots {
                system: false,
                extra_pem: stranger.authority.clone(),
            };
            for (host, roots, status) in [
                ("localhost", &known, 200),
                ("127.0.0.1", &known, 400),
                ("localhost", &unknown, 400),
            ] {
                let settings = settings(api, &url(host), roots.clone());
                let head = format!("X-Api-Key: {}\r\n", settings.placeholder.expose());
                let book = Arc::new(Book::default());
                let gateway = Gateway::open(listener(), settings, Arc::<Book>::clone(&book))
                    .await
                    .unwrap();
                let address = gateway.address();
                let head = format!("POST {} HTTP/1.1\r\nHost: {address}\r\n{head}", path(api));
                let reply = exchange(address, &head, ask(api).as_bytes()).await;
                assert_eq!(reply.status, status, "{host} {}", reply.body);
                // A certificate that is wrong is not asked for again.
                let finished = book.finished();
                assert_eq!(finished.len(), 1);
                if status == 400 {
                    let failure = gateway.report().failure.unwrap();
                    assert!(failure.message.contains("certificate"), "{failure:?}");
                    assert_eq!(failure.class, FailureClass::Network);
                    assert!(finished[0].complete && finished[0].usage.is_none());
                }
            }
            assert_eq!(vendor.seen().len(), 1);
        }
    });
}

#[test]
fn a_gateway_that_could_not_keep_its_promise_does_not_open() {
    block_on(async {
        let roots = |pem: Option<&std::path::Path>| Roots {
            system: false,
            extra_pem: pem.map(std::path::Path::to_owned),
        };
        let open = async |listener, roots, url: &str| {
            let book = Arc::new(Book::default());
            Gateway::open(listener, settings(CHAT, url, roots), book)
                .await
                .unwrap_err()
        };
        let everywhere = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let error = open(everywhere, roots(None), "http://127.0.0.1:1/v1").await;
        assert!(matches!(error, GatewayError::NotLoopback(_)), "{error:?}");
        let error = open(listener(), roots(None), "https://localhost:1/v1").await;
        assert!(matches!(error, GatewayError::Roots(_)), "{error:?}");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("authority.pem");
        let error = open(listener(), roots(Some(&file)), "https://localhost:1/v1").await;
        assert!(matches!(error, GatewayError::Roots(_)), "{error:?}");
        fs_err::write(&file, "no certificate").unwrap();
        let error = open(listener(), roots(Some(&file)), "https://localhost:1/v1").await;
        assert!(matches!(error, GatewayError::Roots(_)), "{error:?}");
    });
}
