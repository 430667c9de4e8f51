//! Where the repositories of submodules are.

use std::path::PathBuf;

use super::{AbsentSubmodule, DEEPEST, Entry, FORMAT, Submodule, Submodules};
use crate::git::error::GitError;
use crate::git::id::{CommitId, RepoPath, TreeId};
use crate::git::objects::{parse_path, records};
use crate::git::repository::{Repository, parse_commit, parse_tree};

/// More than this are told as missing.
const MOST_SUBMODULES: usize = 1000;

impl Submodules {
    /// Those of `repository` at HEAD, from the repositories that git keeps for them on this
    /// machine. Nothing is fetched, and no program runs that a configuration names.
    pub(in crate::git) fn find(repository: &Repository) -> Result<Self, GitError> {
        let mut found = Self::default();
        found.add(repository, &repository.head_tree, b"", 0)?;
        Ok(found)
    }

    /// Adds those of the commit with `tree`, whose repository is at `prefix`.
    fn add(
        &mut self,
        repository: &Repository,
        tree: &TreeId,
        prefix: &[u8],
        depth: usize,
    ) -> Result<(), GitError> {
        if !may_have_some(repository) {
            return Ok(());
        }
        for (path, commit) in repository.links(tree)? {
            let full = parse_path("ls-tree", &[prefix, path.as_bytes()].concat())?;
            let looked_at = self.present.len() + self.absent.len();
            let found = if depth == DEEPEST || looked_at >= MOST_SUBMODULES {
                Err("there are too many")
            } else {
                locate(repository, tree, &path, &commit)?
            };
            match found {
                Ok(Some((inner, inner_tree))) => {
                    let mut below = full.as_bytes().to_vec();
                    below.push(b'/');
                    self.present.push(Submodule {
                        path: full,
                        commit,
                        tree: inner_tree.clone(),
                        git_dir: inner.git_dir.as_path().into(),
                        objects: inner.object_directory.as_path().into(),
                        lfs: inner.lfs_directory().as_path().into(),
                    });
                    self.add(&inner, &inner_tree, &below, depth + 1)?;
                }
                // An empty commit is an empty directory.
                Ok(None) => {}
                Err(reason) => self.absent.push(AbsentSubmodule {
                    path: full,
                    reason: reason.to_owned(),
                }),
            }
        }
        Ok(())
    }
}

/// Whether to look closer, which costs reading the whole tree.
fn may_have_some(repository: &Repository) -> bool {
    let checkout = repository.toplevel.as_ref();
    checkout.is_some_and(|toplevel| toplevel.join(".gitmodules").symlink_metadata().is_ok())
        || repository.git_dir.join("modules").is_dir()
        || repository.common_dir.join("modules").is_dir()
}

/// The repository of the submodule at `path` and the tree of `commit`; none when that tree is
/// empty. The inner error is a reason for people.
type Located = Result<Option<(Repository, TreeId)>, &'static str>;

fn locate(
    outer: &Repository,
    tree: &TreeId,
    path: &RepoPath,
    commit: &CommitId,
) -> Result<Located, GitError> {
    let mut reason = "it is not checked out here";
    for candidate in candidates(outer, tree, path)? {
        let found = match &candidate {
            Candidate::Checkout(path) => Repository::discover(&outer.git, path),
            Candidate::GitDirectory(path) => Repository::alone(&outer.git, path),
        };
        let Ok(inner) = found else {
            continue;
        };
        // A directory without a repository of its own belongs to the outer one.
        if inner.git_dir == outer.git_dir || inner.object_format != outer.object_format {
            continue;
        }
        let (code, answer) = inner
            .command("rev-parse")
            .args(["--quiet", "--verify"])
            .arg(format!("{commit}^{{tree}}"))
            .run_with_codes(&[0, 1, 128])?;
        if code == 0 {
            let tree = parse_tree("rev-parse", &answer)?;
            let empty = inner.command("ls-tree").arg(&tree).run()?.is_empty();
            return Ok(Ok((!empty).then_some((inner, tree))));
        }
        reason = "its repository here does not have the commit";
    }
    Ok(Err(reason))
}

/// Where a repository may be.
enum Candidate {
    Checkout(PathBuf),
    GitDirectory(PathBuf),
}

/// Where git keeps the repository of a submodule: in its checkout, or under its name.
fn candidates(
    outer: &Repository,
    tree: &TreeId,
    path: &RepoPath,
) -> Result<Vec<Candidate>, GitError> {
    let mut candidates = Vec::new();
    if let Some(toplevel) = &outer.toplevel {
        let checkout = toplevel.join(path.as_path());
        // A link would lead to what is no part of the repository.
        let is_itself = fs_err::canonicalize(&checkout).is_ok_and(|real| real == checkout);
        if is_itself && checkout.join(".git").symlink_metadata().is_ok() {
            candidates.push(Candidate::Checkout(checkout));
        }
    }
    if let Some(name) = name_of(outer, tree, path)? {
        for directory in [&outer.git_dir, &outer.common_dir] {
            let modules = directory.join("modules");
            let candidate = modules.join(&name);
            let inside = fs_err::canonicalize(&candidate)
                .ok()
                .zip(fs_err::canonicalize(&modules).ok())
                .is_some_and(|(real, modules)| real.starts_with(modules));
            if inside {
                candidates.push(Candidate::GitDirectory(candidate));
            }
        }
    }
    Ok(candidates)
}

/// The name that `.gitmodules` gives the submodule at `path`; none when that is no name that git
/// would take.
fn name_of(
    outer: &Repository,
    tree: &TreeId,
    path: &RepoPath,
) -> Result<Option<PathBuf>, GitError> {
    let (code, output) = outer
        .command("config")
        .arg("--blob")
        .arg(format!("{tree}:.gitmodules"))
        .args(["--null", "--get-regexp", r"^submodule\..*\.path$"])
        // A file that is not there, or that git cannot read.
        .run_with_codes(&[0, 1, 128, 255])?;
    if code != 0 {
        return Ok(None);
    }
    let name = records(&output).find_map(|record| {
        let end = record.iter().position(|byte| *byte == b'\n')?;
        let key = record[..end].strip_prefix(b"submodule.")?;
        let name = key.strip_suffix(b".path")?;
        (&record[end + 1..] == path.as_bytes()).then_some(name)
    });
    // The same rules as for a path in a tree: nothing that leads elsewhere.
    let name = name.and_then(|name| RepoPath::new(name).ok());
    Ok(name.map(|name| name.as_path().to_owned()))
}

impl Repository {
    /// The links to commits in `tree`.
    fn links(&self, tree: &TreeId) -> Result<Vec<(RepoPath, CommitId)>, GitError> {
        let listing = self
            .command("ls-tree")
            .args(["-r", "-z", "--full-tree", FORMAT])
            .arg(tree)
            .run()?;
        let entries = records(&listing).map(Entry::parse);
        entries
            .filter(|entry| entry.as_ref().map_or(true, |entry| entry.kind == b"commit"))
            .map(|entry| {
                let entry = entry?;
                Ok((entry.path, parse_commit("ls-tree", entry.id.as_bytes())?))
            })
            .collect()
    }
}
