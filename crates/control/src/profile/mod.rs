//! Profiles: `config/environments/NAME.yaml` says what a run works in.
//!
//! A profile is read as [`RawProfile`], which is what its files say, and becomes a
//! [`ResolvedProfile`] once it is known that all of it can be carried out.

mod raw;
mod resolve;

use std::collections::BTreeMap;
use std::fmt;

use mini_ork_node::egress::NetworkPolicy;

pub use raw::{RawProfile, named_images, names};

use crate::config_file::ConfigFileError;
use crate::yaml::Mistakes;

/// A value of a profile, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// The file as a person would name it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

impl<T> Placed<T> {
    fn with<U>(&self, value: U) -> Placed<U> {
        Placed {
            value,
            file: self.file.clone(),
            line: self.line,
        }
    }
}

/// The place.
impl<T> fmt::Display for Placed<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.file, self.line)
    }
}

/// A profile that can be carried out. What is absent is left to the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedProfile {
    /// The image of a container.
    pub image: Option<Placed<String>>,
    /// What programs reach.
    pub network: Option<Placed<NetworkPolicy>>,
    /// Variables for the programs of the run, none of them a secret.
    pub env: BTreeMap<String, Placed<String>>,
    /// Processors, as [`Processors::parse`](mini_ork_node::workspace::docker::Processors::parse)
    /// takes them.
    pub cpus: Option<Placed<String>>,
    /// Memory, as [`parse_memory`](mini_ork_node::size::parse_memory) takes it.
    pub memory: Option<Placed<String>>,
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// No file has it.
    #[error("there is no profile `{name}` ({remedy})")]
    Unknown {
        /// What was asked for.
        name: String,
        /// A likely name, all that there are, or where one would be.
        remedy: String,
    },
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ConfigFileError),
    /// The files have mistakes.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
}

#[cfg(test)]
mod tests;
