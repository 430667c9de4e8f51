use std::io;
use std::path::PathBuf;

/// Why there is no container. Nothing of one is left.
#[derive(Debug, thiserror::Error)]
pub enum DockerError {
    /// No engine answers.
    #[error("no container engine answers at {endpoint}")]
    EngineDown {
        /// Where it was asked.
        endpoint: String,
        /// What the client says.
        #[source]
        source: Box<bollard::errors::Error>,
    },
    /// The engine's socket is closed to this user.
    #[error("this user may not use the container engine at {endpoint}")]
    NotPermitted {
        /// Where it was asked.
        endpoint: String,
    },
    /// The address of the engine is of a kind that is not supported.
    #[error("the container engine's address `{endpoint}` is neither unix:// nor tcp://")]
    Endpoint {
        /// The address.
        endpoint: String,
    },
    /// The engine does not have the image.
    #[error("the container engine has no image `{image}`")]
    NoImage {
        /// As it was asked for.
        image: String,
    },
    /// The engine no longer has the image that a run began with.
    #[error(
        "the container engine no longer has the image that `{image}` was when the run began ({id})"
    )]
    ImageGone {
        /// As it was asked for.
        image: String,
        /// Its id.
        id: String,
    },
    /// No image was named.
    #[error("no image was chosen for the `docker` backend")]
    NoImageChosen,
    /// The image cannot run here.
    #[error(
        "the image `{image}` is for {found}, and the mini-ork program for sandboxes is for {needed}"
    )]
    OtherMachine {
        /// As it was asked for.
        image: String,
        /// What it is for.
        found: String,
        /// What it should be for.
        needed: String,
    },
    /// The engine does not have the runtime.
    #[error("the container engine has no runtime `{runtime}`; it has {}", known.join(", "))]
    NoRuntime {
        /// As it was asked for.
        runtime: String,
        /// Those that it has.
        known: Vec<String>,
    },
    /// The engine takes the same runtime for every container.
    #[error("the container engine makes every container with `{used}`, and not with `{runtime}`")]
    OtherRuntime {
        /// As it was asked for.
        runtime: String,
        /// The one that it takes.
        used: String,
    },
    /// The container was made with another runtime.
    #[error("the container engine was asked for the runtime `{runtime}` and took `{used}`")]
    RuntimeNotTaken {
        /// As it was asked for.
        runtime: String,
        /// The one that it took.
        used: String,
    },
    /// The engine does not keep containers within limits.
    #[error(
        "this container engine keeps no limits on memory, processors and processes: it is rootless, on a machine with control groups of version 1"
    )]
    NoLimits,
    /// The machine of the engine has fewer processors than were asked for.
    #[error("the container engine has {has} processors, and {asked} were asked for")]
    TooFewProcessors {
        /// How many it takes.
        asked: u32,
        /// How many there are.
        has: u32,
    },
    /// The engine has no network for containers.
    #[error("the container engine has no network for containers")]
    NoNetwork,
    /// The program for the inside cannot be used.
    #[error("the mini-ork program for sandboxes, `{}`, {problem}", path.display())]
    NodeProgram {
        /// Where it was looked for.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A path cannot be handed to the engine.
    #[error("`{}` cannot be shared with a container: its name is no text", path.display())]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// The engine does not see a directory of this machine.
    #[error("the container engine does not see `{}`, which is on this machine", path.display())]
    NotSeen {
        /// The directory.
        path: PathBuf,
    },
    /// A container that has the name is not this run's.
    #[error("there is a container `{name}` that is not of this run")]
    Foreign {
        /// The name.
        name: String,
    },
    /// The container ended as soon as it began.
    #[error("the container ended at once: {reason}")]
    EndedAtOnce {
        /// What is known of it.
        reason: String,
    },
    /// The engine did not do what it was asked.
    #[error("the container engine could not {action}")]
    Engine {
        /// What it was asked.
        action: &'static str,
        /// What it said.
        #[source]
        source: Box<bollard::errors::Error>,
    },
    /// What an image is to be built from cannot be read.
    #[error("what the image is to be built from cannot be read")]
    Context(#[source] io::Error),
    /// What the user trusts cannot be read.
    #[error(transparent)]
    Authorities(#[from] crate::certificates::AuthorityError),
    /// The record of the container cannot be read or written.
    #[error("the record of the sandbox cannot be used")]
    Record(#[source] io::Error),
}

impl DockerError {
    pub(super) fn engine(action: &'static str) -> impl FnOnce(bollard::errors::Error) -> Self {
        move |source| Self::Engine {
            action,
            source: Box::new(source),
        }
    }
}
