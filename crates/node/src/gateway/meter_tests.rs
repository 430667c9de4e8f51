use proptest::prelude::*;

use super::*;
use crate::model::FailureClass;

const MESSAGES: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"m1","usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":30,"output_tokens":1}}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":40}}

event: message_delta
data: {"type":"message_delta","delta":{},"usage":{"output_tokens":42,"input_tokens":11,"cache_read_input_tokens":null}}

event: message_stop
data: {"type":"message_stop"}

"#;

const CHAT: &str = r#"data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}],"usage":null}

: comment

data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":42,"total_tokens":142,"prompt_tokens_details":{"cached_tokens":30}}}

data: [DONE]

"#;

const RESPONSES: &str = r#"event: response.created
data: {"type":"response.created","response":{"id":"r1","usage":null}}

data: {"type":"response.output_item.done","item":{"type":"message"}}

data: {"type":"response.completed","response":{"id":"r1","usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":30},"output_tokens":42}}}

"#;

fn metered(api: Api, text: &str) -> StreamMeter {
    let mut meter = StreamMeter::new(api);
    meter.push(text.as_bytes()).unwrap();
    meter
}

fn usage(input: u64, cache_read: u64, cache_write: u64, output: u64) -> TokenUsage {
    TokenUsage {
        input,
        cache_read,
        cache_write,
        output,
    }
}

fn whole(api: Api) -> (&'static str, TokenUsage) {
    match api {
        Api::AnthropicMessages => (MESSAGES, usage(11, 30, 20, 42)),
        Api::OpenaiChat => (CHAT, usage(70, 30, 0, 42)),
        Api::OpenaiResponses => (RESPONSES, usage(70, 30, 0, 42)),
    }
}

const APIS: [Api; 3] = [
    Api::AnthropicMessages,
    Api::OpenaiChat,
    Api::OpenaiResponses,
];

#[test]
fn whole_streams_are_counted_to_the_token() {
    for api in APIS {
        let (text, usage) = whole(api);
        let meter = metered(api, text);
        assert_eq!(meter.usage(), Some(usage), "{api}");
        assert!(
            meter.is_whole() && meter.is_over() && meter.is_final(),
            "{api}"
        );
        assert!(meter.complaint().is_none());
    }
}

#[test]
fn a_stream_that_is_cut_anywhere_is_not_whole() {
    for api in APIS {
        let (text, _) = whole(api);
        // The last event of chat completions adds nothing.
        let essential = match api {
            Api::OpenaiChat => text.find("data: {\"choices\":[],").unwrap(),
            _ => text.len(),
        };
        for end in 0..essential {
            let mut meter = StreamMeter::new(api);
            meter.push(&text.as_bytes()[..end]).unwrap();
            assert!(!meter.is_whole() && !meter.is_final(), "{api} {end}");
        }
    }
}

#[test]
fn of_a_cut_stream_the_beginning_is_counted() {
    let cut = MESSAGES.find("event: content_block").unwrap();
    let meter = metered(Api::AnthropicMessages, &MESSAGES[..cut]);
    assert_eq!(meter.usage(), Some(usage(10, 30, 20, 1)));
    assert!(!meter.is_final());
    let cut = CHAT.find("data: {\"choices\":[],").unwrap();
    let meter = metered(Api::OpenaiChat, &CHAT[..cut]);
    assert_eq!(meter.usage(), None);
    assert!(meter.is_whole() && !meter.is_over() && !meter.is_final());
}

#[test]
fn a_chat_that_ends_without_a_reason_is_malformed() {
    let mut meter = StreamMeter::new(Api::OpenaiChat);
    let error = meter
        .push(b"data: {\"choices\":[{\"finish_reason\":\"\"}]}\n\ndata: [DONE]\n\n")
        .unwrap_err();
    assert!(error.to_string().contains("finish reason"));
}

#[test]
fn what_a_vendor_says_about_its_failure_is_read() {
    for (api, text, class) in [
        (
            Api::AnthropicMessages,
            r#"data: {"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
            FailureClass::Capacity,
        ),
        (
            Api::OpenaiChat,
            r#"data: {"error":{"type":"server_error","message":"m"}}"#,
            FailureClass::Server,
        ),
        (
            Api::OpenaiResponses,
            r#"data: {"type":"error","code":"rate_limit_exceeded","message":"m"}"#,
            FailureClass::Capacity,
        ),
        (
            Api::OpenaiResponses,
            r#"data: {"type":"response.failed","response":{"usage":{"input_tokens":1,"output_tokens":2},"error":{"code":"insufficient_quota","message":"m"}}}"#,
            FailureClass::Quota,
        ),
    ] {
        let meter = metered(api, &format!("{text}\n\n"));
        let complaint = meter.complaint().unwrap();
        assert_eq!(complaint.class(), Some(class), "{text}");
        assert_eq!(complaint.message(), Some("m"), "{text}");
        assert!(!meter.is_whole() && meter.is_over());
        let is_counted = text.contains("usage");
        assert_eq!(meter.is_final(), is_counted, "{text}");
    }
}

#[test]
fn what_follows_the_end_is_not_counted() {
    let more = format!("{MESSAGES}{}", MESSAGES.replace("42", "99"));
    let meter = metered(Api::AnthropicMessages, &more);
    assert_eq!(meter.usage(), Some(usage(11, 30, 20, 42)));
}

#[test]
fn what_is_no_count_is_not_counted() {
    for bad in [
        "-5",
        "1e30",
        "\"7\"",
        "1.5",
        "true",
        "[]",
        "18446744073709551615",
    ] {
        for (api, text) in [
            (
                Api::AnthropicMessages,
                format!(
                    "data: {{\"type\":\"message_start\",\"message\":{{\"usage\":{{\"input_tokens\":1,\"output_tokens\":{bad}}}}}}}\n\ndata: {{\"type\":\"message_stop\"}}\n\n"
                ),
            ),
            (
                Api::OpenaiChat,
                format!(
                    "data: {{\"choices\":[{{\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":{bad},\"completion_tokens\":1}}}}\n\n"
                ),
            ),
            (
                Api::OpenaiResponses,
                format!(
                    "data: {{\"type\":\"response.completed\",\"response\":{{\"usage\":{{\"input_tokens\":1,\"output_tokens\":{bad}}}}}}}\n\n"
                ),
            ),
        ] {
            let meter = metered(api, &text);
            assert!(meter.is_whole(), "{api} {bad}");
            assert_eq!(meter.usage(), None, "{api} {bad}");
            assert!(!meter.is_final(), "{api} {bad}");
        }
    }
    let more_cached = r#"{"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":6}}}"#;
    let plain = read_plain(Api::OpenaiChat, more_cached.as_bytes()).unwrap();
    assert_eq!(plain.usage, None);
}

#[test]
fn answers_without_a_stream_are_counted() {
    let read = |api, text: &str| read_plain(api, text.as_bytes());
    let answer = r#"{"type":"message","usage":{"input_tokens":1,"cache_read_input_tokens":2,"cache_creation_input_tokens":3,"output_tokens":4}}"#;
    let plain = read(Api::AnthropicMessages, answer).unwrap();
    assert_eq!(plain.usage, Some(usage(1, 2, 3, 4)));
    let answer = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":9}}}"#;
    let plain = read(Api::OpenaiChat, answer).unwrap();
    assert_eq!(plain.usage, Some(usage(0, 9, 0, 4)));
    let answer = r#"{"output":[],"error":null,"usage":{"input_tokens":9,"output_tokens":4}}"#;
    let plain = read(Api::OpenaiResponses, answer).unwrap();
    assert_eq!(plain.usage, Some(usage(9, 0, 0, 4)));
    assert!(plain.complaint.is_none());

    let plain = read(Api::OpenaiChat, r#"{"choices":[]}"#).unwrap();
    assert_eq!(plain.usage, None);
    let plain = read(Api::OpenaiChat, r#"{"error":{"message":"m"}}"#).unwrap();
    assert_eq!(plain.complaint.unwrap().message(), Some("m"));
    for bad in ["", "[null,null]", "<html>", "5", "{\"usage\":", "\"text\""] {
        assert!(read(Api::OpenaiChat, bad).is_err(), "{bad}");
    }
}

#[test]
fn a_stream_of_something_else_is_malformed() {
    for api in APIS {
        for bad in ["data: <html>\n\n", "data: 5\n\n", "data: {\n\n"] {
            let mut meter = StreamMeter::new(api);
            assert!(meter.push(bad.as_bytes()).is_err(), "{api} {bad}");
        }
    }
    let mut meter = StreamMeter::new(Api::AnthropicMessages);
    assert!(meter.push(b"data: {\"no\":\"type\"}\n\n").is_err());
}

proptest! {
    #[test]
    fn any_cut_into_pieces_gives_the_same_count(
        api in prop_oneof![Just(APIS[0]), Just(APIS[1]), Just(APIS[2])],
        size in 1_usize..50,
    ) {
        let (text, usage) = whole(api);
        let mut meter = StreamMeter::new(api);
        for piece in text.as_bytes().chunks(size) {
            meter.push(piece).unwrap();
        }
        prop_assert_eq!(meter.usage(), Some(usage));
        prop_assert!(meter.is_final());
    }

    #[test]
    fn no_stream_makes_it_panic(
        api in prop_oneof![Just(APIS[0]), Just(APIS[1]), Just(APIS[2])],
        parts in proptest::collection::vec(
            prop_oneof![
                Just("data: ".to_owned()),
                Just("\n".to_owned()),
                Just(r#"{"type":"message_start","message":{"usage":{"input_tokens":"#.to_owned()),
                Just(r#"{"type":"response.completed","response":{"usage":{"output_tokens":"#.to_owned()),
                Just(r#"{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":"#.to_owned()),
                Just("}}}".to_owned()),
                "[-0-9e\"]{1,5}",
            ],
            0..20,
        ),
    ) {
        let mut meter = StreamMeter::new(api);
        let _ = meter.push(parts.concat().as_bytes());
        let _ = (meter.usage(), meter.is_final(), meter.is_whole());
    }
}
