use std::path::Path;

use mini_ork_control::pricing::PriceTable;
use mini_ork_control::run::ModelSources;
use mini_ork_control::vault::{Keyring, Vault};
use mini_ork_node::redact::Redactor;
use mini_ork_node::text::with_sources;

use super::GlobalSettings;
use crate::error::CommandError;

impl GlobalSettings {
    /// Where the keys, prices and certificates of a run's models come from. Nothing is resolved
    /// yet, and `redactor` learns every key before it is used.
    pub(crate) fn model_sources(
        &self,
        repository: Option<&Path>,
        redactor: &Redactor,
    ) -> Result<ModelSources, CommandError> {
        let prices = PriceTable::load(&self.home.value, repository).map_err(|error| {
            CommandError::usage("the prices cannot be used")
                .details(with_sources(&error).lines().map(ToOwned::to_owned))
                .hint("`config/pricing.yaml` is described in docs/costs.md")
        })?;
        let environment = self.environment.clone();
        Ok(ModelSources {
            vault: Vault::new(&self.home.value, self.keyring(), redactor.clone()),
            exported: Box::new(move |name| environment.raw(name).map(ToOwned::to_owned)),
            redactor: redactor.clone(),
            prices,
            certificates: self.environment.path("SSL_CERT_FILE"),
        })
    }

    /// The keyring of the user's session, in which the key of the vault may be.
    pub(crate) fn keyring(&self) -> Keyring {
        let variable = |name| self.environment.raw(name);
        Keyring::of_session(
            variable("DBUS_SESSION_BUS_ADDRESS"),
            variable("XDG_RUNTIME_DIR"),
        )
    }
}
