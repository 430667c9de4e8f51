//! The backend `docker`: a container for each run, on the engine of this machine.
//!
//! The container has no network unless it was asked for, no capabilities and a root that cannot be
//! written to; it runs as the user who started mini-ork. Its first process is `mini-ork-node`,
//! mounted into whatever image was chosen. It makes the first connection by itself, to a socket that
//! is mounted for it (`door`); every later one is a process that the engine starts beside it and
//! that bridges to its own socket. What is known of a container is on record before it is made
//! ([`SandboxRecord`](super::SandboxRecord)), so that whoever comes after a crash finds it by its
//! name.

mod boundary;
mod certificates;
mod channel;
mod container;
mod dialer;
mod door;
mod endpoint;
mod engine;
mod error;
mod images;
mod kind;
mod node_program;
mod podman;
mod removal;

pub use boundary::{DockerBoundary, DockerSettings};
pub use container::{ContainerLimits, ContainerRecord, Processors};
pub(super) use dialer::dialer;
pub use endpoint::{EndpointError, EndpointSources, find_endpoint};
pub use error::DockerError;
pub use images::{
    Build, BuildSource, IMAGE_LABEL, Image, build_image, list_images, pull_image, remove_image,
};
pub(super) use removal::remove;
pub use removal::{remove_stray, strays};
