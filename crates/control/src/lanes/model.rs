use std::collections::BTreeMap;
use std::path::PathBuf;

use mini_ork_node::model::Api;
use mini_ork_node::secret::SecretName;
use serde::{Deserialize, Serialize};

/// One lane: how to start its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// Its name in `providers.yaml`.
    pub name: String,
    /// What runs.
    pub agent: Agent,
    /// Added to the environment of its process; holds no secrets, and no variable that the driver
    /// of the lane sets itself.
    pub extra_env: BTreeMap<String, String>,
}

/// What a lane runs. Its working directory is always the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Agent {
    /// A program that reads the prompt on its standard input.
    Executable {
        /// Program and arguments; never empty. The program is an absolute path or a bare name that
        /// is looked up on `PATH`.
        argv: Vec<String>,
    },
    /// A script of steps that is replayed; see [`super::Script`].
    Scripted {
        /// Absolute when the home directory and the repository were given as absolute paths.
        file: PathBuf,
    },
    /// A program that asks a model.
    Model(ModelAgent),
}

/// An agent that asks a model: which program, which model, and with what right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelAgent {
    /// The program that does the work.
    pub driver: Driver,
    /// The form in which it talks to the model.
    pub api: Api,
    /// The model's name for its vendor: printable, without quotes, braces or white space, and not
    /// beginning with `-`.
    pub model: String,
    /// Where the API is, without a `/` at its end. Of the Messages API the part before `/v1`, of
    /// the others all before `/chat/completions` or `/responses`.
    pub base_url: String,
    /// The secret that pays for it.
    pub key: SecretName,
    /// Who holds the secret.
    pub inject: Inject,
    /// Bounds of one node.
    pub limits: LaneLimits,
}

/// The program that does the work of a [`ModelAgent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// The program `claude`.
    ClaudeCode,
    /// The program `codex`.
    Codex,
    /// The program `opencode`.
    Opencode,
    /// The agent that is part of mini-ork.
    BuiltIn,
}

/// Who holds the key of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inject {
    /// The gateway; the agent gets a placeholder that is worth nothing elsewhere.
    Gateway,
    /// The agent itself, in its environment.
    Env,
}

/// Bounds of one node on a lane. What is absent is left to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneLimits {
    /// Most turns; absent for an agent that cannot count them.
    pub max_turns: Option<u32>,
    /// Most requests to the vendor.
    pub max_calls: u32,
    /// Most tokens of one answer.
    pub max_output_tokens: Option<u32>,
    /// Size of the model's window.
    pub context_tokens: Option<u32>,
}

impl Lane {
    /// The model agent of a lane that has one.
    pub fn model(&self) -> Option<&ModelAgent> {
        match &self.agent {
            Agent::Model(model) => Some(model),
            Agent::Executable { .. } | Agent::Scripted { .. } => None,
        }
    }
}

impl Agent {
    /// Its kind in `providers.yaml`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Executable { .. } => "executable",
            Self::Scripted { .. } => "scripted",
            Self::Model(model) => match (model.driver, model.api) {
                (Driver::ClaudeCode, _) => "claude-code",
                (Driver::Codex, _) => "codex",
                (Driver::Opencode, _) => "opencode",
                (Driver::BuiltIn, Api::AnthropicMessages) => "anthropic",
                (Driver::BuiltIn, Api::OpenaiChat | Api::OpenaiResponses) => "openai",
            },
        }
    }
}

impl Driver {
    /// The program that is looked up on `PATH`; absent for the agent that is part of mini-ork.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Self::ClaudeCode => Some("claude"),
            Self::Codex => Some("codex"),
            Self::Opencode => Some("opencode"),
            Self::BuiltIn => None,
        }
    }

    /// The version of the program with which all of it was tried.
    pub fn tried_version(self) -> Option<&'static str> {
        match self {
            Self::ClaudeCode => Some("2.1.197"),
            Self::Codex => Some("0.171.0"),
            Self::Opencode => Some("1.18.33"),
            Self::BuiltIn => None,
        }
    }
}
