use std::ffi::OsStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mini_ork_node::git::{Change, ChangeKind, FileMode, RepoPath};
use serde_json::{Value, json};

use super::text::{Style, harmless, paint, plural, table};

/// Changed files with their numbers of lines, and the sum.
pub(crate) fn stat(changes: &[Change]) -> String {
    let rows: Vec<Vec<String>> = changes
        .iter()
        .map(|change| {
            let lines = match (change.added_lines, change.removed_lines) {
                (Some(added), Some(removed)) => (
                    paint(Style::Good, &format!("+{added}")),
                    paint(Style::Bad, &format!("−{removed}")),
                ),
                _ => ("binary".to_owned(), String::new()),
            };
            vec![
                kind(&change.kind).to_owned(),
                lines.0,
                lines.1,
                named(change),
            ]
        })
        .collect();
    let all = table(&["CHANGE", "NEW", "GONE", "FILE"], &rows);
    let sum = |side: fn(&Change) -> Option<u64>| changes.iter().filter_map(side).sum::<u64>();
    format!(
        "{all}{} +{} −{}\n",
        plural(changes.len(), "file"),
        sum(|change| change.added_lines),
        sum(|change| change.removed_lines),
    )
}

/// A change for scripts.
pub(crate) fn change_json(change: &Change) -> Value {
    let mut value = json!({
        "path": path_json(change.path.as_path().as_os_str()),
        "change": kind(&change.kind),
        "old_mode": change.old_mode.map(FileMode::as_str),
        "new_mode": change.new_mode.map(FileMode::as_str),
        "added_lines": change.added_lines,
        "removed_lines": change.removed_lines,
    });
    if let ChangeKind::Renamed { from } = &change.kind {
        value["from"] = path_json(from.as_path().as_os_str());
    }
    value
}

/// A path as a JSON string, or as `{"base64": …}` when it is no Unicode text.
pub(crate) fn path_json(path: &OsStr) -> Value {
    path.to_str().map_or_else(
        || json!({"base64": STANDARD.encode(path.as_encoded_bytes())}),
        Into::into,
    )
}

fn named(change: &Change) -> String {
    match &change.kind {
        ChangeKind::Renamed { from } => format!("{} (was {})", shown(&change.path), shown(from)),
        _ => shown(&change.path),
    }
}

fn shown(path: &RepoPath) -> String {
    path.to_string()
}

fn kind(kind: &ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "added",
        ChangeKind::Modified => "modified",
        ChangeKind::Deleted => "deleted",
        ChangeKind::Renamed { .. } => "renamed",
        ChangeKind::TypeChanged => "type",
        ChangeKind::ModeChanged => "mode",
    }
}

/// Makes a patch fit for a terminal, piece by piece.
#[derive(Debug, Default)]
pub(crate) struct PatchPainter {
    pending: Vec<u8>,
}

impl PatchPainter {
    /// The whole lines that `bytes` completes, painted.
    pub(crate) fn paint(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let Some(last) = self.pending.iter().rposition(|byte| *byte == b'\n') else {
            return String::new();
        };
        let lines: Vec<u8> = self.pending.drain(..=last).collect();
        lines
            .split_inclusive(|byte| *byte == b'\n')
            .map(painted)
            .collect()
    }

    /// What is left at the end.
    pub(crate) fn rest(&mut self) -> String {
        painted(&std::mem::take(&mut self.pending))
    }
}

fn painted(line: &[u8]) -> String {
    let content = line.strip_suffix(b"\n").unwrap_or(line);
    let end = if content.len() < line.len() { "\n" } else { "" };
    let text = harmless(content);
    let style =
        if line.starts_with(b"diff ") || line.starts_with(b"+++ ") || line.starts_with(b"--- ") {
            Some(Style::Strong)
        } else {
            match line.first() {
                Some(b'+') => Some(Style::Good),
                Some(b'-') => Some(Style::Bad),
                Some(b'@') => Some(Style::Accent),
                _ => None,
            }
        };
    match style {
        Some(style) if !text.is_empty() => format!("{}{end}", paint(style, &text)),
        _ => format!("{text}{end}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &[u8], kind: ChangeKind, lines: Option<(u64, u64)>) -> Change {
        Change {
            path: RepoPath::new(path).unwrap(),
            kind,
            old_mode: None,
            new_mode: None,
            added_lines: lines.map(|lines| lines.0),
            removed_lines: lines.map(|lines| lines.1),
        }
    }

    #[test]
    fn files_are_listed_with_their_sum() {
        let from = RepoPath::new("old").unwrap();
        let changes = [
            change(b"a\nb", ChangeKind::Added, Some((7, 0))),
            change(b"new", ChangeKind::Renamed { from }, Some((0, 3))),
            change(b"logo", ChangeKind::Modified, None),
        ];
        let text = anstream::adapter::strip_str(&stat(&changes)).to_string();
        assert_eq!(
            text,
            "CHANGE    NEW     GONE  FILE\n\
             added     +7      −0    a\\nb\n\
             renamed   +0      −3    new (was old)\n\
             modified  binary        logo\n\
             3 files +7 −3\n"
        );
    }

    #[test]
    fn a_path_that_is_no_text_reaches_scripts_whole() {
        let value = change_json(&change(b"\xff", ChangeKind::Deleted, None));
        assert_eq!(value["path"]["base64"], "/w==");
    }

    #[test]
    fn a_patch_is_painted_in_whole_lines_and_cannot_control_the_terminal() {
        let mut painter = PatchPainter::default();
        assert_eq!(painter.paint(b"+a\x1b[2J"), "");
        let shown = painter.paint(b"b\n c");
        assert_eq!(anstream::adapter::strip_str(&shown).to_string(), "+ab\n");
        assert_eq!(painter.rest(), " c");
    }
}
