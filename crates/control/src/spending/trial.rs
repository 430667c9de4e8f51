use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use mini_ork_node::model::{
    CallLedger, CallTicket, FinishedCall, PlannedCall, Refusal, TokenUsage,
};

use super::budget::Budgets;
use super::settle;
use crate::pricing::PriceTable;
use crate::store::Spent;

/// The ledger of calls that belong to no run: admitted within what is left of the day, and written
/// down nowhere, so that whoever makes them tells what they cost.
#[derive(Debug)]
pub(crate) struct TrialLedger {
    prices: Arc<PriceTable>,
    daily_usd: f64,
    /// By all runs of the home in the last 24 hours.
    spent_usd: f64,
    calls: Mutex<Vec<Call>>,
}

#[derive(Debug)]
struct Call {
    model: String,
    usage: TokenUsage,
    /// Not known before the call has ended.
    cost_usd: Option<f64>,
}

impl TrialLedger {
    pub(crate) fn new(prices: Arc<PriceTable>, daily_usd: f64, spent_usd: f64) -> Self {
        Self {
            prices,
            daily_usd,
            spent_usd,
            calls: Mutex::new(Vec::new()),
        }
    }

    /// The tokens of all calls, and what they cost when that is known of each.
    pub(crate) fn total(&self) -> (TokenUsage, Option<f64>) {
        let mut total = TokenUsage::default();
        let mut cost_usd = Some(0.0);
        for call in self.lock().iter() {
            total.input = total.input.saturating_add(call.usage.input);
            total.cache_read = total.cache_read.saturating_add(call.usage.cache_read);
            total.cache_write = total.cache_write.saturating_add(call.usage.cache_write);
            total.output = total.output.saturating_add(call.usage.output);
            cost_usd = cost_usd.zip(call.cost_usd).map(|(sum, cost)| sum + cost);
        }
        (total, cost_usd)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Call>> {
        // Nothing is half done when a panic could leave the lock.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl CallLedger for TrialLedger {
    async fn admit(&self, call: &PlannedCall) -> Result<CallTicket, Refusal> {
        let budgets = Budgets {
            node_usd: None,
            run_usd: None,
            daily_usd: self.daily_usd,
        };
        let mut calls = self.lock();
        let own: f64 = calls.iter().filter_map(|call| call.cost_usd).sum();
        let spent = Spent {
            attempt: 0.0,
            run: 0.0,
            day: self.spent_usd + own,
            dearest_call: None,
        };
        budgets.admit(&spent, self.prices.estimate(call))?;
        calls.push(Call {
            model: call.model.clone(),
            usage: TokenUsage::default(),
            cost_usd: None,
        });
        Ok(CallTicket(calls.len() as u64 - 1))
    }

    async fn record(&self, ticket: CallTicket, call: FinishedCall) {
        let mut calls = self.lock();
        let index = usize::try_from(ticket.0).unwrap_or(usize::MAX);
        let Some(entry) = calls.get_mut(index) else {
            return;
        };
        let complete = call.complete;
        let ended = settle(&self.prices, &entry.model, call);
        entry.usage = ended.call.usage.unwrap_or_default();
        // Of an answer that was cut only the beginning is known.
        entry.cost_usd = ended.cost_usd.filter(|_| complete);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> PlannedCall {
        PlannedCall {
            model: "m".to_owned(),
            body_bytes: 1000,
            max_output_tokens: Some(100),
        }
    }

    fn finished(usage: Option<TokenUsage>, complete: bool) -> FinishedCall {
        FinishedCall {
            usage,
            complete,
            failure: None,
            status: Some(200),
            started_at_ms: 1,
            duration_ms: 1,
        }
    }

    fn ledger(daily_usd: f64, spent_usd: f64) -> TrialLedger {
        let text = b"models:\n  m: {input: 1000, output: 1000}\n";
        let prices = PriceTable::parse("pricing.yaml", text).unwrap();
        TrialLedger::new(Arc::new(prices), daily_usd, spent_usd)
    }

    #[tokio::test]
    async fn a_trial_costs_what_was_dealt_and_nothing_when_refused() {
        let ledger = ledger(50.0, 0.0);
        assert_eq!(ledger.total(), (TokenUsage::default(), Some(0.0)));
        let ticket = ledger.admit(&call()).await.unwrap();
        assert_eq!(ledger.total().1, None, "it goes on");
        ledger.record(ticket, finished(None, true)).await;
        assert_eq!(ledger.total().1, Some(0.0));
        let usage = TokenUsage {
            input: 20,
            output: 10,
            ..TokenUsage::default()
        };
        let ticket = ledger.admit(&call()).await.unwrap();
        ledger.record(ticket, finished(Some(usage), true)).await;
        let (total, cost) = ledger.total();
        assert_eq!(total, usage);
        assert!((cost.unwrap() - 0.03).abs() < 1e-9);
        let ticket = ledger.admit(&call()).await.unwrap();
        ledger.record(ticket, finished(Some(usage), false)).await;
        assert_eq!(ledger.total().1, None);
    }

    #[tokio::test]
    async fn a_trial_has_what_is_left_of_the_day() {
        assert!(ledger(1.0, 0.99).admit(&call()).await.is_err());
        assert!(ledger(1.0, 0.0).admit(&call()).await.is_ok());
    }
}
