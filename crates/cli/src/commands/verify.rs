use mini_ork_node::egress::NetworkPolicy;
use mini_ork_node::probe::{Verification, VerifyError, verify};
use mini_ork_node::sys::remove_tree;
use mini_ork_node::workspace::WorkspaceError;

use super::place::checkout;
use super::runtime;
use super::sandbox::{check_sandbox, confine_error, own_directory, sandbox_error};
use super::sandboxes;
use crate::cli::{SandboxArgs, SandboxCommand, SandboxVerifyArgs};
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render;
use crate::settings::{GlobalSettings, Network, Profile, Source, Surroundings, boundaries};

/// Looks at sandboxes.
pub(crate) fn sandbox(args: SandboxArgs, global: &GlobalSettings) -> CommandResult {
    match args.command {
        SandboxCommand::Ls(args) => sandboxes::ls(&args, global),
        SandboxCommand::Inspect(args) => sandboxes::inspect(&args, global),
        SandboxCommand::Verify(args) => verify_policy(args, global),
    }
}

fn verify_policy(args: SandboxVerifyArgs, global: &GlobalSettings) -> CommandResult {
    let (backend, _) = boundaries(global, args.backend, None)?;
    let backend = backend.value;
    let profile = match Profile::choice(global, args.env.as_deref())? {
        Some(name) => Profile::load(global, checkout(global, None)?.as_deref(), name)?,
        None => Profile::default(),
    };
    let mut surroundings = Surroundings::resolve(global, &backend, &profile)?;
    if surroundings.network.policy.source == Source::Default {
        // Without a word of the user the strictest policy is tried.
        surroundings.network = Network::of(NetworkPolicy::None);
    }
    let policy = surroundings.network.policy.value.clone();
    if policy == NetworkPolicy::Full {
        return Err(CommandError::usage(
            "the network policy `full` keeps nothing closed, so there is nothing to verify",
        )
        .hint("set MO_SANDBOX_NETWORK to `none` or `allowlist`"));
    }
    check_sandbox(&backend, &surroundings, global)?;
    let settings = global.backend_settings(&backend, &surroundings)?;
    let runtime = runtime()?;
    let directory = own_directory(global)?;
    let verified = runtime.block_on(verify(&backend, settings, &directory));
    let removed = remove_tree(&directory);
    let verified = verified.map_err(|error| verify_error(&error))?;
    removed.map_err(|error| CommandError::failure("cannot clean up").caused_by(&error))?;
    show(&verified, &policy, args.all, args.json)?;
    Ok(if verified.is_good() {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
}

fn show(
    verified: &Verification,
    policy: &NetworkPolicy,
    all: bool,
    json: bool,
) -> Result<(), CommandError> {
    if json {
        return render::json(&serde_json::json!({
            "format": 1,
            "policy": policy.name(),
            "isolation": verified.isolation,
            "held": verified.is_good(),
            "canary": {
                "port": verified.canary,
                "connections": verified.seen.connections,
                "datagrams": verified.seen.datagrams,
            },
            "attempts": verified.attempts,
        }));
    }
    render::out(&render::verification(verified, policy, all))
}

fn verify_error(error: &VerifyError) -> CommandError {
    match error {
        VerifyError::Workspace(WorkspaceError::Docker(error)) => sandbox_error(error),
        VerifyError::Workspace(error @ WorkspaceError::Confine(_)) => confine_error(error),
        other => CommandError::failure("the policy could not be verified").caused_by(other),
    }
}
