//! What the lanes of a run need to talk to their models: keys, prices, certificates.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use mini_ork_node::redact::Redactor;
use mini_ork_node::secret::{Secret, SecretName};
use mini_ork_node::text::with_sources;

use super::plan::Plan;
use crate::pricing::PriceTable;
use crate::vault::{MissingSecret, Vault};

/// Gives the value of a variable of the user's environment.
pub type Exported = Box<dyn Fn(&str) -> Option<OsString> + Send + Sync>;

/// Where keys, prices and certificates of a run come from, chosen by the caller.
pub struct ModelSources {
    /// Where keys are that are not exported. Registers each with `redactor`.
    pub vault: Vault,
    /// Variables of the user's environment; they win over the vault.
    pub exported: Exported,
    /// Knows every key before it is used.
    pub redactor: Redactor,
    /// What a token costs.
    pub prices: PriceTable,
    /// Certificates that are trusted besides those of the system, as a PEM file.
    pub certificates: Option<PathBuf>,
}

impl fmt::Debug for ModelSources {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ModelSources")
            .field("vault", &self.vault)
            .field("certificates", &self.certificates)
            .finish_non_exhaustive()
    }
}

/// The same with every key of a plan resolved.
#[derive(Debug)]
pub(crate) struct Models {
    keys: BTreeMap<SecretName, Arc<Secret>>,
    pub(crate) redactor: Redactor,
    pub(crate) prices: Arc<PriceTable>,
    pub(crate) certificates: Option<PathBuf>,
}

/// Keys that lanes of a plan need and nobody has.
#[derive(Debug, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct MissingKeys(Vec<(String, MissingSecret)>);

impl Models {
    /// Resolves the keys of all lanes of `plan`, those that only step in too: a run must not find
    /// out in its middle that it cannot go on. Tells all that are missing at once.
    pub(crate) async fn resolve(sources: ModelSources, plan: &Plan) -> Result<Self, MissingKeys> {
        let wanted: BTreeMap<SecretName, String> = plan
            .nodes
            .iter()
            .flat_map(super::plan::PlannedNode::lanes)
            .filter_map(|lane| Some((lane.model()?.key.clone(), lane.name.clone())))
            .collect();
        let work = move || {
            let mut keys = BTreeMap::new();
            let mut missing = Vec::new();
            for (name, lane) in wanted {
                match sources.vault.resolve(&name, &*sources.exported) {
                    Ok(key) => {
                        keys.insert(name, Arc::new(key));
                    }
                    Err(error) => missing.push((lane, error)),
                }
            }
            if !missing.is_empty() {
                return Err(MissingKeys(missing));
            }
            Ok(Self {
                keys,
                redactor: sources.redactor,
                prices: Arc::new(sources.prices),
                certificates: sources.certificates,
            })
        };
        // A password manager may take its time.
        match tokio::task::spawn_blocking(work).await {
            Ok(resolved) => resolved,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// The key called `name`, which a lane of the plan asks for.
    pub(crate) fn key(&self, name: &SecretName) -> Option<&Arc<Secret>> {
        self.keys.get(name)
    }
}

impl MissingKeys {
    /// What the user can do about the first of them.
    pub fn remedy(&self) -> String {
        let first = self.0.first();
        first
            .map(|(_, missing)| missing.remedy())
            .unwrap_or_default()
    }
}

fn lines(missing: &[(String, MissingSecret)]) -> String {
    missing
        .iter()
        .map(|(lane, error)| format!("lane `{lane}`: {}", with_sources(error)))
        .collect::<Vec<_>>()
        .join("\n")
}
