use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mini_ork_protocol::ByteString;
use tokio::time::{Instant, timeout_at};

use super::api::{self, Answer, Habits, Request, Stop};
use super::client::{CallError, Client};
use super::conversation::{Part, ToolCall, ToolResult, Turn, make_ids_unique};
use super::excerpt::shorten;
use super::repetition::{History, Verdict};
use super::tools::{Outcome, TOOLS, Toolbox, summary};
use super::window::Window;
use super::{AgentEvent, AgentSpec, EndReason};
use crate::secret::Secret;
use crate::sys::{random_bytes, remove_tree_strictly};
use crate::text::on_one_line;
use crate::workspace::Workspace;

const SYSTEM: &str = "You are a software engineer who works alone and without anybody to ask, in the \
root of a git repository that is your workspace. You act through the tools: look before you change \
something, change no more than the task needs, and check what you changed by running it. Paths are \
relative to the root of the workspace, and there is nothing for you outside of it. Do not commit and \
do not push; the files count. When the task is done and checked, or cannot be done, use `finish` and \
say so.";

/// Most calls of one answer that are carried out.
const MOST_CALLS: usize = 16;
/// How many answers in a row may come to the limit of their length.
const MOST_CUT: u32 = 3;
const LONGEST_TEXT: usize = 64 << 10;
const LONGEST_ANSWER: usize = 200 << 10;
const LONGEST_MESSAGE: usize = 2000;
const LONGEST_INPUT: usize = 200;
const LONGEST_OUTPUT: usize = 2000;

/// An agent and what it works with.
pub struct Agent {
    /// How it is to work.
    pub spec: AgentSpec,
    /// What the gateway knows it by.
    pub token: Secret,
    /// What its tools act through: programs run there, files are read and written there.
    pub workspace: Arc<dyn Workspace>,
    /// The root of the tree that it works on, an absolute path inside the workspace.
    pub root: PathBuf,
    /// The whole environment of the commands that it runs.
    pub environment: Vec<(ByteString, ByteString)>,
}

/// The environment may hold secrets and is not shown.
impl fmt::Debug for Agent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Agent")
            .field("spec", &self.spec)
            .field("workspace", &self.workspace)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

/// How the work of an agent ended; the same as [`AgentEvent::End`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentEnd {
    /// Why.
    pub reason: EndReason,
    /// The same in a sentence for people.
    pub message: String,
    /// The last word of the model when it is done, else empty.
    pub answer: String,
    /// How many answers the model gave.
    pub turns: u32,
}

impl Agent {
    /// Works on `prompt` until the model is done or cannot go on, and tells `observer` what
    /// happens. The last event is the end, which is returned as well. An observer that breaks off
    /// ends the work: nobody is to pay for what nobody hears of.
    ///
    /// When the future is dropped, the command that runs is ended with it.
    pub async fn work(
        self,
        prompt: &str,
        observer: &mut (dyn FnMut(AgentEvent) -> ControlFlow<()> + Send),
    ) -> AgentEnd {
        // Whoever breaks off here does so again below.
        let _ = observer(AgentEvent::Start {
            api: self.spec.api.name().to_owned(),
            model: self.spec.model.clone(),
        });
        let end = match self.prepare(prompt, observer) {
            Ok(mut work) => {
                let end = work.go_on().await;
                let records = work.tools.records.clone();
                let _ = tokio::task::spawn_blocking(move || remove_tree_strictly(&records)).await;
                end
            }
            Err(message) => AgentEnd {
                reason: EndReason::Setup,
                message,
                answer: String::new(),
                turns: 0,
            },
        };
        let _ = observer(end.event());
        end
    }

    fn prepare<'a>(
        self,
        prompt: &str,
        observer: &'a mut (dyn FnMut(AgentEvent) -> ControlFlow<()> + Send),
    ) -> Result<Work<'a>, String> {
        self.spec.check().map_err(|error| error.to_string())?;
        let gateway = self.spec.gateway().ok_or("there is no gateway")?;
        if prompt.trim().is_empty() {
            return Err("the prompt is empty: there is nothing to do".to_owned());
        }
        let limits = &self.spec.limits;
        let random = random_bytes::<8>().map_err(|error| error.to_string())?;
        let own: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let deadline = limits
            .time_s
            .and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds)));
        Ok(Work {
            client: Client::new(self.spec.api, gateway, self.token),
            tools: Toolbox {
                workspace: self.workspace,
                root: self.root,
                environment: self.environment,
                records: self.spec.records.join(own),
                longest_command: Duration::from_secs(limits.tool_time_s),
                longest_output: limits.tool_output_bytes,
                commands: 0,
            },
            window: Window::new(limits.context_tokens, limits.max_output_tokens),
            history: History::default(),
            turns: vec![Turn::User(prompt.to_owned())],
            habits: Habits::DEFAULT,
            deadline,
            answers: 0,
            tokens: 0,
            cut: 0,
            empty: 0,
            spec: self.spec,
            observer,
        })
    }
}

impl AgentEnd {
    fn event(&self) -> AgentEvent {
        AgentEvent::End {
            ok: self.reason.is_success(),
            reason: self.reason,
            message: self.message.clone(),
            answer: self.answer.clone(),
            turns: self.turns,
        }
    }
}

struct Work<'a> {
    spec: AgentSpec,
    client: Client,
    tools: Toolbox,
    window: Window,
    history: History,
    turns: Vec<Turn>,
    habits: Habits,
    deadline: Option<Instant>,
    answers: u32,
    tokens: u64,
    /// Answers in a row that came to the limit of their length, or were empty.
    cut: u32,
    empty: u32,
    observer: &'a mut (dyn FnMut(AgentEvent) -> ControlFlow<()> + Send),
}

/// Why the work ends, and the last word or a sentence.
type Ending = (EndReason, String);

impl Work<'_> {
    async fn go_on(&mut self) -> AgentEnd {
        let (reason, text) = loop {
            if let Err(ending) = self.turn().await {
                break ending;
            }
        };
        let (message, answer) = if reason.is_success() {
            ("the model says that it is done".to_owned(), text)
        } else {
            (text, String::new())
        };
        AgentEnd {
            reason,
            message: shorten(&on_one_line(&message), LONGEST_MESSAGE),
            answer: shorten(&answer, LONGEST_ANSWER),
            turns: self.answers,
        }
    }

    /// One answer of the model, and what it asks for.
    async fn turn(&mut self) -> Result<(), Ending> {
        self.check_limits()?;
        let mut answer = self.ask().await?;
        self.answers += 1;
        make_ids_unique(&self.turns, &mut answer.parts);
        let mut said = String::new();
        let mut calls = Vec::new();
        for part in &answer.parts {
            match part {
                Part::Text(text) => said.push_str(text),
                Part::Call(call) => calls.push(call.clone()),
                Part::Opaque(_) => {}
            }
        }
        if !said.trim().is_empty() {
            self.tell(AgentEvent::Text {
                text: shorten(said.trim(), LONGEST_TEXT),
            })?;
        }
        match answer.stop {
            Stop::Refused => {
                return Err((
                    EndReason::Refused,
                    "the model refused to answer for reasons of safety".to_owned(),
                ));
            }
            Stop::WindowFull => return Err(self.window_is_full()),
            Stop::Length => self.cut += 1,
            Stop::Complete => self.cut = 0,
        }
        if self.cut >= MOST_CUT {
            return Err((
                EndReason::Cut,
                format!(
                    "{MOST_CUT} answers in a row were cut off at the limit of {} tokens",
                    self.spec.limits.max_output_tokens
                ),
            ));
        }
        if calls.is_empty() {
            return self.take_words(&said, answer);
        }
        self.empty = 0;
        self.turns.push(Turn::Assistant(answer.parts));
        self.carry_out(&calls, answer.stop == Stop::Length).await
    }

    fn tell(&mut self, event: AgentEvent) -> Result<(), Ending> {
        match (self.observer)(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err((
                EndReason::Unheard,
                "what happens can no longer be written down".to_owned(),
            )),
        }
    }

    fn check_limits(&self) -> Result<(), Ending> {
        let limits = &self.spec.limits;
        if self.answers >= limits.max_turns {
            return Err((
                EndReason::Turns,
                format!("not done after {} turns, which is the limit", self.answers),
            ));
        }
        if let Some(most) = limits.total_tokens
            && self.tokens >= most
        {
            return Err((
                EndReason::Tokens,
                format!("not done after {} tokens; the limit is {most}", self.tokens),
            ));
        }
        if self
            .deadline
            .is_some_and(|deadline| deadline <= Instant::now())
        {
            return Err(self.time_is_over());
        }
        Ok(())
    }

    /// The next answer of the model.
    async fn ask(&mut self) -> Result<Answer, Ending> {
        loop {
            let body = self.body()?;
            let length = body.len();
            let call = self.client.call(body);
            let called = match self.deadline {
                Some(deadline) => timeout_at(deadline, call).await,
                None => Ok(call.await),
            };
            let error = match called {
                Err(_) => return Err(self.time_is_over()),
                Ok(Ok(answer)) => {
                    self.count(&answer, length)?;
                    return Ok(answer);
                }
                Ok(Err(error)) => error,
            };
            if let CallError::Refused { status, message } = &error
                && status.as_u16() == 400
                && let Some(habits) = self.habits.after_refusal(self.spec.api, message)
            {
                self.habits = habits;
                continue;
            }
            let reason = match &error {
                CallError::Unreachable { .. } => EndReason::Network,
                CallError::Refused { .. } => EndReason::Api,
                CallError::Answer(api::ReadError::Vendor { .. }) => EndReason::Api,
                CallError::Answer(_) | CallError::Stream(_) => EndReason::Stream,
            };
            return Err((reason, error.to_string()));
        }
    }

    /// The next request, made to fit.
    fn body(&mut self) -> Result<Bytes, Ending> {
        let (spec, habits) = (&self.spec, self.habits);
        let render = |turns: &[Turn]| {
            let request = Request {
                model: &spec.model,
                system: SYSTEM,
                tools: TOOLS,
                turns,
                max_output_tokens: spec.limits.max_output_tokens,
                habits,
            };
            api::body(spec.api, &request).to_string()
        };
        let Some(fitted) = self.window.fit(&mut self.turns, render) else {
            return Err(self.window_is_full());
        };
        if fitted.shortened {
            self.tell(AgentEvent::Note {
                text: "earlier results were shortened to stay within the model's window".to_owned(),
            })?;
        }
        Ok(fitted.request.into())
    }

    fn count(&mut self, answer: &Answer, length: usize) -> Result<(), Ending> {
        if let Some(usage) = answer.usage {
            let read = usage
                .input
                .saturating_add(usage.cache_read)
                .saturating_add(usage.cache_write);
            self.window.learn(length, read);
            self.tokens = self
                .tokens
                .saturating_add(read)
                .saturating_add(usage.output);
        }
        self.tell(AgentEvent::Usage {
            usage: answer.usage,
        })
    }

    /// An answer without a call: the last word, unless there is none or it was cut off.
    fn take_words(&mut self, said: &str, answer: Answer) -> Result<(), Ending> {
        let is_empty = said.trim().is_empty();
        if answer.stop == Stop::Complete && !is_empty {
            return Err((EndReason::Answered, said.trim().to_owned()));
        }
        let note = if is_empty {
            self.empty += 1;
            "Your answer was empty. Go on with the task, or use `finish`."
        } else {
            "Your answer was cut off at its limit. Go on, in smaller steps."
        };
        if self.empty >= 2 {
            return Err((
                EndReason::Empty,
                "the model answered nothing, twice in a row".to_owned(),
            ));
        }
        if !is_empty {
            self.turns.push(Turn::Assistant(answer.parts));
            self.turns.push(Turn::User(note.to_owned()));
        } else {
            self.say(note);
        }
        Ok(())
    }

    /// Adds a sentence to what we said last, so that the two sides still take turns.
    fn say(&mut self, note: &str) {
        match self.turns.last_mut() {
            Some(Turn::Results(_, notes)) => notes.push(note.to_owned()),
            Some(Turn::User(text)) => {
                text.push_str("\n\n");
                text.push_str(note);
            }
            _ => self.turns.push(Turn::User(note.to_owned())),
        }
    }

    /// Uses the tools and tells the model what came of it.
    async fn carry_out(&mut self, calls: &[ToolCall], was_cut: bool) -> Result<(), Ending> {
        let mut results = Vec::new();
        let mut all_ok = true;
        let mut finished = None;
        for (number, call) in calls.iter().enumerate() {
            self.tell(AgentEvent::Tool {
                name: call.name.clone(),
                input: summary(call, LONGEST_INPUT),
            })?;
            let mut outcome = if number >= MOST_CALLS {
                Outcome::refused("there are too many calls in one answer; this one was left out")
            } else if call.name == "finish" && !all_ok {
                Outcome::refused("another call failed; look at its result before you finish")
            } else {
                self.tools.run(call, self.deadline).await
            };
            if was_cut && call.mistake.is_some() {
                outcome.content.push_str(
                    "; your answer was cut off at its limit: write less at once, in several calls",
                );
            }
            all_ok &= outcome.ok;
            if !outcome.ok
                && let Some(why) = self.tools.lost().await
            {
                return Err((EndReason::Workspace, why));
            }
            self.tell(AgentEvent::ToolEnd {
                ok: outcome.ok,
                output: shorten(&outcome.content, LONGEST_OUTPUT),
            })?;
            finished = finished.or(outcome.finished);
            results.push(ToolResult {
                id: call.id.clone(),
                content: outcome.content,
                is_error: !outcome.ok,
            });
        }
        if let Some(summary) = finished.filter(|_| all_ok) {
            return Err((EndReason::Finished, summary));
        }
        let verdict = self.history.add(calls, &results);
        self.turns.push(Turn::Results(results, Vec::new()));
        match verdict {
            Verdict::Fine => {}
            Verdict::Tell => self.say(
                "You did the same several times and the result was the same. Do something else, \
                 or use `finish` and say what keeps you from going on.",
            ),
            Verdict::End => {
                return Err((
                    EndReason::Repeating,
                    "the model did the same again and again, also after it was told".to_owned(),
                ));
            }
        }
        Ok(())
    }

    fn time_is_over(&self) -> Ending {
        let seconds = self.spec.limits.time_s.unwrap_or(0);
        (
            EndReason::Time,
            format!("not done after {seconds} s, which is the limit"),
        )
    }

    fn window_is_full(&self) -> Ending {
        (
            EndReason::Window,
            format!(
                "the conversation does not fit into the model's window of {} tokens",
                self.spec.limits.context_tokens
            ),
        )
    }
}
