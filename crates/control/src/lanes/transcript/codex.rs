use serde_json::Value;

use super::failure::{class, sentence_of};
use super::words::{entry, said};
use super::{AgentFailureKind, Conclusion, Entry, EntryKind};

/// What `codex exec --json` prints.
#[derive(Debug)]
pub(super) struct Codex(Conclusion);

impl Default for Codex {
    fn default() -> Self {
        Self(Conclusion::of_silence())
    }
}

impl Codex {
    pub(super) fn read(&mut self, event: &Value, entries: &mut Vec<Entry>) {
        let item = &event["item"];
        match event["type"].as_str() {
            Some("thread.started") => self.0.set_session(&event["thread_id"]),
            Some("turn.started") => self.0.outcome = Conclusion::of_silence().outcome,
            Some("item.started") => entries.extend(begun(item)),
            Some("item.completed") => {
                if item["type"] == "agent_message" {
                    let text = item["text"].as_str().unwrap_or_default();
                    self.0.set_answer(text);
                    entries.extend(said(text));
                }
                entries.extend(completed(item));
            }
            Some("turn.completed") => self.0.outcome = Ok(()),
            Some("turn.failed") => {
                let message = message_of(&event["error"]);
                let kind = AgentFailureKind::Call(class(status_in(&message), &message));
                self.0.fail(kind, &message);
                entries.push(entry(EntryKind::Failed, &message));
            }
            // Not the end: a call is made again, or `turn.failed` follows.
            Some("error") => entries.push(entry(EntryKind::Noted, &message_of(event))),
            _ => {}
        }
    }

    pub(super) fn conclude(self) -> Conclusion {
        self.0
    }
}

fn begun(item: &Value) -> Option<Entry> {
    match item["type"].as_str()? {
        "command_execution" => {
            let command = item["command"].as_str()?;
            let text = format!("runs {}", unwrapped(command));
            Some(entry(EntryKind::Did, &text))
        }
        "mcp_tool_call" => {
            let text = format!("uses {}", item["tool"].as_str()?);
            Some(entry(EntryKind::Did, &text))
        }
        _ => None,
    }
}

fn completed(item: &Value) -> Option<Entry> {
    match item["type"].as_str()? {
        "command_execution" => {
            let code = item["exit_code"].as_i64().filter(|code| *code != 0)?;
            let text = format!("the command ended with {code}");
            Some(entry(EntryKind::Noted, &text))
        }
        "file_change" => {
            let changes = item["changes"].as_array()?.iter();
            let paths: Vec<&str> = changes
                .filter_map(|change| change["path"].as_str())
                .take(10)
                .collect();
            let text = format!("edits {}", paths.join(", "));
            Some(entry(EntryKind::Did, &text))
        }
        "web_search" => {
            let text = format!("searches the web for {}", item["query"].as_str()?);
            Some(entry(EntryKind::Did, &text))
        }
        // A remark of the program; what ends a turn is an event of its own.
        "error" => Some(entry(EntryKind::Noted, item["message"].as_str()?)),
        _ => None,
    }
}

/// The command without the shell that it is run by.
fn unwrapped(command: &str) -> &str {
    let inner = command
        .split_once(" -lc ")
        .filter(|(shell, _)| !shell.contains(' '))
        .map_or(command, |(_, inner)| inner);
    let quoted = inner
        .strip_prefix('\'')
        .and_then(|rest| rest.strip_suffix('\''));
    quoted
        .filter(|inner| !inner.contains('\''))
        .unwrap_or(inner)
}

fn message_of(error: &Value) -> String {
    sentence_of(error["message"].as_str().unwrap_or("without a reason"))
}

/// The status that a message names, as in `unexpected status 529`, `last status: 429`.
fn status_in(message: &str) -> Option<u64> {
    let (_, after) = message.split_once("status")?;
    let digits = after.trim_start_matches([':', ' ']);
    digits.get(..3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_around_a_command_is_left_out() {
        for (command, shown) in [
            ("/bin/bash -lc 'cargo test'", "cargo test"),
            ("bash -lc ls", "ls"),
            ("/bin/bash -lc 'echo '\\''x'\\'''", "'echo '\\''x'\\'''"),
            ("ls -l", "ls -l"),
            ("a b -lc c", "a b -lc c"),
        ] {
            assert_eq!(unwrapped(command), shown);
        }
    }

    #[test]
    fn a_status_is_found_in_a_message() {
        assert_eq!(status_in("unexpected status 529 x: y"), Some(529));
        assert_eq!(status_in("last status: 429 Too Many Requests"), Some(429));
        assert_eq!(status_in("status"), None);
        assert_eq!(status_in("status \u{fc}\u{fc}"), None);
        assert_eq!(status_in("stream closed"), None);
    }
}
