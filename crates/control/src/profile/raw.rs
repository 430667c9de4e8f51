use std::collections::BTreeMap;
use std::path::Path;

use mini_ork_node::size::{MEMORY_SYNTAX, parse_memory};
use mini_ork_node::workspace::docker::Processors;

use super::{Placed, ProfileError};
use crate::config_file;
use crate::variables::variables;
use crate::yaml::{Document, Map, Mistake, Mistakes, Value, suggest_or_list};

const DIRECTORY: &str = "config/environments";
const ENDING: &str = ".yaml";
const LONGEST_NAME: usize = 64;
const LONGEST_IMAGE: usize = 512;

/// What the files of a profile say. Keys of the repository's file win over those of the home's.
#[derive(Debug, Clone, Default)]
pub struct RawProfile {
    pub(super) image: Option<Placed<String>>,
    pub(super) network: Option<Placed<&'static str>>,
    pub(super) allow_domains: Option<Placed<Vec<Placed<String>>>>,
    pub(super) env: BTreeMap<String, Placed<String>>,
    pub(super) cpus: Option<Placed<String>>,
    pub(super) memory: Option<Placed<String>>,
    pub(super) mistakes: Vec<Mistake>,
}

impl RawProfile {
    /// Reads `config/environments/NAME.yaml` below `home` and below `.mini-ork` of `repository`;
    /// one of them has to be there. Mistakes in them are told by [`RawProfile::resolve`].
    pub fn load(home: &Path, repository: Option<&Path>, name: &str) -> Result<Self, ProfileError> {
        if !is_name(name) {
            return Err(ProfileError::Unknown {
                name: name.escape_debug().take(LONGEST_NAME).collect(),
                remedy: "use letters, digits, `.`, `_` and `-`, at most 64".to_owned(),
            });
        }
        let files = config_file::find(home, repository, &format!("{DIRECTORY}/{name}{ENDING}"))?;
        if files.is_empty() {
            return Err(ProfileError::Unknown {
                name: name.to_owned(),
                remedy: remedy(name, &names(home, repository)),
            });
        }
        let mut profile = Self::default();
        for file in files {
            profile.read(&file.name, &file.bytes);
        }
        Ok(profile)
    }

    /// Takes what stands in a file on top of what there is.
    pub(super) fn read(&mut self, file: &str, bytes: &[u8]) {
        let document = match Document::parse(file, bytes) {
            Ok(document) => document,
            Err(Mistakes(mistakes)) => return self.mistakes.extend(mistakes),
        };
        let root = document.root();
        refuse(&root);
        let placed = |value: &Value<'_>| Placed {
            value: (),
            file: file.to_owned(),
            line: value.line(),
        };
        if let Some(value) = root.optional("image")
            && let Some(image) = image(&value)
        {
            self.image = Some(placed(&value).with(image));
        }
        let network = root.optional("network").and_then(|value| {
            let words = ["full", "allowlist", "none"].map(|word| (word, word));
            Some(placed(&value).with(value.choice(&words, &[])?))
        });
        let domains = root.optional("allow_domains").map(|value| {
            let items = value.list();
            let entries = items
                .iter()
                .filter_map(|item| Some(placed(item).with(item.filled_string()?)));
            let entries: Vec<_> = entries.collect();
            if items.is_empty() && value.is_list() {
                value.mistake("allows nothing", "name a host, or remove it");
            }
            if network
                .as_ref()
                .is_some_and(|network| network.value != "allowlist")
            {
                value.mistake(
                    "is not looked at by the policy beside it",
                    "write `network: allowlist`, or remove it",
                );
            }
            placed(&value).with(entries)
        });
        self.network = network.or(self.network.take());
        self.allow_domains = domains.or(self.allow_domains.take());
        if let Some(value) = root.optional("env") {
            variables(
                &value,
                |_| None,
                "remove it: what is named under `secrets` comes from the vault, and the key of a lane by its `api_key_env`",
                |name, text, value| {
                    self.env.insert(name.to_owned(), placed(value).with(text));
                },
            );
        }
        if let Some(map) = root.optional("resources").and_then(|value| value.map()) {
            if let Some(cpus) = cpus(&map, placed) {
                self.cpus = Some(cpus);
            }
            if let Some(value) = map.optional("memory")
                && let Some(text) = memory(&value)
            {
                self.memory = Some(placed(&value).with(text));
            }
            map.finish();
        }
        root.finish();
        self.mistakes.extend(document.into_mistakes());
    }
}

/// Keys of profiles for machines that a provider makes.
fn refuse(root: &Map<'_>) {
    const PLACEMENT: &str =
        "remove it: this version works on this machine, which needs no provider";
    for key in ["provider", "provider_options"] {
        root.not_carried_out(key, PLACEMENT);
    }
    root.not_carried_out(
        "setup",
        "remove it: what the run needs has to be in the image",
    );
    root.not_carried_out(
        "secrets",
        "remove it: keys of lanes come from the vault by their `api_key_env`, and nothing else does in this version",
    );
}

fn image(value: &Value<'_>) -> Option<String> {
    let image = value.filled_string()?;
    let plain = image.len() <= LONGEST_IMAGE
        && !image.starts_with('-')
        && image.bytes().all(|byte| byte.is_ascii_graphic());
    if !plain {
        value.mistake(
            "is not the name of an image",
            "write it as the engine knows it, such as `debian:12`",
        );
    }
    plain.then_some(image)
}

/// `cpu` is another name of `cpus`.
fn cpus(resources: &Map<'_>, placed: impl Fn(&Value<'_>) -> Placed<()>) -> Option<Placed<String>> {
    let (long, short) = (resources.optional("cpus"), resources.optional("cpu"));
    if let (Some(_), Some(short)) = (&long, &short) {
        short.mistake(
            "is another name of `cpus`, which is there too",
            "remove one of them",
        );
    }
    let value = long.or(short)?;
    let text = value.text()?;
    if Processors::parse(&text).is_none() {
        value.mistake(
            &format!("is `{text}`, which is no number of processors"),
            &format!(
                "write a number above 0 and up to {}, with at most three digits behind the point, such as 2 or 0.5",
                Processors::MOST
            ),
        );
        return None;
    }
    Some(placed(&value).with(text))
}

fn memory(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    if parse_memory(&text).is_none() {
        value.mistake(
            &format!("is `{text}`, which is no amount of memory"),
            &format!("write {MEMORY_SYNTAX}"),
        );
        return None;
    }
    Some(text)
}

fn is_name(name: &str) -> bool {
    name.len() <= LONGEST_NAME
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// The images that profiles of `home` and of the checkout `repository` name, each with its place.
/// A file that hides which one it names is an error.
pub fn named_images(
    home: &Path,
    repository: Option<&Path>,
) -> Result<Vec<Placed<String>>, ProfileError> {
    let mut images = Vec::new();
    let mut mistakes = Vec::new();
    for name in names(home, repository) {
        for file in config_file::find(home, repository, &format!("{DIRECTORY}/{name}{ENDING}"))? {
            let mut profile = RawProfile::default();
            profile.read(&file.name, &file.bytes);
            match profile.image {
                Some(image) => images.push(image),
                None => mistakes.extend(profile.mistakes),
            }
        }
    }
    Mistakes::check(mistakes)?;
    Ok(images)
}

/// The names of all profiles, in the order of the alphabet.
pub fn names(home: &Path, repository: Option<&Path>) -> Vec<String> {
    let places = [
        Some(home.to_owned()),
        repository.map(|path| path.join(".mini-ork")),
    ];
    let mut names: Vec<String> = places
        .into_iter()
        .flatten()
        .filter_map(|place| fs_err::read_dir(place.join(DIRECTORY)).ok())
        .flat_map(Iterator::flatten)
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let name = file.strip_suffix(ENDING)?;
            is_name(name).then(|| name.to_owned())
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

fn remedy(name: &str, names: &[String]) -> String {
    if names.is_empty() {
        return format!(
            "write `{DIRECTORY}/{name}{ENDING}` below `.mini-ork` of the repository, or in the home"
        );
    }
    suggest_or_list(name, names.iter().map(String::as_str))
}
