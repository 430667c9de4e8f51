//! What the model can do. Whatever it does goes through the workspace.

mod bash;
mod files;
mod search;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mini_ork_protocol::ByteString;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::conversation::ToolCall;
use super::excerpt::shorten;
use crate::session::SessionError;
use crate::workspace::{FileError, InnerPath, ListRequest, Workspace};

/// A tool as the model is told of it.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    parameters: &'static [Parameter],
}

#[derive(Debug)]
struct Parameter {
    name: &'static str,
    kind: &'static str,
    description: &'static str,
    required: bool,
}

const fn required(name: &'static str, description: &'static str) -> Parameter {
    Parameter {
        name,
        kind: "string",
        description,
        required: true,
    }
}

const fn optional(name: &'static str, kind: &'static str, description: &'static str) -> Parameter {
    Parameter {
        name,
        kind,
        description,
        required: false,
    }
}

/// All tools, in the order in which the model reads of them.
pub(super) const TOOLS: &[Tool] = &[
    Tool {
        name: "bash",
        description: "Runs a command with bash in the root of the workspace. Standard input is empty. Everything that the command started is ended with it, in the background as well. Long output is shortened in its middle.",
        parameters: &[
            required("command", "The command."),
            optional("timeout_s", "integer", "Seconds after which it is ended."),
        ],
    },
    Tool {
        name: "read",
        description: "Reads a text file, with line numbers.",
        parameters: &[
            required("path", "The file, relative to the root of the workspace."),
            optional("offset", "integer", "The first line to read, from 1."),
            optional("limit", "integer", "How many lines to read."),
        ],
    },
    Tool {
        name: "write",
        description: "Writes a file, with the directories above it. What was in it is replaced.",
        parameters: &[
            required("path", "The file, relative to the root of the workspace."),
            required("content", "The whole content."),
        ],
    },
    Tool {
        name: "edit",
        description: "Replaces a piece of a file. The piece has to be in the file exactly once, with the same spaces and line ends and without line numbers.",
        parameters: &[
            required("path", "The file, relative to the root of the workspace."),
            required("old", "What is there."),
            required("new", "What is to be there."),
        ],
    },
    Tool {
        name: "list",
        description: "Lists a directory.",
        parameters: &[
            optional(
                "path",
                "string",
                "The directory; the root of the workspace when absent.",
            ),
            optional(
                "recursive",
                "boolean",
                "Whether to list what is below it as well.",
            ),
        ],
    },
    Tool {
        name: "search",
        description: "Finds the lines of text files that match a regular expression. Directories of tools and of what is built are passed over unless the path leads into them.",
        parameters: &[
            required("pattern", "The regular expression."),
            optional(
                "path",
                "string",
                "A file or directory; the root of the workspace when absent.",
            ),
            optional("fixed", "boolean", "Whether the pattern is plain text."),
            optional("ignore_case", "boolean", "Whether case does not matter."),
        ],
    },
    Tool {
        name: "finish",
        description: "Ends the work. Use it once everything is done and checked.",
        parameters: &[required(
            "summary",
            "What was done, and what the reader should know.",
        )],
    },
];

impl Tool {
    /// The parameters as a JSON schema.
    pub(super) fn schema(&self) -> Value {
        let properties: Map<String, Value> = self
            .parameters
            .iter()
            .map(|parameter| {
                let schema = json!({"type": parameter.kind, "description": parameter.description});
                (parameter.name.to_owned(), schema)
            })
            .collect();
        let required: Vec<&str> = self
            .parameters
            .iter()
            .filter(|parameter| parameter.required)
            .map(|parameter| parameter.name)
            .collect();
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }
}

/// Carries out calls.
pub(super) struct Toolbox {
    pub(super) workspace: Arc<dyn Workspace>,
    /// The directory that the tools work in.
    pub(super) root: PathBuf,
    /// What commands get to see.
    pub(super) environment: Vec<(ByteString, ByteString)>,
    /// Where the records of commands are, for as long as they run.
    pub(super) records: PathBuf,
    pub(super) longest_command: Duration,
    /// Most bytes of a result.
    pub(super) longest_output: usize,
    /// How many commands were run.
    pub(super) commands: u64,
}

/// What came of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// For the model.
    pub(super) content: String,
    pub(super) ok: bool,
    /// The summary, when the model is done.
    pub(super) finished: Option<String>,
}

impl Outcome {
    fn of(result: Result<String, String>) -> Self {
        let (ok, content) = match result {
            Ok(content) => (true, content),
            Err(message) => (false, message),
        };
        Self {
            content,
            ok,
            finished: None,
        }
    }

    /// A call that was not carried out.
    pub(super) fn refused(why: &str) -> Self {
        Self::of(Err(why.to_owned()))
    }
}

#[derive(Deserialize)]
struct Finish {
    summary: String,
}

impl Toolbox {
    /// Carries out one call. Whatever is wrong with it is for the model to read.
    pub(super) async fn run(&mut self, call: &ToolCall, deadline: Option<Instant>) -> Outcome {
        if let Some(mistake) = &call.mistake {
            let message = format!(
                "the arguments of `{}` cannot be used: {mistake}; nothing was done",
                call.name
            );
            return Outcome::of(Err(message));
        }
        let mut outcome = match call.name.as_str() {
            "bash" => match arguments(call) {
                Ok(bash) => self.bash(&bash, deadline).await,
                Err(message) => Outcome::of(Err(message)),
            },
            "read" => Outcome::of(self.read(call).await),
            "write" => Outcome::of(self.write(call).await),
            "edit" => Outcome::of(self.edit(call).await),
            "list" => Outcome::of(self.list(call).await),
            "search" => Outcome::of(self.search(call).await),
            "finish" => match arguments::<Finish>(call) {
                Ok(Finish { summary }) => Outcome {
                    content: "the work is ended".to_owned(),
                    ok: true,
                    finished: Some(summary),
                },
                Err(message) => Outcome::of(Err(message)),
            },
            unknown => {
                let names: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
                Outcome::of(Err(format!(
                    "there is no tool `{unknown}`; there are: {}",
                    names.join(", ")
                )))
            }
        };
        outcome.content = shorten(&outcome.content, self.longest_output);
        outcome
    }

    /// Why no tool can do anything any more, when the sandbox that they work in is lost.
    pub(super) async fn lost(&self) -> Option<String> {
        let request = ListRequest {
            levels: 1,
            most: 1,
            not_entered: &[],
        };
        let root = self.path(".").ok()?;
        let listed = self.workspace.list(&self.root, &root, request).await;
        let source = listed.err()?.source;
        let error = source.get_ref()?.downcast_ref::<SessionError>()?;
        Some(error.to_string())
    }

    fn path(&self, text: &str) -> Result<InnerPath, String> {
        InnerPath::parse(&self.root, text).map_err(|error| error.to_string())
    }
}

fn arguments<T: DeserializeOwned>(call: &ToolCall) -> Result<T, String> {
    serde_json::from_value(Value::from(call.input.clone())).map_err(|error| {
        format!(
            "the arguments of `{}` cannot be used: {error}; nothing was done",
            call.name
        )
    })
}

/// What the model reads of a failure.
fn explain(error: &FileError) -> String {
    format!("{error}: {}", error.source)
}

/// What a call is about, in one line: the argument that says most.
pub(super) fn summary(call: &ToolCall, longest: usize) -> String {
    let telling = ["command", "path", "pattern", "summary"];
    let told = telling
        .iter()
        .find_map(|name| call.input.get(*name).and_then(Value::as_str));
    let text = match told {
        Some(text) => text.to_owned(),
        None => Value::from(call.input.clone()).to_string(),
    };
    shorten(&crate::text::on_one_line(&text), longest).replace('\n', " ")
}

/// A directory of its own for the records of each command.
fn records_of(records: &Path, number: u64) -> PathBuf {
    records.join(number.to_string())
}
