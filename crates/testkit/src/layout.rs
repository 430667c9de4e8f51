use std::path::PathBuf;

use crate::TestEnv;
use crate::repo::Repo;

/// The forms in which a repository may lie on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Staged, unstaged, untracked and ignored files, and a stash.
    Untidy,
    /// HEAD is no branch.
    Detached,
    /// A linked worktree of another checkout.
    Linked,
    /// A linked worktree whose links are relative paths.
    LinkedRelative,
    /// A bare repository with a linked worktree beside it.
    BareWithWorktree,
    /// A bare repository, alone.
    Bare,
    /// A checkout with a submodule in it.
    WithSubmodule,
    /// The submodule itself.
    InSubmodule,
    /// A directory below the top of the checkout.
    Subdirectory,
    /// A path with spaces, quotes and a line break.
    OddPath,
    /// References in one file, and a merge that is not concluded.
    Merging,
}

/// A repository in one of the forms.
#[derive(Debug)]
pub struct LaidOut {
    /// Where mini-ork is called.
    pub cwd: PathBuf,
    /// The checkout that a run works for.
    pub checkout: PathBuf,
    /// All checkouts and bare repositories that have to stay as they are.
    pub watched: Vec<PathBuf>,
}

impl Layout {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Untidy,
        Self::Detached,
        Self::Linked,
        Self::LinkedRelative,
        Self::BareWithWorktree,
        Self::Bare,
        Self::WithSubmodule,
        Self::InSubmodule,
        Self::Subdirectory,
        Self::OddPath,
        Self::Merging,
    ];

    /// Makes a repository of this form that holds `files`.
    pub fn make(self, env: &TestEnv, files: &[(&str, &str)]) -> LaidOut {
        let name = match self {
            Self::OddPath => "odd 'path'\n\"of\" $HOME/re po",
            _ => "repo",
        };
        let repo = env.repo(name, files);
        let path = repo.path().to_owned();
        let plain = |path: PathBuf| LaidOut {
            cwd: path.clone(),
            checkout: path.clone(),
            watched: vec![path],
        };
        match self {
            Self::OddPath => plain(path),
            Self::Untidy => {
                untidy(&repo);
                plain(path)
            }
            Self::Detached => {
                repo.git(["checkout", "--quiet", "--detach"]);
                plain(path)
            }
            Self::Linked => linked(env, &repo, &[]),
            Self::LinkedRelative => linked(env, &repo, &["-c", "worktree.useRelativePaths=true"]),
            Self::Bare | Self::BareWithWorktree => {
                let bare = env.root().join("bare.git");
                let to = bare.to_str().unwrap();
                repo.git(["clone", "--quiet", "--bare", ".", to]);
                if self == Self::Bare {
                    return plain(bare);
                }
                linked(env, &Repo::at(env, &bare), &[])
            }
            Self::WithSubmodule | Self::InSubmodule => {
                let inner = env.repo("inner", files);
                let from = inner.path().to_str().unwrap();
                repo.git(["submodule", "--quiet", "add", from, "sub module"]);
                repo.commit_all("submodule");
                let submodule = path.join("sub module");
                let checkout = if self == Self::InSubmodule {
                    submodule.clone()
                } else {
                    path.clone()
                };
                LaidOut {
                    cwd: checkout.clone(),
                    checkout,
                    watched: vec![path, submodule],
                }
            }
            Self::Subdirectory => {
                repo.write("deep/down/file", "x\n");
                repo.commit_all("deep");
                LaidOut {
                    cwd: path.join("deep/down"),
                    ..plain(path)
                }
            }
            Self::Merging => {
                merging(&repo);
                plain(path)
            }
        }
    }
}

fn linked(env: &TestEnv, repo: &Repo<'_>, options: &[&str]) -> LaidOut {
    let path = env.root().join("linked tree");
    let mut arguments = options.to_vec();
    let to = path.to_str().unwrap();
    arguments.extend(["worktree", "add", "--quiet", "-b", "side", to]);
    repo.git(arguments);
    LaidOut {
        cwd: path.clone(),
        checkout: path.clone(),
        watched: vec![path, repo.path().to_owned()],
    }
}

fn untidy(repo: &Repo<'_>) {
    repo.write(".gitignore", "ignored/\n*.log\n");
    repo.write("both", "one\n");
    repo.write("gone", "soon\n");
    repo.write("stashed", "base\n");
    repo.commit_all("more");
    repo.write("stashed", "changed\n");
    repo.git(["stash", "push", "--quiet", "--message", "for later"]);
    repo.write("stashed", "changed again\n");
    repo.git(["stash", "push", "--quiet", "--message", "and later"]);
    repo.write("both", "two\n");
    repo.write("staged only", "new\n");
    repo.git(["add", "both", "staged only"]);
    repo.git(["rm", "--quiet", "--cached", "gone"]);
    repo.write("both", "three\n");
    repo.write("untracked/file", "u\n");
    repo.write("ignored/file", "i\n");
    repo.write("run.log", "log\n");
    fs_err::create_dir_all(repo.path().join("empty/directory")).unwrap();
    fs_err::os::unix::fs::symlink("nowhere", repo.path().join("dangling")).unwrap();
    let hook = repo.path().join(".git/hooks/post-checkout");
    fs_err::write(hook, "#!/bin/sh\nexit 1\n").unwrap();
}

fn merging(repo: &Repo<'_>) {
    repo.write("contested", "base\n");
    repo.commit_all("base");
    repo.git(["checkout", "--quiet", "-b", "other"]);
    repo.write("contested", "theirs\n");
    repo.commit_all("theirs");
    repo.git(["checkout", "--quiet", "main"]);
    repo.write("contested", "ours\n");
    repo.commit_all("ours");
    repo.git(["pack-refs", "--all"]);
    assert!(!repo.git_succeeds(["merge", "--quiet", "other"]));
}
