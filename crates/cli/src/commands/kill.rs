use mini_ork_control::run::{self, KillOutcome};
use mini_ork_control::store::Store;
use mini_ork_node::egress::NetworkPolicy;
use mini_ork_node::workspace::LOCAL;

use super::drive::{open_workspace, reopen_workspace, run_error};
use super::runtime;
use super::select::select;
use crate::cli::RunRefArgs;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render;
use crate::settings::{GlobalSettings, Surroundings};

/// Ends a run and all its processes.
pub(crate) fn kill(args: &RunRefArgs, global: &GlobalSettings) -> CommandResult {
    let selected = select(global, &args.run)?;
    let (workspace, _) = reopen_workspace(global, &selected.run, &selected.row.backend)?;
    let here = Surroundings::plain(NetworkPolicy::Full);
    let outside = open_workspace(global, LOCAL, &here)?;
    let run = selected.run;
    drop(selected.reader);
    let store = Store::open(&global.home.value)
        .map_err(|error| CommandError::failure("the state cannot be written").caused_by(&error))?;
    let runtime = runtime()?;
    let outcome = runtime
        .block_on(run::kill(
            &global.home.value,
            &run,
            &store,
            workspace.as_ref(),
            outside.as_ref(),
        ))
        .map_err(|error| run_error(&error))?;
    let (status, left) = match &outcome {
        KillOutcome::Killed => ("cancelled", None),
        KillOutcome::SandboxLeft(left) => ("cancelled", Some(left)),
        KillOutcome::AlreadyEnded(status) => (status.name(), None),
    };
    if args.json {
        render::json(&serde_json::json!({
            "run": run.as_str(),
            "status": status,
            "killed": !matches!(outcome, KillOutcome::AlreadyEnded(_)),
            "sandbox_left": left,
        }))?;
    } else {
        render::out(&match &outcome {
            KillOutcome::SandboxLeft(left) => format!("cancelled · run {run} · {left}\n"),
            KillOutcome::Killed => format!("killed · run {run} · no process of it is left\n"),
            KillOutcome::AlreadyEnded(status) => format!("run {run} had already ended: {status}\n"),
        })?;
    }
    Ok(match left {
        Some(_) => ExitStatus::Failure,
        None => ExitStatus::Success,
    })
}
