//! What a container engine that does not do its part means for the user.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use mini_ork_node::certificates::{AUTHORITY_VARIABLES, Authorities, AuthorityError};
use mini_ork_node::egress::NetworkPolicy;
use mini_ork_node::sys::{random_bytes, remove_tree};
use mini_ork_node::workspace::docker::{DockerBoundary, DockerError, DockerSettings};
use mini_ork_node::workspace::{
    BackendSettings, ConfinedBoundary, ConfinedSettings, DOCKER, WorkspaceError,
};

use super::runtime;
use crate::env_vars;
use crate::error::CommandError;
use crate::settings::{GlobalSettings, Surroundings};

/// Refuses a run whose sandbox cannot be made, before anything is made of it.
pub(super) fn check_sandbox(
    backend: &str,
    surroundings: &Surroundings,
    global: &GlobalSettings,
) -> Result<(), CommandError> {
    let settings = global.backend_settings(backend, surroundings)?;
    check_settings(backend, settings, global)
}

/// The same for settings that are made already.
pub(super) fn check_settings(
    backend: &str,
    settings: BackendSettings,
    global: &GlobalSettings,
) -> Result<(), CommandError> {
    if backend != DOCKER && settings.network == NetworkPolicy::Full {
        return Ok(());
    }
    Authorities::read(&settings.authorities).map_err(|error| authority_error(&error))?;
    if backend != DOCKER {
        return check_confinement(settings.confined, global);
    }
    check_container(settings.docker).map(|_| ())
}

/// What containers need, in one sentence.
pub(super) fn check_container(settings: DockerSettings) -> Result<String, CommandError> {
    let boundary = DockerBoundary::new(settings);
    let runtime = runtime()?;
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

fn authority_error(error: &AuthorityError) -> CommandError {
    CommandError::usage("what you trust cannot be taken along")
        .caused_by(error)
        .hint(authority_remedy())
}

fn authority_remedy() -> String {
    format!(
        "each of {} has to name a readable PEM file, or be unset",
        AUTHORITY_VARIABLES.join(", ")
    )
}

/// The sentence and the remedy for whoever wants a sandbox.
pub(super) fn sandbox_error(error: &DockerError) -> CommandError {
    if let DockerError::Authorities(error) = error {
        return authority_error(error);
    }
    let mut hint = remedy(error);
    if matches!(error, DockerError::EngineDown { .. }) {
        hint.push_str("; without a boundary: MO_SANDBOX_BACKEND=local");
    }
    CommandError::usage("there is no sandbox")
        .caused_by(error)
        .hint(hint)
}

/// The same for whoever wants something else of the engine; `message` says what cannot be had.
pub(super) fn engine_error(message: &str, error: &DockerError) -> CommandError {
    CommandError::usage(message)
        .caused_by(error)
        .hint(remedy(error))
}

fn remedy(error: &DockerError) -> String {
    match error {
        DockerError::EngineDown { .. } => {
            "start it, or name another one with DOCKER_HOST".to_owned()
        }
        DockerError::NotPermitted { .. } => {
            "add yourself to its group (`sudo usermod -aG docker $USER`, then log in anew), or use a rootless engine".to_owned()
        }
        DockerError::Endpoint { .. } => {
            "set DOCKER_HOST to the socket of an engine on this machine".to_owned()
        }
        DockerError::NoImage { image } => format!("mini-ork image pull {image}"),
        DockerError::ImageGone { .. } => {
            "begin a new run: it takes what the name stands for by now".to_owned()
        }
        DockerError::NoImageChosen => format!(
            "name one that has the tools of the project: {}=IMAGE",
            env_vars::MO_SANDBOX_IMAGE
        ),
        DockerError::OtherMachine { .. } => "use an image for this machine".to_owned(),
        DockerError::NoRuntime { .. } => format!(
            "unset {} for the engine's own, or add the runtime to the engine",
            env_vars::MO_SANDBOX_RUNTIME
        ),
        DockerError::OtherRuntime { runtime, .. } => format!(
            "have podman serve with it: podman --runtime {runtime} system service …; or unset {}",
            env_vars::MO_SANDBOX_RUNTIME
        ),
        DockerError::RuntimeNotTaken { .. } => {
            format!("unset {} for the engine's own", env_vars::MO_SANDBOX_RUNTIME)
        }
        DockerError::NoLimits => format!(
            "unset {}, {} and {}, or use an engine that keeps limits",
            env_vars::MO_SANDBOX_MEMORY,
            env_vars::MO_SANDBOX_CPU,
            env_vars::MO_SANDBOX_PIDS,
        ),
        DockerError::TooFewProcessors { has, .. } => {
            format!("set {} to at most {has}", env_vars::MO_SANDBOX_CPU)
        }
        DockerError::NoNetwork => format!(
            "start the engine with a bridge, or set {} to `allowlist` or `none`",
            env_vars::MO_SANDBOX_NETWORK
        ),
        DockerError::NodeProgram { .. } => format!(
            "build it with scripts/node, and name it with {}",
            env_vars::MO_NODE_PROGRAM
        ),
        DockerError::NotSeen { .. } => format!(
            "use a home below a directory that the engine shares, with --home DIR or {}",
            env_vars::MINI_ORK_HOME
        ),
        DockerError::Path { .. } => "use a home and a repository whose paths are text".to_owned(),
        DockerError::Foreign { name } => format!("docker rm --force {name}"),
        DockerError::EndedAtOnce { .. } | DockerError::Engine { .. } => {
            "the engine has to see the disk of this machine; its own log tells more".to_owned()
        }
        DockerError::Context(_) => "name a directory that can be read".to_owned(),
        DockerError::Authorities(_) => authority_remedy(),
        DockerError::Record(_) => "make the home writable".to_owned(),
    }
}
