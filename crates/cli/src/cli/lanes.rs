use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;

use crate::commands::completions;

const EXAMPLES: &str = "\
Examples:
  mini-ork lanes ls
  mini-ork lanes show my-agent
  mini-ork lanes check --repo ../other";

/// `mini-ork lanes`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LanesArgs {
    #[command(subcommand)]
    pub(crate) command: LanesCommand,
}

/// What can be done with lanes.
#[derive(Debug, Subcommand)]
pub(crate) enum LanesCommand {
    /// List the lanes that hold here, with the roles that each plays.
    Ls(LanesHereArgs),
    /// Show one lane in full.
    Show(LaneShowArgs),
    /// Check that every lane can be started; the exit code tells.
    Check(LanesHereArgs),
}

/// `mini-ork lanes ls` and `check`.
#[derive(Debug, Args)]
pub(crate) struct LanesHereArgs {
    /// The repository whose lanes count [env: MO_TARGET_CWD].
    #[arg(long, value_name = "DIR")]
    pub(crate) repo: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mini-ork lanes show`.
#[derive(Debug, Args)]
pub(crate) struct LaneShowArgs {
    /// Its name.
    #[arg(value_name = "LANE", add = ArgValueCandidates::new(completions::lane_names))]
    pub(crate) lane: String,
    #[command(flatten)]
    pub(crate) here: LanesHereArgs,
}
