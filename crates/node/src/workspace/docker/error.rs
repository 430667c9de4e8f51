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
    /// A container that has the name is not mini-ork's.
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
