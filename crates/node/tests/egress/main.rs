//! The policy proxy, the shim and the confinement, with real sockets and real programs.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail tests")]

mod capture;
mod confined;
mod intervals;
mod open_network;
mod places;
mod proxy;
mod support;
mod tools;
mod verified;
mod web;
