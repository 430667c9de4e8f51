use mini_ork_node::model::{FailureClass, FinishedCall, TokenUsage};
use mini_ork_protocol::{NodeId, RunId};
use rusqlite::{OptionalExtension as _, Params, Transaction, params};

use super::costs::{COUNTED, counted_after, counted_of_run};

/// Most tokens of one kind that a call is taken to have: far more than any model can, and so few
/// that a sum over a database full of them is a number.
const MOST_TOKENS: u64 = 1 << 40;

/// One attempt of a node of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptKey {
    /// The run.
    pub run: RunId,
    /// The node.
    pub node: NodeId,
    /// Its round, from 1.
    pub round: u32,
    /// Its attempt in the round, from 1.
    pub attempt: u32,
}

/// A call to a model that is about to be made.
#[derive(Debug, Clone)]
pub struct NewCall {
    /// For whom.
    pub attempt: AttemptKey,
    /// By which lane.
    pub lane: String,
    /// The model that it names.
    pub model: String,
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Since when the daily budget counts.
    pub day_after_ms: u64,
}

/// What budgets count at the moment at which a call is to be made, in US dollars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spent {
    /// By the attempt.
    pub attempt: f64,
    /// By the run.
    pub run: f64,
    /// By all runs of the home, since the day began to count.
    pub day: f64,
    /// The most expensive call of the node so far.
    pub dearest_call: Option<f64>,
}

/// A call that was made.
#[derive(Debug, Clone)]
pub struct EndedCall {
    /// What became of it.
    pub call: FinishedCall,
    /// US dollars; absent when they are not known.
    pub cost_usd: Option<f64>,
    /// Whether budgets count what was set aside for it as long as they know of no more.
    pub keep_reserved: bool,
}

impl AttemptKey {
    pub(super) fn params(&self) -> impl Params + '_ {
        (
            self.run.as_str(),
            self.node.as_str(),
            self.round,
            self.attempt,
        )
    }
}

pub(super) fn spent(transaction: &Transaction<'_>, call: &NewCall) -> rusqlite::Result<Spent> {
    let attempt = transaction
        .prepare_cached(&format!(
            "SELECT {COUNTED} FROM costs
             WHERE run = ?1 AND node = ?2 AND round = ?3 AND attempt = ?4"
        ))?
        .query_row(call.attempt.params(), |row| row.get(0))?;
    let dearest_call = transaction
        .prepare_cached("SELECT max(cost_usd) FROM costs WHERE run = ?1 AND node = ?2 AND metered")?
        .query_row(
            (call.attempt.run.as_str(), call.attempt.node.as_str()),
            |row| row.get(0),
        )?;
    Ok(Spent {
        attempt,
        run: counted_of_run(transaction, &call.attempt.run)?,
        day: counted_after(transaction, call.day_after_ms)?,
        dearest_call,
    })
}

/// The number of the new row.
pub(super) fn begin(
    transaction: &Transaction<'_>,
    call: &NewCall,
    reserved_usd: Option<f64>,
) -> rusqlite::Result<u64> {
    transaction
        .prepare_cached(
            "INSERT INTO costs (run, recipe, node, round, attempt, lane, metered, model, at_ms,
                                complete, reserved_usd)
             SELECT run, recipe, ?2, ?3, ?4, ?5, 1, ?6, ?7, 0, ?8 FROM runs WHERE run = ?1
             RETURNING id",
        )?
        .query_row(
            params![
                call.attempt.run.as_str(),
                call.attempt.node.as_str(),
                call.attempt.round,
                call.attempt.attempt,
                call.lane,
                call.model,
                call.at_ms,
                reserved_usd,
            ],
            |row| row.get(0),
        )
        .optional()?
        .ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// Writes down the end of the call in row `id`. Doing it again changes nothing.
pub(super) fn end(
    transaction: &Transaction<'_>,
    id: u64,
    settle: impl FnOnce(&str) -> EndedCall,
) -> rusqlite::Result<()> {
    let open: Option<String> = transaction
        .prepare_cached(
            "SELECT model FROM costs WHERE id = ?1 AND metered AND duration_ms IS NULL",
        )?
        .query_row([id], |row| row.get(0))
        .optional()?;
    let Some(model) = open else {
        return Ok(());
    };
    let ended = settle(&model);
    let call = &ended.call;
    let tokens = |read: fn(&TokenUsage) -> u64| {
        let usage = call.usage.as_ref();
        usage.map(|usage| read(usage).min(MOST_TOKENS))
    };
    transaction
        .prepare_cached(
            "UPDATE costs SET duration_ms = ?2, input_tokens = ?3, cache_read_tokens = ?4,
                    cache_write_tokens = ?5, output_tokens = ?6, complete = ?7, failure = ?8,
                    status = ?9, cost_usd = ?10, reserved_usd = iif(?11, reserved_usd, NULL)
             WHERE id = ?1",
        )?
        .execute(params![
            id,
            i64::try_from(call.duration_ms).unwrap_or(i64::MAX),
            tokens(|usage| usage.input),
            tokens(|usage| usage.cache_read),
            tokens(|usage| usage.cache_write),
            tokens(|usage| usage.output),
            call.complete,
            call.failure
                .as_ref()
                .map(|failure| class_name(failure.class)),
            call.status,
            ended.cost_usd,
            ended.keep_reserved,
        ])?;
    Ok(())
}

/// For whoever looks into the database.
fn class_name(class: FailureClass) -> &'static str {
    match class {
        FailureClass::Capacity => "capacity",
        FailureClass::Network => "network",
        FailureClass::Server => "server",
        FailureClass::Stream => "stream",
        FailureClass::Auth => "auth",
        FailureClass::Quota => "quota",
        FailureClass::Request => "request",
        FailureClass::Safety => "safety",
        FailureClass::Budget => "budget",
        FailureClass::Calls => "calls",
    }
}
