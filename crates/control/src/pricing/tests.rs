use std::path::Path;

use mini_ork_node::model::{PlannedCall, TokenUsage};
use proptest::prelude::*;

use super::{BUILT_IN, PriceTable, PricingError, without_date};

const USAGE: TokenUsage = TokenUsage {
    input: 1_000_000,
    cache_read: 2_000_000,
    cache_write: 3_000_000,
    output: 4_000_000,
};

fn table(text: &str) -> PriceTable {
    PriceTable::parse("p", text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

fn planned(model: &str, body_bytes: u64, max_output_tokens: Option<u64>) -> PlannedCall {
    PlannedCall {
        model: model.to_owned(),
        body_bytes,
        max_output_tokens,
    }
}

#[test]
fn every_token_has_its_price() {
    let prices = table("models:\n  m: {input: 1, output: 10, cache_read: 0.5, cache_write: 2}\n");
    assert_eq!(prices.cost("m", &USAGE), Some(1.0 + 1.0 + 6.0 + 40.0));
    assert_eq!(prices.cost("m", &TokenUsage::default()), Some(0.0));
    let plain = table("models: {m: {input: 1, output: 10}}\n");
    assert_eq!(plain.cost("m", &USAGE), Some(1.0 + 2.0 + 3.0 + 40.0));
}

#[test]
fn what_nobody_knows_is_unknown() {
    let prices = table("models: {m: {input: 1, output: 10}, free: {input: 0, output: 0}}\n");
    assert_eq!(prices.cost("n", &USAGE), None);
    assert_eq!(prices.cost("", &USAGE), None);
    assert_eq!(prices.estimate(&planned("n", 1, None)), None);
    assert_eq!(prices.cost("free", &USAGE), Some(0.0));
}

#[test]
fn a_dated_name_has_the_price_of_its_model() {
    let prices =
        table("models: {m-4: {input: 1, output: 1}, m-4-20260101: {input: 2, output: 2}}\n");
    let one = TokenUsage {
        input: 1_000_000,
        ..TokenUsage::default()
    };
    for (model, cost) in [
        ("m-4", Some(1.0)),
        ("m-4-20250929", Some(1.0)),
        ("m-4-2025-09-29", Some(1.0)),
        ("m-4-20260101", Some(2.0)),
        ("m-4-mini", None),
        ("m-4-2025", None),
        ("m-4-2025092x", None),
        ("m", None),
    ] {
        assert_eq!(prices.cost(model, &one), cost, "{model}");
    }
}

#[test]
fn a_call_is_estimated_by_its_length() {
    let prices = table("models: {m: {input: 1, output: 10}}\n");
    let estimate = |bytes, most| prices.estimate(&planned("m", bytes, most)).unwrap();
    assert_eq!(estimate(4_000_000, Some(0)), 1.0);
    assert_eq!(estimate(0, Some(100)), 0.001);
    assert_eq!(estimate(0, None), 0.04096);
    assert_eq!(estimate(0, Some(128_000)), 0.04096);
}

#[test]
fn mistakes_are_told_together() {
    let text = "models:\n  a: {input: 1}\n  b: {input: -1, output: 1}\n  c: {input: 1, output: 1, cached: 1}\n  d: {input: x, output: 1}\n  e: 3\n  f: {input: .inf, output: 1}\n  g: {input: 1, output: 20000}\nprices: x\n";
    let error = PriceTable::parse("p", text.as_bytes()).unwrap_err();
    let error = error.to_string();
    let lines: Vec<&str> = error.lines().collect();
    let expected = [
        "p:2  models.a.output: is missing",
        "p:3  models.b.input: is the number `-1`, which is out of range",
        "p:4  models.c.cached: is not a known key",
        "p:5  models.d.input: is the text `x`, not a number",
        "p:6  models.e: is the number `3`, not a map",
        "p:7  models.f.input: is",
        "p:8  models.g.output: is the number `20000`, which is out of range",
        "p:9  prices: is not a known key",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\nexpected {expected}");
    }
}

#[test]
fn files_are_merged_model_by_model() {
    let directory = tempfile::tempdir().unwrap();
    let (home, repository) = (directory.path().join("h"), directory.path().join("r"));
    let write = |path: &Path, text: &str| {
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    };
    write(
        &home.join("config/pricing.yaml"),
        "models: {a: {input: 1, output: 1}, b: {input: 1, output: 1}, claude-sonnet-5: {input: 7, output: 7}}\n",
    );
    let of_repository = repository.join(".mini-ork/config/pricing.yaml");
    write(&of_repository, "models: {b: {input: 2, output: 2}}\n");
    let one = TokenUsage {
        input: 1_000_000,
        ..TokenUsage::default()
    };
    let both = PriceTable::load(&home, Some(&repository)).unwrap();
    let costs =
        ["a", "b", "claude-sonnet-5", "claude-haiku-4-5"].map(|model| both.cost(model, &one));
    assert_eq!(costs, [Some(1.0), Some(2.0), Some(7.0), Some(1.0)]);
    let none = PriceTable::load(&home.join("nowhere"), None).unwrap();
    assert_eq!(none.cost("claude-sonnet-5-20260101", &one), Some(2.0));
    write(&of_repository, "models: {b: {input: 2}}\n");
    let error = PriceTable::load(&home, Some(&repository)).unwrap_err();
    assert!(matches!(error, PricingError::Mistakes(_)), "{error}");
}

#[test]
fn the_built_in_prices_are_sane() {
    let table = PriceTable::parse("built in", BUILT_IN).unwrap();
    for (model, price) in &table.0 {
        assert!(price.input < price.output, "{model}");
        assert!(price.cache_read < price.input, "{model}");
        assert!(
            (1.0..=1.25).contains(&(price.cache_write / price.input)),
            "{model}"
        );
    }
    for lane in ["claude-sonnet-5", "gpt-5.5"] {
        assert!(
            table.cost(lane, &USAGE).is_some(),
            "{lane} of a built-in lane"
        );
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        drop(PriceTable::parse("p", &bytes));
    }

    #[test]
    fn a_cost_is_never_negative_or_endless(
        prices in prop::array::uniform4(0.0..10_000.0f64),
        tokens in prop::array::uniform4(any::<u64>()),
    ) {
        let [input, output, cache_read, cache_write] = prices;
        let text = format!(
            "models: {{m: {{input: {input}, output: {output}, cache_read: {cache_read}, cache_write: {cache_write}}}}}\n"
        );
        let [input, output, cache_read, cache_write] = tokens;
        let usage = TokenUsage { input, cache_read, cache_write, output };
        let cost = table(&text).cost("m", &usage).unwrap();
        prop_assert!(cost.is_finite() && cost >= 0.0);
        let estimate = table(&text).estimate(&planned("m", input, Some(output))).unwrap();
        prop_assert!(estimate.is_finite() && estimate >= 0.0);
    }

    #[test]
    fn only_a_date_is_taken_off(name in "[a-zä.-]{0,12}", date in "[0-9]{8}") {
        let (year, rest) = date.split_at(4);
        let (month, day) = rest.split_at(2);
        for dated in [format!("{name}-{date}"), format!("{name}-{year}-{month}-{day}")] {
            prop_assert_eq!(without_date(&dated), Some(name.as_str()));
        }
        prop_assert_eq!(without_date(&name), None);
    }
}
