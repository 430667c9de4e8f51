use mini_ork_node::agent::{AgentEvent, EndReason};
use mini_ork_node::model::FailureClass;
use serde::Deserialize as _;
use serde_json::Value;

use super::words::{entry, said, tool_use_on};
use super::{AgentFailureKind, Conclusion, Entry, EntryKind};

/// What the built-in agent prints.
#[derive(Debug)]
pub(super) struct BuiltIn(Conclusion);

impl Default for BuiltIn {
    fn default() -> Self {
        Self(Conclusion::of_silence())
    }
}

impl BuiltIn {
    pub(super) fn read(&mut self, event: &Value, entries: &mut Vec<Entry>) {
        // An event that a later version knows is none of this one's business.
        let Ok(event) = AgentEvent::deserialize(event) else {
            return;
        };
        match event {
            AgentEvent::Start { .. } | AgentEvent::Usage { .. } => {}
            AgentEvent::Text { text } => entries.extend(said(&text)),
            AgentEvent::Tool { name, input } => entries.push(tool_use_on(&name, &input)),
            AgentEvent::ToolEnd { ok: true, .. } => {}
            AgentEvent::ToolEnd { ok: false, output } => {
                entries.push(entry(EntryKind::Noted, &format!("a tool failed: {output}")));
            }
            AgentEvent::Note { text } => entries.push(entry(EntryKind::Noted, &text)),
            AgentEvent::End {
                ok,
                reason,
                message,
                answer,
                ..
            } => {
                self.0.set_answer(&answer);
                if ok && reason.is_success() {
                    self.0.outcome = Ok(());
                } else {
                    self.0.fail(kind(reason), &message);
                    entries.push(entry(EntryKind::Failed, &message));
                }
            }
        }
    }

    pub(super) fn conclude(self) -> Conclusion {
        self.0
    }
}

fn kind(reason: EndReason) -> AgentFailureKind {
    match reason {
        EndReason::Turns => AgentFailureKind::Turns,
        EndReason::Api => AgentFailureKind::Call(None),
        EndReason::Refused => AgentFailureKind::Call(Some(FailureClass::Safety)),
        EndReason::Stream => AgentFailureKind::Call(Some(FailureClass::Stream)),
        EndReason::Network => AgentFailureKind::Call(Some(FailureClass::Network)),
        EndReason::Workspace => AgentFailureKind::Workspace,
        EndReason::Finished
        | EndReason::Answered
        | EndReason::Empty
        | EndReason::Cut
        | EndReason::Repeating
        | EndReason::Tokens
        | EndReason::Time
        | EndReason::Window
        | EndReason::Unheard
        | EndReason::Setup => AgentFailureKind::Agent,
    }
}
