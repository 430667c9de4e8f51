use mini_ork_node::model::FailureClass;
use serde_json::Value;

use super::failure::{class, sentence_of};
use super::words::{entry, said, tool_use};
use super::{AgentFailureKind, Conclusion, Entry, EntryKind, LONGEST_ANSWER, money};

/// What `opencode run --format json` prints. It has no event for its end, so the last step tells.
#[derive(Debug)]
pub(super) struct Opencode {
    conclusion: Conclusion,
    /// What was said in the step that goes on.
    step: String,
    cost_usd: f64,
}

impl Default for Opencode {
    fn default() -> Self {
        Self {
            conclusion: Conclusion::of_silence(),
            step: String::new(),
            cost_usd: 0.0,
        }
    }
}

impl Opencode {
    pub(super) fn read(&mut self, event: &Value, entries: &mut Vec<Entry>) {
        self.conclusion.set_session(&event["sessionID"]);
        let part = &event["part"];
        match event["type"].as_str() {
            Some("step_start") => {
                self.step.clear();
                self.conclusion.outcome = Conclusion::of_silence().outcome;
            }
            Some("text") => {
                let text = part["text"].as_str().unwrap_or_default();
                if self.step.len() <= LONGEST_ANSWER {
                    self.step.push_str(text);
                    self.step.push('\n');
                }
                entries.extend(said(text));
            }
            Some("tool_use") => {
                let state = &part["state"];
                let name = part["tool"].as_str().unwrap_or_default();
                entries.push(tool_use(name, &state["input"]));
                if state["status"] == "error" {
                    let text = state["error"].as_str().unwrap_or("without a reason");
                    entries.push(entry(EntryKind::Noted, &format!("a tool failed: {text}")));
                }
            }
            Some("step_finish") => self.step_finish(part, entries),
            Some("error") => {
                let (kind, message) = error(&event["error"]);
                self.conclusion.fail(kind, &message);
                entries.push(entry(EntryKind::Failed, &message));
            }
            _ => {}
        }
    }

    pub(super) fn conclude(self) -> Conclusion {
        let mut conclusion = self.conclusion;
        // It names no cost for models whose price it does not know.
        conclusion.cost_usd = Some(self.cost_usd).filter(|cost| *cost > 0.0);
        conclusion
    }

    fn step_finish(&mut self, part: &Value, entries: &mut Vec<Entry>) {
        let cost = self.cost_usd + money(&part["cost"]).unwrap_or(0.0);
        if cost.is_finite() {
            self.cost_usd = cost;
        }
        if !self.step.trim().is_empty() {
            self.conclusion.set_answer(self.step.trim_end());
        }
        let (kind, message) = match part["reason"].as_str() {
            Some("stop") => {
                self.conclusion.outcome = Ok(());
                return;
            }
            // The next step follows.
            Some("tool-calls") => return,
            Some("length") => (
                AgentFailureKind::Agent,
                "its last answer was longer than the model may write",
            ),
            Some("content-filter") => (
                AgentFailureKind::Call(Some(FailureClass::Safety)),
                "the vendor refused to answer",
            ),
            _ => (
                AgentFailureKind::Call(Some(FailureClass::Stream)),
                "its last answer was cut off",
            ),
        };
        self.conclusion.fail(kind, message);
        entries.push(entry(EntryKind::Failed, message));
    }
}

fn error(error: &Value) -> (AgentFailureKind, String) {
    let data = &error["data"];
    let text = data["message"].as_str().or(error["name"].as_str());
    let message = sentence_of(text.unwrap_or("it ended with an error that it does not describe"));
    let body = data["responseBody"].as_str().unwrap_or_default();
    let status = data["statusCode"].as_u64();
    let class = class(status, &format!("{message} {body}"));
    (AgentFailureKind::Call(class), message)
}
