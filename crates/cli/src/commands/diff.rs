use std::io::{self, IsTerminal as _, Write};
use std::path::Path;

use mini_ork_control::run::{InspectError, Inspection, NodeWork, WorkPlace};
use mini_ork_node::git::TreeId;
use mini_ork_node::text::with_sources;
use serde_json::json;

use super::drive::find_git;
use super::select::select;
use crate::cli::DiffArgs;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render::{self, PatchPainter};
use crate::settings::GlobalSettings;

/// Shows what a run, or one of its nodes, changed.
pub(crate) fn diff(args: &DiffArgs, global: &GlobalSettings) -> CommandResult {
    let selected = select(global, &args.run)?;
    let git = find_git(global)?;
    let inspection = Inspection::open(&selected.reader, &selected.row, &git)
        .map_err(|error| inspect_error(&error, selected.run.as_str()))?;
    let problem = |error: InspectError| inspect_error(&error, selected.run.as_str());
    let mut facts = json!({"format": 1, "run": selected.run.as_str()});
    let (before, after) = match &args.node {
        Some(node) => {
            facts["node"] = node.as_str().into();
            match inspection.node(node).map_err(problem)? {
                NodeWork::Trees { before, after } => (before, after),
                NodeWork::Patch(file) => return patch_file(args, facts, &file),
            }
        }
        None => {
            let work = inspection.work().map_err(problem)?;
            facts["place"] = place(&work.place);
            facts["conflicts"] = work.conflicts.into();
            if work.conflicts > 0 && !args.json {
                render::err(&format!(
                    "{} could not be merged; the files hold both versions: mini-ork conflicts {}\n",
                    render::plural(work.conflicts, "path"),
                    selected.run
                ));
            }
            (work.before, work.after)
        }
    };
    if args.json || args.stat {
        let changes = inspection
            .git()
            .changes(&before, &after)
            .map_err(|error| unreadable(&error, selected.run.as_str()))?;
        if args.json {
            facts["before"] = before.as_str().into();
            facts["after"] = after.as_str().into();
            facts["files"] = changes.iter().map(render::change_json).collect();
            render::json(&facts)?;
        } else if changes.is_empty() {
            render::err("nothing was changed\n");
        } else {
            render::out(&render::stat(&changes))?;
        }
        return Ok(ExitStatus::Success);
    }
    print_patch(&inspection, &before, &after, selected.run.as_str())
}

/// Why the work of `run` cannot be shown, for people.
pub(crate) fn inspect_error(error: &InspectError, run: &str) -> CommandError {
    let usage = CommandError::usage(with_sources(error));
    match error {
        InspectError::UnknownNode { known, .. } | InspectError::ReadsOnly { known, .. } => usage
            .hint(if known.is_empty() {
                format!("`mini-ork status {run}` shows its nodes")
            } else {
                format!("nodes that change files: {}", known.join(", "))
            }),
        InspectError::NoResult { .. } | InspectError::NodeHasNoResult { .. } => {
            CommandError::failure(with_sources(error))
                .hint(format!("`mini-ork status {run}` says how far it came"))
        }
        InspectError::ChangesNothing { .. } => usage.hint(format!(
            "`mini-ork status {run}` says where its outputs are"
        )),
        InspectError::Unreadable { .. } => CommandError::failure(with_sources(error)).hint(format!(
            "its branch `mini-ork/{run}`, or the refs below `refs/mo/{run}/`, may have been deleted"
        )),
        _ => CommandError::failure(with_sources(error)),
    }
}

fn unreadable(error: &mini_ork_node::git::GitError, run: &str) -> CommandError {
    CommandError::failure(format!("the work of run {run} cannot be read")).caused_by(error)
}

fn place(place: &WorkPlace) -> serde_json::Value {
    match place {
        WorkPlace::Branch(name) => json!({"branch": name}),
        WorkPlace::Kept(references) => json!({"kept": references}),
        WorkPlace::Run => json!({"run_directory": true}),
    }
}

fn print_patch(
    inspection: &Inspection,
    before: &TreeId,
    after: &TreeId,
    run: &str,
) -> CommandResult {
    let mut sink = Sink::new();
    let written = inspection.git().patch(before, after, &mut sink);
    let count = sink.count;
    // Git's own complaint about a reader that went away is not ours to report.
    sink.finish()?;
    written.map_err(|error| unreadable(&error, run))?;
    if count == 0 {
        render::err("nothing was changed\n");
    }
    Ok(ExitStatus::Success)
}

/// A node whose trees are gone: its patch as it was recorded.
fn patch_file(args: &DiffArgs, mut facts: serde_json::Value, file: &Path) -> CommandResult {
    let problem =
        |error: io::Error| CommandError::failure("the patch cannot be read").caused_by(&error);
    if args.json {
        facts["patch_file"] = render::path_json(file.as_os_str());
        facts["files"] = serde_json::Value::Null;
        render::json(&facts)?;
        return Ok(ExitStatus::Success);
    }
    if args.stat {
        return Err(
            CommandError::failure("only the patch of this node is left, not its trees")
                .hint("leave out --stat to see the patch"),
        );
    }
    let mut source = fs_err::File::open(file).map_err(problem)?;
    let mut sink = Sink::new();
    let copied = io::copy(&mut source, &mut sink);
    sink.finish()?;
    copied.map_err(problem)?;
    Ok(ExitStatus::Success)
}

/// Standard output for a patch: painted and harmless on a terminal, byte for byte elsewhere.
struct Sink {
    painter: Option<PatchPainter>,
    count: usize,
    error: Option<CommandError>,
}

impl Sink {
    fn new() -> Self {
        Self {
            painter: io::stdout().is_terminal().then(PatchPainter::default),
            count: 0,
            error: None,
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), CommandError> {
        match &mut self.painter {
            Some(painter) => render::out(&painter.paint(bytes)),
            None => render::out_bytes(bytes),
        }
    }

    /// Shows what is left, and gives the error that ended the writing.
    fn finish(mut self) -> Result<(), CommandError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        match self.painter.as_mut().map(PatchPainter::rest) {
            Some(rest) => render::out(&rest),
            None => Ok(()),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.put(bytes) {
            self.error = Some(error);
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.count += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
