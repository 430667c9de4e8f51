//! The control plane: what is decided on the user's machine and nowhere else.
//!
//! Nothing here prints or reads the environment; settings come in as arguments.

pub mod clean;
pub mod kickoff;
pub mod lanes;
pub mod prompt;
pub mod reason;
pub mod recipe;
pub mod report;
pub mod run;
pub mod secret;
pub mod store;
pub mod vault;
pub mod verify;
pub mod yaml;

mod beneath;
