//! Reading `NAME=value` lines as a shell would, as far as that means nothing but a value. Nothing
//! is carried out or replaced; what a shell would do more than that for is a mistake.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use mini_ork_node::secret::{Secret, SecretError, SecretName};

/// A line that cannot be taken. It never holds text of the line, which may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ImportMistake {
    /// From 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: LineProblem,
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineProblem {
    /// It is neither an assignment nor a comment.
    #[error("this is not `NAME=value`, `export NAME=value` or a comment")]
    NotAnAssignment,
    /// The name is not that of a secret.
    #[error("a name has capital letters, digits and `_` only, and `=` follows at once")]
    Name,
    /// The name has a value already.
    #[error("this name has a value on line {0} already")]
    Repeated(usize),
    /// A quote is open at the end of the line.
    #[error(
        "the quote does not end on this line (`mini-ork vault set NAME < FILE` takes values of several lines)"
    )]
    OpenQuote,
    /// Something follows the value.
    #[error("something follows the value: quote a value with spaces; one name on each line")]
    AfterValue,
    /// A shell would put something else in the place of `$…`.
    #[error(
        "`$` begins a substitution, which is not carried out: write the value itself, in single quotes"
    )]
    Substitution,
    /// A shell would run what stands between backticks.
    #[error(
        "a backtick begins a command, which is not run: write the value itself, in single quotes"
    )]
    Backtick,
    /// A shell would take this character for something else.
    #[error("`{0}` means something to a shell: put the value into single quotes")]
    Unquoted(char),
    /// Shells and readers of `.env` disagree about it.
    #[error("a backslash in double quotes is read in different ways: use single quotes")]
    Backslash,
    /// It is not Unicode text.
    #[error("this is not Unicode text")]
    NotText,
    /// The value cannot be a secret.
    #[error("the value cannot be used: {0}")]
    Value(SecretError),
}

/// All assignments of a file in its order, or all mistakes. Nothing in it is carried out.
pub fn parse_import(bytes: &[u8]) -> Result<Vec<(SecretName, Secret)>, Vec<ImportMistake>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut found = Vec::new();
    let mut lines_of: BTreeMap<SecretName, usize> = BTreeMap::new();
    let mut mistakes = Vec::new();
    for (line, bytes) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        match assignment(bytes) {
            Ok(None) => {}
            Ok(Some((name, secret))) => {
                if let Some(earlier) = lines_of.get(&name) {
                    mistakes.push(ImportMistake {
                        line,
                        problem: LineProblem::Repeated(*earlier),
                    });
                    continue;
                }
                lines_of.insert(name.clone(), line);
                found.push((name, secret));
            }
            Err(problem) => mistakes.push(ImportMistake { line, problem }),
        }
    }
    if mistakes.is_empty() {
        Ok(found)
    } else {
        Err(mistakes)
    }
}

/// What a line assigns; none for a comment or an empty line.
fn assignment(bytes: &[u8]) -> Result<Option<(SecretName, Secret)>, LineProblem> {
    let text = std::str::from_utf8(bytes).map_err(|_| LineProblem::NotText)?;
    let text = text.trim_start();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let text = match text.strip_prefix("export") {
        Some(rest) if rest.starts_with([' ', '\t']) => rest.trim_start(),
        _ => text,
    };
    let (name, value) = text.split_once('=').ok_or(LineProblem::NotAnAssignment)?;
    let name = SecretName::parse(name).map_err(|_| {
        // A line of another kind that happens to have a `=` somewhere.
        if name.trim_end().contains(char::is_whitespace) {
            LineProblem::NotAnAssignment
        } else {
            LineProblem::Name
        }
    })?;
    let value = word(value)?;
    let secret = Secret::new(value.as_bytes().to_vec()).map_err(LineProblem::Value)?;
    Ok(Some((name, secret)))
}

/// The one word of a shell that `text` is, a comment behind it left out.
fn word(text: &str) -> Result<Zeroizing<String>, LineProblem> {
    // As long as it can become, so that no copies are left behind in memory.
    let mut value = Zeroizing::new(String::with_capacity(text.len()));
    let mut rest = text.chars();
    let mut is_first = true;
    while let Some(character) = rest.next() {
        match character {
            ' ' | '\t' => {
                let after = rest.as_str().trim_start();
                if after.is_empty() || after.starts_with('#') {
                    break;
                }
                return Err(LineProblem::AfterValue);
            }
            '\'' => single_quoted(&mut rest, &mut value)?,
            '"' => double_quoted(&mut rest, &mut value)?,
            '$' => return Err(LineProblem::Substitution),
            '`' => return Err(LineProblem::Backtick),
            '\\' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => {
                return Err(LineProblem::Unquoted(character));
            }
            '~' if is_first => return Err(LineProblem::Unquoted('~')),
            _ => value.push(character),
        }
        is_first = false;
    }
    Ok(value)
}

fn single_quoted(rest: &mut std::str::Chars<'_>, value: &mut String) -> Result<(), LineProblem> {
    for character in rest {
        if character == '\'' {
            return Ok(());
        }
        value.push(character);
    }
    Err(LineProblem::OpenQuote)
}

fn double_quoted(rest: &mut std::str::Chars<'_>, value: &mut String) -> Result<(), LineProblem> {
    while let Some(character) = rest.next() {
        match character {
            '"' => return Ok(()),
            '$' => return Err(LineProblem::Substitution),
            '`' => return Err(LineProblem::Backtick),
            '\\' => match rest.next() {
                Some(escaped @ ('"' | '\\' | '$' | '`')) => value.push(escaped),
                Some(_) => return Err(LineProblem::Backslash),
                None => return Err(LineProblem::OpenQuote),
            },
            _ => value.push(character),
        }
    }
    Err(LineProblem::OpenQuote)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(text: &str) -> Vec<(String, String)> {
        parse_import(text.as_bytes())
            .unwrap()
            .into_iter()
            .map(|(name, secret)| (name.as_str().to_owned(), secret.expose().to_owned()))
            .collect()
    }

    fn problem(line: &str) -> LineProblem {
        let mistakes = parse_import(line.as_bytes()).unwrap_err();
        assert_eq!(mistakes.len(), 1, "{line}");
        mistakes[0].problem
    }

    #[test]
    fn both_kinds_of_files_are_read() {
        let found = values(
            "\u{feff}#!/bin/sh\r\n# keys\n\nexport FIRST_KEY=sk-1234\r\n  SECOND='a b $c `d` \\n'  # why\n\
             export\tTHIRD=\"a \\\"q\\\" \\$x \\\\ #y\"\nFOURTH=a'b c'\"d\"e#f=\n",
        );
        let expected = [
            ("FIRST_KEY", "sk-1234"),
            ("SECOND", "a b $c `d` \\n"),
            ("THIRD", "a \"q\" $x \\ #y"),
            ("FOURTH", "ab cde#f="),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, expected);
        assert!(values("\n# nothing\n").is_empty());
    }

    #[test]
    fn what_a_shell_would_carry_out_is_a_mistake() {
        for line in [
            "A=$(id)1234",
            "A=\"$(id)1234\"",
            "A=$HOME",
            "A=\"x${HOME}\"",
            "A=pa$$word",
        ] {
            assert_eq!(problem(line), LineProblem::Substitution, "{line}");
        }
        assert_eq!(problem("A=`id`1234"), LineProblem::Backtick);
        assert_eq!(problem("A=\"`id`\""), LineProblem::Backtick);
        assert_eq!(problem("A=1234;id"), LineProblem::Unquoted(';'));
        assert_eq!(problem("A=~/key"), LineProblem::Unquoted('~'));
        assert_eq!(problem("A=1234 id"), LineProblem::AfterValue);
        assert_eq!(problem("export A=1234 B=5678"), LineProblem::AfterValue);
        assert_eq!(values("A='$(id) `id` $X'")[0].1, "$(id) `id` $X");
    }

    #[test]
    fn what_is_no_assignment_is_a_mistake() {
        for line in [
            "id",
            "export A",
            "set -e",
            ". ./other",
            "if [ x = y ]; then",
        ] {
            assert_eq!(problem(line), LineProblem::NotAnAssignment, "{line}");
        }
        for line in ["a=1234", "A =1234", "A-B=1234", "=1234", "exportA-=1234"] {
            assert_eq!(problem(line), LineProblem::Name, "{line}");
        }
        assert_eq!(problem("A='1234"), LineProblem::OpenQuote);
        assert_eq!(problem("A=\"1234\\"), LineProblem::OpenQuote);
        assert_eq!(problem("A=\"12\\n34\""), LineProblem::Backslash);
        for blank in ["A=", "A=''", "A=\" \"", "A= # later"] {
            assert_eq!(
                problem(blank),
                LineProblem::Value(SecretError::Blank),
                "{blank}"
            );
        }
    }

    #[test]
    fn all_mistakes_are_told_with_their_lines_and_without_their_text() {
        let mistakes =
            parse_import(b"A=good-one\nSENTINEL\nB=`SENTINEL`\n\xff\nA=SENTINEL\n").unwrap_err();
        let lines: Vec<usize> = mistakes.iter().map(|mistake| mistake.line).collect();
        assert_eq!(lines, [2, 3, 4, 5]);
        assert_eq!(mistakes[3].problem, LineProblem::Repeated(1));
        let shown: String = mistakes
            .iter()
            .map(|mistake| format!("{mistake} {mistake:?}\n"))
            .collect();
        assert!(!shown.contains("SENTINEL"), "{shown}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Err(mistakes) = parse_import(&bytes) {
                prop_assert!(!mistakes.is_empty());
            }
        }

        #[test]
        fn lines_like_those_of_shells_are_read_or_refused(
            text in "((export )?[AB_]{1,2}=[\"'$`\\\\a-c();# ~\u{e9}]{0,12}\r?\n){0,6}",
        ) {
            if let Ok(found) = parse_import(text.as_bytes()) {
                for (_, secret) in found {
                    prop_assert!(!secret.expose().trim().is_empty());
                }
            }
        }

        #[test]
        fn a_single_quoted_value_is_taken_as_it_is(value in "[^'\0\r\n]{4,40}") {
            prop_assume!(!value.trim().is_empty());
            let found = values(&format!("export KEY='{value}'\n"));
            prop_assert_eq!(&found[0].1, &value);
        }
    }
}
