//! Whether a checkout is as it was.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::readlinkat;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::beneath::{Root, named};
use super::walk::{Found, walk};
use crate::git::{GitError, Repository, read_if_there};

/// References that mini-ork makes itself.
const OWN_REFERENCES: [&[u8]; 2] = [b"refs/heads/mini-ork/", b"refs/mo/"];

/// Digests of everything about a checkout that a run must leave alone.
///
/// Two are equal when nothing changed between them. Files count by their metadata, with their
/// change time, which no program can set back; so a file that was written and restored counts as
/// changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutFingerprint {
    /// HEAD of this checkout and of every other, and what it is in the middle of.
    head: String,
    index: String,
    /// All references but mini-ork's own, with the list of stashes.
    references: String,
    configuration: String,
    hooks: String,
    /// Everything below the toplevel but `.git`, ignored files too.
    files: String,
}

impl CheckoutFingerprint {
    /// The parts that differ, in words; empty when nothing does.
    pub fn differences(&self, later: &Self) -> Vec<&'static str> {
        [
            ("HEAD", &self.head, &later.head),
            ("the index", &self.index, &later.index),
            ("references or stashes", &self.references, &later.references),
            (
                "the configuration",
                &self.configuration,
                &later.configuration,
            ),
            ("hooks", &self.hooks, &later.hooks),
            ("files", &self.files, &later.files),
        ]
        .into_iter()
        .filter(|(_, before, after)| before != after)
        .map(|(name, _, _)| name)
        .collect()
    }
}

/// Takes the fingerprint of the checkout of `repository`. Reads no content of its files: 50,000
/// take a fraction of a second.
pub fn checkout_fingerprint(repository: &Repository) -> Result<CheckoutFingerprint, GitError> {
    Ok(CheckoutFingerprint {
        head: head(repository)?,
        index: digest_of_files(repository, &["index"])?,
        references: references(repository)?,
        configuration: configuration(repository)?,
        hooks: below(&repository.common_dir.join("hooks"), &|_| true)?,
        files: match &repository.toplevel {
            Some(toplevel) => below(toplevel, &|path| path != b".git")?,
            None => String::new(),
        },
    })
}

fn head(repository: &Repository) -> Result<String, GitError> {
    let mut digest = Sha256::new();
    part(&mut digest, &repository.worktrees()?);
    part(
        &mut digest,
        digest_of_files(repository, IN_THE_MIDDLE)?.as_bytes(),
    );
    for name in ["rebase-merge", "rebase-apply", "sequencer"] {
        part(
            &mut digest,
            below(&repository.git_dir.join(name), &|_| true)?.as_bytes(),
        );
    }
    Ok(hex(digest))
}

const IN_THE_MIDDLE: &[&str] = &[
    "HEAD",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
];

fn references(repository: &Repository) -> Result<String, GitError> {
    let mut digest = Sha256::new();
    for (id, name) in repository.references()? {
        if !OWN_REFERENCES
            .iter()
            .any(|own| name.as_bytes().starts_with(own))
        {
            part(&mut digest, id.as_bytes());
            part(&mut digest, name.as_bytes());
        }
    }
    // The stashes under the first are in its log only.
    part(
        &mut digest,
        &read_if_there(&repository.common_dir.join("logs/refs/stash"))?,
    );
    Ok(hex(digest))
}

fn configuration(repository: &Repository) -> Result<String, GitError> {
    let mut digest = Sha256::new();
    for path in [
        "config",
        "info/exclude",
        "info/attributes",
        "shallow",
        "objects/info/alternates",
    ] {
        part(
            &mut digest,
            &read_if_there(&repository.common_dir.join(path))?,
        );
    }
    part(
        &mut digest,
        &read_if_there(&repository.git_dir.join("config.worktree"))?,
    );
    Ok(hex(digest))
}

fn digest_of_files(repository: &Repository, names: &[&str]) -> io::Result<String> {
    let mut digest = Sha256::new();
    for name in names {
        part(&mut digest, &read_if_there(&repository.git_dir.join(name))?);
    }
    Ok(hex(digest))
}

/// Names, metadata and targets of links below a directory; none is as good as an empty one.
fn below(directory: &std::path::Path, keep: &dyn Fn(&[u8]) -> bool) -> io::Result<String> {
    let mut digest = Sha256::new();
    let root = match Root::open(directory) {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(hex(digest)),
        Err(error) => return Err(error),
    };
    walk(&root, &mut |found| {
        let Found::Entry {
            path,
            name,
            directory,
            ..
        } = found
        else {
            return Ok(true);
        };
        if !keep(path) {
            return Ok(false);
        }
        part(&mut digest, path);
        let Some(stat) = found.stat()? else {
            return Ok(true);
        };
        let is_directory = stat.st_mode & 0o170_000 == 0o040_000;
        // The times of a directory change with every temporary file; its entries tell what stayed.
        let numbers = if is_directory {
            [
                i128::from(stat.st_mode),
                i128::from(stat.st_ino),
                0,
                0,
                0,
                0,
                0,
            ]
        } else {
            [
                i128::from(stat.st_mode),
                i128::from(stat.st_ino),
                i128::from(stat.st_size),
                i128::from(stat.st_mtime),
                i128::from(stat.st_mtime_nsec),
                i128::from(stat.st_ctime),
                i128::from(stat.st_ctime_nsec),
            ]
        };
        for number in numbers {
            digest.update(number.to_le_bytes());
        }
        if stat.st_mode & 0o170_000 == 0o120_000 {
            let name = OsStr::from_bytes(name);
            let target = readlinkat(directory, name, Vec::new())
                .map_err(|error| named(error, OsStr::from_bytes(path).as_ref()))?;
            part(&mut digest, target.as_bytes());
        }
        Ok(true)
    })?;
    Ok(hex(digest))
}

/// With its length, so that no two sequences of parts read the same.
fn part(digest: &mut Sha256, bytes: &[u8]) {
    digest.update((bytes.len() as u64).to_le_bytes());
    digest.update(bytes);
}

fn hex(digest: Sha256) -> String {
    digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
