use mini_ork_node::text::beginning;
use serde_json::Value;

use super::{Entry, EntryKind};

/// Longest text that is shown of what an agent said at once.
const LONGEST_SAYING: usize = 16 << 10;
/// Longest sentence or tool use.
const LONGEST_SENTENCE: usize = 300;

/// An entry for what an agent said; none for nothing.
pub(super) fn said(text: &str) -> Option<Entry> {
    let text = text.trim();
    (!text.is_empty()).then(|| Entry {
        kind: EntryKind::Said,
        text: shortened(text, LONGEST_SAYING),
    })
}

/// An entry of one line.
pub(super) fn entry(kind: EntryKind, text: &str) -> Entry {
    Entry {
        kind,
        text: sentence(text),
    }
}

/// The use of a tool in few words, with its input as the model wrote it.
pub(super) fn tool_use(name: &str, input: &Value) -> Entry {
    let text = |keys: &[&str]| {
        let found = keys.iter().find_map(|key| input.get(key)?.as_str());
        found.unwrap_or_default()
    };
    let object = match name.to_ascii_lowercase().as_str() {
        "bash" => text(&["command"]),
        "glob" | "grep" | "search" => text(&["pattern", "query"]),
        "webfetch" => text(&["url"]),
        "websearch" => text(&["query"]),
        "task" | "agent" => text(&["description", "prompt"]),
        _ => text(&["file_path", "filePath", "path", "notebook_path"]),
    };
    tool_use_on(name, object)
}

/// The use of a tool on something, in few words.
pub(super) fn tool_use_on(name: &str, object: &str) -> Entry {
    let verb = match name.to_ascii_lowercase().as_str() {
        "bash" => "runs",
        "edit" | "multiedit" | "notebookedit" => "edits",
        "write" => "writes",
        "read" => "reads",
        "list" | "ls" => "lists",
        "glob" | "grep" | "search" => "looks for",
        "webfetch" => "fetches",
        "websearch" => "searches the web for",
        "task" | "agent" => "asks a helper:",
        _ => return entry(EntryKind::Did, &format!("uses {name} {}", sentence(object))),
    };
    entry(EntryKind::Did, &format!("{verb} {}", sentence(object)))
}

/// The first line of `text` that says something, shortened.
pub(super) fn sentence(text: &str) -> String {
    let line = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    shortened(line, LONGEST_SENTENCE)
}

fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{}…", beginning(text, most))
}

/// Where the last `most` bytes of a text begin, not within a character.
pub(super) fn end_at(text: &str, most: usize) -> usize {
    let mut start = text.len().saturating_sub(most);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    start
}
