//! The images of an engine.

mod context;
mod ignore;

use std::collections::HashMap;
use std::path::PathBuf;

use bollard::Docker;
use bollard::body_try_stream;
use bollard::query_parameters::{
    BuildImageOptionsBuilder, CreateImageOptionsBuilder, ListImagesOptionsBuilder,
    RemoveImageOptions,
};
use futures_util::StreamExt as _;

use super::DockerError;
use super::engine;
use crate::text::on_one_line;

/// Label of the images that mini-ork builds. Only such are removed.
pub const IMAGE_LABEL: &str = "dev.mini-ork.image";
/// How an engine calls an image without a name.
const NAMELESS: &str = "<none>";

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its digest, by which an engine knows it.
    pub id: String,
    /// Its names with tags.
    pub names: Vec<String>,
    /// Its names with the digests that registries know it by.
    pub pinned: Vec<String>,
    /// Bytes.
    pub size: u64,
    /// When it was made, in milliseconds since the Unix epoch.
    pub made_at_ms: u64,
    /// Whether mini-ork built it.
    pub is_own: bool,
}

/// What to build.
#[derive(Debug, Clone)]
pub struct Build {
    /// What it is built from.
    pub source: BuildSource,
    /// The name of the image.
    pub tag: String,
    /// Values for the arguments of the Dockerfile.
    pub arguments: HashMap<String, String>,
}

/// What an image is built from.
#[derive(Debug, Clone)]
pub enum BuildSource {
    /// A Dockerfile that needs no files.
    Text(String),
    /// The directory with the name of the Dockerfile in it.
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The file in it.
        dockerfile: String,
    },
}

/// The images on the engine at `endpoint` that mini-ork may use: those that it built, and `named`.
/// Each is with those of `named` that the engine takes for it, however they are written.
pub async fn list_images(
    endpoint: &str,
    named: &[String],
) -> Result<Vec<(Image, Vec<String>)>, DockerError> {
    let client = engine::connect(endpoint).await?;
    let mut known: HashMap<String, Vec<String>> = HashMap::new();
    for name in named {
        match client.inspect_image(name).await {
            Ok(found) => {
                let id = found.id.unwrap_or_default();
                known.entry(id).or_default().push(name.clone());
            }
            Err(error) if engine::is_missing(&error) || engine::is_no_name(&error) => {}
            Err(error) => return Err(DockerError::engine("look for the image")(error)),
        }
    }
    let images = all(&client).await?.into_iter().map(|image| {
        let names = known.remove(&image.id).unwrap_or_default();
        (image, names)
    });
    Ok(images
        .filter(|(image, names)| image.is_own || !names.is_empty())
        .collect())
}

/// Builds an image. `progress` is told each line that the engine says. Nothing is left of a build
/// that failed, but for what the next one can use again.
pub async fn build_image(
    endpoint: &str,
    build: &Build,
    progress: &mut dyn FnMut(&str),
) -> Result<Image, DockerError> {
    let client = engine::connect(endpoint).await?;
    let (dockerfile, archive) = context::archive(&build.source).map_err(DockerError::Context)?;
    let labels = HashMap::from([(IMAGE_LABEL, build.tag.as_str())]);
    let options = BuildImageOptionsBuilder::new()
        .dockerfile(&dockerfile)
        .t(&build.tag)
        .rm(true)
        .forcerm(true)
        .labels(&labels)
        .buildargs(&build.arguments)
        .build();
    let mut said = Box::pin(client.build_image(options, None, Some(body_try_stream(archive))));
    let mut line = String::new();
    while let Some(info) = said.next().await {
        let info = info.map_err(DockerError::engine("build the image"))?;
        let text = info.stream.or(info.status).unwrap_or_default();
        line.push_str(&text);
        // What the engine says comes in pieces of lines.
        while let Some(end) = line.find('\n') {
            tell(&line[..end], progress);
            line.drain(..=end);
        }
    }
    tell(&line, progress);
    find(&client, &build.tag).await
}

/// Fetches `reference` from its registry. `progress` is told what becomes of each layer.
pub async fn pull_image(
    endpoint: &str,
    reference: &str,
    progress: &mut dyn FnMut(&str),
) -> Result<Image, DockerError> {
    let client = engine::connect(endpoint).await?;
    let (name, tag) = split(reference);
    let options = CreateImageOptionsBuilder::new()
        .from_image(name)
        .tag(tag)
        .build();
    let mut said = Box::pin(client.create_image(Some(options), None, None));
    let mut layers: HashMap<String, String> = HashMap::new();
    while let Some(info) = said.next().await {
        let info = info.map_err(DockerError::engine("pull the image"))?;
        let Some(status) = info.status else { continue };
        match info.id {
            // A layer says the same again and again while it comes.
            Some(layer) => {
                if layers.insert(layer.clone(), status.clone()).as_ref() != Some(&status) {
                    tell(&format!("{layer}: {status}"), progress);
                }
            }
            None => tell(&status, progress),
        }
    }
    let separator = if tag.contains(':') { '@' } else { ':' };
    find(&client, &format!("{name}{separator}{tag}")).await
}

/// Removes an image with all its names. One that a container uses is left and is an error.
pub async fn remove_image(endpoint: &str, image: &Image) -> Result<(), DockerError> {
    let client = engine::connect(endpoint).await?;
    let by_id = [image.id.clone()];
    let names = if image.names.is_empty() {
        &by_id[..]
    } else {
        &image.names[..]
    };
    for name in names {
        match client
            .remove_image(name, None::<RemoveImageOptions>, None)
            .await
        {
            Err(error) if !engine::is_missing(&error) => {
                return Err(DockerError::engine("remove the image")(error));
            }
            _ => {}
        }
    }
    Ok(())
}

async fn all(client: &Docker) -> Result<Vec<Image>, DockerError> {
    let options = ListImagesOptionsBuilder::new().build();
    let listed = client
        .list_images(Some(options))
        .await
        .map_err(DockerError::engine("list its images"))?;
    let named = |names: Vec<String>| {
        let named = names.into_iter().filter(|name| !name.contains(NAMELESS));
        named.collect()
    };
    Ok(listed
        .into_iter()
        .map(|one| Image {
            id: one.id,
            names: named(one.repo_tags),
            pinned: named(one.repo_digests),
            size: u64::try_from(one.size).unwrap_or(0),
            made_at_ms: u64::try_from(one.created).unwrap_or(0).saturating_mul(1000),
            is_own: one.labels.contains_key(IMAGE_LABEL),
        })
        .collect())
}

async fn find(client: &Docker, name: &str) -> Result<Image, DockerError> {
    let missing = || DockerError::NoImage {
        image: name.to_owned(),
    };
    let found = match client.inspect_image(name).await {
        Ok(found) => found.id.ok_or_else(missing)?,
        Err(error) if engine::is_missing(&error) => return Err(missing()),
        Err(error) => return Err(DockerError::engine("look for the image")(error)),
    };
    let images = all(client).await?;
    let image = images.into_iter().find(|image| image.id == found);
    image.ok_or_else(missing)
}

/// Name and tag, or name and digest. Without either the engine would fetch every tag there is.
fn split(reference: &str) -> (&str, &str) {
    if let Some((name, digest)) = reference.split_once('@') {
        return (name, digest);
    }
    match reference.rsplit_once(':') {
        // Else it is the port of the registry.
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (reference, "latest"),
    }
}

fn tell(line: &str, progress: &mut dyn FnMut(&str)) {
    let line = on_one_line(line);
    if !line.trim().is_empty() {
        progress(line.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_has_one_tag() {
        for (reference, expected) in [
            ("debian", ("debian", "latest")),
            ("debian:12", ("debian", "12")),
            ("127.0.0.1:5000/a/b", ("127.0.0.1:5000/a/b", "latest")),
            ("127.0.0.1:5000/a/b:1", ("127.0.0.1:5000/a/b", "1")),
            ("a/b@sha256:00", ("a/b", "sha256:00")),
        ] {
            assert_eq!(split(reference), expected);
        }
    }
}
