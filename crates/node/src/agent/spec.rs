use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use mini_ork_protocol::ByteString;
use serde::{Deserialize, Serialize};

use crate::model::Api;
use crate::session::WayIn;

/// What the built-in agent is told by whoever starts it. There is no secret in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSpec {
    /// How to talk to the model.
    pub api: Api,
    /// Where the lane gateway is: `http://`, a loopback address and a port, and for the APIs of
    /// OpenAI `/v1`.
    pub base_url: String,
    /// The model.
    pub model: String,
    /// An absolute path outside of the workspace, for the records of the commands that the model
    /// runs. It is made when it is not there; what is put into it is removed again.
    pub records: PathBuf,
    /// The absolute path of a file with the [`ToolPlace`] as JSON, when its tools do not work where
    /// it is itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<PathBuf>,
    /// The bounds of its work.
    #[serde(default)]
    pub limits: AgentLimits,
}

/// A sandbox that the tools of an agent work in while the agent is outside.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolPlace {
    /// How to get there.
    pub way_in: WayIn,
    /// The directory of this machine that is the root of the workspace inside.
    pub root: PathBuf,
    /// The whole environment of commands.
    pub environment: Vec<(ByteString, ByteString)>,
}

/// The environment is not shown.
impl fmt::Debug for ToolPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ToolPlace")
            .field("way_in", &self.way_in)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

/// The bounds of an agent's work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentLimits {
    /// Most answers that the model is asked for.
    pub max_turns: u32,
    /// Seconds after which it ends; none for as long as it is let run.
    pub time_s: Option<u64>,
    /// Most tokens of one answer.
    pub max_output_tokens: u64,
    /// The model's window: most tokens of a request and its answer together.
    pub context_tokens: u64,
    /// Most tokens of all requests and answers together, read from a cache or not; none for any
    /// number.
    pub total_tokens: Option<u64>,
    /// Most seconds that one command may take.
    pub tool_time_s: u64,
    /// Most bytes of a result that the model gets to see.
    pub tool_output_bytes: usize,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            max_turns: 60,
            time_s: None,
            max_output_tokens: 8192,
            context_tokens: 200_000,
            total_tokens: None,
            tool_time_s: 600,
            tool_output_bytes: 32 << 10,
        }
    }
}

/// A specification that no agent can work by.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentSpecError {
    /// It is not of the form.
    #[error("could not understand what to do")]
    Form(#[source] serde_json::Error),
    /// A value cannot be right.
    #[error("{0}")]
    Value(&'static str),
}

impl AgentSpec {
    /// Reads a specification as JSON.
    pub fn parse(json: &[u8]) -> Result<Self, AgentSpecError> {
        let spec: Self = serde_json::from_slice(json).map_err(AgentSpecError::Form)?;
        spec.check()?;
        Ok(spec)
    }

    /// Whether an agent can work by it.
    pub fn check(&self) -> Result<(), AgentSpecError> {
        let wrong = |message| Err(AgentSpecError::Value(message));
        let limits = &self.limits;
        if self.model.trim().is_empty() {
            return wrong("the model has no name");
        }
        if !self.records.is_absolute() {
            return wrong("`records` is not an absolute path");
        }
        if self.tools.as_ref().is_some_and(|file| !file.is_absolute()) {
            return wrong("`tools` is not an absolute path");
        }
        if self.gateway().is_none() {
            return wrong("`base_url` is not `http://`, a loopback address, a port and a path");
        }
        if limits.max_turns == 0 || limits.max_output_tokens == 0 || limits.tool_time_s == 0 {
            return wrong("a limit is zero");
        }
        if limits.tool_output_bytes < 1 << 10 || limits.tool_output_bytes > 1 << 20 {
            return wrong("`tool_output_bytes` is not between 1 KiB and 1 MiB");
        }
        if limits.context_tokens / 2 < limits.max_output_tokens {
            return wrong("`max_output_tokens` is more than half of `context_tokens`");
        }
        Ok(())
    }

    /// Address and path of the gateway.
    pub(super) fn gateway(&self) -> Option<(SocketAddr, &str)> {
        gateway_at(&self.base_url)
    }
}

/// Address and path of the gateway at `base_url`, if that can be one.
pub(super) fn gateway_at(base_url: &str) -> Option<(SocketAddr, &str)> {
    let rest = base_url.strip_prefix("http://")?;
    let (authority, path) = match rest.find('/') {
        Some(slash) => (&rest[..slash], rest[slash..].trim_end_matches('/')),
        None => (rest, ""),
    };
    let address: SocketAddr = authority.parse().ok()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    (address.ip().is_loopback() && path.bytes().all(plain)).then_some((address, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(base_url: &str) -> AgentSpec {
        AgentSpec {
            api: Api::OpenaiChat,
            base_url: base_url.to_owned(),
            model: "m".to_owned(),
            records: "/records".into(),
            tools: None,
            limits: AgentLimits::default(),
        }
    }

    #[test]
    fn the_gateway_is_on_this_machine() {
        let found = |url| {
            let spec = spec(url);
            spec.gateway()
                .map(|(address, path)| format!("{address} {path}"))
        };
        for (url, expected) in [
            ("http://127.0.0.1:80", "127.0.0.1:80 "),
            ("http://127.0.0.1:80/", "127.0.0.1:80 "),
            ("http://[::1]:8/v1/", "[::1]:8 /v1"),
        ] {
            assert_eq!(found(url).unwrap(), expected);
        }
        for url in [
            "https://127.0.0.1:80",
            "http://127.0.0.1",
            "http://example.org:80/v1",
            "http://192.168.0.1:80/v1",
            "http://u:p@127.0.0.1:80/v1",
            "http://127.0.0.1:80/v1?x",
            "http://127.0.0.1:80/v1\r\nx: y",
            "",
        ] {
            assert_eq!(found(url), None, "{url:?}");
        }
    }

    #[test]
    fn a_specification_is_read_strictly() {
        let json = serde_json::to_string(&spec("http://127.0.0.1:1/v1")).unwrap();
        assert_eq!(
            AgentSpec::parse(json.as_bytes()).unwrap(),
            spec("http://127.0.0.1:1/v1")
        );
        let few = r#"{"api":"openai-chat","base_url":"http://127.0.0.1:1/v1","model":"m","records":"/records"}"#;
        assert!(AgentSpec::parse(few.as_bytes()).is_ok());
        for (from, to) in [
            ("\"model\":\"m\"", "\"model\":\" \""),
            ("\"/records\"", "\"records\""),
            ("\"max_turns\":60", "\"max_turns\":0"),
            ("\"max_turns\":60", "\"max_turns\":60,\"turns\":1"),
            ("\"tool_output_bytes\":32768", "\"tool_output_bytes\":10"),
            ("\"context_tokens\":200000", "\"context_tokens\":9000"),
        ] {
            let changed = json.replace(from, to);
            assert_ne!(changed, json);
            assert!(AgentSpec::parse(changed.as_bytes()).is_err(), "{to}");
        }
    }
}
