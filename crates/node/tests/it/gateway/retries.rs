//! What is tried again, and what is not.

use std::time::{Duration, Instant};

use mini_ork_node::gateway::{GatewayLimits, RetryPolicy};
use mini_ork_node::model::{CallFailure, FailureClass, Refusal};

use super::lane::{
    APIS, CHAT, DEALT, Lane, MESSAGES, RESPONSES, events, plain, quick, until, whole,
};
use super::upstream::{Answer, Step};
use crate::support::block_on;

fn busy() -> Answer {
    Answer::json(
        529,
        r#"{"error":{"type":"overloaded_error","message":"busy"}}"#,
    )
}

#[test]
fn what_may_pass_is_tried_again_and_each_try_is_on_record() {
    block_on(async {
        for api in APIS {
            let answers = vec![
                busy(),
                Answer::new(502, "text/html", "<html>"),
                Answer::stream(&whole(api)),
            ];
            let lane = Lane::open(api, answers).await;
            let reply = lane.ask().await;
            assert_eq!((reply.status, reply.body), (200, whole(api)));
            let calls = lane.recorded(3).await;
            let classes: Vec<_> = calls
                .iter()
                .map(|call| call.failure.as_ref().map(|failure| failure.class))
                .collect();
            assert_eq!(
                classes,
                [
                    Some(FailureClass::Capacity),
                    Some(FailureClass::Server),
                    None
                ]
            );
            let usages: Vec<_> = calls.iter().map(|call| call.usage).collect();
            assert_eq!(usages, [None, None, Some(DEALT)]);
            assert!(calls.iter().all(|call| call.complete));
            assert_eq!(lane.book.admitted(), 3);
            let report = lane.report();
            assert_eq!((report.calls, report.failure), (1, None));
            let seen = lane.upstream.seen();
            assert_eq!(seen.len(), 3);
            assert_eq!(seen[0].body, seen[2].body);
        }
    });
}

#[test]
fn the_last_try_ends_it_with_a_sentence() {
    block_on(async {
        let lane = Lane::open(MESSAGES, vec![busy()]).await;
        let reply = lane.ask().await;
        assert_eq!(reply.status, 400);
        assert!(!reply.body.contains("busy"), "{}", reply.body);
        assert_eq!(lane.recorded(3).await.len(), 3);
        let host = lane.upstream.address;
        let failure = lane.report().failure.unwrap();
        assert_eq!(
            failure.message,
            format!("the model API at {host} answered 529: busy (asked 3 times)")
        );
        assert_eq!(failure.class, FailureClass::Capacity);
    });
}

#[test]
fn what_cannot_pass_is_not_tried_again() {
    block_on(async {
        for status in [400, 401, 402, 403, 404, 413, 422, 302] {
            let lane = Lane::open(RESPONSES, vec![Answer::json(status, "{}")]).await;
            assert_eq!(lane.ask().await.status, 400);
            assert_eq!(lane.upstream.seen().len(), 1, "{status}");
            assert_eq!(lane.recorded(1).await.len(), 1);
        }
    });
}

#[test]
fn a_pause_that_the_vendor_asks_for_is_kept_up_to_a_bound() {
    block_on(async {
        let asked = busy().header("retry-after", "0.3");
        let lane = Lane::open(CHAT, vec![asked, Answer::json(200, plain(CHAT))]).await;
        let start = Instant::now();
        assert_eq!(lane.ask().await.status, 200);
        assert!(start.elapsed() >= Duration::from_millis(300));

        let asked = busy().header("retry-after", "11");
        let lane = Lane::open(CHAT, vec![asked, Answer::json(200, plain(CHAT))]).await;
        assert_eq!(lane.ask().await.status, 400);
        assert_eq!(lane.upstream.seen().len(), 1);
    });
}

#[test]
fn an_answer_that_is_none_is_asked_for_again() {
    block_on(async {
        for api in APIS {
            let begun = events(api)[0];
            for bad in [
                Answer::new(200, "text/html", "<html>"),
                Answer::json(200, "{\"not\":"),
                Answer::json(200, "").header("content-encoding", "gzip"),
                Answer::json(200, plain(api)).then(Step::Cut),
                Answer::json(200, r#"{"error":{"type":"server_error"}}"#),
                Answer::json(204, ""),
                Answer::stream(""),
                Answer::stream(": comment\n\n"),
                Answer::stream(": comment\n\n").then(Step::Cut),
                Answer::stream(&begun[..begun.len() - 2]).then(Step::Cut),
                Answer::stream("data: <html>\n\n"),
            ] {
                let shown = format!("{api} {bad:?}");
                let lane = Lane::open(api, vec![bad, Answer::stream(&whole(api))]).await;
                let reply = lane.ask().await;
                assert_eq!((reply.status, reply.body), (200, whole(api)), "{shown}");
                let calls = lane.recorded(2).await;
                let failure = calls[0].failure.as_ref().unwrap();
                assert!(failure.class.is_transient(), "{shown} {failure:?}");
                assert!(!calls[0].complete, "{shown}");
                assert_eq!(calls[1].failure, None);
            }
        }
    });
}

#[test]
fn an_error_that_is_the_first_event_is_asked_for_again() {
    block_on(async {
        let event = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n";
        let answers = vec![Answer::stream(event), Answer::stream(&whole(MESSAGES))];
        let lane = Lane::open(MESSAGES, answers).await;
        assert_eq!(lane.ask().await.body, whole(MESSAGES));
        let failure = lane.recorded(2).await.remove(0).failure.unwrap();
        assert_eq!(failure.class, FailureClass::Capacity);
    });
}

#[test]
fn a_vendor_that_is_not_there_or_says_nothing_is_a_matter_of_the_network() {
    block_on(async {
        let limits = GatewayLimits {
            first_byte: Duration::from_millis(100),
            ..quick()
        };
        let mut silent = Answer::json(200, "");
        silent.is_silent = true;
        let lane = Lane::limited(CHAT, vec![silent], limits).await;
        assert_eq!(lane.ask().await.status, 400);
        for call in lane.recorded(3).await {
            let failure = call.failure.unwrap();
            assert_eq!(failure.class, FailureClass::Network);
            assert!(failure.message.contains("within 0.1 s"), "{failure:?}");
            // It may have thought, and that may cost.
            assert!(!call.complete);
        }
        until("end of the calls", || lane.upstream.open_answers() == 0).await;

        let nobody = super::lane::listener();
        let gone = nobody.local_addr().unwrap();
        drop(nobody);
        let lane = Lane::at(CHAT, gone).await;
        lane.ask().await;
        for call in lane.recorded(3).await {
            let failure = call.failure.unwrap();
            assert_eq!(failure.class, FailureClass::Network);
            assert!(
                failure.message.contains("could not be reached"),
                "{failure:?}"
            );
            assert!(call.complete && call.status.is_none());
        }
    });
}

#[test]
fn a_budget_is_asked_before_each_try() {
    block_on(async {
        let refusal = Refusal {
            class: FailureClass::Budget,
            message: "the run may spend 1.00 USD".to_owned(),
        };
        let lane = Lane::open(MESSAGES, vec![Answer::json(200, plain(MESSAGES))]).await;
        *lane.book.refusal.lock().unwrap() = Some(refusal.clone());
        let reply = lane.ask().await;
        assert_eq!(
            (reply.status, reply.message()),
            (400, refusal.message.clone())
        );
        assert!(lane.upstream.seen().is_empty());
        let expected = CallFailure {
            class: refusal.class,
            message: refusal.message.clone(),
        };
        assert_eq!(lane.report().failure, Some(expected.clone()));

        let retry = RetryPolicy {
            first_delay: Duration::from_millis(300),
            longest_delay: Duration::from_millis(300),
            ..quick().retry
        };
        let limits = GatewayLimits { retry, ..quick() };
        let lane = Lane::limited(MESSAGES, vec![busy()], limits).await;
        let asking = lane.ask();
        let refusing = async {
            until("a try", || lane.book.finished().len() == 1).await;
            *lane.book.refusal.lock().unwrap() = Some(refusal.clone());
        };
        let (reply, ()) = tokio::join!(asking, refusing);
        assert_eq!(reply.message(), refusal.message);
        assert_eq!(lane.upstream.seen().len(), 1);
        assert_eq!(lane.report().failure, Some(expected));
    });
}

#[test]
fn a_client_that_leaves_between_two_tries_ends_them() {
    block_on(async {
        let retry = RetryPolicy {
            attempts: 2,
            longest_retry_after: Duration::from_secs(3600),
            ..quick().retry
        };
        let limits = GatewayLimits { retry, ..quick() };
        let asked = busy().header("retry-after", "3000");
        let lane = Lane::limited(MESSAGES, vec![asked], limits).await;
        let stream = lane.begin().await;
        until("a try", || lane.book.finished().len() == 1).await;
        drop(stream);
        // Its task has to end, or closing waits for it.
        let gateway = lane.gateway.close();
        tokio::time::timeout(Duration::from_secs(20), gateway)
            .await
            .unwrap();
        assert_eq!(lane.upstream.seen().len(), 1);
    });
}
