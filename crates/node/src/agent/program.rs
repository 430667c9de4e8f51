use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read as _, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use mini_ork_protocol::ByteString;

use super::spec::ToolPlace;
use super::{Agent, AgentEvent, AgentSpec, EndReason};
use crate::secret::Secret;
use crate::supervise::Supervisor;
use crate::sys::files::read_bounded;
use crate::workspace::{LocalWorkspace, Workspace, enter};

/// First argument of a mini-ork that is to be an agent; the second is an [`AgentSpec`] as JSON.
pub const AGENT_ARGUMENT: &str = "__agent";
/// The variable with what the gateway knows the agent by. Commands that it runs do not get it.
pub const AGENT_TOKEN_VARIABLE: &str = "MO_AGENT_TOKEN";

const LONGEST_PROMPT: u64 = 4 << 20;
const LONGEST_PLACE: u64 = 16 << 20;

/// What the agent finds around it.
pub struct Surroundings {
    /// The program that supervises the commands of the model; see [`Supervisor::new`].
    pub program: PathBuf,
    /// The working directory, which is the root of the workspace unless the specification says that
    /// the tools work elsewhere.
    pub root: PathBuf,
    /// The whole environment, with the token; the rest of it is that of the tools when they work
    /// here.
    pub environment: Vec<(OsString, OsString)>,
}

/// The environment holds the token and is not shown.
impl fmt::Debug for Surroundings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Surroundings")
            .field("program", &self.program)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

/// Works as an agent by `spec` on the prompt that is read from `input`, on this machine and as
/// this user, with its tools here or in the sandbox that the specification names. Writes [`AgentEvent`]s as lines of JSON to `output`.
///
/// Gives success only when the model said that it is done and every event was written.
pub fn agent_main(
    spec: &OsStr,
    surroundings: Surroundings,
    input: &mut dyn io::Read,
    output: &mut (dyn Write + Send),
) -> ExitCode {
    let mut written = Ok(());
    let mut observer = |event: AgentEvent| {
        if written.is_ok() {
            written = write_line(output, &event);
        }
        if written.is_ok() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    let ok = match prepare(spec, surroundings, input) {
        Ok((agent, prompt, runtime)) => runtime
            .block_on(agent.work(&prompt, &mut observer))
            .reason
            .is_success(),
        Err((reason, message)) => {
            let _ = observer(AgentEvent::End {
                ok: false,
                reason,
                message,
                answer: String::new(),
                turns: 0,
            });
            false
        }
    };
    if ok && written.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn prepare(
    spec: &OsStr,
    surroundings: Surroundings,
    input: &mut dyn io::Read,
) -> Result<(Agent, String, tokio::runtime::Runtime), (EndReason, String)> {
    let setup = |message: String| (EndReason::Setup, message);
    let spec = AgentSpec::parse(spec.as_bytes()).map_err(|error| setup(with_cause(&error)))?;
    let prompt = read_prompt(input).map_err(setup)?;
    let mut token = None;
    let mut environment = Vec::new();
    for (name, value) in surroundings.environment {
        if name == AGENT_TOKEN_VARIABLE {
            token = Secret::new(value.as_bytes().to_vec()).ok();
        } else {
            environment.push((ByteString::from(name), ByteString::from(value)));
        }
    }
    let token = token.ok_or_else(|| setup(format!("{AGENT_TOKEN_VARIABLE} is not set")))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| setup(format!("could not begin: {error}")))?;
    let (workspace, root) = match &spec.tools {
        None => {
            let supervisor = Supervisor::new(surroundings.program);
            let here: Arc<dyn Workspace> = Arc::new(LocalWorkspace::new(supervisor));
            (here, surroundings.root)
        }
        Some(file) => {
            let place = read_place(file)
                .map_err(|error| setup(format!("could not read where its tools work: {error}")))?;
            let there = runtime.block_on(enter(place.way_in));
            let there = there.map_err(|error| (EndReason::Workspace, with_cause(&error)))?;
            environment = place.environment;
            (there, place.root)
        }
    };
    let agent = Agent {
        spec,
        token,
        workspace,
        root,
        environment,
    };
    Ok((agent, prompt, runtime))
}

fn read_prompt(input: &mut dyn io::Read) -> Result<String, String> {
    let mut prompt = Vec::new();
    input
        .take(LONGEST_PROMPT + 1)
        .read_to_end(&mut prompt)
        .map_err(|error| format!("could not read the prompt: {error}"))?;
    if prompt.len() as u64 > LONGEST_PROMPT {
        return Err(format!(
            "the prompt is longer than {} MiB",
            LONGEST_PROMPT >> 20
        ));
    }
    String::from_utf8(prompt).map_err(|_| "the prompt is not UTF-8 text".to_owned())
}

fn read_place(file: &Path) -> io::Result<ToolPlace> {
    let bytes = read_bounded(file, LONGEST_PLACE)?;
    let bytes = bytes.ok_or(io::ErrorKind::NotFound)?;
    Ok(serde_json::from_slice(&bytes)?)
}

fn with_cause(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

fn write_line(output: &mut dyn Write, event: &AgentEvent) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}
