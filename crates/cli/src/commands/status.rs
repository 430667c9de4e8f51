use std::path::Path;

use mini_ork_control::run::{NodeView, RunView, last_words, load_view, now_ms};
use mini_ork_control::store::{RunRow, StoreReader};

use super::select::select;
use crate::cli::RunRefArgs;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render::{self, LiveNode};
use crate::settings::GlobalSettings;

/// Shows one run: its graph, evidence, cost, and what to do next.
pub(crate) fn status(args: &RunRefArgs, global: &GlobalSettings) -> CommandResult {
    let selected = select(global, &args.run)?;
    let view = view(&selected.reader, &selected.row)?;
    if args.json {
        render::json(&view)?;
    } else {
        let live: Vec<LiveNode> = view
            .nodes
            .iter()
            .filter(|node| node.state == "running")
            .map(|node| live(&view, node))
            .collect();
        render::out(&render::status(&view, &live, render::terminal_width()))?;
    }
    Ok(ExitStatus::Success)
}

/// Everything that is known of the run in `row`.
pub(super) fn view(reader: &StoreReader, row: &RunRow) -> Result<RunView, CommandError> {
    load_view(reader, row)
        .map_err(|error| CommandError::failure("the run cannot be shown").caused_by(&error))
}

fn live(view: &RunView, node: &NodeView) -> LiveNode {
    let said = node
        .directory
        .as_deref()
        .and_then(|directory| last_words(&Path::new(&view.directory).join(directory), node.driver));
    LiveNode {
        node: node.node.clone(),
        elapsed_ms: node
            .started_at_ms
            .map(|started| now_ms().saturating_sub(started)),
        said: said.unwrap_or_default(),
    }
}
