//! The work of a run, looked at from outside: what it changed, and what could not be merged.
//!
//! A run's own git directory is used while it is there. Afterwards a passing one is made, which
//! borrows the objects of the user's repository: the published branch and the kept refs hold all
//! results, and what was merged on the way is merged again, which gives the same trees.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mini_ork_node::git::{ControlGit, DiscoverError, Git, GitError, Repository, TreeId};
use mini_ork_node::sys;
use mini_ork_protocol::NodeId;

use super::directory::{RunDirectory, read_json};
use super::event::Base;
use super::fold::{Conflict, fold};
use super::plan::{PLAN_FORMAT, Plan, PlannedNode};
use super::record::{RECORD_FORMAT, RunRecord};
use super::state::{Contribution, NodeProgress, RunState};
use crate::reason::Status;
use crate::store::{RunRow, StoreError, StoreReader};

/// The work of one run. Reading it changes neither the run nor the user's repository.
#[derive(Debug)]
pub struct Inspection {
    git: ControlGit,
    /// The git directory was made for this inspection.
    passing: Option<Passing>,
    state: RunState,
    directory: RunDirectory,
    repository: Repository,
    base: Base,
}

/// What a run made of the tree that it started from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Where it started.
    pub before: TreeId,
    /// What became of it. Where there are conflicts, it holds both versions.
    pub after: TreeId,
    /// Where that stands.
    pub place: WorkPlace,
    /// How many paths could not be merged.
    pub conflicts: usize,
}

/// Where the work of a run stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkPlace {
    /// On the branch of this name.
    Branch(String),
    /// On these refs.
    Kept(Vec<String>),
    /// In the run directory only.
    Run,
}

/// What one node changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeWork {
    /// Between these trees.
    Trees {
        /// The merged work before it.
        before: TreeId,
        /// Its result.
        after: TreeId,
    },
    /// Its trees are gone, and its patch was kept.
    Patch(PathBuf),
}

/// Why the work of a run cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// Its directory was cleaned away or never finished.
    #[error("run {run} has no record of its work any more")]
    NoRecord {
        /// The run.
        run: String,
        /// What is missing.
        #[source]
        source: std::io::Error,
    },
    /// A later mini-ork made it, or its records contradict each other.
    #[error("the record of run {run} cannot be used: {problem}")]
    Damaged {
        /// The run.
        run: String,
        /// What is wrong.
        problem: String,
    },
    /// Its recipe works in place and changes no files.
    #[error("the recipe `{recipe}` changes no files")]
    ChangesNothing {
        /// The recipe.
        recipe: String,
    },
    /// Nothing has been recorded yet, or nothing was left.
    #[error("run {run} has no result yet")]
    NoResult {
        /// The run.
        run: String,
    },
    /// The plan has no such node.
    #[error("run {run} has no node `{node}`")]
    UnknownNode {
        /// The run.
        run: String,
        /// What was asked for.
        node: String,
        /// Its nodes that change files.
        known: Vec<String>,
    },
    /// The node is none that changes files.
    #[error("the node `{node}` is a {kind} and changes no files")]
    ReadsOnly {
        /// The node.
        node: String,
        /// Its type.
        kind: &'static str,
        /// The run's nodes that change files.
        known: Vec<String>,
    },
    /// The node has not ended.
    #[error("the node `{node}` has no result yet")]
    NodeHasNoResult {
        /// The node.
        node: String,
    },
    /// The user's repository is not where it was.
    #[error("the repository of the run cannot be used")]
    Repository(#[source] DiscoverError),
    /// Its trees cannot be read; most likely the refs that held them are gone.
    #[error("the work of run {run} cannot be read")]
    Unreadable {
        /// The run.
        run: String,
        /// What git said.
        #[source]
        source: GitError,
    },
    /// The state database refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Inspection {
    /// Opens the work of the run in `row`, whether it goes on or has ended.
    pub fn open(reader: &StoreReader, row: &RunRow, git: &Git) -> Result<Self, InspectError> {
        let directory = RunDirectory::at(row.directory.clone());
        let no_record = |source| InspectError::NoRecord {
            run: row.run.clone(),
            source,
        };
        let damaged = |problem: String| InspectError::Damaged {
            run: row.run.clone(),
            problem,
        };
        let plan: Plan = read_json(&directory.plan()).map_err(no_record)?;
        let record: RunRecord = read_json(&directory.record()).map_err(no_record)?;
        if plan.format > PLAN_FORMAT || record.format > RECORD_FORMAT {
            return Err(damaged("it was made by a later mini-ork".to_owned()));
        }
        let Some(mut base) = record.base.clone() else {
            return Err(InspectError::ChangesNothing {
                recipe: plan.recipe,
            });
        };
        let events = reader.events(&plan.run, 0)?;
        let journal = events.iter().map(|journaled| &journaled.event);
        let state = RunState::replay(Arc::new(plan), journal)
            .map_err(|error| damaged(error.to_string()))?;
        let repository = Repository::discover(git, &record.repository_path())
            .map_err(InspectError::Repository)?;
        let unreadable = |source| InspectError::Unreadable {
            run: row.run.clone(),
            source,
        };
        let own = directory.control_git();
        let (git, passing) = if own.is_dir() {
            (ControlGit::open(git, &own).map_err(unreadable)?, None)
        } else {
            let passing = Passing::beside(directory.root());
            let git = ControlGit::create(&passing.path, &repository, b"").map_err(unreadable)?;
            (git, Some(passing))
        };
        base.tree = git.expanded(&base.tree).map_err(unreadable)?;
        Ok(Self {
            git,
            passing,
            state,
            directory,
            repository,
            base,
        })
    }

    /// The git directory in which the trees can be read.
    pub fn git(&self) -> &ControlGit {
        &self.git
    }

    /// The user's repository.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Where the run started.
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// What the run made: the published branch, else the merged results of its writers, those of
    /// failed nodes and earlier rounds included, for that is what was kept.
    pub fn work(&self) -> Result<Work, InspectError> {
        let branch = self
            .state
            .publication()
            .and_then(|publication| publication.branch.as_ref());
        if let Some(branch) = branch {
            return Ok(Work {
                before: self.base.tree.clone(),
                after: branch.tree.clone(),
                place: WorkPlace::Branch(branch.name.clone()),
                conflicts: 0,
            });
        }
        let contributions: Vec<Contribution> = self
            .state
            .nodes()
            .filter_map(|(planned, progress)| latest(planned, progress))
            .collect();
        if contributions.is_empty() {
            return Err(InspectError::NoResult { run: self.run() });
        }
        let folded = self.fold(&contributions)?;
        let kept: Vec<String> = self.state.kept().keys().cloned().collect();
        Ok(Work {
            before: self.base.tree.clone(),
            after: folded.tree,
            place: if kept.is_empty() {
                WorkPlace::Run
            } else {
                WorkPlace::Kept(kept)
            },
            conflicts: folded.conflicts.len(),
        })
    }

    /// What the node called `name` changed, in its last round that has a result.
    pub fn node(&self, name: &str) -> Result<NodeWork, InspectError> {
        let found = self
            .state
            .nodes()
            .find(|(planned, _)| planned.node.id.as_str() == name);
        let Some((planned, progress)) = found else {
            return Err(InspectError::UnknownNode {
                run: self.run(),
                node: name.to_owned(),
                known: self.writers(),
            });
        };
        if !planned.node.kind.writes() {
            return Err(InspectError::ReadsOnly {
                node: name.to_owned(),
                kind: planned.node.kind.name(),
                known: self.writers(),
            });
        }
        let Some(own) = latest(planned, progress) else {
            return Err(InspectError::NodeHasNoResult {
                node: name.to_owned(),
            });
        };
        let all: Vec<Contribution> = self
            .state
            .nodes()
            .filter_map(|(planned, progress)| latest(planned, progress))
            .collect();
        let readable = self
            .remake_inputs(&all, &own.node)
            .and_then(|()| self.git.changes(&own.input, &own.output));
        match readable {
            Ok(_) => Ok(NodeWork::Trees {
                before: own.input,
                after: own.output,
            }),
            Err(source) => self
                .kept_patch(&own.node, progress)
                .ok_or_else(|| self.unreadable(source)),
        }
    }

    /// What could not be merged and has not been resolved since, in the order in which the writers
    /// are merged. A published run has none: nothing is published before they are resolved.
    pub fn conflicts(&self) -> Result<Vec<Conflict>, InspectError> {
        let published = self
            .state
            .closing()
            .is_some_and(|closing| closing.status == Status::Published);
        if published {
            return Ok(Vec::new());
        }
        Ok(self.fold(&self.state.contributions(None))?.conflicts)
    }

    fn fold(&self, contributions: &[Contribution]) -> Result<super::Folded, InspectError> {
        let last = contributions.last().map(|last| last.node.clone());
        if let Some(last) = last {
            self.remake_inputs(contributions, &last)
                .map_err(|source| self.unreadable(source))?;
        }
        fold(&self.git, &self.base.tree, contributions).map_err(|source| self.unreadable(source))
    }

    /// Makes the trees again that nodes up to `last` started from. They were merged on the way, so
    /// no ref holds them once the run's own git directory is gone.
    fn remake_inputs(&self, contributions: &[Contribution], last: &NodeId) -> Result<(), GitError> {
        if self.passing.is_none() {
            return Ok(());
        }
        for contribution in contributions {
            let before: Vec<Contribution> = contributions
                .iter()
                .filter(|earlier| {
                    self.state
                        .graph()
                        .is_ancestor(&earlier.node, &contribution.node)
                })
                .cloned()
                .collect();
            fold(&self.git, &self.base.tree, &before)?;
            if &contribution.node == last {
                break;
            }
        }
        Ok(())
    }

    fn kept_patch(&self, node: &NodeId, progress: &NodeProgress) -> Option<NodeWork> {
        let start = progress.start.as_ref()?;
        let attempt = self.directory.attempt(node, start.round, start.attempt);
        let patch = attempt.join("diff.patch");
        patch.is_file().then_some(NodeWork::Patch(patch))
    }

    fn writers(&self) -> Vec<String> {
        self.state
            .nodes()
            .filter(|(planned, _)| planned.node.kind.writes())
            .map(|(planned, _)| planned.node.id.to_string())
            .collect()
    }

    fn run(&self) -> String {
        self.state.plan().run.to_string()
    }

    fn unreadable(&self, source: GitError) -> InspectError {
        InspectError::Unreadable {
            run: self.run(),
            source,
        }
    }
}

/// The last result of a writer, whatever became of it: what failed is worth looking at.
fn latest(planned: &PlannedNode, progress: &NodeProgress) -> Option<Contribution> {
    let node = &planned.node;
    if !node.kind.writes() {
        return None;
    }
    let current = || {
        Some(Contribution {
            node: node.id.clone(),
            input: progress.start.as_ref()?.input.clone()?,
            output: progress.outcome.as_ref()?.output.clone()?,
            resolves: node.accepts_conflicts,
        })
    };
    current().or_else(|| progress.previous.clone())
}

/// A git directory that goes when nobody looks any more.
#[derive(Debug)]
struct Passing {
    path: PathBuf,
}

impl Passing {
    fn beside(root: &Path) -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("look-{}-{number}.git", std::process::id());
        Self {
            path: root.join(name),
        }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        // What stays behind goes with the run directory.
        drop(sys::remove_tree(&self.path));
    }
}
