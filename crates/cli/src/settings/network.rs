use mini_ork_control::run::{RunRecord, SettingRecord};
use mini_ork_node::egress::{AllowList, NetworkPolicy, PolicyMistake};

use super::{GlobalSettings, Setting, Source};
use crate::env_vars;
use crate::error::CommandError;

const LOCAL: &str = "local";
const NAME: &str = "network";
/// The setting with the entries of a list, in a run's record.
const HOSTS: &str = "network_allow";
/// Between two entries.
const COMMA: char = ',';

/// What programs of a run reach. A policy that the backend does not have is an error: whoever asks
/// for one relies on it.
pub(crate) fn network_policy(
    global: &GlobalSettings,
    backend: &str,
) -> Result<Setting<NetworkPolicy>, CommandError> {
    const VARIABLE: &str = env_vars::MO_SANDBOX_NETWORK;
    let name = global.environment.text(VARIABLE)?;
    let hosts = global.environment.text(env_vars::MO_SANDBOX_ALLOW)?;
    let entries = split(hosts.as_deref().unwrap_or_default());
    let source = match name {
        Some(_) => Source::Variable(VARIABLE),
        None => Source::Default,
    };
    let default = if backend == LOCAL { "full" } else { "none" };
    let name = name.as_deref().unwrap_or(default);
    if name == "full" && backend != LOCAL {
        return Err(CommandError::usage(format!(
            "{VARIABLE}=full is not possible with the `{backend}` backend"
        ))
        .hint(format!(
            "set {VARIABLE}=allowlist and name the hosts in {}; or unset it: the model of a lane is reached in any case",
            env_vars::MO_SANDBOX_ALLOW
        )));
    }
    let policy = NetworkPolicy::new(name, entries).map_err(|mistakes| {
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
    Ok(Setting::new(NAME, policy, source))
}

/// The policy for the run's record.
pub(crate) fn network_records(policy: &Setting<NetworkPolicy>) -> Vec<SettingRecord> {
    let mut records = vec![policy.record(policy.value.name())];
    if let NetworkPolicy::Allowlist(list) = &policy.value {
        records.push(SettingRecord {
            name: HOSTS.to_owned(),
            value: entries(list),
            source: Source::Variable(env_vars::MO_SANDBOX_ALLOW).to_string(),
        });
    }
    records
}

/// The policy under which a run began. It holds for as long as the run lasts, whatever the
/// environment says by now.
pub(crate) fn recorded_policy(
    record: &RunRecord,
    backend: &str,
) -> Result<NetworkPolicy, CommandError> {
    let value = |name: &str| {
        let found = record.settings.iter().find(|setting| setting.name == name);
        found.map(|setting| setting.value.as_str())
    };
    let default = if backend == LOCAL { "full" } else { "none" };
    let entries = split(value(HOSTS).unwrap_or_default());
    NetworkPolicy::new(value(NAME).unwrap_or(default), entries).map_err(|mistakes| {
        CommandError::failure("the network policy of the run cannot be read from its record")
            .details(mistakes.iter().map(ToString::to_string))
    })
}

fn entries(list: &AllowList) -> String {
    let entries: Vec<String> = list.entries().iter().map(ToString::to_string).collect();
    entries.join(",")
}

fn split(text: &str) -> impl Iterator<Item = &str> {
    let entries = text.split(COMMA).map(str::trim);
    entries.filter(|entry| !entry.is_empty())
}
