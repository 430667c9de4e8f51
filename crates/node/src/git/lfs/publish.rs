//! Content that a published commit points to.

use super::{LARGEST, Pointer, Stores};
use crate::git::control::ControlGit;
use crate::git::error::GitError;
use crate::git::id::{CommitId, FileMode};
use crate::git::publish::PublishError;
use crate::git::repository::{Repository, parse_batch, parse_tree};

impl ControlGit {
    /// Puts what the run has made, and files of `commit` that are not as in `base` point to, into
    /// the store of `repository`.
    pub(in crate::git) fn hand_over_lfs(
        &self,
        repository: &Repository,
        commit: &CommitId,
        base: &CommitId,
    ) -> Result<(), PublishError> {
        let stores = Stores::open(self.path())?;
        if !stores.made_something() {
            return Ok(());
        }
        let tree = |commit: &CommitId| parse_tree("diff-tree", commit.as_str().as_bytes());
        let changes = self.raw_changes(&tree(base)?, &tree(commit)?)?;
        let new = changes.iter().filter_map(|change| change.new.as_ref());
        let blobs: Vec<&str> = new
            .filter(|(mode, _)| matches!(mode, FileMode::Regular | FileMode::Executable))
            .map(|(_, id)| id.as_str())
            .collect();
        let pointers = self.pointers(&blobs)?;
        stores.hand_over(&pointers, &repository.lfs_directory())?;
        Ok(())
    }

    /// Those of `blobs` that are pointers.
    fn pointers(&self, blobs: &[&str]) -> Result<Vec<Pointer>, GitError> {
        let sizes = self
            .command("cat-file")
            .arg("--batch-check=%(objectsize) %(objectname)")
            .input(lines(blobs.iter().copied()))
            .run()?;
        let sizes = String::from_utf8_lossy(&sizes).into_owned();
        let small = sizes.lines().filter_map(|line| {
            let (size, id) = line.split_once(' ')?;
            (size.parse::<u64>().ok()? <= LARGEST).then_some(id)
        });
        let output = self
            .command("cat-file")
            .arg("--batch")
            .input(lines(small))
            .run()?;
        let contents = parse_batch(&output)?;
        Ok(contents
            .iter()
            .filter_map(|content| Pointer::parse(content))
            .collect())
    }
}

fn lines<'a>(words: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let mut text = String::new();
    for word in words {
        text.push_str(word);
        text.push('\n');
    }
    text.into_bytes()
}
