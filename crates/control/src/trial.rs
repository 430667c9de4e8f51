//! One small call to the model of a lane, to see whether it answers.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mini_ork_node::agent::try_model;
use mini_ork_node::gateway::{
    BaseUrl, BaseUrlError, Gateway, GatewayError, GatewayLimits, GatewaySettings, Placeholder,
    RetryPolicy, Roots,
};
use mini_ork_node::model::{CallFailure, TokenUsage};
use mini_ork_node::redact::Redactor;
use mini_ork_node::secret::{Secret, SecretError};

use crate::lanes::ModelAgent;
use crate::run::{DAY_MS, ModelSources, now_ms};
use crate::spending::TrialLedger;
use crate::store::{StoreError, StoreReader};

/// A call that was made to try a lane.
#[derive(Debug)]
pub struct Trial {
    /// Tokens, as far as the vendor told.
    pub usage: TokenUsage,
    /// US dollars; absent when they are not known.
    pub cost_usd: Option<f64>,
    /// How long it took.
    pub duration: Duration,
    /// Whether the model answered.
    pub outcome: Result<(), TrialFailure>,
}

/// Why a lane could not be tried, or its model did not answer.
#[derive(Debug, thiserror::Error)]
pub enum TrialFailure {
    /// What was spent today cannot be read, so nothing more may be.
    #[error("what was spent in the last 24 hours is not known")]
    State(#[source] StoreError),
    /// The address of the lane is none.
    #[error("`base_url` cannot be used")]
    BaseUrl(#[source] BaseUrlError),
    /// There is no address for the gateway on this machine, or no token for it.
    #[error("no gateway can be opened here")]
    Here(#[source] io::Error),
    /// The token of the gateway cannot be used.
    #[error("no gateway can be opened here")]
    Token(#[source] SecretError),
    /// The key or the certificates cannot be used.
    #[error("the lane's gateway cannot be opened")]
    Gateway(#[source] GatewayError),
    /// The vendor, the network or a budget.
    #[error("{}", .0.message)]
    Call(CallFailure),
    /// It was given up.
    #[error("the model did not answer within {} s", .0.as_secs_f64())]
    Time(Duration),
    /// The answer is none.
    #[error("{0}")]
    Answer(String),
}

/// Asks the model of `agent` for one word, through a gateway as for a node of a run, once and for no
/// longer than `limit`.
///
/// The call has to fit into what is left of `daily_usd`. It is in no record of the home, since it
/// belongs to no run.
pub async fn try_lane(
    agent: &ModelAgent,
    key: Secret,
    sources: ModelSources,
    home: &Path,
    daily_usd: f64,
    limit: Duration,
) -> Trial {
    let began = Instant::now();
    let spent = match spent_today(home) {
        Ok(spent) => spent,
        Err(error) => return Trial::not_made(TrialFailure::State(error)),
    };
    let ledger = Arc::new(TrialLedger::new(Arc::new(sources.prices), daily_usd, spent));
    let settings = match settings(agent, key, sources.redactor, sources.certificates) {
        Ok(settings) => settings,
        Err(failure) => return Trial::not_made(failure),
    };
    let outcome = ask(agent, settings, Arc::clone(&ledger), limit).await;
    let (usage, cost_usd) = ledger.total();
    Trial {
        usage,
        cost_usd,
        duration: began.elapsed(),
        outcome,
    }
}

impl Trial {
    fn not_made(failure: TrialFailure) -> Self {
        Self {
            usage: TokenUsage::default(),
            cost_usd: Some(0.0),
            duration: Duration::ZERO,
            outcome: Err(failure),
        }
    }
}

fn settings(
    agent: &ModelAgent,
    key: Secret,
    redactor: Redactor,
    certificates: Option<PathBuf>,
) -> Result<GatewaySettings, TrialFailure> {
    let limits = GatewayLimits::default();
    Ok(GatewaySettings {
        api: agent.api,
        base_url: BaseUrl::parse(&agent.base_url, agent.api).map_err(TrialFailure::BaseUrl)?,
        key,
        placeholder: Placeholder::new().map_err(TrialFailure::Here)?,
        redactor,
        roots: Roots {
            system: true,
            extra_pem: certificates,
        },
        limits: GatewayLimits {
            // Whoever asks wants to know how it is now.
            retry: RetryPolicy {
                attempts: 1,
                ..limits.retry
            },
            ..limits
        },
    })
}

async fn ask(
    agent: &ModelAgent,
    settings: GatewaySettings,
    ledger: Arc<TrialLedger>,
    limit: Duration,
) -> Result<(), TrialFailure> {
    let token = settings.placeholder.expose().as_bytes().to_vec();
    let token = Secret::new(token).map_err(TrialFailure::Token)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(TrialFailure::Here)?;
    let gateway = Gateway::open(listener, settings, ledger)
        .await
        .map_err(TrialFailure::Gateway)?;
    let base_url = gateway.inside_base_url();
    let asked = try_model(agent.api, &base_url, &agent.model, token);
    let answered = tokio::time::timeout(limit, asked).await;
    let report = gateway.close().await;
    match (answered, report.failure) {
        (Err(_), _) => Err(TrialFailure::Time(limit)),
        (Ok(Ok(())), _) => Ok(()),
        // The gateway knows what kind of failure it was.
        (Ok(Err(_)), Some(failure)) => Err(TrialFailure::Call(failure)),
        (Ok(Err(message)), None) => Err(TrialFailure::Answer(message)),
    }
}

fn spent_today(home: &Path) -> Result<f64, StoreError> {
    match StoreReader::open(home)? {
        Some(reader) => reader.counted_after(now_ms().saturating_sub(DAY_MS)),
        None => Ok(0.0),
    }
}

#[cfg(test)]
mod tests {
    use mini_ork_node::model::Api;
    use mini_ork_node::secret::SecretName;

    use super::*;
    use crate::lanes::{Driver, Inject, LaneLimits};
    use crate::pricing::PriceTable;
    use crate::vault::{Keyring, Vault};

    #[tokio::test]
    async fn a_vendor_that_says_nothing_is_given_up() {
        let home = tempfile::tempdir().unwrap();
        // The system takes the connection, and nobody answers.
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let agent = ModelAgent {
            driver: Driver::BuiltIn,
            api: Api::OpenaiChat,
            model: "m".to_owned(),
            base_url: format!("http://{}/v1", silent.local_addr().unwrap()),
            key: SecretName::parse("KEY").unwrap(),
            inject: Inject::Gateway,
            limits: LaneLimits {
                max_turns: None,
                max_calls: 1,
                max_output_tokens: None,
                context_tokens: None,
            },
        };
        let sources = ModelSources {
            vault: Vault::new(home.path(), Keyring::none(), Redactor::new()),
            exported: Box::new(|_| None),
            redactor: Redactor::new(),
            prices: PriceTable::parse("pricing.yaml", b"models: {}\n").unwrap(),
            certificates: None,
        };
        let key = Secret::new(b"SENTINEL".to_vec()).unwrap();
        let limit = Duration::from_millis(300);
        let trial = try_lane(&agent, key, sources, home.path(), 50.0, limit).await;
        let failure = trial.outcome.unwrap_err();
        assert!(matches!(failure, TrialFailure::Time(_)), "{failure:?}");
        assert_eq!(trial.cost_usd, None, "it may have begun to think");
    }
}
