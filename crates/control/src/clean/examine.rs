//! What would be lost with the worktrees and the git directory of a run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mini_ork_node::git::{CommitId, ControlGit, Expected, GitError, Repository, TreeId};
use mini_ork_node::text::with_sources;
use mini_ork_node::tree::{self, Look, Safe, Unsaved, WorktreePlace};
use mini_ork_protocol::RunId;

use super::ground::{self, Temporary};
use super::listing::{Condition, ListedRun, Processes};
use super::{CleanRequest, RescuedItem};
use crate::reason::Status;
use crate::run::{
    Base, NodeOutcome, RunDirectory, RunEvent, RunRecord, RunState, WorkError, commit_on,
    journaled_trees, kept_reference, read_json, rescue_prefix, safe, unpublished,
};

/// For what the trees of a run must be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The run can be recovered afterwards: whatever its journal builds on.
    Recover,
    /// The run is forgotten: only what its writers made.
    Forget,
}

/// What there is, and what of it nothing else has.
pub(super) struct Examination {
    pub(super) places: Vec<Place>,
    /// Results that only the run's git directory has.
    pub(super) results: Vec<UnsavedResult>,
    /// The run's git directory, for its results and worktrees; absent without either.
    work: Option<Work>,
}

/// One worktree.
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) index: PathBuf,
    pub(super) bytes: u64,
    /// What would be lost, or why that is not known.
    pub(super) unsaved: Result<Unsaved, String>,
    prefix: String,
}

/// A result that only the run's git directory has.
pub(super) struct UnsavedResult {
    pub(super) reference: String,
    tree: TreeId,
    message: String,
}

struct Work {
    control: ControlGit,
    repository: Repository,
    base: Base,
    safe: Safe,
    at_ms: u64,
    run: RunId,
    /// Of the commit that the work began at, when nothing of the user's leads to it any more.
    base_is_loose: bool,
    /// A git directory that was made only to look; gone when dropped.
    _temporary: Option<Temporary>,
}

/// Looks at the worktrees and the git directory of `listed`. An error is why they must stay.
pub(super) fn examine(
    request: &CleanRequest,
    processes: &Processes,
    listed: &ListedRun,
    purpose: Purpose,
    look: Look,
) -> Result<Examination, String> {
    if !listed.has_work() {
        return Ok(Examination {
            places: Vec::new(),
            results: Vec::new(),
            work: None,
        });
    }
    let (work, results) = open(request, listed, purpose)?;
    let mut places = Vec::new();
    for name in listed.directory.places() {
        let path = listed.directory.worktree(&name);
        let place = WorktreePlace {
            index_file: work.index(&listed.directory, &name),
            path: path.clone(),
        };
        let unsaved = match processes.holder(&path) {
            Some(holder) => Err(holder),
            None => work
                .control
                .find_unsaved(&work.repository, &place, &work.safe, look)
                .map_err(|error| with_sources(&error)),
        };
        let unsaved = unsaved.and_then(|unsaved| match unsaved.obstacles.first() {
            Some(first) => Err(match unsaved.obstacles.len() {
                1 => first.clone(),
                count => format!("{first}, and {} more", count - 1),
            }),
            None => Ok(unsaved),
        });
        places.push(Place {
            bytes: tree::disk_usage(&path).unwrap_or(0),
            index: listed.directory.index(&name),
            prefix: rescue_prefix(&listed.run, &name),
            path,
            unsaved,
        });
    }
    Ok(Examination {
        places,
        results,
        work: Some(work),
    })
}

impl Examination {
    /// Why not everything can be saved; none when it can.
    pub(super) fn obstacle(&self) -> Option<&String> {
        self.places
            .iter()
            .find_map(|place| place.unsaved.as_ref().err())
    }

    /// What is saved before anything goes, in sentences.
    pub(super) fn finds(&self) -> Vec<String> {
        let mut finds: Vec<String> = self
            .places
            .iter()
            .filter_map(|place| place.unsaved.as_ref().ok())
            .flat_map(|unsaved| unsaved.finds.iter().map(|find| find.what.clone()))
            .collect();
        finds.extend(self.result_finds());
        finds
    }

    /// What is saved before the git directory goes, in sentences.
    pub(super) fn result_finds(&self) -> Vec<String> {
        let loose = self.work.as_ref().is_some_and(|work| work.base_is_loose);
        self.results
            .iter()
            .map(|result| format!("a result, as {}", result.reference))
            .chain(loose.then(|| "the commit that the work began at".to_owned()))
            .collect()
    }

    /// Puts what only the git directory has under refs.
    pub(super) fn save_results(&self) -> Result<Vec<RescuedItem>, WorkError> {
        let Some(work) = &self.work else {
            return Ok(Vec::new());
        };
        let mut saved = Vec::new();
        let mut publish =
            |commit: CommitId, reference: &str, what: &str| -> Result<(), WorkError> {
                let expected = Expected::Absent;
                work.control
                    .publish(&work.repository, &commit, reference, &expected)?;
                saved.push(RescuedItem {
                    reference: reference.to_owned(),
                    commit: commit.to_string(),
                    what: what.to_owned(),
                });
                Ok(())
            };
        for result in &self.results {
            let base = &work.base.commit;
            let commit = commit_on(
                &work.control,
                base,
                &result.tree,
                &result.message,
                work.at_ms,
            )?;
            publish(commit, &result.reference, "a result")?;
        }
        if work.base_is_loose {
            let reference = kept_reference(&work.run, "rescue/base");
            publish(work.base.commit.clone(), &reference, "where the work began")?;
        }
        Ok(saved)
    }

    /// Puts what only the worktree `place` has under refs.
    pub(super) fn save_place(&self, place: &Place) -> Result<Vec<RescuedItem>, WorkError> {
        let (Some(work), Ok(unsaved)) = (&self.work, &place.unsaved) else {
            return Ok(Vec::new());
        };
        let rescued = work
            .control
            .rescue(&work.repository, unsaved, &work.safe, &place.prefix)?;
        Ok(rescued
            .into_iter()
            .map(|rescued| RescuedItem {
                reference: rescued.reference,
                commit: rescued.commit.to_string(),
                what: rescued.what,
            })
            .collect())
    }
}

impl Work {
    fn index(&self, directory: &RunDirectory, name: &str) -> PathBuf {
        match &self._temporary {
            Some(_) => self.control.path().join(format!("{name}.index")),
            None => directory.index(name),
        }
    }
}

fn open(
    request: &CleanRequest,
    listed: &ListedRun,
    purpose: Purpose,
) -> Result<(Work, Vec<UnsavedResult>), String> {
    let record: RunRecord =
        read_json(&listed.directory.record()).map_err(|error| with_sources(&error))?;
    let mut base = record
        .base
        .clone()
        .ok_or("its record does not say where its work began")?;
    let at = record.repository_path();
    let repository = Repository::discover(&request.git, &at).map_err(|error| {
        let why = with_sources(&error);
        format!(
            "nothing can be saved in its repository {}: {why}",
            at.display()
        )
    })?;
    let (control, temporary) = ground::control(request, listed, &repository)?;
    if !control
        .has_tree(&base.tree)
        .map_err(|error| with_sources(&error))?
    {
        return Err(format!(
            "its repository {} no longer has the commit that the work began at",
            at.display()
        ));
    }
    // What is in a worktree has the files of submodules; what is in the repository has links.
    let expanded = |tree: &TreeId| {
        let links = !control.submodules().present.is_empty();
        let expanded = match links && control.has_tree(tree)? {
            true => control.expanded(tree)?,
            false => tree.clone(),
        };
        Ok::<_, GitError>(expanded)
    };
    let expanded = |tree: &TreeId| expanded(tree).map_err(|error| with_sources(&error));
    base.tree = expanded(&base.tree)?;
    let own = kept_reference(&listed.run, "");
    let kept = repository
        .kept_commits(&own)
        .map_err(|error| with_sources(&error))?;
    let published = matches!(
        listed.condition,
        Condition::Finished {
            status: Status::Published,
            ..
        }
    );
    let mut trees = BTreeSet::from([base.tree.clone()]);
    for commit in kept {
        trees.insert(expanded(&commit.tree)?);
    }
    let mut results = Vec::new();
    let state = ground::state(request, listed)?;
    if published {
        for tree in state.iter().flat_map(journaled_trees) {
            trees.insert(expanded(&tree)?);
        }
    } else {
        for result in needed(listed, state.as_ref(), purpose) {
            let there = control.has_tree(&result.tree);
            if there.map_err(|error| with_sources(&error))? && trees.insert(result.tree.clone()) {
                results.push(result);
            }
        }
    }
    let loose = !published
        && !repository
            .is_kept(&base.commit, &kept_reference(&listed.run, "rescue/base"))
            .map_err(|error| with_sources(&error))?;
    let work = Work {
        safe: safe(&base, trees, record.started_at_ms),
        // With a result on top of it, the result keeps it.
        base_is_loose: loose && results.is_empty() && purpose == Purpose::Recover,
        at_ms: record.started_at_ms,
        run: listed.run.clone(),
        control,
        repository,
        base,
        _temporary: temporary,
    };
    Ok((work, results))
}

/// The trees that must not be lost with the git directory of an unpublished run.
fn needed(listed: &ListedRun, state: Option<&RunState>, purpose: Purpose) -> Vec<UnsavedResult> {
    let other = |tree: TreeId| UnsavedResult {
        reference: kept_reference(
            &listed.run,
            &format!("rescue/tree-{}", &tree.as_str()[..12]),
        ),
        message: format!("mini-ork: a tree of run {}\n", listed.run),
        tree,
    };
    let Some(state) = state else {
        return recorded_outputs(&listed.directory)
            .into_iter()
            .map(other)
            .collect();
    };
    let mut needed: Vec<UnsavedResult> = unpublished(state)
        .into_iter()
        .map(|work| UnsavedResult {
            reference: work.reference,
            tree: work.tree,
            message: work.message,
        })
        .collect();
    if purpose == Purpose::Recover {
        // As recovery will find it: what it does not look at any more need not be kept.
        let mut reopened = state.clone();
        reopened.apply(&RunEvent::Reopened);
        needed.extend(journaled_trees(&reopened).into_iter().map(other));
    }
    needed
}

/// What nodes of a run without a journal say that they made.
fn recorded_outputs(directory: &RunDirectory) -> BTreeSet<TreeId> {
    let mut outputs = BTreeSet::new();
    let below = |path: &Path| -> Vec<PathBuf> {
        let entries = fs_err::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    for node in below(&directory.root().join("nodes")) {
        for attempt in below(&node) {
            let outcome: Result<NodeOutcome, _> = read_json(&attempt.join("result.json"));
            outputs.extend(outcome.ok().and_then(|outcome| outcome.output));
        }
    }
    outputs
}
