use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use mini_ork_protocol::RunId;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, named_params, params};

use super::costs::NodeCost;
use crate::reason::{Reason, Status};
use crate::run::RunEvent;

/// A run that starts.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its id.
    pub run: RunId,
    /// Name of its recipe.
    pub recipe: String,
    /// Title of its kickoff.
    pub title: String,
    /// Root of the user's repository.
    pub repository: PathBuf,
    /// The run directory.
    pub directory: PathBuf,
    /// Workspace backend.
    pub backend: String,
    /// Milliseconds since the Unix epoch.
    pub started_at_ms: u64,
}

/// What a list of runs shows of one.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// Its id as written.
    pub run: String,
    /// Name of its recipe.
    pub recipe: String,
    /// Title of its kickoff.
    pub title: String,
    /// Root of the user's repository.
    pub repository: PathBuf,
    /// The run directory.
    pub directory: PathBuf,
    /// Workspace backend.
    pub backend: String,
    /// Its terminal status; absent while it runs, or after its control plane died.
    pub status: Option<Status>,
    /// Why it ended so.
    pub reason: Option<String>,
    /// In one sentence.
    pub detail: Option<String>,
    /// The branch it made.
    pub branch: Option<String>,
    /// Known costs in US dollars.
    pub cost_usd: f64,
    /// Whether some lane did not say what it cost.
    pub cost_unknown: bool,
    /// Milliseconds since the Unix epoch.
    pub started_at_ms: u64,
    /// Milliseconds since the Unix epoch.
    pub ended_at_ms: Option<u64>,
}

/// What an event changes besides the journal.
#[derive(Debug, Clone, Default)]
pub struct RunSummaryUpdate {
    /// The terminal status, or none while the run goes on.
    pub status: Option<Status>,
    /// Why it ended so.
    pub reason: Option<Reason>,
    /// In one sentence.
    pub detail: Option<String>,
    /// The branch it made.
    pub branch: Option<String>,
    /// Known costs so far in US dollars.
    pub cost_usd: f64,
    /// Whether some lane did not say what it cost.
    pub cost_unknown: bool,
    /// Milliseconds since the Unix epoch, once it ended.
    pub ended_at_ms: Option<u64>,
    /// What this very event adds to the costs of the home, besides calls through gateways.
    pub cost: Option<NodeCost>,
}

/// One event of a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct JournaledEvent {
    /// Position in the journal, from 1 without gaps.
    pub sequence: u64,
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What happened.
    pub event: RunEvent,
}

pub(super) fn insert_run(transaction: &Transaction<'_>, run: &NewRun) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT INTO runs (run, recipe, title, repository, directory, backend, started_at_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            run.run.as_str(),
            run.recipe,
            run.title,
            run.repository.as_os_str().as_bytes(),
            run.directory.as_os_str().as_bytes(),
            run.backend,
            run.started_at_ms,
        ],
    )?;
    Ok(())
}

pub(super) fn append_event(
    transaction: &Transaction<'_>,
    run: &RunId,
    at_ms: u64,
    payload: &str,
) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT INTO events (run, sequence, at_ms, payload)
         SELECT ?1, 1 + coalesce(max(sequence), 0), ?2, ?3 FROM events WHERE run = ?1",
        params![run.as_str(), at_ms, payload],
    )?;
    Ok(())
}

/// Costs only grow: who ends a run from outside does not know them, and must not wipe them out.
pub(super) fn update_run(
    transaction: &Transaction<'_>,
    run: &RunId,
    update: &RunSummaryUpdate,
) -> rusqlite::Result<()> {
    transaction.execute(
        "UPDATE runs SET status = :status, reason = :reason, detail = :detail, branch = :branch,
                cost_usd = max(cost_usd, :cost_usd),
                cost_unknown = max(cost_unknown, :cost_unknown), ended_at_ms = :ended_at_ms
         WHERE run = :run",
        named_params! {
            ":run": run.as_str(),
            ":status": update.status.map(Status::name),
            ":reason": update.reason.map(Reason::name),
            ":detail": update.detail,
            ":branch": update.branch,
            ":cost_usd": update.cost_usd,
            ":cost_unknown": update.cost_unknown,
            ":ended_at_ms": update.ended_at_ms,
        },
    )?;
    Ok(())
}

pub(super) fn delete_run(transaction: &Transaction<'_>, run: &RunId) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM runs WHERE run = ?1", [run.as_str()])?;
    Ok(())
}

const RUN_COLUMNS: &str = "run, recipe, title, repository, directory, backend, status, reason, \
                           detail, branch, cost_usd, cost_unknown, started_at_ms, ended_at_ms";

pub(super) fn select_runs(connection: &Connection) -> rusqlite::Result<Vec<RunRow>> {
    let mut statement = connection.prepare(&format!(
        "SELECT {RUN_COLUMNS} FROM runs ORDER BY started_at_ms DESC, rowid DESC"
    ))?;
    statement.query_map([], run_row)?.collect()
}

pub(super) fn select_run(connection: &Connection, run: &RunId) -> rusqlite::Result<Option<RunRow>> {
    connection
        .query_row(
            &format!("SELECT {RUN_COLUMNS} FROM runs WHERE run = ?1"),
            [run.as_str()],
            run_row,
        )
        .optional()
}

pub(super) fn select_events(
    connection: &Connection,
    run: &RunId,
    after: u64,
) -> rusqlite::Result<Vec<(u64, u64, String)>> {
    let mut statement = connection.prepare(
        "SELECT sequence, at_ms, payload FROM events WHERE run = ?1 AND sequence > ?2
         ORDER BY sequence",
    )?;
    statement
        .query_map(params![run.as_str(), after], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?
        .collect()
}

fn run_row(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    let status: Option<String> = row.get(6)?;
    Ok(RunRow {
        run: row.get(0)?,
        recipe: row.get(1)?,
        title: row.get(2)?,
        repository: path(row.get(3)?),
        directory: path(row.get(4)?),
        backend: row.get(5)?,
        status: status.as_deref().and_then(Status::from_name),
        reason: row.get(7)?,
        detail: row.get(8)?,
        branch: row.get(9)?,
        cost_usd: row.get(10)?,
        cost_unknown: row.get(11)?,
        started_at_ms: row.get(12)?,
        ended_at_ms: row.get(13)?,
    })
}

fn path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}
