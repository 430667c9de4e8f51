use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use mini_ork_protocol::ByteString;
use serde::{Deserialize, Serialize};

use crate::beneath::{Directory, Links};
use crate::yaml::{Document, Map, Mistake, Mistakes, Value, suggest_or_list};

const PROVIDERS: &str = "config/providers.yaml";
const AGENTS: &str = "config/agents.yaml";
const LARGEST_FILE: u64 = 1024 * 1024;
const LONGEST_NAME: usize = 64;
/// The role that takes every node for which no other lane is found.
const DEFAULT_ROLE: &str = "default";

/// Kinds of the format that this version has no agent for.
const NOT_AVAILABLE: [&str; 12] = [
    "anthropic-native",
    "anthropic-compat",
    "openai-compat",
    "openai-chat",
    "uhp",
    "codex-native",
    "opencode-native",
    "claude-code",
    "codex",
    "opencode",
    "anthropic",
    "openai",
];

/// All lanes that there are, and the role that each plays.
///
/// Read from the home directory of mini-ork and from the target repository. They are merged key by
/// key and the repository's entry wins, so a small file never hides the rest of the other.
#[derive(Debug, Clone, Default)]
pub struct LaneConfig {
    providers: BTreeMap<String, Lane>,
    roles: BTreeMap<String, String>,
    /// File of each lane.
    lane_files: BTreeMap<String, String>,
    /// File and line of each role.
    role_places: BTreeMap<String, (String, u32)>,
}

/// One lane: how to start its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// Its name in `providers.yaml`.
    pub name: String,
    /// What runs.
    pub agent: Agent,
    /// Added to the environment of its process; holds no secrets.
    pub extra_env: BTreeMap<String, String>,
}

/// What a lane runs. Its working directory is always the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Agent {
    /// A program that reads the prompt on its standard input.
    Executable {
        /// Program and arguments; never empty. The program is an absolute path or a bare name that
        /// is looked up on `PATH`.
        argv: Vec<String>,
    },
    /// A script of steps that is replayed; see [`super::Script`].
    Scripted {
        /// Absolute when the home directory and the repository were given as absolute paths.
        file: PathBuf,
    },
}

/// The first argument by which the mini-ork program replays a scripted lane.
pub const SCRIPTED_ARGUMENT: &str = "__scripted";

impl Lane {
    /// The command that runs its agent; `program` is the mini-ork program.
    pub fn argv(&self, program: &Path) -> Vec<ByteString> {
        match &self.agent {
            Agent::Executable { argv } => argv
                .iter()
                .map(|argument| argument.as_str().into())
                .collect(),
            Agent::Scripted { file } => {
                vec![
                    program.into(),
                    SCRIPTED_ARGUMENT.into(),
                    file.as_path().into(),
                ]
            }
        }
    }
}

/// Why the lanes could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// A file is there and could not be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
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
        let in_repository = repository.map(|path| (path, Path::new(".mini-ork")));
        for (root, below) in [(home, Path::new(""))].into_iter().chain(in_repository) {
            let base = root.join(below);
            if let Some(bytes) = read(root, &below.join(PROVIDERS))? {
                loading.providers(&base, &base.join(PROVIDERS).display().to_string(), &bytes);
            }
            if let Some(bytes) = read(root, &below.join(AGENTS))? {
                loading.agents(&base.join(AGENTS).display().to_string(), &bytes);
            }
        }
        Ok(loading.finish()?)
    }

    /// The lane of a node.
    ///
    /// In this order: `overrides` of the node's name, `overrides` of its role, the role in
    /// `agents.yaml`, a lane with the very name of the role, the role `default` in `agents.yaml`.
    /// An override names a lane or a role of `agents.yaml`.
    pub fn resolve(
        &self,
        node: &str,
        role: &str,
        overrides: &BTreeMap<String, String>,
    ) -> Result<&Lane, ResolveError> {
        for asked in [node, role] {
            if let Some(lane) = overrides.get(asked) {
                return self.named(lane).ok_or_else(|| ResolveError::Unknown {
                    lane: lane.clone(),
                    asked: asked.to_owned(),
                    remedy: suggest_or_list(lane, self.names()),
                });
            }
        }
        let found = self
            .named(role)
            .or_else(|| self.named_by_role(DEFAULT_ROLE));
        found.ok_or_else(|| ResolveError::NoLane {
            node: node.to_owned(),
            role: role.to_owned(),
            remedy: if self.providers.is_empty() {
                format!("describe a lane in `{PROVIDERS}`")
            } else {
                let names: Vec<String> = self.names().map(|name| format!("`{name}`")).collect();
                format!(
                    "add `{role}: LANE` to `lanes` of `{AGENTS}`; lanes: {}",
                    names.join(", ")
                )
            },
        })
    }

    /// Every lane, by name.
    pub fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.providers.values()
    }

    /// Every role of `agents.yaml` with its lane, by name.
    pub fn roles(&self) -> impl Iterator<Item = (&str, &str)> {
        self.roles
            .iter()
            .map(|(role, lane)| (role.as_str(), lane.as_str()))
    }

    /// The file that describes the lane called `lane`.
    pub fn lane_file(&self, lane: &str) -> Option<&str> {
        self.lane_files.get(lane).map(String::as_str)
    }

    /// The file that says which lane plays `role`.
    pub fn role_file(&self, role: &str) -> Option<&str> {
        self.role_places.get(role).map(|(file, _)| file.as_str())
    }

    fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.providers.keys().map(String::as_str)
    }

    fn named(&self, name: &str) -> Option<&Lane> {
        self.named_by_role(name)
            .or_else(|| self.providers.get(name))
    }

    fn named_by_role(&self, role: &str) -> Option<&Lane> {
        self.providers.get(self.roles.get(role)?)
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
                    && let Some(lane) = lane_name(&value)
                {
                    self.config.roles.insert(role.to_owned(), lane);
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
        for (role, lane) in &self.config.roles {
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

fn provider(name: &str, base: &Path, value: &Value<'_>) -> Option<Lane> {
    let map = value.map()?;
    let kind = map.required("kind")?;
    let kind_name = kind.string()?;
    if NOT_AVAILABLE.contains(&kind_name.as_str()) {
        kind.mistake(
            &format!("is `{kind_name}`, which is not available in this version"),
            "use a lane of kind `executable` that starts the agent, or remove the lane",
        );
        return None;
    }
    let is_executable = kind.choice(&[("executable", true), ("scripted", false)], &[])?;
    let agent = if is_executable {
        executable(&map, base, value)
    } else {
        let file = map.required("file").and_then(|value| value.filled_string());
        file.map(|file| Agent::Scripted {
            file: base.join(file),
        })
    };
    let extra_env = map
        .optional("extra_env")
        .map(|value| extra_env(&value))
        .unwrap_or_default();
    map.finish();
    Some(Lane {
        name: name.to_owned(),
        agent: agent?,
        extra_env,
    })
}

fn executable(map: &Map<'_>, base: &Path, place: &Value<'_>) -> Option<Agent> {
    let (command, script) = (map.optional("command"), map.optional("script"));
    match (command, script) {
        (Some(command), None) => {
            let items = command.list();
            let argv: Vec<String> = items.iter().filter_map(Value::text).collect();
            let Some(program) = argv.first() else {
                command.mistake("names no program", "write `[program, argument, …]`");
                return None;
            };
            if program.is_empty() || (program.contains('/') && !program.starts_with('/')) {
                // It would be looked up in the workspace, whose files an agent writes.
                command.mistake(
                    &format!("begins with the relative path `{program}`"),
                    "write an absolute path or a name on `PATH`, or use `script`",
                );
                return None;
            }
            (argv.len() == items.len()).then_some(Agent::Executable { argv })
        }
        (None, Some(script)) => {
            let program = base.join(script.filled_string()?).display().to_string();
            let arguments = ["--print", "--output-format", "text"].map(str::to_owned);
            Some(Agent::Executable {
                argv: [program].into_iter().chain(arguments).collect(),
            })
        }
        (Some(_), Some(script)) => {
            script.mistake("stands beside `command`", "keep one of them");
            None
        }
        (None, None) => {
            place.mistake(
                "has neither `command` nor `script`",
                "write `command: [program, …]`",
            );
            None
        }
    }
}

fn extra_env(value: &Value<'_>) -> BTreeMap<String, String> {
    let Some(map) = value.map() else {
        return BTreeMap::new();
    };
    let mut env = BTreeMap::new();
    for (name, value) in map.entries() {
        let well_formed = !name.is_empty()
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !well_formed {
            value.mistake(
                "is not the name of a variable",
                "use letters, digits and `_`",
            );
        } else if name.starts_with("MO_") || name.starts_with("MINI_ORK_") {
            value.mistake(
                "is a variable that mini-ork sets itself",
                "use another name",
            );
        } else if is_secret(name) {
            value.mistake(
                "looks like a secret, and this file is no place for one",
                "remove it and let the agent read the key from its own configuration",
            );
        } else if let Some(text) = value.text() {
            env.insert(name.to_owned(), text);
        }
    }
    env
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let ends = ["_KEY", "_TOKEN", "_SECRET"]
        .iter()
        .any(|end| name.ends_with(end));
    ends || ["PASSWORD", "PASSWD", "APIKEY", "CREDENTIAL"]
        .iter()
        .any(|word| name.contains(word))
        || ["KEY", "TOKEN", "SECRET"].contains(&name.as_str())
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

/// The bytes of a file below a directory, none when it is not there.
fn read(root: &Path, relative: &Path) -> Result<Option<Vec<u8>>, LaneError> {
    let bytes = Directory::open(root)
        .and_then(|directory| directory.read(relative, LARGEST_FILE, Links::Inside));
    match bytes {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LaneError::Read {
            path: root.join(relative),
            source,
        }),
    }
}
