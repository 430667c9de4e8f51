//! What comes back to the inside.

use base64::Engine as _;
use mini_ork_node::model::FailureClass;

use super::lane::{APIS, CHAT, DEALT, KEY, Lane, MESSAGES, plain, whole};
use super::upstream::Answer;
use crate::support::block_on;

#[test]
fn every_answer_is_counted_to_the_token() {
    block_on(async {
        for api in APIS {
            let answers = vec![Answer::json(200, plain(api)), Answer::stream(&whole(api))];
            let lane = Lane::open(api, answers).await;
            for expected in [plain(api), &whole(api)] {
                let reply = lane.ask().await;
                assert_eq!((reply.status, reply.body.as_str()), (200, expected));
                assert!(reply.is_ended);
            }
            for call in lane.recorded(2).await {
                assert_eq!((call.usage, call.complete), (Some(DEALT), true), "{api}");
                assert_eq!((call.failure, call.status), (None, Some(200)));
                assert!(call.started_at_ms > 1_700_000_000_000);
            }
            let report = lane.report();
            assert_eq!((report.calls, report.failure), (2, None));
        }
    });
}

#[test]
fn an_answer_without_a_count_has_an_unknown_one() {
    block_on(async {
        let lane = Lane::open(CHAT, vec![Answer::json(200, r#"{"choices":[]}"#)]).await;
        assert_eq!(lane.ask().await.status, 200);
        let call = lane.recorded(1).await.remove(0);
        assert_eq!(
            (call.usage, call.complete, call.failure),
            (None, false, None)
        );
    });
}

/// The key as a vendor may repeat it.
fn echoes() -> Vec<String> {
    let engine = base64::engine::general_purpose::STANDARD;
    let quoted = |text: &str| serde_json::to_string(text).unwrap();
    let bare = |text: &str| text[1..text.len() - 1].to_owned();
    vec![
        bare(&quoted(KEY)),
        bare(&quoted(&quoted(KEY))),
        engine.encode(KEY),
        engine.encode(format!("user:{KEY}")),
        "sk-SENTINEL%2F%2Bkey%229%22%26%3D~".to_owned(),
    ]
}

fn assert_clean(text: &str, context: &str) {
    for part in ["SENTINEL", "2Vy", "U0VOVElORU", "NFTlRJTkVM", "TRU5USU5FT"] {
        assert!(!text.contains(part), "{context}: {text}");
    }
}

#[test]
fn bc_43_a_vendor_that_repeats_the_key_is_not_heard() {
    block_on(async {
        for echo in echoes() {
            let body = format!(r#"{{"error":{{"message":"no such key: {echo}!"}}}}"#);
            let refused = Answer::json(401, &body).header("x-echo", &echo);
            let page = Answer::new(200, "text/html", &format!("<p>{echo}")).header("x-echo", &echo);
            let good = format!(r#"{{"choices":[],"echo":"{echo}"}}"#);
            let good = Answer::json(200, &good)
                .header("x-echo", &echo)
                .header("x-fine", "1");
            let event = format!("data: {{\"choices\":[],\"echo\":\"{echo}\"}}\n\n");
            // Byte by byte, so that no piece has the key.
            let stream = event
                .bytes()
                .fold(Answer::stream(""), |answer, byte| {
                    answer.send(std::str::from_utf8(&[byte]).unwrap())
                })
                .header("x-echo", &echo)
                .header("x-fine", "1")
                .send(&whole(CHAT));
            for (answer, status) in [(refused, 400), (page, 400), (good, 200), (stream, 200)] {
                let lane = Lane::open(CHAT, vec![answer]).await;
                let reply = lane.ask().await;
                assert_eq!(reply.status, status, "{echo} {}", reply.body);
                assert_clean(&reply.head, &echo);
                assert_clean(&reply.body, &echo);
                if status == 200 {
                    assert_eq!(reply.header("x-fine"), Some("1"));
                    assert!(reply.body.contains("***"), "{}", reply.body);
                }
                let report = format!("{:?} {:?} {:?}", lane.report(), lane.book, lane.gateway);
                assert_clean(&report, &echo);
            }
        }
    });
}

#[test]
fn bc_43_what_is_kept_of_an_error_holds_no_half_of_the_key() {
    block_on(async {
        for length in 300..420 {
            let message = format!("{}{KEY}", "x".repeat(length));
            let body = serde_json::json!({ "error": { "message": message } }).to_string();
            let lane = Lane::open(CHAT, vec![Answer::json(401, &body)]).await;
            let reply = lane.ask().await;
            assert!(!reply.body.contains("sk-S"), "{length}: {}", reply.body);
            assert!(reply.message().chars().count() < 500);
        }
    });
}

#[test]
fn a_redirect_is_not_followed() {
    block_on(async {
        for status in [301, 302, 303, 307, 308] {
            let elsewhere =
                super::upstream::Upstream::plain(vec![Answer::json(200, plain(MESSAGES))]).await;
            let location = format!("http://{}/v1/messages", elsewhere.address);
            let answer = Answer::json(status, "{}").header("location", &location);
            let lane = Lane::open(MESSAGES, vec![answer]).await;
            let reply = lane.ask().await;
            assert_eq!(reply.status, 400);
            assert_eq!(reply.header("location"), None);
            assert!(
                reply.message().contains("not followed"),
                "{}",
                reply.message()
            );
            assert!(elsewhere.seen().is_empty());
            assert_eq!(lane.upstream.seen().len(), 1);
        }
    });
}

#[test]
fn cookies_and_hints_of_the_vendor_stay_outside() {
    block_on(async {
        let answer = Answer::json(200, plain(MESSAGES))
            .header("set-cookie", "a=b")
            .header("alt-svc", "h3=\":443\"")
            .header("connection", "x-hop")
            .header("x-hop", "1")
            .header("request-id", "r1");
        let lane = Lane::open(MESSAGES, vec![answer]).await;
        let reply = lane.ask().await;
        assert_eq!(reply.header("request-id"), Some("r1"));
        assert_eq!(reply.header("content-type"), Some("application/json"));
        for name in ["set-cookie", "alt-svc", "x-hop"] {
            assert_eq!(reply.header(name), None, "{name}");
        }
    });
}

#[test]
fn a_final_failure_is_a_mistake_of_the_client_in_its_own_words() {
    block_on(async {
        for (status, body, class) in [
            (
                401,
                r#"{"error":{"message":"bad\nkey \u001b[31m"}}"#,
                FailureClass::Auth,
            ),
            (402, "{}", FailureClass::Quota),
            (403, "<html>", FailureClass::Auth),
            (
                404,
                r#"{"error":{"message":"no such model"}}"#,
                FailureClass::Request,
            ),
            (
                429,
                r#"{"error":{"code":"insufficient_quota"}}"#,
                FailureClass::Quota,
            ),
            (
                400,
                r#"{"error":{"code":"content_policy_violation"}}"#,
                FailureClass::Safety,
            ),
        ] {
            for api in APIS {
                let lane = Lane::open(api, vec![Answer::json(status, body)]).await;
                let reply = lane.ask().await;
                assert_eq!(reply.status, 400);
                let told = reply.message();
                let host = lane.upstream.address.to_string();
                assert_eq!(
                    reply.body.starts_with(r#"{"type":"error""#),
                    api == MESSAGES
                );
                assert!(reply.body.contains("invalid_request_error"));
                let call = lane.recorded(1).await.remove(0);
                let failure = call.failure.unwrap();
                let message = &failure.message;
                assert!(message.contains(&host) && message.contains(&status.to_string()));
                assert!(!message.contains(['\n', '\u{1b}']), "{message:?}");
                // The words of a vendor who has none to spare make clients ask again.
                let short = message.replace(&format!(" at {host}"), "");
                assert_eq!(told == short, class != FailureClass::Quota, "{told}");
                assert_eq!((failure.class, call.usage), (class, None));
                assert_eq!((call.status, call.complete), (Some(status), true));
                assert_eq!(lane.report().failure, Some(failure));
            }
        }
    });
}
