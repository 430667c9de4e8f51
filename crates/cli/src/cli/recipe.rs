use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;

use crate::commands::completions;

const RECIPE_EXAMPLES: &str = "\
Examples:
  mini-ork recipe ls
  mini-ork recipe show code-fix
  mini-ork recipe validate ./my-recipe";

/// `mini-ork recipe`.
#[derive(Debug, Args)]
#[command(after_help = RECIPE_EXAMPLES)]
pub(crate) struct RecipeArgs {
    #[command(subcommand)]
    pub(crate) command: RecipeCommand,
}

/// What can be done with recipes.
#[derive(Debug, Subcommand)]
pub(crate) enum RecipeCommand {
    /// List the recipes that can be run here.
    Ls(RecipeListArgs),
    /// Show a recipe: its graph, lanes, gates and where it comes from.
    Show(RecipeShowArgs),
    /// Check a recipe, by name or by directory; every mistake with its line.
    Validate(RecipeShowArgs),
}

/// `mini-ork recipe ls`.
#[derive(Debug, Args)]
pub(crate) struct RecipeListArgs {
    /// The repository whose recipes count [env: MO_TARGET_CWD].
    #[arg(long, value_name = "DIR")]
    pub(crate) repo: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mini-ork recipe show` and `validate`.
#[derive(Debug, Args)]
pub(crate) struct RecipeShowArgs {
    /// Its name, or a directory.
    #[arg(value_name = "RECIPE", add = ArgValueCandidates::new(completions::recipes))]
    pub(crate) recipe: String,
    /// The repository whose recipes count [env: MO_TARGET_CWD].
    #[arg(long, value_name = "DIR")]
    pub(crate) repo: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
