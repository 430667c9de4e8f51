//! Directories that hold a tree: made, read back, put right again, and compared.
//!
//! A directory that an agent works in is hostile input. It is only ever read as files: by git with
//! the run's own git directory (see [`crate::git`]), and by a walk that opens no file and follows
//! no link. Git never runs on its `.git`, nor on those of repositories made inside it; only a rescue
//! reads the former, as bytes.

mod apply;
mod beneath;
mod fingerprint;
mod index;
mod install;
mod not_carried;
mod place;
mod private;
mod rescue;
mod reset;
mod snapshot;
mod survey;
mod usage;
mod walk;

pub use apply::{ApplyError, ApplyOutcome, Obstacle, ObstacleReason};
pub use fingerprint::{CheckoutFingerprint, checkout_fingerprint};
pub use install::InstallError;
pub use not_carried::{NotCarried, NotCarriedKind, NotCarriedList};
pub use place::{TreeError, WorktreePlace};
pub use private::PrivateGit;
pub use rescue::{Find, Look, Rescued, Safe, Unsaved};
pub use snapshot::Snapshot;
pub use usage::disk_usage;
