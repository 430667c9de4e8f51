use std::collections::BTreeMap;

use super::{Counts, Status, TestReport, number_before};

/// pytest; with `-rA` every test that passed or failed is listed by name.
pub(super) fn parse(lines: &[String]) -> TestReport {
    // The summary is the last thing that pytest writes; a header above it was printed by a test.
    let summary = lines
        .iter()
        .rposition(|line| line.contains("short test summary info"));
    let listed = summary.map_or(&[][..], |start| &lines[start + 1..]);
    let (mut tests, mut passed, mut failed) = (BTreeMap::new(), 0, 0);
    for line in listed {
        let Some((word, rest)) = line.split_once(' ') else {
            continue;
        };
        let status = match word {
            "PASSED" | "XPASS" => Status::Passed,
            "FAILED" | "ERROR" => Status::Failed,
            "XFAIL" | "SKIPPED" => Status::Ignored,
            _ => continue,
        };
        let Some(name) = node_id(rest) else { continue };
        match word {
            "PASSED" | "XPASS" => passed += 1,
            "FAILED" => failed += 1,
            _ => {}
        }
        // A test that passed and then failed to clean up is listed twice.
        let entry = tests.entry(name).or_insert(status);
        if status == Status::Failed {
            *entry = status;
        }
    }
    let counts = lines
        .iter()
        .rev()
        .find_map(|line| totals(line))
        .or_else(|| progress(lines));
    let mut report = TestReport::new(tests.into_iter().collect(), counts.map(|(total, _)| total));
    if let Some((total, errors)) = counts {
        let failures = total.failed.saturating_sub(errors);
        report.named = (total.passed, failures) == (passed, failed);
    }
    report
}

/// The id of a test without the reason behind it. An id with parameters may contain the separator.
fn node_id(text: &str) -> Option<String> {
    let mut position = 0;
    let mut id = text;
    while let Some(offset) = text[position..].find(" - ") {
        let candidate = &text[..position + offset];
        if !candidate.contains('[') || candidate.ends_with(']') {
            id = candidate;
            break;
        }
        position += offset + 3;
    }
    // A file that cannot be imported is an error of its own, but no test.
    id.contains("::").then(|| id.trim().to_owned())
}

/// `=== 3 passed, 1 failed, 1 error in 0.12s ===`, and how many of the failures are errors.
fn totals(line: &str) -> Option<(Counts, u64)> {
    let text = line.trim_matches(|character| character == '=' || character == ' ');
    let (text, time) = text.rsplit_once(" in ")?;
    let timed = time.starts_with(|character: char| character.is_ascii_digit())
        && time
            .split([' ', 's'])
            .next()
            .is_some_and(|seconds| seconds.parse::<f64>().is_ok());
    if !timed {
        return None;
    }
    if text == "no tests ran" {
        return Some((Counts::default(), 0));
    }
    let words = [
        "passed",
        "failed",
        "error",
        "errors",
        "skipped",
        "xfailed",
        "xpassed",
        "deselected",
        "warning",
        "warnings",
    ];
    // Every part must be a number and one of the words: a line of a program may end like this too.
    for part in text.split(", ") {
        let (number, word) = part.split_once(' ')?;
        number.parse::<u64>().ok()?;
        if !words.contains(&word) && !word.starts_with("subtests ") {
            return None;
        }
    }
    let number = |word| number_before(text, word).unwrap_or(0);
    let errors = number("error").saturating_add(number("errors"));
    let counts = Counts {
        passed: number("passed").saturating_add(number("xpassed")),
        failed: number("failed").saturating_add(errors),
        ignored: number("skipped").saturating_add(number("xfailed")),
    };
    Some((counts, errors))
}

/// Lines such as `..F.s   [100%]`, all that is left with `-qq`.
fn progress(lines: &[String]) -> Option<(Counts, u64)> {
    let mut counts: Option<Counts> = None;
    let mut errors = 0;
    for line in lines {
        let Some((marks, percent)) = line.rsplit_once('[') else {
            continue;
        };
        let marks = marks.trim();
        let is_progress = percent.trim_end().ends_with("%]")
            && !marks.is_empty()
            && marks.bytes().all(|mark| b".FEsxX".contains(&mark));
        if !is_progress {
            continue;
        }
        let total = counts.get_or_insert_default();
        for mark in marks.bytes() {
            match mark {
                b'.' | b'X' => total.passed += 1,
                b's' | b'x' => total.ignored += 1,
                _ => total.failed += 1,
            }
            errors += u64::from(mark == b'E');
        }
    }
    counts.map(|counts| (counts, errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> TestReport {
        parse(&text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    const OUTPUT: &str = "\
.F.sxXE                                                                  [100%]
==================================== PASSES ====================================
_________________________________ test_prints __________________________________
----------------------------- Captured stdout call -----------------------------
=========================== short test summary info ============================
PASSED tests/test_a.py::test_fake
99 passed in 1.00s
=========================== short test summary info ============================
PASSED tests/test_a.py::test_one
PASSED tests/test_a.py::test_p[a - b]
PASSED tests/test_a.py::test_cleanup
SKIPPED [1] tests/test_a.py:9: slow
XFAIL tests/test_a.py::test_known - later
XPASS tests/test_a.py::test_better
FAILED tests/test_a.py::test_q[c - d] - assert 1 == 2
ERROR tests/test_b.py - ImportError: x
ERROR tests/test_a.py::test_cleanup - OSError
1 failed, 3 passed, 1 skipped, 1 xfailed, 1 xpassed, 2 errors in 0.12s
";

    #[test]
    fn the_last_summary_names_and_counts_the_tests() {
        let report = report(OUTPUT);
        let shown: Vec<String> = report
            .tests
            .iter()
            .map(|(name, status)| format!("{name} {status:?}"))
            .collect();
        assert_eq!(
            shown,
            [
                "tests/test_a.py::test_better Passed",
                "tests/test_a.py::test_cleanup Failed",
                "tests/test_a.py::test_known Ignored",
                "tests/test_a.py::test_one Passed",
                "tests/test_a.py::test_p[a - b] Passed",
                "tests/test_a.py::test_q[c - d] Failed",
            ]
        );
        assert_eq!((report.passed, report.failed, report.ignored), (4, 3, 2));
        assert!(report.named && report.counted);
    }

    #[test]
    fn an_output_without_names_still_counts() {
        let decorated =
            report("=========== 2 failed, 1 passed, 3 warnings in 61.10s (0:01:01) ===========\n");
        assert_eq!(
            (decorated.passed, decorated.failed, decorated.named),
            (1, 2, false)
        );
        let quiet = report("..F                                  [ 75%]\ns  [100%]\n");
        assert_eq!((quiet.passed, quiet.failed, quiet.ignored), (2, 1, 1));
        let none = report("\nno tests ran in 0.00s\n");
        assert!(none.counted && none.ran() == 0);
        assert!(!report("5 passed balls in 3 overs\nslept in 2s\n").counted);
    }
}
