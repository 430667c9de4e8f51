//! What the tests of mini-ork share: a private world for each test, hermetic repositories, the
//! real program under a scrubbed environment, waits with a limit, and looks at what is left.
//!
//! Everything panics with what a person needs to know, because its only callers are tests.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test whose world cannot be set up has failed, and says why"
)]

mod agents;
mod canary;
mod checkout;
mod container_engine;
mod env;
mod layout;
mod model_server;
mod mount;
mod processes;
mod program;
mod repo;
mod sdks;

pub use agents::agent_cli;
pub use canary::{assert_no_secret, places_with};
pub use checkout::{CheckoutState, checkout_state, tree_state};
pub use container_engine::{ContainerEngine, GVISOR, static_node_program};
pub use env::{FULL_VARIABLE, Lane, TestEnv, full, skip};
pub use layout::{LaidOut, Layout};
pub use model_server::{
    Act, Dialect, Ending, ModelRequest, ModelServer, Received, Script, Stop, Tokens, Trouble, Turn,
};
pub use mount::SmallDisk;
pub use processes::processes_with;
pub use program::{Call, Output, Running};
pub use repo::Repo;
pub use sdks::{sdk_script, sdk_works};

use std::time::{Duration, Instant};

/// Waits until `condition` holds; panics when that takes longer than `limit`.
#[track_caller]
pub fn wait_for(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < until, "no {what} within {limit:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
