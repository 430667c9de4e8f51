//! Which commits of a private `.git` are its own.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::pointers::Pointer;
use super::quarantine::Quarantine;
use crate::git::{CommitId, ControlGit, GitError, TreeId, parse_tree};

/// More new commits than this are a history from elsewhere.
const MOST_COMMITS: usize = 100_000;

/// Commits of a quarantine that nothing of the user's leads to.
#[derive(Debug, Default)]
pub(super) struct NewCommits {
    /// What each candidate stands for.
    starts: BTreeMap<String, CommitId>,
    pub(super) commits: BTreeMap<CommitId, NewCommit>,
    /// What cannot be followed, in sentences.
    pub(super) lost: Vec<String>,
}

#[derive(Debug)]
pub(super) struct NewCommit {
    pub(super) tree: TreeId,
    pub(super) parents: Vec<CommitId>,
}

impl NewCommits {
    /// The commits that lead to all others, but for those that are `passed_over`; each with the
    /// first pointer to it.
    pub(super) fn tips<'a>(
        &self,
        candidates: &'a [Pointer],
        passed_over: impl Fn(&NewCommit) -> bool,
    ) -> Vec<(CommitId, &'a Pointer)> {
        let followed: HashSet<&CommitId> = self
            .commits
            .values()
            .flat_map(|commit| &commit.parents)
            .collect();
        let mut seen = HashSet::new();
        let mut tips = Vec::new();
        for pointer in candidates {
            let Some(id) = self.starts.get(&pointer.id) else {
                continue;
            };
            let Some(commit) = self.commits.get(id) else {
                continue;
            };
            if !followed.contains(id) && !passed_over(commit) && seen.insert(id) {
                tips.push((id.clone(), pointer));
            }
        }
        tips
    }
}

impl ControlGit {
    /// The commits that the candidates lead to and nothing of the user's does.
    pub(super) fn new_commits(
        &self,
        quarantine: &Quarantine,
        candidates: &[Pointer],
        known: &BTreeSet<String>,
    ) -> Result<NewCommits, GitError> {
        let mut new = NewCommits::default();
        let mut input = String::new();
        for pointer in candidates {
            input.push_str(&format!("{0}\n{0}^{{commit}}\n", pointer.id));
        }
        let answer = quarantine
            .command(self, "cat-file")
            .arg("--batch-check=%(objectname) %(objecttype)")
            .input(input.into_bytes())
            .run()?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let mut lines = answer.lines();
        let mut revisions = String::new();
        for pointer in candidates {
            let (itself, commit) = (
                lines.next().unwrap_or_default(),
                lines.next().unwrap_or_default(),
            );
            let absent = |line: &str| line.ends_with("missing") || line.ends_with("ambiguous");
            match commit
                .strip_suffix(" commit")
                .and_then(|id| CommitId::parse(id).ok())
            {
                Some(id) => {
                    revisions.push_str(&format!("{id}\n"));
                    new.starts.insert(pointer.id.clone(), id);
                }
                // What a reference names keeps it; a mere mention of an id does not.
                None if pointer.is_reference && !absent(itself) => new.lost.push(format!(
                    "`{}` in its `.git` names what is no commit",
                    pointer.source
                )),
                None => {}
            }
        }
        if new.starts.is_empty() {
            return Ok(new);
        }
        revisions.push_str("--not\nHEAD\n");
        for id in known {
            revisions.push_str(&format!("{id}\n"));
        }
        let listing = quarantine
            .command(self, "rev-list")
            .args(["--ignore-missing", "--no-commit-header", "--stdin"])
            .arg("--format=%H %T %P")
            .arg(format!("--max-count={}", MOST_COMMITS + 1))
            .input(revisions.into_bytes())
            .run()?;
        for line in String::from_utf8_lossy(&listing).lines() {
            let mut ids = line.split(' ');
            let unreadable = |what: String| GitError::Unreadable {
                command: "rev-list",
                what,
            };
            let mut next = || ids.next().unwrap_or_default();
            let id = CommitId::parse(next()).map_err(|error| unreadable(error.to_string()))?;
            let tree = parse_tree("rev-list", next().as_bytes())?;
            let parents = ids
                .filter_map(|parent| CommitId::parse(parent).ok())
                .collect();
            new.commits.insert(id, NewCommit { tree, parents });
        }
        if new.commits.len() > MOST_COMMITS {
            new.commits.clear();
            new.lost.push(format!(
                "its `.git` has more than {MOST_COMMITS} commits of its own"
            ));
        }
        Ok(new)
    }
}
