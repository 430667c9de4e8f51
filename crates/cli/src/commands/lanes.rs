use std::ffi::OsStr;
use std::path::Path;

use mini_ork_control::lanes::{Agent, BUILT_IN, Lane, LaneConfig, ModelAgent};
use mini_ork_control::vault::{MissingSecret, Vault};
use mini_ork_control::yaml::suggest_or_list;
use mini_ork_node::redact::Redactor;
use mini_ork_node::text::with_sources;
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
    /// Which model, with what right, for those that ask one. The name of the key and never its
    /// value.
    pub(crate) model: Option<ModelAgent>,
    /// Roles of `agents.yaml` that it plays, or stands in for.
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
    let config = load(args.repo.as_deref(), global)?;
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
    let config = load(args.here.repo.as_deref(), global)?;
    let lane = find(&config, &args.lane)?;
    let described = describe(&config, lane);
    if args.here.json {
        render::json(&json!({"format": 1, "lane": described}))?;
    } else {
        render::out(&render::lane(&described))?;
    }
    Ok(ExitStatus::Success)
}

/// The lane called `name`.
pub(super) fn find<'a>(config: &'a LaneConfig, name: &str) -> Result<&'a Lane, CommandError> {
    config
        .lanes()
        .find(|lane| lane.name == name)
        .ok_or_else(|| {
            let names: Vec<&str> = config.lanes().map(|lane| lane.name.as_str()).collect();
            CommandError::usage(format!("there is no lane `{name}`"))
                .hint(suggest_or_list(name, names))
        })
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
    // Nobody needs the program of a built-in lane that nobody uses.
    let is_wanted = |lane: &&Lane| {
        let plays = |(_, lanes): (&str, &[String])| lanes.contains(&lane.name);
        config.lane_file(&lane.name) != Some(BUILT_IN) || config.roles().any(plays)
    };
    let mut checks: Vec<Check> = config
        .lanes()
        .filter(is_wanted)
        .map(|lane| {
            let file = config.lane_file(&lane.name).unwrap_or_default();
            lane_check(global, lane, file)
        })
        .collect();
    if checks.is_empty() {
        checks.push(missing(
            NAME,
            "no lane plays a role, so no agent can be started".to_owned(),
            "write `lanes: {default: claude}` to config/agents.yaml, or use `--lane ROLE=LANE`; `mini-ork lanes ls` lists lanes",
        ));
        return checks;
    }
    // A role whose lane nobody describes is among the mistakes above.
    let roles: Vec<String> = config
        .roles()
        .map(|(role, lanes)| format!("{role} → {}", lanes.join(" → ")))
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

pub(super) fn lane_check(global: &GlobalSettings, lane: &Lane, file: &str) -> Check {
    const NAME: &str = "lane";
    match mistake(lane, global) {
        None => match missing_key(lane, global) {
            None => ok(NAME, format!("{} · {}", lane.name, runs(&lane.agent))),
            Some(key) => missing(
                NAME,
                format!("{}: {}", lane.name, with_sources(&key)),
                &key.remedy(),
            ),
        },
        Some(problem) => {
            let first = match lane.agent {
                Agent::Executable { .. } => "install it, or make it executable",
                Agent::Scripted { .. } => "write or correct it",
                Agent::Model(_) => "install it, or put it on PATH",
            };
            missing(NAME, problem, &format!("{first}; the lane is in {file}"))
        }
    }
}

/// Why the key of a lane that needs one cannot be had.
fn missing_key(lane: &Lane, global: &GlobalSettings) -> Option<MissingSecret> {
    let key = &lane.model()?.key;
    // Nothing is shown that is made from a value.
    let vault = Vault::new(&global.home.value, global.keyring(), Redactor::new());
    let exported = |name: &str| global.environment.raw(name).map(OsStr::to_owned);
    vault.resolve(key, &exported).err()
}

/// The lanes that hold here, or in `repository`.
pub(super) fn load(
    repository: Option<&Path>,
    global: &GlobalSettings,
) -> Result<LaneConfig, CommandError> {
    let checkout = checkout(global, repository)?;
    LaneConfig::load(&global.home.value, checkout.as_deref()).map_err(|error| {
        CommandError::usage("the lanes cannot be used")
            .details(lines(&error))
            .hint("`mini-ork help lanes` describes both files")
    })
}

fn describe(config: &LaneConfig, lane: &Lane) -> DescribedLane {
    let command = match &lane.agent {
        Agent::Executable { argv } => Some(argv.clone()),
        Agent::Scripted { .. } | Agent::Model(_) => None,
    };
    DescribedLane {
        lane: lane.name.clone(),
        kind: lane.agent.kind(),
        runs: runs(&lane.agent),
        command,
        model: lane.model().cloned(),
        roles: config
            .roles()
            .filter(|(_, lanes)| lanes.contains(&lane.name))
            .map(|(role, _)| role.to_owned())
            .collect(),
        environment: lane.extra_env.keys().cloned().collect(),
        file: config.lane_file(&lane.name).unwrap_or_default().to_owned(),
    }
}
