//! Submodules, which a run works on as if they were directories of the repository.
//!
//! A tree of the user's names a submodule by its commit alone. In a run each submodule whose
//! repository is on this machine is a plain directory instead, at every depth: the work is
//! [expanded](ControlGit::expanded). So whatever holds for files holds in there too: they are
//! compared, merged, judged, and in the scope or not. On the way out the work is
//! [collapsed](ControlGit::collapsed): a directory that is as it was becomes the same link again,
//! and one that was changed becomes a link to a new commit on top of that one, which
//! [`ControlGit::publish`] brings into the submodule's own repository.

mod find;

use std::io;
use std::path::PathBuf;

use mini_ork_protocol::ByteString;
use serde::{Deserialize, Serialize};

use crate::git::control::ControlGit;
use crate::git::error::GitError;
use crate::git::id::{CommitId, FileMode, ObjectId, RepoPath, TreeId};
use crate::git::objects::{Edit, parse_path, push_index_record, records};
use crate::git::publish::PublishError;
use crate::git::repository::{DiscoverError, Repository, parse_commit, parse_tree};

/// Submodules inside submodules.
const DEEPEST: usize = 16;
/// Where a control directory keeps what it knows of them.
pub(in crate::git) const FILE: &str = "submodules.json";

/// The submodules of the commit that a run starts from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submodules {
    /// Those that are directories with files in the run, outer ones first.
    pub present: Vec<Submodule>,
    /// Those that are empty.
    pub absent: Vec<AbsentSubmodule>,
    /// What private git directories start from in the place of the user's commit.
    pub(crate) start: Option<Start>,
}

/// A commit of the run's own: the user's with the files of submodules in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The user's commit, and its tree.
    pub(crate) of: CommitId,
    pub(crate) of_tree: TreeId,
    /// Its parent is the user's commit.
    pub(crate) commit: CommitId,
    pub(crate) tree: TreeId,
}

/// A submodule whose repository is on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submodule {
    /// From the root of the outermost repository.
    pub path: RepoPath,
    /// The commit that the user's commit names.
    pub commit: CommitId,
    /// The tree of that commit.
    pub(crate) tree: TreeId,
    /// Its git directory.
    git_dir: ByteString,
    /// Where its objects are.
    objects: ByteString,
    /// Where it keeps Git LFS files.
    lfs: ByteString,
}

/// A submodule that is an empty directory in the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentSubmodule {
    /// From the root of the outermost repository.
    pub path: RepoPath,
    /// Why, in words.
    pub reason: String,
}

impl Submodules {
    pub(in crate::git) fn object_directories(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let paths = self.present.iter().map(|known| known.objects.clone());
        paths.map(|path| PathBuf::from(path.into_os_string()))
    }

    pub(in crate::git) fn lfs_directories(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let paths = self.present.iter().map(|known| known.lfs.clone());
        paths.map(|path| PathBuf::from(path.into_os_string()))
    }
}

impl Submodule {
    fn repository(&self, outer: &Repository) -> Result<Repository, DiscoverError> {
        let git_dir = PathBuf::from(self.git_dir.clone().into_os_string());
        Repository::alone(&outer.git, &git_dir)
    }
}

/// What `ls-tree` prints of an entry.
const FORMAT: &str = "--format=%(objecttype) %(objectname) %(path)";

/// An entry of a tree, which may be a directory.
struct Entry<'a> {
    kind: &'a [u8],
    id: String,
    path: RepoPath,
}

impl<'a> Entry<'a> {
    fn parse(record: &'a [u8]) -> Result<Self, GitError> {
        let unreadable = || GitError::Unreadable {
            command: "ls-tree",
            what: format!("entry `{}`", record.escape_ascii()),
        };
        let mut fields = record.splitn(3, |byte| *byte == b' ');
        let mut next = || fields.next().ok_or_else(unreadable);
        Ok(Self {
            kind: next()?,
            id: String::from_utf8_lossy(next()?).into_owned(),
            path: parse_path("ls-tree", next()?)?,
        })
    }
}

impl ControlGit {
    /// The submodules of the commit that the run starts from.
    pub fn submodules(&self) -> &Submodules {
        &self.submodules
    }

    /// Takes in what was found, right after this directory was made.
    pub(in crate::git) fn adopt_submodules(
        &mut self,
        repository: &Repository,
        mut found: Submodules,
    ) -> Result<(), GitError> {
        if !found.present.is_empty() {
            self.submodules = found.clone().into();
            let tree = self.expanded(&repository.head_tree)?;
            let time = repository
                .command("rev-list")
                .args(["--max-count=1", "--timestamp"])
                .arg(&repository.head)
                .run()?;
            let time = String::from_utf8_lossy(&time);
            let seconds = time.split(' ').next().and_then(|time| time.parse().ok());
            let commit = self.commit(
                &tree,
                std::slice::from_ref(&repository.head),
                "mini-ork: submodules as plain files\n",
                seconds.unwrap_or_default(),
            )?;
            found.start = Some(Start {
                of: repository.head.clone(),
                of_tree: repository.head_tree.clone(),
                commit,
                tree,
            });
        }
        self.submodules = found.into();
        let text = serde_json::to_vec(&*self.submodules).map_err(io::Error::other)?;
        fs_err::write(self.path().join(FILE), text)?;
        Ok(())
    }

    /// The commit that private git directories start from where the user's is `commit`.
    pub(crate) fn start_of<'a>(&'a self, commit: &'a CommitId) -> &'a CommitId {
        match &self.submodules.start {
            Some(start) if start.of == *commit => &start.commit,
            _ => commit,
        }
    }

    /// `tree` with the files of each submodule in the place of the link to it. A submodule whose
    /// commit is not on this machine stays a link. What is expanded already stays as it is.
    pub fn expanded(&self, tree: &TreeId) -> Result<TreeId, GitError> {
        match &self.submodules.start {
            Some(start) if start.of_tree == *tree => return Ok(start.tree.clone()),
            _ => {}
        }
        let mut tree = tree.clone();
        if self.submodules.present.is_empty() {
            return Ok(tree);
        }
        // Each turn brings in the links of one more level.
        for _ in 0..=DEEPEST {
            let links = self.known_links(&tree)?;
            if links.is_empty() {
                break;
            }
            tree = self.with_files(&tree, &links)?;
        }
        Ok(tree)
    }

    /// The tree of `commit`.
    pub fn tree_of(&self, commit: &CommitId) -> Result<TreeId, GitError> {
        let tree = format!("{commit}^{{tree}}");
        let answer = self.command("rev-parse").args(["--verify", &tree]).run()?;
        parse_tree("rev-parse", &answer)
    }

    /// Links in `tree` at paths of present submodules, with the trees of their commits, as far as
    /// those are here.
    fn known_links(&self, tree: &TreeId) -> Result<Vec<(RepoPath, TreeId)>, GitError> {
        let paths = self.submodules.present.iter().map(|known| &known.path);
        let listing = self
            .command("ls-tree")
            .args(["-z", "--full-tree", FORMAT])
            .arg(tree)
            .arg("--")
            .args(paths.map(RepoPath::as_path))
            .run()?;
        let mut links = Vec::new();
        for record in records(&listing) {
            let entry = Entry::parse(record)?;
            if entry.kind == b"commit" {
                links.push((entry.path, entry.id));
            }
        }
        if links.is_empty() {
            return Ok(Vec::new());
        }
        let mut input = String::new();
        for (_, id) in &links {
            input.push_str(&format!("{id}^{{tree}}\n"));
        }
        let answer = self
            .command("cat-file")
            .arg("--batch-check=%(objectname) %(objecttype)")
            .input(input.into_bytes())
            .run()?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        links
            .into_iter()
            .zip(answer.lines())
            .filter_map(|((path, _), line)| Some((path, line.strip_suffix(" tree")?)))
            .map(|(path, id)| Ok((path, parse_tree("cat-file", id.as_bytes())?)))
            .collect()
    }

    fn with_files(&self, tree: &TreeId, links: &[(RepoPath, TreeId)]) -> Result<TreeId, GitError> {
        let scratch = self.scratch()?;
        let index = scratch.path().join("index");
        let command = |name| self.command(name).env("GIT_INDEX_FILE", &index);
        command("read-tree").arg(tree).run()?;
        let null_id = self.object_format().null_id();
        let mut removals = Vec::new();
        for (path, _) in links {
            push_index_record(&mut removals, "0", &null_id, path.as_bytes());
        }
        command("update-index")
            .args(["-z", "--index-info"])
            .input(removals)
            .run()?;
        for (path, inner) in links {
            let mut option = std::ffi::OsString::from("--prefix=");
            option.push(path.as_path());
            option.push("/");
            command("read-tree")
                .arg("-i")
                .arg(option)
                .arg(inner)
                .run()?;
        }
        parse_tree("write-tree", &command("write-tree").run()?)
    }

    /// The other way: `tree` with a link for each submodule. Where files of one were changed, the
    /// link is to a new commit, which has `message` and the time `seconds`. A submodule without any
    /// file left is one that was removed. What is collapsed already stays as it is.
    pub fn collapsed(
        &self,
        tree: &TreeId,
        message: &str,
        seconds: i64,
    ) -> Result<TreeId, GitError> {
        match &self.submodules.start {
            Some(start) if start.tree == *tree => Ok(start.of_tree.clone()),
            Some(_) => self.collapsed_below(tree, b"", message, seconds),
            None => Ok(tree.clone()),
        }
    }

    /// `tree` is what is at `prefix`.
    fn collapsed_below(
        &self,
        tree: &TreeId,
        prefix: &[u8],
        message: &str,
        seconds: i64,
    ) -> Result<TreeId, GitError> {
        let mut edits = Vec::new();
        for (path, known) in self.directly_below(prefix)? {
            let Some((kind, id)) = self.entry(tree, &path)? else {
                continue;
            };
            if kind != b"tree" {
                continue;
            }
            let files = parse_tree("ls-tree", id.as_bytes())?;
            let mut below = known.path.as_bytes().to_vec();
            below.push(b'/');
            let inner = self.collapsed_below(&files, &below, message, seconds)?;
            let commit = if inner == known.tree {
                known.commit.clone()
            } else {
                let parents = std::slice::from_ref(&known.commit);
                self.commit(&inner, parents, message, seconds)?
            };
            let unreadable = |what: String| GitError::Unreadable {
                command: "commit-tree",
                what,
            };
            let id = ObjectId::parse(commit.as_str()).map_err(|e| unreadable(e.to_string()))?;
            let mode = FileMode::Submodule;
            edits.push((path, Edit::Take { mode, id }));
        }
        if edits.is_empty() {
            return Ok(tree.clone());
        }
        self.overlay(tree, &edits)
    }

    /// The submodules at `prefix` that are in no other one there, by their paths from there.
    fn directly_below(&self, prefix: &[u8]) -> Result<Vec<(RepoPath, &Submodule)>, GitError> {
        let mut found: Vec<(RepoPath, &Submodule)> = Vec::new();
        // Outer ones come first.
        for known in &self.submodules.present {
            let Some(path) = known.path.as_bytes().strip_prefix(prefix) else {
                continue;
            };
            let inside_another = found.iter().any(|(outer, _)| {
                let rest = path.strip_prefix(outer.as_bytes());
                rest.is_some_and(|rest| rest.starts_with(b"/"))
            });
            if !inside_another && !path.is_empty() {
                found.push((parse_path("ls-tree", path)?, known));
            }
        }
        Ok(found)
    }

    fn entry(&self, tree: &TreeId, path: &RepoPath) -> Result<Option<(Vec<u8>, String)>, GitError> {
        let listing = self
            .command("ls-tree")
            .args(["-z", "--full-tree", FORMAT])
            .arg(tree)
            .arg("--")
            .arg(path.as_path())
            .run()?;
        let entry = records(&listing).next().map(Entry::parse).transpose()?;
        Ok(entry.map(|entry| (entry.kind.to_vec(), entry.id)))
    }

    /// Commits of submodules that `commit` links to and that the run made, inner ones first, each
    /// with the repository that it belongs to.
    pub(in crate::git) fn new_links(
        &self,
        repository: &Repository,
        commit: &CommitId,
    ) -> Result<Vec<(Repository, CommitId, CommitId)>, PublishError> {
        let mut found = Vec::new();
        let mut pending = vec![(commit.clone(), Vec::new())];
        while let Some((commit, prefix)) = pending.pop() {
            if self.submodules.present.is_empty() {
                break;
            }
            let tree = TreeId::parse(commit.as_str()).map_err(io::Error::other)?;
            for (path, known) in self.directly_below(&prefix)? {
                let Some((kind, id)) = self.entry(&tree, &path)? else {
                    continue;
                };
                if kind != b"commit" || id == known.commit.as_str() {
                    continue;
                }
                let inner = parse_commit("ls-tree", id.as_bytes())?;
                let owner = known.repository(repository).map_err(io::Error::other)?;
                found.push((owner, inner.clone(), known.commit.clone()));
                let mut below = known.path.as_bytes().to_vec();
                below.push(b'/');
                pending.push((inner, below));
            }
        }
        found.reverse();
        Ok(found)
    }
}
