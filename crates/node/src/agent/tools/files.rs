use std::fmt::Write as _;

use bstr::ByteSlice as _;
use serde::Deserialize;

use super::{Toolbox, arguments, explain};
use crate::agent::conversation::ToolCall;
use crate::text::beginning;
use crate::workspace::{Entry, EntryKind, ListRequest};

/// Longest file that is read or edited.
const LONGEST_FILE: u64 = 8 << 20;
const LONGEST_LINE: usize = 2000;
const MOST_ENTRIES: usize = 2000;
const MOST_LEVELS: usize = 20;
/// Directories of tools and of what is built, which are large and not what is looked for.
pub(super) const PASSED_OVER: &[&str] = &[".git", "node_modules", "target", ".venv", "__pycache__"];

#[derive(Deserialize)]
struct Read {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
struct Write {
    path: String,
    content: String,
}

#[derive(Deserialize)]
struct Edit {
    path: String,
    old: String,
    new: String,
}

#[derive(Deserialize)]
struct List {
    path: Option<String>,
    #[serde(default)]
    recursive: bool,
}

impl Toolbox {
    pub(super) async fn read(&self, call: &ToolCall) -> Result<String, String> {
        let Read {
            path,
            offset,
            limit,
        } = arguments(call)?;
        let path = self.path(&path)?;
        let content = self.workspace.get(&self.root, &path, LONGEST_FILE);
        let content = content.await.map_err(|error| explain(&error))?;
        let text = as_text(&content)?;
        Ok(numbered(
            text,
            offset.unwrap_or(1).max(1),
            limit.unwrap_or(usize::MAX),
            self.longest_output,
        ))
    }

    pub(super) async fn write(&self, call: &ToolCall) -> Result<String, String> {
        let Write { path, content } = arguments(call)?;
        let inner = self.path(&path)?;
        let length = content.len();
        let put = self.workspace.put(&self.root, &inner, content.into_bytes());
        put.await.map_err(|error| explain(&error))?;
        Ok(format!("wrote {length} bytes to `{path}`"))
    }

    pub(super) async fn edit(&self, call: &ToolCall) -> Result<String, String> {
        let edit: Edit = arguments(call)?;
        let path = self.path(&edit.path)?;
        let content = self.workspace.get(&self.root, &path, LONGEST_FILE);
        let content = content.await.map_err(|error| explain(&error))?;
        let edited = replace_once(&content, edit.old.as_bytes(), edit.new.as_bytes())?;
        let put = self.workspace.put(&self.root, &path, edited);
        put.await.map_err(|error| explain(&error))?;
        Ok(format!("edited `{}`", edit.path))
    }

    pub(super) async fn list(&self, call: &ToolCall) -> Result<String, String> {
        let List { path, recursive } = arguments(call)?;
        let path = self.path(path.as_deref().unwrap_or("."))?;
        let request = ListRequest {
            levels: if recursive { MOST_LEVELS } else { 1 },
            most: MOST_ENTRIES,
            not_entered: PASSED_OVER,
        };
        let listing = self.workspace.list(&self.root, &path, request);
        let mut listing = listing.await.map_err(|error| explain(&error))?;
        listing
            .entries
            .sort_by(|left, right| left.path.cmp(&right.path));
        let mut text: String = listing.entries.iter().map(line_of).collect();
        if listing.entries.is_empty() {
            text.push_str("the directory is empty\n");
        }
        if !listing.complete {
            text.push_str("[there is more that is not listed]\n");
        }
        Ok(text)
    }
}

/// The content as text. What is not text would reach the model as noise, and could not be edited.
fn as_text(content: &[u8]) -> Result<&str, String> {
    match std::str::from_utf8(content) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(format!(
            "the file is not text; it has {} bytes",
            content.len()
        )),
    }
}

/// Lines from `first` on with their numbers, as many as fit into `longest` bytes.
fn numbered(text: &str, first: usize, limit: usize, longest: usize) -> String {
    let total = text.lines().count();
    if total == 0 {
        return "the file is empty".to_owned();
    }
    // Room for the sentence at the end.
    let room = longest.saturating_sub(200);
    let mut shown = String::new();
    let mut next = first;
    for line in text.lines().skip(first - 1).take(limit) {
        let before = shown.len();
        let begun = beginning(line, LONGEST_LINE);
        let more = if begun.len() < line.len() {
            " […]"
        } else {
            ""
        };
        let _ = writeln!(shown, "{next:>6}\t{begun}{more}");
        if shown.len() > room && before > 0 {
            shown.truncate(before);
            break;
        }
        next += 1;
    }
    if next <= total || first > total {
        let _ = write!(
            shown,
            "[lines {first} to {} of {total}]",
            next.saturating_sub(1)
        );
    }
    shown
}

/// `content` with the one place where `old` stands replaced by `new`.
fn replace_once(content: &[u8], old: &[u8], new: &[u8]) -> Result<Vec<u8>, String> {
    if old.is_empty() {
        return Err("`old` is empty; `write` makes a whole file".to_owned());
    }
    let Some(at) = content.find(old) else {
        let hint = if content.contains_str(b"\r\n") && !old.contains_str(b"\r\n") {
            "; the lines of the file end with CR and LF"
        } else {
            ""
        };
        return Err(format!("`old` is not in the file{hint}"));
    };
    // One that overlaps the first is another one.
    if content[at + 1..].contains_str(old) {
        return Err(
            "`old` is in the file more than once; give more of what is around it".to_owned(),
        );
    }
    Ok([&content[..at], new, &content[at + old.len()..]].concat())
}

fn line_of(entry: &Entry) -> String {
    let path = entry.path.display();
    match entry.kind {
        EntryKind::File => format!("{path} ({} bytes)\n", entry.size),
        EntryKind::Directory => format!("{path}/\n"),
        EntryKind::Link => format!("{path} (a link)\n"),
        EntryKind::Special => format!("{path} (neither a file nor a directory)\n"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_numbered_and_bounded() {
        assert_eq!(numbered("a\nb\n", 1, 9, 9000), "     1\ta\n     2\tb\n");
        assert_eq!(
            numbered("a\nb\nc", 2, 1, 9000),
            "     2\tb\n[lines 2 to 2 of 3]"
        );
        assert_eq!(numbered("", 1, 9, 9000), "the file is empty");
        assert_eq!(numbered("a", 5, 9, 9000), "[lines 5 to 4 of 1]");
        let long = format!("{}\nb", "x".repeat(LONGEST_LINE + 1));
        assert!(numbered(&long, 1, 9, 9000).contains("x […]\n     2\tb"));
        let many = "line\n".repeat(10_000);
        let shown = numbered(&many, 1, usize::MAX, 1024);
        assert!(
            shown.len() <= 1024 && shown.ends_with("of 10000]"),
            "{shown}"
        );
        assert!(as_text(b"a\0").is_err() && as_text(b"\xff").is_err());
    }

    #[test]
    fn an_edit_is_exact_and_of_one_place() {
        let edit = |content: &str, old: &str| {
            replace_once(content.as_bytes(), old.as_bytes(), b"X")
                .map(|edited| String::from_utf8(edited).unwrap())
        };
        assert_eq!(edit("abc", "b").unwrap(), "aXc");
        assert!(edit("abcb", "b").unwrap_err().contains("more than once"));
        assert!(edit("aaa", "aa").unwrap_err().contains("more than once"));
        assert!(edit("abc", "").unwrap_err().contains("empty"));
        let error = edit("a\r\nb", "a\nb").unwrap_err();
        assert!(error.contains("CR and LF"), "{error}");
    }

    proptest! {
        #[test]
        fn an_edit_changes_the_piece_and_nothing_else(
            content in proptest::collection::vec(0_u8..4, 0..20),
            old in proptest::collection::vec(0_u8..4, 0..4),
            new in proptest::collection::vec(any::<u8>(), 0..4),
        ) {
            let places: Vec<usize> = (0..content.len())
                .filter(|at| !old.is_empty() && content[*at..].starts_with(&old))
                .collect();
            match replace_once(&content, &old, &new) {
                Ok(edited) => {
                    prop_assert_eq!(places.len(), 1);
                    let at = places[0];
                    prop_assert_eq!(&edited[..at], &content[..at]);
                    prop_assert_eq!(&edited[at..at + new.len()], &new[..]);
                    prop_assert_eq!(&edited[at + new.len()..], &content[at + old.len()..]);
                }
                Err(_) => prop_assert_ne!(places.len(), 1),
            }
        }
    }
}
