use serde_json::{Value, json};

use super::dialect::Dialect;

/// What goes wrong at a vendor, in the vendor's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Overloaded: 529 or 503.
    Capacity,
    /// Too many calls: 429.
    RateLimit,
    /// No money left: 400 at Anthropic, 429 at OpenAI.
    Quota,
    /// The key is wrong: 401.
    Auth,
    /// The key may not do this: 403.
    Permission,
    /// No such model: 404.
    NotFound,
    /// The conversation is longer than the model takes: 400.
    TooLong,
    /// Refused for what is in it: 400.
    Safety,
    /// An error of the vendor's own: 500.
    Server,
    /// A request that is wrong, with the message: 400.
    Request(String),
    /// Anything else: status, kind, message.
    Other(u16, String, String),
}

impl Trouble {
    /// Status and body.
    pub(super) fn answer(&self, dialect: Dialect) -> (u16, Value) {
        let (status, kind, code, message) = match dialect {
            Dialect::Messages => self.anthropic(),
            Dialect::Chat | Dialect::Responses => self.openai(),
        };
        let body = match dialect {
            Dialect::Messages => json!({
                "type": "error",
                "error": {"type": kind, "message": message},
                "request_id": "req_011Ctest",
            }),
            Dialect::Chat | Dialect::Responses => json!({
                "error": {"message": message, "type": kind, "param": null, "code": code},
            }),
        };
        (status, body)
    }

    /// As an event in a stream that has begun.
    pub(super) fn event(&self, dialect: Dialect) -> String {
        let (_, body) = self.answer(dialect);
        match dialect {
            Dialect::Messages => format!("event: error\ndata: {body}\n\n"),
            Dialect::Chat => format!("data: {body}\n\n"),
            Dialect::Responses => {
                let error = &body["error"];
                let code = if error["code"].is_null() {
                    &error["type"]
                } else {
                    &error["code"]
                };
                let event = json!({
                    "type": "response.failed",
                    "sequence_number": 1_000,
                    "response": {
                        "id": "resp_failed", "object": "response", "status": "failed",
                        "error": {"code": code, "message": error["message"]},
                        "output": [], "usage": null,
                    },
                });
                format!("event: response.failed\ndata: {event}\n\n")
            }
        }
    }

    fn anthropic(&self) -> (u16, &str, Option<&str>, &str) {
        let (status, kind, message) = match self {
            Self::Capacity => (529, "overloaded_error", "Overloaded"),
            Self::RateLimit => (
                429,
                "rate_limit_error",
                "This request would exceed your organization's rate limit of 50 requests per minute.",
            ),
            Self::Quota => (
                400,
                "invalid_request_error",
                "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.",
            ),
            Self::Auth => (401, "authentication_error", "invalid x-api-key"),
            Self::Permission => (
                403,
                "permission_error",
                "Your API key does not have permission to use the specified resource.",
            ),
            Self::NotFound => (404, "not_found_error", "model: no-such-model"),
            Self::TooLong => (
                400,
                "invalid_request_error",
                "prompt is too long: 208310 tokens > 200000 maximum",
            ),
            Self::Safety => (
                400,
                "invalid_request_error",
                "Output blocked by content filtering policy",
            ),
            Self::Server => (500, "api_error", "Internal server error"),
            Self::Request(message) => (400, "invalid_request_error", message.as_str()),
            Self::Other(status, kind, message) => (*status, kind.as_str(), message.as_str()),
        };
        (status, kind, None, message)
    }

    fn openai(&self) -> (u16, &str, Option<&str>, &str) {
        match self {
            Self::Capacity => (
                503,
                "service_unavailable_error",
                None,
                "The engine is currently overloaded, please try again later.",
            ),
            Self::RateLimit => (
                429,
                "requests",
                Some("rate_limit_exceeded"),
                "Rate limit reached for requests. Limit: 3 / min.",
            ),
            Self::Quota => (
                429,
                "insufficient_quota",
                Some("insufficient_quota"),
                "You exceeded your current quota, please check your plan and billing details.",
            ),
            Self::Auth => (
                401,
                "invalid_request_error",
                Some("invalid_api_key"),
                "Incorrect API key provided.",
            ),
            Self::Permission => (
                403,
                "invalid_request_error",
                Some("model_not_found"),
                "Project does not have access to this model.",
            ),
            Self::NotFound => (
                404,
                "invalid_request_error",
                Some("model_not_found"),
                "The model `no-such-model` does not exist or you do not have access to it.",
            ),
            Self::TooLong => (
                400,
                "invalid_request_error",
                Some("context_length_exceeded"),
                "This model's maximum context length is 128000 tokens. However, your messages resulted in 141230 tokens.",
            ),
            Self::Safety => (
                400,
                "invalid_request_error",
                Some("content_policy_violation"),
                "Your request was rejected as a result of our safety system.",
            ),
            Self::Server => (
                500,
                "server_error",
                Some("server_error"),
                "The server had an error while processing your request. Sorry about that!",
            ),
            Self::Request(message) => (400, "invalid_request_error", None, message),
            Self::Other(status, kind, message) => (*status, kind, None, message),
        }
    }
}
