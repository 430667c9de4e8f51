//! Tests of `mini-ork-node` with real processes.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail tests")]

mod containment;
mod delivery;
mod gateway;
mod lifecycle;
mod redaction;
mod support;
mod watchers;
