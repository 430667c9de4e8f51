//! The only place for calls that are special to the operating system.

mod disk;
mod holders;
pub(crate) mod removal;

pub(crate) mod birth;
pub(crate) mod cgroup;
pub(crate) mod counters;
pub(crate) mod descriptors;
pub(crate) mod files;
pub(crate) mod namespaces;
pub(crate) mod process;
mod random;
pub(crate) mod written;

pub use disk::{DiskFree, disk_free};
pub use holders::processes_below;
pub use process::{own_identity, signal};
pub use random::random_bytes;
pub use removal::{empty_tree, remove_tree, remove_tree_strictly};
pub use rustix::process::Signal;
