//! A directory that holds a tree.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::private::{self, PrivateGit};
use crate::git::{ControlGit, GitCommand, GitError, TreeId};
use crate::sys;

/// A directory with the files of a tree, and the index that says which tree that is.
///
/// The index is the control plane's and lies outside the directory. Both paths are absolute. One
/// operation at a time works on a place; a second one waits for it, also in another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktreePlace {
    /// The directory.
    pub path: PathBuf,
    /// The index; its directory exists.
    pub index_file: PathBuf,
}

/// Why a directory could not be made, read or put right.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// It holds something already.
    #[error("{} is not an empty directory", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// A directory in it that is not ignored cannot be listed, so what is in there would be lost.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
    },
    /// Git could not do it.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file could not be read or written; the message names it.
    #[error(transparent)]
    Files(#[from] io::Error),
}

/// Keeps a place to one operation.
#[derive(Debug)]
pub(super) struct PlaceLock {
    _file: std::fs::File,
}

impl WorktreePlace {
    /// Waits until no other operation works on this place.
    ///
    /// Fails when the directory is none any more: whoever works in it may have put a link in its
    /// place, and what is done to the place would then be done to the directory that it leads to.
    pub(super) fn lock(&self) -> io::Result<PlaceLock> {
        match fs_err::symlink_metadata(&self.path) {
            Ok(found) if !found.is_dir() => {
                let message = format!(
                    "{}: the worktree was replaced by something else",
                    self.path.display()
                );
                return Err(io::Error::new(io::ErrorKind::NotADirectory, message));
            }
            // What is not there yet is made, or found missing, by what follows.
            _ => {}
        }
        let file = fs_err::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(with_suffix(&self.index_file, ".owner"))?;
        let (file, path) = file.into_parts();
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| super::beneath::named(error, &path))?;
        // Git's own lock: whoever held it was killed, for we hold the place now.
        match fs_err::remove_file(with_suffix(&self.index_file, ".lock")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(PlaceLock { _file: file }),
        }
    }
}

impl ControlGit {
    /// Makes the directory of `place` hold exactly `tree`: new, or empty before.
    ///
    /// Line endings, `$Id$` and encodings are as in an ordinary checkout. A Git LFS file has its
    /// content where this machine has it, and else is its pointer; no other filter runs. A submodule
    /// whose repository is here is a directory with its files, and another one is empty. With `private` there is
    /// also a `.git` that belongs to whoever works there. When this fails the directory is as
    /// it was before.
    pub fn materialise(
        &self,
        tree: &TreeId,
        place: &WorktreePlace,
        private: Option<&PrivateGit<'_>>,
    ) -> Result<(), TreeError> {
        let _lock = place.lock()?;
        // A directory that was there may be mounted in a sandbox, and has to stay the same one.
        let existed = place.path.is_dir();
        fs_err::create_dir_all(&place.path)?;
        if fs_err::read_dir(&place.path)?.next().is_some() {
            return Err(TreeError::NotEmpty {
                path: place.path.clone(),
            });
        }
        let made = self.fill(tree, place, private);
        if made.is_err() {
            // Half a tree must not be taken for one. The first error is the one to tell.
            drop(if existed {
                sys::empty_tree(&place.path)
            } else {
                sys::remove_tree(&place.path)
            });
        }
        made
    }

    fn fill(
        &self,
        tree: &TreeId,
        place: &WorktreePlace,
        private: Option<&PrivateGit<'_>>,
    ) -> Result<(), TreeError> {
        if fs_err::symlink_metadata(&place.index_file).is_ok() {
            // It speaks of files that are not there.
            fs_err::remove_file(&place.index_file)?;
        }
        self.place_command("read-tree", place)
            .args(["-u", "--reset"])
            .arg(self.expanded(tree)?)
            .run()?;
        if let Some(private) = private {
            private::write(self, place, private)?;
        }
        Ok(())
    }

    /// A command on the files of `place`.
    pub(super) fn place_command(
        &self,
        command: &'static str,
        place: &WorktreePlace,
    ) -> GitCommand<'_> {
        self.tree_command(command, &place.path, &place.index_file)
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
