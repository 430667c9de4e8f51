use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `mini-ork image`.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    pub(crate) command: ImageCommand,
}

/// What can be done with images.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// List the images that mini-ork may use: those that it built, and those that
    /// MO_SANDBOX_IMAGE or a profile names.
    Ls(ImageListArgs),
    /// Build an image from a Dockerfile; without one, that of the agents.
    Build(ImageBuildArgs),
    /// Fetch an image from its registry, and tell its digest.
    Pull(ImagePullArgs),
    /// Remove images that mini-ork built, that no run of this home has used, and that nothing names.
    Prune(ImagePruneArgs),
}

/// `mini-ork image ls`.
#[derive(Debug, Args)]
pub(crate) struct ImageListArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

const BUILD_EXAMPLES: &str = "\
Examples:
  mini-ork image build                             git and the agent programs, on Debian
  mini-ork image build ./tools --tag my-tools:1    ./tools/Dockerfile, with what is beside it
  mini-ork image build --build-arg BASE=debian:13-slim --tag mini-ork-agent-node:13";

/// `mini-ork image build`.
#[derive(Debug, Args)]
#[command(after_help = BUILD_EXAMPLES)]
pub(crate) struct ImageBuildArgs {
    /// The directory with the Dockerfile and the files that it copies.
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// The Dockerfile; files that it copies are beside it.
    #[arg(long, value_name = "FILE", conflicts_with = "directory")]
    pub(crate) file: Option<PathBuf>,
    /// The name of the image. Needed for a Dockerfile of your own.
    #[arg(long, value_name = "NAME:TAG")]
    pub(crate) tag: Option<String>,
    /// A value for an argument of the Dockerfile; may be repeated. Not for secrets: it can be read
    /// in the image.
    #[arg(long = "build-arg", value_name = "NAME=VALUE")]
    pub(crate) arguments: Vec<String>,
    /// Print one JSON object at the end, on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mini-ork image pull`.
#[derive(Debug, Args)]
pub(crate) struct ImagePullArgs {
    /// The image, such as `debian:12`.
    #[arg(value_name = "IMAGE")]
    pub(crate) image: String,
    /// Print one JSON object at the end, on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mini-ork image prune`.
#[derive(Debug, Args)]
pub(crate) struct ImagePruneArgs {
    /// Say what would be removed and why, and remove nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
