use std::fmt::Write as _;
use std::time::Duration;

use bstr::ByteSlice as _;
use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use tokio::time::Instant;

use super::files::PASSED_OVER;
use super::{Toolbox, arguments, explain};
use crate::agent::conversation::ToolCall;
use crate::text::beginning;
use crate::workspace::{EntryKind, InnerPath, ListRequest};

const MOST_FILES: usize = 50_000;
const MOST_LEVELS: usize = 40;
const LONGEST_FILE: u64 = 2 << 20;
const MOST_MATCHES: usize = 200;
/// How much of a line is looked at, and how much of it is shown.
const LONGEST_LINE: usize = 16 << 10;
const LONGEST_SHOWN: usize = 300;
const TIME: Duration = Duration::from_secs(30);
/// Bounds the time that a line takes: it grows with the size of the compiled expression.
const LARGEST_REGEX: usize = 256 << 10;

#[derive(Deserialize)]
struct Search {
    pattern: String,
    path: Option<String>,
    #[serde(default)]
    fixed: bool,
    #[serde(default)]
    ignore_case: bool,
}

/// What was found so far.
#[derive(Default)]
struct Matches {
    text: String,
    count: usize,
    /// Files that were not looked through.
    passed_over: usize,
}

impl Toolbox {
    pub(super) async fn search(&self, call: &ToolCall) -> Result<String, String> {
        let search: Search = arguments(call)?;
        let regex = compile(&search)?;
        let given = search.path.as_deref().unwrap_or(".");
        let path = self.path(given)?;
        let until = Instant::now() + TIME;
        let request = ListRequest {
            levels: MOST_LEVELS,
            most: MOST_FILES,
            not_entered: PASSED_OVER,
        };
        let mut matches = Matches::default();
        let (files, mut complete) = match self.workspace.list(&self.root, &path, request).await {
            Ok(listing) => {
                let files = listing.entries.into_iter();
                let files = files.filter(|entry| entry.kind == EntryKind::File);
                let files = files.map(|entry| path.below(&entry.path)).collect();
                (files, listing.complete)
            }
            // Perhaps it is a file.
            Err(_) => (vec![path.clone()], true),
        };
        let single = files == [path];
        for file in files {
            if matches.count >= MOST_MATCHES || Instant::now() >= until {
                complete = false;
                break;
            }
            match self.workspace.get(&self.root, &file, LONGEST_FILE).await {
                Ok(content) => {
                    complete &= look_through(&regex, &file, &content, until, &mut matches);
                }
                Err(error) if single => return Err(explain(&error)),
                Err(_) => matches.passed_over += 1,
            }
            // Other work of this thread goes on meanwhile.
            tokio::task::yield_now().await;
        }
        if matches.count == 0 {
            matches.text.push_str("no match\n");
        }
        if matches.passed_over > 0 {
            let _ = writeln!(
                matches.text,
                "[{} files could not be read or are longer than {} MiB]",
                matches.passed_over,
                LONGEST_FILE >> 20
            );
        }
        if !complete {
            matches
                .text
                .push_str("[there is more that was not searched or is not shown]\n");
        }
        Ok(matches.text)
    }
}

fn compile(search: &Search) -> Result<Regex, String> {
    let pattern = if search.fixed {
        regex::escape(&search.pattern)
    } else {
        search.pattern.clone()
    };
    RegexBuilder::new(&pattern)
        .case_insensitive(search.ignore_case)
        .size_limit(LARGEST_REGEX)
        .dfa_size_limit(1 << 20)
        .build()
        .map_err(|error| format!("the pattern cannot be used: {error}"))
}

/// Adds the matches of one file; false when there may be more than were added.
fn look_through(
    regex: &Regex,
    path: &InnerPath,
    content: &[u8],
    until: Instant,
    matches: &mut Matches,
) -> bool {
    // What is not text has no lines.
    if content[..content.len().min(8192)].contains(&0) {
        return true;
    }
    for (number, line) in (1..).zip(content.lines()) {
        if matches.count >= MOST_MATCHES || (number % 64 == 0 && Instant::now() >= until) {
            return false;
        }
        let line = &line[..line.len().min(LONGEST_LINE)];
        if regex.is_match(line) {
            let text = String::from_utf8_lossy(line);
            let shown = beginning(&text, LONGEST_SHOWN);
            let more = if shown.len() < text.len() {
                " […]"
            } else {
                ""
            };
            let path = path.as_path().display();
            let _ = writeln!(matches.text, "{path}:{number}: {shown}{more}");
            matches.count += 1;
        }
    }
    true
}
