use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mini_ork_node::agent::{
    AGENT_ARGUMENT, AGENT_TOKEN_VARIABLE, Agent, AgentEnd, AgentEvent, AgentLimits, AgentSpec,
    EndReason,
};
use mini_ork_node::model::Api;
use mini_ork_node::secret::Secret;
use mini_ork_node::supervise::Supervisor;
use mini_ork_node::workspace::LocalWorkspace;
use mini_ork_testkit::{Act, Dialect, ModelServer, Script, Turn};
use serde_json::Value;

const NODE_PROGRAM: &str = env!("CARGO_BIN_EXE_mini-ork-node");
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const PROMPT: &str = "Put the file right.";

/// A workspace, and a model that works in it.
pub(crate) struct Desk {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) server: ModelServer,
    pub(crate) limits: AgentLimits,
}

/// What became of the work.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) events: Vec<AgentEvent>,
    pub(crate) end: AgentEnd,
}

impl Desk {
    pub(crate) fn new(script: Script) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs_err::create_dir(directory.path().join("tree")).unwrap();
        fs_err::write(directory.path().join("secret"), "outside").unwrap();
        let desk = Self {
            directory,
            server: ModelServer::start(script),
            limits: AgentLimits::default(),
        };
        desk.put("calc.py", "def add(a, b):\n    return a - b\n");
        desk
    }

    pub(crate) fn turns(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self::new(Script::conversation(turns))
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("tree")
    }

    pub(crate) fn records(&self) -> PathBuf {
        self.directory.path().join("records")
    }

    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        fs_err::write(self.root().join(path), content).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs_err::read_to_string(self.root().join(path)).unwrap()
    }

    pub(crate) fn spec(&self, dialect: Dialect) -> AgentSpec {
        AgentSpec {
            tools: None,
            api: match dialect {
                Dialect::Messages => Api::AnthropicMessages,
                Dialect::Chat => Api::OpenaiChat,
                Dialect::Responses => Api::OpenaiResponses,
            },
            base_url: self.server.base_url(dialect),
            model: "m1".to_owned(),
            records: self.records(),
            limits: self.limits.clone(),
        }
    }

    pub(crate) fn agent(&self, dialect: Dialect) -> Agent {
        Agent {
            spec: self.spec(dialect),
            token: Secret::new(self.server.key().as_bytes().to_vec()).unwrap(),
            workspace: Arc::new(LocalWorkspace::new(Supervisor::new(NODE_PROGRAM.into()))),
            root: self.root(),
            environment: vec![("PATH".into(), PATH.into())],
        }
    }

    /// The loop is here, its tools act through a workspace.
    pub(crate) fn work(&self, dialect: Dialect) -> Done {
        let agent = self.agent(dialect);
        let mut events = Vec::new();
        let mut observer = |event| {
            events.push(event);
            ControlFlow::Continue(())
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let end = runtime.block_on(async {
            let work = agent.work(PROMPT, &mut observer);
            tokio::time::timeout(PATIENCE, work).await.unwrap()
        });
        self.check(events, end)
    }

    /// As a program of its own, with its tools.
    pub(crate) fn run(&self, dialect: Dialect) -> Done {
        let spec = serde_json::to_string(&self.spec(dialect)).unwrap();
        let mut child = program()
            .args([AGENT_ARGUMENT, &spec])
            .current_dir(self.root())
            .env(AGENT_TOKEN_VARIABLE, self.server.key())
            .env("MO_RUN_MARKER", "outer")
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(PROMPT.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert!(output.stderr.is_empty(), "{output:?}");
        let done = self.read_events(&output.stdout);
        assert_eq!(output.status.success(), done.end.reason.is_success());
        done
    }

    pub(crate) fn read_events(&self, stdout: &[u8]) -> Done {
        let lines = std::str::from_utf8(stdout).unwrap().lines();
        let events: Vec<AgentEvent> = lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let Some(AgentEvent::End {
            reason,
            message,
            answer,
            turns,
            ..
        }) = events.last().cloned()
        else {
            panic!("the last event is no end: {events:?}");
        };
        let end = AgentEnd {
            reason,
            message,
            answer,
            turns,
        };
        self.check(events, end)
    }

    /// What holds whatever the model did.
    pub(crate) fn check(&self, events: Vec<AgentEvent>, end: AgentEnd) -> Done {
        let starts = |event: &AgentEvent| matches!(event, AgentEvent::Start { .. });
        let ends = |event: &AgentEvent| matches!(event, AgentEvent::End { .. });
        assert_eq!(events.iter().filter(|event| ends(event)).count(), 1);
        assert!(events.iter().filter(|event| starts(event)).count() <= 1);
        let Some(AgentEvent::End { ok, reason, .. }) = events.last() else {
            panic!("the last event is no end: {events:?}");
        };
        assert_eq!((*ok, *reason), (end.reason.is_success(), end.reason));
        assert!(!end.message.is_empty() && end.message.len() < 4000);
        let secret = fs_err::read(self.directory.path().join("secret")).unwrap();
        assert_eq!(secret, b"outside");
        let left = fs_err::read_dir(self.records()).map_or(0, Iterator::count);
        assert_eq!(left, 0, "records are left");
        let text = format!("{events:?}");
        assert!(!text.contains(self.server.key()));
        Done { events, end }
    }

    /// The bodies of all requests.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        let requests = self.server.requests();
        let bodies = requests.iter();
        bodies
            .map(|request| serde_json::from_slice(&request.body).unwrap())
            .collect()
    }
}

impl Done {
    /// What the tools said, in order.
    pub(crate) fn results(&self) -> Vec<(bool, &str)> {
        let events = self.events.iter();
        events
            .filter_map(|event| match event {
                AgentEvent::ToolEnd { ok, output } => Some((*ok, output.as_str())),
                _ => None,
            })
            .collect()
    }

    #[track_caller]
    pub(crate) fn assert_ended(&self, reason: EndReason, message: &str) {
        assert_eq!(self.end.reason, reason, "{:?}", self.end);
        assert!(self.end.message.contains(message), "{:?}", self.end);
    }
}

/// A call by name, with arguments as JSON.
pub(crate) fn call(name: &str, arguments: &Value) -> Act {
    raw_call(name, &arguments.to_string())
}

pub(crate) fn raw_call(name: &str, arguments: &str) -> Act {
    Act::Call {
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    }
}

/// A command that takes for ever and that no other test runs.
pub(crate) fn nap() -> String {
    format!("sleep 99{}", std::process::id())
}

/// The one constructor of the agent as a program.
#[expect(
    clippy::disallowed_methods,
    reason = "the one constructor of the agent as a program"
)]
pub(crate) fn program() -> Command {
    let mut command = Command::new(NODE_PROGRAM);
    command
        .env_clear()
        .env("PATH", PATH)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}
