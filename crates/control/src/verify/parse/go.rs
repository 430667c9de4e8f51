use super::{Status, TestReport};

/// `go test`: tests by name with `-v`, packages without it.
pub(super) fn parse(lines: &[String]) -> TestReport {
    let verbose = lines.iter().any(|line| line.starts_with("=== RUN"));
    let mut found = Vec::new();
    // Tests are printed in front of the line that names their package.
    let mut of_package: Vec<(String, Status)> = Vec::new();
    for line in lines {
        if let Some((name, status)) = test_line(line) {
            of_package.push((name, status));
        } else if let Some((package, result)) = package_line(line) {
            if verbose {
                let tests = of_package.drain(..);
                found.extend(tests.map(|(name, status)| (format!("{package}.{name}"), status)));
            } else if let Some(status) = result {
                of_package.clear();
                found.push((package.to_owned(), status));
            }
        }
    }
    if verbose {
        found.extend(of_package);
    }
    let silent = found.is_empty() && lines.iter().any(|line| line.contains("[no test"));
    // Packages without tests are an answer, and that answer is zero.
    TestReport::new(found, silent.then(Default::default))
}

/// `    --- PASS: TestX/sub (0.00s)`, behind whatever a test wrote without a line end.
fn test_line(line: &str) -> Option<(String, Status)> {
    let marks = [
        ("--- PASS: ", Status::Passed),
        ("--- FAIL: ", Status::Failed),
        ("--- SKIP: ", Status::Ignored),
    ];
    let (start, mark, status) = marks
        .into_iter()
        .find_map(|(mark, status)| Some((line.find(mark)?, mark, status)))?;
    let name = line[start + mark.len()..].split_whitespace().next()?;
    Some((name.to_owned(), status))
}

/// The package of a line `ok  \t<package>\t0.01s`; no result when it has nothing to test.
fn package_line(line: &str) -> Option<(&str, Option<Status>)> {
    let (word, rest) = line.split_once('\t')?;
    let package = rest
        .split(['\t', ' '])
        .next()
        .filter(|package| !package.is_empty())?;
    match word.trim() {
        "ok" if rest.contains("[no test") => Some((package, None)),
        "ok" => Some((package, Some(Status::Passed))),
        "FAIL" => Some((package, Some(Status::Failed))),
        "?" => Some((package, None)),
        _ => None,
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

    #[test]
    fn verbose_tests_belong_to_their_package() {
        let report = report(
            "=== RUN   TestA\n=== RUN   TestA/sub_one\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/sub_one (0.00s)\n=== RUN   TestS\nnoise--- SKIP: TestS (0.00s)\nPASS\nok  \texample.com/x\t0.003s\n=== RUN   TestA\n    a_test.go:3: bad\n--- FAIL: TestA (0.00s)\nFAIL\nFAIL\texample.com/y\t0.002s\n?   \texample.com/z\t[no test files]\nFAIL\n",
        );
        assert_eq!(
            shown(&report),
            [
                "example.com/x.TestA Passed",
                "example.com/x.TestA/sub_one Passed",
                "example.com/x.TestS Ignored",
                "example.com/y.TestA Failed",
            ]
        );
        assert_eq!(
            (report.passed, report.failed, report.ignored, report.named),
            (2, 1, 1, true)
        );
    }

    #[test]
    fn without_names_a_package_is_a_test() {
        let report = report(
            "ok  \texample.com/x\t(cached)\n--- FAIL: TestB (0.00s)\nFAIL\nFAIL\texample.com/y\t0.002s\nFAIL\texample.com/w [build failed]\nok  \texample.com/v\t0.1s [no tests to run]\n",
        );
        assert_eq!(
            shown(&report),
            [
                "example.com/w Failed",
                "example.com/x Passed",
                "example.com/y Failed"
            ]
        );
    }

    #[test]
    fn packages_without_tests_count_as_none() {
        let none = report("?   \texample.com/z\t[no test files]\n");
        assert!(none.counted && none.ran() == 0);
        assert!(!report("go: no modules\n").counted);
    }
}
