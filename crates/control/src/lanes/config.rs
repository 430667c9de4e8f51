use std::collections::BTreeMap;
use std::path::Path;

use super::model::Lane;
use super::provider::provider;
use crate::config_file::{self, ConfigFileError};
use crate::yaml::{Document, Mistake, Mistakes, Value, suggest_or_list};

const PROVIDERS: &str = "config/providers.yaml";
const AGENTS: &str = "config/agents.yaml";
const LONGEST_NAME: usize = 64;
/// Most lanes of a role. A longer list helps nobody and costs time where a vendor is down.
const LONGEST_CHAIN: usize = 8;
/// Where the lanes that nobody described come from.
pub const BUILT_IN: &str = "built in";
const BUILT_IN_LANES: &[u8] = include_bytes!("built_in.yaml");
/// The role that takes every node for which no other lane is found.
const DEFAULT_ROLE: &str = "default";

/// All lanes that there are, and the role that each plays.
///
/// Some lanes are built in; others are read from the home directory of mini-ork and from the target
/// repository. They are merged key by key and the later entry wins, so a small file never hides the
/// rest of another. No role is built in: nothing is spent on a lane that nobody asked for.
#[derive(Debug, Clone, Default)]
pub struct LaneConfig {
    providers: BTreeMap<String, Lane>,
    /// The lanes of each role: the one that does the work, then those that stand in for it.
    roles: BTreeMap<String, Vec<String>>,
    /// File of each lane.
    lane_files: BTreeMap<String, String>,
    /// File and line of each role.
    role_places: BTreeMap<String, (String, u32)>,
}

/// Why the lanes could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ConfigFileError),
    /// The files have mistakes.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
}

/// Why a node has no lane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// A name was given that no lane has.
    #[error("there is no lane `{lane}`, which was asked for as `{asked}` ({remedy})")]
    Unknown {
        /// The name that was given.
        lane: String,
        /// The node or role that it was given for.
        asked: String,
        /// A likely name, or all that there are.
        remedy: String,
    },
    /// A lane would stand in for itself.
    #[error("the lane `{lane}` is there twice for `{asked}`")]
    Twice {
        /// The lane.
        lane: String,
        /// The node or role that it was given for.
        asked: String,
    },
    /// More lanes were given than a node may have.
    #[error("there are more than {LONGEST_CHAIN} lanes for `{asked}`")]
    TooMany {
        /// The node or role that they were given for.
        asked: String,
    },
    /// Nothing says which lane plays the role.
    #[error("no lane plays the role `{role}` of the node `{node}` ({remedy})")]
    NoLane {
        /// The node.
        node: String,
        /// Its role.
        role: String,
        /// What to write where.
        remedy: String,
    },
}

impl LaneConfig {
    /// Reads `config/providers.yaml` and `config/agents.yaml` below `home` and below `.mini-ork` of
    /// `repository`; any of them may be absent. Paths in a file are relative to the directory that
    /// holds its `config` directory. Gives all mistakes of all files at once.
    pub fn load(home: &Path, repository: Option<&Path>) -> Result<Self, LaneError> {
        let mut loading = Loading::default();
        loading.providers(Path::new(""), BUILT_IN, BUILT_IN_LANES);
        for file in config_file::find(home, repository, PROVIDERS)? {
            loading.providers(&file.base, &file.name, &file.bytes);
        }
        for file in config_file::find(home, repository, AGENTS)? {
            loading.agents(&file.name, &file.bytes);
        }
        Ok(loading.finish()?)
    }

    /// The lanes of a node: the one that does it, then those that stand in for it, in order.
    ///
    /// In this order: `overrides` of the node's name, `overrides` of its role, the role in
    /// `agents.yaml`, a lane with the very name of the role, the role `default` in `agents.yaml`.
    /// An override names a lane, a role of `agents.yaml` for all of its lanes, or several of these
    /// with commas between them. What is returned is never empty and names no lane twice.
    pub fn resolve(
        &self,
        node: &str,
        role: &str,
        overrides: &BTreeMap<String, String>,
    ) -> Result<Vec<&Lane>, ResolveError> {
        for asked in [node, role] {
            if let Some(names) = overrides.get(asked) {
                return self.chosen(asked, names);
            }
        }
        let found = [self.named(role), self.played(DEFAULT_ROLE)];
        let found = found.into_iter().find(|lanes| !lanes.is_empty());
        found.ok_or_else(|| {
            let names: Vec<String> = self.names().map(|name| format!("`{name}`")).collect();
            ResolveError::NoLane {
                node: node.to_owned(),
                role: role.to_owned(),
                remedy: format!(
                    "add `{role}: LANE` to `lanes` of `{AGENTS}`; lanes: {}",
                    names.join(", ")
                ),
            }
        })
    }

    fn chosen(&self, asked: &str, names: &str) -> Result<Vec<&Lane>, ResolveError> {
        let mut chain: Vec<&Lane> = Vec::new();
        for name in names.split(',').map(str::trim) {
            let found = self.named(name);
            if found.is_empty() {
                return Err(ResolveError::Unknown {
                    lane: name.to_owned(),
                    asked: asked.to_owned(),
                    remedy: suggest_or_list(name, self.names()),
                });
            }
            for lane in found {
                if chain.iter().any(|earlier| earlier.name == lane.name) {
                    return Err(ResolveError::Twice {
                        lane: lane.name.clone(),
                        asked: asked.to_owned(),
                    });
                }
                chain.push(lane);
            }
        }
        if chain.len() > LONGEST_CHAIN {
            return Err(ResolveError::TooMany {
                asked: asked.to_owned(),
            });
        }
        Ok(chain)
    }

    /// Every lane, by name.
    pub fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.providers.values()
    }

    /// Every role of `agents.yaml` with its lanes, by name: first the one that does the work, then
    /// those that stand in for it.
    pub fn roles(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.roles
            .iter()
            .map(|(role, lanes)| (role.as_str(), lanes.as_slice()))
    }

    /// The file that describes the lane called `lane`, or [`BUILT_IN`].
    pub fn lane_file(&self, lane: &str) -> Option<&str> {
        self.lane_files.get(lane).map(String::as_str)
    }

    /// The file that says which lanes play `role`.
    pub fn role_file(&self, role: &str) -> Option<&str> {
        self.role_places.get(role).map(|(file, _)| file.as_str())
    }

    fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.providers.keys().map(String::as_str)
    }

    /// The lanes of the role called `name`, else the lane of that name, else nothing.
    fn named(&self, name: &str) -> Vec<&Lane> {
        let played = self.played(name);
        if played.is_empty() {
            return self.providers.get(name).into_iter().collect();
        }
        played
    }

    fn played(&self, role: &str) -> Vec<&Lane> {
        let names = self.roles.get(role).into_iter().flatten();
        names.filter_map(|name| self.providers.get(name)).collect()
    }
}

/// Reads the name of a lane or a role; a mistake when it is none.
pub(crate) fn lane_name(value: &Value<'_>) -> Option<String> {
    let name = value.filled_string()?;
    check_name(&name, value).then_some(name)
}

#[derive(Default)]
struct Loading {
    config: LaneConfig,
    /// Names of lanes with a mistake: a role that names one of them has none.
    broken: Vec<String>,
    mistakes: Vec<Mistake>,
}

impl Loading {
    fn providers(&mut self, base: &Path, file: &str, bytes: &[u8]) {
        let Some(document) = self.document(file, bytes) else {
            return;
        };
        let root = document.root();
        if let Some(providers) = root.required("providers").and_then(|value| value.map()) {
            for (name, value) in providers.entries() {
                match check_name(name, &value)
                    .then(|| provider(name, base, &value))
                    .flatten()
                {
                    Some(lane) => {
                        self.config.providers.insert(name.to_owned(), lane);
                        self.config
                            .lane_files
                            .insert(name.to_owned(), file.to_owned());
                    }
                    None => self.broken.push(name.to_owned()),
                }
            }
        }
        root.finish();
        self.mistakes.extend(document.into_mistakes());
    }

    fn agents(&mut self, file: &str, bytes: &[u8]) {
        let Some(document) = self.document(file, bytes) else {
            return;
        };
        let root = document.root();
        if let Some(lanes) = root.required("lanes").and_then(|value| value.map()) {
            for (role, value) in lanes.entries() {
                if check_name(role, &value)
                    && let Some(lanes) = chain(&value)
                {
                    self.config.roles.insert(role.to_owned(), lanes);
                    self.config
                        .role_places
                        .insert(role.to_owned(), (file.to_owned(), value.line()));
                }
            }
        }
        root.finish();
        self.mistakes.extend(document.into_mistakes());
    }

    fn document(&mut self, file: &str, bytes: &[u8]) -> Option<Document> {
        Document::parse(file, bytes)
            .map_err(|Mistakes(found)| self.mistakes.extend(found))
            .ok()
    }

    fn finish(mut self) -> Result<LaneConfig, Mistakes> {
        for (role, lane) in self
            .config
            .roles
            .iter()
            .flat_map(|(role, lanes)| lanes.iter().map(move |lane| (role, lane)))
        {
            if !self.config.providers.contains_key(lane) && !self.broken.contains(lane) {
                let (file, line) = self
                    .config
                    .role_places
                    .get(role)
                    .cloned()
                    .unwrap_or_default();
                let key = format!("lanes.{role}");
                let problem = format!("names the lane `{lane}`, which no `providers.yaml` has");
                let remedy = suggest_or_list(lane, self.config.names());
                self.mistakes
                    .push(Mistake::new(&file, line, &key, &problem, &remedy));
            }
        }
        Mistakes::check(self.mistakes)?;
        Ok(self.config)
    }
}

/// The lanes of a role: one name, or a list of them.
fn chain(value: &Value<'_>) -> Option<Vec<String>> {
    if !value.is_list() {
        return Some(vec![lane_name(value)?]);
    }
    let items = value.list();
    if items.is_empty() || items.len() > LONGEST_CHAIN {
        value.mistake(
            "is not a list of one to eight lanes",
            "write `[LANE, LANE]`: the first does the work, the others stand in for it",
        );
        return None;
    }
    let mut chain: Vec<String> = Vec::new();
    for item in items {
        let name = lane_name(&item)?;
        if chain.contains(&name) {
            item.mistake("is there already", "remove it");
            return None;
        }
        chain.push(name);
    }
    Some(chain)
}

fn check_name(name: &str, place: &Value<'_>) -> bool {
    let well_formed = name.len() <= LONGEST_NAME
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    if !well_formed {
        place.mistake(
            "is not the name of a lane or role",
            "use letters, digits, `.`, `_` and `-`, at most 64",
        );
    }
    well_formed
}
