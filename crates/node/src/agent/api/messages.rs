//! Anthropic's Messages API.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Answer, MOST_CALLS, ReadError, Reader, Request, Stop, count, parse, text, vendor_error,
};
use crate::agent::conversation::{Part, ToolCall, Turn};
use crate::model::TokenUsage;

/// The vendor keeps what is before a mark. Four are allowed: one ends the tools, one the system
/// prompt, and two are in the conversation, so that the next request finds what this one kept.
const MARKS_IN_TURNS: usize = 2;

pub(super) fn body(request: &Request<'_>) -> Value {
    let mut tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.schema(),
            })
        })
        .collect();
    if let Some(last) = tools.last_mut() {
        mark(last);
    }
    let mut system = json!({"type": "text", "text": request.system});
    mark(&mut system);
    let mut marks = MARKS_IN_TURNS;
    let mut messages: Vec<Value> = Vec::new();
    for turn in request.turns.iter().rev() {
        let (role, mut content) = match turn {
            Turn::User(text) => ("user", vec![text_block(text)]),
            Turn::Assistant(parts) => ("assistant", parts.iter().filter_map(block).collect()),
            Turn::Results(results, notes) => {
                let results = results.iter().map(|result| {
                    json!({
                        "type": "tool_result",
                        "tool_use_id": result.id,
                        "content": result.content,
                        "is_error": result.is_error,
                    })
                });
                let notes = notes.iter().map(|note| text_block(note));
                ("user", results.chain(notes).collect())
            }
        };
        if role == "user"
            && marks > 0
            && let Some(last) = content.last_mut()
        {
            mark(last);
            marks -= 1;
        }
        messages.push(json!({"role": role, "content": content}));
    }
    messages.reverse();
    json!({
        "model": request.model,
        "max_tokens": request.max_output_tokens,
        "system": [system],
        "tools": tools,
        "messages": messages,
        "stream": true,
    })
}

fn mark(block: &mut Value) {
    block["cache_control"] = json!({"type": "ephemeral"});
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn block(part: &Part) -> Option<Value> {
    match part {
        // The vendor refuses text that is blank.
        Part::Text(text) if text.trim().is_empty() => None,
        Part::Text(text) => Some(text_block(text)),
        Part::Call(call) => Some(json!({
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": call.input,
        })),
        Part::Opaque(value) => Some(value.clone()),
    }
}

/// Reads `message_start … message_stop`.
#[derive(Debug, Default)]
pub(super) struct MessagesReader {
    blocks: BTreeMap<u64, Block>,
    stop_reason: String,
    usage: Option<TokenUsage>,
    complete: bool,
}

#[derive(Debug)]
enum Block {
    Text(String),
    Call {
        id: String,
        name: String,
        /// What the block began with; it counts when no more comes.
        input: Value,
        json: String,
    },
    /// A block that has to be given back as it was, with the fields that grew.
    Thinking(Value),
}

impl Reader for MessagesReader {
    fn event(&mut self, data: &[u8]) -> Result<(), ReadError> {
        let event = parse(data)?;
        match text(&event, "type") {
            "message_start" => self.count(&event["message"]["usage"]),
            "content_block_start" => self.begin(&event),
            "content_block_delta" => self.grow(&event)?,
            "message_delta" => {
                self.count(&event["usage"]);
                let reason = text(&event["delta"], "stop_reason");
                if !reason.is_empty() {
                    reason.clone_into(&mut self.stop_reason);
                }
            }
            "message_stop" => self.complete = true,
            "error" => return Err(vendor_error(&event)),
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Answer, ReadError> {
        if !self.complete || self.stop_reason.is_empty() {
            return Err(ReadError::Cut);
        }
        let stop = match self.stop_reason.as_str() {
            "max_tokens" => Stop::Length,
            "refusal" => Stop::Refused,
            "model_context_window_exceeded" => Stop::WindowFull,
            _ => Stop::Complete,
        };
        let parts = self.blocks.into_values().map(|block| match block {
            Block::Text(text) => Part::Text(text),
            Block::Call {
                id,
                name,
                input,
                json,
            } => {
                let arguments = if json.is_empty() {
                    input.to_string()
                } else {
                    json
                };
                Part::Call(ToolCall::new(&id, &name, &arguments))
            }
            Block::Thinking(value) => Part::Opaque(value),
        });
        Ok(Answer {
            parts: parts.collect(),
            stop,
            usage: self.usage,
        })
    }
}

impl MessagesReader {
    /// Later counts replace earlier ones: they are sums from the beginning.
    fn count(&mut self, usage: &Value) {
        if !usage.is_object() {
            return;
        }
        let known = self.usage.unwrap_or_default();
        let newer =
            |name: &str, known: u64| usage.get(name).and_then(Value::as_u64).unwrap_or(known);
        self.usage = Some(TokenUsage {
            input: newer("input_tokens", known.input),
            cache_read: newer("cache_read_input_tokens", known.cache_read),
            cache_write: newer("cache_creation_input_tokens", known.cache_write),
            output: newer("output_tokens", known.output),
        });
    }

    fn begin(&mut self, event: &Value) {
        let block = &event["content_block"];
        let begun = match text(block, "type") {
            "text" => Block::Text(text(block, "text").to_owned()),
            "tool_use" => Block::Call {
                id: text(block, "id").to_owned(),
                name: text(block, "name").to_owned(),
                input: block.get("input").cloned().unwrap_or_else(|| json!({})),
                json: String::new(),
            },
            "thinking" | "redacted_thinking" => Block::Thinking(block.clone()),
            _ => return,
        };
        if self.blocks.len() < MOST_CALLS {
            self.blocks.insert(count(event, "/index"), begun);
        }
    }

    fn grow(&mut self, event: &Value) -> Result<(), ReadError> {
        let delta = &event["delta"];
        // One of a kind that was passed over.
        let Some(block) = self.blocks.get_mut(&count(event, "/index")) else {
            return Ok(());
        };
        match (block, text(delta, "type")) {
            (Block::Text(known), "text_delta") => known.push_str(text(delta, "text")),
            (Block::Call { json, .. }, "input_json_delta") => {
                json.push_str(text(delta, "partial_json"));
            }
            (Block::Thinking(value), "thinking_delta") => append(value, delta, "thinking"),
            (Block::Thinking(value), "signature_delta") => append(value, delta, "signature"),
            (_, "text_delta" | "input_json_delta") => {
                return Err(ReadError::Malformed {
                    what: "a block grows by something of another kind",
                });
            }
            _ => {}
        }
        Ok(())
    }
}

fn append(block: &mut Value, delta: &Value, name: &str) {
    let more = text(delta, name);
    if let Some(Value::String(known)) = block.get_mut(name) {
        known.push_str(more);
    } else if let Some(block) = block.as_object_mut() {
        block.insert(name.to_owned(), more.into());
    }
}
