//! Compares runs by the names of their tests.

use std::collections::BTreeSet;
use std::fmt::Display;

use super::Status;
use super::judge::{CommandRun, TestRun};

/// Names that one sentence shows.
const SHOWN: usize = 5;
/// Longest shown part of a name, in characters; parameters of a test can make up any length.
const LONGEST_NAME: usize = 120;

/// A test of one of the commands of a run. Two commands may run tests of one name.
pub(super) type Name<'a> = (usize, &'a str);

/// Tests that failed.
pub(super) fn failed(run: &TestRun) -> BTreeSet<Name<'_>> {
    with_status(run, Status::Failed)
}

/// Tests that passed.
pub(super) fn passed(run: &TestRun) -> BTreeSet<Name<'_>> {
    with_status(run, Status::Passed)
}

/// Whether every test that ran is known by name.
pub(super) fn are_complete(run: &TestRun) -> bool {
    run.commands.iter().all(|command| command.report.named)
}

/// A sentence about tests that ran on the base and do not run in the result.
///
/// By name where both runs have names, else by number. A renamed test is lost: who renames it can
/// as well have written another one.
pub(super) fn lost(base: &TestRun, result: &TestRun) -> Option<String> {
    let pairs = base.commands.iter().zip(&result.commands);
    pairs
        .into_iter()
        .find_map(|(base, result)| lost_by_command(base, result))
}

fn lost_by_command(base: &CommandRun, result: &CommandRun) -> Option<String> {
    let (before, now) = (&base.report, &result.report);
    if before.ran() == 0 {
        return None;
    }
    if !(before.named && now.named) {
        let fewer = now.ran() < before.ran();
        return fewer.then(|| {
            let (before, now) = (before.ran(), now.ran());
            format!("fewer tests run than on the base, {now} instead of {before}")
        });
    }
    let ran = before
        .tests
        .iter()
        .filter(|(_, status)| **status != Status::Ignored);
    let (mut gone, mut ignored) = (Vec::new(), Vec::new());
    for (name, _) in ran {
        match now.tests.get(name) {
            None => gone.push(name),
            Some(Status::Ignored) => ignored.push(name),
            Some(_) => {}
        }
    }
    let sentence = |names: &[&String], what: &str| {
        (!names.is_empty()).then(|| format!("ran on the base and {what} now: {}", listed(names)))
    };
    sentence(&gone, "does not run").or_else(|| sentence(&ignored, "is ignored"))
}

fn with_status(run: &TestRun, status: Status) -> BTreeSet<Name<'_>> {
    let numbered = run.commands.iter().enumerate();
    numbered
        .flat_map(|(index, command)| {
            command
                .report
                .with_status(status)
                .map(move |name| (index, name))
        })
        .collect()
}

/// `` `a`, `b` and 3 more ``
pub(super) fn listed<T: Display>(names: &[T]) -> String {
    let shown: Vec<String> = names
        .iter()
        .take(SHOWN)
        .map(|name| quoted(&name.to_string()))
        .collect();
    let rest = names.len().saturating_sub(SHOWN);
    if rest == 0 {
        shown.join(", ")
    } else {
        format!("{} and {rest} more", shown.join(", "))
    }
}

fn quoted(name: &str) -> String {
    let printable = name.chars().map(|character| {
        if character.is_control() {
            '?'
        } else {
            character
        }
    });
    let mut shown: String = printable.clone().take(LONGEST_NAME).collect();
    if printable.count() > LONGEST_NAME {
        shown.push('…');
    }
    format!("`{shown}`")
}
