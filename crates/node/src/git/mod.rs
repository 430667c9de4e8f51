//! Git as the control plane uses it.
//!
//! The git program does the work; what is here decides in which directory, with which
//! configuration and on whose word. Two rules hold everywhere:
//!
//! - A command that looks at a directory an agent can write runs with the run's own git directory
//!   ([`ControlGit`]) and the directory as a bare work tree. The `.git` inside is never read.
//! - A command that uses the user's repository ([`Repository`]) is one that no configuration can
//!   make run a program, and only [`ControlGit::publish`] and [`ControlGit::delete_ref`] change
//!   anything there: objects that were missing, content of Git LFS, and the one named reference,
//!   there and in the repositories of submodules that the work changed.
//!
//! Everything is synchronous and bounded by a deadline.

mod changes;
mod command;
mod control;
mod error;
mod exchange;
mod id;
mod kept;
mod lfs;
mod merge;
mod objects;
mod publish;
mod repository;
mod submodules;
mod uncommitted;

pub(crate) use changes::RawChange;
pub use changes::{Change, ChangeKind};
pub use command::Git;
pub(crate) use command::GitCommand;
pub use control::ControlGit;
pub(crate) use control::{Scratch, alternates, common_settings, read_if_there};
pub use error::GitError;
pub use id::{
    CommitId, FileMode, ObjectFormat, ObjectId, ObjectIdError, RepoPath, RepoPathError, TreeId,
};
pub(crate) use id::{is_dot_git, is_dot_gitmodules};
pub use kept::KeptCommit;
pub use lfs::{LFS_ARGUMENT, LfsFiles, lfs_main};
pub use merge::{Conflict, ConflictKind, ConflictSide, Merge, MergeSide};
pub(crate) use objects::push_index_record;
pub use objects::{Edit, FileContent, TreeEntry};
pub use publish::{Expected, PublishError, PublishOutcome};
pub(crate) use repository::parse_tree;
pub use repository::{DiscoverError, Repository};
pub use submodules::{AbsentSubmodule, Submodule, Submodules};
pub use uncommitted::Uncommitted;
