//! The `.git` that an agent gets for itself.

use std::path::Path;

use super::place::{TreeError, WorktreePlace};
use crate::git::{CommitId, ControlGit, Repository, alternates, common_settings, read_if_there};

/// What the private `.git` of a directory begins with.
///
/// It is a repository of its own that borrows objects from the user's and knows the user's
/// branches and tags as they are now. Nothing done in it reaches the user's repository: no
/// worktree is registered there, and there is no remote. The control plane never reads it.
#[derive(Debug, Clone)]
pub struct PrivateGit<'a> {
    /// Where history and references come from.
    pub repository: &'a Repository,
    /// The branch to be on, without `refs/heads/`.
    pub head_branch: &'a str,
    /// The commit that branch is at; its tree is the one in the directory. Where that has
    /// submodules, the branch is at a commit on top of it that has their files.
    pub head_commit: &'a CommitId,
}

/// Everything by hand: `git init` would take a template, and each process costs a millisecond.
pub(super) fn write(
    control: &ControlGit,
    place: &WorktreePlace,
    private: &PrivateGit<'_>,
) -> Result<(), TreeError> {
    let repository = private.repository;
    let git = place.path.join(".git");
    let head = format!("refs/heads/{}", private.head_branch);
    for inner in [
        "objects/info",
        "objects/pack",
        "refs/heads",
        "refs/tags",
        "info",
    ] {
        fs_err::create_dir_all(git.join(inner))?;
    }
    let mut configuration = common_settings(repository);
    configuration.push_str(concat!(
        "\tbare = false\n",
        "\tlogallrefupdates = true\n",
        "[user]\n\tname = mini-ork\n\temail = mini-ork@local\n",
        "[commit]\n\tgpgsign = false\n",
        "[tag]\n\tgpgsign = false\n",
        "[gc]\n\tauto = 0\n",
        "[maintenance]\n\tauto = false\n",
    ));
    fs_err::write(git.join("config"), configuration)?;
    fs_err::write(git.join("HEAD"), format!("ref: {head}\n"))?;
    let reference = git.join(&head);
    if let Some(directory) = reference.parent() {
        fs_err::create_dir_all(directory)?;
    }
    let commit = control.start_of(private.head_commit);
    fs_err::write(&reference, format!("{commit}\n"))?;
    fs_err::write(
        git.join("packed-refs"),
        packed_references(repository, &head)?,
    )?;
    // The tree may be one that only the run has.
    let objects = control.objects();
    fs_err::write(
        git.join("objects/info/alternates"),
        alternates(&[&objects, &repository.object_directory]),
    )?;
    for name in ["info/exclude", "info/attributes"] {
        fs_err::write(git.join(name), read_if_there(&control.path().join(name))?)?;
    }
    copy_if_there(&control.path().join("shallow"), &git.join("shallow"))?;
    // With the times of the files in it, so that `git status` need not read them.
    fs_err::copy(&place.index_file, git.join("index"))?;
    Ok(())
}

/// The user's branches, remote branches and tags.
fn packed_references(repository: &Repository, head: &str) -> Result<Vec<u8>, TreeError> {
    let mut text = b"# pack-refs with: sorted \n".to_vec();
    for (id, name) in repository.references()? {
        let name = name.as_bytes();
        let known = [&b"refs/heads/"[..], b"refs/tags/", b"refs/remotes/"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if known && !in_the_way(name, head.as_bytes()) {
            text.extend_from_slice(id.as_bytes());
            text.push(b' ');
            text.extend_from_slice(name);
            text.push(b'\n');
        }
    }
    Ok(text)
}

/// Whether two references cannot exist beside each other: they are one, or one would be a
/// directory of the other.
fn in_the_way(name: &[u8], head: &[u8]) -> bool {
    let holds = |outer: &[u8], inner: &[u8]| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    holds(name, head) || holds(head, name)
}

fn copy_if_there(from: &Path, to: &Path) -> Result<(), TreeError> {
    let bytes = read_if_there(from)?;
    if !bytes.is_empty() {
        fs_err::write(to, bytes)?;
    }
    Ok(())
}
