//! What would be lost with a directory that an agent worked in, and how it is saved.
//!
//! Two things can be: files that are in no tree yet, and commits that only the private `.git` of the
//! directory knows (branches, stashes, a rebase in progress, a detached HEAD, what a reflog still
//! holds). That `.git` is hostile. Git never runs on it: what it points at is read as text, and its
//! objects are copied, file by file, to where our own git directory judges them.

mod history;
mod pointers;
mod quarantine;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::beneath::Root;
use super::place::{TreeError, WorktreePlace};
use super::survey::survey;
use crate::git::{CommitId, ControlGit, Expected, PublishError, Repository, TreeId};
use pointers::Pointer;
use quarantine::Quarantine;

/// More commits than this get one name for all of them.
const MOST_NAMES: usize = 32;
/// More tips than this are not the work of an agent.
const MOST_TIPS: usize = 4000;

/// What is safe already, and where rescued files are hung.
#[derive(Debug, Clone)]
pub struct Safe {
    /// The commit that the work began at; rescued files are a commit on top of it.
    pub base: CommitId,
    /// Its tree.
    pub base_tree: TreeId,
    /// Other trees that something else keeps.
    pub trees: BTreeSet<TreeId>,
    /// Time of the commits that are made, in seconds since the Unix epoch: the same find gets the
    /// same id at every attempt.
    pub seconds: i64,
}

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Only for commits and stashes whose content is no safe tree; the steps that lead to one are no
    /// loss. Costs a few system calls where the private `.git` has no objects of its own.
    Commits,
    /// At files, staged files and every commit. Changes nothing in the directory.
    Everything,
    /// The same, and what cannot be read is opened for its owner first.
    EverythingOpened,
}

/// What would be lost with a directory. Holds a copy of the objects until it is dropped.
#[derive(Debug, Default)]
pub struct Unsaved {
    /// What can be saved.
    pub finds: Vec<Find>,
    /// What cannot, in sentences. Such a directory must stay.
    pub obstacles: Vec<String>,
    quarantine: Option<Quarantine>,
}

/// One thing to save.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Find {
    /// Part of the name of its ref.
    pub name: String,
    /// What it is, for people. Nothing in it was chosen by the agent but printable ASCII.
    pub what: String,
    content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    /// Files, as a tree that the run's object store has.
    Tree(TreeId),
    /// A commit in the quarantine.
    Commit(CommitId),
    /// Commits in the quarantine, too many for a name each.
    Commits(Vec<CommitId>),
    /// Files that cannot be read before they are opened.
    Closed,
}

/// A ref that now keeps something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rescued {
    /// Its full name, in the user's repository.
    pub reference: String,
    /// What it points at.
    pub commit: CommitId,
    /// What it is, for people.
    pub what: String,
}

impl Unsaved {
    /// Whether nothing would be lost.
    pub fn is_empty(&self) -> bool {
        self.finds.is_empty() && self.obstacles.is_empty()
    }
}

impl ControlGit {
    /// What removing the directory of `place` would lose. A directory that is not there, or a link
    /// in its place, holds nothing.
    ///
    /// Ignored files are not looked at: they are what can be made again. No program of the
    /// directory runs, no setting of it counts, and no link in it is followed.
    pub fn find_unsaved(
        &self,
        repository: &Repository,
        place: &WorktreePlace,
        safe: &Safe,
        look: Look,
    ) -> Result<Unsaved, TreeError> {
        let mut unsaved = Unsaved::default();
        if !is_directory(&place.path)? {
            return Ok(unsaved);
        }
        let root = Root::open(&place.path)?;
        let content = if look == Look::Commits {
            None
        } else {
            self.files(&root, place, safe, look, &mut unsaved)?
        };
        self.private(&root, repository, safe, look, content, &mut unsaved)?;
        Ok(unsaved)
    }

    /// Puts every find under a ref `<prefix><name>-<12 digits of its id>` in the user's repository.
    ///
    /// Objects are checked as strictly as git can before they are let in. Repeating it after a
    /// crash gives the same refs. What was not rescued before an error is as it was.
    pub fn rescue(
        &self,
        repository: &Repository,
        unsaved: &Unsaved,
        safe: &Safe,
        prefix: &str,
    ) -> Result<Vec<Rescued>, PublishError> {
        if let Some(quarantine) = &unsaved.quarantine {
            let commits: Vec<&CommitId> = unsaved.finds.iter().flat_map(Find::commits).collect();
            self.bring_over(quarantine, &commits, safe)?;
        }
        let mut rescued = Vec::new();
        for find in &unsaved.finds {
            let message = format!("mini-ork: rescued {}\n", find.what);
            let commit = match &find.content {
                Content::Commit(commit) => commit.clone(),
                Content::Tree(tree) => {
                    let parents = std::slice::from_ref(&safe.base);
                    let tree = self.collapsed(tree, &message, safe.seconds)?;
                    self.commit(&tree, parents, &message, safe.seconds)?
                }
                Content::Commits(commits) => {
                    self.commit(&safe.base_tree, commits, &message, safe.seconds)?
                }
                Content::Closed => {
                    return Err(PublishError::Files(std::io::Error::new(
                        std::io::ErrorKind::PermissionDenied,
                        find.what.clone(),
                    )));
                }
            };
            let reference = format!("{prefix}{}-{}", find.name, &commit.as_str()[..12]);
            self.publish(repository, &commit, &reference, &Expected::Absent)?;
            rescued.push(Rescued {
                reference,
                commit,
                what: find.what.clone(),
            });
        }
        Ok(rescued)
    }

    /// Looks at the files; returns their tree.
    fn files(
        &self,
        root: &Root,
        place: &WorktreePlace,
        safe: &Safe,
        look: Look,
        unsaved: &mut Unsaved,
    ) -> Result<Option<TreeId>, TreeError> {
        {
            let _lock = place.lock()?;
            if fs_err::symlink_metadata(&place.index_file).is_err() {
                // Without it an empty directory of a submodule would look like one removed.
                self.place_command("read-tree", place)
                    .arg(&safe.base_tree)
                    .run()?;
            }
            if look == Look::EverythingOpened {
                let tracked = self.tracked(place)?;
                self.open_up(place, root, &tracked)?;
                self.open_files(place, root)?;
            }
            self.not_in_a_tree(root, place, unsaved)?;
        }
        match self.snapshot(place) {
            Ok(snapshot) => {
                let tree = snapshot.tree;
                if tree != safe.base_tree && !safe.trees.contains(&tree) {
                    unsaved.finds.push(Find {
                        name: "files".to_owned(),
                        what: "files that no tree has".to_owned(),
                        content: Content::Tree(tree.clone()),
                    });
                }
                Ok(Some(tree))
            }
            Err(_) if look == Look::Everything && !self.is_readable(place, root)? => {
                unsaved.finds.push(Find {
                    name: "files".to_owned(),
                    what: "files that cannot be read before they are opened".to_owned(),
                    content: Content::Closed,
                });
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Content that a tree cannot have.
    fn not_in_a_tree(
        &self,
        root: &Root,
        place: &WorktreePlace,
        unsaved: &mut Unsaved,
    ) -> Result<(), TreeError> {
        let tracked = self.tracked(place)?;
        let survey = survey(root, &tracked.submodules, &mut |_| Ok(true))?;
        let long = survey.too_long.iter().map(|path| parent(path).to_vec());
        let long: Vec<Vec<u8>> = long.collect::<BTreeSet<_>>().into_iter().collect();
        let lists = [
            (&survey.nested, "holds a repository of its own"),
            (&survey.forbidden, "has a name that git refuses"),
            (&long, "holds paths that are too long for git"),
        ];
        let ignored = self.ignored(place, lists.iter().flat_map(|(paths, _)| paths.iter()))?;
        let mut add = |path: &[u8], what: &str| {
            let path = path.escape_ascii();
            unsaved.obstacles.push(format!("`{path}` {what}"));
        };
        for (paths, what) in lists {
            for path in paths.iter().filter(|path| !ignored.contains(*path)) {
                add(path, what);
            }
        }
        for path in &survey.filled_submodules {
            add(path, "is a submodule with files in it");
        }
        Ok(())
    }

    /// Looks at the private `.git`. `content` is the tree of the files.
    fn private(
        &self,
        root: &Root,
        repository: &Repository,
        safe: &Safe,
        look: Look,
        content: Option<TreeId>,
        unsaved: &mut Unsaved,
    ) -> Result<(), TreeError> {
        let git = match quarantine::open_private(root)? {
            quarantine::Private::Nothing => return Ok(()),
            quarantine::Private::Elsewhere(what) => {
                unsaved.obstacles.push(what);
                return Ok(());
            }
            quarantine::Private::Objects(git) => git,
        };
        let pointers = match pointers::read(&git, self.object_format())? {
            Ok(pointers) => pointers,
            Err(obstacle) => {
                unsaved.obstacles.push(obstacle);
                return Ok(());
            }
        };
        let mut known: BTreeSet<String> = repository
            .references()?
            .into_iter()
            .map(|(id, _)| id)
            .collect();
        known.insert(safe.base.to_string());
        known.insert(self.start_of(&safe.base).to_string());
        let candidates: Vec<Pointer> = pointers
            .into_iter()
            .filter(|pointer| !known.contains(&pointer.id))
            .collect();
        if candidates.is_empty() && look == Look::Commits {
            return Ok(());
        }
        let quarantine = match Quarantine::fill(self, repository, &git)? {
            Ok(quarantine) => quarantine,
            Err(obstacle) => {
                unsaved.obstacles.push(obstacle);
                return Ok(());
            }
        };
        let mut safe_trees: HashSet<TreeId> = safe.trees.iter().cloned().collect();
        safe_trees.insert(safe.base_tree.clone());
        match self.new_commits(&quarantine, &candidates, &known) {
            Ok(new) => {
                // In a rescue that looks at everything, who wrote what and why is worth keeping too.
                let tips = new.tips(&candidates, |commit| {
                    // A stash may hold its files in a parent: untracked ones, or staged ones.
                    look == Look::Commits
                        && commit.parents.len() < 2
                        && safe_trees.contains(&commit.tree)
                });
                unsaved.obstacles.extend(new.lost);
                unsaved.add_tips(tips);
                safe_trees.extend(new.commits.into_values().map(|commit| commit.tree));
            }
            Err(error) => unsaved.obstacles.push(format!(
                "the history in its `.git` cannot be followed: {error}"
            )),
        }
        if look != Look::Commits {
            safe_trees.extend(content);
            match quarantine.staged(self, &git, safe)? {
                Ok(Some((tree, commit))) if !safe_trees.contains(&tree) => {
                    unsaved.finds.push(Find {
                        name: "staged".to_owned(),
                        what: "staged files".to_owned(),
                        content: Content::Commit(commit),
                    });
                }
                Ok(_) => {}
                Err(obstacle) => unsaved.obstacles.push(obstacle),
            }
        }
        unsaved.quarantine = Some(quarantine);
        Ok(())
    }

    /// Takes the commits, with all objects that are not here yet, into the run's object store.
    fn bring_over(
        &self,
        quarantine: &Quarantine,
        commits: &[&CommitId],
        safe: &Safe,
    ) -> Result<(), PublishError> {
        if commits.is_empty() {
            return Ok(());
        }
        let mut revisions = String::new();
        for commit in commits {
            revisions.push_str(&format!("{commit}\n"));
        }
        revisions.push_str(&format!("--not\nHEAD\n{}\n", safe.base));
        let pack = quarantine.pack(self, revisions.clone().into_bytes())?;
        self.command("index-pack")
            .args(["--stdin", "--fix-thin", "--strict"])
            .input_file(pack)
            .run()?;
        // Everything that is reachable has come along.
        self.command("rev-list")
            .args(["--objects", "--quiet", "--stdin"])
            .input(revisions.into_bytes())
            .run()?;
        Ok(())
    }

    /// Whether we may list every directory and read every file that is not ignored.
    fn is_readable(&self, place: &WorktreePlace, root: &Root) -> Result<bool, TreeError> {
        let tracked = self.tracked(place)?;
        let closed = survey(root, &tracked.submodules, &mut |_| Ok(true))?.closed;
        Ok(closed.is_empty() && quarantine::closed_files(root)?.is_empty())
    }

    /// Gives the owner back the right to read files that are not ignored.
    fn open_files(&self, place: &WorktreePlace, root: &Root) -> Result<(), TreeError> {
        let closed = quarantine::closed_files(root)?;
        let ignored = self.ignored(place, &closed)?;
        for path in closed.iter().filter(|path| !ignored.contains(*path)) {
            quarantine::open_file_up(root, path)?;
        }
        Ok(())
    }
}

impl Unsaved {
    fn add_tips(&mut self, mut tips: Vec<(CommitId, &Pointer)>) {
        if tips.len() > MOST_TIPS {
            let count = tips.len();
            self.obstacles.push(format!(
                "its `.git` has {count} commits that nothing follows"
            ));
            return;
        }
        let others = tips.split_off(tips.len().min(MOST_NAMES));
        for (commit, pointer) in tips {
            self.finds.push(Find {
                name: pointer.name.clone(),
                what: format!("a commit that only `{}` in its `.git` has", pointer.source),
                content: Content::Commit(commit),
            });
        }
        if !others.is_empty() {
            self.finds.push(Find {
                name: "others".to_owned(),
                what: format!("{} more commits that only its `.git` has", others.len()),
                content: Content::Commits(others.into_iter().map(|(commit, _)| commit).collect()),
            });
        }
    }
}

impl Find {
    fn commits(&self) -> &[CommitId] {
        match &self.content {
            Content::Commit(commit) => std::slice::from_ref(commit),
            Content::Commits(commits) => commits,
            Content::Tree(_) | Content::Closed => &[],
        }
    }
}

fn is_directory(path: &Path) -> Result<bool, TreeError> {
    match fs_err::symlink_metadata(path) {
        Ok(found) => Ok(found.is_dir()),
        Err(error) if super::beneath::is_absence(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn parent(path: &[u8]) -> &[u8] {
    let path = std::ffi::OsStr::from_bytes(path);
    Path::new(path)
        .parent()
        .map_or(&[], |parent| parent.as_os_str().as_bytes())
}
