use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use mini_ork_protocol::{ByteString, RunId};
use serde::{Deserialize, Serialize};

use super::directory::{RunDirectory, read_json};
use super::event::Base;
use super::plan::AgentPlace;
use crate::kickoff::Question;

/// Version of `run.json`; a reader refuses a later one.
pub(crate) const RECORD_FORMAT: u32 = 1;

/// Where a run works and why it works so: `run.json`, written once, before the run begins.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunRecord {
    /// `RECORD_FORMAT` of the writer.
    pub format: u32,
    /// The run.
    pub run: RunId,
    /// Milliseconds since the Unix epoch.
    pub started_at_ms: u64,
    /// Root of the user's repository, for people.
    pub repository: String,
    /// The same, byte for byte.
    pub repository_bytes: ByteString,
    /// Where the kickoff was read from, for people.
    pub kickoff: String,
    /// HEAD and its tree when the run began; absent for a recipe that changes nothing.
    pub base: Option<Base>,
    /// The boundary that holds, in one sentence.
    pub isolation: String,
    /// Where the agents of lanes run that are not, or not wholly, behind that boundary.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agents: BTreeMap<String, AgentPlace>,
    /// What has to be answered before the run may begin.
    #[serde(default)]
    pub questions: Vec<Question>,
    /// Every setting that decided something, and where it came from.
    pub settings: Vec<SettingRecord>,
}

/// One setting of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingRecord {
    /// Its name.
    pub name: String,
    /// Its value as text; secrets are no settings.
    pub value: String,
    /// Where it came from: a flag, a variable, a file, or the default.
    pub source: String,
}

impl RunRecord {
    /// The record of `run` in `home`.
    pub fn load(home: &Path, run: &RunId) -> io::Result<Self> {
        read_json(&RunDirectory::of(home, run).record())
    }

    /// Root of the user's repository.
    pub fn repository_path(&self) -> PathBuf {
        PathBuf::from(self.repository_bytes.clone().into_os_string())
    }
}

/// `path` as a record keeps it: for people, and byte for byte.
pub(crate) fn path_forms(path: &Path) -> (String, ByteString) {
    (path.display().to_string(), path.into())
}
