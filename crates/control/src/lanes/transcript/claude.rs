use mini_ork_node::model::FailureClass;
use serde_json::Value;

use super::failure::class;
use super::words::{entry, said, tool_use};
use super::{AgentFailureKind, Conclusion, Entry, EntryKind, count, money};

/// What `claude --output-format stream-json` prints.
#[derive(Debug)]
pub(super) struct Claude(Conclusion);

impl Default for Claude {
    fn default() -> Self {
        Self(Conclusion::of_silence())
    }
}

impl Claude {
    pub(super) fn read(&mut self, event: &Value, entries: &mut Vec<Entry>) {
        self.0.set_session(&event["session_id"]);
        match event["type"].as_str() {
            Some("system") if event["subtype"] == "api_retry" => {
                entries.push(entry(EntryKind::Noted, &retry(event)));
            }
            Some("assistant") => assistant(event, entries),
            Some("user") => tool_results(event, entries),
            Some("result") => self.result(event, entries),
            _ => {}
        }
    }

    pub(super) fn conclude(self) -> Conclusion {
        self.0
    }

    fn result(&mut self, event: &Value, entries: &mut Vec<Entry>) {
        let text = event["result"].as_str().unwrap_or_default();
        self.0.set_answer(text);
        self.0.cost_usd = money(&event["total_cost_usd"]);
        self.0.outcome = Ok(());
        if let Some((kind, message)) = problem(event, text) {
            self.0.fail(kind, message);
            entries.push(entry(EntryKind::Failed, message));
        }
    }
}

/// What is wrong with a result. That it says `success` and that the program ends with 0 means
/// nothing: it does so when every call has failed, and when the answer was cut.
fn problem<'a>(event: &'a Value, text: &'a str) -> Option<(AgentFailureKind, &'a str)> {
    let first_error = event["errors"][0].as_str();
    if event["subtype"] == "error_max_turns" {
        let message = first_error.unwrap_or("it used up its turns");
        return Some((AgentFailureKind::Turns, message));
    }
    if event["is_error"] != false {
        let message = first_error.unwrap_or(if text.is_empty() {
            "it ended with an error that it does not describe"
        } else {
            text
        });
        let kind = if event["subtype"] == "success" {
            AgentFailureKind::Call(class(event["api_error_status"].as_u64(), text))
        } else {
            AgentFailureKind::Agent
        };
        return Some((kind, message));
    }
    if event["subtype"] != "success" {
        let message = first_error.unwrap_or("it ended before it was done");
        return Some((AgentFailureKind::Agent, message));
    }
    let call = |class| AgentFailureKind::Call(Some(class));
    match event["stop_reason"].as_str() {
        None => Some((call(FailureClass::Stream), "its last answer was cut off")),
        Some("refusal") => Some((call(FailureClass::Safety), "the model refused to answer")),
        Some("max_tokens" | "model_context_window_exceeded") => Some((
            AgentFailureKind::Agent,
            "its last answer was longer than the model may write",
        )),
        Some(_) => None,
    }
}

fn assistant(event: &Value, entries: &mut Vec<Entry>) {
    // It words the failure of a call as if the model had said it.
    if event["error"].is_string() {
        return;
    }
    for block in event["message"]["content"].as_array().into_iter().flatten() {
        match block["type"].as_str() {
            // A helper's words are for the one who asked it.
            Some("text") if event["parent_tool_use_id"].is_null() => {
                entries.extend(said(block["text"].as_str().unwrap_or_default()));
            }
            Some("tool_use") => {
                let name = block["name"].as_str().unwrap_or_default();
                entries.push(tool_use(name, &block["input"]));
            }
            _ => {}
        }
    }
}

fn tool_results(event: &Value, entries: &mut Vec<Entry>) {
    for block in event["message"]["content"].as_array().into_iter().flatten() {
        if block["type"] != "tool_result" || block["is_error"] != true {
            continue;
        }
        let content = &block["content"];
        let text = content.as_str().or_else(|| content[0]["text"].as_str());
        let text = text.unwrap_or("without a reason");
        entries.push(entry(EntryKind::Noted, &format!("a tool failed: {text}")));
    }
}

fn retry(event: &Value) -> String {
    let status = event["error_status"]
        .as_u64()
        .map(|status| format!("status {status}"));
    let why = status.as_deref().or(event["error"].as_str());
    let attempt = count(&event["attempt"]);
    format!(
        "calls the model again ({}), try {attempt}",
        why.unwrap_or("no reason given")
    )
}
