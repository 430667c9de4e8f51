//! What changed tests have to show.

use proptest::prelude::*;

use super::judge_tests::{Tests, judged, run, silent};
use super::{Ruling, TestRun};

#[test]
fn changed_tests_must_fail_on_the_base() {
    let table = [
        // A new test that shows the bug.
        (
            run(0, "a+"),
            run(101, "a+ new-"),
            run(0, "a+ new+"),
            Ruling::Pass,
            "base 1 passed → now 2 passed; of the new or changed tests `new` fails on the base",
        ),
        // It does not even compile there.
        (
            run(0, "a+"),
            run(101, ""),
            run(0, "a+ new+"),
            Ruling::Pass,
            "base 1 passed → now 2 passed; with the changed tests the base does not build or run",
        ),
        // One shows it, one is unrelated.
        (
            run(0, "a+"),
            run(101, "a+ new- other+"),
            run(0, "a+ new+ other+"),
            Ruling::Pass,
            "base 1 passed → now 3 passed; of the new or changed tests `new` fails on the base",
        ),
        // A new test that passes anyway.
        (
            run(0, "a+"),
            run(0, "a+ new+"),
            run(0, "a+ new+"),
            Ruling::Fail,
            "base 1 passed → now 2 passed; the changed tests pass on the base and prove nothing: `tests/t.rs`",
        ),
        // It only claims to fail.
        (
            run(0, "a+"),
            run(0, "a+ new-"),
            run(0, "a+ new+"),
            Ruling::Fail,
            "base 1 passed → now 2 passed; the changed tests pass on the base and prove nothing: `tests/t.rs`",
        ),
        // The failing test was edited so that it passes.
        (
            run(101, "a+ b-"),
            run(0, "a+ b+"),
            run(0, "a+ b+"),
            Ruling::Fail,
            "base 1 passed, 1 failed → now 2 passed; `b` failed on the base and with the changed tests the base passes: the tests were changed, not the code",
        ),
        (
            silent(1),
            silent(0),
            silent(0),
            Ruling::Fail,
            "base failed → now passed; the base fails and with the changed tests the base passes: the tests were changed, not the code",
        ),
        // The same, hidden behind another test that fails on the base.
        (
            run(101, "a+ b-"),
            run(101, "a+ b+ new-"),
            run(0, "a+ b+ new+"),
            Ruling::Fail,
            "base 1 passed, 1 failed → now 3 passed; `b` failed on the base and passes there with the changed tests: the test was changed, not the code",
        ),
        // The code was fixed, and an unrelated test that passes was added.
        (
            run(101, "a+ b-"),
            run(101, "a+ b- new+"),
            run(0, "a+ b+ new+"),
            Ruling::Pass,
            "base 1 passed, 1 failed → now 3 passed; `b` failed on the base and passes now",
        ),
        // Fixed, and with a test of its own.
        (
            run(101, "a+ b-"),
            run(101, "a+ b- new-"),
            run(0, "a+ b+ new+"),
            Ruling::Pass,
            "base 1 passed, 1 failed → now 3 passed; of the new or changed tests `new` fails on the base",
        ),
        (
            silent(0),
            silent(1),
            silent(0),
            Ruling::Pass,
            "base passed → now passed; with the changed tests the base does not build or run",
        ),
        // What fails on the base is switched off in the result.
        (
            run(0, "a+"),
            run(101, "a+ new-"),
            run(0, "a+ new~"),
            Ruling::Fail,
            "base 1 passed → now 1 passed, 1 ignored; what fails on the base does not run now: `new`",
        ),
        // The first tests of a project.
        (
            run(0, ""),
            run(101, "new-"),
            run(0, "new+"),
            Ruling::Pass,
            "base no tests → now 1 passed; of the new or changed tests `new` fails on the base",
        ),
        (
            run(0, ""),
            run(0, "new+"),
            run(0, "new+"),
            Ruling::Fail,
            "base no tests → now 1 passed; the changed tests pass on the base and prove nothing: `tests/t.rs`",
        ),
    ];
    for (base, mixed, result, ruling, summary) in table {
        let judgement = judged(&base, Some(&mixed), &result, Tests::Changed);
        assert_eq!(judgement, (ruling, summary.to_owned()));
    }
}

#[test]
fn new_code_with_tests_of_its_own_is_no_part_of_the_base() {
    let (base, grown) = (run(0, "a+"), run(0, "a+ new+"));
    let passes = "base 1 passed → now 2 passed; the base does not have what the new tests test: `src/new.rs`";
    assert_eq!(
        judged(&base, None, &grown, Tests::NewSource),
        (Ruling::Pass, passes.to_owned())
    );
    let mixed = judged(&base, Some(&base), &grown, Tests::ChangedAndNewSource);
    assert_eq!(mixed, (Ruling::Pass, passes.to_owned()));
    // Tests that nobody runs.
    assert_eq!(judged(&base, None, &base, Tests::NewSource).0, Ruling::Fail);
    // It does not excuse an edited test.
    let bent = judged(
        &run(101, "a-"),
        Some(&base),
        &grown,
        Tests::ChangedAndNewSource,
    );
    assert_eq!(bent.0, Ruling::Fail);
}

fn any_run() -> impl Strategy<Value = (i32, TestRun)> {
    let tests = prop::collection::vec(("[a-d]", "[-+~]"), 0..5);
    (prop::sample::select(vec![0, 1, 101, 137, i32::MIN]), tests).prop_map(|(code, tests)| {
        let words: Vec<String> = tests
            .into_iter()
            .map(|(name, mark)| format!("{name}{mark}"))
            .collect();
        (code, run(code, &words.join(" ")))
    })
}

proptest! {
    /// Whatever the runs print, a pass needs a result that ended well and something that did not
    /// end well without it.
    #[test]
    fn no_output_makes_a_pass_without_exit_codes(
        base in any_run(),
        mixed in any_run(),
        result in any_run(),
        kind in prop::sample::select(vec![Tests::Same, Tests::Changed, Tests::Removed]),
    ) {
        let (ruling, _) = judged(&base.1, Some(&mixed.1), &result.1, kind);
        if ruling == Ruling::Pass {
            prop_assert_eq!(result.0, 0);
            prop_assert_eq!(result.1.commands[0].report.failed, 0);
            let proof = if matches!(kind, Tests::Same) { base.0 } else { mixed.0 };
            prop_assert!(proof != 0 && proof != 137);
            prop_assert!(!matches!(kind, Tests::Removed));
        }
    }
}
