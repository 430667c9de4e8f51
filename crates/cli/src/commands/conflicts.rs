use std::io::{self, Write};

use mini_ork_control::run::{Conflict, Inspection};
use mini_ork_node::git::{self, ConflictSide, Edit, FileMode, GitError, RepoPath, TreeId};

use super::diff::inspect_error;
use super::drive::find_git;
use super::select::select;
use crate::cli::RunRefArgs;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render::{self, ShownConflict, ShownSide};
use crate::settings::GlobalSettings;

/// Most bytes of one version that are shown.
const CONTENT_LIMIT: usize = 256 << 10;
/// Differences are shown for the first conflicts only; more than these nobody reads in a terminal.
const MOST_DIFFERENCES: usize = 20;

/// Shows where parallel changes of a run exclude each other.
pub(crate) fn conflicts(args: &RunRefArgs, global: &GlobalSettings) -> CommandResult {
    let selected = select(global, &args.run)?;
    let run = selected.run.to_string();
    let git = find_git(global)?;
    let inspection = Inspection::open(&selected.reader, &selected.row, &git)
        .map_err(|error| inspect_error(&error, &run))?;
    let found = inspection
        .conflicts()
        .map_err(|error| inspect_error(&error, &run))?;
    let mut shown = Vec::with_capacity(found.len());
    for (index, conflict) in found.iter().enumerate() {
        let with_differences = !args.json && index < MOST_DIFFERENCES;
        let one = look(&inspection, conflict, with_differences).map_err(|error| {
            CommandError::failure(format!("the work of run {run} cannot be read")).caused_by(&error)
        })?;
        shown.push(one);
    }
    if args.json {
        let listed: Vec<_> = shown.iter().map(ShownConflict::json).collect();
        render::json(&serde_json::json!({
            "format": 1,
            "run": run,
            "conflicts": listed,
        }))?;
    } else if shown.is_empty() {
        render::out(&format!("run {run} has no conflicts\n"))?;
    } else {
        render::out(&render::conflicts(&run, &shown))?;
    }
    Ok(ExitStatus::Success)
}

fn look(
    inspection: &Inspection,
    conflict: &Conflict,
    with_differences: bool,
) -> Result<ShownConflict, GitError> {
    let versions = &conflict.conflict;
    let side = |side: &Option<ConflictSide>| -> Result<Option<ShownSide>, GitError> {
        side.as_ref().map(|side| read(inspection, side)).transpose()
    };
    let difference = |changed: &Option<ConflictSide>| -> Result<Vec<u8>, GitError> {
        if with_differences {
            difference(inspection, versions, changed.as_ref())
        } else {
            Ok(Vec::new())
        }
    };
    Ok(ShownConflict {
        path: versions.path.clone(),
        kind: versions.kind,
        message: versions.message.clone(),
        ours_nodes: conflict.ours.iter().map(ToString::to_string).collect(),
        theirs_node: conflict.theirs.to_string(),
        base: side(&versions.base)?,
        ours: side(&versions.ours)?,
        theirs: side(&versions.theirs)?,
        ours_difference: difference(&versions.ours)?,
        theirs_difference: difference(&versions.theirs)?,
    })
}

fn read(inspection: &Inspection, side: &ConflictSide) -> Result<ShownSide, GitError> {
    let mut content = Bounded::new(CONTENT_LIMIT);
    // A submodule is a commit of another repository.
    if side.mode != FileMode::Submodule {
        inspection.git().write_object(&side.id, &mut content)?;
    }
    Ok(ShownSide {
        path: side.path.clone(),
        mode: side.mode,
        id: side.id.clone(),
        content: (side.mode != FileMode::Submodule).then_some(content.bytes),
        size: content.total,
    })
}

/// What one side did to the version that both started from, as a patch.
fn difference(
    inspection: &Inspection,
    versions: &git::Conflict,
    changed: Option<&ConflictSide>,
) -> Result<Vec<u8>, GitError> {
    let before = tree_with(inspection, versions, versions.base.as_ref())?;
    let after = tree_with(inspection, versions, changed)?;
    let mut patch = Bounded::new(CONTENT_LIMIT);
    inspection.git().patch(&before, &after, &mut patch)?;
    Ok(patch.bytes)
}

/// The run's base with one version alone at the paths of a conflict.
fn tree_with(
    inspection: &Inspection,
    versions: &git::Conflict,
    version: Option<&ConflictSide>,
) -> Result<TreeId, GitError> {
    let mut paths: Vec<&RepoPath> = [&versions.base, &versions.ours, &versions.theirs]
        .into_iter()
        .flatten()
        .map(|side| &side.path)
        .chain([&versions.path])
        .collect();
    paths.sort();
    paths.dedup();
    let edits: Vec<(RepoPath, Edit)> = paths
        .into_iter()
        .map(|path| {
            let edit = match version {
                Some(version) if &version.path == path => Edit::Take {
                    mode: version.mode,
                    id: version.id.clone(),
                },
                _ => Edit::Remove,
            };
            (path.clone(), edit)
        })
        .collect();
    inspection.git().overlay(&inspection.base().tree, &edits)
}

/// Keeps the first bytes and counts the rest.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
    total: u64,
}

impl Bounded {
    fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
            total: 0,
        }
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.limit.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..room]);
        self.total += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
