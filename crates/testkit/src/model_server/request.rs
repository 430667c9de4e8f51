use serde_json::Value;

use super::conversation::{Conversation, offered};
use super::dialect::Dialect;
use super::ledger::Received;
use super::tools::Offered;

/// A call to a model, as a script sees it.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    pub(super) dialect: Dialect,
    pub(super) number: usize,
    pub(super) body: Value,
    pub(super) offered: Vec<Offered>,
    key: String,
    conversation: Conversation,
}

impl ModelRequest {
    pub(super) fn new(number: usize, dialect: Dialect, received: &Received, body: Value) -> Self {
        Self {
            dialect,
            number,
            offered: offered(dialect, &body),
            key: credential(received).unwrap_or_default().to_owned(),
            conversation: Conversation::read(dialect, &body),
            body,
        }
    }

    /// The API.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// How many requests came before this one, of whatever kind.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The model that it names.
    pub fn model(&self) -> &str {
        self.body["model"].as_str().unwrap_or_default()
    }

    /// Whether it asks for a stream.
    pub fn is_streamed(&self) -> bool {
        self.body["stream"].as_bool().unwrap_or_default()
    }

    /// How many answers of the model its conversation holds.
    pub fn answers(&self) -> usize {
        self.conversation.answers
    }

    /// What the tools answered since the last answer of the model, in order.
    pub fn results(&self) -> &[String] {
        &self.conversation.results
    }

    /// Names of the tools that it offers.
    pub fn tools(&self) -> Vec<&str> {
        self.offered.iter().map(|tool| tool.name.as_str()).collect()
    }

    /// The body.
    pub fn body(&self) -> &Value {
        &self.body
    }

    /// Whether `text` occurs in the body as JSON has it.
    pub fn contains(&self, text: &str) -> bool {
        self.body.to_string().contains(text)
    }

    /// The key that it came with, for scripts that repeat it.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether a client asks on its own account: for the title of a session, for example.
    pub(super) fn is_side(received: &Received, request: &Self) -> bool {
        let agent = received.header("user-agent").unwrap_or_default();
        let of_a_client = agent.starts_with("claude-cli/") || agent.starts_with("opencode/");
        let wants_a_form = !request.body["output_config"]["format"].is_null();
        (of_a_client || wants_a_form) && request.offered.is_empty()
    }
}

/// The credential of a request, wherever it is.
pub(super) fn credential(received: &Received) -> Option<&str> {
    received.header("x-api-key").or_else(|| bearer(received))
}

pub(super) fn bearer(received: &Received) -> Option<&str> {
    received.header("authorization")?.strip_prefix("Bearer ")
}
