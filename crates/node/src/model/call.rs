use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{CallFailure, FailureClass};

/// The form in which a lane talks to its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// Anthropic's Messages API: `POST /v1/messages`.
    AnthropicMessages,
    /// OpenAI's chat completions: `POST /chat/completions`.
    OpenaiChat,
    /// OpenAI's Responses API: `POST /responses`.
    OpenaiResponses,
}

impl Api {
    /// The name in records and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::AnthropicMessages => "anthropic-messages",
            Self::OpenaiChat => "openai-chat",
            Self::OpenaiResponses => "openai-responses",
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Tokens of a call, each counted in one field only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Read by the model at the full price.
    pub input: u64,
    /// Read from the vendor's cache.
    pub cache_read: u64,
    /// Written to the vendor's cache.
    pub cache_write: u64,
    /// Written by the model, with what it thought.
    pub output: u64,
}

/// A call that is about to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCall {
    /// The model that the request names.
    pub model: String,
    /// Length of the request's body.
    pub body_bytes: u64,
    /// Most tokens that the request lets the model write, when it says so.
    pub max_output_tokens: Option<u64>,
}

/// A call that was made, successful or not. Each request that went out is one, so a request that
/// was tried three times is three.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedCall {
    /// What the vendor said that it counted; absent when it said nothing.
    pub usage: Option<TokenUsage>,
    /// Whether nothing was dealt besides `usage`: the vendor's count is final, or the vendor refused
    /// the call, or never got it. Of a stream that was cut only the beginning is known, and more may
    /// have been dealt.
    pub complete: bool,
    /// Absent when the answer was complete.
    pub failure: Option<CallFailure>,
    /// Status of the answer, when there was one.
    pub status: Option<u16>,
    /// Milliseconds since the Unix epoch.
    pub started_at_ms: u64,
    /// Until the end of the answer, in milliseconds.
    pub duration_ms: u64,
}

/// Stands for a call that was admitted, until its end is recorded.
#[derive(Debug, PartialEq, Eq)]
pub struct CallTicket(pub u64);

/// Why a call may not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind of refusal.
    pub class: FailureClass,
    /// One sentence.
    pub message: String,
}

/// Decides which calls may be made, and writes down what they were.
#[async_trait]
pub trait CallLedger: Send + Sync + fmt::Debug {
    /// Asked before anything of the call goes out. When it returns a ticket, it is on record that
    /// the call was begun: its cost is unknown until [`Self::record`], whatever happens to the
    /// caller.
    async fn admit(&self, call: &PlannedCall) -> Result<CallTicket, Refusal>;

    /// Writes down the end of a call. It is durable when this returns.
    async fn record(&self, ticket: CallTicket, call: FinishedCall);
}
