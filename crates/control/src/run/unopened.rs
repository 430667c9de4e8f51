//! Runs that end before they begin.

use mini_ork_node::text::with_sources;

use super::clock::now_ms;
use super::directory::write_json;
use super::engine::RunObserver;
use super::event::{Closing, RunEvent};
use super::open::{Pieces, append, replay};
use super::state::RunState;
use super::{RunError, RunView};
use crate::reason::Status;
use crate::store::RunSummaryUpdate;

/// Ends a run that has no workspace to begin in.
pub(super) async fn close_unopened(
    pieces: &Pieces,
    error: &RunError,
    state: &mut RunState,
    observer: &mut dyn RunObserver,
) -> Result<(), RunError> {
    let closing = Closing {
        status: Status::Failed,
        reason: Some(error.reason()),
        detail: with_sources(error),
        node: None,
    };
    let summary = RunSummaryUpdate {
        status: Some(closing.status),
        reason: closing.reason,
        detail: Some(closing.detail.clone()),
        ended_at_ms: Some(now_ms()),
        ..RunSummaryUpdate::default()
    };
    let event = RunEvent::Closed(closing);
    append(pieces, state, event, summary, observer).await?;
    let view = super::view::of_record(state, &pieces.record, &pieces.directory);
    write_json(&pieces.directory.verdict(), &view).map_err(RunError::Io)
}

/// Ends a run that needs an answer first.
pub(super) async fn block(
    pieces: Pieces,
    observer: &mut dyn RunObserver,
) -> Result<RunView, RunError> {
    let questions = &pieces.record.questions;
    let texts: Vec<&str> = questions
        .iter()
        .map(|question| question.text.as_str())
        .collect();
    let closing = Closing {
        status: Status::Blocked,
        reason: None,
        detail: texts.join(" "),
        node: None,
    };
    let summary = RunSummaryUpdate {
        status: Some(Status::Blocked),
        detail: Some(closing.detail.clone()),
        ended_at_ms: Some(now_ms()),
        ..RunSummaryUpdate::default()
    };
    let mut state = replay(&pieces.plan, &[])?;
    let event = RunEvent::Closed(closing);
    append(&pieces, &mut state, event, summary, observer).await?;
    let mut view = super::view::of_record(&state, &pieces.record, &pieces.directory);
    view.questions = questions
        .iter()
        .map(|question| question.text.clone())
        .collect();
    write_json(&pieces.directory.verdict(), &view).map_err(RunError::Io)?;
    Ok(view)
}
