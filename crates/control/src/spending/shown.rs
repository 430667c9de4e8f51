use mini_ork_node::model::TokenUsage;
use serde::{Deserialize, Serialize};

use crate::report::money;
use crate::store::{CostSum, LaneCost};

/// Costs that belong together, as they are shown. What is not known is never zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CostView {
    /// US dollars, as far as they are known; absent when nothing of them is.
    pub cost_usd: Option<f64>,
    /// Whether it may be more.
    pub cost_unknown: bool,
    /// Calls, and attempts that were no calls, of whose cost nothing is known.
    pub unknown_parts: u64,
    /// Calls to models through gateways.
    pub calls: u64,
    /// Those that were cut, of which only a beginning is known.
    pub cut_calls: u64,
    /// Those whose tokens are not known.
    pub uncounted_calls: u64,
    /// Tokens of the calls, as far as they are known.
    pub tokens: TokenUsage,
}

/// What a run cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunCosts {
    /// All of it.
    pub total: CostView,
    /// Node by node and lane by lane, in the order in which they were asked first.
    pub lanes: Vec<LaneCostView>,
}

/// What a node spent on one lane, in all rounds and attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaneCostView {
    /// The node.
    pub node: String,
    /// The lane that was asked.
    pub lane: String,
    /// The costs.
    #[serde(flatten)]
    pub cost: CostView,
}

impl From<&CostSum> for CostView {
    fn from(sum: &CostSum) -> Self {
        Self {
            cost_usd: sum.cost_usd(),
            cost_unknown: sum.is_partly_unknown(),
            unknown_parts: sum.unknown,
            calls: sum.calls,
            cut_calls: sum.cut,
            uncounted_calls: sum.uncounted,
            tokens: sum.usage,
        }
    }
}

impl From<&LaneCost> for LaneCostView {
    fn from(cost: &LaneCost) -> Self {
        Self {
            node: cost.node.clone(),
            lane: cost.lane.clone(),
            cost: CostView::from(&cost.sum),
        }
    }
}

impl RunCosts {
    /// Absent without any cost: a run from before there were any on record has none.
    pub fn of(costs: &[LaneCost]) -> Option<Self> {
        if costs.is_empty() {
            return None;
        }
        let mut total = CostSum::default();
        for cost in costs {
            total.add(&cost.sum);
        }
        Some(Self {
            total: CostView::from(&total),
            lanes: costs.iter().map(LaneCostView::from).collect(),
        })
    }
}

impl CostView {
    /// `$0.31`, `at least $0.31` when a call was cut, `$0.31 + unknown`, or `unknown`.
    pub fn money(&self) -> String {
        match self.cost_usd {
            Some(cost) if self.cut_calls > 0 && self.unknown_parts == 0 => {
                format!("at least {}", money(Some(cost), false))
            }
            cost => money(cost, self.cost_unknown),
        }
    }

    /// Numbers of tokens, in short: read at the full price, read from a cache, written to one,
    /// and written by the model. Without any call there is nothing to tell.
    pub fn token_cells(&self) -> [String; 4] {
        let known = self.uncounted_calls < self.calls;
        let at_least = self.cut_calls > 0 || self.uncounted_calls > 0;
        let tokens = &self.tokens;
        [
            tokens.input,
            tokens.cache_read,
            tokens.cache_write,
            tokens.output,
        ]
        .map(|count| match (self.calls, known, at_least) {
            (0, ..) => "–".to_owned(),
            (_, false, _) => "unknown".to_owned(),
            (_, true, false) => short(count),
            (_, true, true) => format!("{}+", short(count)),
        })
    }
}

/// `950`, `12.3k`, `4.5M`.
fn short(count: u64) -> String {
    let (unit, letter) = match count {
        0..1_000 => return count.to_string(),
        1_000..1_000_000 => (100, 'k'),
        _ => (100_000, 'M'),
    };
    // Tenths, not rounded up: a count is never more than it was.
    let tenths = count / unit;
    format!("{}.{}{letter}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(calls: u64, unknown: u64, cut: u64, uncounted: u64) -> CostView {
        CostView::from(&CostSum {
            calls,
            unknown,
            cut,
            uncounted,
            known_usd: 0.31,
            usage: TokenUsage {
                input: 12_399,
                cache_read: 4_500_000,
                cache_write: 0,
                output: 950,
            },
            ..CostSum::default()
        })
    }

    #[test]
    fn what_was_cut_is_at_least_and_what_is_not_known_is_unknown() {
        assert_eq!(view(3, 0, 0, 0).money(), "$0.31");
        assert_eq!(view(3, 0, 1, 0).money(), "at least $0.31");
        assert_eq!(view(3, 1, 0, 0).money(), "$0.31 + unknown");
        assert_eq!(view(3, 1, 1, 0).money(), "$0.31 + unknown");
        assert_eq!(view(3, 3, 0, 0).money(), "unknown");
    }

    #[test]
    fn tokens_are_short_and_never_invented() {
        let cells = |view: CostView| view.token_cells().join(" ");
        assert_eq!(cells(view(3, 0, 0, 0)), "12.3k 4.5M 0 950");
        assert_eq!(cells(view(3, 0, 1, 0)), "12.3k+ 4.5M+ 0+ 950+");
        assert_eq!(cells(view(3, 0, 0, 1)), "12.3k+ 4.5M+ 0+ 950+");
        assert_eq!(cells(view(3, 3, 0, 3)), "unknown unknown unknown unknown");
        assert_eq!(cells(view(0, 0, 0, 0)), "– – – –");
        assert_eq!(short(999_999), "999.9k");
        assert_eq!(short(u64::MAX), "18446744073709.5M");
    }
}
