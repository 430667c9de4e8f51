use std::collections::BTreeMap;

use bstr::BString;

use mini_ork_protocol::ExitOutcome;

use super::names::listed;
use super::*;

/// A run of `cargo test`: `code` and tests such as `a+ b- c~` for passed, failed and ignored.
pub(super) fn run(code: i32, tests: &str) -> TestRun {
    outcome_run(ExitOutcome::Exited { code }, Runner::Cargo, tests)
}

fn outcome_run(outcome: ExitOutcome, runner: Runner, tests: &str) -> TestRun {
    let mut named = BTreeMap::new();
    for test in tests.split_whitespace() {
        let (name, mark) = test.split_at(test.len() - 1);
        let status = match mark {
            "+" => Status::Passed,
            "-" => Status::Failed,
            _ => Status::Ignored,
        };
        named.insert(name.to_owned(), status);
    }
    let count = |status| named.values().filter(|is| **is == status).count() as u64;
    let (passed, failed, ignored) = (
        count(Status::Passed),
        count(Status::Failed),
        count(Status::Ignored),
    );
    let counted = !tests.is_empty();
    let report = TestReport {
        tests: named,
        named: counted,
        counted,
        passed,
        failed,
        ignored,
    };
    let command = CommandRun {
        command: "cargo test".to_owned(),
        runner,
        outcome,
        report,
    };
    TestRun {
        commands: vec![command],
    }
}

/// A run of a program that only has an exit code.
pub(super) fn silent(code: i32) -> TestRun {
    outcome_run(ExitOutcome::Exited { code }, Runner::Unknown, "")
}

fn counted_only(code: i32, passed: u64) -> TestRun {
    let mut run = outcome_run(ExitOutcome::Exited { code }, Runner::Node, "");
    run.commands[0].report = TestReport {
        counted: true,
        passed,
        ..TestReport::default()
    };
    run
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Tests {
    Same,
    Changed,
    Removed,
    NewSource,
    ChangedAndNewSource,
}

fn tests(kind: Tests) -> TestOverlay {
    let file = |name: &str| vec![BString::from(name)];
    let mut overlay = TestOverlay::default();
    if matches!(kind, Tests::Changed | Tests::ChangedAndNewSource) {
        overlay.changed = file("tests/t.rs");
    }
    if matches!(kind, Tests::NewSource | Tests::ChangedAndNewSource) {
        overlay.new_sources = file("src/new.rs");
    }
    if matches!(kind, Tests::Removed) {
        overlay.removed = file("tests/t.rs");
    }
    overlay
}

pub(super) fn judged(
    base: &TestRun,
    mixed: Option<&TestRun>,
    result: &TestRun,
    kind: Tests,
) -> (Ruling, String) {
    let tests = tests(kind);
    let judgement = judge(&Comparison {
        base,
        result,
        base_with_new_tests: mixed,
        tests: &tests,
    });
    (judgement.ruling, judgement.summary)
}

#[test]
fn without_changed_tests_the_base_must_fail() {
    let table = [
        (
            run(101, "a+ b-"),
            run(0, "a+ b+"),
            Ruling::Pass,
            "base 1 passed, 1 failed → now 2 passed; `b` failed on the base and passes now",
        ),
        (
            run(101, "a- b-"),
            run(0, "a+ b+"),
            Ruling::Pass,
            "base 2 failed → now 2 passed; `a`, `b` failed on the base and pass now",
        ),
        // A base that does not compile is red.
        (
            run(101, ""),
            run(0, "a+"),
            Ruling::Pass,
            "base failed → now 1 passed; the base fails and the result passes",
        ),
        (
            silent(1),
            silent(0),
            Ruling::Pass,
            "base failed → now passed; the base fails and the result passes",
        ),
        (
            run(0, "a+"),
            run(0, "a+"),
            Ruling::Fail,
            "base 1 passed → now 1 passed; nothing fails on the base, so nothing tests the change",
        ),
        (
            silent(0),
            silent(0),
            Ruling::Fail,
            "base passed → now passed; nothing fails on the base, so nothing tests the change",
        ),
        // More tests in files that are no tests by their path prove nothing.
        (
            run(0, "a+"),
            run(0, "a+ b+"),
            Ruling::Fail,
            "base 1 passed → now 2 passed; nothing fails on the base, so nothing tests the change",
        ),
        // No tests at all are not red.
        (
            run(0, ""),
            run(0, "a+"),
            Ruling::Fail,
            "base no tests → now 1 passed; nothing fails on the base, so nothing tests the change",
        ),
        (
            outcome_run(ExitOutcome::Exited { code: 5 }, Runner::Pytest, ""),
            run(0, "a+"),
            Ruling::Fail,
            "base no tests → now 1 passed; nothing fails on the base, so nothing tests the change",
        ),
    ];
    for (base, result, ruling, summary) in table {
        assert_eq!(
            judged(&base, None, &result, Tests::Same),
            (ruling, summary.to_owned())
        );
    }
}

#[test]
fn a_red_result_fails_and_says_what_failed_before() {
    let table = [
        (
            run(0, "a+ b+"),
            run(101, "a+ b-"),
            "base 2 passed → now 1 passed, 1 failed; failed now: `b`",
        ),
        (
            run(101, "a- b+"),
            run(101, "a- b-"),
            "base 1 passed, 1 failed → now 2 failed; failed now: `b`; and as on the base: `a`",
        ),
        (
            run(101, "a- b+"),
            run(101, "a- b+"),
            "base 1 passed, 1 failed → now 1 passed, 1 failed; failed as on the base: `a`",
        ),
        (
            silent(1),
            silent(2),
            "base failed → now failed; failed as on the base",
        ),
        (
            silent(0),
            silent(1),
            "base passed → now failed; failed now and not on the base",
        ),
        // The text says failed, whatever the exit code says.
        (
            run(101, "a-"),
            run(0, "a-"),
            "base 1 failed → now 1 failed; failed as on the base: `a`",
        ),
        // The exit code says failed, whatever the text says.
        (
            run(101, "a-"),
            run(101, "a+"),
            "base 1 failed → now 1 passed, failed; failed as on the base",
        ),
        (
            run(0, ""),
            run(101, ""),
            "base no tests → now failed; failed now",
        ),
    ];
    for (base, result, summary) in table {
        let expected = (Ruling::Fail, summary.to_owned());
        assert_eq!(judged(&base, None, &result, Tests::Same), expected);
        // Nothing else turns it around.
        let mixed = run(101, "a+ b-");
        for kind in [Tests::Changed, Tests::Removed, Tests::ChangedAndNewSource] {
            assert_eq!(judged(&base, Some(&mixed), &result, kind), expected);
        }
    }
}

#[test]
fn tests_must_not_disappear() {
    let red = run(101, "a+ b-");
    let table = [
        (
            run(101, "a+ b-"),
            run(0, "b+"),
            "base 1 passed, 1 failed → now 1 passed; ran on the base and does not run now: `a`",
        ),
        (
            run(101, "a+ b-"),
            run(0, "a+ b~"),
            "base 1 passed, 1 failed → now 1 passed, 1 ignored; ran on the base and is ignored now: `b`",
        ),
        (
            run(101, "a+ b-"),
            run(0, "a+ renamed+"),
            "base 1 passed, 1 failed → now 2 passed; ran on the base and does not run now: `b`",
        ),
        (
            counted_only(1, 9),
            counted_only(0, 8),
            "base 9 passed, failed → now 8 passed; fewer tests run than on the base, 8 instead of 9",
        ),
        (
            counted_only(1, 9),
            silent(0),
            "base 9 passed, failed → now passed; fewer tests run than on the base, 0 instead of 9",
        ),
    ];
    for (base, result, summary) in table {
        let expected = (Ruling::Fail, summary.to_owned());
        assert_eq!(judged(&base, None, &result, Tests::Same), expected);
        assert_eq!(judged(&base, Some(&red), &result, Tests::Changed), expected);
    }
    assert_eq!(
        judged(&red, None, &run(0, "a+ b+"), Tests::Removed),
        (
            Ruling::Fail,
            "base 1 passed, 1 failed → now 2 passed; test files were deleted: `tests/t.rs`"
                .to_owned()
        )
    );
    let ignored_before = judged(&run(101, "a- b~"), None, &run(0, "a+"), Tests::Same);
    assert_eq!(ignored_before.0, Ruling::Pass);
}

#[test]
fn a_green_run_without_tests_is_vacuous() {
    let zero = {
        let mut run = run(0, "");
        run.commands[0].report.counted = true;
        run
    };
    let table = [
        (
            zero,
            "base 1 failed → now no tests; `cargo test` ran no test",
        ),
        (
            run(0, ""),
            "base 1 failed → now no tests; `cargo test` shows no test in its output",
        ),
        (
            run(0, "a~"),
            "base 1 failed → now 1 ignored; `cargo test` ran no test",
        ),
        (
            counted_only(0, 0),
            "base 1 failed → now no tests; `cargo test` ran no test",
        ),
    ];
    for (result, summary) in table {
        let expected = (Ruling::Fail, summary.to_owned());
        assert_eq!(
            judged(&run(101, "a-"), None, &result, Tests::Same),
            expected
        );
    }
}

#[test]
fn a_run_without_an_end_is_no_verdict() {
    let (green, red) = (run(0, "a+"), run(101, "a-"));
    let ends = [
        (ExitOutcome::TimedOut, "ran out of time"),
        (ExitOutcome::Stopped, "was stopped"),
        (ExitOutcome::OutputLimit, "took too much of the disk"),
        (
            ExitOutcome::SpawnFailed {
                message: "ENOENT".to_owned(),
            },
            "could not be started (ENOENT)",
        ),
        (
            ExitOutcome::Signaled { signal: 9 },
            "was killed by signal 9",
        ),
        (
            ExitOutcome::Exited { code: 143 },
            "ended with exit code 143",
        ),
    ];
    for (outcome, text) in ends {
        let ended = outcome_run(outcome, Runner::Cargo, "a+");
        let expected = |start: &str| (Ruling::Inconclusive, format!("{start} `cargo test` {text}"));
        assert_eq!(
            judged(&red, None, &ended, Tests::Same),
            expected("no verdict:")
        );
        assert_eq!(
            judged(&ended, None, &green, Tests::Same),
            expected("nothing to compare with: on the base")
        );
        assert_eq!(
            judged(&green, Some(&ended), &green, Tests::Changed),
            expected("no verdict: with the changed tests on the base")
        );
        // What is certain without it is said.
        assert_eq!(judged(&ended, None, &red, Tests::Same).0, Ruling::Fail);
    }
    assert_eq!(
        judged(&red, None, &green, Tests::Changed),
        (
            Ruling::Inconclusive,
            "no verdict: the changed tests were not run on the base".to_owned()
        )
    );
    let nothing = TestRun::default();
    assert_eq!(
        judged(&red, None, &nothing, Tests::Same).0,
        Ruling::Inconclusive
    );
    let two = TestRun {
        commands: [green.commands.clone(), green.commands.clone()].concat(),
    };
    assert_eq!(
        judged(&red, None, &two, Tests::Same).0,
        Ruling::Inconclusive
    );
    // A crash of the tests themselves is a failure.
    let crash = outcome_run(ExitOutcome::Signaled { signal: 11 }, Runner::Cargo, "a+");
    assert_eq!(judged(&crash, None, &green, Tests::Same).0, Ruling::Pass);
}

#[test]
fn every_command_counts() {
    let both = |one: &TestRun, two: &TestRun| TestRun {
        commands: [one.commands.clone(), two.commands.clone()].concat(),
    };
    let (green, red) = (run(0, "a+"), run(101, "a-"));
    let base = both(&red, &silent(0));
    assert_eq!(
        judged(&base, None, &both(&green, &silent(0)), Tests::Same).0,
        Ruling::Pass
    );
    assert_eq!(
        judged(&base, None, &both(&green, &silent(1)), Tests::Same).0,
        Ruling::Fail
    );
    assert_eq!(
        judged(&base, None, &both(&green, &run(0, "")), Tests::Same).0,
        Ruling::Fail
    );
    // A name belongs to its command: the second `a` cannot stand for the first.
    let base = both(&red, &green);
    assert_eq!(
        judged(&base, None, &both(&run(0, "b+"), &green), Tests::Same).0,
        Ruling::Fail
    );
}

#[test]
fn the_evidence_names_every_run() {
    let mut overlay = tests(Tests::Changed);
    overlay.notes.push("a note".to_owned());
    let (base, mixed, result) = (run(0, "a+"), run(101, "a+ n-"), run(0, "a+ n+"));
    let judgement = judge(&Comparison {
        base: &base,
        result: &result,
        base_with_new_tests: Some(&mixed),
        tests: &overlay,
    });
    assert_eq!(
        judgement.evidence,
        [
            "base: `cargo test` ended with exit code 0: 1 passed",
            "base with the changed tests: `cargo test` ended with exit code 101: 1 passed, 1 failed",
            "now: `cargo test` ended with exit code 0: 2 passed",
            "changed tests: `tests/t.rs`",
            "a note",
        ]
    );
}

#[test]
fn long_lists_and_names_are_cut() {
    let names: Vec<String> = (0..7)
        .map(|index| format!("{index}\u{1b}{}", "x".repeat(200)))
        .collect();
    let shown = listed(&names);
    assert!(shown.ends_with(" and 2 more") && shown.contains("0?xx") && shown.contains("x…`, `1"));
    assert!(shown.chars().count() < 700);
}
