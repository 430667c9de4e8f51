//! What is in a work tree that git would pass over, stumble on, or misunderstand.

use std::collections::{BTreeSet, HashSet};
use std::io;

use rustix::fs::FileType;

use super::beneath::Root;
use super::index::read_index;
use super::place::WorktreePlace;
use super::walk::{Found, walk};
use crate::git::{ControlGit, FileMode, GitError, is_dot_git, is_dot_gitmodules, read_if_there};

/// Findings, as paths relative to the work tree. Those in ignored directories are among them,
/// unless the directories were left out.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Directories other than the root with a `.git`, of whatever kind.
    pub(super) nested: Vec<Vec<u8>>,
    /// Names that git refuses.
    pub(super) forbidden: Vec<Vec<u8>>,
    /// Pipes, sockets and devices.
    pub(super) special: Vec<(Vec<u8>, FileType)>,
    /// Directories that cannot be listed.
    pub(super) closed: Vec<Vec<u8>>,
    /// Paths that are too long for git.
    pub(super) too_long: Vec<Vec<u8>>,
    /// Directories without entries, but for those of submodules.
    pub(super) empty: Vec<Vec<u8>>,
    /// Submodules with something in them.
    pub(super) filled_submodules: Vec<Vec<u8>>,
}

/// What the index of a place has.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    pub(super) submodules: HashSet<Vec<u8>>,
    /// Every path, sorted.
    paths: BTreeSet<Vec<u8>>,
}

impl Tracked {
    pub(super) fn contains(&self, path: &[u8]) -> bool {
        self.paths.contains(path)
    }

    /// Whether something below `directory` is tracked.
    pub(super) fn contains_below(&self, directory: &[u8]) -> bool {
        let mut prefix = directory.to_vec();
        prefix.push(b'/');
        self.paths
            .range(prefix.clone()..)
            .next()
            .is_some_and(|path| path.starts_with(&prefix))
    }
}

/// Walks the work tree. `visit` sees what the survey does not keep, and says of a directory
/// whether to enter it.
pub(super) fn survey(
    root: &Root,
    submodules: &HashSet<Vec<u8>>,
    visit: &mut dyn FnMut(&Found<'_>) -> io::Result<bool>,
) -> io::Result<Survey> {
    let mut survey = Survey::default();
    walk(root, &mut |found| {
        match found {
            Found::Closed { path } => survey.closed.push(path.to_vec()),
            Found::TooLong { path } => survey.too_long.push(path.to_vec()),
            Found::Empty { path } if !submodules.contains(*path) => {
                survey.empty.push(path.to_vec());
            }
            Found::Empty { .. } => {}
            Found::Entry {
                path, name, kind, ..
            } => {
                let parent = &path[..path.len().saturating_sub(name.len() + 1)];
                if submodules.contains(parent) {
                    // Told once, and not looked into.
                    if survey
                        .filled_submodules
                        .last()
                        .is_none_or(|last| last != parent)
                    {
                        survey.filled_submodules.push(parent.to_vec());
                    }
                    return Ok(false);
                }
                if *name == b".git" {
                    if !parent.is_empty() {
                        survey.nested.push(parent.to_vec());
                    }
                    return Ok(false);
                }
                if is_dot_git(name) || *kind == FileType::Symlink && is_dot_gitmodules(name) {
                    survey.forbidden.push(path.to_vec());
                    return Ok(false);
                }
                match kind {
                    FileType::Directory | FileType::RegularFile | FileType::Symlink => {
                        return visit(found);
                    }
                    other => survey.special.push((path.to_vec(), *other)),
                }
            }
        }
        Ok(false)
    })?;
    Ok(survey)
}

impl ControlGit {
    /// What the index of `place` has; nothing when there is no index yet.
    pub(super) fn tracked(&self, place: &WorktreePlace) -> Result<Tracked, GitError> {
        let index = read_if_there(&place.index_file)?;
        if index.is_empty() {
            return Ok(Tracked::default());
        }
        let Some(entries) = read_index(&index, self.object_format()) else {
            return self.listed(place);
        };
        let mut tracked = Tracked::default();
        for entry in entries {
            if entry.is_submodule {
                tracked.submodules.insert(entry.path.clone());
            }
            tracked.paths.insert(entry.path);
        }
        Ok(tracked)
    }

    /// The same, from git.
    fn listed(&self, place: &WorktreePlace) -> Result<Tracked, GitError> {
        let listing = self
            .place_command("ls-files", place)
            .args(["-s", "-z"])
            .run()?;
        let mut tracked = Tracked::default();
        for record in listing
            .split(|byte| *byte == 0)
            .filter(|record| !record.is_empty())
        {
            let Some(tab) = record.iter().position(|byte| *byte == b'\t') else {
                let what = format!("entry `{}`", record.escape_ascii());
                return Err(GitError::Unreadable {
                    command: "ls-files",
                    what,
                });
            };
            let path = record[tab + 1..].to_vec();
            if record.starts_with(FileMode::Submodule.as_str().as_bytes()) {
                tracked.submodules.insert(path.clone());
            }
            tracked.paths.insert(path);
        }
        Ok(tracked)
    }

    /// Those of `paths` that the rules in the work tree, or ours, tell git to ignore.
    pub(super) fn ignored<'a>(
        &self,
        place: &WorktreePlace,
        paths: impl IntoIterator<Item = &'a Vec<u8>>,
    ) -> Result<HashSet<Vec<u8>>, GitError> {
        let mut input = Vec::new();
        for path in paths {
            // This command takes no literal pathspecs; so no name may begin like a pathspec.
            input.extend_from_slice(b"./");
            input.extend_from_slice(path);
            input.push(0);
        }
        if input.is_empty() {
            return Ok(HashSet::new());
        }
        let (_, output) = self
            .place_command("check-ignore", place)
            .args(["-z", "--stdin"])
            .magic_pathspecs()
            .input(input)
            .run_with_codes(&[0, 1])?;
        let paths = output.split(|byte| *byte == 0);
        Ok(paths
            .filter_map(|path| path.strip_prefix(b"./"))
            .map(<[u8]>::to_vec)
            .collect())
    }
}
