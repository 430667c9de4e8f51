use serde::{Deserialize, Serialize};

use crate::model::TokenUsage;

/// What the built-in agent tells while it works: a line of JSON each, on standard output.
///
/// [`Start`](Self::Start) is the first and [`End`](Self::End) the last; one that was killed has no
/// end. Text is bounded; what was left out of it is noted in its middle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentEvent {
    /// It begins.
    Start {
        /// The name of the API, as in [`Api::name`](crate::model::Api::name).
        api: String,
        /// The model.
        model: String,
    },
    /// The model said something.
    Text {
        /// What it said.
        text: String,
    },
    /// A tool is being used.
    Tool {
        /// Its name, as the model wrote it.
        name: String,
        /// What it is used on, in one short line: the command, the path, the pattern.
        input: String,
    },
    /// What came of the last [`Tool`](Self::Tool).
    ToolEnd {
        /// Whether it did what it was to do. A command that ended with another code than 0 did not.
        ok: bool,
        /// What the model gets to see, shortened once more.
        output: String,
    },
    /// A call to the model was answered.
    Usage {
        /// Absent when the vendor did not say.
        usage: Option<TokenUsage>,
    },
    /// Something that people should know, such as that the conversation was shortened.
    Note {
        /// One sentence.
        text: String,
    },
    /// It is over.
    End {
        /// Whether the work is done, by the model's own word.
        ok: bool,
        /// Why it ended.
        reason: EndReason,
        /// The same in a sentence for people.
        message: String,
        /// The last word of the model when it is done, else empty.
        answer: String,
        /// How many answers the model gave.
        turns: u32,
    },
}

/// Why the built-in agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model used the tool `finish`. The only reason besides [`Self::Answered`] that is a
    /// success.
    Finished,
    /// The model answered without using a tool.
    Answered,
    /// The model or its vendor refused for reasons of safety.
    Refused,
    /// The model answered nothing, twice in a row.
    Empty,
    /// Answers came to the limit of their length again and again.
    Cut,
    /// The model did the same again and again.
    Repeating,
    /// The limit of turns was reached.
    Turns,
    /// The limit of tokens was reached.
    Tokens,
    /// The time was over.
    Time,
    /// The conversation does not fit into the model's window, however it is shortened.
    Window,
    /// The gateway or the vendor gave an error.
    Api,
    /// The answer broke off or was not of the API's form.
    Stream,
    /// The gateway could not be reached.
    Network,
    /// What it told could not be written down.
    Unheard,
    /// The sandbox that its tools work in is gone, or cannot be reached.
    Workspace,
    /// The agent was not started as it has to be.
    Setup,
}

impl EndReason {
    /// Whether the work is done, by the model's own word.
    pub fn is_success(self) -> bool {
        matches!(self, Self::Finished | Self::Answered)
    }
}
