mod transcript;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mini_ork_control::lanes::{Driver, TranscriptParser};
use mini_ork_control::run::{ProcessOutput, RunDirectory, process_outputs, state_of};
use mini_ork_node::supervise::{LogCursor, STDERR_LOG, STDOUT_LOG};
use serde_json::json;

use super::select::{Selected, select};
use super::status::view;
use crate::cli::LogsArgs;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render::{self, Style, paint};
use crate::settings::GlobalSettings;

/// Most bytes of a log that are in memory at once.
const PIECE: usize = 64 << 10;
/// How often a run that goes on is looked at.
const STEP: Duration = Duration::from_millis(100);
const STREAMS: [(&str, &str); 2] = [(TRANSCRIPT, STDOUT_LOG), ("stderr", STDERR_LOG)];
/// The stream on which an agent tells what it does.
const TRANSCRIPT: &str = "stdout";

/// Prints what the programs of a run wrote.
pub(crate) fn logs(args: &LogsArgs, global: &GlobalSettings) -> CommandResult {
    let selected = select(global, &args.run)?;
    if let Some(node) = &args.node {
        check_node(&selected, node)?;
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    if args.follow {
        signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted))
            .map_err(|error| CommandError::failure("cannot listen to signals").caused_by(&error))?;
    }
    let form = if args.json {
        Form::Json
    } else if io::stdout().is_terminal() {
        Form::Terminal
    } else {
        Form::Bytes
    };
    let mut reader = Reader::new(form, args.raw || args.json);
    loop {
        // Asked first: what was written before the end is then read below.
        let over = !args.follow || !goes_on(&selected)?;
        for output in outputs(&selected, args.node.as_deref())? {
            reader.read(&output, over || output.ended)?;
        }
        if over {
            break;
        }
        if interrupted.load(Ordering::Relaxed) {
            return Ok(ExitStatus::Cancelled);
        }
        std::thread::park_timeout(STEP);
    }
    if reader.is_untouched() {
        render::err(&format!("run {} has no output\n", selected.run));
    }
    Ok(ExitStatus::Success)
}

fn goes_on(selected: &Selected) -> Result<bool, CommandError> {
    let problem = |error: &dyn std::error::Error| {
        CommandError::failure("the state of the run cannot be read").caused_by(error)
    };
    let row = selected
        .reader
        .run(&selected.run)
        .map_err(|error| problem(&error))?;
    let Some(row) = row else { return Ok(false) };
    let state = state_of(&selected.reader, &row).map_err(|error| problem(&error))?;
    Ok(state == "running")
}

fn outputs(selected: &Selected, node: Option<&str>) -> Result<Vec<ProcessOutput>, CommandError> {
    let events = selected
        .reader
        .events(&selected.run, 0)
        .map_err(|error| CommandError::failure("the run cannot be read").caused_by(&error))?;
    let directory = RunDirectory::at(selected.row.directory.clone());
    let mut outputs = process_outputs(&directory, &events);
    outputs.retain(|output| node.is_none_or(|node| output.node.as_str() == node));
    Ok(outputs)
}

fn check_node(selected: &Selected, node: &str) -> Result<(), CommandError> {
    let view = view(&selected.reader, &selected.row)?;
    let known: Vec<&str> = view.nodes.iter().map(|node| node.node.as_str()).collect();
    if known.is_empty() || known.contains(&node) {
        return Ok(());
    }
    let run = &selected.run;
    Err(
        CommandError::usage(format!("run {run} has no node `{node}`"))
            .hint(format!("its nodes: {}", known.join(", "))),
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// For people: where each piece comes from, and nothing that moves the cursor.
    Terminal,
    /// The bytes as they are.
    Bytes,
    /// One object for each piece.
    Json,
}

/// What was read so far, and how it is shown.
struct Reader {
    form: Form,
    /// What agents wrote is shown as they wrote it.
    raw: bool,
    transcripts: BTreeMap<PathBuf, TranscriptParser>,
    positions: BTreeMap<(PathBuf, &'static str), Position>,
    shown_last: Option<(PathBuf, &'static str)>,
    at_line_start: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Position {
    offset: u64,
    complete: bool,
}

impl Reader {
    fn new(form: Form, raw: bool) -> Self {
        Self {
            form,
            raw,
            transcripts: BTreeMap::new(),
            positions: BTreeMap::new(),
            shown_last: None,
            at_line_start: true,
        }
    }

    fn is_untouched(&self) -> bool {
        self.shown_last.is_none()
    }

    /// Shows what is new of both streams of a program. Before its end only whole lines are shown,
    /// so that programs that run beside each other do not write into each other's lines.
    fn read(&mut self, output: &ProcessOutput, complete: bool) -> Result<(), CommandError> {
        for (stream, file) in STREAMS {
            let key = (output.directory.clone(), stream);
            let mut position = self.positions.get(&key).copied().unwrap_or_default();
            if position.complete {
                continue;
            }
            let mut cursor = match LogCursor::open(&output.directory.join(file), position.offset) {
                Ok(cursor) => cursor,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    return Err(CommandError::failure("a log cannot be read").caused_by(&error));
                }
            };
            let mut rest = Vec::new();
            loop {
                let read = cursor.read(PIECE - rest.len()).map_err(|error| {
                    CommandError::failure("a log cannot be read").caused_by(&error)
                })?;
                let at_end = read.is_empty();
                rest.extend(read);
                if stream == TRANSCRIPT
                    && !self.raw
                    && let Some(driver) = output.driver
                {
                    position.offset += rest.len() as u64;
                    let is_last = at_end && complete && output.ended;
                    self.show_transcript(output, driver, &std::mem::take(&mut rest), is_last)?;
                    if at_end {
                        break;
                    }
                    continue;
                }
                let length = presentable(&rest, self.form, complete && at_end);
                if length > 0 {
                    let piece: Vec<u8> = rest.drain(..length).collect();
                    self.show(output, stream, position.offset, &piece)?;
                    position.offset += length as u64;
                }
                if at_end {
                    break;
                }
            }
            position.complete = output.ended && complete;
            self.positions.insert(key, position);
        }
        Ok(())
    }

    /// Shows what an agent did, as far as `piece` tells.
    fn show_transcript(
        &mut self,
        output: &ProcessOutput,
        driver: Driver,
        piece: &[u8],
        is_last: bool,
    ) -> Result<(), CommandError> {
        let parser = self
            .transcripts
            .entry(output.directory.clone())
            .or_insert_with(|| TranscriptParser::new(driver));
        let mut entries = parser.push(piece);
        if is_last && let Some(parser) = self.transcripts.remove(&output.directory) {
            entries.extend(parser.finish().0);
        }
        let shown = transcript::text(&entries);
        if shown.is_empty() {
            return Ok(());
        }
        let mut text = self.heading_if_changed(output, TRANSCRIPT);
        text.push_str(&shown);
        self.at_line_start = true;
        render::out(&text)
    }

    /// Where the next text comes from, when that was not said last.
    fn heading_if_changed(&mut self, output: &ProcessOutput, stream: &'static str) -> String {
        let source = (output.directory.clone(), stream);
        if self.shown_last.as_ref() == Some(&source) {
            return String::new();
        }
        self.shown_last = Some(source);
        if self.form != Form::Terminal {
            return String::new();
        }
        let line_end = if self.at_line_start { "" } else { "\n" };
        format!("{line_end}{}", heading(output, stream))
    }

    fn show(
        &mut self,
        output: &ProcessOutput,
        stream: &'static str,
        offset: u64,
        piece: &[u8],
    ) -> Result<(), CommandError> {
        let mut text = self.heading_if_changed(output, stream);
        match self.form {
            Form::Bytes => render::out_bytes(piece),
            Form::Json => render::json(&as_json(output, stream, offset, piece)),
            Form::Terminal => {
                let words = render::harmless(piece);
                self.at_line_start = words.ends_with('\n');
                text.push_str(&words);
                render::out(&text)
            }
        }
    }
}

/// How many bytes of `piece` can be shown now.
fn presentable(piece: &[u8], form: Form, is_last: bool) -> usize {
    if is_last {
        return piece.len();
    }
    let lines = piece.iter().rposition(|byte| *byte == b'\n');
    match lines {
        Some(last) => last + 1,
        None if piece.len() < PIECE => 0,
        // A line without an end. Text is not cut within a character.
        None if form == Form::Bytes => piece.len(),
        None => match std::str::from_utf8(piece) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => piece.len(),
        },
    }
}

fn heading(output: &ProcessOutput, stream: &str) -> String {
    let mut name = output.node.to_string();
    if (output.round, output.attempt) != (1, 1) {
        name.push_str(&format!(" · round {}", output.round));
    }
    if output.attempt > 1 {
        name.push_str(&format!(" · attempt {}", output.attempt));
    }
    let rest = format!(" · {} · {stream} ──", output.process);
    format!(
        "{}{}{}\n",
        paint(Style::Dim, "── "),
        paint(Style::Strong, &name),
        paint(Style::Dim, &rest)
    )
}

fn as_json(output: &ProcessOutput, stream: &str, offset: u64, piece: &[u8]) -> serde_json::Value {
    let mut value = json!({
        "node": output.node,
        "round": output.round,
        "attempt": output.attempt,
        "process": output.process,
        "stream": stream,
        "offset": offset,
    });
    let (name, data) = match std::str::from_utf8(piece) {
        Ok(text) => ("data", text.to_owned()),
        Err(_) => ("data_base64", STANDARD.encode(piece)),
    };
    value[name] = data.into();
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_are_shown_before_the_end() {
        let shown = |piece: &[u8], last| presentable(piece, Form::Json, last);
        assert_eq!(shown(b"one\ntw", false), 4);
        assert_eq!(shown(b"tw", false), 0);
        assert_eq!(shown(b"tw", true), 2);
        assert_eq!(shown(b"", true), 0);
    }

    #[test]
    fn a_line_without_an_end_is_cut_between_characters() {
        let mut piece = vec![b'x'; PIECE - 1];
        piece.push("ü".as_bytes()[0]);
        assert_eq!(presentable(&piece, Form::Json, false), PIECE - 1);
        assert_eq!(presentable(&piece, Form::Bytes, false), PIECE);
    }
}
