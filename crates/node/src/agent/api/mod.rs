//! The three APIs: how a request is written and an answer is read.

mod chat;
mod messages;
mod responses;

use serde_json::Value;

use super::conversation::{Part, Turn};
use super::tools::Tool;
use crate::model::{Api, TokenUsage};

/// Most calls that are read from one answer; what comes after is left out.
const MOST_CALLS: usize = 64;

/// What goes into a request.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) model: &'a str,
    pub(super) system: &'a str,
    pub(super) tools: &'a [Tool],
    pub(super) turns: &'a [Turn],
    pub(super) max_output_tokens: u64,
    pub(super) habits: Habits,
}

/// In what vendors of one API differ. Found out by being refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Habits {
    /// Chat: the limit is called `max_tokens`, as it was at first.
    pub(super) old_limit_name: bool,
    /// Responses: the model gives its reasoning in encrypted form.
    pub(super) encrypted_reasoning: bool,
}

impl Habits {
    pub(super) const DEFAULT: Self = Self {
        old_limit_name: false,
        encrypted_reasoning: true,
    };

    /// What to try when a vendor refused a request with `message`; none when it has another
    /// reason.
    pub(super) fn after_refusal(self, api: Api, message: &str) -> Option<Self> {
        let adapted = match api {
            Api::OpenaiChat if message.contains("max_completion_tokens") => Self {
                old_limit_name: true,
                ..self
            },
            Api::OpenaiResponses if message.to_lowercase().contains("encrypted") => Self {
                encrypted_reasoning: false,
                ..self
            },
            _ => self,
        };
        (adapted != self).then_some(adapted)
    }
}

/// The path of the API's endpoint, below the base URL.
pub(super) fn path(api: Api) -> &'static str {
    match api {
        Api::AnthropicMessages => "/v1/messages",
        Api::OpenaiChat => "/chat/completions",
        Api::OpenaiResponses => "/responses",
    }
}

/// The body of the request for the next answer, which is streamed.
pub(super) fn body(api: Api, request: &Request<'_>) -> Value {
    let mut body = match api {
        Api::AnthropicMessages => messages::body(request),
        Api::OpenaiChat => chat::body(request),
        Api::OpenaiResponses => responses::body(request),
    };
    // An empty list is refused.
    if request.tools.is_empty()
        && let Some(fields) = body.as_object_mut()
    {
        fields.remove("tools");
    }
    body
}

/// What the model answered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    pub(super) parts: Vec<Part>,
    pub(super) stop: Stop,
    /// Absent when the vendor did not say.
    pub(super) usage: Option<TokenUsage>,
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// It said all that it wanted to.
    Complete,
    /// It came to the limit of its output.
    Length,
    /// It, or its vendor, refused for reasons of safety.
    Refused,
    /// Its window is full.
    WindowFull,
}

/// Why a stream is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReadError {
    #[error("{message}")]
    Vendor { message: String },
    #[error("the answer is not of the API's form: {what}")]
    Malformed { what: &'static str },
    #[error("the answer broke off")]
    Cut,
}

/// Reads the events of one answer.
pub(super) trait Reader: Send {
    /// Takes the data of the next event.
    fn event(&mut self, data: &[u8]) -> Result<(), ReadError>;

    /// The answer, once the stream has ended.
    fn finish(self: Box<Self>) -> Result<Answer, ReadError>;
}

pub(super) fn reader(api: Api) -> Box<dyn Reader> {
    match api {
        Api::AnthropicMessages => Box::new(messages::MessagesReader::default()),
        Api::OpenaiChat => Box::new(chat::ChatReader::default()),
        Api::OpenaiResponses => Box::new(responses::ResponsesReader::default()),
    }
}

/// What an error body or event says: each API has `error.message`, or `message` at the top.
pub(super) fn error_message(value: &Value) -> Option<&str> {
    let error = value.get("error").unwrap_or(value);
    error
        .get("message")
        .or(Some(error))
        .and_then(Value::as_str)
        .filter(|message| !message.trim().is_empty())
}

fn parse(data: &[u8]) -> Result<Value, ReadError> {
    serde_json::from_slice(data).map_err(|_| ReadError::Malformed {
        what: "an event is no JSON",
    })
}

fn vendor_error(value: &Value) -> ReadError {
    let message =
        error_message(value).unwrap_or("the vendor reports an error and does not say which");
    ReadError::Vendor {
        message: message.to_owned(),
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn count(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

#[cfg(test)]
#[path = "api_tests.rs"]
mod tests;
