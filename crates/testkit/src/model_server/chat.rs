//! Answers of OpenAI's chat completions.

use serde_json::{Value, json};

use super::dialect::Tokens;
use super::reply::{Answer, Block, Event};
use super::turn::Stop;

pub(super) fn plain(answer: &Answer<'_>) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text(), "refusal": null});
    let calls: Vec<Value> = answer
        .calls()
        .map(|(id, call)| {
            json!({
                "id": id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            })
        })
        .collect();
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    json!({
        "id": id(answer),
        "object": "chat.completion",
        "created": 1_767_225_600,
        "model": answer.model,
        "choices": [{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": finish_reason(answer),
        }],
        "usage": usage(answer.tokens),
    })
}

pub(super) fn events(answer: &Answer<'_>) -> Vec<Event> {
    let mut events = vec![delta(answer, &json!({"role": "assistant", "content": ""}))];
    let mut calls = 0;
    for block in &answer.blocks {
        match block {
            // This API has no thoughts in it.
            Block::Thinking(_) => {}
            Block::Text(text) => {
                for piece in answer.pieces(text) {
                    events.push(delta(answer, &json!({"content": piece})));
                }
            }
            Block::Call { id, call } => {
                let mut part = |part: Value| {
                    events.push(delta(answer, &json!({"tool_calls": [part]})));
                };
                part(json!({
                    "index": calls,
                    "id": id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": ""},
                }));
                for piece in answer.pieces(&call.arguments) {
                    part(json!({"index": calls, "function": {"arguments": piece}}));
                }
                calls += 1;
            }
        }
    }
    let end = json!([choice(&json!({}), Some(finish_reason(answer)))]);
    events.push(event(&chunk(answer, &end), None));
    if answer.include_usage {
        let mut last = chunk(answer, &json!([]));
        last["usage"] = usage(answer.tokens);
        events.push(event(&last, Some(answer.tokens)));
    }
    events.push(Event {
        bytes: b"data: [DONE]\n\n".to_vec(),
        told: None,
    });
    events
}

fn delta(answer: &Answer<'_>, delta: &Value) -> Event {
    event(&chunk(answer, &json!([choice(delta, None)])), None)
}

fn choice(delta: &Value, finish_reason: Option<&str>) -> Value {
    json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason})
}

fn chunk(answer: &Answer<'_>, choices: &Value) -> Value {
    let mut chunk = json!({
        "id": id(answer),
        "object": "chat.completion.chunk",
        "created": 1_767_225_600,
        "model": answer.model,
        "choices": choices,
    });
    if answer.include_usage {
        chunk["usage"] = Value::Null;
    }
    chunk
}

fn id(answer: &Answer<'_>) -> String {
    format!("chatcmpl-{:08}", answer.number)
}

fn finish_reason(answer: &Answer<'_>) -> &'static str {
    match answer.stop {
        Some(Stop::Length) => "length",
        Some(Stop::Refusal) => "content_filter",
        None if answer.calls().next().is_some() => "tool_calls",
        None => "stop",
    }
}

fn usage(tokens: Tokens) -> Value {
    let prompt = tokens.input + tokens.cache_read;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": tokens.output,
        "total_tokens": prompt + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    })
}

fn event(data: &Value, told: Option<Tokens>) -> Event {
    Event {
        bytes: format!("data: {data}\n\n").into_bytes(),
        told,
    }
}
