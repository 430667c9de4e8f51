//! How each program that asks a model is started so that it works alone, asks nobody but the given
//! address, and leaves the user's own configuration of it alone.
//!
//! The prompt goes to all of them on standard input: an argument has a length limit and is seen by
//! everybody. A token is only ever in the environment.

mod built_in;
mod claude;
mod codex;
mod opencode;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use mini_ork_protocol::ByteString;

use super::model::{Agent, Driver, Inject, ModelAgent};

/// The variable in which an agent that lets itself be told its name finds its token.
const TOKEN_VARIABLE: &str = "LANE_TOKEN";
/// How long an agent waits for an answer to begin. The gateway, which retries and knows when an
/// answer stalls, gives up earlier.
const ANSWER_TIMEOUT_MS: u64 = 900_000;

/// What an agent is started with.
#[derive(Debug, Clone, Copy)]
pub struct LaunchContext<'a> {
    /// The mini-ork program.
    pub program: &'a Path,
    /// Where the agent finds its API: the gateway, or the vendor's own address for
    /// `inject: env`. As in [`ModelAgent::base_url`], without a `/` at its end.
    pub base_url: &'a str,
    /// A directory of the node alone, absolute. It is kept over the rounds of the node, since the
    /// agent keeps its sessions there.
    pub home: &'a Path,
    /// The session of an earlier round that is to go on, as [`super::Conclusion::session`] has it.
    pub resume: Option<&'a str>,
    /// Whether the node may change files.
    pub writes: bool,
    /// The file with the [`ToolPlace`](mini_ork_node::agent::ToolPlace) of the built-in agent, when
    /// its tools do not work where it is itself. The other agents cannot be told.
    pub tools: Option<&'a Path>,
}

/// How an agent is started. The prompt is to be a file on its standard input.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// Program and arguments, free of secrets.
    pub argv: Vec<ByteString>,
    /// Set beside what every program of a run gets.
    pub environment: Vec<(OsString, OsString)>,
    /// Files to write below the home before, free of secrets.
    pub files: Vec<(PathBuf, Vec<u8>)>,
}

impl fmt::Debug for Launch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables: Vec<_> = self.environment.iter().map(|(name, _)| name).collect();
        formatter
            .debug_struct("Launch")
            .field("argv", &self.argv)
            .field("variables", &variables)
            .finish_non_exhaustive()
    }
}

impl ModelAgent {
    /// How the agent is started. `token` is what it shows to [`LaunchContext::base_url`]: the
    /// gateway's placeholder, or the key itself for `inject: env`.
    pub fn launch(&self, context: &LaunchContext<'_>, token: &str) -> Launch {
        match self.driver {
            Driver::ClaudeCode => claude::launch(self, context, token),
            Driver::Codex => codex::launch(self, context, token),
            Driver::Opencode => opencode::launch(self, context, token),
            Driver::BuiltIn => built_in::launch(self, context, token),
        }
    }

    /// How often an agent may repeat a call. The gateway does so by itself.
    fn retries(&self) -> u32 {
        match self.inject {
            Inject::Gateway => 0,
            Inject::Env => 3,
        }
    }
}

impl Agent {
    /// The variables that the driver sets.
    pub(super) fn variables(&self) -> Vec<String> {
        let Self::Model(model) = self else {
            return Vec::new();
        };
        let context = LaunchContext {
            program: Path::new("mini-ork"),
            base_url: &model.base_url,
            home: Path::new("/"),
            resume: None,
            writes: true,
            tools: None,
        };
        let launch = model.launch(&context, "");
        let names = launch.environment.into_iter();
        names
            .map(|(name, _)| name.to_string_lossy().into_owned())
            .collect()
    }
}

fn variable(name: &str, value: impl Into<OsString>) -> (OsString, OsString) {
    (name.into(), value.into())
}

#[cfg(test)]
mod tests;
