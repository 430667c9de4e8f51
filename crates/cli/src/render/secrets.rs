use std::fmt::Write as _;

use mini_ork_control::vault::EntryKind;

use super::text::{Style, ago, one_line, paint, plural, table};
use crate::commands::{CheckedSecret, ShownSecret};

const EXPORTED: &str = "; exported too, which wins";

/// Names, kinds and ages.
pub(crate) fn secrets(secrets: &[ShownSecret], now_ms: u64) -> String {
    let rows: Vec<Vec<String>> = secrets
        .iter()
        .map(|secret| {
            let mut set = ago(now_ms, secret.set_at_ms);
            if secret.exported {
                set.push_str(EXPORTED);
            }
            vec![
                paint(Style::Accent, &secret.name),
                kind(secret.kind).to_owned(),
                set,
            ]
        })
        .collect();
    table(&["NAME", "KIND", "SET"], &rows)
}

/// One line for each entry, with the remedy where one is needed.
pub(crate) fn checked_secrets(checked: &[CheckedSecret]) -> String {
    let width = checked.iter().map(|each| each.secret.name.len()).max();
    let width = width.unwrap_or(0);
    let mut text = String::new();
    for each in checked {
        let name = &each.secret.name;
        // Writing to a string cannot fail.
        let _ = match &each.problem {
            None => writeln!(
                text,
                "{} {name:width$}  {}{}",
                paint(Style::Good, "✓"),
                kind(each.secret.kind),
                if each.secret.exported { EXPORTED } else { "" }
            ),
            Some(problem) => writeln!(
                text,
                "{} {name:width$}  {}  {} {}",
                paint(Style::Bad, "✗"),
                one_line(problem, 300),
                paint(Style::Dim, "→"),
                each.remedy.as_deref().unwrap_or_default()
            ),
        };
    }
    let bad = checked.iter().filter(|each| each.problem.is_some()).count();
    if bad > 0 {
        let _ = writeln!(text, "\n{} cannot be used", plural(bad, "secret"));
    }
    text
}

fn kind(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Value => "value",
        EntryKind::Command => "command",
    }
}
