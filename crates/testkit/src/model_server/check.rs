use std::collections::BTreeSet;

use serde_json::Value;

use super::conversation::{blocks, items};
use super::dialect::Dialect;
use super::ledger::Received;
use super::request::bearer;
use super::trouble::Trouble;

/// Refuses a key that is not `key`, or is not where the vendor looks for it. Anthropic takes it in
/// either header; one that is wrong beside one that is right is refused as well.
pub(super) fn key(received: &Received, dialect: Dialect, key: &str) -> Result<(), Trouble> {
    let own = received.header("x-api-key");
    let bearer = bearer(received);
    let is_right = match dialect {
        Dialect::Messages => {
            let mut given = [own, bearer].into_iter().flatten().peekable();
            given.peek().is_some() && given.all(|given| given == key)
        }
        Dialect::Chat | Dialect::Responses => bearer == Some(key),
    };
    if is_right { Ok(()) } else { Err(Trouble::Auth) }
}

/// Reads the body and refuses what the vendor would refuse.
pub(super) fn body(received: &Received, dialect: Dialect) -> Result<Value, Trouble> {
    if dialect == Dialect::Messages && received.header("anthropic-version").is_none() {
        return wrong("anthropic-version: header is required");
    }
    let Ok(body) = serde_json::from_slice::<Value>(&received.body) else {
        return wrong("We could not parse the JSON body of your request.");
    };
    if !body["model"].is_string() {
        return wrong("model: Field required");
    }
    match dialect {
        Dialect::Messages => messages(&body)?,
        Dialect::Chat => chat(&body)?,
        Dialect::Responses => responses(&body)?,
    }
    Ok(body)
}

fn messages(body: &Value) -> Result<(), Trouble> {
    if body["max_tokens"].as_u64().is_none_or(|most| most == 0) {
        return wrong("max_tokens: Field required");
    }
    let messages = items(Dialect::Messages, body);
    if messages.is_empty() {
        return wrong("messages: at least one message is required");
    }
    let mut open = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        // A system message in the middle is a beta of the vendor's.
        if !["user", "assistant", "system"].contains(&role) {
            return wrong(format!(
                "messages.{at}.role: Input should be 'user' or 'assistant'"
            ));
        }
        if at == 0 && role != "user" {
            return wrong("messages: first message must use the \"user\" role");
        }
        if message["content"].as_str() == Some("") || empty_text(message) {
            return wrong("messages: text content blocks must be non-empty");
        }
        let answered = ids(message, "tool_result", "tool_use_id");
        if let Some(id) = answered.difference(&open).next() {
            return wrong(format!(
                "messages.{at}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            ));
        }
        if let Some(id) = open.difference(&answered).next() {
            return wrong(format!(
                "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {id}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
                at - 1
            ));
        }
        open = ids(message, "tool_use", "id");
    }
    if let Some(id) = open.first() {
        return wrong(format!(
            "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {id}.",
            messages.len() - 1
        ));
    }
    let breakpoints = count_keys(body, "cache_control");
    if breakpoints > 4 {
        return wrong(format!(
            "A maximum of 4 blocks with cache_control may be provided. Found {breakpoints}."
        ));
    }
    Ok(())
}

fn empty_text(message: &Value) -> bool {
    blocks(message)
        .iter()
        .any(|block| block["type"] == "text" && block["text"] == "")
}

fn ids(message: &Value, kind: &str, field: &str) -> BTreeSet<String> {
    blocks(message)
        .iter()
        .filter(|block| block["type"] == kind)
        .filter_map(|block| block[field].as_str())
        .map(str::to_owned)
        .collect()
}

fn count_keys(value: &Value, wanted: &str) -> usize {
    match value {
        Value::Array(list) => list.iter().map(|value| count_keys(value, wanted)).sum(),
        Value::Object(map) => map
            .iter()
            // The arguments of a tool are no business of the vendor's.
            .filter(|(key, _)| *key != "input" && *key != "input_schema")
            .map(|(key, value)| {
                let own = usize::from(key == wanted && !value.is_null());
                own + count_keys(value, wanted)
            })
            .sum(),
        _ => 0,
    }
}

fn chat(body: &Value) -> Result<(), Trouble> {
    let messages = items(Dialect::Chat, body);
    if messages.is_empty() {
        return wrong("Invalid 'messages': empty array. Expected an array with minimum length 1.");
    }
    if !body["stream_options"].is_null() && body["stream"] != true {
        return wrong("The 'stream_options' parameter is only allowed when 'stream' is enabled.");
    }
    let mut open = BTreeSet::new();
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        if !["system", "developer", "user", "assistant", "tool"].contains(&role) {
            return wrong(format!(
                "Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'."
            ));
        }
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            if !open.remove(id) {
                return wrong(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
                );
            }
        } else {
            all_answered(&open)?;
            open = call_ids(&message["tool_calls"]);
        }
    }
    all_answered(&open)
}

fn call_ids(calls: &Value) -> BTreeSet<String> {
    let calls = calls.as_array().map_or(&[][..], Vec::as_slice);
    calls
        .iter()
        .filter_map(|call| call["id"].as_str())
        .map(str::to_owned)
        .collect()
}

fn all_answered(open: &BTreeSet<String>) -> Result<(), Trouble> {
    match open.first() {
        None => Ok(()),
        Some(id) => wrong(format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {id}"
        )),
    }
}

fn responses(body: &Value) -> Result<(), Trouble> {
    if body["previous_response_id"].is_string() {
        return wrong("Previous response with id not found.");
    }
    if !body["input"].is_string() && !body["input"].is_array() {
        return wrong("Missing required parameter: 'input'.");
    }
    let mut open = BTreeSet::new();
    for item in items(Dialect::Responses, body) {
        let id = item["call_id"].as_str().unwrap_or_default();
        match item["type"].as_str() {
            Some("function_call" | "custom_tool_call") => {
                open.insert(id.to_owned());
            }
            Some("function_call_output" | "custom_tool_call_output") if !open.remove(id) => {
                return wrong(format!(
                    "No tool call found for function call output with call_id {id}."
                ));
            }
            _ => {}
        }
    }
    match open.first() {
        None => Ok(()),
        Some(id) => wrong(format!("No tool output found for function call {id}.")),
    }
}

fn wrong<T>(message: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Request(message.into()))
}
