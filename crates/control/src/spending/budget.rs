use mini_ork_node::model::{FailureClass, Refusal};

use crate::store::Spent;

/// What sums of floating point may be off by; far less than any price.
const TOLERANCE: f64 = 1e-9;

/// Limits in US dollars for the calls of one attempt of a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budgets {
    /// For the attempt: `max_cost_usd` of the node.
    pub node_usd: Option<f64>,
    /// For the run.
    pub run_usd: Option<f64>,
    /// For all runs of the home in the last 24 hours.
    pub daily_usd: f64,
}

impl Budgets {
    /// Whether a call may be made, after what was spent; how much to set aside for it when that is
    /// known.
    ///
    /// The call may cost `estimate`, or as much as the most expensive one of the node so far. When
    /// neither is known, it may be made while anything at all is left.
    pub(super) fn admit(
        &self,
        spent: &Spent,
        estimate: Option<f64>,
    ) -> Result<Option<f64>, Refusal> {
        let next = match (estimate, spent.dearest_call) {
            (Some(estimate), Some(dearest)) => Some(estimate.max(dearest)),
            (estimate, dearest) => estimate.or(dearest),
        };
        let checks = [
            (self.node_usd, spent.attempt, Budget::Node),
            (self.run_usd, spent.run, Budget::Run),
            (Some(self.daily_usd), spent.day, Budget::Day),
        ];
        for (limit, spent, budget) in checks {
            let Some(limit) = limit else {
                continue;
            };
            let fits = match next {
                Some(next) => spent + next <= limit + TOLERANCE,
                None => spent < limit,
            };
            if !fits {
                return Err(refusal(budget, limit, spent, next));
            }
        }
        Ok(next)
    }
}

#[derive(Debug, Clone, Copy)]
enum Budget {
    Node,
    Run,
    Day,
}

fn refusal(budget: Budget, limit: f64, spent: f64, next: Option<f64>) -> Refusal {
    let (limit, spent) = (dollars(limit), dollars(spent));
    let used = match budget {
        Budget::Node => format!("{spent} of the {limit} that the node may cost are spent"),
        Budget::Run => format!("{spent} of the budget of the run of {limit} are spent"),
        Budget::Day => format!(
            "{spent} of the daily budget of {limit} were spent in the last 24 hours, by all runs \
             together"
        ),
    };
    let message = match next {
        Some(next) => format!("{used}, and the next call may cost {}", dollars(next)),
        None => used,
    };
    Refusal {
        class: FailureClass::Budget,
        message,
    }
}

/// With as many digits as it takes to tell a small amount from nothing.
fn dollars(amount: f64) -> String {
    if amount > 0.0 && amount < 0.1 {
        format!("${amount:.4}")
    } else {
        format!("${amount:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Spent = Spent {
        attempt: 0.0,
        run: 0.0,
        day: 0.0,
        dearest_call: None,
    };
    const BUDGETS: Budgets = Budgets {
        node_usd: Some(1.0),
        run_usd: Some(2.0),
        daily_usd: 3.0,
    };

    fn message(spent: Spent, estimate: Option<f64>) -> String {
        let refusal = BUDGETS.admit(&spent, estimate).unwrap_err();
        assert_eq!(refusal.class, FailureClass::Budget);
        refusal.message
    }

    #[test]
    fn each_budget_is_named_with_what_is_spent_and_what_comes_next() {
        let spent = Spent {
            attempt: 0.75,
            ..NOTHING
        };
        assert_eq!(
            message(spent, Some(0.26)),
            "$0.75 of the $1.00 that the node may cost are spent, and the next call may cost $0.26"
        );
        let spent = Spent {
            run: 1.99,
            ..NOTHING
        };
        assert_eq!(
            message(spent, Some(0.0125)),
            "$1.99 of the budget of the run of $2.00 are spent, and the next call may cost $0.0125"
        );
        let spent = Spent {
            day: 3.0,
            ..NOTHING
        };
        assert_eq!(
            message(spent, None),
            "$3.00 of the daily budget of $3.00 were spent in the last 24 hours, by all runs \
             together"
        );
    }

    #[test]
    fn a_budget_may_be_used_to_its_last_cent() {
        // 0.7 + 0.2 + 0.1 is less than one, and 0.1 + 0.2 is more than 0.3.
        let spent = Spent {
            attempt: 0.7 + 0.2,
            ..NOTHING
        };
        assert_eq!(BUDGETS.admit(&spent, Some(0.1)), Ok(Some(0.1)));
        assert!(BUDGETS.admit(&spent, Some(0.1001)).is_err());
    }

    #[test]
    fn a_call_is_expected_to_cost_as_much_as_one_before() {
        let spent = Spent {
            attempt: 0.5,
            dearest_call: Some(0.5),
            ..NOTHING
        };
        assert_eq!(BUDGETS.admit(&spent, Some(0.1)), Ok(Some(0.5)));
        assert_eq!(BUDGETS.admit(&spent, None), Ok(Some(0.5)));
        let spent = Spent {
            attempt: 0.6,
            ..spent
        };
        assert!(BUDGETS.admit(&spent, Some(0.1)).is_err());
    }

    #[test]
    fn without_a_price_only_what_is_known_counts() {
        let spent = Spent {
            attempt: 0.99,
            ..NOTHING
        };
        assert_eq!(BUDGETS.admit(&spent, None), Ok(None));
        // What is free may go on when nothing is left.
        let spent = Spent {
            attempt: 1.0,
            ..NOTHING
        };
        assert!(BUDGETS.admit(&spent, None).is_err());
        assert_eq!(BUDGETS.admit(&spent, Some(0.0)), Ok(Some(0.0)));
    }
}
