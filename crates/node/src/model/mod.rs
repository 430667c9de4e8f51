//! What a call to a model's API is, for whoever makes, passes on, pays or counts one.

mod call;
mod failure;
mod sse;

pub use call::{Api, CallLedger, CallTicket, FinishedCall, PlannedCall, Refusal, TokenUsage};
pub use failure::{CallFailure, FailureClass};
pub use sse::{SseEvent, SseParser, SseTooLong};
