//! What can be typed. Nothing here decides anything: see `settings`.

mod costs;
mod image;
mod lanes;
mod recipe;
mod sandbox;
mod vault;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};

pub(crate) use costs::{CostKey, CostsArgs};
pub(crate) use image::{
    ImageArgs, ImageBuildArgs, ImageCommand, ImageListArgs, ImagePruneArgs, ImagePullArgs,
};
pub(crate) use lanes::{LaneShowArgs, LanesArgs, LanesCommand, LanesHereArgs};
pub(crate) use recipe::{RecipeArgs, RecipeCommand, RecipeListArgs, RecipeShowArgs};
pub(crate) use sandbox::{
    SandboxArgs, SandboxCommand, SandboxGcArgs, SandboxListArgs, SandboxVerifyArgs,
};
pub(crate) use vault::{
    KeyPlaceArg, VaultArgs, VaultCommand, VaultImportArgs, VaultKeyArgs, VaultListArgs,
    VaultRemoveArgs, VaultSetArgs,
};

use crate::commands::completions;

const EXAMPLES: &str = "\
First steps:
  mini-ork init                                  set up the repository around you
  mini-ork run code-fix ./kickoff.md             do what the kickoff asks, on a branch of its own
  mini-ork status                                what the latest run did, and what to do next

A run is named by its id, any unique beginning of it, or `@` for the latest.
Exit codes: 0 done, 1 the work failed, 2 usage or configuration, 6 blocked by a question,
75 budget used up, 130 cancelled. More: `mini-ork help TOPIC` (recipes, lanes, kickoffs,
sandboxing, profiles, network, environment, exit-codes, recovery).";

/// Runs coding-agent workflows on a git repository and gives back a branch with verified work.
#[derive(Debug, Parser)]
#[command(name = "mini-ork", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// Home of mini-ork: state, runs, configuration [env: MINI_ORK_HOME].
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Whether to use colour.
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto)]
    pub(crate) color: ColorChoice,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Carry out a recipe on a kickoff.
    Run(RunArgs),
    /// List runs.
    Runs(RunsArgs),
    /// Show one run: its graph, evidence, cost, and what to do next.
    Status(RunRefArgs),
    /// Print what the programs of a run wrote.
    Logs(LogsArgs),
    /// Show what a run changed.
    Diff(DiffArgs),
    /// Put a run's change into the checkout, as uncommitted changes.
    Apply(ApplyArgs),
    /// Show where parallel changes exclude each other.
    Conflicts(RunRefArgs),
    /// End a run and all its processes.
    Kill(RunRefArgs),
    /// Continue a run from its last good node.
    Recover(RecoverArgs),
    /// Remove what finished runs left, never unsaved work.
    Clean(CleanArgs),
    /// Show what the runs of this home have cost.
    Costs(CostsArgs),
    /// Show, check and list recipes.
    Recipe(RecipeArgs),
    /// Show, check and list lanes: the agents that do the nodes.
    Lanes(LanesArgs),
    /// Set up a repository: configuration and an example kickoff.
    Init(InitArgs),
    /// Keep the keys of agents, encrypted.
    Vault(VaultArgs),
    /// Look at sandboxes, and try to get out of one.
    Sandbox(SandboxArgs),
    /// Remove sandboxes that no run needs any more.
    SandboxGc(SandboxGcArgs),
    /// List, build, fetch and remove the images of sandboxes.
    Image(ImageArgs),
    /// Check that everything needed is here; the exit code tells.
    Doctor(DoctorArgs),
    /// Show every setting and where its value came from.
    Settings(SettingsArgs),
    /// Print a script that completes commands, runs and recipes in a shell.
    Completions(CompletionsArgs),
    /// Measure mini-ork itself.
    Bench(BenchArgs),
    /// Explain a command or a topic.
    Help(HelpArgs),
}

const RUN_EXAMPLES: &str = "\
Examples:
  mini-ork run code-fix ./kickoff.md
  mini-ork run code-fix ./kickoff.md --lane implementer=my-agent --deadline 30m
  mini-ork run docs ./kickoff.md --dry-run
  mini-ork run code-fix ./kickoff.md --json | jq -r .branch";

/// `mini-ork run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// The recipe; left out, the kickoff's words choose it.
    #[arg(value_name = "RECIPE", add = ArgValueCandidates::new(completions::recipes))]
    pub(crate) first: Option<String>,
    /// The Markdown file that says what is wanted.
    #[arg(value_name = "KICKOFF")]
    pub(crate) second: Option<PathBuf>,
    /// The repository to work on [env: MO_TARGET_CWD].
    #[arg(long, value_name = "DIR")]
    pub(crate) repo: Option<PathBuf>,
    /// Let a lane do a role or a node, as `role=lane`; may be repeated.
    #[arg(long = "lane", value_name = "ROLE=LANE", add = ArgValueCompleter::new(completions::lanes))]
    pub(crate) lanes: Vec<String>,
    /// End the run after this time, such as `90s`, `30m`, `2h`.
    #[arg(long, value_name = "TIME")]
    pub(crate) deadline: Option<String>,
    /// Most nodes at once [env: MINI_ORK_MAX_PARALLEL] [default: 4].
    #[arg(long, value_name = "N")]
    pub(crate) max_parallel: Option<String>,
    /// Most US dollars that the run may spend; the recipe's own limit when left out.
    #[arg(long, value_name = "USD")]
    pub(crate) budget: Option<String>,
    /// Workspace backend, `local` or `docker` [env: MO_SANDBOX_BACKEND] [default: local].
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(completions::backends))]
    pub(crate) backend: Option<String>,
    /// Where work runs [env: MO_PLACEMENT] [default: local].
    #[arg(long, value_name = "PLACE")]
    pub(crate) placement: Option<String>,
    /// The profile of what the run works in, `config/environments/NAME.yaml` [env: MO_NODE_ENV].
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(completions::profiles))]
    pub(crate) env: Option<String>,
    /// Answer a question of the kickoff, as `question-id=text`; may be repeated.
    #[arg(long = "answer", value_name = "ID=TEXT")]
    pub(crate) answers: Vec<String>,
    /// Also put the published change into the checkout, as uncommitted changes.
    #[arg(long)]
    pub(crate) apply: bool,
    /// Show the plan and do nothing [env: MINI_ORK_DRY_RUN].
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Never ask, also on a terminal [env: MINI_ORK_NONINTERACTIVE].
    #[arg(long)]
    pub(crate) no_input: bool,
    /// Print one JSON object at the end, on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A run.
#[derive(Debug, Args)]
pub(crate) struct RunRefArgs {
    /// The run: its id, a unique beginning of it, or `@` for the latest.
    #[arg(value_name = "RUN", default_value = "@", add = ArgValueCandidates::new(completions::runs))]
    pub(crate) run: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mini-ork runs`.
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Most runs to show; 0 shows all.
    #[arg(long, short = 'n', default_value_t = 20)]
    pub(crate) limit: usize,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const LOGS_EXAMPLES: &str = "\
Examples:
  mini-ork logs                          everything that the latest run wrote
  mini-ork logs @ implementer -f         one node, as it works
  mini-ork logs 7k2m9d --json | jq -r .data";

/// `mini-ork logs`.
#[derive(Debug, Args)]
#[command(after_help = LOGS_EXAMPLES)]
pub(crate) struct LogsArgs {
    /// The run: its id, a unique beginning of it, or `@` for the latest.
    #[arg(value_name = "RUN", default_value = "@", add = ArgValueCandidates::new(completions::runs))]
    pub(crate) run: String,
    /// Only this node.
    #[arg(value_name = "NODE", add = ArgValueCandidates::new(completions::nodes))]
    pub(crate) node: Option<String>,
    /// Go on until the run has ended.
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
    /// Print what agents wrote byte for byte, instead of what they did in few words.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print JSON lines, one for each piece of output.
    #[arg(long)]
    pub(crate) json: bool,
}

const DIFF_EXAMPLES: &str = "\
Examples:
  mini-ork diff                          the change of the latest run, as a patch
  mini-ork diff 7k2m9d implementer       what one node changed
  mini-ork diff 7k2m9d --stat            files and lines
  mini-ork diff 7k2m9d | git apply --3way";

/// `mini-ork diff`.
#[derive(Debug, Args)]
#[command(after_help = DIFF_EXAMPLES)]
pub(crate) struct DiffArgs {
    /// The run: its id, a unique beginning of it, or `@` for the latest.
    #[arg(value_name = "RUN", default_value = "@", add = ArgValueCandidates::new(completions::runs))]
    pub(crate) run: String,
    /// What this node changed, instead of the whole run.
    #[arg(value_name = "NODE", add = ArgValueCandidates::new(completions::nodes))]
    pub(crate) node: Option<String>,
    /// List the changed files with the number of lines.
    #[arg(long)]
    pub(crate) stat: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const APPLY_EXAMPLES: &str = "\
Examples:
  mini-ork apply 7k2m9d --dry-run        which files would change
  mini-ork apply 7k2m9d                  change them; refused when that would lose work";

/// `mini-ork apply`.
#[derive(Debug, Args)]
#[command(after_help = APPLY_EXAMPLES)]
pub(crate) struct ApplyArgs {
    /// The run: its id, a unique beginning of it, or `@` for the latest.
    #[arg(value_name = "RUN", default_value = "@", add = ArgValueCandidates::new(completions::runs))]
    pub(crate) run: String,
    /// Say what would be changed and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mini-ork recover`.
#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// The run: its id, a unique beginning of it, or `@` for the latest.
    #[arg(value_name = "RUN", default_value = "@", add = ArgValueCandidates::new(completions::runs))]
    pub(crate) run: String,
    /// A new limit in US dollars for the whole run.
    #[arg(long, value_name = "USD")]
    pub(crate) budget: Option<String>,
    /// Also put the published change into the checkout, as uncommitted changes.
    #[arg(long)]
    pub(crate) apply: bool,
    /// Print one JSON object at the end, on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

const CLEAN_EXAMPLES: &str = "\
Examples:
  mini-ork clean --dry-run              what would go, how large it is, and why
  mini-ork clean                        worktrees of finished runs, and runs older than 30 days
  mini-ork clean --older-than 0d        everything of every finished run";

/// `mini-ork clean`.
#[derive(Debug, Args)]
#[command(after_help = CLEAN_EXAMPLES)]
pub(crate) struct CleanArgs {
    /// Forget finished runs older than this, such as `12h`, `30d`.
    #[arg(long, value_name = "AGE", default_value = "30d")]
    pub(crate) older_than: String,
    /// Forget the oldest finished runs until all together take at most this, such as `500M`, `10G`.
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_size: Option<String>,
    /// Say what would be removed and why, and remove nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const INIT_EXAMPLES: &str = "\
Examples:
  mini-ork init                          in the repository around you
  mini-ork init --repo ../other";

/// `mini-ork init`.
#[derive(Debug, Args)]
#[command(after_help = INIT_EXAMPLES)]
pub(crate) struct InitArgs {
    /// The repository to set up [env: MO_TARGET_CWD].
    #[arg(long, value_name = "DIR")]
    pub(crate) repo: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mini-ork doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Check this lane alone, with one small call to its model.
    #[arg(long, value_name = "LANE", add = ArgValueCandidates::new(completions::lane_names))]
    pub(crate) lane: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mini-ork settings`.
#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    /// The repository whose configuration counts [env: MO_TARGET_CWD].
    #[arg(long, value_name = "DIR")]
    pub(crate) repo: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(mini-ork completions bash)    for this shell; put it into ~/.bashrc
  mini-ork completions zsh > ~/.zfunc/_mini-ork
  mini-ork completions fish > ~/.config/fish/completions/mini-ork.fish";

/// `mini-ork completions`.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// `mini-ork bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Start-up, overhead per node, worktrees of a large tree, and many runs at once.
    Dispatch(BenchDispatchArgs),
    /// The lane gateway beside nginx: the first byte of streams, and memory.
    Gateway(BenchGatewayArgs),
    /// Sandboxes beside docker: start, programs, files, memory and traffic.
    Sandbox(BenchSandboxArgs),
}

/// `mini-ork bench dispatch`.
#[derive(Debug, Args)]
pub(crate) struct BenchDispatchArgs {
    /// Measure only this; may be repeated.
    #[arg(long = "part", value_name = "PART", value_enum)]
    pub(crate) parts: Vec<BenchPart>,
    /// How often each thing is measured.
    #[arg(long, default_value_t = 10)]
    pub(crate) samples: u32,
    /// How many nodes a run has, for the overhead of one.
    #[arg(long, default_value_t = 20)]
    pub(crate) nodes: u32,
    /// How many runs at once.
    #[arg(long, default_value_t = 50)]
    pub(crate) runs: u32,
    /// How many files the large tree has.
    #[arg(long, default_value_t = 50_000)]
    pub(crate) files: u32,
    /// Where to work: a directory on the file system that counts, with 6 GiB to spare [env: TMPDIR].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mini-ork bench gateway`.
#[derive(Debug, Args)]
pub(crate) struct BenchGatewayArgs {
    /// How often everything is measured.
    #[arg(long, default_value_t = 5)]
    pub(crate) samples: u32,
    /// How many agents listen to a stream at a time.
    #[arg(long, default_value_t = 200)]
    pub(crate) clients: u32,
    /// How many calls each makes, one after the other.
    #[arg(long, default_value_t = 5)]
    pub(crate) calls: u32,
    /// Where to work [env: TMPDIR].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mini-ork bench sandbox`.
#[derive(Debug, Args)]
pub(crate) struct BenchSandboxArgs {
    /// How often each thing is measured.
    #[arg(long, default_value_t = 10)]
    pub(crate) samples: u32,
    /// How many files the tree has that git looks at.
    #[arg(long, default_value_t = 5_000)]
    pub(crate) files: u32,
    /// The image, which needs `sleep` and `true`, and `git`, `cargo` and `curl` for what is measured
    /// with them [env: MO_SANDBOX_IMAGE].
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// Where to work [env: TMPDIR].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `mini-ork bench dispatch` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchPart {
    /// Starts of mini-ork and of a supervised process.
    Start,
    /// What each node costs beyond its own program, and the start of a run.
    Nodes,
    /// A workspace of a large tree.
    Tree,
    /// Many runs at once.
    Runs,
}

/// `mini-ork help`.
#[derive(Debug, Args)]
pub(crate) struct HelpArgs {
    /// A command or a topic; left out, both are listed.
    #[arg(value_name = "TOPIC")]
    pub(crate) topic: Option<String>,
}
