//! A table of prices is refused, or every cost that comes out of it is a sum of money.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mini_ork_control::pricing::PriceTable;
use mini_ork_node::model::{PlannedCall, TokenUsage};

fuzz_target!(|bytes: &[u8]| {
    let table = match PriceTable::parse("pricing.yaml", bytes) {
        Ok(table) => table,
        Err(mistakes) => {
            assert!(!mistakes.0.is_empty());
            return;
        }
    };
    let usage = TokenUsage {
        input: 1,
        cache_read: 1 << 20,
        cache_write: 1 << 40,
        output: u64::MAX,
    };
    for model in ["m", "m-1", "m-2026-01-01", ""] {
        let call = PlannedCall {
            model: model.to_owned(),
            body_bytes: u64::MAX,
            max_output_tokens: Some(u64::MAX),
        };
        let costs = [table.cost(model, &usage), table.estimate(&call)];
        for cost in costs.into_iter().flatten() {
            assert!(cost.is_finite() && cost >= 0.0, "{model}: {cost}");
        }
    }
});
