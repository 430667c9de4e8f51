use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::agent::conversation::{ToolCall, ToolResult};
use crate::agent::tools::TOOLS;

const ALL: [Api; 3] = [
    Api::AnthropicMessages,
    Api::OpenaiChat,
    Api::OpenaiResponses,
];

fn read(api: Api, events: &[Value]) -> Result<Answer, ReadError> {
    let mut reader = reader(api);
    for event in events {
        reader.event(event.to_string().as_bytes())?;
    }
    reader.finish()
}

fn request_with(api: Api, turns: &[Turn], habits: Habits) -> Value {
    let request = Request {
        model: "m",
        system: "s",
        tools: TOOLS,
        turns,
        max_output_tokens: 9,
        habits,
    };
    body(api, &request)
}

fn call(id: &str, arguments: &str) -> Part {
    Part::Call(ToolCall::new(id, "bash", arguments))
}

#[test]
fn reasoning_goes_back_in_its_place() {
    let chunk = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]});
    let answer = read(
        Api::OpenaiChat,
        &[
            chunk(json!({"reasoning_content": "so "})),
            chunk(json!({"reasoning_content": "it is", "content": null})),
            chunk(json!({"content": "Yes"})),
            json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
        ],
    );
    let answer = answer.unwrap();
    assert_eq!(
        answer.parts,
        [
            Part::Opaque("so it is".into()),
            Part::Text("Yes".to_owned())
        ]
    );
    let turns = [Turn::Assistant(answer.parts)];
    let body = request_with(Api::OpenaiChat, &turns, Habits::DEFAULT);
    assert_eq!(body["messages"][1]["reasoning_content"], "so it is");

    let item = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E"});
    let plain = json!({"type": "reasoning", "id": "rs_2", "summary": []});
    let done = |item: &Value| json!({"type": "response.output_item.done", "item": item});
    let answer = read(
        Api::OpenaiResponses,
        &[
            done(&item),
            done(&plain),
            json!({"type": "response.completed", "response": {"usage": null}}),
        ],
    );
    let answer = answer.unwrap();
    assert_eq!(answer.parts, [Part::Opaque(item.clone())]);
    let turns = [Turn::Assistant(answer.parts)];
    let body = request_with(Api::OpenaiResponses, &turns, Habits::DEFAULT);
    assert_eq!(body["input"], json!([item]));
    let habits = Habits {
        encrypted_reasoning: false,
        ..Habits::DEFAULT
    };
    let body = request_with(Api::OpenaiResponses, &turns, habits);
    assert_eq!(body["input"], json!([]));
    assert!(body.get("include").is_none());
}

#[test]
fn calls_in_pieces_of_any_form_are_put_together() {
    let chunk = |call: Value| json!({"choices": [{"delta": {"tool_calls": [call]}}]});
    let end = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
    let answer = |pieces: &[Value]| {
        let mut events: Vec<Value> = pieces.iter().cloned().map(chunk).collect();
        events.push(end.clone());
        read(Api::OpenaiChat, &events).unwrap().parts
    };
    let expected = [call("a", r#"{"x":1}"#), call("b", r#"{"y":2}"#)];
    assert_eq!(
        answer(&[
            json!({"index": 0, "id": "a", "function": {"name": "bash", "arguments": "{\"x\""}}),
            json!({"index": 1, "id": "b", "function": {"name": "bash", "arguments": ""}}),
            json!({"index": 0, "function": {"arguments": ":1}"}}),
            json!({"index": 1, "id": "b", "function": {"name": "bash", "arguments": "{\"y\":2}"}}),
        ]),
        expected
    );
    // Without an index, and with arguments that are no text.
    assert_eq!(
        answer(&[
            json!({"id": "a", "function": {"name": "bash", "arguments": "{\"x\":"}}),
            json!({"function": {"arguments": "1}"}}),
            json!({"id": "b", "function": {"name": "bash", "arguments": {"y": 2}}}),
        ]),
        expected
    );
    let many: Vec<Value> = (0..500)
        .map(|index| json!({"index": index * 1000, "id": format!("c{index}")}))
        .collect();
    assert_eq!(answer(&many).len(), MOST_CALLS);
}

#[test]
fn numbers_that_cannot_be_are_not_counted() {
    for wrong in [json!(-5), json!(1e30), json!("7"), json!(null), json!([1])] {
        let answer = read(
            Api::OpenaiChat,
            &[json!({
                "choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": wrong, "completion_tokens": 3,
                          "prompt_tokens_details": {"cached_tokens": u64::MAX}},
            })],
        );
        let usage = answer.unwrap().usage.unwrap();
        assert_eq!((usage.input, usage.output), (0, 3));
    }
}

#[test]
fn errors_are_told_in_the_words_of_the_vendor() {
    for (value, message) in [
        (json!({"error": {"message": "m", "type": "t"}}), Some("m")),
        (json!({"error": "m"}), Some("m")),
        (json!({"message": "m"}), Some("m")),
        (json!({"error": {"message": " "}}), None),
        (json!({"error": {"message": {"m": 1}}}), None),
        (json!([]), None),
        (json!("m"), Some("m")),
    ] {
        assert_eq!(error_message(&value), message, "{value}");
    }
}

#[test]
fn text_that_a_vendor_refuses_is_left_out() {
    let turns = [
        Turn::User("u".to_owned()),
        Turn::Assistant(vec![Part::Text(" \n".to_owned()), call("a", "[")]),
        Turn::Results(
            vec![ToolResult {
                id: "a".to_owned(),
                content: "c".to_owned(),
                is_error: true,
            }],
            vec!["n".to_owned()],
        ),
    ];
    let body = request_with(Api::AnthropicMessages, &turns, Habits::DEFAULT);
    let content = &body["messages"][1]["content"];
    assert_eq!(content.as_array().unwrap().len(), 1);
    assert_eq!(content[0]["input"], json!({}));
    let results = body["messages"][2]["content"].as_array().unwrap();
    assert_eq!(results[0]["is_error"], true);
    assert_eq!(results[1]["text"], "n");
}

/// Events that look like those of an API, and others.
fn events() -> impl Strategy<Value = Vec<Value>> {
    let text = || {
        prop_oneof![
            Just(json!("text")),
            Just(json!("tool_use")),
            Just(json!("thinking")),
            Just(json!("message_stop")),
            Just(json!("content_block_start")),
            Just(json!("content_block_delta")),
            Just(json!("input_json_delta")),
            Just(json!("message_delta")),
            Just(json!("message_start")),
            Just(json!("response.output_item.done")),
            Just(json!("response.completed")),
            Just(json!("function_call")),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            Just(Value::Null),
            "\\PC{0,5}".prop_map(Value::from),
        ]
    };
    let name = prop_oneof![
        Just("type"),
        Just("index"),
        Just("delta"),
        Just("content_block"),
        Just("item"),
        Just("response"),
        Just("usage"),
        Just("choices"),
        Just("tool_calls"),
        Just("function"),
        Just("arguments"),
        Just("name"),
        Just("id"),
        Just("content"),
        Just("finish_reason"),
        Just("stop_reason"),
        Just("partial_json"),
        Just("input_tokens"),
        Just("message"),
        Just("output"),
        Just("error"),
    ];
    let value = text().prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::vec((name.clone(), inner), 0..5).prop_map(|pairs| {
                let pairs = pairs.into_iter();
                Value::Object(
                    pairs
                        .map(|(name, value)| (name.to_owned(), value))
                        .collect(),
                )
            }),
        ]
    });
    proptest::collection::vec(value, 0..12)
}

proptest! {
    #[test]
    fn whatever_comes_can_be_said_again(events in events()) {
        for api in ALL {
            if let Ok(answer) = read(api, &events) {
                prop_assert!(answer.parts.len() <= MOST_CALLS + 2);
                let turns = [Turn::Assistant(answer.parts)];
                for api in ALL {
                    prop_assert!(request_with(api, &turns, Habits::DEFAULT).is_object());
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_an_answer_or_an_error(data in proptest::collection::vec(any::<u8>(), 0..40)) {
        for api in ALL {
            let mut reader = reader(api);
            let read = reader.event(&data);
            prop_assert!(read.is_err() || reader.finish().is_err());
        }
    }

    #[test]
    fn text_and_calls_come_back_as_they_were(
        text in "\\PC{0,30}",
        command in "\\PC{0,30}",
        cut in any::<prop::sample::Index>(),
    ) {
        let arguments = json!({"command": command}).to_string();
        let mut at = cut.index(arguments.len() + 1);
        while !arguments.is_char_boundary(at) {
            at -= 1;
        }
        let (first, second) = arguments.split_at(at);
        let events = [
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 5}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
            json!({"type": "content_block_start", "index": 1,
                   "content_block": {"type": "tool_use", "id": "a", "name": "bash", "input": {}}}),
            json!({"type": "content_block_delta", "index": 1,
                   "delta": {"type": "input_json_delta", "partial_json": first}}),
            json!({"type": "content_block_delta", "index": 1,
                   "delta": {"type": "input_json_delta", "partial_json": second}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}),
            json!({"type": "message_stop"}),
        ];
        let answer = read(Api::AnthropicMessages, &events).unwrap();
        prop_assert_eq!(&answer.parts[0], &Part::Text(text));
        prop_assert_eq!(&answer.parts[1], &call("a", &arguments));
        let usage = answer.usage.unwrap();
        prop_assert_eq!((usage.input, usage.output), (5, 7));
    }
}
