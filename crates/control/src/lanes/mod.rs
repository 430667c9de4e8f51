//! Lanes: which agent does a node, and how it is started. Two files of people, `providers.yaml` and
//! `agents.yaml`, say which lanes there are and which role each plays; a scripted lane replays a
//! file instead of asking a model, so that a recipe can be tried without one.

mod config;
mod drivers;
mod model;
mod provider;
mod scripted;
mod transcript;

pub use config::{BUILT_IN, LaneConfig, LaneError, ResolveError};
pub use drivers::{Launch, LaunchContext};
pub use model::{Agent, Driver, Inject, Lane, LaneLimits, ModelAgent};
pub use scripted::{Occasion, Script, ScriptError, ScriptedStep};
pub use transcript::{
    AgentFailure, AgentFailureKind, Conclusion, Entry, EntryKind, TranscriptParser,
};

pub(crate) use config::lane_name;

#[cfg(test)]
mod config_tests;
#[cfg(test)]
mod provider_tests;
