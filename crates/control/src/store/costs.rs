use mini_ork_protocol::{NodeId, RunId};
use rusqlite::{Connection, Transaction, params};

/// What one attempt of a node cost.
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

/// A cost with the run that it belongs to. The run itself may be gone.
#[derive(Debug, Clone, PartialEq)]
pub struct CostRow {
    /// The run's id as written.
    pub run: String,
    /// Name of its recipe.
    pub recipe: String,
    /// The lane that was asked.
    pub lane: String,
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// US dollars; absent when the lane did not say.
    pub cost_usd: Option<f64>,
}

pub(super) fn insert(
    transaction: &Transaction<'_>,
    run: &RunId,
    at_ms: u64,
    cost: &NodeCost,
) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT INTO costs (run, recipe, node, round, attempt, lane, at_ms, cost_usd)
         SELECT run, recipe, ?2, ?3, ?4, ?5, ?6, ?7 FROM runs WHERE run = ?1",
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

/// The known costs after `after_ms`, summed up.
pub(super) fn sum_after(connection: &Connection, after_ms: u64) -> rusqlite::Result<f64> {
    connection
        .prepare_cached("SELECT total(cost_usd) FROM costs WHERE at_ms > ?1")?
        .query_row([after_ms], |row| row.get(0))
}

/// The costs after `after_ms`, the latest first. None in a database that was made before there
/// were any and that nobody has written to since.
pub(super) fn select_after(
    connection: &Connection,
    after_ms: u64,
) -> rusqlite::Result<Vec<CostRow>> {
    let is_there: bool = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'costs')",
        [],
        |row| row.get(0),
    )?;
    if !is_there {
        return Ok(Vec::new());
    }
    let mut statement = connection.prepare(
        "SELECT run, recipe, lane, at_ms, cost_usd FROM costs WHERE at_ms > ?1
         ORDER BY at_ms DESC, rowid DESC",
    )?;
    statement
        .query_map([after_ms], |row| {
            Ok(CostRow {
                run: row.get(0)?,
                recipe: row.get(1)?,
                lane: row.get(2)?,
                at_ms: row.get(3)?,
                cost_usd: row.get(4)?,
            })
        })?
        .collect()
}
