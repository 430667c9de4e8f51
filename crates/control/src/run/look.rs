//! A look at the user's repository before a run begins.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use mini_ork_node::git::{ControlGit, RepoPath, Repository};

use super::failure::WorkError;
use crate::verify::detect_tests;

/// Whether the files of a checkout show how the project is tested, as far down as two directories.
pub fn shows_its_tests(checkout: &Path) -> bool {
    const MOST_FILES: usize = 10_000;
    let mut paths = Vec::new();
    let mut directories = vec![(checkout.to_owned(), 0)];
    while let Some((directory, depth)) = directories.pop() {
        let Ok(entries) = fs_err::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() && depth < 2 && entry.file_name() != ".git" {
                directories.push((path, depth + 1));
            } else if let Ok(relative) = path.strip_prefix(checkout) {
                paths.push(relative.as_os_str().as_bytes().to_vec());
            }
            if paths.len() >= MOST_FILES {
                break;
            }
        }
    }
    detect_tests(&[], &paths, &|path| fs_err::read(checkout.join(path)).ok()).is_some()
}

/// What the run does not have of the user's checkout.
///
/// Takes as long as git takes to compare the checkout with its index; to be run beside the run.
pub(crate) fn opening_notes(
    git: &ControlGit,
    repository: &Repository,
) -> Result<Vec<String>, WorkError> {
    let mut notes = Vec::new();
    let open = git.uncommitted(repository)?;
    let changed = open.staged.max(open.unstaged) + open.unmerged;
    if changed + open.untracked > 0 {
        notes.push(format!(
            "the run starts from the last commit: {changed} changed and {} untracked files of the \
             checkout are not in it",
            open.untracked
        ));
    }
    let submodules = git.submodules();
    if let Some(first) = submodules.present.first() {
        notes.push(format!(
            "submodules are plain files in the run's worktree, and what changes in them is published \
             as a commit in their own repositories: {}{}",
            first.path,
            more(submodules.present.len())
        ));
    }
    let absent = absent_submodules(git, repository)?;
    if let Some((first, reason)) = absent.first() {
        notes.push(format!(
            "submodules are empty directories in the run's worktree: {first}, because {reason}{}",
            more(absent.len())
        ));
    }
    let files = git.lfs_files(repository)?;
    if let Some(first) = files.absent.first() {
        notes.push(format!(
            "{} of {} Git LFS files are their pointers in the run's worktree, because their content \
             is not on this machine: {first}{}",
            files.absent.len(),
            files.absent.len() + files.present,
            more(files.absent.len())
        ));
    }
    Ok(notes)
}

/// Submodules of the first commit that have no files in the run, with the reason.
fn absent_submodules(
    git: &ControlGit,
    repository: &Repository,
) -> Result<Vec<(RepoPath, String)>, WorkError> {
    let known = git.submodules();
    let mut absent: Vec<(RepoPath, String)> = known
        .absent
        .iter()
        .map(|one| (one.path.clone(), one.reason.clone()))
        .collect();
    let told = |path: &RepoPath| {
        absent.iter().any(|(other, _)| other == path)
            || known.present.iter().any(|one| one.path == *path)
    };
    // A commit can link to others without there being a submodule for it.
    let others: Vec<RepoPath> = repository.submodules()?;
    let others: Vec<RepoPath> = others.into_iter().filter(|path| !told(path)).collect();
    absent.extend(
        others
            .into_iter()
            .map(|path| (path, "nothing is known of it".to_owned())),
    );
    Ok(absent)
}

fn more(count: usize) -> String {
    match count {
        1 => String::new(),
        _ => format!(" and {} more", count - 1),
    }
}
