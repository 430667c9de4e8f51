//! Why a run or a node ended as it did: closed sets, each with one sentence and one hint.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why something failed. Closed: scripts match on the names, so a new one is a change of format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A node's own program ended with an error.
    CommandFailed,
    /// A time limit passed.
    Timeout,
    /// Memory ran out.
    Oom,
    /// A disk, or the room that a node may use on it, is full.
    DiskFull,
    /// A connection was refused by the network policy.
    EgressDenied,
    /// A secret that a lane needs is not there.
    SecretMissing,
    /// A secret is not listed for the lane that asks for it.
    SecretNotPermitted,
    /// A limit on money would be passed.
    BudgetExhausted,
    /// A verifier or a reviewer did not approve.
    VerdictFail,
    /// Nothing was changed where a change was asked for.
    NoOp,
    /// A node's result is not what its recipe or the kickoff's scope allows.
    ArtifactContract,
    /// Trees on two machines no longer agree.
    SyncConflict,
    /// Parallel changes cannot be merged.
    MergeConflict,
    /// The workspace backend cannot be used here.
    BackendUnavailable,
    /// A boundary that was asked for cannot be had here.
    IsolationUnavailable,
    /// The remote machine cannot be reached.
    RemoteUnavailable,
    /// A provider's API refused.
    ProviderError,
    /// A process or a machine vanished without saying how it ended.
    InfraLost,
    /// Somebody asked for the end.
    Cancelled,
    /// The configuration cannot be carried out.
    Config,
}

impl Reason {
    /// All reasons, in the order of the documentation.
    pub const ALL: [Self; 20] = [
        Self::CommandFailed,
        Self::Timeout,
        Self::Oom,
        Self::DiskFull,
        Self::EgressDenied,
        Self::SecretMissing,
        Self::SecretNotPermitted,
        Self::BudgetExhausted,
        Self::VerdictFail,
        Self::NoOp,
        Self::ArtifactContract,
        Self::SyncConflict,
        Self::MergeConflict,
        Self::BackendUnavailable,
        Self::IsolationUnavailable,
        Self::RemoteUnavailable,
        Self::ProviderError,
        Self::InfraLost,
        Self::Cancelled,
        Self::Config,
    ];

    /// The name in records and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::CommandFailed => "command_failed",
            Self::Timeout => "timeout",
            Self::Oom => "oom",
            Self::DiskFull => "disk_full",
            Self::EgressDenied => "egress_denied",
            Self::SecretMissing => "secret_missing",
            Self::SecretNotPermitted => "secret_not_permitted",
            Self::BudgetExhausted => "budget_exhausted",
            Self::VerdictFail => "verdict_fail",
            Self::NoOp => "no_op",
            Self::ArtifactContract => "artifact_contract",
            Self::SyncConflict => "sync_conflict",
            Self::MergeConflict => "merge_conflict",
            Self::BackendUnavailable => "backend_unavailable",
            Self::IsolationUnavailable => "isolation_unavailable",
            Self::RemoteUnavailable => "remote_unavailable",
            Self::ProviderError => "provider_error",
            Self::InfraLost => "infra_lost",
            Self::Cancelled => "cancelled",
            Self::Config => "config",
        }
    }

    /// What happened, for a person.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::CommandFailed => "a node's program ended with an error",
            Self::Timeout => "a time limit passed",
            Self::Oom => "memory ran out",
            Self::DiskFull => "the disk is full",
            Self::EgressDenied => "the network policy refused a connection",
            Self::SecretMissing => "a secret is missing",
            Self::SecretNotPermitted => "a secret is not permitted for this lane",
            Self::BudgetExhausted => "the budget is used up",
            Self::VerdictFail => "the work was not approved",
            Self::NoOp => "nothing was changed",
            Self::ArtifactContract => "the result is not what was allowed",
            Self::SyncConflict => "the trees on both machines no longer agree",
            Self::MergeConflict => "parallel changes cannot be merged",
            Self::BackendUnavailable => "the workspace backend is unavailable",
            Self::IsolationUnavailable => "the boundary that was asked for is unavailable",
            Self::RemoteUnavailable => "the remote machine cannot be reached",
            Self::ProviderError => "the provider refused",
            Self::InfraLost => "a process was lost",
            Self::Cancelled => "it was cancelled",
            Self::Config => "the configuration cannot be carried out",
        }
    }

    /// What to do next; `run` is the run's id.
    pub fn hint(self, run: &str) -> String {
        match self {
            Self::CommandFailed => {
                format!("read `mini-ork logs {run}`, then `mini-ork recover {run}`")
            }
            Self::Timeout => format!(
                "raise `timeout_minutes` of the node or `--deadline`, then `mini-ork recover {run}`"
            ),
            Self::Oom => {
                "give the sandbox more memory with MO_SANDBOX_MEMORY, or ask for less at once"
                    .to_owned()
            }
            Self::DiskFull => {
                format!("free space (`mini-ork clean` helps), then `mini-ork recover {run}`")
            }
            Self::EgressDenied => {
                "add the host to `allow_domains` of the profile, or to MO_SANDBOX_ALLOW, if it is wanted, and start a new run".to_owned()
            },
            Self::SecretMissing => "store the secret, or take it off `secrets`".to_owned(),
            Self::SecretNotPermitted => "add the secret to the profile's `secrets`".to_owned(),
            Self::BudgetExhausted => format!(
                "raise the budget that is named (`--budget`, or MO_DAILY_BUDGET_USD), then \
                 `mini-ork recover {run}`"
            ),
            Self::VerdictFail => {
                format!("`mini-ork recover {run}` tries again with this evidence")
            }
            Self::NoOp => "say more precisely what has to change, and where".to_owned(),
            Self::ArtifactContract => {
                format!(
                    "read `mini-ork status {run}`; widen the kickoff's scope if it is too narrow"
                )
            }
            Self::SyncConflict => format!("`mini-ork diff {run}` shows what was kept"),
            Self::MergeConflict => format!("`mini-ork conflicts {run}` shows both versions"),
            Self::BackendUnavailable | Self::IsolationUnavailable => {
                "`mini-ork doctor` says what is missing".to_owned()
            }
            Self::RemoteUnavailable | Self::ProviderError => {
                format!("`mini-ork recover {run}` tries again")
            }
            Self::InfraLost => {
                format!("`mini-ork recover {run}` continues from the last good node")
            }
            Self::Cancelled => {
                format!("`mini-ork recover {run}` continues from the last good node")
            }
            Self::Config => "correct the setting that is named and start again".to_owned(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// How a run ended. Exactly one per run, written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// A branch with verified work, or the declared outputs of a recipe that changes nothing.
    Published,
    /// The work failed.
    Failed,
    /// The kickoff leaves something open that only the user can say.
    Blocked,
    /// Somebody asked for the end.
    Cancelled,
}

impl Status {
    /// The name in records and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status that `name` names.
    pub fn from_name(name: &str) -> Option<Self> {
        [
            Self::Published,
            Self::Failed,
            Self::Blocked,
            Self::Cancelled,
        ]
        .into_iter()
        .find(|status| status.name() == name)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_records() {
        for reason in Reason::ALL {
            assert_eq!(
                serde_json::to_value(reason).unwrap(),
                serde_json::Value::from(reason.name())
            );
            assert!(!reason.sentence().is_empty() && !reason.hint("r").is_empty());
        }
    }
}
