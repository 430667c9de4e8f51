use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What of this machine a run has to do with: where its directories are, and where its programs
/// find them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    /// A name that no other run of this machine has, of `a-z`, `0-9` and inner `-`.
    pub name: String,
    /// A directory for what the backend has to remember, which no program inside sees.
    pub private: PathBuf,
    /// A directory of this machine that is the same inside, for [`Access::ReadWrite`].
    pub proof: PathBuf,
    /// What a boundary lets through.
    pub shares: Vec<Share>,
}

/// A directory or file of this machine that is seen inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Absolute path on this machine.
    pub host: PathBuf,
    /// Absolute path inside.
    pub inside: PathBuf,
    /// What programs may do there.
    pub access: Access,
}

/// What programs may do with a [`Share`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Read and write.
    ReadWrite,
    /// Read.
    ReadOnly,
    /// Nothing: it is not there, but what is below it may be, and is called after it.
    Name,
}

impl Drive {
    /// Where the path `host` of this machine is inside; the same path when no share holds it.
    pub fn inside(&self, host: &Path) -> PathBuf {
        let holding = self
            .shares
            .iter()
            .filter_map(|share| Some((share, host.strip_prefix(&share.host).ok()?)));
        // The innermost one.
        let found = holding.min_by_key(|(_, rest)| rest.as_os_str().len());
        match found {
            Some((share, rest)) if rest.as_os_str().is_empty() => share.inside.clone(),
            Some((share, rest)) => share.inside.join(rest),
            None => host.to_owned(),
        }
    }
}

/// A loopback port of this machine that can be reached inside for as long as this is kept.
pub struct Lead {
    _passage: Option<Box<dyn Send + Sync>>,
}

impl Lead {
    /// Where there is no boundary, every port can be reached.
    pub(super) fn open() -> Self {
        Self { _passage: None }
    }

    /// The port is led through for as long as `passage` is kept.
    pub(crate) fn through(passage: impl Send + Sync + 'static) -> Self {
        Self {
            _passage: Some(Box::new(passage)),
        }
    }
}

impl fmt::Debug for Lead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Lead")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(host: &str, inside: &str) -> Share {
        Share {
            host: host.into(),
            inside: inside.into(),
            access: Access::ReadWrite,
        }
    }

    #[test]
    fn a_path_is_named_by_its_innermost_share() {
        let drive = Drive {
            name: "r".to_owned(),
            private: "/runs/r/sandbox".into(),
            proof: "/runs/r/nodes".into(),
            shares: vec![
                share("/runs/r", "/workspace/run"),
                share("/runs/r/worktree", "/workspace/target"),
                share("/runs/r/control.git/objects", "/runs/r/control.git/objects"),
            ],
        };
        for (host, inside) in [
            ("/runs/r", "/workspace/run"),
            ("/runs/r/nodes/a", "/workspace/run/nodes/a"),
            ("/runs/r/worktree", "/workspace/target"),
            ("/runs/r/worktree/src/a b", "/workspace/target/src/a b"),
            ("/runs/r/worktrees/x", "/workspace/run/worktrees/x"),
            (
                "/runs/r/control.git/objects/ab",
                "/runs/r/control.git/objects/ab",
            ),
            ("/runs/r2/nodes", "/runs/r2/nodes"),
            ("/usr/bin/env", "/usr/bin/env"),
        ] {
            assert_eq!(drive.inside(Path::new(host)), Path::new(inside), "{host}");
        }
    }
}
