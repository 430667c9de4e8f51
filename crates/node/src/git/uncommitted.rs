//! What the user has not committed, for the note that a run does not have it.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::control::ControlGit;
use super::error::GitError;
use super::objects::records;
use super::repository::Repository;

/// How many paths of the user's checkout differ from the commit that the run starts from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Uncommitted {
    /// In the index.
    pub staged: u64,
    /// In files that git tracks, against the index.
    pub unstaged: u64,
    /// In files that git neither tracks nor ignores.
    pub untracked: u64,
    /// Left over from a merge.
    pub unmerged: u64,
}

impl ControlGit {
    /// Counts what is uncommitted in the checkout of `repository`. All zero for a bare one.
    ///
    /// Neither the index nor anything else there is written, and no program runs that the
    /// repository names; so a file that such a program translates (Git LFS) counts as unstaged if
    /// it was touched since it was checked out.
    pub fn uncommitted(&self, repository: &Repository) -> Result<Uncommitted, GitError> {
        let Some(toplevel) = &repository.toplevel else {
            return Ok(Uncommitted::default());
        };
        let scratch = self.scratch()?;
        let git_dir = self.scratch_git(&scratch, repository.head.as_str())?;
        copy_index(repository, &git_dir)?;
        let output = self
            .git()
            .command("status", toplevel)
            .git_dir(&git_dir)
            .env("GIT_WORK_TREE", toplevel)
            .env("GIT_OBJECT_DIRECTORY", self.objects())
            .config(repository.file_mode())
            .args([
                "--porcelain=v2",
                "-z",
                "--untracked-files=all",
                "--no-renames",
            ])
            // Asking further would run git with the submodule's configuration.
            .arg("--ignore-submodules=dirty")
            .run()?;
        Ok(count(&output))
    }
}

impl Repository {
    /// The setting for commands of ours on the user's checkout: on some file systems every file
    /// is executable.
    pub(crate) fn file_mode(&self) -> String {
        format!("core.fileMode={}", !self.settings.ignores_executable_bit)
    }
}

/// A split index is two files; git looks for the second in the git directory.
fn copy_index(repository: &Repository, git_dir: &Path) -> std::io::Result<()> {
    if fs_err::symlink_metadata(repository.git_dir.join("index")).is_err() {
        return Ok(());
    }
    fs_err::copy(repository.git_dir.join("index"), git_dir.join("index"))?;
    for entry in fs_err::read_dir(&repository.git_dir)? {
        let name = entry?.file_name();
        if name.as_bytes().starts_with(b"sharedindex.") {
            fs_err::copy(repository.git_dir.join(&name), git_dir.join(&name))?;
        }
    }
    Ok(())
}

fn count(output: &[u8]) -> Uncommitted {
    let mut counts = Uncommitted::default();
    for record in records(output) {
        match record {
            [b'1' | b'2', b' ', staged, unstaged, ..] => {
                counts.staged += u64::from(*staged != b'.');
                counts.unstaged += u64::from(*unstaged != b'.');
            }
            [b'u', b' ', ..] => counts.unmerged += 1,
            [b'?', b' ', ..] => counts.untracked += 1,
            _ => {}
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_columns_count() {
        let output = b"1 MM N... x\x001 .D N... y\x001 A. N... z\0u UU x\0? a b\0";
        let counts = count(output);
        let expected = Uncommitted {
            staged: 2,
            unstaged: 2,
            untracked: 1,
            unmerged: 1,
        };
        assert_eq!(counts, expected);
    }
}
