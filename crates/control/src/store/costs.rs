use mini_ork_node::model::TokenUsage;
use mini_ork_protocol::{NodeId, RunId};
use rusqlite::{Connection, Row, Transaction, params};
use serde::{Deserialize, Serialize};

/// What budgets count of a row: its cost, and what was set aside for it while more may be owed.
pub(super) const COUNTED: &str = "total(max(coalesce(cost_usd, 0), coalesce(reserved_usd, 0)))";

/// The columns of a [`CostSum`].
const SUM: &str = "total(metered), total(1 - metered), total(cost_usd), total(cost_usd IS NULL),
    total(cost_usd IS NOT NULL AND NOT complete), total(metered AND input_tokens IS NULL),
    coalesce(sum(input_tokens), 0), coalesce(sum(cache_read_tokens), 0),
    coalesce(sum(cache_write_tokens), 0), coalesce(sum(output_tokens), 0)";

/// The costs of an attempt are told apart by quarters of an hour: in every time zone a day begins
/// with one.
const QUARTER_MS: u64 = 15 * 60 * 1000;

/// What one attempt of a node cost, by the word of a lane that no gateway meters.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeCost {
    /// The node.
    pub node: NodeId,
    /// Its round, from 1.
    pub round: u32,
    /// Its attempt in the round, from 1.
    pub attempt: u32,
    /// The lane that was asked.
    pub lane: String,
    /// US dollars; absent when the lane did not say.
    pub cost_usd: Option<f64>,
}

/// Costs that belong together, added up. What is not known is counted, and never taken for zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CostSum {
    /// Calls to models through gateways. One whose end is not on record is among them.
    pub calls: u64,
    /// Attempts that were no calls: there the lane itself said what they cost, or did not.
    pub told: u64,
    /// US dollars, as far as they are known.
    pub known_usd: f64,
    /// Calls and attempts of whose cost nothing is known.
    pub unknown: u64,
    /// Calls that were cut: their cost is known from the beginning of the answer only.
    pub cut: u64,
    /// Calls whose tokens are not known.
    pub uncounted: u64,
    /// Tokens of all calls, as far as they are known.
    pub usage: TokenUsage,
}

impl CostSum {
    /// US dollars; absent when nothing is known of them.
    pub fn cost_usd(&self) -> Option<f64> {
        let parts = self.calls.saturating_add(self.told);
        (parts == 0 || self.unknown < parts).then_some(self.known_usd)
    }

    /// Whether it may be more than [`Self::cost_usd`].
    pub fn is_partly_unknown(&self) -> bool {
        self.unknown > 0 || self.cut > 0
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.calls == 0 && self.told == 0
    }

    /// Adds another sum, which shares nothing with this one.
    pub fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.told = self.told.saturating_add(other.told);
        self.known_usd += other.known_usd;
        self.unknown = self.unknown.saturating_add(other.unknown);
        self.cut = self.cut.saturating_add(other.cut);
        self.uncounted = self.uncounted.saturating_add(other.uncounted);
        let (sum, more) = (&mut self.usage, &other.usage);
        sum.input = sum.input.saturating_add(more.input);
        sum.cache_read = sum.cache_read.saturating_add(more.cache_read);
        sum.cache_write = sum.cache_write.saturating_add(more.cache_write);
        sum.output = sum.output.saturating_add(more.output);
    }
}

/// What one attempt spent on one lane in a quarter of an hour. Its run may be gone.
#[derive(Debug, Clone, PartialEq)]
pub struct CostRow {
    /// The run's id as written.
    pub run: String,
    /// Name of its recipe.
    pub recipe: String,
    /// The node.
    pub node: String,
    /// Its round, from 1.
    pub round: u32,
    /// Its attempt in the round, from 1.
    pub attempt: u32,
    /// The lane that was asked.
    pub lane: String,
    /// Of the latest part, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The costs.
    pub sum: CostSum,
}

/// What a node of a run spent on one lane, in all rounds and attempts.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneCost {
    /// The node.
    pub node: String,
    /// The lane that was asked.
    pub lane: String,
    /// The costs.
    pub sum: CostSum,
}

pub(super) fn insert(
    transaction: &Transaction<'_>,
    run: &RunId,
    at_ms: u64,
    cost: &NodeCost,
) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT INTO costs (run, recipe, node, round, attempt, lane, metered, at_ms, complete,
                            cost_usd)
         SELECT run, recipe, ?2, ?3, ?4, ?5, 0, ?6, 1, ?7 FROM runs WHERE run = ?1",
        params![
            run.as_str(),
            cost.node.as_str(),
            cost.round,
            cost.attempt,
            cost.lane,
            at_ms,
            cost.cost_usd,
        ],
    )?;
    Ok(())
}

/// What counts against a budget for the time after `after_ms`.
pub(super) fn counted_after(connection: &Connection, after_ms: u64) -> rusqlite::Result<f64> {
    connection
        .prepare_cached(&format!("SELECT {COUNTED} FROM costs WHERE at_ms > ?1"))?
        .query_row([after_ms], |row| row.get(0))
}

/// What counts against the budget of `run`.
pub(super) fn counted_of_run(connection: &Connection, run: &RunId) -> rusqlite::Result<f64> {
    connection
        .prepare_cached(&format!("SELECT {COUNTED} FROM costs WHERE run = ?1"))?
        .query_row([run.as_str()], |row| row.get(0))
}

/// The costs after `after_ms`, the latest first. None in a database of an earlier format, which
/// has them as soon as somebody writes to it.
pub(super) fn select_after(
    connection: &Connection,
    after_ms: u64,
) -> rusqlite::Result<Vec<CostRow>> {
    if !is_there(connection)? {
        return Ok(Vec::new());
    }
    let mut statement = connection.prepare(&format!(
        "SELECT {SUM}, run, recipe, node, round, attempt, lane, max(at_ms) FROM costs
         WHERE at_ms > ?1
         GROUP BY run, node, round, attempt, lane, at_ms / {QUARTER_MS}
         ORDER BY max(at_ms) DESC, max(id) DESC"
    ))?;
    statement
        .query_map([after_ms], |row| {
            Ok(CostRow {
                sum: sum_row(row)?,
                run: row.get(10)?,
                recipe: row.get(11)?,
                node: row.get(12)?,
                round: row.get(13)?,
                attempt: row.get(14)?,
                lane: row.get(15)?,
                at_ms: row.get(16)?,
            })
        })?
        .collect()
}

/// The costs of `run` by node and lane, in the order in which they were asked first. None in a
/// database of an earlier format.
pub(super) fn select_of_run(connection: &Connection, run: &str) -> rusqlite::Result<Vec<LaneCost>> {
    if !is_there(connection)? {
        return Ok(Vec::new());
    }
    let mut statement = connection.prepare(&format!(
        "SELECT {SUM}, node, lane FROM costs WHERE run = ?1 GROUP BY node, lane ORDER BY min(id)"
    ))?;
    statement
        .query_map([run], |row| {
            Ok(LaneCost {
                sum: sum_row(row)?,
                node: row.get(10)?,
                lane: row.get(11)?,
            })
        })?
        .collect()
}

pub(super) fn sum_row(row: &Row<'_>) -> rusqlite::Result<CostSum> {
    // Counts below come as floating point: `total` has no overflow, and an answer for no rows.
    let count = |index| row.get::<_, f64>(index).map(|count| count as u64);
    Ok(CostSum {
        calls: count(0)?,
        told: count(1)?,
        known_usd: row.get(2)?,
        unknown: count(3)?,
        cut: count(4)?,
        uncounted: count(5)?,
        usage: TokenUsage {
            input: row.get(6)?,
            cache_read: row.get(7)?,
            cache_write: row.get(8)?,
            output: row.get(9)?,
        },
    })
}

/// Calls of one attempt through gateways.
pub(super) fn sum_of_calls(
    connection: &Connection,
    attempt: &super::AttemptKey,
) -> rusqlite::Result<CostSum> {
    connection
        .prepare_cached(&format!(
            "SELECT {SUM} FROM costs
             WHERE run = ?1 AND node = ?2 AND round = ?3 AND attempt = ?4 AND metered"
        ))?
        .query_row(attempt.params(), sum_row)
}

fn is_there(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM pragma_table_info('costs') WHERE name = 'metered')",
        [],
        |row| row.get(0),
    )
}
