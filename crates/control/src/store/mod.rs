//! `state.db`: which runs there are, and what happened in each.
//!
//! One thread of this process writes, in one transaction per change; readers have a connection of
//! their own beside it (WAL). Queueing in the process is in order, where several writers would
//! fight for the lock; between processes `BEGIN IMMEDIATE` with a long busy timeout queues. A status
//! that cannot be written is an error to the caller, never a loss in silence.

mod calls;
mod connection;
mod costs;
mod migrations;
mod rows;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mini_ork_protocol::RunId;
use rusqlite::{Connection, Transaction};

pub use calls::{AttemptKey, EndedCall, NewCall, Spent};
pub use costs::{CostRow, CostSum, LaneCost, NodeCost};
pub use rows::{JournaledEvent, NewRun, RunRow, RunSummaryUpdate};
use writer::Writer;

use crate::reserve;
use crate::run::{RunEvent, is_disk_full};

/// What went wrong with `state.db`.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database, or the disk below it, refused.
    #[error("cannot use the state database {}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What it said.
        #[source]
        source: rusqlite::Error,
    },
    /// The database was written by a later mini-ork.
    #[error("{} has format {found}, this mini-ork knows up to {known}", path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: usize,
        /// The latest format known here.
        known: usize,
    },
    /// A record in it cannot be read.
    #[error("{} holds a record of run {run} that cannot be read", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Whose record.
        run: String,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
    /// The home directory cannot be made or read.
    #[error("cannot use the home directory {}", path.display())]
    Home {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The writer thread is gone.
    #[error("the writer of {} has ended", path.display())]
    WriterGone {
        /// The file.
        path: PathBuf,
    },
    /// An id in the database is none.
    #[error("{} names a run `{run}` that is none", path.display())]
    BadId {
        /// The file.
        path: PathBuf,
        /// What it holds.
        run: String,
    },
}

/// The state database of one home. Clones share one writer; it ends with the last of them.
#[derive(Debug, Clone)]
pub struct Store {
    path: PathBuf,
    writer: Arc<Writer>,
}

/// A read-only view of the state database. Sees every change that was committed before the call.
#[derive(Debug)]
pub struct StoreReader {
    path: PathBuf,
    connection: Connection,
}

impl Store {
    /// Opens `<home>/state.db` for writing, making it and bringing it to the current format.
    pub fn open(home: &Path) -> Result<Self, StoreError> {
        let path = database_path(home);
        let connection = connection::open_writer(&path)?;
        migrations::run(&connection, &path)?;
        let writer = Arc::new(Writer::start(path.clone(), connection));
        Ok(Self { path, writer })
    }

    /// Records a run that starts. Durable when it returns.
    pub async fn add_run(&self, run: NewRun) -> Result<(), StoreError> {
        self.writer
            .call(move |transaction| rows::insert_run(transaction, &run))
            .await
    }

    /// Appends `event` to the journal of `run` and, in the same transaction, brings its row to
    /// `summary` and adds the cost in it. Durable when it returns. On a full disk it takes the room
    /// that the home holds for that: how a run ended is not to be lost with it.
    pub async fn append(
        &self,
        run: &RunId,
        at_ms: u64,
        event: &RunEvent,
        summary: RunSummaryUpdate,
    ) -> Result<(), StoreError> {
        let run = run.clone();
        let payload = serde_json::to_string(event).map_err(|source| StoreError::Record {
            path: self.path.clone(),
            run: run.to_string(),
            source,
        })?;
        let append = Arc::new(move |transaction: &Transaction<'_>| {
            rows::append_event(transaction, &run, at_ms, &payload)?;
            if let Some(cost) = &summary.cost {
                costs::insert(transaction, &run, at_ms, cost)?;
            }
            rows::update_run(transaction, &run, &summary)
        });
        let again = Arc::clone(&append);
        match self
            .writer
            .call(move |transaction| append(transaction))
            .await
        {
            Err(error) if is_disk_full(&error) && self.makes_room() => {
                self.writer
                    .call(move |transaction| again(transaction))
                    .await
            }
            appended => appended,
        }
    }

    fn makes_room(&self) -> bool {
        let home = self.path.parent();
        home.is_some_and(|home| reserve::make_room(home).unwrap_or(false))
    }

    /// Writes down that `call` is about to be made, if `admit` lets it: that is told what budgets
    /// count at this moment, and says how much to set aside. No call of any process of this home
    /// comes in between. The number is that of the call, which is durable.
    pub async fn begin_call<E: Send + 'static>(
        &self,
        call: NewCall,
        admit: impl FnOnce(&Spent) -> Result<Option<f64>, E> + Send + 'static,
    ) -> Result<Result<u64, E>, StoreError> {
        self.writer
            .call(move |transaction| {
                let spent = calls::spent(transaction, &call)?;
                match admit(&spent) {
                    Ok(reserved_usd) => calls::begin(transaction, &call, reserved_usd).map(Ok),
                    Err(refusal) => Ok(Err(refusal)),
                }
            })
            .await
    }

    /// Writes down the end of a call, by its number; `settle` is told the model that it named.
    /// Durable when it returns. Later ends of the same call are not heeded.
    pub async fn end_call(
        &self,
        id: u64,
        settle: impl FnOnce(&str) -> EndedCall + Send + 'static,
    ) -> Result<(), StoreError> {
        self.writer
            .call(move |transaction| calls::end(transaction, id, settle))
            .await
    }

    /// The calls of `attempt` so far.
    pub async fn calls_of(&self, attempt: &AttemptKey) -> Result<CostSum, StoreError> {
        let attempt = attempt.clone();
        self.writer
            .call(move |transaction| costs::sum_of_calls(transaction, &attempt))
            .await
    }

    /// A reader beside the writer, in the current format.
    pub fn reader(&self) -> Result<StoreReader, StoreError> {
        let connection = connection::open_reader(&self.path)?;
        migrations::check(&connection, &self.path)?;
        Ok(StoreReader {
            path: self.path.clone(),
            connection,
        })
    }

    /// Forgets `run`, journal and all; what it cost stays on record.
    pub async fn remove_run(&self, run: &RunId) -> Result<(), StoreError> {
        let run = run.clone();
        self.writer
            .call(move |transaction| rows::delete_run(transaction, &run))
            .await
    }
}

impl StoreReader {
    /// Opens `<home>/state.db` for reading; `None` when there is none yet.
    pub fn open(home: &Path) -> Result<Option<Self>, StoreError> {
        let path = database_path(home);
        if !path.exists() {
            return Ok(None);
        }
        let connection = connection::open_reader(&path)?;
        // The file is there an instant before its tables are.
        let is_made = migrations::check(&connection, &path)?;
        Ok(is_made.then_some(Self { path, connection }))
    }

    /// All runs, the latest first.
    pub fn runs(&self) -> Result<Vec<RunRow>, StoreError> {
        rows::select_runs(&self.connection).map_err(|source| self.database_error(source))
    }

    /// The row of `run`.
    pub fn run(&self, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        rows::select_run(&self.connection, run).map_err(|source| self.database_error(source))
    }

    /// The journal of `run`, from the event after `after` (0: from the first).
    pub fn events(&self, run: &RunId, after: u64) -> Result<Vec<JournaledEvent>, StoreError> {
        let raw = rows::select_events(&self.connection, run, after)
            .map_err(|source| self.database_error(source))?;
        raw.into_iter()
            .map(|(sequence, at_ms, payload)| {
                let event =
                    serde_json::from_str(&payload).map_err(|source| StoreError::Record {
                        path: self.path.clone(),
                        run: run.to_string(),
                        source,
                    })?;
                Ok(JournaledEvent {
                    sequence,
                    at_ms,
                    event,
                })
            })
            .collect()
    }

    /// What counts against the daily budget when the day began after `after_ms` (milliseconds since
    /// the Unix epoch), in US dollars: known costs of all runs, and what is set aside for calls
    /// that may cost more. For a reader of [`Store::reader`].
    pub fn counted_after(&self, after_ms: u64) -> Result<f64, StoreError> {
        costs::counted_after(&self.connection, after_ms)
            .map_err(|source| self.database_error(source))
    }

    /// What counts against the budget of `run`, in US dollars. For a reader of [`Store::reader`].
    pub fn counted_of_run(&self, run: &RunId) -> Result<f64, StoreError> {
        costs::counted_of_run(&self.connection, run).map_err(|source| self.database_error(source))
    }

    /// The calls of `attempt` so far. For a reader of [`Store::reader`].
    pub fn calls_of(&self, attempt: &AttemptKey) -> Result<CostSum, StoreError> {
        costs::sum_of_calls(&self.connection, attempt).map_err(|source| self.database_error(source))
    }

    /// What each node of a run cost, lane by lane.
    pub fn costs_of_run(&self, run: &str) -> Result<Vec<LaneCost>, StoreError> {
        costs::select_of_run(&self.connection, run).map_err(|source| self.database_error(source))
    }

    /// Every cost after `after_ms` (milliseconds since the Unix epoch), the latest first, also of
    /// runs that were removed.
    pub fn costs_after(&self, after_ms: u64) -> Result<Vec<CostRow>, StoreError> {
        costs::select_after(&self.connection, after_ms)
            .map_err(|source| self.database_error(source))
    }

    /// Whether the database is whole, by its own check; the sentence says what is wrong.
    pub fn check(&self) -> Result<Option<String>, StoreError> {
        let answer: String = self
            .connection
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(|source| self.database_error(source))?;
        Ok((answer != "ok").then_some(answer))
    }

    fn database_error(&self, source: rusqlite::Error) -> StoreError {
        StoreError::Database {
            path: self.path.clone(),
            source,
        }
    }
}

#[cfg(test)]
impl Store {
    /// Lets the database grow no more, as on a full disk.
    pub(crate) async fn fill_up(&self) -> Result<(), StoreError> {
        self.writer
            .call(|transaction| transaction.pragma_update(None, "max_page_count", 1))
            .await
    }

    /// Adds calls of the last minutes to the run `abc`.
    pub(crate) async fn add_calls(&self, count: u32) -> Result<(), StoreError> {
        let now = crate::run::now_ms();
        self.writer
            .call(move |transaction| {
                let mut insert = transaction.prepare(
                    "INSERT INTO costs (run, recipe, node, round, attempt, lane, metered, at_ms,
                                        complete, cost_usd)
                     VALUES ('abc', 'r', 'worker', 1, 1, 'quick', 1, ?1, 1, 0.001)",
                )?;
                for number in 0..u64::from(count) {
                    insert.execute([now - number])?;
                }
                Ok(())
            })
            .await
    }
}

fn database_path(home: &Path) -> PathBuf {
    home.join("state.db")
}

#[cfg(test)]
mod tests;
