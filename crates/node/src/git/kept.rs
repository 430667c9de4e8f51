//! What references of the user's repository keep.

use super::control::ControlGit;
use super::error::GitError;
use super::id::{CommitId, TreeId};
use super::repository::{Repository, parse_commit, parse_tree};

/// A reference to a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptCommit {
    /// Full name of the reference.
    pub reference: String,
    /// The commit.
    pub commit: CommitId,
    /// Its tree.
    pub tree: TreeId,
    /// Its parents.
    pub parents: Vec<CommitId>,
}

impl Repository {
    /// The references below `prefix`, which ends with `/`, that point at a commit.
    pub fn kept_commits(&self, prefix: &str) -> Result<Vec<KeptCommit>, GitError> {
        let listing = self
            .command("for-each-ref")
            .arg("--format=%(objecttype) %(refname) %(objectname) %(tree) %(parent)")
            .arg(prefix)
            .run()?;
        let mut kept = Vec::new();
        for line in String::from_utf8_lossy(&listing).lines() {
            let mut fields = line.split(' ');
            let (kind, name) = (fields.next(), fields.next());
            // Nobody but a person puts anything else there.
            let (Some("commit"), Some(name)) = (kind, name) else {
                continue;
            };
            let mut next = || fields.next().unwrap_or_default().as_bytes();
            kept.push(KeptCommit {
                reference: name.to_owned(),
                commit: parse_commit("for-each-ref", next())?,
                tree: parse_tree("for-each-ref", next())?,
                parents: fields
                    .filter(|id| !id.is_empty())
                    .map(|id| parse_commit("for-each-ref", id.as_bytes()))
                    .collect::<Result<_, _>>()?,
            });
        }
        Ok(kept)
    }

    /// Whether some reference that is not below `except` leads to `commit`. Not so for a commit
    /// that is not there.
    pub fn is_kept(&self, commit: &CommitId, except: &str) -> Result<bool, GitError> {
        let (code, _) = self
            .command("cat-file")
            .arg("-e")
            .arg(commit)
            .run_with_codes(&[0, 1, 128])?;
        if code != 0 {
            return Ok(false);
        }
        let listing = self
            .command("for-each-ref")
            .args(["--format=%(refname)", "--contains"])
            .arg(commit)
            .run()?;
        Ok(listing
            .split(|byte| *byte == b'\n')
            .any(|name| !name.is_empty() && !name.starts_with(except.as_bytes())))
    }
}

impl ControlGit {
    /// Whether the run's store, or the user's, has `tree`.
    pub fn has_tree(&self, tree: &TreeId) -> Result<bool, GitError> {
        let (code, _) = self
            .command("cat-file")
            .arg("-e")
            .arg(tree)
            .run_with_codes(&[0, 1, 128])?;
        Ok(code == 0)
    }
}
