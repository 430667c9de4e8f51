//! What models cost: a table that is part of the program, and what people write into
//! `pricing.yaml`. A price that nobody knows is unknown and never zero.

use std::collections::BTreeMap;
use std::path::Path;

use mini_ork_node::model::{PlannedCall, TokenUsage};

use crate::config_file::{self, ConfigFileError};
use crate::yaml::{Document, Mistake, Mistakes, Value};

const FILE: &str = "config/pricing.yaml";
const BUILT_IN: &[u8] = include_bytes!("built_in.yaml");
const LONGEST_MODEL: usize = 200;
/// No model costs more for a million tokens; whoever writes more means another unit.
const HIGHEST_PRICE: f64 = 10_000.0;
/// Bytes of a request that make about one token.
const BYTES_PER_TOKEN: f64 = 4.0;
/// A call may say that it wants far more than it ever takes.
const EXPECTED_OUTPUT: u64 = 4096;

/// The price of each model that is known.
#[derive(Debug, Clone, Default)]
pub struct PriceTable(BTreeMap<String, Price>);

/// US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Price {
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
}

/// Why the prices could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PricingError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ConfigFileError),
    /// The files have mistakes.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
}

impl PriceTable {
    /// The prices that are part of the program, then those of `config/pricing.yaml` below `home` and
    /// below `.mini-ork` of `repository`: of a model that is there twice the later entry counts.
    /// Gives all mistakes of all files at once.
    pub fn load(home: &Path, repository: Option<&Path>) -> Result<Self, PricingError> {
        let mut mistakes = Vec::new();
        let mut table = Self::default();
        table.read("built in", BUILT_IN, &mut mistakes);
        for file in config_file::find(home, repository, FILE)? {
            table.read(&file.name, &file.bytes, &mut mistakes);
        }
        Mistakes::check(mistakes)?;
        Ok(table)
    }

    /// The prices in `bytes` and no others; `file` is its name for people.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, Mistakes> {
        let mut mistakes = Vec::new();
        let mut table = Self::default();
        table.read(file, bytes, &mut mistakes);
        Mistakes::check(mistakes)?;
        Ok(table)
    }

    fn read(&mut self, file: &str, bytes: &[u8], mistakes: &mut Vec<Mistake>) {
        let document = match Document::parse(file, bytes) {
            Ok(document) => document,
            Err(Mistakes(found)) => {
                mistakes.extend(found);
                return;
            }
        };
        let root = document.root();
        if let Some(models) = root.required("models").and_then(|value| value.map()) {
            for (model, value) in models.entries() {
                if model.is_empty() || model.len() > LONGEST_MODEL {
                    value.mistake("is not the name of a model", "write it as the vendor does");
                } else if let Some(price) = price(&value) {
                    self.0.insert(model.to_owned(), price);
                }
            }
        }
        root.finish();
        mistakes.extend(document.into_mistakes());
    }

    /// The price of a model, else that of the model without the date at the end of its name.
    fn price(&self, model: &str) -> Option<&Price> {
        self.0
            .get(model)
            .or_else(|| self.0.get(without_date(model)?))
    }

    /// What `usage` of `model` costs in US dollars; absent when its price is not known.
    pub fn cost(&self, model: &str, usage: &TokenUsage) -> Option<f64> {
        let price = self.price(model)?;
        let parts = [
            (usage.input, price.input),
            (usage.output, price.output),
            (usage.cache_read, price.cache_read),
            (usage.cache_write, price.cache_write),
        ];
        let total: f64 = parts
            .iter()
            .map(|(tokens, price)| *tokens as f64 * price)
            .sum();
        Some(total / 1e6)
    }

    /// What `call` may cost in US dollars; absent when the price of its model is not known.
    pub fn estimate(&self, call: &PlannedCall) -> Option<f64> {
        let price = self.price(&call.model)?;
        let input = call.body_bytes as f64 / BYTES_PER_TOKEN;
        let output = call
            .max_output_tokens
            .map_or(EXPECTED_OUTPUT, |most| most.min(EXPECTED_OUTPUT));
        Some((input * price.input + output as f64 * price.output) / 1e6)
    }
}

fn price(value: &Value<'_>) -> Option<Price> {
    let map = value.map()?;
    let amount = |value: Option<Value<'_>>| value?.not_negative(HIGHEST_PRICE);
    let input = amount(map.required("input"));
    let output = amount(map.required("output"));
    // A vendor who names no price for a cache takes that of the input.
    let [cache_read, cache_write] = ["cache_read", "cache_write"].map(|key| {
        let value = map.optional(key);
        match value {
            None => input,
            given => amount(given),
        }
    });
    map.finish();
    Some(Price {
        input: input?,
        output: output?,
        cache_read: cache_read?,
        cache_write: cache_write?,
    })
}

/// `name` of `name-20250929` and of `name-2025-09-29`.
fn without_date(model: &str) -> Option<&str> {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((name, date)) = model.rsplit_once('-')
        && date.len() == 8
        && digits(date)
    {
        return Some(name);
    }
    let at = model.len().checked_sub(11)?;
    let (name, date) = model.split_at_checked(at)?;
    let parts: Vec<&str> = date.strip_prefix('-')?.split('-').collect();
    let is_date =
        parts.iter().map(|part| part.len()).eq([4, 2, 2]) && parts.iter().all(|part| digits(part));
    is_date.then_some(name)
}

#[cfg(test)]
mod tests;
