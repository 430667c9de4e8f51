//! Answers of OpenAI's Responses API.

use serde_json::{Value, json};

use super::dialect::Tokens;
use super::reply::{Answer, Block, Event};
use super::tools::Called;
use super::turn::Stop;

pub(super) fn plain(answer: &Answer<'_>) -> Value {
    let output: Vec<Value> = (0..answer.blocks.len())
        .map(|at| item(answer, at, true))
        .collect();
    response(answer, &output, true)
}

pub(super) fn events(answer: &Answer<'_>) -> Vec<Event> {
    let mut stream = Stream::default();
    let begun = response(answer, &[], false);
    stream.push("response.created", json!({"response": begun}));
    stream.push("response.in_progress", json!({"response": begun}));
    for (at, block) in answer.blocks.iter().enumerate() {
        stream.push(
            "response.output_item.added",
            json!({"output_index": at, "item": item(answer, at, false)}),
        );
        match block {
            Block::Thinking(_) => {}
            Block::Text(text) => message(answer, at, text, &mut stream),
            Block::Call { call, .. } => arguments(answer, at, call, &mut stream),
        }
        stream.push(
            "response.output_item.done",
            json!({"output_index": at, "item": item(answer, at, true)}),
        );
    }
    let end = match answer.stop {
        Some(Stop::Length | Stop::Refusal) => "response.incomplete",
        None => "response.completed",
    };
    stream.push(end, json!({"response": plain(answer)}));
    if let Some(last) = stream.events.last_mut() {
        last.told = Some(answer.tokens);
    }
    stream.events
}

fn message(answer: &Answer<'_>, at: usize, text: &str, stream: &mut Stream) {
    let place = json!({"item_id": item_id(answer, at), "output_index": at, "content_index": 0});
    let with = |fields: Value| merged(&place, fields);
    stream.push(
        "response.content_part.added",
        with(json!({"part": part("")})),
    );
    for piece in answer.pieces(text) {
        stream.push(
            "response.output_text.delta",
            with(json!({"delta": piece, "logprobs": []})),
        );
    }
    stream.push(
        "response.output_text.done",
        with(json!({"text": text, "logprobs": []})),
    );
    stream.push(
        "response.content_part.done",
        with(json!({"part": part(text)})),
    );
}

fn arguments(answer: &Answer<'_>, at: usize, call: &Called, stream: &mut Stream) {
    let place = json!({"item_id": item_id(answer, at), "output_index": at});
    let (kind, field) = if call.free {
        ("response.custom_tool_call_input", "input")
    } else {
        ("response.function_call_arguments", "arguments")
    };
    for piece in answer.pieces(&call.arguments) {
        stream.push(
            &format!("{kind}.delta"),
            merged(&place, json!({"delta": piece})),
        );
    }
    let mut done = merged(&place, json!({field: call.arguments}));
    if !call.free {
        done["name"] = json!(call.name);
    }
    stream.push(&format!("{kind}.done"), done);
}

/// The output item at `at`, as it is in the end or as it begins.
fn item(answer: &Answer<'_>, at: usize, done: bool) -> Value {
    let id = item_id(answer, at);
    let status = if done { "completed" } else { "in_progress" };
    match &answer.blocks[at] {
        Block::Thinking(text) => json!({
            "id": id, "type": "reasoning",
            "summary": if done { json!([{"type": "summary_text", "text": text}]) } else { json!([]) },
        }),
        Block::Text(text) => json!({
            "id": id, "type": "message", "role": "assistant", "status": status,
            "content": if done { json!([part(text)]) } else { json!([]) },
        }),
        Block::Call { id: call_id, call } if call.free => json!({
            "id": id, "type": "custom_tool_call", "status": status, "call_id": call_id,
            "name": call.name, "input": if done { call.arguments.as_str() } else { "" },
        }),
        Block::Call { id: call_id, call } => json!({
            "id": id, "type": "function_call", "status": status, "call_id": call_id,
            "name": call.name, "arguments": if done { call.arguments.as_str() } else { "" },
        }),
    }
}

fn item_id(answer: &Answer<'_>, at: usize) -> String {
    let kind = match &answer.blocks[at] {
        Block::Thinking(_) => "rs",
        Block::Text(_) => "msg",
        Block::Call { call, .. } if call.free => "ctc",
        Block::Call { .. } => "fc",
    };
    format!("{kind}_{:08}x{at:02}", answer.number)
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn response(answer: &Answer<'_>, output: &[Value], done: bool) -> Value {
    let (status, reason) = match answer.stop {
        _ if !done => ("in_progress", None),
        None => ("completed", None),
        Some(Stop::Length) => ("incomplete", Some("max_output_tokens")),
        Some(Stop::Refusal) => ("incomplete", Some("content_filter")),
    };
    json!({
        "id": format!("resp_{:08}", answer.number),
        "object": "response",
        "created_at": 1_767_225_600,
        "status": status,
        "error": null,
        "incomplete_details": reason.map(|reason| json!({"reason": reason})),
        "instructions": null,
        "metadata": {},
        "model": answer.model,
        "output": output,
        "parallel_tool_calls": true,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": if done { usage(answer.tokens) } else { Value::Null },
    })
}

fn usage(tokens: Tokens) -> Value {
    let input = tokens.input + tokens.cache_read;
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": tokens.cache_read},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + tokens.output,
    })
}

#[derive(Default)]
struct Stream {
    events: Vec<Event>,
}

impl Stream {
    fn push(&mut self, kind: &str, fields: Value) {
        let first = json!({"type": kind, "sequence_number": self.events.len()});
        let data = merged(&first, fields);
        self.events.push(Event {
            bytes: format!("event: {kind}\ndata: {data}\n\n").into_bytes(),
            told: None,
        });
    }
}

/// The fields of both.
fn merged(first: &Value, second: Value) -> Value {
    let mut all = first.clone();
    if let (Value::Object(all), Value::Object(second)) = (&mut all, second) {
        all.extend(second);
    }
    all
}
