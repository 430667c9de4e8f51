//! The backend `docker`: a container for each run, on the engine of this machine.
//!
//! The container has no network, no capabilities and a root that cannot be written to; it runs as
//! the user who started mini-ork. Its first process is `mini-ork-node`, mounted into whatever image
//! was chosen, and every connection to it is a process that the engine starts beside it and that
//! bridges to its socket. What is known of a container is on record before it is made
//! ([`SandboxRecord`]), so that whoever comes after a crash finds it by its name.

mod boundary;
mod channel;
mod container;
mod endpoint;
mod engine;
mod error;
mod node_program;
mod record;

pub use boundary::{DockerBoundary, DockerSettings, release, release_strays};
pub use container::ContainerLimits;
pub use endpoint::{EndpointError, EndpointSources, find_endpoint};
pub use error::DockerError;
pub use record::{SandboxRecord, SandboxState};
