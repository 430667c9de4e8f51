//! What can be known of a run's lanes before it begins.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use mini_ork_control::lanes::{Agent, Lane, Script};
use mini_ork_control::run::{Plan, with_sources};
use mini_ork_node::egress::NetworkPolicy;

use super::doctor::find_program;
use crate::error::CommandError;
use crate::settings::GlobalSettings;

/// Refuses a plan with a lane that cannot be started: found by a node in the middle of a run, it
/// would cost the work of all nodes before it.
pub(super) fn check_lanes(
    plan: &Plan,
    backend: &str,
    network: &NetworkPolicy,
    global: &GlobalSettings,
) -> Result<(), CommandError> {
    let mistakes: BTreeSet<String> = plan
        .nodes
        .iter()
        .flat_map(|planned| planned.lane.iter().chain(&planned.fallbacks))
        .filter_map(|lane| match backend {
            "local" if *network == NetworkPolicy::Full => mistake(lane, global),
            "local" => mistake(lane, global).or_else(|| mistake_inside(lane)),
            // Its program is the image's, which is not looked into.
            _ => mistake_inside(lane),
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

/// What keeps `lane` from being started behind a boundary.
fn mistake_inside(lane: &Lane) -> Option<String> {
    match &lane.agent {
        Agent::Scripted { .. } => Some(format!(
            "{}: a script is replayed without a boundary only",
            lane.name
        )),
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
