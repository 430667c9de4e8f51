//! Whether the runs of the tests show that the work is done.
//!
//! What counts is the exit code. The names in an output can only take a pass away, never give one,
//! because the tests that an agent writes can print anything.

use mini_ork_protocol::ExitOutcome;
use serde::{Deserialize, Serialize};

use super::names::{self, listed};
use super::script::how_it_ended;
use super::{Runner, TestOverlay, TestReport};

/// Signals that a run gets from outside when memory or patience ends; they say nothing about it.
const KILLED: [i32; 2] = [9, 15];
/// A shell adds this to the number of the signal that ended its program.
const SHELL_SIGNAL_BASE: i32 = 128;

/// One command of a [`TestRun`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRun {
    /// The command as it is shown to people.
    pub command: String,
    /// How its output was read.
    pub runner: Runner,
    /// How it ended.
    pub outcome: ExitOutcome,
    /// What its output says.
    pub report: TestReport,
}

/// All commands of a test plan, run in one tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestRun {
    /// In the order of the plan; none is left out because one before it failed.
    pub commands: Vec<CommandRun>,
}

/// The runs to judge from.
#[derive(Debug, Clone, Copy)]
pub struct Comparison<'a> {
    /// In the base.
    pub base: &'a TestRun,
    /// In the result.
    pub result: &'a TestRun,
    /// In the base with the tests of the result; needed when the overlay has changed tests.
    pub base_with_new_tests: Option<&'a TestRun>,
    /// Which files of the result are tests.
    pub tests: &'a TestOverlay,
}

/// What the runs show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// The decision.
    pub ruling: Ruling,
    /// It in one line, such as `base 41 passed, 1 failed → now 42 passed; …`.
    pub summary: String,
    /// The facts behind it, one line each.
    pub evidence: Vec<String>,
}

/// A decision over the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// The tests pass, and something that failed without the change shows that they test it.
    Pass,
    /// The tests fail, prove nothing, or are fewer than before.
    Fail,
    /// A run that is needed gave no verdict: it was stopped, ran out of time or never started.
    Inconclusive,
}

/// Judges the work. The same runs always give the same judgement.
pub fn judge(comparison: &Comparison<'_>) -> Judgement {
    let (ruling, reason) = rule(comparison);
    let summary = match ruling {
        Ruling::Inconclusive => reason,
        _ => format!("{}; {reason}", transition(comparison)),
    };
    Judgement {
        ruling,
        summary,
        evidence: evidence(comparison),
    }
}

/// What a run shows by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Green,
    Red,
    /// It ended well, and there was no test.
    Empty(String),
    /// It gave none, and why.
    NoVerdict(String),
}

fn rule(comparison: &Comparison<'_>) -> (Ruling, String) {
    let Comparison {
        base,
        result,
        base_with_new_tests,
        tests,
    } = comparison;
    match result_state(result) {
        State::NoVerdict(reason) => return (Ruling::Inconclusive, format!("no verdict: {reason}")),
        State::Red => return (Ruling::Fail, failures(base, result)),
        State::Empty(reason) => return (Ruling::Fail, reason),
        State::Green => {}
    }
    if !tests.removed.is_empty() {
        return (
            Ruling::Fail,
            format!("test files were deleted: {}", listed(&tests.removed)),
        );
    }
    let base_state = state(base);
    if let State::NoVerdict(reason) = base_state {
        return (
            Ruling::Inconclusive,
            format!("nothing to compare with: on the base {reason}"),
        );
    }
    if base.commands.len() != result.commands.len() {
        return (
            Ruling::Inconclusive,
            "nothing to compare with: other commands ran on the base".to_owned(),
        );
    }
    if let Some(reason) = names::lost(base, result) {
        return (Ruling::Fail, reason);
    }
    if tests.changed.is_empty() {
        return match base_state {
            State::Red => (Ruling::Pass, repaired(base, result)),
            _ => unproven(
                comparison,
                "nothing fails on the base, so nothing tests the change".to_owned(),
            ),
        };
    }
    let Some(mixed) = base_with_new_tests else {
        let reason = "no verdict: the changed tests were not run on the base";
        return (Ruling::Inconclusive, reason.to_owned());
    };
    match state(mixed) {
        State::NoVerdict(reason) => (
            Ruling::Inconclusive,
            format!("no verdict: with the changed tests on the base {reason}"),
        ),
        State::Red => proof(comparison, mixed),
        State::Green | State::Empty(_) if base_state == State::Red => {
            let failed = names::failed(base)
                .into_iter()
                .map(|(_, name)| name)
                .collect::<Vec<_>>();
            let what = if failed.is_empty() {
                "the base fails".to_owned()
            } else {
                format!("{} failed on the base", listed(&failed))
            };
            (
                Ruling::Fail,
                format!(
                    "{what} and with the changed tests the base passes: the tests were changed, not the code"
                ),
            )
        }
        State::Green | State::Empty(_) => {
            let files = listed(&tests.changed);
            unproven(
                comparison,
                format!("the changed tests pass on the base and prove nothing: {files}"),
            )
        }
    }
}

/// The base fails with the changed tests in place: whether that comes from what they test.
fn proof(comparison: &Comparison<'_>, mixed: &TestRun) -> (Ruling, String) {
    let Comparison { base, result, .. } = comparison;
    let failed_before = names::failed(base);
    let fails_mixed = names::failed(mixed);
    let passes_mixed = names::passed(mixed);
    let passes_now = names::passed(result);
    let bent: Vec<&str> = failed_before
        .intersection(&passes_mixed)
        .map(|(_, name)| *name)
        .collect();
    if !bent.is_empty() {
        let reason = format!(
            "{} failed on the base and passes there with the changed tests: the test was changed, not the code",
            listed(&bent)
        );
        return (Ruling::Fail, reason);
    }
    if fails_mixed.is_empty() {
        // A test of something that is not there yet does not compile.
        return (
            Ruling::Pass,
            "with the changed tests the base does not build or run".to_owned(),
        );
    }
    let now_pass =
        |name: &&(usize, &str)| passes_now.contains(*name) || !names::are_complete(result);
    let fresh: Vec<&str> = fails_mixed
        .difference(&failed_before)
        .filter(now_pass)
        .map(|(_, name)| *name)
        .collect();
    if !fresh.is_empty() {
        let verb = if fresh.len() == 1 { "fails" } else { "fail" };
        return (
            Ruling::Pass,
            format!(
                "of the new or changed tests {} {verb} on the base",
                listed(&fresh)
            ),
        );
    }
    if fails_mixed.iter().any(|name| now_pass(&name)) {
        return (Ruling::Pass, repaired(base, result));
    }
    let names: Vec<&str> = fails_mixed.iter().map(|(_, name)| *name).collect();
    (
        Ruling::Fail,
        format!(
            "what fails on the base does not run now: {}",
            listed(&names)
        ),
    )
}

/// New code with tests of its own cannot fail on a base that has neither; anything else that
/// passes on the base proves nothing.
fn unproven(comparison: &Comparison<'_>, reason: String) -> (Ruling, String) {
    let files = &comparison.tests.new_sources;
    let more_tests = total(comparison.result).passed > total(comparison.base).passed;
    if !files.is_empty() && more_tests {
        let reason = format!(
            "the base does not have what the new tests test: {}",
            listed(files)
        );
        return (Ruling::Pass, reason);
    }
    (Ruling::Fail, reason)
}

fn repaired(base: &TestRun, result: &TestRun) -> String {
    let passes_now = names::passed(result);
    let failed = names::failed(base);
    let repaired: Vec<&str> = failed
        .intersection(&passes_now)
        .map(|(_, name)| *name)
        .collect();
    match repaired.len() {
        0 => "the base fails and the result passes".to_owned(),
        1 => format!("{} failed on the base and passes now", listed(&repaired)),
        _ => format!("{} failed on the base and pass now", listed(&repaired)),
    }
}

fn failures(base: &TestRun, result: &TestRun) -> String {
    let failed_before = names::failed(base);
    let (old, new): (Vec<_>, Vec<_>) = names::failed(result)
        .into_iter()
        .partition(|name| failed_before.contains(name));
    let only_names = |names: Vec<(usize, &str)>| -> Vec<String> {
        names.into_iter().map(|(_, name)| name.to_owned()).collect()
    };
    let (old, new) = (only_names(old), only_names(new));
    match (new.is_empty(), old.is_empty()) {
        (false, true) => format!("failed now: {}", listed(&new)),
        (false, false) => {
            format!(
                "failed now: {}; and as on the base: {}",
                listed(&new),
                listed(&old)
            )
        }
        (true, false) => format!("failed as on the base: {}", listed(&old)),
        (true, true) => match state(base) {
            State::Red => "failed as on the base".to_owned(),
            State::Green => "failed now and not on the base".to_owned(),
            _ => "failed now".to_owned(),
        },
    }
}

/// The state of a run of the result: here a failure that the output tells of counts as one.
fn result_state(run: &TestRun) -> State {
    match state(run) {
        State::Green | State::Empty(_)
            if run.commands.iter().any(|command| command.report.failed > 0) =>
        {
            State::Red
        }
        other => other,
    }
}

/// The state of a run by its exit codes. On the base a test that only claims to have failed would
/// be a proof that costs nothing.
fn state(run: &TestRun) -> State {
    let mut state = State::Green;
    if run.commands.is_empty() {
        return State::NoVerdict("no command ran".to_owned());
    }
    for command in &run.commands {
        let next = command_state(command);
        let worse = match (&state, &next) {
            (_, State::NoVerdict(_)) => true,
            (State::NoVerdict(_), _) => false,
            (_, State::Red) => true,
            (State::Red, _) => false,
            (State::Green, State::Empty(_)) => true,
            _ => false,
        };
        if worse {
            state = next;
        }
    }
    state
}

fn command_state(run: &CommandRun) -> State {
    let CommandRun {
        command,
        runner,
        outcome,
        report,
    } = run;
    let no_verdict = || State::NoVerdict(format!("`{command}` {}", how_it_ended(outcome)));
    match outcome {
        ExitOutcome::Exited { code: 0 } => {
            if report.ran() > 0 || !(report.counted || runner.always_counts()) {
                State::Green
            } else if report.counted {
                State::Empty(format!("`{command}` ran no test"))
            } else {
                State::Empty(format!("`{command}` shows no test in its output"))
            }
        }
        ExitOutcome::Exited { code }
            if KILLED
                .iter()
                .any(|signal| *code == SHELL_SIGNAL_BASE + signal) =>
        {
            no_verdict()
        }
        ExitOutcome::Exited { code } if runner.says_no_tests(*code) && report.ran() == 0 => {
            State::Empty(format!("`{command}` ran no test"))
        }
        ExitOutcome::Signaled { signal } if KILLED.contains(signal) => no_verdict(),
        ExitOutcome::Exited { .. } | ExitOutcome::Signaled { .. } => State::Red,
        ExitOutcome::TimedOut
        | ExitOutcome::Stopped
        | ExitOutcome::OutputLimit
        | ExitOutcome::SpawnFailed { .. } => no_verdict(),
    }
}

fn transition(comparison: &Comparison<'_>) -> String {
    format!(
        "base {} → now {}",
        numbers(comparison.base),
        numbers(comparison.result)
    )
}

/// `41 passed, 1 failed, 2 ignored`, or how it ended when nothing was counted.
fn numbers(run: &TestRun) -> String {
    let total = total(run);
    let parts = [
        (total.passed, "passed"),
        (total.failed, "failed"),
        (total.ignored, "ignored"),
    ];
    let shown = parts.iter().filter(|(count, _)| *count > 0);
    let mut shown: Vec<String> = shown
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    let says_red = total.failed > 0;
    let state = state(run);
    match state {
        State::Red if !says_red => shown.push("failed".to_owned()),
        State::Green if shown.is_empty() => shown.push("passed".to_owned()),
        State::Empty(_) if shown.is_empty() => shown.push("no tests".to_owned()),
        State::NoVerdict(_) => shown.push("no verdict".to_owned()),
        _ => {}
    }
    shown.join(", ")
}

fn total(run: &TestRun) -> TestReport {
    let mut total = TestReport::default();
    for report in run.commands.iter().map(|command| &command.report) {
        total.passed = total.passed.saturating_add(report.passed);
        total.failed = total.failed.saturating_add(report.failed);
        total.ignored = total.ignored.saturating_add(report.ignored);
    }
    total
}

fn evidence(comparison: &Comparison<'_>) -> Vec<String> {
    let mut evidence = Vec::new();
    let runs = [
        ("base", Some(comparison.base)),
        (
            "base with the changed tests",
            comparison.base_with_new_tests,
        ),
        ("now", Some(comparison.result)),
    ];
    for (place, run) in runs {
        for command in run.iter().flat_map(|run| &run.commands) {
            let single = TestRun {
                commands: vec![command.clone()],
            };
            evidence.push(format!(
                "{place}: `{}` {}: {}",
                command.command,
                how_it_ended(&command.outcome),
                numbers(&single)
            ));
        }
    }
    let tests = comparison.tests;
    for (title, files) in [
        ("changed tests", &tests.changed),
        ("deleted tests", &tests.removed),
        ("new code with tests", &tests.new_sources),
    ] {
        if !files.is_empty() {
            evidence.push(format!("{title}: {}", listed(files)));
        }
    }
    evidence.extend(tests.notes.iter().cloned());
    evidence
}
