use std::path::Path;

use mini_ork_control::lanes::{Agent, Lane, LaneConfig};
use mini_ork_control::run::with_sources;
use mini_ork_control::yaml::suggest_or_list;
use serde::Serialize;
use serde_json::json;

use super::doctor::{Check, Found, missing, note, ok};
use super::place::checkout;
use super::preflight::mistake;
use super::run::lines;
use super::settings::runs;
use crate::cli::{LaneShowArgs, LanesArgs, LanesCommand, LanesHereArgs};
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render;
use crate::settings::GlobalSettings;

/// One lane as it is shown.
#[derive(Debug, Serialize)]
pub(crate) struct DescribedLane {
    pub(crate) lane: String,
    pub(crate) kind: &'static str,
    /// What is started, in one line.
    pub(crate) runs: String,
    /// Program and arguments, for those that are a command.
    pub(crate) command: Option<Vec<String>>,
    /// Roles of `agents.yaml` that it plays.
    pub(crate) roles: Vec<String>,
    /// Names of the variables that it adds. Never their values: whoever keeps a secret there
    /// against all advice must not find it in what was shown to others.
    pub(crate) environment: Vec<String>,
    /// The file that describes it.
    pub(crate) file: String,
}

/// Lists, shows and checks lanes.
pub(crate) fn lanes(args: &LanesArgs, global: &GlobalSettings) -> CommandResult {
    match &args.command {
        LanesCommand::Ls(args) => list(args, global),
        LanesCommand::Show(args) => show(args, global),
        LanesCommand::Check(args) => check(args, global),
    }
}

fn list(args: &LanesHereArgs, global: &GlobalSettings) -> CommandResult {
    let config = load(args, global)?;
    let described: Vec<DescribedLane> =
        config.lanes().map(|lane| describe(&config, lane)).collect();
    if args.json {
        render::json(&json!({"format": 1, "lanes": described}))?;
    } else {
        render::out(&render::lanes(&described))?;
    }
    Ok(ExitStatus::Success)
}

fn show(args: &LaneShowArgs, global: &GlobalSettings) -> CommandResult {
    let config = load(&args.here, global)?;
    let lane = config
        .lanes()
        .find(|lane| lane.name == args.lane)
        .ok_or_else(|| unknown(&config, &args.lane))?;
    let described = describe(&config, lane);
    if args.here.json {
        render::json(&json!({"format": 1, "lane": described}))?;
    } else {
        render::out(&render::lane(&described))?;
    }
    Ok(ExitStatus::Success)
}

fn unknown(config: &LaneConfig, name: &str) -> CommandError {
    let names: Vec<&str> = config.lanes().map(|lane| lane.name.as_str()).collect();
    let error = CommandError::usage(format!("there is no lane `{name}`"));
    if names.is_empty() {
        return error.hint("`mini-ork init` writes commented examples of lanes");
    }
    error.hint(suggest_or_list(name, names))
}

fn check(args: &LanesHereArgs, global: &GlobalSettings) -> CommandResult {
    let checkout = checkout(global, args.repo.as_deref())?;
    let checks = checks(global, checkout.as_deref());
    let healthy = checks.iter().all(|check| check.found != Found::Missing);
    if args.json {
        render::json(&json!({"format": 1, "ok": healthy, "checks": checks}))?;
    } else {
        render::out(&render::doctor(&checks))?;
    }
    Ok(if healthy {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
}

/// Whether every lane can be started, and whether the files that describe them can be read.
pub(super) fn checks(global: &GlobalSettings, checkout: Option<&Path>) -> Vec<Check> {
    const NAME: &str = "lanes";
    let config = match LaneConfig::load(&global.home.value, checkout) {
        Ok(config) => config,
        Err(error) => {
            return vec![missing(
                NAME,
                with_sources(&error),
                "correct these lines; `mini-ork help lanes` shows the format",
            )];
        }
    };
    let mut checks: Vec<Check> = config
        .lanes()
        .map(|lane| {
            let file = config.lane_file(&lane.name).unwrap_or_default();
            lane_check(global, lane, file)
        })
        .collect();
    if checks.is_empty() {
        checks.push(missing(
            NAME,
            "no lane is configured, so no agent can be started".to_owned(),
            "`mini-ork init` writes commented examples; `mini-ork help lanes` explains them",
        ));
        return checks;
    }
    // A role whose lane nobody describes is among the mistakes above.
    let roles: Vec<String> = config
        .roles()
        .map(|(role, lane)| format!("{role} → {lane}"))
        .collect();
    if !roles.is_empty() {
        checks.push(ok("roles", roles.join(", ")));
    }
    if !config.roles().any(|(role, _)| role == "default") {
        checks.push(note(
            NAME,
            "no role `default`, so each role of a recipe needs a lane of its own".to_owned(),
            Some("add `default: LANE` to `lanes` of config/agents.yaml"),
        ));
    }
    checks
}

fn lane_check(global: &GlobalSettings, lane: &Lane, file: &str) -> Check {
    const NAME: &str = "lane";
    match mistake(lane, global) {
        None => ok(NAME, format!("{} · {}", lane.name, runs(&lane.agent))),
        Some(problem) => {
            let first = match lane.agent {
                Agent::Executable { .. } => "install it, or make it executable",
                Agent::Scripted { .. } => "write or correct it",
            };
            missing(NAME, problem, &format!("{first}; the lane is in {file}"))
        }
    }
}

fn load(args: &LanesHereArgs, global: &GlobalSettings) -> Result<LaneConfig, CommandError> {
    let checkout = checkout(global, args.repo.as_deref())?;
    LaneConfig::load(&global.home.value, checkout.as_deref()).map_err(|error| {
        CommandError::usage("the lanes cannot be used")
            .details(lines(&error))
            .hint("`mini-ork help lanes` describes both files")
    })
}

fn describe(config: &LaneConfig, lane: &Lane) -> DescribedLane {
    let (kind, command) = match &lane.agent {
        Agent::Executable { argv } => ("executable", Some(argv.clone())),
        Agent::Scripted { .. } => ("scripted", None),
    };
    DescribedLane {
        lane: lane.name.clone(),
        kind,
        runs: runs(&lane.agent),
        command,
        roles: config
            .roles()
            .filter(|(_, of)| *of == lane.name)
            .map(|(role, _)| role.to_owned())
            .collect(),
        environment: lane.extra_env.keys().cloned().collect(),
        file: config.lane_file(&lane.name).unwrap_or_default().to_owned(),
    }
}
