use std::path::Path;

use serde::Deserialize;

use super::dialect::Tokens;
use super::script::Script;
use super::tools::Act;
use super::trouble::Trouble;
use super::turn::Turn;

/// A conversation in a file: JSON, `{"turns": […]}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recording {
    turns: Vec<Recorded>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    /// Texts that the results of tools hold before this turn: else the conversation has gone
    /// another way than when it was recorded.
    #[serde(default)]
    after: Vec<String>,
    #[serde(default)]
    thinking: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    acts: Vec<RecordedAct>,
    #[serde(default)]
    tokens: Option<RecordedTokens>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedAct {
    Run(String),
    Read(String),
    Write {
        path: String,
        content: String,
    },
    Edit {
        path: String,
        old: String,
        new: String,
    },
    Finish(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedTokens {
    input: u64,
    #[serde(default)]
    cache_read: u64,
    #[serde(default)]
    cache_write: u64,
    output: u64,
}

impl Script {
    /// The conversation that is recorded in the file `path`, as [`Self::conversation`] plays it. A
    /// client whose tools answer something else than was recorded is refused.
    #[track_caller]
    pub fn recorded(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let text = fs_err::read_to_string(path).unwrap();
        let recording: Recording = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let turns: Vec<(Vec<String>, Turn)> = recording
            .turns
            .into_iter()
            .map(|recorded| (recorded.after.clone(), recorded.turn()))
            .collect();
        Self::each(move |request| {
            let Some((after, turn)) = turns.get(request.answers()) else {
                return refusal(format!("the recording has {} turns", turns.len()));
            };
            let results = request.results().concat();
            match after.iter().find(|text| !results.contains(*text)) {
                None => turn.clone(),
                Some(text) => refusal(format!(
                    "turn {} of the recording comes after `{text}`, but the tools said: {results}",
                    request.answers() + 1
                )),
            }
        })
    }
}

impl Recorded {
    fn turn(self) -> Turn {
        let mut turn = Turn::acts(self.acts.into_iter().map(RecordedAct::act));
        if let Some(thinking) = self.thinking {
            turn = turn.thinking(thinking);
        }
        if let Some(text) = self.text {
            turn = turn.saying(text);
        }
        if let Some(tokens) = self.tokens {
            turn = turn.tokens(
                Tokens::new(tokens.input, tokens.output)
                    .cached(tokens.cache_read, tokens.cache_write),
            );
        }
        turn
    }
}

impl RecordedAct {
    fn act(self) -> Act {
        match self {
            Self::Run(command) => Act::Run(command),
            Self::Read(path) => Act::Read(path),
            Self::Write { path, content } => Act::Write { path, content },
            Self::Edit { path, old, new } => Act::Edit { path, old, new },
            Self::Finish(words) => Act::Finish(words),
        }
    }
}

fn refusal(message: String) -> Turn {
    Turn::trouble(Trouble::Request(message))
}
