use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use super::StoreError;

type Work = Box<dyn FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send>;

struct Job {
    work: Work,
    answer: oneshot::Sender<rusqlite::Result<()>>,
}

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
                let outcome = transact(&mut connection, job.work);
                // The caller may have gone; the change is committed all the same.
                let _ = job.answer.send(outcome);
            }
        });
        Self {
            path,
            jobs: Some(sender),
            thread: Some(thread),
        }
    }

    /// Runs `work` in a transaction of its own and returns when it is committed.
    pub(super) async fn call(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
    ) -> Result<(), StoreError> {
        let gone = || StoreError::WriterGone {
            path: self.path.clone(),
        };
        let (answer, outcome) = oneshot::channel();
        let job = Job {
            work: Box::new(work),
            answer,
        };
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

fn transact(connection: &mut Connection, work: Work) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    work(&transaction)?;
    transaction.commit()
}
