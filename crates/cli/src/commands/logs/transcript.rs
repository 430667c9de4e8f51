use mini_ork_control::lanes::{Entry, EntryKind};

use crate::render::{self, Style, paint};

/// What an agent did, a line for each thing, and what it said as it said it.
pub(super) fn text(entries: &[Entry]) -> String {
    let mut text = String::new();
    for entry in entries {
        let words = render::harmless(entry.text.as_bytes());
        let mark = match entry.kind {
            EntryKind::Said => "",
            EntryKind::Did => &paint(Style::Accent, "→ "),
            EntryKind::Noted => &paint(Style::Warn, "! "),
            EntryKind::Failed => &paint(Style::Bad, "✗ "),
        };
        text.push_str(mark);
        text.push_str(words.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_told_what_to_do() {
        let entry = |kind, text: &str| Entry {
            kind,
            text: text.to_owned(),
        };
        let shown = text(&[
            entry(EntryKind::Did, "runs x\u{1b}[2J\u{7}"),
            entry(EntryKind::Said, "one\ntwo\n"),
        ]);
        assert!(!shown.contains("[2J"), "{shown}");
        assert!(!shown.contains('\u{7}'), "{shown}");
        assert!(shown.ends_with("one\ntwo\n"), "{shown}");
        assert_eq!(shown.lines().count(), 3);
    }
}
