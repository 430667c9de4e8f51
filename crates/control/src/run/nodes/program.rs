//! A lane's program: how it is started, and what it said.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use mini_ork_node::agent::ToolPlace;
use mini_ork_node::beneath::{Directory, Links};
use mini_ork_node::model::{CallFailure, FailureClass};
use mini_ork_node::replay::REPLAY_ARGUMENT;
use mini_ork_node::supervise::{LogCursor, STDERR_LOG, STDOUT_LOG, last_line, log_edges};
use mini_ork_node::text::with_sources;
use mini_ork_protocol::{ByteString, ExitRecord, SecretBytes, StdinSource};
use serde::{Deserialize, Serialize};

use super::super::context::{ProcessRequest, RunContext, lost_process};
use super::super::directory::{make_directory, write_json};
use super::super::event::{Failure, Remedy};
use super::super::failure::ground_failure;
use super::super::plan::AgentPlace;
use super::super::trees::blocking;
use super::Job;
use super::blame::{blame_policy, last_words, refused_since};
use super::channel::{Channel, failure_of_call};
use crate::lanes::{
    Agent, AgentFailureKind, Conclusion, Lane, LaunchContext, ModelAgent, Occasion, Script,
    TranscriptParser,
};
use crate::reason::Reason;

/// Most bytes of the end of an answer that are read to judge it. How much a lane prints must not
/// decide how much memory the control plane takes.
const ANSWER_LIMIT: usize = 256 << 10;

/// What a lane may say of its own cost, in the file that `MO_USAGE_FILE` names.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Usage {
    cost_usd: f64,
}

/// What the gateway knows of the calls of an attempt.
#[derive(Clone, Copy)]
struct Outside<'a> {
    failure: Option<&'a CallFailure>,
    /// It saw all of them: no other control plane was there before.
    is_all: bool,
}

/// What a lane's program left behind.
pub(super) struct Said {
    pub(super) answer: Vec<u8>,
    /// Its own word, where no gateway knows better.
    pub(super) cost_usd: Option<f64>,
    /// Whether each of its calls is on record.
    pub(super) metered: bool,
    pub(super) session: Option<String>,
    pub(super) last_line: String,
    pub(super) failure: Option<Failure>,
}

/// Runs the program of `lane` on the prompt in `prompt_file`, in `cwd`, or takes up the one that
/// an earlier control plane started for this attempt.
pub(super) async fn run(
    context: &RunContext,
    job: &Job,
    lane: &Lane,
    prompt_file: &Path,
    cwd: &Path,
) -> Result<Said, Failure> {
    let place = job.place(context);
    let directory = job.process_parent(context).join("lane");
    let usage_file = job.directory(context).join("usage.json");
    let resumed = job.resumed_program(context);
    let own = lane.extra_env.iter();
    let own = own.map(|(name, value)| (name.into(), value.into()));
    let of_job = job.environment(context).into_iter();
    let of_job = of_job.map(|(name, value)| (OsString::from(name), value));
    let usage: (OsString, OsString) = ("MO_USAGE_FILE".into(), usage_file.clone().into());
    let mut request = ProcessRequest {
        place,
        directory: directory.clone(),
        argv: command(context, job, lane, &usage_file)?,
        cwd: cwd.to_owned(),
        environment: own.chain(of_job).chain([usage]).collect(),
        stdin: StdinSource::File(prompt_file.into()),
        timeout: context.timeout(job.planned.node.timeout),
        secrets: Vec::new(),
    };
    let channel = match lane.model() {
        Some(agent) => {
            let channel = Channel::open(context, job, lane, agent).await?;
            prepare(context, job, lane, agent, &channel, &mut request)
                .map_err(|error| ground_failure(&error))?;
            Some(channel)
        }
        None => None,
    };
    let denied_before = context.workspace.denials();
    let ended = context.run_process(request).await;
    if place == AgentPlace::ToolsInside {
        // What it left running inside is not known to who saw it end.
        let home = context.directory.agent_home(job.id(), &lane.name);
        let stopped = context.workspace.stop_below(&home).await;
        stopped.map_err(|error| lost_process(&error))?;
    }
    // Whatever became of the program, its placeholder is worth nothing from here on.
    let report = match channel {
        Some(channel) => channel.close().await,
        None => None,
    };
    let record = ended?;
    context.fault.hit("process-ended");
    let denied = refused_since(&denied_before, &context.workspace.denials());
    let blamed = |failure: Option<Failure>| {
        failure.map(|failure| blame_policy(failure, &denied, &last_words(&directory)))
    };
    let Some(agent) = lane.model() else {
        let mut said = plain(context, &directory, &usage_file, &record);
        said.failure = blamed(said.failure);
        return Ok(said);
    };
    let outside = report.as_ref().map(|report| Outside {
        failure: report.failure.as_ref(),
        is_all: !resumed,
    });
    let parser = TranscriptParser::new(agent.driver);
    let stdout = directory.join(STDOUT_LOG);
    let conclusion = blocking(move || read_transcript(&stdout, parser))
        .await
        .map_err(|error| ground_failure(&error))?;
    let mut said = Said {
        answer: conclusion.answer.clone().into_bytes(),
        cost_usd: conclusion.cost_usd.filter(|_| report.is_none()),
        metered: report.is_some(),
        session: conclusion.session.clone(),
        last_line: first_line(&conclusion.answer),
        failure: None,
    };
    let complaint = last_line_of(&directory, STDERR_LOG);
    said.failure = blamed(failure(
        context,
        (lane, agent),
        &record,
        outside,
        &conclusion,
        &complaint,
    ));
    Ok(said)
}

/// The command of a lane that is nothing but one. What a scripted lane replays is chosen here and
/// written down for its program, which may run where there is no script to be seen.
fn command(
    context: &RunContext,
    job: &Job,
    lane: &Lane,
    usage_file: &Path,
) -> Result<Vec<ByteString>, Failure> {
    let file = match &lane.agent {
        Agent::Model(_) => return Ok(Vec::new()),
        Agent::Executable { argv } => {
            return Ok(argv.iter().map(|text| text.as_str().into()).collect());
        }
        Agent::Scripted { file } => file,
    };
    let step_file = job.directory(context).join("step.json");
    if !job.resumed_program(context) {
        let occasion = Occasion {
            node: job.id().as_str(),
            role: job.planned.node.role(),
            kind: job.kind().name(),
            round: job.round,
        };
        let found = Script::step(file, occasion).map_err(|error| Failure {
            reason: Reason::Config,
            detail: format!("lane `{}`: {}", lane.name, with_sources(&error)),
            remedy: Remedy::None,
        })?;
        let cost_usd = found.cost_usd;
        write_json(usage_file, &Usage { cost_usd })
            .and_then(|()| write_json(&step_file, &found.step))
            .map_err(|error| ground_failure(&error))?;
    }
    Ok(vec![
        context.execution.program.as_path().into(),
        REPLAY_ARGUMENT.into(),
        step_file.as_path().into(),
    ])
}

/// Puts the command line, environment and files of an agent together.
fn prepare(
    context: &RunContext,
    job: &Job,
    lane: &Lane,
    agent: &ModelAgent,
    channel: &Channel<'_>,
    request: &mut ProcessRequest,
) -> io::Result<()> {
    let place = job.place(context);
    let home = match place {
        AgentPlace::Inside | AgentPlace::ToolsInside => {
            context.directory.agent_home(job.id(), &lane.name)
        }
        AgentPlace::Host => context.directory.agent_home_outside(job.id(), &lane.name),
    };
    make_directory(&home)?;
    let workspace = context.workspace_of(place);
    let tools = match place {
        AgentPlace::ToolsInside => Some(let_in(context, job, request)?),
        AgentPlace::Inside | AgentPlace::Host => None,
    };
    let launch = agent.launch(
        &LaunchContext {
            program: &workspace.program(),
            base_url: &channel.base_url(),
            home: &workspace.inside(&home),
            resume: job.session.as_deref(),
            writes: job.kind().writes(),
            tools: tools.as_deref(),
        },
        channel.token(),
    );
    write_files(context.directory.root(), &home, &launch.files)?;
    request.argv = launch.argv;
    request.environment.extend(launch.environment);
    match channel.key_inside() {
        Some(key) => request
            .secrets
            .push(SecretBytes::from(key.expose().as_bytes())),
        // The built-in agent heeds no proxy.
        None if place == AgentPlace::ToolsInside => {}
        None => request.environment.extend(context.past_proxies()),
    }
    Ok(())
}

/// Lets the agent of `request`, which is to be outside, use the workspace. Directory and environment
/// of the request are then those of its tools, and it has others itself.
fn let_in(context: &RunContext, job: &Job, request: &mut ProcessRequest) -> io::Result<PathBuf> {
    let way_in = context.workspace.way_in();
    let parent = job.process_parent(context);
    let place = ToolPlace {
        way_in: way_in.ok_or_else(|| io::Error::other("there is no way into the workspace"))?,
        root: std::mem::replace(&mut request.cwd, parent.clone()),
        environment: context.environment(&std::mem::take(&mut request.environment)),
    };
    let file = parent.join("tools.json");
    write_json(&file, &place)?;
    Ok(file)
}

/// Writes `files` below `home`, which lies below `root`. The agent had it to itself in earlier
/// rounds, so whatever links it left there must not lead anywhere.
fn write_files(root: &Path, home: &Path, files: &[(PathBuf, Vec<u8>)]) -> io::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let relative = home.strip_prefix(root).map_err(io::Error::other)?;
    let home = Directory::open(root)?.directory(relative, Links::Refused)?;
    for (path, content) in files {
        home.replace(path, |file| file.write_all(content))?;
    }
    Ok(())
}

/// What a program said that speaks for itself: its output is its answer.
fn plain(context: &RunContext, process: &Path, usage_file: &Path, record: &ExitRecord) -> Said {
    // A program that was never run has no logs, and has said nothing.
    let last_line = last_line_of(process, STDOUT_LOG);
    let complaint = last_line_of(process, STDERR_LOG);
    let answer = log_edges(&process.join(STDOUT_LOG), 0, ANSWER_LIMIT)
        .map(|edges| edges.tail)
        .unwrap_or_default();
    let cost_usd = read_usage(usage_file);
    let words = if complaint.is_empty() {
        &last_line
    } else {
        &complaint
    };
    Said {
        answer,
        cost_usd,
        metered: false,
        session: None,
        failure: context.failure_of(record, words),
        last_line,
    }
}

/// Why the agent did not do its work, when it did not. Its exit code alone says nothing: agents end
/// with 0 after an answer that broke off, and with 1 after one that mini-ork refused.
fn failure(
    context: &RunContext,
    (lane, agent): (&Lane, &ModelAgent),
    record: &ExitRecord,
    outside: Option<Outside<'_>>,
    conclusion: &Conclusion,
    complaint: &str,
) -> Option<Failure> {
    let ended = context.failure_of(record, complaint);
    // What mini-ork or the system did to it explains everything that it says itself.
    if let Some(failure) = &ended
        && failure.reason != Reason::CommandFailed
    {
        return ended;
    }
    if let Some(call) = outside.and_then(|outside| outside.failure) {
        return Some(failure_of_call(lane, agent, call));
    }
    let Err(failed) = &conclusion.outcome else {
        return ended;
    };
    if let AgentFailureKind::Call(Some(class)) = failed.kind {
        let call = CallFailure {
            class,
            message: failed.message.clone(),
        };
        match outside {
            // Who saw every call knows better than the agent that none failed: its word must not
            // move the work to another lane, or blame a key. That the model refused is in an answer
            // like others.
            Some(outside) if outside.is_all && class != FailureClass::Safety => {}
            // There was a time without a gateway, which no other lane can cure.
            Some(outside)
                if !outside.is_all
                    && matches!(class, FailureClass::Network | FailureClass::Stream) =>
            {
                return Some(Failure {
                    reason: Reason::InfraLost,
                    detail: format!(
                        "it lost its model while mini-ork was away: {}",
                        call.message
                    ),
                    remedy: Remedy::Attempt,
                });
            }
            _ => return Some(failure_of_call(lane, agent, &call)),
        }
    }
    let silent = failed.kind == AgentFailureKind::NoEnd;
    if silent && ended.is_some() {
        return ended;
    }
    let detail = match complaint {
        "" => failed.message.clone(),
        complaint => format!("{}: {complaint}", failed.message),
    };
    Some(Failure {
        reason: match failed.kind {
            AgentFailureKind::Workspace => Reason::InfraLost,
            _ => Reason::CommandFailed,
        },
        detail,
        remedy: match failed.kind {
            AgentFailureKind::Turns => Remedy::None,
            _ => Remedy::Attempt,
        },
    })
}

fn read_transcript(path: &Path, mut parser: TranscriptParser) -> io::Result<Conclusion> {
    const PIECE: usize = 64 << 10;
    match LogCursor::open(path, 0) {
        Ok(mut log) => loop {
            let piece = log.read(PIECE)?;
            if piece.is_empty() {
                break;
            }
            parser.push(&piece);
        },
        // A program that was never run has no logs, and has said nothing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(parser.finish().1)
}

fn first_line(text: &str) -> String {
    text.lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The last line of a log, for people; empty when there is none.
pub(super) fn last_line_of(process: &Path, log: &str) -> String {
    last_line(&process.join(log))
        .ok()
        .flatten()
        .unwrap_or_default()
}

/// A lane's own word on its cost. Never trusted further than to be added up.
fn read_usage(path: &Path) -> Option<f64> {
    const LONGEST: u64 = 4096;
    let (directory, name) = (path.parent()?, path.file_name()?);
    let bytes = Directory::open_strictly(directory)
        .and_then(|directory| directory.read(Path::new(name), LONGEST, Links::Refused))
        .ok()?;
    let usage: Usage = serde_json::from_slice(&bytes).ok()?;
    (usage.cost_usd.is_finite() && usage.cost_usd >= 0.0).then_some(usage.cost_usd)
}
