//! What an agent printed, for people while it works, and for the run when it has ended.
//!
//! All of it is untrusted: lines may be of any length, no JSON at all, or say anything. Nothing of
//! it is taken as proof that work was done; that is what the tree and the verifiers are for.

mod built_in;
mod claude;
mod codex;
mod failure;
mod lines;
mod opencode;
mod words;

use mini_ork_node::model::FailureClass;
use serde_json::Value;

use self::lines::Lines;
use super::model::Driver;

/// Most bytes of an answer that are kept. It is the end that holds the verdict.
const LONGEST_ANSWER: usize = 256 << 10;
const LONGEST_SESSION: usize = 128;

/// Something that an agent did or said, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What kind of thing.
    pub kind: EntryKind,
    /// Text as the agent wrote it: it may hold line ends and control characters. Only what was
    /// [`EntryKind::Said`] has more than one line or more than a few hundred bytes.
    pub text: String,
}

/// What kind of thing an agent did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// It wrote something for people.
    Said,
    /// It used a tool; the text is like `runs cargo test`.
    Did,
    /// Something worth knowing, such as a call that is made again, or a tool that failed.
    Noted,
    /// It cannot go on.
    Failed,
}

/// How an agent ended, by its own words.
#[derive(Debug, Clone, PartialEq)]
pub struct Conclusion {
    /// The end of its last text, at most 256 KiB.
    pub answer: String,
    /// The session that [`super::LaunchContext::resume`] continues: short, and fit for an argument.
    pub session: Option<String>,
    /// What it thinks that it cost, in US dollars. It knows the prices of few vendors.
    pub cost_usd: Option<f64>,
    /// Lines that could not be read.
    pub unread_lines: u64,
    /// Whether it came to its end, or why not. An exit code says nothing about this.
    pub outcome: Result<(), AgentFailure>,
}

/// Why an agent did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AgentFailure {
    /// What kind of failure.
    pub kind: AgentFailureKind,
    /// One sentence, which may quote the vendor.
    pub message: String,
}

/// What kind of failure ended an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentFailureKind {
    /// It stopped without a word of its end: it was killed, or never began.
    NoEnd,
    /// It used up its turns.
    Turns,
    /// A call to the model failed. Absent when it does not say how; the gateway knows better.
    Call(Option<FailureClass>),
    /// The sandbox that its tools work in was lost.
    Workspace,
    /// Something else of its own.
    Agent,
}

/// Reads what an agent prints, piece by piece. However it is cut, the result is the same.
#[derive(Debug)]
pub struct TranscriptParser {
    lines: Lines,
    unread_lines: u64,
    dialect: Dialect,
}

#[derive(Debug)]
enum Dialect {
    BuiltIn(built_in::BuiltIn),
    Claude(claude::Claude),
    Codex(codex::Codex),
    Opencode(opencode::Opencode),
}

impl TranscriptParser {
    /// A reader for what the program of `driver` prints.
    pub fn new(driver: Driver) -> Self {
        Self {
            lines: Lines::default(),
            unread_lines: 0,
            dialect: match driver {
                Driver::ClaudeCode => Dialect::Claude(claude::Claude::default()),
                Driver::Codex => Dialect::Codex(codex::Codex::default()),
                Driver::Opencode => Dialect::Opencode(opencode::Opencode::default()),
                Driver::BuiltIn => Dialect::BuiltIn(built_in::BuiltIn::default()),
            },
        }
    }

    /// Takes the next piece and gives what became known by it.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Entry> {
        let mut entries = Vec::new();
        let Self {
            lines,
            unread_lines,
            dialect,
        } = self;
        lines.push(bytes, |line| {
            read(line, dialect, unread_lines, &mut entries);
        });
        entries
    }

    /// Takes the end, and gives what the last line was if it had no end of its own.
    pub fn finish(mut self) -> (Vec<Entry>, Conclusion) {
        let mut entries = Vec::new();
        let Self {
            lines,
            unread_lines,
            dialect,
        } = &mut self;
        lines.finish(|line| read(line, dialect, unread_lines, &mut entries));
        let mut conclusion = match self.dialect {
            Dialect::BuiltIn(built_in) => built_in.conclude(),
            Dialect::Claude(claude) => claude.conclude(),
            Dialect::Codex(codex) => codex.conclude(),
            Dialect::Opencode(opencode) => opencode.conclude(),
        };
        conclusion.unread_lines = self.unread_lines;
        (entries, conclusion)
    }
}

fn read(
    line: Option<&[u8]>,
    dialect: &mut Dialect,
    unread_lines: &mut u64,
    entries: &mut Vec<Entry>,
) {
    let event: Option<Value> = line.and_then(|line| serde_json::from_slice(line).ok());
    let Some(event) = event.filter(Value::is_object) else {
        *unread_lines = unread_lines.saturating_add(1);
        return;
    };
    match dialect {
        Dialect::BuiltIn(built_in) => built_in.read(&event, entries),
        Dialect::Claude(claude) => claude.read(&event, entries),
        Dialect::Codex(codex) => codex.read(&event, entries),
        Dialect::Opencode(opencode) => opencode.read(&event, entries),
    }
}

impl Conclusion {
    /// What is known of an agent that has said nothing yet.
    fn of_silence() -> Self {
        Self {
            answer: String::new(),
            session: None,
            cost_usd: None,
            unread_lines: 0,
            outcome: Err(AgentFailure {
                kind: AgentFailureKind::NoEnd,
                message: "it stopped without saying that it was done".to_owned(),
            }),
        }
    }

    fn set_answer(&mut self, text: &str) {
        text[words::end_at(text, LONGEST_ANSWER)..].clone_into(&mut self.answer);
    }

    /// A session goes back into an argument, so it must not be able to be anything else.
    fn set_session(&mut self, session: &Value) {
        let Some(session) = session.as_str() else {
            return;
        };
        let is_plain = session.len() <= LONGEST_SESSION
            && session.starts_with(|first: char| first.is_ascii_alphanumeric())
            && session
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        if is_plain {
            self.session = Some(session.to_owned());
        }
    }

    fn fail(&mut self, kind: AgentFailureKind, message: &str) {
        self.outcome = Err(AgentFailure {
            kind,
            message: words::sentence(message),
        });
    }
}

/// A number that an agent counted; nonsense counts as nothing.
fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// An amount of money that an agent named.
fn money(value: &Value) -> Option<f64> {
    value
        .as_f64()
        .filter(|amount| amount.is_finite() && *amount >= 0.0)
}

#[cfg(test)]
mod tests;
