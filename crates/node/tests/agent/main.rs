//! Tests of the built-in agent against a model that says what a script tells it to.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail tests")]

mod endings;
mod gateway;
mod hostile;
mod support;
mod tools;
mod wire;
mod work;
