//! Streams while they run.

use std::sync::Arc;
use std::time::Duration;

use mini_ork_node::gateway::GatewayLimits;
use mini_ork_node::model::{FailureClass, TokenUsage};
use tokio::io::AsyncReadExt as _;
use tokio::sync::Notify;

use super::lane::{
    APIS, CHAT, DEALT, Lane, MESSAGES, RESPONSES, Reply, events, quick, read_until, until, whole,
};
use super::upstream::{Answer, Step};
use crate::support::block_on;

#[test]
fn events_pass_as_they_come() {
    block_on(async {
        for api in APIS {
            let gate = Arc::new(Notify::new());
            let mut answer = Answer::stream("");
            for event in events(api) {
                answer = answer.send(event).then(Step::Wait(Arc::clone(&gate)));
            }
            let lane = Lane::open(api, vec![answer]).await;
            let mut stream = lane.begin().await;
            for event in events(api) {
                // The vendor sends the next one only after this one has arrived.
                read_until(&mut stream, event).await;
                gate.notify_one();
            }
            read_until(&mut stream, "0\r\n\r\n").await;
            let call = lane.recorded(1).await.remove(0);
            assert_eq!((call.usage, call.complete), (Some(DEALT), true));
        }
    });
}

/// What each API's clients take for a failure that is not tried again.
const FAILURES: [&str; 3] = [
    "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",",
    "data: {\"error\":{\"message\":",
    "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{",
];

#[test]
fn a_stream_that_breaks_off_ends_with_an_event_and_a_cut() {
    block_on(async {
        for (api, failed) in APIS.into_iter().zip(FAILURES) {
            let begun = events(api)[0];
            let half = &events(api)[1][..20];
            for answer in [
                Answer::stream(begun),
                Answer::stream(begun).then(Step::Cut),
                Answer::stream(begun).send(half),
                Answer::stream(begun).send(half).then(Step::Cut),
                Answer::stream(begun)
                    .send("data: {\"broken\n\n")
                    .then(Step::Stall),
            ] {
                let shown = format!("{api} {answer:?}");
                let lane = Lane::open(api, vec![answer]).await;
                let reply = lane.ask().await;
                assert_eq!(reply.status, 200);
                assert!(reply.body.starts_with(begun), "{shown}: {}", reply.body);
                assert!(reply.body.contains(failed), "{shown}: {}", reply.body);
                assert!(reply.body.ends_with("}\n\n"), "{shown}: {}", reply.body);
                assert!(!reply.is_ended, "{shown}");
                let call = lane.recorded(1).await.remove(0);
                assert_eq!(call.failure.unwrap().class, FailureClass::Stream);
                assert!(!call.complete);
                let dealt = (api == MESSAGES).then_some(TokenUsage { output: 1, ..DEALT });
                assert_eq!(call.usage, dealt, "{shown}");
                // It is told the client and not tried again: parts were passed on.
                assert_eq!(lane.upstream.seen().len(), 1);
            }
        }
    });
}

#[test]
fn a_stream_that_stalls_is_ended() {
    block_on(async {
        for api in APIS {
            let limits = GatewayLimits {
                stall: Duration::from_millis(150),
                ..quick()
            };
            let answer = Answer::stream(events(api)[0]).then(Step::Stall);
            let lane = Lane::limited(api, vec![answer], limits).await;
            let reply = lane.ask().await;
            assert!(reply.body.contains("gave this call up"), "{}", reply.body);
            assert!(!reply.is_ended);
            until("end of the call", || lane.upstream.open_answers() == 0).await;
            let failure = lane.recorded(1).await.remove(0).failure.unwrap();
            assert_eq!(failure.class, FailureClass::Stream);
            assert!(failure.message.contains("sent nothing for 0.15 s"));
        }
    });
}

#[test]
fn a_whole_answer_is_whole_whatever_its_connection_does_then() {
    block_on(async {
        for api in APIS {
            for step in [Step::Cut, Step::Stall] {
                let answer = Answer::stream(&whole(api)).then(step);
                let lane = Lane::open(api, vec![answer]).await;
                let reply = lane.ask().await;
                assert_eq!((reply.body, reply.is_ended), (whole(api), true));
                let call = lane.recorded(1).await.remove(0);
                assert_eq!((call.usage, call.complete), (Some(DEALT), true));
                assert_eq!(call.failure, None);
            }
        }
        let without_done = events(CHAT)[..3].concat();
        let lane = Lane::open(CHAT, vec![Answer::stream(&without_done)]).await;
        assert!(lane.ask().await.is_ended);
        assert_eq!(lane.recorded(1).await[0].usage, Some(DEALT));
    });
}

#[test]
fn a_chat_without_a_reason_is_not_passed_on_as_whole() {
    block_on(async {
        let text = format!("{}data: [DONE]\n\n", events(CHAT)[0]);
        let lane = Lane::open(CHAT, vec![Answer::stream(events(CHAT)[0]).send(&text)]).await;
        let reply = lane.ask().await;
        assert!(!reply.body.contains("[DONE]"), "{}", reply.body);
        assert!(!reply.is_ended);
        let failure = lane.recorded(1).await.remove(0).failure.unwrap();
        assert!(failure.message.contains("without a finish reason"));
    });
}

#[test]
fn an_error_event_of_the_vendor_passes_and_is_a_failure() {
    block_on(async {
        let failed = "data: {\"type\":\"response.failed\",\"response\":{\"usage\":{\"input_tokens\":15,\"input_tokens_details\":{\"cached_tokens\":5},\"output_tokens\":42},\"error\":{\"code\":\"insufficient_quota\",\"message\":\"no money\"}}}\n\n";
        let lane = Lane::open(
            RESPONSES,
            vec![Answer::stream(events(RESPONSES)[0]).send(failed)],
        )
        .await;
        let reply = lane.ask().await;
        assert_eq!(reply.body, format!("{}{failed}", events(RESPONSES)[0]));
        let call = lane.recorded(1).await.remove(0);
        assert_eq!((call.usage, call.complete), (Some(DEALT), true));
        let failure = call.failure.unwrap();
        assert_eq!(failure.class, FailureClass::Quota);
        assert!(failure.message.contains("no money"));
        assert_eq!(lane.report().failure, Some(failure));
    });
}

#[test]
fn broken_streams_in_a_row_end_a_client_that_asks_for_ever() {
    block_on(async {
        let lane = Lane::open(CHAT, vec![Answer::stream(events(CHAT)[0])]).await;
        for _ in 0..3 {
            assert_eq!(lane.ask().await.status, 200);
        }
        for _ in 0..5 {
            let reply = lane.ask().await;
            assert_eq!(reply.status, 400);
            assert!(reply.message().contains("broke off"), "{}", reply.message());
        }
        assert_eq!(lane.upstream.seen().len(), 3);
        assert_eq!(lane.report().calls, 3);
        assert_eq!(lane.report().failure.unwrap().class, FailureClass::Stream);
    });
}

#[test]
fn a_client_that_leaves_ends_the_call() {
    block_on(async {
        for api in APIS {
            let mut silent = Answer::json(200, "");
            silent.is_silent = true;
            let begun = Answer::stream(events(api)[0]).then(Step::Stall);
            let unfinished = Answer::json(200, "{").then(Step::Stall);
            for answer in [silent, begun.clone(), unfinished] {
                let is_begun = format!("{answer:?}") == format!("{begun:?}");
                let lane = Lane::open(api, vec![answer]).await;
                let mut stream = lane.begin().await;
                until("a call", || lane.upstream.open_answers() == 1).await;
                if is_begun {
                    read_until(&mut stream, events(api)[0]).await;
                }
                drop(stream);
                until("end of the call", || lane.upstream.open_answers() == 0).await;
                let call = lane.recorded(1).await.remove(0);
                assert!(call.failure.unwrap().message.contains("the agent left"));
                assert!(!call.complete);
                // That is not the vendor's failure.
                assert_eq!(lane.report().failure, None);
            }
        }
    });
}

#[test]
fn who_leaves_with_the_whole_answer_has_not_failed() {
    block_on(async {
        for api in APIS {
            let answer = Answer::stream(&whole(api)).then(Step::Stall);
            let lane = Lane::open(api, vec![answer]).await;
            let mut stream = lane.begin().await;
            read_until(&mut stream, events(api).last().unwrap()).await;
            drop(stream);
            let call = lane.recorded(1).await.remove(0);
            assert_eq!((call.usage, call.failure), (Some(DEALT), None));
        }
    });
}

#[test]
fn closing_ends_every_call_and_puts_it_on_record() {
    block_on(async {
        let answer = Answer::stream(events(MESSAGES)[0]).then(Step::Stall);
        let lane = Lane::open(MESSAGES, vec![answer]).await;
        let mut streams = Vec::new();
        for _ in 0..5 {
            let mut stream = lane.begin().await;
            read_until(&mut stream, "message_start").await;
            streams.push(stream);
        }
        let report = lane.gateway.close().await;
        assert_eq!(report.calls, 5);
        let calls = lane.book.finished();
        assert_eq!(calls.len(), 5);
        assert!(calls.iter().all(|call| call.failure.is_some()));
        until("end of the calls", || lane.upstream.open_answers() == 0).await;
        for mut stream in streams {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            assert!(!rest.ends_with(b"0\r\n\r\n"));
        }
    });
}

#[test]
fn dropping_ends_every_call() {
    block_on(async {
        let answer = Answer::stream(events(MESSAGES)[0]).then(Step::Stall);
        let lane = Lane::open(MESSAGES, vec![answer]).await;
        let mut stream = lane.begin().await;
        read_until(&mut stream, "message_start").await;
        let address = lane.gateway.address();
        drop(lane.gateway);
        until("end of the call", || lane.upstream.open_answers() == 0).await;
        let reply = tokio::net::TcpStream::connect(address).await;
        assert!(reply.is_err());
    });
}

#[test]
fn a_slow_reader_costs_no_memory_and_holds_nobody_up() {
    block_on(async {
        const PIECES: usize = 2048;
        let begun = events(MESSAGES)[0];
        let flood = Answer::stream(begun)
            .then(Step::Flood(PIECES))
            .send(&events(MESSAGES)[1..].concat());
        let answers = vec![flood, Answer::stream(&whole(MESSAGES))];
        let lane = Lane::open(MESSAGES, answers).await;
        let slow = lane.begin().await;
        // Until the buffers on the way are full, which are those of the system for the most part.
        let mut before = usize::MAX;
        while before != lane.upstream.flooded() || before == 0 {
            before = lane.upstream.flooded();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        assert!(before < PIECES, "the vendor was not slowed down");
        for _ in 0..20 {
            assert_eq!(lane.ask().await.body, whole(MESSAGES));
        }
        assert_eq!(lane.upstream.flooded(), before);
        // And it is served in the end, in full.
        let mut slow = slow;
        let text = read_until(&mut slow, "\r\n0\r\n\r\n").await;
        let reply = Reply::read(text.as_bytes());
        assert!(reply.is_ended);
        assert_eq!(
            reply.body.len(),
            whole(MESSAGES).len() + PIECES * (16 << 10)
        );
    });
}
