use std::fmt::Write as _;

use super::text::{Style, one_line, paint};
use crate::commands::{Check, Found};

/// One line for each check; a remedy where something is to be done.
pub(crate) fn doctor(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let sign = match check.found {
            Found::Ok => paint(Style::Good, "✓"),
            Found::Note => paint(Style::Warn, "–"),
            Found::Missing => paint(Style::Bad, "✗"),
        };
        let mut lines = check.text.lines();
        let first = lines.next().unwrap_or_default();
        let _ = write!(text, "{sign} {:10} {}", check.name, one_line(first, 300));
        if let Some(remedy) = &check.remedy
            && check.text.lines().count() == 1
        {
            let _ = write!(text, "  {} {remedy}", paint(Style::Dim, "→"));
        }
        text.push('\n');
        // The mistakes of a configuration, one on each line.
        for line in lines {
            let _ = writeln!(text, "             {}", one_line(line, 300));
        }
        if let Some(remedy) = &check.remedy
            && check.text.lines().count() > 1
        {
            let _ = writeln!(text, "             {} {remedy}", paint(Style::Dim, "→"));
        }
    }
    let missing = checks
        .iter()
        .filter(|check| check.found == Found::Missing)
        .count();
    if missing > 0 {
        let what = if missing == 1 {
            "thing is"
        } else {
            "things are"
        };
        let _ = writeln!(text, "\n{missing} {what} missing");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_takes_one_line_and_names_its_remedy() {
        let check = |found, text: &str, remedy: Option<&str>| Check {
            name: "git",
            found,
            text: text.to_owned(),
            remedy: remedy.map(ToOwned::to_owned),
        };
        let text = doctor(&[
            check(Found::Ok, "2.47", None),
            check(Found::Missing, "not found", Some("install it")),
            check(
                Found::Missing,
                "a.yaml:1  x\na.yaml:2  y",
                Some("correct it"),
            ),
        ]);
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(
            plain,
            "✓ git        2.47\n\
             ✗ git        not found  → install it\n\
             ✗ git        a.yaml:1  x\n             a.yaml:2  y\n             → correct it\n\
             \n2 things are missing\n"
        );
    }
}
