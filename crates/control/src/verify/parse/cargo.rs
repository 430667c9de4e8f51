use std::collections::BTreeMap;

use super::{Counts, Status, TestReport, number_before};

/// `cargo test`, any number of test binaries and doctests.
pub(super) fn parse(lines: &[String]) -> TestReport {
    let mut found = Vec::new();
    let mut counts: Option<Counts> = None;
    // `test a ... ` whose result follows below what the test printed.
    let mut open: Option<String> = None;
    for line in lines {
        if let Some(result) = line.strip_prefix("test result: ") {
            let number = |word| number_before(result, word).unwrap_or(0);
            let total = counts.get_or_insert_default();
            total.passed = total.passed.saturating_add(number("passed"));
            total.failed = total.failed.saturating_add(number("failed"));
            total.ignored = total.ignored.saturating_add(number("ignored"));
            open = None;
        } else if let Some((name, result)) = test_line(line) {
            match status(result) {
                Some(status) => found.push((name, status)),
                None => open = Some(name),
            }
        } else if let Some(status) = status(line)
            && let Some(name) = open.take()
        {
            found.push((name, status));
        }
    }
    TestReport::new(found, counts)
}

/// `cargo nextest run`. Failures are listed again below the summary.
pub(super) fn parse_nextest(lines: &[String]) -> TestReport {
    let mut found = BTreeMap::new();
    let mut counts = None;
    for line in lines {
        let line = line.trim();
        let Some((word, rest)) = line.split_once('[') else {
            continue;
        };
        let Some((_, rest)) = rest.split_once("] ") else {
            continue;
        };
        if word.trim() == "Summary" {
            counts = Some(summary(rest));
            break;
        }
        let mut rest = rest.trim();
        if let Some((_, name)) = rest
            .strip_prefix('(')
            .and_then(|rest| rest.split_once(") "))
        {
            rest = name;
        }
        if let Some(status) = nextest_status(word.trim()) {
            found.insert(rest.trim().to_owned(), status);
        }
    }
    TestReport::new(found.into_iter().collect(), counts)
}

fn summary(text: &str) -> Counts {
    // `4 passed (1 slow, 1 flaky)`: what is in brackets is counted already.
    let mut depth = 0_u32;
    let outside: String = text
        .chars()
        .filter(|character| {
            match character {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => return depth == 0,
            }
            false
        })
        .collect();
    let number = |word| number_before(&outside, word).unwrap_or(0);
    let failed = [number("failed"), number("timed"), number("exec")];
    Counts {
        passed: number("passed"),
        failed: failed.into_iter().fold(0, u64::saturating_add),
        ignored: number("skipped"),
    }
}

fn nextest_status(word: &str) -> Option<Status> {
    let last = word.split_whitespace().last()?;
    match last {
        "PASS" | "LEAK" => Some(Status::Passed),
        "FAIL" | "TIMEOUT" | "ABORT" | "LEAK-FAIL" | "XFAIL" => Some(Status::Failed),
        _ if last.starts_with("SIG") => Some(Status::Failed),
        _ if word.starts_with("FLAKY") => Some(Status::Passed),
        _ => None,
    }
}

/// Name and result of a line `test <name> ... <result>`. What a test wrote without a line end
/// stands in front of it.
fn test_line(line: &str) -> Option<(String, &str)> {
    let (before, result) = line
        .split_once(" ... ")
        .or_else(|| Some((line.strip_suffix(" ...")?, "")))?;
    let name = match before.strip_prefix("test ") {
        Some(name) => name,
        None => &before[before.rfind("test ")? + "test ".len()..],
    };
    Some((stable_name(name), result))
}

fn status(result: &str) -> Option<Status> {
    let word = result.split([',', ' ']).next().unwrap_or("");
    match word {
        "ok" => Some(Status::Passed),
        "FAILED" => Some(Status::Failed),
        "ignored" => Some(Status::Ignored),
        _ => None,
    }
}

/// A name that does not change when lines move or a test learns to expect a panic.
fn stable_name(name: &str) -> String {
    let mut name = name.trim();
    for suffix in [" - should panic", " - compile fail", " - compile"] {
        name = name.strip_suffix(suffix).unwrap_or(name);
    }
    match name.rsplit_once(" (line ") {
        Some((item, line)) if line.ends_with(')') => item.to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> TestReport {
        parse(&text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    fn shown(report: &TestReport) -> Vec<String> {
        report
            .tests
            .iter()
            .map(|(name, status)| format!("{name} {status:?}"))
            .collect()
    }

    const OUTPUT: &str = "
running 5 tests
test tests::a ... ok
test tests::i ... ignored
test tests::r ... ignored, because: slow ... ok
test tests::bad ... FAILED
test tests::p - should panic ... ok

failures:

---- tests::bad stdout ----
hello

failures:
    tests::bad

test result: FAILED. 2 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.08s


running 2 tests
partial without newlinetest a ... ok
test tests::a ... ok

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s


running 3 tests
test src/lib.rs - g (line 5) ... ignored
test src/lib.rs - g (line 9) ... ok
test src/lib.rs - k (line 16) - compile ... ok

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.07s
";

    #[test]
    fn several_binaries_and_doctests_are_one_report() {
        let report = report(OUTPUT);
        assert_eq!(
            shown(&report),
            [
                "a Passed",
                "src/lib.rs - g Passed",
                "src/lib.rs - g (2) Ignored",
                "src/lib.rs - k Passed",
                "tests::a Passed",
                "tests::a (2) Passed",
                "tests::bad Failed",
                "tests::i Ignored",
                "tests::p Passed",
                "tests::r Ignored",
            ]
        );
        assert_eq!((report.passed, report.failed, report.ignored), (6, 1, 3));
        assert!(report.named && report.counted);
    }

    #[test]
    fn a_result_below_the_output_of_its_test_is_found() {
        let report = report("running 1 test\ntest a ... hello\nok\ntest b ... \nFAILED\n");
        assert_eq!(shown(&report), ["a Passed", "b Failed"]);
    }

    #[test]
    fn printed_lines_cannot_hide_a_failure_and_show_in_the_numbers() {
        let report = report(
            "running 1 test\ntest fake ... ok\ntest a ... FAILED\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored;\n",
        );
        assert_eq!((report.passed, report.failed, report.named), (0, 1, false));
    }

    #[test]
    fn no_test_is_a_count_and_no_output_is_none() {
        let none = report("running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored;\n");
        assert!(none.counted && none.ran() == 0);
        assert!(!report("Compiling x\n").counted);
    }

    #[test]
    fn nextest_lines_are_read_up_to_the_summary() {
        let text = "\
    Starting 5 tests across 2 binaries (2 tests skipped)
        PASS [   0.005s] (1/5) demo tests::a
        PASS [   0.005s] demo::t a
        TRY 1 FAIL [   0.1s] (3/5) demo tests::flaky
        TRY 2 PASS [   0.1s] (3/5) demo tests::flaky
        FAIL [   0.100s] (4/5) demo tests::bad
     SIGSEGV [   0.100s] (5/5) demo tests::crash
        SLOW [> 60.000s] demo tests::slow
────────────
     Summary [   0.101s] 5 tests run: 3 passed (1 flaky), 1 failed, 1 timed out, 2 skipped
        FAIL [   0.100s] (4/5) demo tests::other
";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let report = parse_nextest(&lines);
        assert_eq!(
            shown(&report),
            [
                "demo tests::a Passed",
                "demo tests::bad Failed",
                "demo tests::crash Failed",
                "demo tests::flaky Passed",
                "demo::t a Passed",
            ]
        );
        assert_eq!((report.passed, report.failed, report.ignored), (3, 2, 2));
        assert!(report.named);
    }
}
