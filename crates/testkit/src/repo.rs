use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::TestEnv;
use crate::program::command;

/// A repository of a test's, worked on by a git that knows no configuration but the repository's.
#[derive(Debug)]
pub struct Repo<'a> {
    env: &'a TestEnv,
    path: PathBuf,
}

impl<'a> Repo<'a> {
    /// Makes an empty repository on branch `main` at `path`.
    pub fn init(env: &'a TestEnv, path: &Path) -> Self {
        fs_err::create_dir_all(path).unwrap();
        let repo = Self::at(env, path);
        repo.git(["init", "--quiet", "--initial-branch=main"]);
        repo
    }

    /// The repository, checkout or linked worktree at `path`.
    pub fn at(env: &'a TestEnv, path: &Path) -> Self {
        Self {
            env,
            path: path.to_owned(),
        }
    }

    /// Its checkout.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `git ARGS` in it, which must succeed; returns the output without the last line break.
    #[track_caller]
    pub fn git<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> String {
        let bytes = self.git_bytes(arguments);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.strip_suffix('\n').unwrap_or(&text).to_owned()
    }

    /// The same, byte for byte.
    #[track_caller]
    pub fn git_bytes<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Vec<u8> {
        let mut command = self.git_command();
        command.args(arguments);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(
            output.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    }

    /// Whether `git ARGS` succeeds in it.
    pub fn git_succeeds<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> bool {
        let mut command = self.git_command();
        command.args(arguments).stdin(Stdio::null());
        command.output().unwrap().status.success()
    }

    /// Writes a file of the checkout; directories are made.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.path.join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, content).unwrap();
    }

    /// Commits everything that the checkout holds; returns the id of the commit.
    #[track_caller]
    pub fn commit_all(&self, message: &str) -> String {
        self.git(["add", "--all"]);
        self.git(["commit", "--quiet", "--allow-empty", "--message", message]);
        self.git(["rev-parse", "HEAD"])
    }

    /// The content of `path` at `revision`.
    #[track_caller]
    pub fn show(&self, revision: &str, path: &str) -> String {
        let bytes = self.git_bytes(["cat-file", "blob", &format!("{revision}:{path}")]);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The paths of the tree of `revision`, sorted.
    #[track_caller]
    pub fn files(&self, revision: &str) -> Vec<String> {
        let bytes = self.git_bytes(["ls-tree", "-r", "-z", "--name-only", revision]);
        bytes
            .split(|byte| *byte == 0)
            .filter(|path| !path.is_empty())
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect()
    }

    /// The full names of its refs that begin with `prefix`, sorted.
    #[track_caller]
    pub fn refs(&self, prefix: &str) -> Vec<String> {
        self.git(["for-each-ref", "--format=%(refname)", prefix])
            .lines()
            .map(ToOwned::to_owned)
            .collect()
    }

    fn git_command(&self) -> Command {
        let mut command = command(self.env, OsStr::new("git"));
        command
            .current_dir(&self.path)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_AUTHOR_NAME", "A Person")
            .env("GIT_AUTHOR_EMAIL", "person@example.com")
            .env("GIT_COMMITTER_NAME", "A Person")
            .env("GIT_COMMITTER_EMAIL", "person@example.com")
            .env("LC_ALL", "C")
            // Repositories of other owners, and submodules from the next directory, are wanted.
            .args(["-c", "safe.directory=*", "-c", "protocol.file.allow=always"])
            // Otherwise a large commit leaves a process that goes on in the background.
            .args(["-c", "maintenance.auto=false", "-c", "gc.auto=0"]);
        command
    }
}
