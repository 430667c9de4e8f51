use std::path::Path;

use mini_ork_control::profile::{Placed, ProfileError, RawProfile, ResolvedProfile};
use mini_ork_control::run::{RunRecord, SettingRecord};
use mini_ork_node::egress::NetworkPolicy;
use mini_ork_node::text::with_sources;
use mini_ork_node::workspace::LOCAL;

use super::network::{Network, network, recorded_network};
use super::{GlobalSettings, Setting, Source, Variables};
use crate::env_vars;
use crate::error::CommandError;

const PROFILE: &str = "profile";
const IMAGE: &str = "sandbox_image";
const MEMORY: &str = "sandbox_memory";
const CPUS: &str = "sandbox_cpus";
const RUNTIME: &str = "sandbox_runtime";
const PROCESSES: &str = "sandbox_pids";
/// Before the name of a variable of the profile, in a run's record.
const VARIABLE: &str = "env.";
/// The profile that was chosen, or none.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    name: Option<Setting<String>>,
    content: ResolvedProfile,
}

impl Profile {
    /// The name that was chosen.
    pub(crate) fn choice(
        global: &GlobalSettings,
        flag: Option<&str>,
    ) -> Result<Option<Setting<String>>, CommandError> {
        if let Some(name) = flag {
            let name = name.to_owned();
            return Ok(Some(Setting::new(PROFILE, name, Source::Flag("--env"))));
        }
        let name = global.environment.text(env_vars::MO_NODE_ENV)?;
        let source = Source::Variable(env_vars::MO_NODE_ENV);
        Ok(name.map(|name| Setting::new(PROFILE, name, source)))
    }

    /// The profile called `name`, of the home and of the checkout `repository`.
    pub(crate) fn load(
        global: &GlobalSettings,
        repository: Option<&Path>,
        name: Setting<String>,
    ) -> Result<Self, CommandError> {
        let loaded = RawProfile::load(&global.home.value, repository, &name.value)
            .and_then(|raw| raw.resolve().map_err(ProfileError::from));
        let content = loaded.map_err(|error| {
            let shown = name.value.escape_debug();
            let error = with_sources(&error);
            CommandError::usage(format!(
                "the profile `{shown}` cannot be used ({})",
                name.source
            ))
            .details(error.lines().map(ToOwned::to_owned))
            .hint("`docs/sandboxing.md` describes profiles")
        })?;
        Ok(Self {
            name: Some(name),
            content,
        })
    }

    /// What it says of the network.
    pub(super) fn network(&self) -> Option<&Placed<NetworkPolicy>> {
        self.content.network.as_ref()
    }
}

/// What the programs of a run work in, apart from the backend. A variable wins over the profile,
/// which wins over the default.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    profile: Option<Setting<String>>,
    pub(crate) network: Network,
    /// The image of a container.
    pub(crate) image: Option<Setting<String>>,
    /// Bounds, as they were written.
    pub(crate) memory: Option<Setting<String>>,
    pub(crate) cpus: Option<Setting<String>>,
    pub(crate) processes: Option<Setting<String>>,
    /// What the engine makes a container with.
    pub(crate) runtime: Option<Setting<String>>,
    variables: Vec<(String, String, Source)>,
}

impl Surroundings {
    /// What variables and `profile` say for a run of `backend`.
    pub(crate) fn resolve(
        global: &GlobalSettings,
        backend: &str,
        profile: &Profile,
    ) -> Result<Self, CommandError> {
        let content = &profile.content;
        refuse_unused(backend, content)?;
        let text = |name, variable, placed: &Option<Placed<String>>| {
            let own = global.environment.text(variable)?;
            let own = own.map(|value| Setting::new(name, value, Source::Variable(variable)));
            Ok::<_, CommandError>(own.or_else(|| {
                let placed = placed.as_ref()?;
                Some(Setting::new(name, placed.value.clone(), source(placed)))
            }))
        };
        Ok(Self {
            profile: profile.name.clone(),
            network: network(global, backend, profile)?,
            image: text(IMAGE, env_vars::MO_SANDBOX_IMAGE, &content.image)?,
            memory: text(MEMORY, env_vars::MO_SANDBOX_MEMORY, &content.memory)?,
            cpus: text(CPUS, env_vars::MO_SANDBOX_CPU, &content.cpus)?,
            processes: text(PROCESSES, env_vars::MO_SANDBOX_PIDS, &None)?,
            runtime: text(RUNTIME, env_vars::MO_SANDBOX_RUNTIME, &None)?,
            variables: content
                .env
                .iter()
                .map(|(name, placed)| (name.clone(), placed.value.clone(), source(placed)))
                .collect(),
        })
    }

    /// Those of what is no run, with this network.
    pub(crate) fn plain(policy: NetworkPolicy) -> Self {
        Self {
            profile: None,
            network: Network::of(policy),
            image: None,
            memory: None,
            cpus: None,
            processes: None,
            runtime: None,
            variables: Vec::new(),
        }
    }

    /// Those of a run that has begun. They hold for as long as it lasts, whatever the environment
    /// and the files say by now.
    pub(crate) fn recorded(record: &RunRecord, backend: &str) -> Result<Self, CommandError> {
        let of_record = || Source::Derived("the run's record");
        let text = |name: &'static str| {
            let found = record.settings.iter().find(|setting| setting.name == name);
            found.map(|setting| Setting::new(name, setting.value.clone(), of_record()))
        };
        let variables = record.settings.iter().filter_map(|setting| {
            let name = setting.name.strip_prefix(VARIABLE)?;
            Some((name.to_owned(), setting.value.clone(), of_record()))
        });
        Ok(Self {
            profile: text(PROFILE),
            network: recorded_network(record, backend)?,
            image: text(IMAGE),
            memory: text(MEMORY),
            cpus: text(CPUS),
            processes: text(PROCESSES),
            runtime: text(RUNTIME),
            variables: variables.collect(),
        })
    }

    /// Variables for the programs of the run.
    pub(crate) fn variables(&self) -> Variables {
        let variables = self.variables.iter();
        variables
            .map(|(name, value, _)| (name.into(), value.into()))
            .collect()
    }

    /// All of them for the record of a run of `backend`.
    pub(crate) fn records(&self, backend: &str) -> Vec<SettingRecord> {
        let as_written = |setting: &Setting<String>| setting.record(setting.value.clone());
        let mut records: Vec<SettingRecord> = self.profile.iter().map(as_written).collect();
        records.extend(self.network.records());
        records.extend(self.processes.iter().map(as_written));
        if backend != LOCAL {
            let settings = [&self.image, &self.memory, &self.cpus, &self.runtime];
            records.extend(settings.into_iter().flatten().map(as_written));
        }
        let variables = self.variables.iter();
        records.extend(variables.map(|(name, value, source)| SettingRecord {
            name: format!("{VARIABLE}{name}"),
            value: value.clone(),
            source: source.to_string(),
        }));
        records
    }
}

/// Where a value of a profile stands.
pub(super) fn source<T>(placed: &Placed<T>) -> Source {
    Source::File(placed.to_string())
}

/// A backend without containers has neither an image nor their bounds.
fn refuse_unused(backend: &str, content: &ResolvedProfile) -> Result<(), CommandError> {
    if backend != LOCAL {
        return Ok(());
    }
    let keys = [
        ("image", &content.image),
        ("resources.cpus", &content.cpus),
        ("resources.memory", &content.memory),
    ];
    let unused: Vec<String> = keys
        .into_iter()
        .filter_map(|(key, placed)| {
            let placed = placed.as_ref()?;
            Some(format!("{placed}  {key}: the backend `{LOCAL}` has none"))
        })
        .collect();
    if unused.is_empty() {
        return Ok(());
    }
    Err(CommandError::usage("the profile is for containers")
        .details(unused)
        .hint(format!(
            "set {}=docker, or remove these keys",
            env_vars::MO_SANDBOX_BACKEND
        )))
}
