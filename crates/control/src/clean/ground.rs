//! What every look into a run stands on: its journal, and a git directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mini_ork_node::git::{ControlGit, Repository};
use mini_ork_node::sys;
use mini_ork_node::text::with_sources;
use mini_ork_protocol::RunId;

use super::listing::ListedRun;
use super::{CleanRequest, trash};
use crate::run::{Plan, RunState, read_json};
use crate::store::StoreReader;

/// The state that the journal gives; none for a run that has none.
pub(super) fn state(
    request: &CleanRequest,
    listed: &ListedRun,
) -> Result<Option<RunState>, String> {
    if listed.row.is_none() {
        return Ok(None);
    }
    let plan: Plan = read_json(&listed.directory.plan()).map_err(|error| with_sources(&error))?;
    let reader = StoreReader::open(&request.home).map_err(|error| with_sources(&error))?;
    let events = match &reader {
        Some(reader) => reader.events(&listed.run, 0),
        None => Ok(Vec::new()),
    }
    .map_err(|error| with_sources(&error))?;
    let events = events.iter().map(|journaled| &journaled.event);
    RunState::replay(Arc::new(plan), events)
        .map(Some)
        .map_err(|error| with_sources(&error))
}

/// The git directory of a run; where it has none, one that stands for it until it is dropped.
pub(super) fn control(
    request: &CleanRequest,
    listed: &ListedRun,
    repository: &Repository,
) -> Result<(ControlGit, Option<Temporary>), String> {
    let path = listed.directory.control_git();
    if path.is_dir() {
        let control =
            ControlGit::open(&request.git, &path).map_err(|error| with_sources(&error))?;
        return Ok((control, None));
    }
    let temporary = Temporary::new(&request.home, &listed.run)?;
    let made = ControlGit::create(&temporary.path, repository, &[]);
    let control = made.map_err(|error| with_sources(&error))?;
    Ok((control, Some(temporary)))
}

/// A directory for the time of one look. When it stays, the next clean removes it.
pub(super) struct Temporary {
    path: PathBuf,
}

impl Temporary {
    fn new(home: &Path, run: &RunId) -> Result<Self, String> {
        let path = trash::unused_path(home, run).map_err(|error| with_sources(&error))?;
        Ok(Self { path })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        drop(sys::remove_tree(&self.path));
    }
}
