//! The images of the container engine: `mini-ork image ls`, `build`, `pull` and `prune`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::path::Path;

use mini_ork_control::profile::named_images;
use mini_ork_control::run::now_ms;
use mini_ork_node::workspace::SandboxKind;
use mini_ork_node::workspace::docker::{
    Build, BuildSource, DockerError, Image, build_image, list_images, pull_image, remove_image,
};
use serde::Serialize;

use super::place::checkout;
use super::run::lines;
use super::runtime;
use super::sandbox::engine_error;
use super::sandboxes::records;
use crate::cli::{
    ImageArgs, ImageBuildArgs, ImageCommand, ImageListArgs, ImagePruneArgs, ImagePullArgs,
};
use crate::env_vars;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render;
use crate::settings::{GlobalSettings, assignment};

/// The image that is built when nobody names a Dockerfile.
const BUNDLED: &str = include_str!("../../../../docker/agent-node/Dockerfile");
const BUNDLED_TAG: &str = concat!("mini-ork-agent-node:", env!("CARGO_PKG_VERSION"));

const NOT_BUILT: &str = "no image was built";
const NOT_PULLED: &str = "no image was pulled";
const NOT_LISTED: &str = "the images cannot be listed";
const NOT_REMOVED: &str = "the image is still there";

/// An image as it is shown.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ShownImage {
    pub(crate) names: Vec<String>,
    pub(crate) id: String,
    pub(crate) pinned: Vec<String>,
    pub(crate) bytes: u64,
    pub(crate) made_at_ms: u64,
    /// Whether mini-ork built it.
    pub(crate) own: bool,
    /// Whether `MO_SANDBOX_IMAGE` or a profile names it.
    pub(crate) chosen: bool,
    /// The variable and the places in profiles that do.
    pub(crate) named_by: Vec<String>,
    /// The runs of this home that have used it.
    pub(crate) runs: Vec<String>,
}

/// What becomes of an image.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PrunedImage {
    #[serde(flatten)]
    pub(crate) image: ShownImage,
    pub(crate) action: &'static str,
    pub(crate) why: String,
}

/// Looks at images, makes and removes them.
pub(crate) fn image(args: ImageArgs, global: &GlobalSettings) -> CommandResult {
    match args.command {
        ImageCommand::Ls(args) => ls(&args, global),
        ImageCommand::Build(args) => build(args, global),
        ImageCommand::Pull(args) => pull(&args, global),
        ImageCommand::Prune(args) => prune(&args, global),
    }
}

fn ls(args: &ImageListArgs, global: &GlobalSettings) -> CommandResult {
    let mut named = of_variable(global)?;
    match of_profiles(global) {
        Ok(more) => named.extend(more),
        Err(error) => {
            let lines = std::iter::once(&error.message).chain(&error.details);
            lines.for_each(|line| render::err(&format!("{line}\n")));
        }
    }
    let images = shown(global, &named)?;
    let images: Vec<ShownImage> = images.into_iter().map(|(_, shown)| shown).collect();
    if args.json {
        render::json(&serde_json::json!({ "format": 1, "images": images }))?;
    } else if images.is_empty() {
        render::err("no image yet\nbuild one: mini-ork image build\n");
    } else {
        render::out(&render::images(&images, now_ms()))?;
    }
    Ok(ExitStatus::Success)
}

fn build(args: ImageBuildArgs, global: &GlobalSettings) -> CommandResult {
    let source = match (&args.directory, &args.file) {
        (Some(directory), _) => in_directory(&global.current_directory.join(directory))?,
        (None, Some(file)) => of_file(&global.current_directory.join(file))?,
        (None, None) => BuildSource::Text(BUNDLED.to_owned()),
    };
    let tag = match (args.tag, &source) {
        (Some(tag), _) => tag,
        (None, BuildSource::Text(_)) => BUNDLED_TAG.to_owned(),
        (None, BuildSource::Directory { .. }) => {
            return Err(CommandError::usage("the image has no name")
                .hint("name it, such as --tag my-tools:1"));
        }
    };
    let mut arguments = HashMap::new();
    for text in &args.arguments {
        let (name, value) = assignment("--build-arg", text)?;
        arguments.insert(name, value);
    }
    let endpoint = global.docker_endpoint()?;
    let build = Build {
        source,
        tag,
        arguments,
    };
    let image = block_on(NOT_BUILT, build_image(&endpoint, &build, &mut said))?;
    made(&image, &build.tag, args.json)
}

fn pull(args: &ImagePullArgs, global: &GlobalSettings) -> CommandResult {
    let endpoint = global.docker_endpoint()?;
    let image = block_on(NOT_PULLED, pull_image(&endpoint, &args.image, &mut said))?;
    made(&image, &args.image, args.json)
}

fn prune(args: &ImagePruneArgs, global: &GlobalSettings) -> CommandResult {
    let endpoint = global.docker_endpoint()?;
    let mut named = of_variable(global)?;
    named.extend(of_profiles(global)?);
    let mut pruned = Vec::new();
    for (image, shown) in shown(global, &named)? {
        let keeps = if !shown.own {
            Some("mini-ork did not build it".to_owned())
        } else if shown.chosen {
            Some(format!("named by {}", shown.named_by.join(", ")))
        } else if shown.runs.is_empty() {
            None
        } else {
            Some(format!("used by {}", shown.runs.join(", ")))
        };
        let (action, why) = match keeps {
            Some(why) => ("kept", why),
            None if args.dry_run => ("removed", "no run has used it".to_owned()),
            None => match block_on(NOT_REMOVED, remove_image(&endpoint, &image)) {
                Ok(()) => ("removed", "no run has used it".to_owned()),
                Err(error) => ("failed", error.to_string()),
            },
        };
        pruned.push(PrunedImage {
            image: shown,
            action,
            why,
        });
    }
    if args.json {
        render::json(&serde_json::json!({
            "format": 1,
            "dry_run": args.dry_run,
            "images": pruned,
        }))?;
    } else {
        render::out(&render::pruned(&pruned, args.dry_run))?;
    }
    let failed = pruned.iter().any(|image| image.action == "failed");
    Ok(if failed {
        ExitStatus::Failure
    } else {
        ExitStatus::Success
    })
}

fn in_directory(directory: &Path) -> Result<BuildSource, CommandError> {
    of_file(&directory.join("Dockerfile"))
}

fn of_file(file: &Path) -> Result<BuildSource, CommandError> {
    let found = file
        .parent()
        .zip(file.file_name())
        .filter(|_| file.is_file());
    let (directory, name) = found.ok_or_else(|| {
        CommandError::usage(format!("there is no `{}`", file.display()))
            .hint("name a directory with a Dockerfile, or one with --file FILE")
    })?;
    let name = name.to_str().ok_or_else(|| {
        CommandError::usage(format!("the name of `{}` is no text", file.display()))
            .hint("give it another name")
    })?;
    Ok(BuildSource::Directory {
        directory: directory.to_owned(),
        dockerfile: name.to_owned(),
    })
}

/// The images that mini-ork may use, with what the runs of this home have to do with them, and
/// those that are `named`.
fn shown(
    global: &GlobalSettings,
    named: &[NamedImage],
) -> Result<Vec<(Image, ShownImage)>, CommandError> {
    let mut runs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for record in records(global)? {
        if let SandboxKind::Docker(container) = record.kind {
            runs.entry(container.image_id).or_default().push(record.run);
        }
    }
    let endpoint = global.docker_endpoint()?;
    let names: BTreeSet<String> = named.iter().map(|one| one.image.clone()).collect();
    let names: Vec<String> = names.into_iter().collect();
    let images = block_on(NOT_LISTED, list_images(&endpoint, &names))?;
    let shown = images.into_iter().map(|(image, names)| {
        let by = named.iter().filter(|one| names.contains(&one.image));
        let named_by: Vec<String> = by.map(|one| one.place.clone()).collect();
        let shown = ShownImage {
            names: image.names.clone(),
            id: image.id.clone(),
            pinned: image.pinned.clone(),
            bytes: image.size,
            made_at_ms: image.made_at_ms,
            own: image.is_own,
            chosen: !named_by.is_empty(),
            named_by,
            runs: runs.remove(&image.id).unwrap_or_default(),
        };
        (image, shown)
    });
    Ok(shown.collect())
}

/// An image as it is named somewhere.
struct NamedImage {
    image: String,
    /// The variable, or file and line.
    place: String,
}

fn of_variable(global: &GlobalSettings) -> Result<Vec<NamedImage>, CommandError> {
    const VARIABLE: &str = env_vars::MO_SANDBOX_IMAGE;
    let image = global.environment.text(VARIABLE)?;
    let named = image.map(|image| NamedImage {
        image,
        place: VARIABLE.to_owned(),
    });
    Ok(named.into_iter().collect())
}

/// Those of all profiles, of the home and of the checkout around the current directory.
fn of_profiles(global: &GlobalSettings) -> Result<Vec<NamedImage>, CommandError> {
    let checkout = checkout(global, None)?;
    let found = named_images(&global.home.value, checkout.as_deref()).map_err(|error| {
        CommandError::usage("it is not known which images the profiles name")
            .details(lines(&error))
            .hint("correct the profiles; `docs/sandboxing.md` describes them")
    })?;
    let named = found.into_iter().map(|placed| NamedImage {
        place: placed.to_string(),
        image: placed.value,
    });
    Ok(named.collect())
}

/// Says what there is now, by what it is pinned with.
fn made(image: &Image, name: &str, json: bool) -> CommandResult {
    let pinned = image.pinned.first().unwrap_or(&image.id);
    if json {
        render::json(&serde_json::json!({
            "format": 1,
            "image": name,
            "id": image.id,
            "pinned": pinned,
            "bytes": image.size,
        }))?;
    } else {
        render::out(&format!("{pinned}\n"))?;
        let variable = env_vars::MO_SANDBOX_IMAGE;
        render::err(&format!("to use it: {variable}={name}\n"));
    }
    Ok(ExitStatus::Success)
}

fn said(line: &str) {
    render::err(&format!("{line}\n"));
}

/// `message` says what there is not when it fails.
fn block_on<T>(
    message: &str,
    work: impl Future<Output = Result<T, DockerError>>,
) -> Result<T, CommandError> {
    runtime()?.block_on(work).map_err(|error| match &error {
        DockerError::Engine { .. } => {
            let hint = "what the engine said last tells more";
            CommandError::failure(message).caused_by(&error).hint(hint)
        }
        DockerError::Context(_) => CommandError::usage(message)
            .caused_by(&error)
            .hint("the directory of the Dockerfile is the context"),
        _ => engine_error(message, &error),
    })
}
