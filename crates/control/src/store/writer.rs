use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use super::StoreError;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// The thread that owns the writing connection. It ends, after the jobs already queued, when the
/// handle is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(path: PathBuf, mut connection: Connection) -> Self {
        let (sender, receiver) = mpsc::channel::<Job>();
        let thread = thread::spawn(move || {
            for job in receiver {
                job(&mut connection);
            }
        });
        Self {
            path,
            jobs: Some(sender),
            thread: Some(thread),
        }
    }

    /// Runs `work` in a transaction of its own and returns when it is committed. Nothing that any
    /// process writes comes between what `work` reads and what it writes.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let gone = || StoreError::WriterGone {
            path: self.path.clone(),
        };
        let (answer, outcome) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            // The caller may have gone; the change is committed all the same.
            let _ = answer.send(transact(connection, work));
        });
        self.jobs
            .as_ref()
            .ok_or_else(gone)?
            .send(job)
            .map_err(|_| gone())?;
        outcome
            .await
            .map_err(|_| gone())?
            .map_err(|source| StoreError::Database {
                path: self.path.clone(),
                source,
            })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // Joined so that the connection is closed, and the WAL folded in, before the process
            // ends.
            let _ = thread.join();
        }
    }
}

fn transact<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let outcome = work(&transaction)?;
    transaction.commit()?;
    Ok(outcome)
}
