//! Putting a result into the user's checkout as uncommitted changes.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

use super::beneath::Root;
use super::install::{InstallError, Step, install};
use super::walk::{Found, walk};
use crate::git::{
    ControlGit, FileMode, GitError, ObjectId, RawChange, RepoPath, Repository, Scratch, TreeId,
    push_index_record,
};

/// What applying did, or would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// These paths have the result now.
    Applied {
        /// In the order of the tree; paths that had it before are not among them.
        paths: Vec<RepoPath>,
    },
    /// Nothing stands in the way, and these paths would change.
    WouldApply {
        /// In the order of the tree.
        paths: Vec<RepoPath>,
    },
    /// The checkout has the result at all paths that differ.
    AlreadyApplied,
}

/// A path that is not as the run found it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// The path.
    pub path: RepoPath,
    /// What about it.
    pub reason: ObstacleReason,
}

/// Why a path stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObstacleReason {
    /// Its content is neither what the run began with nor what it made.
    Changed,
    /// It should be there and is not.
    Missing,
    /// Something is there that should not be.
    InTheWay,
    /// A submodule cannot be changed this way.
    Submodule,
}

/// Why the checkout is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A bare repository has no files.
    #[error("the repository at {} has no checkout", git_dir.display())]
    NoCheckout {
        /// Its git directory.
        git_dir: std::path::PathBuf,
    },
    /// Work of the user's would be lost.
    #[error("{} of the paths to change are not as they were when the run began", obstacles.len())]
    Refused {
        /// All of them.
        obstacles: Vec<Obstacle>,
    },
    /// Writing failed half way.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// Git could not do its part.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file could not be looked at; the message names it.
    #[error(transparent)]
    Files(#[from] io::Error),
}

impl ControlGit {
    /// Makes the files of the user's checkout what turns `base` into `result`, and leaves the index
    /// and HEAD alone: the changes show up as not staged.
    ///
    /// Only paths that differ between the trees are looked at. Each must be as in `base`, or as in
    /// `result` already, which makes an interrupted call good by calling again; otherwise nothing
    /// is written and all that differ are told. No hook and no filter of the user's runs. In
    /// submodules that are here, files are changed like others. When writing fails, what was written
    /// is taken back. With `dry_run` nothing is written.
    pub fn apply(
        &self,
        repository: &Repository,
        base: &TreeId,
        result: &TreeId,
        dry_run: bool,
    ) -> Result<ApplyOutcome, ApplyError> {
        let Some(toplevel) = &repository.toplevel else {
            return Err(ApplyError::NoCheckout {
                git_dir: repository.git_dir.clone(),
            });
        };
        let (base, result) = (&self.expanded(base)?, &self.expanded(result)?);
        let changes = self.raw_changes(base, result)?;
        let root = Root::open(toplevel)?;
        let scratch = self.scratch()?;
        // Before content is compared: a file that is written later has other metadata.
        let mut seen: HashMap<&RepoPath, Option<Stat>> = HashMap::new();
        for change in &changes {
            seen.insert(&change.path, root.stat(&change.path)?);
        }
        let old: Vec<_> = sides(&changes, |change| change.old.as_ref());
        let new: Vec<_> = sides(&changes, |change| change.new.as_ref());
        let state = State {
            at_base: self.matching(repository, toplevel, &scratch, &old)?,
            at_result: self.matching(repository, toplevel, &scratch, &new)?,
            present: seen
                .iter()
                .filter_map(|(path, stat)| stat.as_ref().map(|stat| (*path, kind(stat))))
                .collect(),
            deleted: changes
                .iter()
                .filter(|change| change.new.is_none())
                .map(|change| change.path.as_bytes())
                .collect(),
        };
        let (todo, obstacles) = state.sort(&root, &changes)?;
        if !obstacles.is_empty() {
            return Err(ApplyError::Refused { obstacles });
        }
        let paths: Vec<RepoPath> = todo.iter().map(|change| change.path.clone()).collect();
        if paths.is_empty() {
            return Ok(ApplyOutcome::AlreadyApplied);
        }
        if dry_run {
            return Ok(ApplyOutcome::WouldApply { paths });
        }
        let staged = scratch.path().join("staged");
        self.write_out(result, &scratch, &staged, &todo)?;
        let steps: Vec<Step<'_>> = todo
            .iter()
            .map(|change| Step {
                path: &change.path,
                before: seen.get(&change.path).copied().flatten(),
                mode: change.new.as_ref().map(|(mode, _)| *mode),
            })
            .collect();
        install(&root, &repository.git_dir, &staged, &steps)?;
        Ok(ApplyOutcome::Applied { paths })
    }

    /// Those of `entries` whose file in the checkout has that content and mode.
    fn matching<'a>(
        &self,
        repository: &Repository,
        toplevel: &Path,
        scratch: &Scratch,
        entries: &[(&'a RepoPath, FileMode, &ObjectId)],
    ) -> Result<HashSet<&'a RepoPath>, GitError> {
        if entries.is_empty() {
            return Ok(HashSet::new());
        }
        let index = scratch.path().join("compare");
        if fs_err::symlink_metadata(&index).is_ok() {
            fs_err::remove_file(&index)?;
        }
        let mut records = Vec::new();
        for (path, mode, id) in entries {
            push_index_record(&mut records, mode.as_str(), id.as_str(), path.as_bytes());
        }
        let command = |name| {
            self.tree_command(name, toplevel, &index)
                .config(repository.file_mode())
        };
        command("update-index")
            .args(["-z", "--index-info"])
            .input(records)
            .run()?;
        // Reads each file once, through the conversions that need no program.
        command("update-index")
            .args(["-q", "--refresh"])
            .run_with_codes(&[0, 1])?;
        let output = command("diff-files")
            .args(["-z", "--name-only", "--ignore-submodules=all"])
            .args(["--no-ext-diff", "--no-textconv"])
            .run()?;
        let different: HashSet<&[u8]> = output.split(|byte| *byte == 0).collect();
        Ok(entries
            .iter()
            .map(|(path, ..)| *path)
            .filter(|path| !different.contains(path.as_bytes()))
            .collect())
    }

    /// Writes the new files to `staged`, as a checkout would.
    fn write_out(
        &self,
        result: &TreeId,
        scratch: &Scratch,
        staged: &Path,
        todo: &[&RawChange],
    ) -> Result<(), GitError> {
        fs_err::create_dir(staged)?;
        let index = scratch.path().join("result");
        // All of it, for the attributes in it.
        self.tree_command("read-tree", staged, &index)
            .arg(result)
            .run()?;
        let mut input = Vec::new();
        for change in todo.iter().filter(|change| change.new.is_some()) {
            input.extend_from_slice(change.path.as_bytes());
            input.push(0);
        }
        self.tree_command("checkout-index", staged, &index)
            .args(["-z", "--stdin", "--quiet"])
            .input(input)
            .run()?;
        Ok(())
    }
}

/// What the checkout has at the paths that differ.
struct State<'a> {
    at_base: HashSet<&'a RepoPath>,
    at_result: HashSet<&'a RepoPath>,
    present: HashMap<&'a RepoPath, FileType>,
    /// Paths that the result does not have.
    deleted: HashSet<&'a [u8]>,
}

impl<'a> State<'a> {
    /// What is to be done, and what stands in the way.
    fn sort(
        &self,
        root: &Root,
        changes: &'a [RawChange],
    ) -> io::Result<(Vec<&'a RawChange>, Vec<Obstacle>)> {
        let (mut todo, mut obstacles) = (Vec::new(), Vec::new());
        for change in changes {
            match self.judge(root, change)? {
                Ok(true) => todo.push(change),
                Ok(false) => {}
                Err(reason) => obstacles.push(Obstacle {
                    path: change.path.clone(),
                    reason,
                }),
            }
        }
        Ok((todo, obstacles))
    }

    /// Whether there is something to do, or why it cannot be done.
    fn judge(&self, root: &Root, change: &RawChange) -> io::Result<Result<bool, ObstacleReason>> {
        let path = &change.path;
        let submodule = |side: &Option<(FileMode, ObjectId)>| {
            side.as_ref()
                .is_some_and(|(mode, _)| *mode == FileMode::Submodule)
        };
        if submodule(&change.old) || submodule(&change.new) {
            return Ok(Err(ObstacleReason::Submodule));
        }
        let present = self.present.get(path);
        if change.new.is_some() && present.is_some() && self.at_result.contains(path) {
            return Ok(Ok(false));
        }
        if change.old.is_some() {
            return Ok(match present {
                Some(_) if self.at_base.contains(path) => Ok(true),
                None if change.new.is_none() => Ok(false),
                None => Err(ObstacleReason::Missing),
                // It made way for files below it, and they are judged for themselves.
                Some(FileType::Directory) if change.new.is_none() => Ok(false),
                Some(_) => Err(ObstacleReason::Changed),
            });
        }
        let free = match present {
            None => self.parents_are_free(root, path)?,
            Some(FileType::Directory) => self.will_be_empty(root, path)?,
            Some(_) => false,
        };
        Ok(if free {
            Ok(true)
        } else {
            Err(ObstacleReason::InTheWay)
        })
    }

    /// Whether each directory above `path` is one, is not there, or is a file that goes.
    fn parents_are_free(&self, root: &Root, path: &RepoPath) -> io::Result<bool> {
        for parent in path.parents() {
            let Ok(parent) = RepoPath::new(parent) else {
                return Ok(false);
            };
            match root.stat(&parent)?.as_ref().map(kind) {
                None | Some(FileType::Directory) => {}
                Some(_) => return Ok(self.deleted.contains(parent.as_bytes())),
            }
        }
        Ok(true)
    }

    /// Whether all that is in the directory `path` goes.
    fn will_be_empty(&self, root: &Root, path: &RepoPath) -> io::Result<bool> {
        let directory = Root::open(&root.path().join(path.as_path()))?;
        let mut empty = true;
        walk(&directory, &mut |found| {
            match found {
                Found::Entry {
                    kind: FileType::Directory,
                    ..
                }
                | Found::Empty { .. } => {}
                Found::Entry { path: inner, .. } => {
                    let full = [path.as_bytes(), b"/", inner].concat();
                    empty &= self.deleted.contains(full.as_slice());
                }
                Found::Closed { .. } | Found::TooLong { .. } => empty = false,
            }
            Ok(empty)
        })?;
        Ok(empty)
    }
}

fn sides<'a>(
    changes: &'a [RawChange],
    side: impl Fn(&'a RawChange) -> Option<&'a (FileMode, ObjectId)>,
) -> Vec<(&'a RepoPath, FileMode, &'a ObjectId)> {
    changes
        .iter()
        .filter_map(|change| side(change).map(|(mode, id)| (&change.path, *mode, id)))
        .filter(|(_, mode, _)| *mode != FileMode::Submodule)
        .collect()
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
