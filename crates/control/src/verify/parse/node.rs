use super::{Counts, Status, TestReport, number_before};

/// The JavaScript runners, told apart by what they write at their end.
pub(super) fn parse(stdout: &[String], stderr: &[String]) -> TestReport {
    if stdout.iter().any(|line| line.starts_with("TAP version")) {
        return tap(stdout);
    }
    let counts = [stdout, stderr].iter().find_map(|lines| {
        let last = |read: fn(&str) -> Option<Counts>| {
            lines.iter().rev().find_map(|line| read(line.trim()))
        };
        last(jest)
            .or_else(|| last(vitest))
            .or_else(|| trailer(lines, '\u{2139}'))
            .or_else(|| mocha(lines))
    });
    TestReport::new(Vec::new(), counts)
}

/// TAP as node writes it: a subtest is indented and stands in front of its parent's result.
fn tap(lines: &[String]) -> TestReport {
    let mut found = Vec::new();
    let mut parents: Vec<String> = Vec::new();
    // Depth of the result before: a shallower one is the sum of its subtests and no test itself.
    let mut before = 0;
    let mut in_details = false;
    for line in lines {
        let text = line.trim_start();
        if in_details {
            in_details = text != "...";
            continue;
        }
        if text == "---" {
            in_details = true;
            continue;
        }
        let depth = (line.len() - text.len()) / 4;
        if let Some(name) = text.strip_prefix("# Subtest: ") {
            parents.truncate(depth);
            parents.resize(depth, String::new());
            parents.push(name.to_owned());
        } else if let Some((name, status)) = tap_result(text) {
            if depth >= before {
                let above = parents.iter().take(depth).map(String::as_str);
                let path: Vec<&str> = above.chain([name.as_str()]).collect();
                found.push((path.join(" > "), status));
            }
            before = depth;
        }
    }
    let counts = trailer(lines, '#');
    let mut report = TestReport::new(found, counts);
    // Node counts a test with subtests and a suite does not count; names stand for leaves only.
    let named = report
        .tests
        .values()
        .filter(|status| **status != Status::Ignored)
        .count() as u64;
    report.named = report.counted && named >= report.ran();
    report
}

fn tap_result(text: &str) -> Option<(String, Status)> {
    let (passed, rest) = match text.strip_prefix("not ok") {
        Some(rest) => (false, rest),
        None => (true, text.strip_prefix("ok")?),
    };
    let rest = rest
        .strip_prefix(' ')?
        .trim_start_matches(|character: char| character.is_ascii_digit());
    let rest = rest.trim_start();
    let rest = rest.strip_prefix("- ").unwrap_or(rest);
    let (name, directive) = match rest.rfind(" # ") {
        Some(position) => (&rest[..position], rest[position + 3..].to_uppercase()),
        None => (rest, String::new()),
    };
    let status = if directive.starts_with("SKIP") || directive.starts_with("TODO") {
        Status::Ignored
    } else if passed {
        Status::Passed
    } else {
        Status::Failed
    };
    Some((name.trim().to_owned(), status))
}

/// Node's own totals, one line each: `# pass 3` in TAP, `ℹ pass 3` elsewhere.
fn trailer(lines: &[String], mark: char) -> Option<Counts> {
    let number = |word: &str| {
        lines.iter().rev().find_map(|line| {
            let rest = line
                .strip_prefix(mark)?
                .strip_prefix(' ')?
                .strip_prefix(word)?;
            rest.strip_prefix(' ')?.trim().parse::<u64>().ok()
        })
    };
    let passed = number("pass")?;
    let sum = |words: [&str; 2]| {
        words
            .iter()
            .filter_map(|word| number(word))
            .fold(0, u64::saturating_add)
    };
    Some(Counts {
        passed,
        failed: sum(["fail", "cancelled"]),
        ignored: sum(["skipped", "todo"]),
    })
}

/// `Tests:       1 failed, 2 skipped, 3 passed, 6 total`
fn jest(line: &str) -> Option<Counts> {
    let text = line
        .strip_prefix("Tests:")
        .filter(|text| text.ends_with(" total"))?;
    let number = |word| number_before(text, word).unwrap_or(0);
    let ignored = number("skipped").saturating_add(number("todo"));
    Some(Counts {
        passed: number("passed"),
        failed: number("failed"),
        ignored,
    })
}

/// `Tests  1 failed | 3 passed | 1 skipped (5)`
fn vitest(line: &str) -> Option<Counts> {
    let text = line
        .strip_prefix("Tests  ")
        .filter(|text| text.ends_with(')'))?;
    let number = |word| number_before(text, word).unwrap_or(0);
    let ignored = number("skipped").saturating_add(number("todo"));
    Some(Counts {
        passed: number("passed"),
        failed: number("failed"),
        ignored,
    })
}

/// `5 passing (10ms)`, then `1 failing` and `2 pending` on lines of their own.
fn mocha(lines: &[String]) -> Option<Counts> {
    let start = lines.iter().rposition(|line| {
        let line = line.trim();
        line.contains(" passing (") && number_before(line, "passing").is_some()
    })?;
    let number = |word| {
        let line = lines[start..]
            .iter()
            .take(3)
            .find(|line| line.trim().ends_with(word));
        line.and_then(|line| number_before(line, word)).unwrap_or(0)
    };
    let passed = number_before(&lines[start], "passing")?;
    Some(Counts {
        passed,
        failed: number("failing"),
        ignored: number("pending"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(stdout: &str, stderr: &str) -> TestReport {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        parse(&lines(stdout), &lines(stderr))
    }

    const TAP: &str = "\
TAP version 13
# ok 99 - fake
# Subtest: top
ok 1 - top
  ---
  duration_ms: 1.356771
  ...
# Subtest: bad
not ok 2 - bad
  ---
  stack: |-
    ok 7 - in a stack
  ...
# Subtest: skip
ok 3 - skip # SKIP
# Subtest: todo
not ok 4 - todo # TODO later
# Subtest: suite
    # Subtest: inner \\# hash
    ok 1 - inner \\# hash
    # Subtest: inner2
    ok 2 - inner2
    1..2
ok 5 - suite
1..5
# tests 6
# suites 1
# pass 3
# fail 1
# cancelled 0
# skipped 1
# todo 1
";

    #[test]
    fn tap_names_the_leaves() {
        let report = report(TAP, "");
        let shown: Vec<String> = report
            .tests
            .iter()
            .map(|(name, status)| format!("{name} {status:?}"))
            .collect();
        assert_eq!(
            shown,
            [
                "bad Failed",
                "skip Ignored",
                "suite > inner \\# hash Passed",
                "suite > inner2 Passed",
                "todo Ignored",
                "top Passed",
            ]
        );
        assert_eq!((report.passed, report.failed, report.ignored), (3, 1, 2));
        assert!(report.named);
    }

    #[test]
    fn the_other_runners_give_numbers() {
        let table = [
            (
                "",
                "Tests:       1 failed, 2 skipped, 3 passed, 6 total\n",
                Some((3, 1, 2)),
            ),
            (
                "      Tests  1 failed | 3 passed | 1 skipped (5)\n",
                "",
                Some((3, 1, 1)),
            ),
            (
                "✔ a (1ms)\nℹ tests 2\nℹ pass 1\nℹ fail 1\nℹ cancelled 0\nℹ skipped 0\nℹ todo 0\n",
                "",
                Some((1, 1, 0)),
            ),
            (
                "  5 passing (10ms)\n  2 pending\n  1 failing\n\n  1) x\n",
                "",
                Some((5, 1, 2)),
            ),
            ("all good\n", "", None),
        ];
        for (stdout, stderr, expected) in table {
            let report = report(stdout, stderr);
            let counts = report
                .counted
                .then_some((report.passed, report.failed, report.ignored));
            assert_eq!(counts, expected, "{stdout}{stderr}");
            assert!(!report.named);
        }
    }
}
