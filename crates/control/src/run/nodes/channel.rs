//! How a lane's program reaches its model: through a gateway, or with the key inside.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use mini_ork_node::gateway::{
    BaseUrl, Gateway, GatewayLimits, GatewayReport, GatewaySettings, Placeholder, Roots,
};
use mini_ork_node::model::{CallFailure, FailureClass};
use mini_ork_node::secret::Secret;
use mini_ork_node::text::with_sources;
use mini_ork_node::workspace::Lead;
use serde::{Deserialize, Serialize};

use super::super::context::{RunContext, lost_process};
use super::super::directory::{make_directory, read_json, write_json};
use super::super::event::{Failure, Remedy};
use super::super::failure::ground_failure;
use super::Job;
use crate::lanes::{Inject, Lane, ModelAgent};
use crate::reason::Reason;
use crate::spending::{Budgets, Spending};
use crate::store::AttemptKey;

/// The way from one attempt's program to its model.
pub(super) enum Channel<'a> {
    /// The program sees a placeholder; the key stays outside.
    Gateway {
        gateway: Gateway,
        /// Keeps its port open to programs behind a boundary.
        lead: Lead,
        placeholder: Placeholder,
    },
    /// The lane was told to have the key inside.
    Inside { key: &'a Secret, base_url: &'a str },
}

/// What an earlier control plane told the program, so that the next one can answer it at the same
/// place. The placeholder opens nothing but this attempt's gateway.
#[derive(Debug, Serialize, Deserialize)]
struct GatewayRecord {
    port: u16,
    placeholder: String,
}

impl<'a> Channel<'a> {
    /// Opens the way for `job`. Where an earlier control plane already started the program, the
    /// gateway comes up again where the program looks for it.
    pub(super) async fn open(
        context: &'a RunContext,
        job: &Job,
        lane: &'a Lane,
        agent: &'a ModelAgent,
    ) -> Result<Self, Failure> {
        let key = context.models.key(&agent.key).ok_or_else(|| Failure {
            reason: Reason::SecretMissing,
            detail: format!(
                "the key {} of lane `{}` was not resolved",
                agent.key, lane.name
            ),
            remedy: Remedy::None,
        })?;
        if agent.inject == Inject::Env {
            return Ok(Self::Inside {
                key,
                base_url: &agent.base_url,
            });
        }
        let unusable = |problem: String| Failure {
            reason: Reason::Config,
            detail: format!(
                "the gateway of lane `{}` cannot be opened: {problem}",
                lane.name
            ),
            remedy: Remedy::None,
        };
        let base_url = BaseUrl::parse(&agent.base_url, agent.api)
            .map_err(|error| unusable(error.to_string()))?;
        let (listener, placeholder) = listen(context, job)?;
        let port = listener
            .local_addr()
            .map_err(|error| ground_failure(&error))?
            .port();
        let ledger = ledger(context, job, lane, agent);
        let settings = GatewaySettings {
            api: agent.api,
            base_url,
            key: Secret::clone(key),
            placeholder: placeholder.clone(),
            redactor: context.models.redactor.clone(),
            roots: Roots {
                system: true,
                extra_pem: context.models.certificates.clone(),
            },
            limits: GatewayLimits {
                max_calls: u64::from(agent.limits.max_calls),
                ..GatewayLimits::default()
            },
        };
        let gateway = Gateway::open(listener, settings, Arc::new(ledger))
            .await
            .map_err(|error| unusable(with_sources(&error)))?;
        // Only who talks to the model gets to its port.
        let lead = context
            .workspace_of(job.place(context))
            .lead(port)
            .await
            .map_err(|error| lost_process(&error))?;
        Ok(Self::Gateway {
            gateway,
            lead,
            placeholder,
        })
    }

    /// Where the program finds the API.
    pub(super) fn base_url(&self) -> String {
        match self {
            Self::Gateway { gateway, .. } => gateway.inside_base_url(),
            Self::Inside { base_url, .. } => (*base_url).to_owned(),
        }
    }

    /// What the program shows there.
    pub(super) fn token(&self) -> &str {
        match self {
            Self::Gateway { placeholder, .. } => placeholder.expose(),
            Self::Inside { key, .. } => key.expose(),
        }
    }

    /// The key, when the program has it and may print it.
    pub(super) fn key_inside(&self) -> Option<&Secret> {
        match self {
            Self::Gateway { .. } => None,
            Self::Inside { key, .. } => Some(key),
        }
    }

    /// Ends the way. Nothing that the program showed or left running opens anything any more.
    pub(super) async fn close(self) -> Option<GatewayReport> {
        match self {
            Self::Gateway { gateway, lead, .. } => {
                drop(lead);
                Some(gateway.close().await)
            }
            Self::Inside { .. } => None,
        }
    }
}

/// What the calls of the attempt are counted in, and against.
fn ledger(context: &RunContext, job: &Job, lane: &Lane, agent: &ModelAgent) -> Spending {
    let attempt = AttemptKey {
        run: context.plan.run.clone(),
        node: job.id().clone(),
        round: job.round,
        attempt: job.attempt,
    };
    let budgets = Budgets {
        node_usd: job.planned.node.max_cost_usd,
        run_usd: context.plan.limits.budget_usd,
        daily_usd: context.daily_budget_usd,
    };
    let prices = Arc::clone(&context.models.prices);
    Spending::new(
        context.store.clone(),
        prices,
        attempt,
        lane.name.clone(),
        agent.model.clone(),
        budgets,
    )
}

/// The listener and placeholder of this attempt: those that its running program knows, else new
/// ones, which are on record before the program can exist.
fn listen(context: &RunContext, job: &Job) -> Result<(TcpListener, Placeholder), Failure> {
    let ground = |error: std::io::Error| ground_failure(&error);
    let file = context.directory.gateway(job.id(), job.round, job.attempt);
    if job.resumed_program(context)
        && let Ok(record) = read_json::<GatewayRecord>(&file)
        && let Some(placeholder) = Placeholder::parse(&record.placeholder)
        && let Ok(listener) = bind(record.port)
    {
        return Ok((listener, placeholder));
    }
    // A program that lost its gateway for good ends by itself; its record must not change.
    let listener = bind(0).map_err(ground)?;
    let placeholder = Placeholder::new().map_err(ground)?;
    if !job.resumed_program(context) {
        if let Some(parent) = file.parent() {
            make_directory(parent).map_err(ground)?;
        }
        let record = GatewayRecord {
            port: listener.local_addr().map_err(ground)?.port(),
            placeholder: placeholder.expose().to_owned(),
        };
        write_json(&file, &record).map_err(ground)?;
    }
    Ok((listener, placeholder))
}

fn bind(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

/// What a failed call means for the node whose agent made it.
pub(super) fn failure_of_call(lane: &Lane, agent: &ModelAgent, call: &CallFailure) -> Failure {
    let said = &call.message;
    let name = &lane.name;
    let (reason, detail, remedy) = match call.class {
        FailureClass::Capacity
        | FailureClass::Network
        | FailureClass::Server
        | FailureClass::Stream
        | FailureClass::Quota => (
            Reason::ProviderError,
            format!("lane `{name}`: {said}"),
            Remedy::Lane,
        ),
        FailureClass::Auth => (
            Reason::ProviderError,
            format!(
                "lane `{name}`: the key {key} was refused; store a valid one with `mini-ork vault \
                 set {key}` ({said})",
                key = agent.key
            ),
            Remedy::None,
        ),
        FailureClass::Request | FailureClass::Safety => (
            Reason::ProviderError,
            format!("lane `{name}`: {said}"),
            Remedy::None,
        ),
        FailureClass::Budget => (Reason::BudgetExhausted, said.clone(), Remedy::None),
        FailureClass::Calls => (
            Reason::CommandFailed,
            format!("lane `{name}`: {said}"),
            Remedy::None,
        ),
    };
    Failure {
        reason,
        detail,
        remedy,
    }
}
