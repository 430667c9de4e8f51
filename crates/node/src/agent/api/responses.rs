//! OpenAI's Responses API.

use serde_json::{Value, json};

use super::chat::said;
use super::{
    Answer, MOST_CALLS, ReadError, Reader, Request, Stop, count, parse, text, vendor_error,
};
use crate::agent::conversation::{Part, ToolCall, Turn};
use crate::model::TokenUsage;

pub(super) fn body(request: &Request<'_>) -> Value {
    let tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            json!({
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema(),
                "strict": false,
            })
        })
        .collect();
    let mut input = Vec::new();
    for turn in request.turns {
        match turn {
            Turn::User(text) => input.push(user(text)),
            Turn::Assistant(parts) => {
                let parts = parts.iter();
                input.extend(
                    parts.filter_map(|part| item(part, request.habits.encrypted_reasoning)),
                );
            }
            Turn::Results(results, notes) => {
                input.extend(results.iter().map(|result| {
                    json!({
                        "type": "function_call_output",
                        "call_id": result.id,
                        "output": said(result),
                    })
                }));
                input.extend(notes.iter().map(|note| user(note)));
            }
        }
    }
    let mut body = json!({
        "model": request.model,
        "instructions": request.system,
        "max_output_tokens": request.max_output_tokens,
        "tools": tools,
        "input": input,
        "stream": true,
        // The vendor need not keep what is sent again each time.
        "store": false,
    });
    if request.habits.encrypted_reasoning {
        body["include"] = json!(["reasoning.encrypted_content"]);
    }
    body
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn item(part: &Part, encrypted_reasoning: bool) -> Option<Value> {
    match part {
        Part::Text(text) => Some(json!({
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": text}],
        })),
        Part::Call(call) => Some(json!({
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": Value::from(call.input.clone()).to_string(),
        })),
        Part::Opaque(value) => encrypted_reasoning.then(|| value.clone()),
    }
}

/// Reads events up to `response.completed`.
#[derive(Debug, Default)]
pub(super) struct ResponsesReader {
    parts: Vec<Part>,
    refused: bool,
    stop: Option<Stop>,
    usage: Option<TokenUsage>,
}

impl Reader for ResponsesReader {
    fn event(&mut self, data: &[u8]) -> Result<(), ReadError> {
        // Chat's ending, which some servers give here as well.
        if data == b"[DONE]" {
            return Ok(());
        }
        let event = parse(data)?;
        match text(&event, "type") {
            "response.output_item.done" => self.take(&event["item"]),
            "response.completed" => self.end(&event["response"], Stop::Complete),
            "response.incomplete" => {
                let response = &event["response"];
                let stop = match text(&response["incomplete_details"], "reason") {
                    "content_filter" => Stop::Refused,
                    _ => Stop::Length,
                };
                self.end(response, stop);
            }
            "response.failed" => return Err(vendor_error(&event["response"])),
            "error" => return Err(vendor_error(&event)),
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Answer, ReadError> {
        let stop = self.stop.ok_or(ReadError::Cut)?;
        Ok(Answer {
            parts: self.parts,
            stop: if self.refused { Stop::Refused } else { stop },
            usage: self.usage,
        })
    }
}

impl ResponsesReader {
    fn take(&mut self, item: &Value) {
        if self.parts.len() >= MOST_CALLS {
            return;
        }
        match text(item, "type") {
            "message" => {
                let content = item.get("content").and_then(Value::as_array);
                let mut said = String::new();
                for part in content.into_iter().flatten() {
                    said.push_str(text(part, "text"));
                    said.push_str(text(part, "refusal"));
                    self.refused |= text(part, "type") == "refusal";
                }
                if !said.is_empty() {
                    self.parts.push(Part::Text(said));
                }
            }
            "function_call" => self.parts.push(Part::Call(ToolCall::new(
                text(item, "call_id"),
                text(item, "name"),
                text(item, "arguments"),
            ))),
            // Without its encrypted form the vendor does not know it again.
            "reasoning" if !text(item, "encrypted_content").is_empty() => {
                self.parts.push(Part::Opaque(item.clone()));
            }
            _ => {}
        }
    }

    fn end(&mut self, response: &Value, stop: Stop) {
        self.stop = Some(stop);
        if let Some(usage) = response.get("usage").filter(|usage| usage.is_object()) {
            let cached = count(usage, "/input_tokens_details/cached_tokens");
            self.usage = Some(TokenUsage {
                input: count(usage, "/input_tokens").saturating_sub(cached),
                cache_read: cached,
                cache_write: 0,
                output: count(usage, "/output_tokens"),
            });
        }
        if self.parts.is_empty() {
            let output = response.get("output").and_then(Value::as_array);
            for item in output.into_iter().flatten() {
                self.take(item);
            }
        }
    }
}
