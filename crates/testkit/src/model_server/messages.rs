//! Answers of Anthropic's Messages API.

use serde_json::{Value, json};

use super::dialect::Tokens;
use super::reply::{Answer, Block, Event};
use super::turn::Stop;

pub(super) fn plain(answer: &Answer<'_>) -> Value {
    let content: Vec<Value> = answer.blocks.iter().map(whole).collect();
    let mut message = message(answer, &content, &usage(answer.tokens));
    message["stop_reason"] = json!(stop_reason(answer));
    message
}

pub(super) fn events(answer: &Answer<'_>) -> Vec<Event> {
    // What a model has written before its first word is one token.
    let first = Tokens {
        output: answer.tokens.output.min(1),
        ..answer.tokens
    };
    let message = message(answer, &[], &usage(first));
    let mut events = vec![
        event(
            &json!({"type": "message_start", "message": message}),
            Some(first),
        ),
        event(&json!({"type": "ping"}), None),
    ];
    for (index, block) in answer.blocks.iter().enumerate() {
        events.push(event(&json!({"type": "content_block_start", "index": index, "content_block": opening(block)}),
            None,
        ));
        for delta in deltas(answer, block) {
            events.push(event(
                &json!({"type": "content_block_delta", "index": index, "delta": delta}),
                None,
            ));
        }
        events.push(event(
            &json!({"type": "content_block_stop", "index": index}),
            None,
        ));
    }
    events.push(event(
        &json!({
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason(answer), "stop_sequence": null},
            "usage": usage(answer.tokens),
        }),
        Some(answer.tokens),
    ));
    events.push(event(&json!({"type": "message_stop"}), None));
    events
}

fn message(answer: &Answer<'_>, content: &[Value], usage: &Value) -> Value {
    json!({
        "id": format!("msg_{:08}", answer.number),
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage,
    })
}

fn usage(tokens: Tokens) -> Value {
    json!({
        "input_tokens": tokens.input,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "output_tokens": tokens.output,
        "service_tier": "standard",
    })
}

fn stop_reason(answer: &Answer<'_>) -> &'static str {
    match answer.stop {
        Some(Stop::Length) => "max_tokens",
        Some(Stop::Refusal) => "refusal",
        None if answer.calls().next().is_some() => "tool_use",
        None => "end_turn",
    }
}

fn whole(block: &Block) -> Value {
    match block {
        Block::Thinking(text) => {
            json!({"type": "thinking", "thinking": text, "signature": SIGNATURE})
        }
        Block::Text(text) => json!({"type": "text", "text": text}),
        Block::Call { id, call } => {
            // What is no JSON could not be here; as text it is at least wrong.
            let input = serde_json::from_str(&call.arguments)
                .unwrap_or_else(|_| Value::String(call.arguments.clone()));
            json!({"type": "tool_use", "id": id, "name": call.name, "input": input})
        }
    }
}

fn opening(block: &Block) -> Value {
    match block {
        Block::Thinking(_) => json!({"type": "thinking", "thinking": "", "signature": ""}),
        Block::Text(_) => json!({"type": "text", "text": ""}),
        Block::Call { id, call } => {
            json!({"type": "tool_use", "id": id, "name": call.name, "input": {}})
        }
    }
}

fn deltas(answer: &Answer<'_>, block: &Block) -> Vec<Value> {
    let pieces = |text: &str, kind: &str, field: &str| -> Vec<Value> {
        answer
            .pieces(text)
            .into_iter()
            .map(|piece| json!({"type": kind, field: piece}))
            .collect()
    };
    match block {
        Block::Thinking(text) => {
            let mut deltas = pieces(text, "thinking_delta", "thinking");
            deltas.push(json!({"type": "signature_delta", "signature": SIGNATURE}));
            deltas
        }
        Block::Text(text) => pieces(text, "text_delta", "text"),
        Block::Call { call, .. } => pieces(&call.arguments, "input_json_delta", "partial_json"),
    }
}

const SIGNATURE: &str = "c2lnbmF0dXJlIG9mIGEgdGVzdA==";

fn event(data: &Value, told: Option<Tokens>) -> Event {
    let kind = data["type"].as_str().unwrap();
    Event {
        bytes: format!("event: {kind}\ndata: {data}\n\n").into_bytes(),
        told,
    }
}
