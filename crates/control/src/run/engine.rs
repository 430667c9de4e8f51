//! The dispatcher of a run: it alone changes the state, and it puts everything that happens into
//! one order. Executors do the work and report to it; nothing else talks to them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mini_ork_node::text::with_sources;
use mini_ork_protocol::NodeId;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::close;
use super::context::{RunContext, StopLevel};
use super::decide::Decision;
use super::event::{Closing, Failure, NodeOutcome, Remedy, RunEvent};
use super::failure::WorkError;
use super::nodes::{Ancestor, Job, Message, Reporter, execute};
use super::state::{Phase, RunState};
use super::{RunError, clock};
use crate::reason::{Reason, Status};
use crate::store::{AttemptKey, RunSummaryUpdate, StoreReader};

/// The time that the daily budget counts, up to now: a rolling day, so that no moment of the clock
/// lets twice the budget be spent around it.
pub const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Sees every event of a run, in order, after it is durable. Called from the dispatcher: it must
/// not wait.
pub trait RunObserver: Send {
    /// `event` happened; `state` is the state after it, `directory` the run directory.
    fn observe(&mut self, event: &RunEvent, state: &RunState, directory: &Path);
}

/// One run being driven by this process.
pub(crate) struct Engine<'a> {
    context: Arc<RunContext>,
    /// Sees what all runs of the home have cost.
    costs: StoreReader,
    observer: &'a mut dyn RunObserver,
    state: RunState,
    in_flight: BTreeSet<NodeId>,
    tasks: JoinSet<()>,
    task_nodes: BTreeMap<tokio::task::Id, (NodeId, u32, u32)>,
    messages: mpsc::UnboundedReceiver<Message>,
    reporter: Reporter,
    /// What the caller asks for.
    asked: watch::Receiver<StopLevel>,
    /// What executors are told.
    told: watch::Sender<StopLevel>,
    /// What there is to say about the user's checkout, while somebody looks.
    notes: Option<Notes>,
}

/// A look at the user's checkout that goes on beside the run.
pub(crate) type Notes = JoinHandle<Result<Vec<String>, WorkError>>;

impl<'a> Engine<'a> {
    pub(crate) fn new(
        context: Arc<RunContext>,
        observer: &'a mut dyn RunObserver,
        state: RunState,
        asked: watch::Receiver<StopLevel>,
        told: watch::Sender<StopLevel>,
        notes: Option<Notes>,
    ) -> Result<Self, RunError> {
        let (sender, messages) = mpsc::unbounded_channel();
        let costs = context.store.reader().map_err(RunError::Store)?;
        Ok(Self {
            context,
            costs,
            observer,
            state,
            in_flight: BTreeSet::new(),
            tasks: JoinSet::new(),
            task_nodes: BTreeMap::new(),
            messages,
            reporter: Reporter::new(sender),
            asked,
            told,
            notes,
        })
    }

    /// Drives the run to its terminal status and returns its state. On an error nothing of the run
    /// is left running, and the run can be taken up again.
    pub(crate) async fn drive(mut self) -> Result<RunState, RunError> {
        match self.dispatch().await {
            Ok(()) => Ok(self.state),
            Err(error) => {
                // The state can no longer be written, so nothing may go on unrecorded.
                self.told.send_replace(StopLevel::Immediate);
                self.messages.close();
                while self.tasks.join_next().await.is_some() {}
                Err(error)
            }
        }
    }

    async fn dispatch(&mut self) -> Result<(), RunError> {
        if self.state.stop().is_some() {
            // Stopped before an earlier control plane died: what still runs ends first.
            self.told.send_replace(StopLevel::Graceful);
        }
        for node in self.state.running() {
            self.start(&node, true)?;
        }
        loop {
            let decisions = self.state.decide(&self.in_flight);
            if decisions.is_empty() {
                if self.state.closing().is_some() {
                    return Ok(());
                }
                self.wait().await?;
                continue;
            }
            for decision in decisions {
                match decision {
                    Decision::Start(node) => self.start(&node, false)?,
                    Decision::Journal(RunEvent::Closed(closing)) => self.close(closing).await?,
                    Decision::Journal(event) => {
                        self.journal(event).await?;
                        self.context.fault.hit("round-started");
                    }
                }
            }
        }
    }

    /// Waits for one thing to happen and takes it into the state.
    async fn wait(&mut self) -> Result<(), RunError> {
        let deadline = self.time_left();
        tokio::select! {
            biased;
            Some(message) = self.messages.recv() => self.take(message).await,
            Some(joined) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => {
                self.reap(joined).await
            }
            looked = looked(&mut self.notes), if self.notes.is_some() => self.note(looked).await,
            Ok(()) = self.asked.changed() => {
                let level = *self.asked.borrow_and_update();
                if level > StopLevel::Run {
                    self.told.send_replace(level);
                    self.stop(Reason::Cancelled, "it was cancelled".to_owned()).await?;
                }
                Ok(())
            }
            () = sleep_or_never(deadline), if self.state.stop().is_none() => {
                self.told.send_replace(StopLevel::Graceful);
                let limit = self.context.plan.limits.deadline_ms.unwrap_or_default();
                let detail = format!("the deadline of {} s has passed", limit / 1000);
                self.stop(Reason::Timeout, detail).await
            }
        }
    }

    async fn take(&mut self, message: Message) -> Result<(), RunError> {
        match message {
            Message::Journal(event, done) => {
                self.journal(event).await?;
                // An executor that is gone needs no answer.
                let _ = done.send(());
                Ok(())
            }
            Message::Ended {
                node,
                round,
                attempt,
                outcome,
            } => {
                self.in_flight.remove(&node);
                let outcome = self.with_costs(&node, round, attempt, outcome)?;
                self.write_result(&node, round, attempt, &outcome);
                self.journal(RunEvent::NodeEnded {
                    node,
                    round,
                    attempt,
                    outcome,
                })
                .await?;
                self.context.fault.hit("node-ended");
                Ok(())
            }
        }
    }

    /// An executor that ended without a word has panicked: its node is lost, the run is not.
    async fn reap(
        &mut self,
        joined: Result<(tokio::task::Id, ()), tokio::task::JoinError>,
    ) -> Result<(), RunError> {
        let id = match &joined {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        // Its report was sent before it ended, so it is already in the queue.
        while let Ok(message) = self.messages.try_recv() {
            self.take(message).await?;
        }
        let Some((node, round, attempt)) = self.task_nodes.remove(&id) else {
            return Ok(());
        };
        if joined.is_ok() {
            return Ok(());
        }
        self.in_flight.remove(&node);
        let outcome = NodeOutcome::failed(Failure {
            reason: Reason::InfraLost,
            detail: "the executor broke off; this is a defect of mini-ork".to_owned(),
            remedy: Remedy::None,
        });
        let outcome = self.with_costs(&node, round, attempt, outcome)?;
        self.journal(RunEvent::NodeEnded {
            node,
            round,
            attempt,
            outcome,
        })
        .await
    }

    /// Adds up what the attempt cost. The database and not the executor knows its calls: an earlier
    /// control plane may have made some of them.
    fn with_costs(
        &self,
        node: &NodeId,
        round: u32,
        attempt: u32,
        mut outcome: NodeOutcome,
    ) -> Result<NodeOutcome, RunError> {
        let key = AttemptKey {
            run: self.context.plan.run.clone(),
            node: node.clone(),
            round,
            attempt,
        };
        let calls = self.costs.calls_of(&key).map_err(RunError::Store)?;
        outcome.metered |= !calls.is_empty();
        if outcome.metered {
            outcome.cost_usd = calls.cost_usd();
            outcome.cost_unknown = calls.is_partly_unknown();
        }
        Ok(outcome)
    }

    async fn note(&mut self, texts: Vec<String>) -> Result<(), RunError> {
        self.notes = None;
        for text in texts {
            self.journal(RunEvent::Warned { text }).await?;
        }
        Ok(())
    }

    async fn stop(&mut self, reason: Reason, detail: String) -> Result<(), RunError> {
        if self.state.stop().is_some() {
            return Ok(());
        }
        self.journal(RunEvent::StopRequested { reason, detail })
            .await
    }

    fn start(&mut self, node: &NodeId, resume: bool) -> Result<(), RunError> {
        let Some(mut job) = self.job(node, resume) else {
            return Ok(());
        };
        if job.lane.is_some() {
            let after = clock::now_ms().saturating_sub(DAY_MS);
            job.spent_today_usd = self.costs.counted_after(after).map_err(RunError::Store)?;
            let run = &self.context.plan.run;
            let counted = self.costs.counted_of_run(run).map_err(RunError::Store)?;
            job.spent_usd = job.spent_usd.max(counted);
        }
        let key = (node.clone(), job.round, job.attempt);
        self.in_flight.insert(node.clone());
        let executor = execute(Arc::clone(&self.context), job, self.reporter.clone());
        let handle = self.tasks.spawn(executor);
        self.task_nodes.insert(handle.id(), key);
        Ok(())
    }

    fn job(&self, node: &NodeId, resume: bool) -> Option<Job> {
        let planned = self.context.plan.node(node)?.clone();
        let progress = self.state.node(node)?;
        let graph = self.state.graph();
        let ancestors = self
            .state
            .nodes()
            .filter(|(other, other_progress)| {
                graph.is_ancestor(&other.node.id, node) && other_progress.phase == Phase::Done
            })
            .map(|(other, other_progress)| {
                let outcome = other_progress.outcome.as_ref();
                Ancestor {
                    id: other.node.id.clone(),
                    kind: other.node.kind,
                    round: other_progress.round,
                    attempt: other_progress.attempt,
                    summary: outcome
                        .map(|outcome| outcome.summary.clone())
                        .unwrap_or_default(),
                    skipped: outcome.is_some_and(|outcome| outcome.skipped),
                }
            })
            .collect();
        let lane = planned.lanes().nth(progress.lane).cloned();
        let session = progress.session.as_ref().and_then(|(name, session)| {
            let same = lane.as_ref().is_some_and(|lane| &lane.name == name);
            same.then(|| session.clone())
        });
        Some(Job {
            lane,
            session,
            round: progress.round,
            attempt: progress.attempt,
            evidence: progress.evidence.clone(),
            previous: progress.previous.clone(),
            contributions: self.state.contributions(Some(node)),
            fans_out: planned.node.kind.writes() && self.context.plan.fans_out(node, graph),
            ancestors,
            resume: if resume { progress.start.clone() } else { None },
            spent_usd: self.state.spent_usd(),
            spent_today_usd: 0.0,
            planned,
        })
    }

    /// Keeps what was not published, writes the report, and only then the terminal status: who
    /// sees the status finds everything else in place.
    async fn close(&mut self, closing: Closing) -> Result<(), RunError> {
        if self.notes.is_some() {
            let texts = looked(&mut self.notes).await;
            self.note(texts).await?;
        }
        let mut worktrees_may_go = false;
        if closing.status == Status::Published {
            let leftovers = close::rescue(&self.context, &self.state).await;
            worktrees_may_go = leftovers.obstacles.is_empty();
            for (reference, commit) in leftovers.kept {
                if self.state.kept().get(&reference) != Some(&commit) {
                    self.journal(RunEvent::Kept { reference, commit }).await?;
                }
            }
            for obstacle in leftovers.obstacles {
                let text = format!("a worktree stays, for not all in it can be saved: {obstacle}");
                self.journal(RunEvent::Warned { text }).await?;
            }
        } else {
            for (reference, commit) in close::keep(&self.context, &self.state)
                .await
                .map_err(RunError::Work)?
            {
                if self.state.kept().get(&reference) != Some(&commit) {
                    self.journal(RunEvent::Kept { reference, commit }).await?;
                }
            }
            self.context.fault.hit("work-kept");
        }
        for text in close::denials(&self.context.workspace.denials()) {
            self.journal(RunEvent::Warned { text }).await?;
        }
        // The end of a run does not wait for an engine that is down: what is on record is removed
        // by whoever comes next.
        if let Err(error) = self.context.workspace.down(&self.context.drive).await {
            let text = close::sandbox_left(&error);
            self.journal(RunEvent::Warned { text }).await?;
        }
        close::remove_agent_homes(&self.context, closing.status == Status::Published)
            .map_err(RunError::Io)?;
        let mut closed = self.state.clone();
        closed.apply(&RunEvent::Closed(closing.clone()));
        let run = self.context.plan.run.as_str();
        let costs = self.costs.costs_of_run(run).map_err(RunError::Store)?;
        close::write_report(&self.context, &closed, &costs).await?;
        self.context.fault.hit("report-written");
        self.journal(RunEvent::Closed(closing.clone())).await?;
        self.context.fault.hit("closed");
        if worktrees_may_go {
            close::remove_worktrees(&self.context.directory).map_err(RunError::Io)?;
        }
        Ok(())
    }

    async fn journal(&mut self, event: RunEvent) -> Result<(), RunError> {
        let mut next = self.state.clone();
        next.apply(&event);
        let at_ms = clock::now_ms();
        self.context
            .store
            .append(
                &self.context.plan.run,
                at_ms,
                &event,
                RunSummaryUpdate {
                    cost: self.state.cost_of(&event),
                    ..summary(&next, at_ms)
                },
            )
            .await
            .map_err(RunError::Store)?;
        self.state = next;
        self.observer
            .observe(&event, &self.state, self.context.directory.root());
        Ok(())
    }

    fn write_result(&self, node: &NodeId, round: u32, attempt: u32, outcome: &NodeOutcome) {
        let directory = self.context.directory.attempt(node, round, attempt);
        if directory.is_dir() {
            // A convenience for people; the journal is what counts, and it reports a full disk.
            let _ = super::directory::write_json(&directory.join("result.json"), outcome);
        }
    }

    fn time_left(&self) -> Option<Duration> {
        let deadline_ms = self.context.plan.limits.deadline_ms?;
        let until = self.context.started_at_ms.saturating_add(deadline_ms);
        Some(Duration::from_millis(until.saturating_sub(clock::now_ms())))
    }
}

/// What the run's row says after an event.
fn summary(state: &RunState, at_ms: u64) -> RunSummaryUpdate {
    let closing = state.closing();
    RunSummaryUpdate {
        status: closing.map(|closing| closing.status),
        reason: closing.and_then(|closing| closing.reason),
        detail: closing.map(|closing| closing.detail.clone()),
        branch: state
            .publication()
            .and_then(|publication| publication.branch.as_ref())
            .map(|branch| branch.name.clone()),
        cost_usd: state.spent_usd(),
        cost_unknown: state.cost_unknown(),
        ended_at_ms: closing.map(|_| at_ms),
        cost: None,
    }
}

/// What a look at the checkout found. That it failed is worth a note and no reason to end a run.
async fn looked(notes: &mut Option<Notes>) -> Vec<String> {
    let Some(handle) = notes else {
        return std::future::pending().await;
    };
    match handle.await {
        Ok(Ok(texts)) => texts,
        Ok(Err(error)) => vec![format!(
            "the checkout could not be looked at: {}",
            with_sources(&error)
        )],
        Err(error) => vec![format!("the checkout could not be looked at: {error}")],
    }
}

async fn sleep_or_never(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}
