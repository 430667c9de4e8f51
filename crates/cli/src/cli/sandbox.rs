use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;

use super::RunRefArgs;
use crate::commands::completions;

/// `mini-ork sandbox`.
#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    #[command(subcommand)]
    pub(crate) command: SandboxCommand,
}

/// What can be done with sandboxes.
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// List the sandboxes of this home, also those that are gone.
    Ls(SandboxListArgs),
    /// Show what is known of the sandbox of a run.
    Inspect(RunRefArgs),
    /// Try everything that a hostile program would to get past the network policy.
    Verify(SandboxVerifyArgs),
}

/// `mini-ork sandbox ls`.
#[derive(Debug, Args)]
pub(crate) struct SandboxListArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

const GC_EXAMPLES: &str = "\
Examples:
  mini-ork sandbox-gc --dry-run          what would go, and why
  mini-ork sandbox-gc                    all that no process drives
  mini-ork sandbox-gc --max-age 6h       and what interrupted runs could go on in only if it is older

Exit code 1: something could not be removed; it stays on record.";

/// `mini-ork sandbox-gc`.
#[derive(Debug, Args)]
#[command(after_help = GC_EXAMPLES)]
pub(crate) struct SandboxGcArgs {
    /// Only those of one workspace backend: `docker`, `local`, or `all`.
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(completions::backends_or_all))]
    pub(crate) backend: Option<String>,
    /// The sandbox of an interrupted run goes only when it is older, such as `90m`, `6h`, or
    /// seconds [env: MO_SANDBOX_MAX_AGE] [default: 0].
    #[arg(long, value_name = "AGE")]
    pub(crate) max_age: Option<String>,
    /// Say what would be removed and why, and remove nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

const VERIFY_EXAMPLES: &str = "\
Examples:
  mini-ork sandbox verify                                          no network at all
  MO_SANDBOX_NETWORK=allowlist MO_SANDBOX_ALLOW=pypi.org mini-ork sandbox verify
  MO_SANDBOX_IMAGE=debian:12 mini-ork sandbox verify --backend docker --json

Exit code 0: everything that has to be closed is, and what is allowed works.";

/// `mini-ork sandbox verify`.
#[derive(Debug, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct SandboxVerifyArgs {
    /// Workspace backend, `local` or `docker` [env: MO_SANDBOX_BACKEND] [default: local].
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(completions::backends))]
    pub(crate) backend: Option<String>,
    /// The profile whose policy is tried, `config/environments/NAME.yaml` [env: MO_NODE_ENV].
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(completions::profiles))]
    pub(crate) env: Option<String>,
    /// Show every attempt, also those that ended as they have to.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
