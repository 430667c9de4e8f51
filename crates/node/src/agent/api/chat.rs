//! Chat completions, as OpenAI and many others have them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Answer, MOST_CALLS, ReadError, Reader, Request, Stop, count, parse, text, vendor_error,
};
use crate::agent::conversation::{Part, ToolCall, ToolResult, Turn};
use crate::model::TokenUsage;

/// Some vendors give the model's reasoning beside the text, and want it back while it works.
const REASONING: &str = "reasoning_content";

pub(super) fn body(request: &Request<'_>) -> Value {
    let tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            json!({
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.schema(),
                },
            })
        })
        .collect();
    let mut messages = vec![json!({"role": "system", "content": request.system})];
    for turn in request.turns {
        match turn {
            Turn::User(text) => messages.push(user(text)),
            Turn::Assistant(parts) => messages.push(assistant(parts)),
            Turn::Results(results, notes) => {
                messages.extend(results.iter().map(|result| {
                    json!({
                        "role": "tool",
                        "tool_call_id": result.id,
                        "content": said(result),
                    })
                }));
                messages.extend(notes.iter().map(|note| user(note)));
            }
        }
    }
    let limit = if request.habits.old_limit_name {
        "max_tokens"
    } else {
        "max_completion_tokens"
    };
    json!({
        "model": request.model,
        limit: request.max_output_tokens,
        "tools": tools,
        "messages": messages,
        "stream": true,
        "stream_options": {"include_usage": true},
    })
}

/// The content of a result for an API that has no mark for errors.
pub(super) fn said(result: &ToolResult) -> String {
    if result.is_error {
        format!("error: {}", result.content)
    } else {
        result.content.clone()
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(parts: &[Part]) -> Value {
    let mut message = json!({"role": "assistant"});
    let mut content = String::new();
    let mut calls = Vec::new();
    for part in parts {
        match part {
            Part::Text(text) => content.push_str(text),
            Part::Call(call) => calls.push(json!({
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": Value::from(call.input.clone()).to_string(),
                },
            })),
            Part::Opaque(value) => message[REASONING] = value.clone(),
        }
    }
    message["content"] = if content.is_empty() && !calls.is_empty() {
        Value::Null
    } else {
        content.into()
    };
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

/// Reads chunks of a completion.
#[derive(Debug, Default)]
pub(super) struct ChatReader {
    text: String,
    reasoning: String,
    calls: BTreeMap<u64, Call>,
    finish_reason: String,
    usage: Option<TokenUsage>,
}

#[derive(Debug, Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Reader for ChatReader {
    fn event(&mut self, data: &[u8]) -> Result<(), ReadError> {
        if data == b"[DONE]" {
            return Ok(());
        }
        let chunk = parse(data)?;
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(vendor_error(&chunk));
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            let cached = count(usage, "/prompt_tokens_details/cached_tokens");
            self.usage = Some(TokenUsage {
                input: count(usage, "/prompt_tokens").saturating_sub(cached),
                cache_read: cached,
                cache_write: 0,
                output: count(usage, "/completion_tokens"),
            });
        }
        // Only one was asked for.
        let Some(choice) = chunk.pointer("/choices/0") else {
            return Ok(());
        };
        let delta = &choice["delta"];
        self.text.push_str(text(delta, "content"));
        self.text.push_str(text(delta, "refusal"));
        self.reasoning.push_str(text(delta, REASONING));
        let calls = delta.get("tool_calls").and_then(Value::as_array);
        for call in calls.into_iter().flatten() {
            self.grow(call);
        }
        let reason = text(choice, "finish_reason");
        if !reason.is_empty() {
            reason.clone_into(&mut self.finish_reason);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Answer, ReadError> {
        let stop = match self.finish_reason.as_str() {
            "" => return Err(ReadError::Cut),
            "length" => Stop::Length,
            "content_filter" => Stop::Refused,
            _ => Stop::Complete,
        };
        let mut parts = Vec::new();
        if !self.reasoning.is_empty() {
            parts.push(Part::Opaque(self.reasoning.into()));
        }
        if !self.text.is_empty() {
            parts.push(Part::Text(self.text));
        }
        let calls = self.calls.into_values();
        parts.extend(
            calls.map(|call| Part::Call(ToolCall::new(&call.id, &call.name, &call.arguments))),
        );
        Ok(Answer {
            parts,
            stop,
            usage: self.usage,
        })
    }
}

impl ChatReader {
    fn grow(&mut self, delta: &Value) {
        let (id, function) = (text(delta, "id"), &delta["function"]);
        let last = self.calls.last_key_value();
        let index = match (delta.get("index").and_then(Value::as_u64), last) {
            (Some(index), _) => index,
            (None, None) => 0,
            // Without an index a new id begins a new call.
            (None, Some((index, call))) if id.is_empty() || call.id == id => *index,
            (None, Some((index, _))) => index.saturating_add(1),
        };
        if self.calls.len() >= MOST_CALLS && !self.calls.contains_key(&index) {
            return;
        }
        let call = self.calls.entry(index).or_default();
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        if call.name.is_empty() {
            text(function, "name").clone_into(&mut call.name);
        }
        match function.get("arguments") {
            Some(Value::String(more)) => call.arguments.push_str(more),
            Some(whole @ Value::Object(_)) => call.arguments = whole.to_string(),
            _ => {}
        }
    }
}
