//! A hermetic world for each test: no home, no configuration but its own.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use mini_ork_node::git::{ControlGit, Git, Repository, TreeId};
use mini_ork_node::tree::{PrivateGit, WorktreePlace, checkout_fingerprint};
use tempfile::TempDir;

/// What the tests find git with.
#[expect(
    clippy::disallowed_methods,
    reason = "the search path of the tests themselves"
)]
pub(crate) fn search_path() -> OsString {
    std::env::var_os("PATH").expect("PATH is set")
}

/// Every different git on this machine: the one on the search path, and the system's.
pub(crate) fn gits() -> Vec<Git> {
    let mut gits = vec![Git::find(&search_path()).unwrap()];
    if let Ok(system) = Git::find(OsStr::new("/usr/bin")) {
        gits.push(system);
    }
    gits
}

pub(crate) struct World {
    pub(crate) git: Git,
    directory: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Git::find(&search_path()).unwrap())
    }

    pub(crate) fn with(git: Git) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("git test ")
            .tempdir()
            .unwrap();
        fs_err::create_dir(directory.path().join("home")).unwrap();
        Self { git, directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        fs_err::canonicalize(self.directory.path())
            .unwrap()
            .join(name)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// Runs git as its user would, and expects it to succeed.
    pub(crate) fn run(&self, directory: &Path, arguments: &[&str]) -> String {
        let output = self.try_run(directory, arguments);
        assert!(
            output.status.success(),
            "git {arguments:?} in {}: {}",
            directory.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    #[expect(clippy::disallowed_methods, reason = "git as its user runs it")]
    pub(crate) fn try_run(&self, directory: &Path, arguments: &[&str]) -> Output {
        Command::new("git")
            .args(arguments)
            .current_dir(directory)
            .env_clear()
            .env("PATH", search_path())
            .env("HOME", self.home())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "A User")
            .env("GIT_AUTHOR_EMAIL", "user@example.org")
            .env("GIT_COMMITTER_NAME", "A User")
            .env("GIT_COMMITTER_EMAIL", "user@example.org")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// A repository at `name` with `files` in its first commit.
    pub(crate) fn repository(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let path = self.path(name);
        fs_err::create_dir_all(&path).unwrap();
        self.run(&path, &["init", "-q", "-b", "main"]);
        for (file, content) in files {
            write(&path.join(file), content);
        }
        self.run(&path, &["add", "-A"]);
        self.run(&path, &["commit", "-q", "--allow-empty", "-m", "first"]);
        path
    }

    pub(crate) fn discover(&self, path: &Path) -> Repository {
        Repository::discover(&self.git, path).unwrap()
    }

    pub(crate) fn control(&self, name: &str, repository: &Repository) -> ControlGit {
        ControlGit::create(&self.path(name), repository, b"").unwrap()
    }

    pub(crate) fn place(&self, name: &str) -> WorktreePlace {
        WorktreePlace {
            path: self.path(name),
            index_file: self.path(&format!("{name}.index")),
        }
    }

    /// A repository with `files`, its control directory, and a place with its tree.
    pub(crate) fn run_on(&self, files: &[(&str, &str)]) -> Run {
        let user = self.repository("user", files);
        self.run_in(&user)
    }

    pub(crate) fn run_in(&self, user: &Path) -> Run {
        let repository = self.discover(user);
        let control = self.control("control.git", &repository);
        let place = self.place("work");
        let run = Run {
            user: user.to_owned(),
            repository,
            control,
            place,
        };
        let head = run.repository.head.clone();
        let private = PrivateGit {
            repository: &run.repository,
            head_branch: "mini-ork/r1",
            head_commit: &head,
        };
        run.control
            .materialise(&run.repository.head_tree, &run.place, Some(&private))
            .unwrap();
        run
    }
}

/// One run in the making.
pub(crate) struct Run {
    pub(crate) user: PathBuf,
    pub(crate) repository: Repository,
    pub(crate) control: ControlGit,
    pub(crate) place: WorktreePlace,
}

impl Run {
    pub(crate) fn base(&self) -> &TreeId {
        &self.repository.head_tree
    }

    pub(crate) fn snapshot(&self) -> TreeId {
        self.control.snapshot(&self.place).unwrap().tree
    }

    pub(crate) fn in_work(&self, path: impl AsRef<Path>) -> PathBuf {
        self.place.path.join(path)
    }

    /// The paths of a tree, as text.
    pub(crate) fn paths(&self, tree: &TreeId) -> Vec<String> {
        self.control
            .list(tree)
            .unwrap()
            .iter()
            .map(|entry| entry.path.to_string())
            .collect()
    }

    pub(crate) fn not_carried(&self) -> Vec<(String, mini_ork_node::tree::NotCarriedKind)> {
        let list = self.control.not_carried(&self.place, self.base()).unwrap();
        list.entries
            .into_iter()
            .map(|entry| {
                (
                    entry.path.as_os_str().to_string_lossy().into_owned(),
                    entry.kind,
                )
            })
            .collect()
    }

    /// Asserts that `act` leaves the user's checkout byte-identical.
    pub(crate) fn untouched<T>(&self, act: impl FnOnce() -> T) -> T {
        let before = (
            checkout_fingerprint(&self.repository).unwrap(),
            manifest(&self.user),
        );
        let outcome = act();
        let after = checkout_fingerprint(&self.repository).unwrap();
        assert_eq!(before.0.differences(&after), Vec::<&str>::new());
        assert_eq!(before.1, manifest(&self.user));
        outcome
    }

    /// The same for what may add objects and references of mini-ork.
    pub(crate) fn untouched_but_objects<T>(&self, act: impl FnOnce() -> T) -> T {
        let before = (
            checkout_fingerprint(&self.repository).unwrap(),
            files(&self.user),
        );
        let outcome = act();
        let after = checkout_fingerprint(&self.repository).unwrap();
        assert_eq!(before.0.differences(&after), Vec::<&str>::new());
        assert_eq!(before.1, files(&self.user));
        outcome
    }

    /// The same for what was written and put back.
    pub(crate) fn untouched_but_times<T>(&self, act: impl FnOnce() -> T) -> T {
        let before = manifest(&self.user);
        let outcome = act();
        assert_eq!(before, manifest(&self.user));
        outcome
    }
}

pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(path, content).unwrap();
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    fs_err::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Every path below `directory` with its kind, permissions and content.
pub(crate) fn manifest(directory: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in fs_err::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs_err::symlink_metadata(&path).unwrap();
            let content = if metadata.is_dir() {
                pending.push(path.clone());
                Vec::new()
            } else if metadata.is_symlink() {
                fs_err::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else if metadata.is_file() {
                fs_err::read(&path).unwrap()
            } else {
                Vec::new()
            };
            found.push((
                path.strip_prefix(directory).unwrap().to_owned(),
                mode(&path),
                content,
            ));
        }
    }
    found.sort();
    found
}

/// The manifest without a `.git` at the top.
pub(crate) fn files(directory: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    manifest(directory)
        .into_iter()
        .filter(|(path, ..)| !path.starts_with(".git"))
        .collect()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether to run what takes minutes.
#[expect(clippy::disallowed_methods, reason = "the switch of the long tests")]
pub(crate) fn full() -> bool {
    let full = std::env::var_os("MO_TEST_FULL").is_some_and(|value| value == "1");
    if !full {
        println!("left out: set MO_TEST_FULL=1");
    }
    full
}
