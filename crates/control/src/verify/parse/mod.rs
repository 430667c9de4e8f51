//! Reads what tests ran from the output of a test runner.
//!
//! The tests themselves can write to the same output, so a report is a description and never the
//! ground of a pass: that is the exit code. A report can only take a pass away.

mod cargo;
mod go;
mod node;
mod pytest;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Runner;

/// Longest line that is looked at; no runner writes longer ones about a test.
const LONGEST_LINE: usize = 8 * 1024;

/// What one run of a test runner says about its tests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestReport {
    /// Tests by name. Of several tests with one name, the later ones are called `name (2)`….
    pub tests: BTreeMap<String, Status>,
    /// Whether `tests` names every test that passed or failed, so that a name that is missing means
    /// a test that did not run.
    pub named: bool,
    /// Whether the output said how many tests there were; the numbers are 0 when it did not.
    pub counted: bool,
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed, and errors of the runner that stand for tests.
    pub failed: u64,
    /// Tests that were there and did not run.
    pub ignored: u64,
}

/// How one test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It ran and passed.
    Passed,
    /// It ran and failed.
    Failed,
    /// It did not run, or its result was declared not to count.
    Ignored,
}

impl TestReport {
    /// Tests that ran.
    pub fn ran(&self) -> u64 {
        self.passed.saturating_add(self.failed)
    }

    /// Names of tests with `status`.
    pub fn with_status(&self, status: Status) -> impl Iterator<Item = &str> {
        self.tests
            .iter()
            .filter(move |(_, is)| **is == status)
            .map(|(name, _)| name.as_str())
    }

    /// A report from names, and from the runner's own numbers where it gave some.
    fn new(found: Vec<(String, Status)>, counts: Option<Counts>) -> Self {
        let count = |status| found.iter().filter(|(_, is)| *is == status).count() as u64;
        let (passed, failed) = (count(Status::Passed), count(Status::Failed));
        let listed = Counts {
            passed,
            failed,
            ignored: count(Status::Ignored),
        };
        let named = counts.is_none_or(|counts| (counts.passed, counts.failed) == (passed, failed));
        let counted = counts.is_some() || !found.is_empty();
        let total = counts.unwrap_or(listed);
        Self {
            tests: by_name(found),
            named: named && counted,
            counted,
            passed: total.passed,
            // A failure that only a name or only the numbers tell of is a failure.
            failed: total.failed.max(listed.failed),
            ignored: total.ignored,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

/// Reads the output of `runner`. Never fails: what is not understood is not counted.
pub fn parse(runner: Runner, stdout: &[u8], stderr: &[u8]) -> TestReport {
    match runner {
        // Headers such as `Running tests/x.rs` are on the other stream, and its place between the
        // lines is lost, so equal names of several binaries are told apart by their order.
        Runner::Cargo => cargo::parse(&lines(stdout)),
        // nextest writes to stderr; a shell command may have joined the streams.
        Runner::Nextest => cargo::parse_nextest(&[lines(stderr), lines(stdout)].concat()),
        Runner::Pytest => pytest::parse(&lines(stdout)),
        Runner::Go => go::parse(&lines(stdout)),
        Runner::Node => node::parse(&lines(stdout), &lines(stderr)),
        Runner::Unknown => TestReport::default(),
    }
}

/// Numbers tests of one name by how they ended, not by their place: the order in which a runner
/// starts them may change between two runs.
fn by_name(mut found: Vec<(String, Status)>) -> BTreeMap<String, Status> {
    found.sort();
    let mut tests = BTreeMap::new();
    let mut occurrence = 1;
    let mut previous = String::new();
    for (name, status) in found {
        occurrence = if name == previous { occurrence + 1 } else { 1 };
        let key = if occurrence == 1 {
            name.clone()
        } else {
            format!("{name} ({occurrence})")
        };
        tests.insert(key, status);
        previous = name;
    }
    tests
}

/// The lines of an output, without colours, other control characters and endless lines.
fn lines(output: &[u8]) -> Vec<String> {
    output
        .split(|&byte| byte == b'\n')
        .filter(|line| line.len() <= LONGEST_LINE)
        .map(|line| plain(&String::from_utf8_lossy(line)))
        .collect()
}

fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' && characters.peek() == Some(&'[') {
            characters.next();
            // Parameters, up to the letter that ends the sequence.
            while characters
                .next_if(|next| matches!(next, '\u{20}'..='\u{3f}'))
                .is_some()
            {}
            characters.next_if(|next| matches!(next, '\u{40}'..='\u{7e}'));
        } else if character == '\t' || !character.is_control() {
            plain.push(character);
        }
    }
    plain
}

/// The number in front of `word` in a list such as `3 passed, 1 failed`.
fn number_before(text: &str, word: &str) -> Option<u64> {
    let words: Vec<&str> = text
        .split(|character: char| character.is_whitespace() || ",;|()=".contains(character))
        .filter(|word| !word.is_empty())
        .collect();
    words
        .windows(2)
        .find(|pair| pair[1] == word)
        .and_then(|pair| pair[0].parse().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn colours_and_carriage_returns_are_no_part_of_a_line() {
        assert_eq!(
            lines(b"\x1b[1;32mtest a ... ok\x1b[0m\r\nb\x07\xff"),
            ["test a ... ok", "b\u{fffd}"]
        );
    }

    #[test]
    fn equal_names_are_numbered_by_their_result() {
        let found = [
            ("a", Status::Ignored),
            ("a", Status::Passed),
            ("b", Status::Failed),
        ];
        let found = found
            .map(|(name, status)| (name.to_owned(), status))
            .to_vec();
        let tests: Vec<(String, Status)> = by_name(found).into_iter().collect();
        assert_eq!(
            tests,
            [
                ("a".to_owned(), Status::Passed),
                ("a (2)".to_owned(), Status::Ignored),
                ("b".to_owned(), Status::Failed)
            ]
        );
    }

    #[test]
    fn an_unknown_runner_counts_nothing() {
        assert_eq!(
            parse(Runner::Unknown, b"test a ... ok\n", b""),
            TestReport::default()
        );
    }

    const PIECES: &str = "(test |running 2 tests|ok|not ok|FAILED| \\.\\.\\. |test result: ok\\. |[0-9]{1,25} (passed|failed);|PASSED |::|=== RUN|--- PASS: |FAIL\t|TAP version 13|# Subtest: | PASS \\[|\\] |Summary \\[|Tests:|    |\n|\u{e9}|# pass |short test summary info|=|[a-z]){0,40}";

    proptest! {
        #[test]
        fn any_output_has_a_report(stdout in PIECES, stderr in PIECES, bytes: Vec<u8>) {
            for runner in
                [Runner::Cargo, Runner::Nextest, Runner::Pytest, Runner::Go, Runner::Node]
            {
                let report = parse(runner, stdout.as_bytes(), stderr.as_bytes());
                prop_assert!(report.counted || report.ran() == 0);
                prop_assert!(report.failed >= report.with_status(Status::Failed).count() as u64);
                let _ = parse(runner, &bytes, &bytes);
            }
        }
    }
}
