//! What a hostile program tries from inside a workspace, and what it is told when it takes too much.
//!
//! `tests/attacker` is the program; here it is put behind each boundary, and afterwards the machine,
//! the workspace and its neighbours are looked at.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the helpers of tests fail tests, and say what was counted"
)]

mod attempts;
mod limits;
mod records;
mod server;
mod world;
