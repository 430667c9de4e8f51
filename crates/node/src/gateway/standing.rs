use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::{CallFailure, FailureClass};

/// Requests in a row whose answers broke off, after which no further one is made. Some clients ask
/// again without end.
const MOST_BROKEN: u32 = 3;

/// How a gateway's lane fares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayReport {
    /// Requests that the client made, tries of the gateway not counted.
    pub calls: u64,
    /// The last failure, unless a request that was begun after it succeeded.
    pub failure: Option<CallFailure>,
}

/// Counts the client's requests and remembers how they ended.
#[derive(Debug, Default)]
pub(super) struct Standing {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: u64,
    /// With the number of requests that were begun before it.
    failure: Option<(u64, CallFailure)>,
    broken: u32,
}

/// Which request of the client it is, from 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallNumber(u64);

impl Standing {
    /// Counts a request, and refuses it when it may not be made.
    pub(super) fn begin(&self, most: u64) -> Result<CallNumber, CallFailure> {
        let mut state = self.lock();
        let refusal = if state.calls >= most {
            CallFailure {
                class: FailureClass::Calls,
                message: format!("the agent made {most} calls to its model, which is the most"),
            }
        } else if state.broken >= MOST_BROKEN {
            CallFailure {
                class: FailureClass::Stream,
                message: format!(
                    "the last {MOST_BROKEN} answers of the model broke off, so it is asked no more"
                ),
            }
        } else {
            state.calls += 1;
            return Ok(CallNumber(state.calls));
        };
        state.failure = Some((state.calls, refusal.clone()));
        Err(refusal)
    }

    pub(super) fn succeeded(&self, number: CallNumber) {
        let mut state = self.lock();
        state.broken = 0;
        if state
            .failure
            .as_ref()
            .is_some_and(|(before, _)| *before < number.0)
        {
            state.failure = None;
        }
    }

    pub(super) fn failed(&self, failure: &CallFailure) {
        let mut state = self.lock();
        if failure.class == FailureClass::Stream {
            state.broken += 1;
        }
        state.failure = Some((state.calls, failure.clone()));
    }

    pub(super) fn report(&self) -> GatewayReport {
        let state = self.lock();
        GatewayReport {
            calls: state.calls,
            failure: state.failure.as_ref().map(|(_, failure)| failure.clone()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing is half done when a panic could leave the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(class: FailureClass) -> CallFailure {
        CallFailure {
            class,
            message: "m".to_owned(),
        }
    }

    #[test]
    fn a_failure_counts_until_a_later_request_succeeds() {
        let standing = Standing::default();
        let first = standing.begin(10).unwrap();
        let second = standing.begin(10).unwrap();
        standing.failed(&failure(FailureClass::Budget));
        standing.succeeded(first);
        standing.succeeded(second);
        assert_eq!(
            standing.report(),
            GatewayReport {
                calls: 2,
                failure: Some(failure(FailureClass::Budget))
            }
        );
        let third = standing.begin(10).unwrap();
        standing.succeeded(third);
        assert_eq!(standing.report().failure, None);
    }

    #[test]
    fn requests_have_a_bound() {
        let standing = Standing::default();
        standing.begin(2).unwrap();
        standing.begin(2).unwrap();
        for _ in 0..2 {
            let refusal = standing.begin(2).unwrap_err();
            assert_eq!(refusal.class, FailureClass::Calls);
        }
        let report = standing.report();
        assert_eq!(report.calls, 2);
        assert_eq!(report.failure.unwrap().class, FailureClass::Calls);
    }

    #[test]
    fn broken_answers_in_a_row_have_a_bound() {
        let standing = Standing::default();
        let broken = failure(FailureClass::Stream);
        standing.failed(&broken);
        standing.failed(&broken);
        let call = standing.begin(10).unwrap();
        standing.succeeded(call);
        for _ in 0..3 {
            standing.begin(10).unwrap();
            standing.failed(&broken);
        }
        let refusal = standing.begin(10).unwrap_err();
        assert_eq!(refusal.class, FailureClass::Stream);
    }
}
