//! How the control plane reaches the processes in a sandbox: one protocol over any byte stream.
//!
//! Inside runs `mini-ork-node serve`: an [`init`](init_main) that takes care of orphans and starts
//! the server anew when it dies, and the server, which listens on a Unix socket
//! that nothing but the outside can speak to. Outside, a [`Boundary`] makes the sandbox and a
//! [`Dialer`] that opens connections to the socket; [`SessionWorkspace`] is the workspace on top.
//! Each connection carries any number of streams, which either side may open ([`Mux`]).
//!
//! Nothing is remembered that is not in a record directory, so each side may die and come back:
//! programs belong to supervisors inside, and a request that was lost with its connection is asked
//! again. What comes from inside is hostile: every frame and count is bounded, and one stream that
//! is not read holds up no other.

mod answers;
mod client;
mod egress;
mod error;
mod frame;
mod greeting;
mod init;
mod knock;
mod memory;
mod mux;
mod passages;
mod process;
mod server;
mod started;
mod way_in;
mod workspace;

pub use client::{Channel, DialError, Dialer};
pub use error::SessionError;
pub use init::{BRIDGE_ARGUMENT, SERVE_ARGUMENT, bridge_main, init_main};
pub(crate) use knock::knock;
pub use mux::{Mux, MuxStream, Side};
pub use way_in::{ServerAddress, WayIn};
pub(crate) use workspace::enter;
pub use workspace::{Boundary, Sandbox, SessionWorkspace};
