//! What can be known of a run's lanes before it begins.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use mini_ork_control::lanes::{Agent, Lane, Script};
use mini_ork_control::run::{AgentPlace, Plan};
use mini_ork_node::text::with_sources;
use mini_ork_node::workspace::LOCAL;

use super::doctor::find_program;
use crate::env_vars;
use crate::error::CommandError;
use crate::settings::GlobalSettings;

/// Refuses a plan with a lane that cannot be started: found by a node in the middle of a run, it
/// would cost the work of all nodes before it.
pub(super) fn check_lanes(
    plan: &Plan,
    backend: &str,
    global: &GlobalSettings,
) -> Result<(), CommandError> {
    let mistakes: BTreeSet<String> = plan
        .nodes
        .iter()
        .flat_map(|planned| planned.lane.iter().chain(&planned.fallbacks))
        .filter_map(|lane| match (backend, plan.place(&lane.name)) {
            (LOCAL, _) | (_, AgentPlace::Host) => mistake(lane, global),
            _ => mistake_inside(lane, global),
        })
        .collect();
    if mistakes.is_empty() {
        return Ok(());
    }
    Err(
        CommandError::usage("a lane of the run cannot be started, by config/providers.yaml")
            .details(mistakes)
            .hint("`mini-ork doctor` checks all lanes"),
    )
}

/// Refuses a plan with an agent that would run on this machine though its tools were to be behind a
/// boundary, unless that is `allowed`.
pub(super) fn check_places(plan: &Plan, allowed: bool) -> Result<(), CommandError> {
    let on_host = plan.agents_at(AgentPlace::Host);
    if allowed || on_host.is_empty() {
        return Ok(());
    }
    let scope = env_vars::MO_SANDBOX_SCOPE;
    Err(CommandError::usage(format!(
        "with {scope}=tool the agent is outside and its tools are inside, but the tools of `{}` are part of its program and cannot be moved",
        on_host.join("`, `")
    ))
    .hint(format!(
        "set {scope}=agent: the whole agent runs inside; {}=1 lets it run on this machine, without a boundary",
        env_vars::MO_SANDBOX_ALLOW_HOST_AGENT
    )))
}

/// What keeps `lane` from being started behind a boundary. A program of it is the image's, which is
/// not looked into.
fn mistake_inside(lane: &Lane, global: &GlobalSettings) -> Option<String> {
    match &lane.agent {
        Agent::Scripted { .. } => mistake(lane, global),
        Agent::Executable { .. } | Agent::Model(_) => None,
    }
}

/// What keeps `lane` from being started.
pub(super) fn mistake(lane: &Lane, global: &GlobalSettings) -> Option<String> {
    let name = &lane.name;
    match &lane.agent {
        Agent::Executable { argv } => {
            let program = argv.first().map_or("", String::as_str);
            let found = find_program(global, OsStr::new(program));
            (found.is_none()).then(|| format!("{name}: the program `{program}` was not found"))
        }
        Agent::Scripted { file } => match fs_err::read(file) {
            Ok(bytes) => Script::parse(&file.display().to_string(), &bytes)
                .err()
                .map(|error| format!("{name}: {}", with_sources(&error))),
            Err(error) => Some(format!("{name}: {}", with_sources(&error))),
        },
        Agent::Model(model) => {
            let program = model.driver.program()?;
            let found = find_program(global, OsStr::new(program));
            (found.is_none()).then(|| format!("{name}: the program `{program}` was not found"))
        }
    }
}
