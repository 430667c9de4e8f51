use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mini_ork_control::lanes::Driver;
use mini_ork_control::report::{duration, money};
use mini_ork_control::run::{
    NodeOutcome, Phase, RunDirectory, RunEvent, RunObserver, RunState, last_words,
};
use mini_ork_protocol::NodeId;

use super::graph::GraphRow;
use super::screen::Screen;
use super::text::{Style, one_line, paint};

/// What a person sees while a run goes on: the graph, kept up to date, on a terminal; elsewhere one
/// plain line for each change, and nothing that moves.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    display: Arc<Mutex<Display>>,
    live: bool,
}

#[derive(Debug)]
struct Display {
    began: Instant,
    /// Where the graph is drawn; none for plain lines.
    screen: Option<Screen>,
    rows: Vec<Row>,
    spent: String,
    announced: bool,
}

#[derive(Debug)]
struct Row {
    node: NodeId,
    shown: GraphRow,
    since: Option<Instant>,
    /// Directory of the attempt whose last words are shown, and what they are a transcript of.
    attempt: Option<(PathBuf, Option<Driver>)>,
}

impl Progress {
    /// A display that moves when `live`.
    pub(crate) fn new(live: bool) -> Self {
        let display = Display {
            began: Instant::now(),
            screen: live.then(Screen::new),
            rows: Vec::new(),
            spent: String::new(),
            announced: false,
        };
        Self {
            display: Arc::new(Mutex::new(display)),
            live,
        }
    }

    /// Whether there is something to refresh.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// What the engine tells about the run.
    pub(crate) fn observer(&self) -> ProgressObserver {
        ProgressObserver {
            progress: self.clone(),
        }
    }

    /// Brings elapsed times and last lines up to date.
    pub(crate) fn refresh(&self) {
        let mut display = self.lock();
        for row in &mut display.rows {
            let Some(since) = row.since else { continue };
            row.shown.time_ms = Some(milliseconds(since.elapsed()));
            let Some((attempt, driver)) = &row.attempt else {
                continue;
            };
            if let Some(said) = last_words(attempt, *driver) {
                row.shown.words = said;
            }
        }
        display.draw();
    }

    /// Says something beside the graph.
    pub(crate) fn note(&self, text: &str) {
        self.lock().say(text);
    }

    /// Leaves the graph as it stands at the end, and nothing that moves.
    pub(crate) fn finish(&self) {
        let mut display = self.lock();
        let rows: Vec<GraphRow> = display.rows.drain(..).map(|row| row.shown).collect();
        if let Some(screen) = &mut display.screen {
            screen.finish(&rows);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Display> {
        self.display.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Progress::observer`].
#[derive(Debug)]
pub(crate) struct ProgressObserver {
    progress: Progress,
}

impl RunObserver for ProgressObserver {
    fn observe(&mut self, event: &RunEvent, state: &RunState, directory: &Path) {
        let mut display = self.progress.lock();
        if !display.announced {
            display.begin(state);
        }
        let spent = money(Some(state.spent_usd()), state.cost_unknown());
        display.spent = match state.plan().limits.budget_usd {
            Some(budget) => format!("spent {spent} of ${budget:.2}"),
            None => format!("spent {spent}"),
        };
        display.take(event, state, directory);
        display.draw();
    }
}

impl Display {
    fn begin(&mut self, state: &RunState) {
        self.announced = true;
        let plan = state.plan();
        self.say(&format!(
            "{} · run {} · {}",
            paint(Style::Strong, &plan.recipe),
            paint(Style::Accent, plan.run.as_str()),
            one_line(&plan.title, 100),
        ));
        if self.screen.is_none() {
            return;
        }
        self.say(&paint(
            Style::Dim,
            &format!(
                "workspace {} · at most {} at once\n",
                plan.backend, plan.limits.max_parallel
            ),
        ));
        self.rows = state
            .nodes()
            .map(|(planned, progress)| Row {
                node: planned.node.id.clone(),
                shown: GraphRow {
                    name: planned.node.id.to_string(),
                    state: word(progress.phase, progress.outcome.as_ref()),
                    time_ms: progress.outcome.as_ref().map(|outcome| outcome.duration_ms),
                    lane: planned
                        .lane
                        .as_ref()
                        .map_or_else(String::new, |lane| lane.name.clone()),
                    words: progress
                        .outcome
                        .as_ref()
                        .map_or_else(String::new, |outcome| outcome.summary.clone()),
                },
                since: None,
                attempt: None,
            })
            .collect();
    }

    fn take(&mut self, event: &RunEvent, state: &RunState, directory: &Path) {
        match event {
            RunEvent::NodeStarted(start) => {
                let again = again(start.round, start.attempt);
                let attempt = RunDirectory::at(directory.to_owned()).attempt(
                    &start.node,
                    start.round,
                    start.attempt,
                );
                let driver = state.plan().driver(&start.node, start.lane.as_deref());
                if let Some(row) = self.row(&start.node) {
                    row.shown.state = "running";
                    row.shown.time_ms = Some(0);
                    row.shown.words = again.trim().to_owned();
                    row.since = Some(Instant::now());
                    row.attempt = Some((attempt, driver));
                }
                self.plain(&format!("{} started{again}", start.node));
            }
            RunEvent::NodeEnded { node, outcome, .. } => {
                let phase = state.node(node).map_or(Phase::Failed, |node| node.phase);
                let state_word = word(phase, Some(outcome));
                if let Some(row) = self.row(node) {
                    row.shown.state = state_word;
                    row.shown.time_ms = Some(outcome.duration_ms);
                    row.shown.words.clone_from(&outcome.summary);
                    row.since = None;
                }
                let ended = match phase {
                    Phase::Waiting => "failed, tried again",
                    _ => state_word,
                };
                self.plain(&format!(
                    "{node} {ended} after {}: {}",
                    duration(outcome.duration_ms),
                    one_line(&outcome.summary, 200)
                ));
            }
            RunEvent::RoundStarted { from, target, .. } => {
                let from: Vec<&str> = from.iter().map(NodeId::as_str).collect();
                let text = format!("{} sends the work back to {target}", from.join(" and "));
                for (planned, progress) in state.nodes() {
                    if progress.phase == Phase::Waiting
                        && let Some(row) = self.row(&planned.node.id)
                    {
                        row.shown.state = "waiting";
                        row.shown.time_ms = None;
                        row.shown.words.clear();
                    }
                }
                self.say(&text);
            }
            RunEvent::StopRequested { detail, .. } => {
                self.say(&format!("stopping: {}", one_line(detail, 300)));
            }
            RunEvent::Warned { text } => {
                let note = paint(Style::Warn, "note:");
                self.say(&format!("{note} {}", one_line(text, 300)));
            }
            RunEvent::Opened { .. }
            | RunEvent::Published(_)
            | RunEvent::Kept { .. }
            | RunEvent::Reopened
            | RunEvent::Closed(_) => {}
        }
    }

    fn row(&mut self, node: &NodeId) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| &row.node == node)
    }

    fn draw(&mut self) {
        if let Some(screen) = &mut self.screen
            && !self.rows.is_empty()
        {
            let rows: Vec<GraphRow> = self.rows.iter().map(|row| row.shown.clone()).collect();
            let footer = format!("{} · Ctrl-C stops, twice kills", self.spent);
            screen.draw(&rows, &footer);
        }
    }

    /// One line of a display that does not move.
    fn plain(&self, text: &str) {
        if self.screen.is_none() {
            let seconds = self.began.elapsed().as_secs_f64();
            super::err(&format!(
                "{} {text}\n",
                paint(Style::Dim, &format!("{seconds:7.1}s"))
            ));
        }
    }

    /// A line for both kinds of display.
    fn say(&mut self, text: &str) {
        match &mut self.screen {
            Some(screen) => screen.say(text),
            None => self.plain(text),
        }
    }
}

fn word(phase: Phase, outcome: Option<&NodeOutcome>) -> &'static str {
    match phase {
        Phase::Done if outcome.is_some_and(|outcome| outcome.skipped) => "skipped",
        Phase::Done => "done",
        Phase::Waiting => "waiting",
        Phase::Running => "running",
        Phase::Failed => "failed",
    }
}

fn again(round: u32, attempt: u32) -> String {
    match (round, attempt) {
        (1, 1) => String::new(),
        (round, 1) => format!(" (round {round})"),
        (round, attempt) => format!(" (round {round}, attempt {attempt})"),
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
