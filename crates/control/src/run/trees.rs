//! The worktrees of a run: which node works where, and that each finds exactly its tree.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mini_ork_node::git::{Change, CommitId, ControlGit, GitError, Repository, TreeId};
use mini_ork_node::sys;
use mini_ork_node::tree::{PrivateGit, WorktreePlace};
use mini_ork_protocol::{NodeId, NodeSegment, RunId};
use tokio::sync::Mutex;

use super::directory::{MAIN_PLACE, RunDirectory, make_directory};
use super::event::Base;
use super::failure::WorkError;
use super::fold::{Folded, fold};
use super::state::Contribution;

/// The control plane's git directory of a run and the worktrees made from it.
#[derive(Debug)]
pub(crate) struct Trees {
    git: Arc<ControlGit>,
    repository: Repository,
    directory: RunDirectory,
    base: Base,
    branch: String,
    main: Mutex<MainPlace>,
}

/// The worktree that nodes share when the graph lets them.
#[derive(Debug, Default)]
struct MainPlace {
    /// What it holds; unknown before it is made and after a crash.
    tree: Option<TreeId>,
    users: u32,
}

/// A worktree that a node may use until it gives it back.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Its name in the run directory.
    pub(crate) place: String,
    /// Its root.
    pub(crate) path: PathBuf,
}

/// How a node wants its worktree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Reads; may share it with other readers of the same tree.
    Read,
    /// Writes, and nothing else can run beside it.
    WriteAlone,
    /// Writes while others may run: a worktree of its own.
    WriteBeside,
}

impl Trees {
    pub(crate) fn new(
        git: ControlGit,
        repository: Repository,
        directory: RunDirectory,
        run: &RunId,
        base: Base,
    ) -> Self {
        Self {
            git: Arc::new(git),
            repository,
            directory,
            base,
            branch: branch_name(run),
            main: Mutex::new(MainPlace::default()),
        }
    }

    pub(crate) fn base(&self) -> &Base {
        &self.base
    }

    /// The control plane's repository, for work that may take long; run it with [`blocking`].
    pub(crate) fn git(&self) -> Arc<ControlGit> {
        Arc::clone(&self.git)
    }

    /// The merged work of `contributions` on the run's base.
    pub(crate) async fn fold(&self, contributions: Vec<Contribution>) -> Result<Folded, WorkError> {
        let git = self.git();
        let base = self.base.tree.clone();
        Ok(blocking(move || fold(&git, &base, &contributions)).await?)
    }

    /// Gives `node` a worktree that holds `tree`.
    pub(crate) async fn enter(
        &self,
        node: &NodeId,
        tree: &TreeId,
        how: Use,
    ) -> Result<Lease, WorkError> {
        if how != Use::WriteBeside {
            let mut main = self.main.lock().await;
            if main.users == 0 && main.tree.as_ref() != Some(tree) {
                // Unknown until it is whole: a failure here must not leave a half tree trusted.
                main.tree = None;
                self.prepare(MAIN_PLACE, tree).await?;
                main.tree = Some(tree.clone());
            }
            if main.tree.as_ref() == Some(tree) {
                main.users += 1;
                return Ok(self.lease(MAIN_PLACE));
            }
        }
        let segment = NodeSegment::from(node);
        self.prepare(segment.as_str(), tree).await?;
        Ok(self.lease(segment.as_str()))
    }

    /// Takes back the worktree in which a node of an earlier control plane worked, as it is.
    pub(crate) async fn reenter(&self, place: &str, tree: &TreeId) -> Lease {
        if place == MAIN_PLACE {
            let mut main = self.main.lock().await;
            main.users += 1;
            main.tree = Some(tree.clone());
        }
        self.lease(place)
    }

    /// Gives a writer's worktree back; returns the tree that it holds now.
    pub(crate) async fn leave_written(&self, lease: &Lease) -> Result<TreeId, WorkError> {
        let git = self.git();
        let place = self.place(&lease.place);
        let snapshot = blocking(move || git.snapshot(&place)).await;
        if lease.place == MAIN_PLACE {
            let mut main = self.main.lock().await;
            main.users = main.users.saturating_sub(1);
            main.tree = snapshot.as_ref().ok().map(|snapshot| snapshot.tree.clone());
        }
        Ok(snapshot?.tree)
    }

    /// Gives a reader's worktree back. What readers changed in it is undone by the last of them
    /// and returned: nothing that a reader writes reaches the work.
    pub(crate) async fn leave_read(&self, lease: &Lease) -> Result<Vec<Change>, WorkError> {
        if lease.place != MAIN_PLACE {
            return Ok(Vec::new());
        }
        let mut main = self.main.lock().await;
        main.users = main.users.saturating_sub(1);
        if main.users > 0 {
            return Ok(Vec::new());
        }
        let Some(tree) = main.tree.clone() else {
            return Ok(Vec::new());
        };
        main.tree = None;
        let git = self.git();
        let place = self.place(MAIN_PLACE);
        let expected = tree.clone();
        let droppings = blocking(move || -> Result<_, WorkError> {
            let now = git.snapshot(&place)?.tree;
            if now == expected {
                return Ok(Vec::new());
            }
            let changes = git.changes(&expected, &now)?;
            git.reset(&place, &expected)?;
            Ok(changes)
        })
        .await?;
        main.tree = Some(tree);
        Ok(droppings)
    }

    /// Makes the worktree `place` hold `tree`, building on what is there.
    pub(crate) async fn prepare(&self, place: &str, tree: &TreeId) -> Result<(), WorkError> {
        let git = self.git();
        let worktree = self.place(place);
        let tree = tree.clone();
        let repository = self.repository.clone();
        let (branch, commit) = (self.branch.clone(), self.base.commit.clone());
        blocking(move || {
            if let Some(parent) = worktree.path.parent() {
                make_directory(parent)?;
            }
            let is_directory =
                fs_err::symlink_metadata(&worktree.path).is_ok_and(|found| found.is_dir());
            if is_directory && worktree.index_file.exists() {
                return Ok(git.reset(&worktree, &tree)?);
            }
            // A half tree that a killed control plane left has no index yet; and an agent may have
            // removed its directory, or put a link in its place, which alone is removed here.
            sys::empty_tree(&worktree.path)?;
            let private = PrivateGit {
                repository: &repository,
                head_branch: &branch,
                head_commit: &commit,
            };
            Ok(git.materialise(&tree, &worktree, Some(&private))?)
        })
        .await
    }

    /// The worktree `place` as the git layer takes it.
    pub(crate) fn place(&self, place: &str) -> WorktreePlace {
        WorktreePlace {
            path: self.directory.worktree(place),
            index_file: self.directory.index(place),
        }
    }

    fn lease(&self, place: &str) -> Lease {
        Lease {
            place: place.to_owned(),
            path: self.directory.worktree(place),
        }
    }
}

/// The branch of `run`, without `refs/heads/`.
pub(crate) fn branch_name(run: &RunId) -> String {
    format!("mini-ork/{run}")
}

/// The ref under which unpublished work of `run` is kept.
pub(crate) fn kept_reference(run: &RunId, name: &str) -> String {
    format!("refs/mo/{run}/{name}")
}

/// A commit on top of `base` that holds `tree`, with submodules as links again; the same input
/// always gives the same id.
pub(crate) fn commit_on(
    git: &ControlGit,
    base: &CommitId,
    tree: &TreeId,
    message: &str,
    at_ms: u64,
) -> Result<CommitId, GitError> {
    let seconds = i64::try_from(at_ms / 1000).unwrap_or(i64::MAX);
    let tree = git.collapsed(tree, message, seconds)?;
    git.commit(&tree, std::slice::from_ref(base), message, seconds)
}

/// Where the user's repository is, for people and records: its checkout, or the bare repository.
pub(crate) fn repository_root(repository: &Repository) -> &Path {
    repository
        .toplevel
        .as_deref()
        .unwrap_or(&repository.git_dir)
}

/// Runs `work`, which waits for git or the disk, on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        // The only other end of a blocking task is a panic in it, which goes on here.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
