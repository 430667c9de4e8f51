//! The policy proxy, the shim and the confinement, with real sockets and real programs.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail tests")]

mod confined;
mod proxy;
mod support;
mod tools;
mod verified;
