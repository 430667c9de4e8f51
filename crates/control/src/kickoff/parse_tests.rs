use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const FULL: &str = "\u{feff}---\ntags: [x]\n# not: a title\n---\n# Off by one in `last`\r\n\r\nIntro.\r\n\n## Problem\n`last([])` panics.\n\n### Steps\n```sh\n# Scope\nrun it\n```\n\n## Notes\nNothing of this is the problem.\n## DEFINITION of done:\n- [ ] returns `None`\n  for an empty list\n- [x] tests pass\n\n## 3. Scope\n- `src/list.rs` - the function\n- tests/, benches/*.rs and `docs/my file.md`\n\n**Out of scope**\n- Cargo.toml\n- do not touch `src/main.rs`\n\n## Verification command(s)\n- run `cargo test -p list` twice\n- cargo clippy\n\n```console\n$ cargo test \\\n    --doc\n# comment\n\n./check.sh\n```\n```text\nok\n```\n## Questions\n1. Which list?\n## Done when\n- documented\n";

fn parse(text: &str) -> Result<Kickoff, KickoffError> {
    Kickoff::parse(text.as_bytes(), "kickoff.md")
}

fn refusal(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn every_section_of_a_full_kickoff_is_read() {
    let kickoff = parse(FULL).unwrap();
    assert_eq!(kickoff.title, "Off by one in `last`");
    assert_eq!(
        kickoff.problem,
        "`last([])` panics.\n\n### Steps\n```sh\n# Scope\nrun it\n```"
    );
    assert_eq!(
        kickoff.definition_of_done,
        vec![
            "returns `None` for an empty list",
            "tests pass",
            "documented"
        ]
    );
    assert_eq!(
        kickoff.scope.to_string(),
        "May be changed:\n- `src/list.rs`\n- `tests/`\n- `benches/*.rs`\n- `docs/my file.md`\nMust not be changed:\n- `Cargo.toml`\n- `src/main.rs`\n"
    );
    assert_eq!(
        kickoff.verification,
        vec![
            "cargo test -p list",
            "cargo clippy",
            "cargo test     --doc",
            "./check.sh"
        ]
    );
    assert_eq!(kickoff.open_questions, vec!["Which list?"]);
    assert_eq!(kickoff.text, FULL.trim_start_matches('\u{feff}'));
    assert_eq!(kickoff.answers, "");
}

#[test]
fn text_in_front_of_the_sections_is_the_problem_when_there_is_no_other() {
    let kickoff =
        parse("# T\nIt is slow.\n## Background\nSince May.\n## Verify\n`make test`\n").unwrap();
    assert_eq!(kickoff.problem, "It is slow.\n## Background\nSince May.");
    assert_eq!(kickoff.verification, vec!["make test"]);
    assert!(!kickoff.scope.is_limited());

    // A heading with nothing below it but a hint is no problem either, and hides none.
    let hinted =
        parse("# T\nIntro\n## Problem\n<!-- say what is wrong -->\n## Verification\n").unwrap();
    assert_eq!(
        (hinted.problem.as_str(), hinted.verification.len()),
        ("", 0)
    );
}

#[test]
fn a_kickoff_that_cannot_be_used_says_why() {
    let table = [
        (
            "",
            "kickoff.md: the kickoff is empty: say in it what is wanted, below a line `# <title>`",
        ),
        (
            " \n\t\r\n",
            "kickoff.md: the kickoff is empty: say in it what is wanted, below a line `# <title>`",
        ),
        (
            "## Problem\nx\n",
            "kickoff.md: the kickoff has no title: begin it with a line `# <title>`",
        ),
        (
            "# Problem\nx\n",
            "kickoff.md: the kickoff has no title: begin it with a line `# <title>`",
        ),
        (
            "# \nx\n",
            "kickoff.md: the kickoff has no title: begin it with a line `# <title>`",
        ),
        (
            "# T\0\n",
            "kickoff.md: the kickoff contains a NUL byte: remove it",
        ),
        (
            "# T\n```\n## Scope\n- src\n",
            "kickoff.md:2: the code block that starts here has no end: close it with a line that is only ```",
        ),
        (
            "# T\n## Verify\nAll tests pass.\n",
            "kickoff.md:2: the section `Verify` holds no command: write each as an item like `- cargo test`, or as a line of a code block",
        ),
        (
            "# T\n\n## Scope\nThe parser only.\n",
            "kickoff.md:3: the section `Scope` names no path: write each as an item like `- src/parser/`, or remove the heading",
        ),
        (
            "# T\n\n## Scope\n",
            "kickoff.md:3: the section `Scope` names no path: write each as an item like `- src/parser/`, or remove the heading",
        ),
        (
            "# T\n## Scope\n- src/\n## Forbidden\n- the database schema\n",
            "kickoff.md:4: the section `Forbidden` names no path: write each as an item like `- src/parser/`, or remove the heading",
        ),
        (
            "# T\n## Scope\n- a\n- ../x\n",
            "kickoff.md:4: `../x` leads out of the repository: paths of a scope start at its top directory",
        ),
        (
            "# T\n## Out of scope\n- `/etc/passwd`\n",
            "kickoff.md:3: `/etc/passwd` leads out of the repository: paths of a scope start at its top directory",
        ),
        (
            "# T\n## Scope\n- src/ except `src/secret/`\n",
            "kickoff.md:3: `src/ except `src/secret/`` holds an exception: give the excluded paths under a heading `Out of scope`",
        ),
        (
            "# T\n## Scope\n- src\\main.rs\n",
            "kickoff.md:3: `src\\main.rs` is not a path or glob: write `/` between the parts of a path",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(refusal(text), expected, "{text:?}");
    }
    let bytes = Kickoff::parse(b"# T\n\xff", "k").unwrap_err();
    assert_eq!(bytes.problem, KickoffProblem::NotUtf8 { offset: 4 });
    let size = (1 << 20) + 1;
    let large = Kickoff::parse(&vec![b'a'; size], "k").unwrap_err();
    assert_eq!(
        large.problem,
        KickoffProblem::TooLarge {
            size,
            limit: 1 << 20
        }
    );
}

#[test]
fn what_is_missing_becomes_a_question_and_an_answer_fills_it() {
    let kickoff = parse("# T\n## Open questions\n- A or B?\n- C?\n").unwrap();
    let all = [
        Requirement::Verification,
        Requirement::Scope,
        Requirement::Problem,
        Requirement::DefinitionOfDone,
    ];
    let ids = |kickoff: &Kickoff, detected| -> Vec<String> {
        kickoff
            .missing(&all, detected)
            .into_iter()
            .map(|question| question.id)
            .collect()
    };
    let expected = [
        "problem",
        "definition_of_done",
        "scope",
        "verification",
        "question-1",
        "question-2",
    ];
    assert_eq!(ids(&kickoff, false), expected);
    assert_eq!(
        ids(&kickoff, true),
        [
            "problem",
            "definition_of_done",
            "scope",
            "question-1",
            "question-2"
        ]
    );
    assert_eq!(kickoff.missing(&[], false).len(), 2);

    let answers: BTreeMap<String, String> = [
        ("problem", "It fails.\n\nOften."),
        ("definition_of_done", "works\n- is documented"),
        ("scope", "src/list.rs\ntests/"),
        ("verification", "cargo test\n`cargo clippy`"),
        ("question-2", " yes "),
        ("question-1", " \n"),
    ]
    .map(|(id, text)| (id.to_owned(), text.to_owned()))
    .into();
    let answered = kickoff.with_answers(&answers).unwrap();
    assert_eq!(answered.problem, "It fails.\n\nOften.");
    assert_eq!(answered.definition_of_done, ["works", "is documented"]);
    assert_eq!(
        answered
            .scope
            .violations(&["src/list.rs", "tests/a", "x"])
            .len(),
        1
    );
    assert_eq!(answered.verification, ["cargo test", "cargo clippy"]);
    assert_eq!(answered.open_questions, ["A or B?"]);
    assert!(
        answered.answers.ends_with("### C?\n\nyes\n"),
        "{}",
        answered.answers
    );
    assert_eq!(ids(&answered, false), ["question-1"]);
}

#[test]
fn answers_are_checked_like_the_file() {
    let answer = |id: &str, text: &str| {
        let answers = BTreeMap::from([(id.to_owned(), text.to_owned())]);
        parse("# T\n## Problem\nx\n")
            .unwrap()
            .with_answers(&answers)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        answer("problem", "y"),
        "answers: there is no question `problem`: open are `definition_of_done`, `scope`, `verification`"
    );
    assert_eq!(
        answer("scope", "src\n../x"),
        "answers:2: `../x` leads out of the repository: paths of a scope start at its top directory"
    );
    assert!(answer("scope", "only the parser").starts_with("answers:1: the section `scope`"));
    assert!(answer("verification", "```text\nx\n```").starts_with("answers:1: the section"));
    assert!(answer("verification", "a\0b").contains("NUL"));
}

#[test]
fn requirements_are_spelled_as_recipes_spell_them() {
    let text = r#"["problem","definition_of_done","scope","verification"]"#;
    let read: Vec<Requirement> = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}

proptest! {
    #[test]
    fn no_bytes_break_the_parser(bytes: Vec<u8>) {
        let _ = Kickoff::parse(&bytes, "k");
    }

    #[test]
    fn a_damaged_kickoff_keeps_its_text_or_is_refused(
        cuts in prop::collection::vec((0..FULL.len(), "[-#`*:\n ./a\u{e9}]{0,3}"), 0..6)
    ) {
        let mut text = FULL.to_owned();
        for (position, insert) in cuts {
            if text.is_char_boundary(position) {
                text.insert_str(position, &insert);
            }
        }
        if let Ok(kickoff) = Kickoff::parse(text.as_bytes(), "k") {
            prop_assert!(!kickoff.title.is_empty());
            prop_assert_eq!(kickoff.text.as_str(), text.trim_start_matches('\u{feff}'));
        }
    }

    /// A heading that names the scope is a limit or an error, whatever stands below it.
    #[test]
    fn a_scope_section_never_vanishes(body in "[-*#a-c/.` ,:\n]{0,40}") {
        if let Ok(kickoff) = Kickoff::parse(format!("# T\n## Scope\n{body}\n").as_bytes(), "k") {
            prop_assert!(kickoff.scope.is_limited());
        }
    }
}
