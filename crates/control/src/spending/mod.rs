//! What calls to models cost: admitted within budgets, written down one by one.

mod budget;
mod shown;
mod trial;

use std::sync::Arc;

use async_trait::async_trait;
use mini_ork_node::model::{
    CallLedger, CallTicket, FailureClass, FinishedCall, PlannedCall, Refusal, TokenUsage,
};
use mini_ork_node::text::{on_one_line, with_sources};

pub use budget::Budgets;
pub use shown::{CostView, LaneCostView, RunCosts};
pub(crate) use trial::TrialLedger;

use crate::pricing::PriceTable;
use crate::run::{DAY_MS, now_ms};
use crate::store::{AttemptKey, CostSum, EndedCall, NewCall, Store, StoreError};

/// Longest name of a model that is written down, in characters: the name comes from the agent.
const LONGEST_MODEL: usize = 200;

/// The ledger of one attempt of a node on one lane.
///
/// All of it is in `state.db`: what was admitted before a crash, or by another process of the same
/// home, counts. A call that was admitted and whose end is not on record has an unknown cost, and
/// budgets go on counting what was set aside for it.
#[derive(Debug)]
pub struct Spending {
    store: Store,
    prices: Arc<PriceTable>,
    attempt: AttemptKey,
    lane: String,
    model: String,
    budgets: Budgets,
}

impl Spending {
    /// A ledger for what `attempt` has done by `lane`, whose model is `model`. The run is in the
    /// store already.
    pub fn new(
        store: Store,
        prices: Arc<PriceTable>,
        attempt: AttemptKey,
        lane: String,
        model: String,
        budgets: Budgets,
    ) -> Self {
        Self {
            store,
            prices,
            attempt,
            lane,
            model,
            budgets,
        }
    }

    /// All calls of the attempt so far, also those by other lanes and of an earlier control plane.
    pub async fn totals(&self) -> Result<CostSum, StoreError> {
        self.store.calls_of(&self.attempt).await
    }
}

#[async_trait]
impl CallLedger for Spending {
    async fn admit(&self, call: &PlannedCall) -> Result<CallTicket, Refusal> {
        let at_ms = now_ms();
        let new = NewCall {
            attempt: self.attempt.clone(),
            lane: self.lane.clone(),
            model: bounded(&call.model),
            at_ms,
            day_after_ms: at_ms.saturating_sub(DAY_MS),
        };
        // An agent chooses which model it names; one without a price must not be a way around the
        // budgets, so it is taken to cost what the lane's own does.
        let estimate = self.prices.estimate(call).or_else(|| {
            self.prices.estimate(&PlannedCall {
                model: self.model.clone(),
                ..call.clone()
            })
        });
        let budgets = self.budgets;
        let begun = self
            .store
            .begin_call(new, move |spent| budgets.admit(spent, estimate))
            .await;
        match begun {
            Ok(admitted) => admitted.map(CallTicket),
            // What cannot be written down cannot be counted either.
            Err(error) => Err(Refusal {
                class: FailureClass::Budget,
                message: format!(
                    "the call was not made, because it could not be written down: {}",
                    with_sources(&error)
                ),
            }),
        }
    }

    async fn record(&self, ticket: CallTicket, call: FinishedCall) {
        let prices = Arc::clone(&self.prices);
        // When it cannot be written down, the row goes on to say that the cost is not known.
        let _ = self
            .store
            .end_call(ticket.0, move |model| settle(&prices, model, call))
            .await;
    }
}

/// What is written down of a call that ended.
fn settle(prices: &PriceTable, model: &str, mut call: FinishedCall) -> EndedCall {
    if call.complete && call.usage.is_none() {
        // It never reached the vendor, or the vendor refused it before it dealt anything.
        call.usage = Some(TokenUsage::default());
        return EndedCall {
            call,
            cost_usd: Some(0.0),
            keep_reserved: false,
        };
    }
    let cost_usd = call
        .usage
        .as_ref()
        .and_then(|usage| prices.cost(model, usage));
    EndedCall {
        keep_reserved: !call.complete || cost_usd.is_none(),
        call,
        cost_usd,
    }
}

fn bounded(model: &str) -> String {
    on_one_line(&model.chars().take(LONGEST_MODEL).collect::<String>())
}

#[cfg(test)]
mod process_tests;
#[cfg(test)]
mod tests;
