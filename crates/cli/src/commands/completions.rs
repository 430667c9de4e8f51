//! Completions that know runs, recipes and lanes: the shell asks this program.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use clap::CommandFactory as _;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::{CompleteEnv, Shells};
use mini_ork_control::lanes::LaneConfig;
use mini_ork_control::profile;
use mini_ork_control::recipe::Catalog;
use mini_ork_control::report;
use mini_ork_control::run::load_view;
use mini_ork_node::workspace::backend_names;

use super::place::checkout;
use super::runs::list;
use super::select::{open_reader, select};
use crate::cli::{Cli, ColorChoice, CompletionsArgs, GlobalArgs};
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render;
use crate::settings::{Environment, GlobalSettings};

/// The variable with which a shell asks.
const VARIABLE: &str = "COMPLETE";
const NAME: &str = "mini-ork";
/// Most runs that are offered.
const MOST_RUNS: usize = 50;

/// Answers a shell that asks for completions, and ends the process then. Does nothing otherwise.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(Cli::command)
        .var(VARIABLE)
        .bin(NAME)
        .complete();
}

/// Prints a script that completes commands, runs and recipes in a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> CommandResult {
    let shell = args.shell.to_string();
    let shells = Shells::builtins();
    let completer = shells.completer(&shell).ok_or_else(|| {
        let known: Vec<&str> = shells.names().collect();
        CommandError::usage(format!("there are no completions for `{shell}`"))
            .hint(format!("known: {}", known.join(", ")))
    })?;
    let mut script = Vec::new();
    completer
        .write_registration(VARIABLE, NAME, NAME, NAME, &mut script)
        .map_err(|error| CommandError::failure("the script cannot be made").caused_by(&error))?;
    render::out_bytes(&script)?;
    Ok(ExitStatus::Success)
}

/// Ids of runs, the latest first, with what they are about.
pub(crate) fn runs() -> Vec<CompletionCandidate> {
    let listed = settings()
        .and_then(|global| open_reader(&global).ok().flatten())
        .and_then(|reader| list(&reader).ok())
        .unwrap_or_default();
    let latest = (!listed.is_empty())
        .then(|| CompletionCandidate::new("@").help(Some("the latest run".into())));
    listed
        .into_iter()
        .take(MOST_RUNS)
        .map(|run| {
            let about = format!(
                "{} · {} · {}",
                run.recipe,
                run.status,
                render::one_line(&run.title, 60)
            );
            CompletionCandidate::new(run.run).help(Some(about.into()))
        })
        .chain(latest)
        .collect()
}

/// Names of the nodes of the latest run.
pub(crate) fn nodes() -> Vec<CompletionCandidate> {
    let view = settings().and_then(|global| {
        let selected = select(&global, "@").ok()?;
        load_view(&selected.reader, &selected.row).ok()
    });
    let nodes = view.map(|view| view.nodes).unwrap_or_default();
    nodes
        .into_iter()
        .map(|node| {
            let time = node.duration_ms.map(report::duration).unwrap_or_default();
            let about = format!("{} {} {time}", node.kind, node.state);
            CompletionCandidate::new(node.node).help(Some(about.trim_end().to_owned().into()))
        })
        .collect()
}

/// Names of recipes.
pub(crate) fn recipes() -> Vec<CompletionCandidate> {
    let Some(global) = settings() else {
        return Vec::new();
    };
    let checkout = checkout(&global, None).ok().flatten();
    let catalog = Catalog::new(checkout.as_deref(), &global.home.value);
    catalog
        .list()
        .unwrap_or_default()
        .into_iter()
        .filter(|summary| !summary.shadowed)
        .map(|summary| {
            let about = render::one_line(&summary.description, 80);
            CompletionCandidate::new(summary.name).help(Some(about.into()))
        })
        .collect()
}

/// Names of lanes.
pub(crate) fn lane_names() -> Vec<CompletionCandidate> {
    let Some(global) = settings() else {
        return Vec::new();
    };
    let checkout = checkout(&global, None).ok().flatten();
    let lanes = LaneConfig::load(&global.home.value, checkout.as_deref()).unwrap_or_default();
    lanes
        .lanes()
        .map(|lane| CompletionCandidate::new(lane.name.clone()))
        .collect()
}

/// `ROLE=LANE` for every lane, once a role is typed.
pub(crate) fn lanes(typed: &OsStr) -> Vec<CompletionCandidate> {
    let (Some(global), Some(typed)) = (settings(), typed.to_str()) else {
        return Vec::new();
    };
    let checkout = checkout(&global, None).ok().flatten();
    let lanes = LaneConfig::load(&global.home.value, checkout.as_deref()).unwrap_or_default();
    let offered: Vec<String> = match typed.split_once('=') {
        Some((role, _)) => lanes
            .lanes()
            .map(|lane| format!("{role}={}", lane.name))
            .collect(),
        None => {
            let catalog = Catalog::new(checkout.as_deref(), &global.home.value);
            let roles: BTreeSet<String> = catalog
                .load_all()
                .unwrap_or_default()
                .iter()
                .flat_map(|recipe| &recipe.nodes)
                .filter(|node| node.kind.uses_lane())
                .map(|node| format!("{}=", node.role()))
                .collect();
            roles.into_iter().collect()
        }
    };
    offered
        .into_iter()
        .filter(|offer| offer.starts_with(typed))
        .map(CompletionCandidate::new)
        .collect()
}

/// Names of profiles.
pub(crate) fn profiles() -> Vec<CompletionCandidate> {
    let Some(global) = settings() else {
        return Vec::new();
    };
    let checkout = checkout(&global, None).ok().flatten();
    let names = profile::names(&global.home.value, checkout.as_deref());
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// Names of workspace backends.
pub(crate) fn backends() -> Vec<CompletionCandidate> {
    let names = backend_names();
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// Those, and the word for all of them.
pub(crate) fn backends_or_all() -> Vec<CompletionCandidate> {
    let all = std::iter::once(CompletionCandidate::new(super::sandboxes::ALL));
    backends().into_iter().chain(all).collect()
}

/// The settings as far as the environment gives them: a shell asks before the line is complete.
fn settings() -> Option<GlobalSettings> {
    let args = GlobalArgs {
        home: None,
        color: ColorChoice::Never,
    };
    GlobalSettings::resolve(&args, Environment::read()).ok()
}
