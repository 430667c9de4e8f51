//! Which hosts the programs of a workspace reach, and the only way to them.
//!
//! A workspace with a policy other than `full` has no interface but loopback. The shim inside
//! listens there and carries each connection as a stream of its own to the [`PolicyProxy`] outside,
//! which decides and dials. Nothing inside is relied on: a program that speaks to the proxy itself
//! gets what the shim would have got.

mod address;
mod client_hello;
mod denials;
mod dial;
mod host;
mod opening;
mod policy;
mod proxy;
mod shim;
mod stream;
mod web;
mod wire;

pub use address::reserved;
pub use denials::{Denial, DenialKind};
pub use dial::{Resolve, SystemResolver};
pub use host::{Host, HostError, HostName};
pub use policy::{
    AllowEntry, AllowList, DEFAULT_PORTS, EntryError, MOST_ENTRIES, NetworkPolicy, POLICY_NAMES,
    PolicyMistake,
};
pub use proxy::PolicyProxy;
pub use shim::{LoopbackPlan, NAME_SERVER, PROXY_ADDRESS, Shim, ShimError, WayOut};
pub use stream::ByteStream;
pub use wire::Answer;
#[cfg(test)]
pub(crate) use wire::read_answer;
