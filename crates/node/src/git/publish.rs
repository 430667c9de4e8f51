//! Bringing a commit into the user's repository.

use std::io::{self, Read as _, Seek as _};
use std::path::PathBuf;

use mini_ork_protocol::ByteString;

use super::control::ControlGit;
use super::error::GitError;
use super::id::CommitId;
use super::objects::records;
use super::repository::{Repository, parse_commit};

/// As git itself does: fewer objects than this are worth no pack of their own.
const SMALLEST_PACK: u32 = 100;

/// What a reference must be before it is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// Not there.
    Absent,
    /// At this commit.
    At(CommitId),
}

/// What publishing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishOutcome {
    /// The reference is at the commit now.
    Published,
    /// It was there already; nothing was changed.
    AlreadyThere,
}

/// Why the user's repository was left as it was (but for objects that nothing refers to).
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// Git would not take such a name.
    #[error("`{reference}` is not the full name of a reference")]
    BadName {
        /// The name.
        reference: String,
    },
    /// Moving it would make that checkout look changed.
    #[error("`{reference}` is checked out in {}", worktree.display())]
    CheckedOut {
        /// The reference.
        reference: String,
        /// The checkout.
        worktree: PathBuf,
    },
    /// Somebody else set it.
    #[error("`{reference}` is at {found} and not where it was expected")]
    Moved {
        /// The reference.
        reference: String,
        /// Where it is.
        found: CommitId,
    },
    /// It was expected to be somewhere and is gone.
    #[error("`{reference}` does not exist any more")]
    Gone {
        /// The reference.
        reference: String,
    },
    /// Git refused; the message says what.
    #[error(transparent)]
    Git(#[from] GitError),
    /// An intermediate file; the message names it.
    #[error(transparent)]
    Files(#[from] io::Error),
}

impl ControlGit {
    /// Puts `commit`, with every object of it that the user's repository lacks, under the full
    /// name `reference` there.
    ///
    /// Objects are checked as strictly as git can before they are let in. The reference is set in
    /// one step, and only if it is as `expected`; a reference that is at `commit` already is
    /// success. One that some checkout has checked out is never moved. No hook runs.
    pub fn publish(
        &self,
        repository: &Repository,
        commit: &CommitId,
        reference: &str,
        expected: &Expected,
    ) -> Result<PublishOutcome, PublishError> {
        repository.check_name(reference)?;
        let found = repository.resolve(reference)?;
        if found.as_ref() == Some(commit) {
            return Ok(PublishOutcome::AlreadyThere);
        }
        check_expectation(reference, found, expected)?;
        repository.check_not_checked_out(reference)?;
        // A link to a commit that is nowhere would be worse than none, so these come first.
        for (owner, inner, base) in self.new_links(repository, commit)? {
            self.publish_above(&owner, &inner, &base, reference)?;
        }
        self.set(repository, commit, &self.head()?, reference, expected)
    }

    /// The same for the repository of a submodule, where the run began at `base`. In there the name
    /// may be there already: another path may be the same submodule.
    fn publish_above(
        &self,
        repository: &Repository,
        commit: &CommitId,
        base: &CommitId,
        reference: &str,
    ) -> Result<(), PublishError> {
        let found = repository.resolve(reference)?;
        if found.as_ref() == Some(commit) {
            return Ok(());
        }
        check_expectation(reference, found, &Expected::Absent)?;
        repository.check_not_checked_out(reference)?;
        self.set(repository, commit, base, reference, &Expected::Absent)?;
        Ok(())
    }

    fn set(
        &self,
        repository: &Repository,
        commit: &CommitId,
        base: &CommitId,
        reference: &str,
        expected: &Expected,
    ) -> Result<PublishOutcome, PublishError> {
        self.transfer(repository, commit, base)?;
        self.hand_over_lfs(repository, commit, base)?;
        let null_id = repository.object_format.null_id();
        let old = match expected {
            Expected::Absent => null_id.as_str(),
            Expected::At(id) => id.as_str(),
        };
        let update = repository
            .command("update-ref")
            .args(["-m", "mini-ork", "--no-deref", reference])
            .arg(commit)
            .arg(old)
            .run();
        if let Err(error) = update {
            // Somebody was faster, or git has a better reason than we know.
            let found = repository.resolve(reference)?;
            if found.as_ref() == Some(commit) {
                return Ok(PublishOutcome::AlreadyThere);
            }
            check_expectation(reference, found, expected)?;
            return Err(error.into());
        }
        Ok(PublishOutcome::Published)
    }

    /// Removes `reference` from the user's repository if it is at `expected`. One that is not
    /// there is success; one that is somewhere else, or checked out, is left alone. The objects
    /// stay until the user's own housekeeping.
    pub fn delete_ref(
        &self,
        repository: &Repository,
        reference: &str,
        expected: &CommitId,
    ) -> Result<(), PublishError> {
        repository.check_name(reference)?;
        let Some(found) = repository.resolve(reference)? else {
            return Ok(());
        };
        check_expectation(reference, Some(found), &Expected::At(expected.clone()))?;
        repository.check_not_checked_out(reference)?;
        let update = repository
            .command("update-ref")
            .args(["--no-deref", "-d", reference])
            .arg(expected);
        update.run()?;
        Ok(())
    }

    /// Copies what is reachable from `commit` and missing there into the user's object store.
    /// The work began at `base`, which that store has: what is reachable from there need not be
    /// walked.
    fn transfer(
        &self,
        repository: &Repository,
        commit: &CommitId,
        base: &CommitId,
    ) -> Result<(), PublishError> {
        let revisions = format!("{commit}\n--not\n{base}\n").into_bytes();
        let scratch = self.scratch()?;
        let mut pack = fs_err::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(scratch.path().join("pack"))?;
        self.command("pack-objects")
            .args(["--revs", "--thin", "--stdout", "--quiet"])
            // What is borrowed from that store need not be sent, if there is no other store.
            .args(self.submodules.present.is_empty().then_some("--local"))
            .input(revisions)
            .run_to(&mut pack)?;
        let mut header = [0; 12];
        pack.rewind()?;
        pack.read_exact(&mut header)?;
        let count = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        pack.rewind()?;
        // Our configuration and the user's object store: no setting of the repository takes part,
        // except the one that decides who else may read the new files.
        let store = |name| {
            let command = self
                .command(name)
                .env("GIT_OBJECT_DIRECTORY", &repository.object_directory);
            match &repository.settings.shared {
                Some(shared) => command.config(format!("core.sharedRepository={shared}")),
                None => command,
            }
        };
        if count > 0 {
            let (file, _) = pack.into_parts();
            let unpack = if count < SMALLEST_PACK {
                store("unpack-objects").args(["-q", "--strict"])
            } else {
                store("index-pack").args(["--stdin", "--fix-thin", "--strict"])
            };
            unpack.input_file(file).run()?;
        }
        // What was not sent because it was borrowed may be gone by now.
        store("rev-list")
            .args(["--objects", "--quiet", commit.as_str(), "--not"])
            .arg(base)
            .run()?;
        Ok(())
    }
}

impl Repository {
    fn check_name(&self, reference: &str) -> Result<(), PublishError> {
        let checked = reference.starts_with("refs/")
            && self
                .command("check-ref-format")
                .arg(reference)
                .run_with_codes(&[0, 1])?
                .0
                == 0;
        if checked {
            Ok(())
        } else {
            Err(PublishError::BadName {
                reference: reference.to_owned(),
            })
        }
    }

    fn resolve(&self, reference: &str) -> Result<Option<CommitId>, GitError> {
        // `rev-parse` would also try other names that end in this one.
        let output = self
            .command("for-each-ref")
            .args(["--format=%(objectname) %(refname)", reference])
            .run()?;
        let exact = output.split(|byte| *byte == b'\n').find_map(|line| {
            let (id, name) = bstr::ByteSlice::split_once_str(line, b" ")?;
            (name == reference.as_bytes()).then_some(id)
        });
        exact.map(|id| parse_commit("for-each-ref", id)).transpose()
    }

    fn check_not_checked_out(&self, reference: &str) -> Result<(), PublishError> {
        let listing = self.worktrees()?;
        let mut worktree = PathBuf::new();
        for record in records(&listing) {
            if let Some(path) = record.strip_prefix(b"worktree ") {
                worktree = PathBuf::from(ByteString::from(path.to_vec()).into_os_string());
            } else if record.strip_prefix(b"branch ") == Some(reference.as_bytes()) {
                let reference = reference.to_owned();
                return Err(PublishError::CheckedOut {
                    reference,
                    worktree,
                });
            }
        }
        Ok(())
    }

    /// All checkouts and what they have checked out.
    pub(crate) fn worktrees(&self) -> Result<Vec<u8>, GitError> {
        self.command("worktree")
            .args(["list", "--porcelain", "-z"])
            .run()
    }
}

fn check_expectation(
    reference: &str,
    found: Option<CommitId>,
    expected: &Expected,
) -> Result<(), PublishError> {
    let reference = reference.to_owned();
    match (found, expected) {
        (None, Expected::Absent) => Ok(()),
        (None, Expected::At(_)) => Err(PublishError::Gone { reference }),
        (Some(found), Expected::At(id)) if found == *id => Ok(()),
        (Some(found), _) => Err(PublishError::Moved { reference, found }),
    }
}
