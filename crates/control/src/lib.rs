//! The control plane: what is decided on the user's machine and nowhere else.
//!
//! Nothing here prints or reads the environment; settings come in as arguments.

pub mod clean;
mod config_file;
pub mod kickoff;
pub mod lanes;
pub mod pricing;
pub mod profile;
pub mod prompt;
pub mod reason;
pub mod recipe;
pub mod report;
pub mod reserve;
pub mod run;
pub mod sandboxes;
pub mod spending;
pub mod store;
pub mod trial;
mod variables;
pub mod vault;
pub mod verify;
pub mod yaml;

pub use config_file::ConfigFileError;
use mini_ork_node::beneath;
