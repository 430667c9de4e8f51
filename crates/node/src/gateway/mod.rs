//! The lane gateway: how an agent talks to its model without having the key.
//!
//! A gateway is a reverse proxy outside the workspace, for one process of one lane and for as long
//! as that runs. Inside, the agent has a loopback address and a [`Placeholder`]. The gateway takes
//! the requests of the lane's API alone, puts the real key in the place of the placeholder, and
//! talks to the lane's [`BaseUrl`] alone. It asks the [`CallLedger`](crate::model::CallLedger)
//! before anything goes out, counts what comes back, and tries again what may succeed a moment
//! later, so that a client need not: what fails in the end is told it as a mistake of its own,
//! after which no client tries again.
//!
//! | a request | is |
//! |---|---|
//! | without the placeholder, to another path, host or scheme | refused; the vendor is not asked |
//! | with a body | read whole: its cost is judged before it goes out, and it may go out again |
//!
//! | an answer | is |
//! |---|---|
//! | a stream | passed on as it comes, from its first event; memory is bounded, a slow client slows the vendor |
//! | a stream that breaks off or stalls | ended with an event that says so, and a cut connection |
//! | without a stream | read whole, so that one that breaks off is asked for again |
//! | an error, a redirect, a page | tried again if that may help, and never passed on as it is |
//!
//! Limits: a secret that the vendor spreads over several events is not found. The key is in the
//! memory of this process while the gateway is open.

mod attempt;
mod base_url;
mod body;
mod call;
mod classify;
mod guard;
mod headers;
mod meter;
mod placeholder;
mod relay;
mod request;
mod server;
mod settings;
mod standing;
mod upstream;
mod words;

pub use base_url::{BaseUrl, BaseUrlError};
pub use meter::{Malformed, StreamMeter};
pub use placeholder::Placeholder;
use server::Shared;
pub use server::{Gateway, GatewayError};
pub use settings::{GatewayLimits, GatewaySettings, RetryPolicy, Roots};
pub use standing::GatewayReport;
pub use upstream::RootsError;
