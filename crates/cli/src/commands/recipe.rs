use std::collections::BTreeMap;
use std::path::Path;

use mini_ork_control::lanes::LaneConfig;
use mini_ork_control::recipe::{
    Catalog, FindError, LoadError, Origin, Recipe, Summary, load_directory,
};
use mini_ork_control::yaml::{Mistake, Mistakes};
use serde_json::{Value, json};

use super::place::checkout;
use super::run::lines;
use crate::cli::{RecipeArgs, RecipeCommand, RecipeListArgs, RecipeShowArgs};
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render::{self, Style, paint, plural};
use crate::settings::GlobalSettings;

/// Lists, shows and checks recipes.
pub(crate) fn recipe(args: &RecipeArgs, global: &GlobalSettings) -> CommandResult {
    match &args.command {
        RecipeCommand::Ls(args) => list(args, global),
        RecipeCommand::Show(args) => show(args, global),
        RecipeCommand::Validate(args) => validate(args, global),
    }
}

fn list(args: &RecipeListArgs, global: &GlobalSettings) -> CommandResult {
    let checkout = checkout(global, args.repo.as_deref())?;
    let catalog = Catalog::new(checkout.as_deref(), &global.home.value);
    let summaries = catalog
        .list()
        .map_err(|error| CommandError::failure("the recipes cannot be listed").caused_by(&error))?;
    if args.json {
        let listed: Vec<Value> = summaries.iter().map(summary_json).collect();
        render::json(&json!({"format": 1, "recipes": listed}))?;
    } else {
        render::out(&render::recipes(&summaries, render::terminal_width()))?;
    }
    Ok(ExitStatus::Success)
}

fn show(args: &RecipeShowArgs, global: &GlobalSettings) -> CommandResult {
    let checkout = checkout(global, args.repo.as_deref())?;
    let recipe = load(args, checkout.as_deref(), global).map_err(|error| {
        CommandError::usage(format!("the recipe `{}` cannot be shown", args.recipe))
            .details(lines(&error))
            .hint("`mini-ork recipe ls` lists recipes; `mini-ork recipe validate` checks one")
    })?;
    // A recipe can be read before there are lanes for it.
    let lanes = LaneConfig::load(&global.home.value, checkout.as_deref()).unwrap_or_default();
    let lanes: BTreeMap<String, Option<String>> = recipe
        .nodes
        .iter()
        .filter(|node| node.kind.uses_lane())
        .map(|node| {
            let lane = lanes.resolve(node.id.as_str(), node.role(), &BTreeMap::new());
            (
                node.id.to_string(),
                lane.ok()
                    .and_then(|lanes| Some(lanes.first()?.name.clone())),
            )
        })
        .collect();
    if args.json {
        render::json(&recipe_json(&recipe, &lanes))?;
    } else {
        render::out(&render::recipe(&recipe, &lanes))?;
    }
    Ok(ExitStatus::Success)
}

fn validate(args: &RecipeShowArgs, global: &GlobalSettings) -> CommandResult {
    let checkout = checkout(global, args.repo.as_deref())?;
    let name = &args.recipe;
    match load(args, checkout.as_deref(), global) {
        Ok(recipe) => {
            if args.json {
                render::json(&json!({
                    "format": 1,
                    "recipe": recipe.name,
                    "origin": origin_json(&recipe.origin),
                    "valid": true,
                    "mistakes": [],
                }))?;
            } else {
                render::out(&format!(
                    "{} {} · {} · {} · {}\n",
                    paint(Style::Good, "✓"),
                    recipe.name,
                    recipe.origin,
                    plural(recipe.nodes.len(), "node"),
                    plural(recipe.files.len(), "file"),
                ))?;
            }
            Ok(ExitStatus::Success)
        }
        Err(Problem::Mistakes(Mistakes(mistakes))) => {
            if args.json {
                let listed: Vec<Value> = mistakes.iter().map(mistake_json).collect();
                render::json(&json!({
                    "format": 1,
                    "recipe": name,
                    "valid": false,
                    "mistakes": listed,
                }))?;
                return Ok(ExitStatus::Usage);
            }
            Err(CommandError::usage(format!(
                "the recipe `{name}` has {}",
                plural(mistakes.len(), "mistake")
            ))
            .details(mistakes.iter().map(ToString::to_string))
            .hint("`mini-ork help recipes` says where the format is described"))
        }
        Err(error) => Err(
            CommandError::usage(format!("the recipe `{name}` cannot be checked"))
                .details(lines(&error))
                .hint(
                    "give the name of a recipe (`mini-ork recipe ls`) or the path of a directory",
                ),
        ),
    }
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Mistakes(Mistakes),
    #[error(transparent)]
    Find(FindError),
    #[error(transparent)]
    Load(LoadError),
}

/// A name is looked up; what has a slash in it, or is no known name and a directory, is read there.
fn load(
    args: &RecipeShowArgs,
    checkout: Option<&Path>,
    global: &GlobalSettings,
) -> Result<Recipe, Problem> {
    let path = global.current_directory.join(&args.recipe);
    let from_directory = || load_directory(&path).map_err(load_problem);
    if args.recipe.contains('/') || args.recipe.starts_with('.') {
        return from_directory();
    }
    match Catalog::new(checkout, &global.home.value).find(&args.recipe) {
        Ok(recipe) => Ok(recipe),
        Err(FindError::Load(error)) => Err(load_problem(error)),
        Err(_) if path.is_dir() => from_directory(),
        Err(error) => Err(Problem::Find(error)),
    }
}

fn load_problem(error: LoadError) -> Problem {
    match error {
        LoadError::Mistakes(mistakes) => Problem::Mistakes(mistakes),
        error @ LoadError::Read { .. } => Problem::Load(error),
    }
}

fn summary_json(summary: &Summary) -> Value {
    let mistakes = summary.mistakes.as_ref();
    json!({
        "recipe": summary.name,
        "origin": origin_json(&summary.origin),
        "description": summary.description,
        "hidden": summary.shadowed,
        "valid": mistakes.is_none(),
        "mistakes": mistakes
            .map(|Mistakes(all)| all.iter().map(mistake_json).collect::<Vec<_>>())
            .unwrap_or_default(),
    })
}

fn mistake_json(mistake: &Mistake) -> Value {
    json!({
        "file": mistake.file,
        "line": mistake.line,
        "key": mistake.key,
        "problem": mistake.problem,
        "remedy": mistake.remedy,
    })
}

fn origin_json(origin: &Origin) -> Value {
    let (kind, path) = match origin {
        Origin::Repository(path) => ("repository", Some(path)),
        Origin::Home(path) => ("home", Some(path)),
        Origin::Directory(path) => ("directory", Some(path)),
        Origin::Bundled => ("bundled", None),
    };
    json!({
        "kind": kind,
        "path": path.map(|path| render::path_json(path.as_os_str())),
    })
}

fn recipe_json(recipe: &Recipe, lanes: &BTreeMap<String, Option<String>>) -> Value {
    let nodes: Vec<Value> = recipe
        .nodes
        .iter()
        .map(|node| {
            let mut value = json!(node);
            value["role"] = node.kind.uses_lane().then(|| node.role()).into();
            value["resolved_lane"] = lanes.get(node.id.as_str()).cloned().flatten().into();
            value
        })
        .collect();
    json!({
        "format": 1,
        "recipe": recipe.name,
        "origin": origin_json(&recipe.origin),
        "description": recipe.description,
        "version": recipe.version,
        "digest": recipe.digest,
        "nodes": nodes,
        "edges": recipe.edges,
        "contract": recipe.contract,
        "budget_cap_usd": recipe.task.budget_cap_usd,
        "files": recipe.files.keys().collect::<Vec<_>>(),
    })
}
