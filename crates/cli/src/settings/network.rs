use mini_ork_control::run::{RunRecord, SettingRecord};
use mini_ork_node::egress::{AllowList, NetworkPolicy, PolicyMistake};
use mini_ork_node::workspace::LOCAL;

use super::profile::{Profile, source};
use super::{GlobalSettings, Setting, Source};
use crate::env_vars;
use crate::error::CommandError;

const NAME: &str = "network";
/// The setting with the entries of a list, in a run's record.
const HOSTS: &str = "network_allow";
/// Between two entries.
const COMMA: char = ',';
const ALLOWLIST: &str = "allowlist";

/// What programs of a run reach.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) policy: Setting<NetworkPolicy>,
    /// Where the entries of a list come from.
    hosts: Source,
}

impl Network {
    /// A policy that nobody set.
    pub(crate) fn of(policy: NetworkPolicy) -> Self {
        Self {
            policy: Setting::new(NAME, policy, Source::Default),
            hosts: Source::Default,
        }
    }

    /// Entries under which anybody can have a host.
    pub(crate) fn wide_entries(&self) -> Vec<String> {
        let list = self.policy.value.allowed().unwrap_or_default();
        let wide = list.entries().iter().filter(|entry| entry.is_wide());
        wide.map(ToString::to_string).collect()
    }

    /// For the run's record.
    pub(super) fn records(&self) -> Vec<SettingRecord> {
        let policy = &self.policy.value;
        let mut records = vec![self.policy.record(policy.name())];
        if let NetworkPolicy::Allowlist(list) = policy {
            records.push(SettingRecord {
                name: HOSTS.to_owned(),
                value: entries(list).join(&COMMA.to_string()),
                source: self.hosts.to_string(),
            });
        }
        records
    }
}

/// What programs of a run reach. A policy that the backend does not have is an error: whoever asks
/// for one relies on it.
pub(super) fn network(
    global: &GlobalSettings,
    backend: &str,
    profile: &Profile,
) -> Result<Network, CommandError> {
    const VARIABLE: &str = env_vars::MO_SANDBOX_NETWORK;
    let name = global.environment.text(VARIABLE)?;
    let hosts = global.environment.text(env_vars::MO_SANDBOX_ALLOW)?;
    let own = profile.network();
    let (name, place) = match (name, own) {
        (Some(name), _) => (name, Source::Variable(VARIABLE)),
        (None, Some(own)) => (own.value.name().to_owned(), source(own)),
        (None, None) => (default_policy(backend).to_owned(), Source::Default),
    };
    let (listed, hosts) = match (hosts, own) {
        (Some(text), _) => (
            split(&text).map(ToOwned::to_owned).collect(),
            Source::Variable(env_vars::MO_SANDBOX_ALLOW),
        ),
        (None, Some(own)) if name == ALLOWLIST => (
            own.value
                .allowed()
                .as_ref()
                .map(entries)
                .unwrap_or_default(),
            source(own),
        ),
        (None, _) => (Vec::new(), Source::Default),
    };
    let policy = NetworkPolicy::new(&name, listed.iter().map(String::as_str));
    let policy = policy.map_err(|mistakes| {
        let hint = match mistakes.first() {
            Some(PolicyMistake::Unknown { .. }) => {
                format!("set {VARIABLE} to `full`, `allowlist` or `none`")
            }
            Some(PolicyMistake::Unused { .. }) => format!(
                "set {VARIABLE}=allowlist, or unset {}",
                env_vars::MO_SANDBOX_ALLOW
            ),
            _ => format!(
                "an entry is `host`, `host:port` or `*.host`, as in {}=pypi.org,*.example.com,github.com:22",
                env_vars::MO_SANDBOX_ALLOW
            ),
        };
        CommandError::usage(format!(
            "the network policy cannot be used ({VARIABLE}, {})",
            env_vars::MO_SANDBOX_ALLOW
        ))
        .details(mistakes.iter().map(ToString::to_string))
        .hint(hint)
    })?;
    Ok(Network {
        policy: Setting::new(NAME, policy, place),
        hosts,
    })
}

/// The policy under which a run began.
pub(super) fn recorded_network(record: &RunRecord, backend: &str) -> Result<Network, CommandError> {
    let value = |name: &str| {
        let found = record.settings.iter().find(|setting| setting.name == name);
        found.map(|setting| setting.value.as_str())
    };
    let listed = split(value(HOSTS).unwrap_or_default());
    let name = value(NAME).unwrap_or_else(|| default_policy(backend));
    let policy = NetworkPolicy::new(name, listed).map_err(|mistakes| {
        CommandError::failure("the network policy of the run cannot be read from its record")
            .details(mistakes.iter().map(ToString::to_string))
    })?;
    Ok(Network::of(policy))
}

/// A container is a boundary, whatever was said of its network.
fn default_policy(backend: &str) -> &'static str {
    if backend == LOCAL { "full" } else { "none" }
}

fn entries(list: &AllowList) -> Vec<String> {
    list.entries().iter().map(ToString::to_string).collect()
}

fn split(text: &str) -> impl Iterator<Item = &str> {
    let entries = text.split(COMMA).map(str::trim);
    entries.filter(|entry| !entry.is_empty())
}
