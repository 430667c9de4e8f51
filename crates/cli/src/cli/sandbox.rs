use clap::{Args, Subcommand};

use super::RunRefArgs;

/// `mini-ork sandbox`.
#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    #[command(subcommand)]
    pub(crate) command: SandboxCommand,
}

/// What can be done with sandboxes.
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// List the containers of the runs of this home, also those that are gone.
    Ls(SandboxListArgs),
    /// Show what is known of the container of a run.
    Inspect(RunRefArgs),
    /// Remove containers that no run needs any more.
    Gc(SandboxListArgs),
    /// Try everything that a hostile program would to get past the network policy.
    Verify(SandboxVerifyArgs),
}

/// `mini-ork sandbox ls` and `mini-ork sandbox gc`.
#[derive(Debug, Args)]
pub(crate) struct SandboxListArgs {
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
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// Show every attempt, also those that ended as they have to.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
