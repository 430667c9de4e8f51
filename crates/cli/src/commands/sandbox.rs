//! What a container engine that does not do its part means for the user.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use mini_ork_node::egress::NetworkPolicy;
use mini_ork_node::sys::{random_bytes, remove_tree};
use mini_ork_node::workspace::docker::{DockerBoundary, DockerError};
use mini_ork_node::workspace::{ConfinedBoundary, ConfinedSettings, WorkspaceError};

use crate::env_vars;
use crate::error::CommandError;
use crate::settings::GlobalSettings;

/// Refuses a run whose sandbox cannot be made, before anything is made of it.
pub(super) fn check_sandbox(
    backend: &str,
    network: &NetworkPolicy,
    global: &GlobalSettings,
) -> Result<(), CommandError> {
    let settings = global.backend_settings(backend, network.clone())?;
    if backend != "docker" {
        return match network {
            NetworkPolicy::Full => Ok(()),
            _ => check_confinement(settings.confined, global),
        };
    }
    let boundary = DockerBoundary::new(settings.docker);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::failure("cannot start").caused_by(&error))?;
    runtime
        .block_on(boundary.check())
        .map_err(|error| sandbox_error(&error))
}

/// Confines something that ends at once.
fn check_confinement(
    settings: ConfinedSettings,
    global: &GlobalSettings,
) -> Result<(), CommandError> {
    let directory = own_directory(global)?;
    let checked = ConfinedBoundary::new(settings).check(&directory);
    remove_tree(&directory)
        .map_err(|error| CommandError::failure("cannot clean up").caused_by(&error))?;
    checked.map_err(|error| confine_error(&error))
}

/// A new directory of this process, for this user alone. Not in the home, which may not be there
/// yet.
pub(super) fn own_directory(global: &GlobalSettings) -> Result<PathBuf, CommandError> {
    let place = global.environment.path("TMPDIR");
    let place = place.unwrap_or_else(|| PathBuf::from("/tmp"));
    let failed = |error: std::io::Error| {
        CommandError::usage(format!("`{}` cannot be written", place.display()))
            .caused_by(&error)
            .hint("set TMPDIR to a directory that can be written")
    };
    let bytes = random_bytes::<8>().map_err(failed)?;
    let number: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let directory = place.join(format!("mini-ork-{number}"));
    let mut builder = DirBuilder::new();
    builder.mode(0o700).create(&directory).map_err(failed)?;
    Ok(directory)
}

/// What a machine that does not let programs be confined means for the user.
pub(super) fn confine_error(error: &WorkspaceError) -> CommandError {
    let refused = matches!(
        error,
        WorkspaceError::Confine(mini_ork_node::confine::ConfineError::Refused(_))
    );
    let hint = if refused {
        "let users make namespaces (`sysctl kernel.unprivileged_userns_clone=1`, `sysctl kernel.apparmor_restrict_unprivileged_userns=0`), or use MO_SANDBOX_BACKEND=docker; without a policy: MO_SANDBOX_NETWORK=full"
    } else {
        "use MO_SANDBOX_BACKEND=docker; without a policy: MO_SANDBOX_NETWORK=full"
    };
    CommandError::usage("the network policy cannot be enforced here")
        .caused_by(error)
        .hint(hint)
}

/// The sentence and the remedy.
pub(super) fn sandbox_error(error: &DockerError) -> CommandError {
    let hint = match error {
        DockerError::EngineDown { .. } => {
            "start it, or name another one with DOCKER_HOST; without a boundary: MO_SANDBOX_BACKEND=local".to_owned()
        }
        DockerError::NotPermitted { .. } => {
            "add yourself to its group (`sudo usermod -aG docker $USER`, then log in anew), or use a rootless engine".to_owned()
        }
        DockerError::Endpoint { .. } => {
            "set DOCKER_HOST to the socket of an engine on this machine".to_owned()
        }
        DockerError::NoImage { image } => format!("docker pull {image}"),
        DockerError::NoImageChosen => format!(
            "name one that has the tools of the project: {}=IMAGE",
            env_vars::MO_SANDBOX_IMAGE
        ),
        DockerError::OtherMachine { .. } => "use an image for this machine".to_owned(),
        DockerError::NoRuntime { .. } => format!(
            "unset {} for the engine's own, or add the runtime to the engine",
            env_vars::MO_SANDBOX_RUNTIME
        ),
        DockerError::NodeProgram { .. } => format!(
            "build it with scripts/node, and name it with {}",
            env_vars::MO_NODE_PROGRAM
        ),
        DockerError::Path { .. } => "use a home and a repository whose paths are text".to_owned(),
        DockerError::Foreign { name } => format!("docker rm --force {name}"),
        DockerError::EndedAtOnce { .. } | DockerError::Engine { .. } => {
            "the engine has to see the disk of this machine; its own log tells more".to_owned()
        }
        DockerError::Record(_) => "make the home writable".to_owned(),
    };
    CommandError::usage("there is no sandbox")
        .caused_by(error)
        .hint(hint)
}
