use std::path::{Path, PathBuf};

use clap::Parser as _;
use mini_ork_control::lanes::{Agent, LaneConfig};
use mini_ork_control::run::SettingRecord;
use serde_json::{Value, json};

use super::place::checkout;
use super::run::lines;
use crate::cli::{Cli, Command, SettingsArgs};
use crate::env_vars;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render;
use crate::settings::{GlobalSettings, Profile, RunSettings, Source};

/// What `mini-ork settings` shows.
pub(crate) struct Shown {
    /// Every setting, in the order of the documentation.
    pub(crate) settings: Vec<SettingRecord>,
    /// Each place where recipes are looked for, in order.
    pub(crate) recipe_places: Vec<RecipePlace>,
    pub(crate) lanes: Vec<ShownLane>,
    pub(crate) roles: Vec<ShownRole>,
}

/// A place where recipes are looked for.
pub(crate) struct RecipePlace {
    pub(crate) name: &'static str,
    /// None for those that are part of the program.
    pub(crate) path: Option<PathBuf>,
    pub(crate) exists: bool,
}

/// A lane and where it is described.
pub(crate) struct ShownLane {
    pub(crate) lane: String,
    pub(crate) runs: String,
    pub(crate) file: String,
}

/// A role and the lanes that play it, as a chain.
pub(crate) struct ShownRole {
    pub(crate) role: String,
    pub(crate) lane: String,
    pub(crate) file: String,
}

/// Shows every setting and where its value came from.
pub(crate) fn settings(args: &SettingsArgs, global: &GlobalSettings) -> CommandResult {
    let checkout = checkout(global, args.repo.as_deref())?;
    let lanes = LaneConfig::load(&global.home.value, checkout.as_deref())
        .map_err(|error| CommandError::usage("the lanes cannot be used").details(lines(&error)))?;
    let shown = Shown {
        settings: collect(args, global, checkout.as_deref())?,
        recipe_places: recipe_places(global, checkout.as_deref()),
        lanes: lanes
            .lanes()
            .map(|lane| ShownLane {
                lane: lane.name.clone(),
                runs: runs(&lane.agent),
                file: lanes.lane_file(&lane.name).unwrap_or_default().to_owned(),
            })
            .collect(),
        roles: lanes
            .roles()
            .map(|(role, chain)| ShownRole {
                role: role.to_owned(),
                lane: chain.join(" → "),
                file: lanes.role_file(role).unwrap_or_default().to_owned(),
            })
            .collect(),
    };
    if args.json {
        render::json(&as_json(&shown))?;
    } else {
        render::out(&render::settings(&shown))?;
    }
    Ok(ExitStatus::Success)
}

/// What a plain `mini-ork run` would find.
fn collect(
    args: &SettingsArgs,
    global: &GlobalSettings,
    checkout: Option<&Path>,
) -> Result<Vec<SettingRecord>, CommandError> {
    let run = plain_run(global, checkout)?;
    let environment = &global.environment;
    let variable = |name: &'static str| match environment.raw(name) {
        Some(_) => Source::Variable(name),
        None => Source::Default,
    };
    let mut all = run.records(global);
    let repository = global.repository_choice(args.repo.as_deref());
    all.push(record(
        "repository",
        match (checkout, &repository) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(choice)) => choice.value.display().to_string(),
            (None, None) => "none here".to_owned(),
        },
        &repository.map_or(Source::Derived("the current directory"), |choice| {
            choice.source
        }),
    ));
    all.push(record("deadline", "none".to_owned(), &Source::Default));
    all.push(record(
        "budget_usd",
        "the recipe's own".to_owned(),
        &Source::Default,
    ));
    all.push(record(
        "dry_run",
        yes_no(run.dry_run),
        &variable(env_vars::MINI_ORK_DRY_RUN),
    ));
    all.push(record(
        "may_ask",
        yes_no(run.may_ask),
        &variable(env_vars::MINI_ORK_NONINTERACTIVE),
    ));
    all.push(record(
        "node_isolation",
        yes_no(environment.switch(env_vars::MO_NODE_ISOLATION)?),
        &variable(env_vars::MO_NODE_ISOLATION),
    ));
    let passed: Vec<String> = environment
        .for_programs()
        .iter()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    all.push(record(
        "passed_to_programs",
        passed.join(" "),
        &Source::Derived("the allowlist of variables"),
    ));
    Ok(all)
}

/// The settings of a run without flags.
fn plain_run(
    global: &GlobalSettings,
    checkout: Option<&Path>,
) -> Result<RunSettings, CommandError> {
    let profile = match Profile::choice(global, None)? {
        Some(name) => Profile::load(global, checkout, name)?,
        None => Profile::default(),
    };
    let cli = Cli::try_parse_from(["mini-ork", "run"])
        .map_err(|error| CommandError::failure(error.to_string()))?;
    match cli.command {
        Some(Command::Run(args)) => RunSettings::resolve(args, global, &profile),
        _ => Err(CommandError::failure("the settings of a run are not known")),
    }
}

fn recipe_places(global: &GlobalSettings, checkout: Option<&Path>) -> Vec<RecipePlace> {
    let place = |name, path: PathBuf| RecipePlace {
        name,
        exists: path.is_dir(),
        path: Some(path),
    };
    checkout
        .map(|checkout| place("repository", checkout.join(".mini-ork/recipes")))
        .into_iter()
        .chain([
            place("home", global.home.value.join("recipes")),
            RecipePlace {
                name: "bundled",
                path: None,
                exists: true,
            },
        ])
        .collect()
}

fn record(name: &str, value: String, source: &Source) -> SettingRecord {
    SettingRecord {
        name: name.to_owned(),
        value,
        source: source.to_string(),
    }
}

/// What an agent is, in a line.
pub(super) fn runs(agent: &Agent) -> String {
    match agent {
        Agent::Executable { argv } => argv.join(" "),
        Agent::Scripted { file } => format!("replays {}", file.display()),
        Agent::Model(model) => {
            let program = model.driver.program().unwrap_or("built-in agent");
            format!("{program} with {}", model.model)
        }
    }
}

fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

fn as_json(shown: &Shown) -> Value {
    let places: Vec<Value> = shown
        .recipe_places
        .iter()
        .map(|place| {
            let path = place.path.as_ref();
            json!({
                "name": place.name,
                "path": path.map(|path| render::path_json(path.as_os_str())),
                "exists": place.exists,
            })
        })
        .collect();
    let lanes: Vec<Value> = shown
        .lanes
        .iter()
        .map(|lane| json!({"lane": lane.lane, "runs": lane.runs, "file": lane.file}))
        .collect();
    let roles: Vec<Value> = shown
        .roles
        .iter()
        .map(|role| json!({"role": role.role, "lane": role.lane, "file": role.file}))
        .collect();
    json!({
        "format": 1,
        "settings": shown.settings,
        "recipe_places": places,
        "lanes": lanes,
        "roles": roles,
    })
}
