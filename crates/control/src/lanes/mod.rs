//! Lanes: which agent does a node. Two files of people, `providers.yaml` and `agents.yaml`, say
//! which lanes there are and which role each plays; a scripted lane replays a file instead of
//! asking a model, so that a recipe can be tried without one.

mod config;
mod replay;
mod scripted;

pub use config::{Agent, Lane, LaneConfig, LaneError, ResolveError, SCRIPTED_ARGUMENT};
pub use replay::{ReplayError, replay, run_script};
pub use scripted::{Occasion, Script, Step};

pub(crate) use config::lane_name;

#[cfg(test)]
mod config_tests;
