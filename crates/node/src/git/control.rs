//! The run's own git directory.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::command::{Git, GitCommand};
use super::error::GitError;
use super::id::{CommitId, ObjectFormat};
use super::lfs;
use super::repository::{Repository, parse_commit};
use super::submodules::{self, Submodules};

/// A git directory that only the control plane writes.
///
/// Its configuration is written here and names no program. It borrows the user's objects and keeps
/// the new ones to itself, so nothing reaches the user's repository before
/// [`ControlGit::publish`]. Methods may be called from several threads at once, as long as each
/// directory that is worked on is worked on by one.
#[derive(Debug, Clone)]
pub struct ControlGit {
    git: Git,
    directory: PathBuf,
    object_format: ObjectFormat,
    pub(super) submodules: Arc<Submodules>,
}

impl ControlGit {
    /// Makes the git directory `directory`, which must not exist, for work that starts from
    /// `repository.head`.
    ///
    /// `extra_excludes` are lines in the form of a `.gitignore` which hold beside the repository's
    /// own: the content of the user's global excludes file. The directory appears whole or not at
    /// all.
    pub fn create(
        directory: &Path,
        repository: &Repository,
        extra_excludes: &[u8],
    ) -> Result<Self, GitError> {
        let mut draft = directory.as_os_str().to_owned();
        draft.push(".draft");
        let draft = PathBuf::from(draft);
        if fs_err::symlink_metadata(&draft).is_ok() {
            // Left by a process that was killed at this point.
            fs_err::remove_dir_all(&draft)?;
        }
        for inner in [
            "objects/info",
            "objects/pack",
            "refs/heads",
            "info",
            "scratch",
        ] {
            fs_err::create_dir_all(draft.join(inner))?;
        }
        fs_err::write(draft.join("config"), configuration(repository))?;
        fs_err::write(draft.join("HEAD"), format!("{}\n", repository.head))?;
        let submodules = Submodules::find(repository)?;
        let mut borrowed = vec![repository.object_directory.clone()];
        borrowed.extend(submodules.object_directories());
        let borrowed: Vec<&Path> = borrowed.iter().map(PathBuf::as_path).collect();
        fs_err::write(draft.join("objects/info/alternates"), alternates(&borrowed))?;
        let mut stores = vec![repository.lfs_directory()];
        stores.extend(submodules.lfs_directories());
        lfs::record(&draft, &stores)?;
        let mut excludes = read_if_there(&repository.common_dir.join("info/exclude"))?;
        end_line(&mut excludes);
        excludes.extend_from_slice(extra_excludes);
        fs_err::write(draft.join("info/exclude"), excludes)?;
        let attributes = read_if_there(&repository.common_dir.join("info/attributes"))?;
        fs_err::write(draft.join("info/attributes"), attributes)?;
        if repository.shallow {
            fs_err::copy(repository.common_dir.join("shallow"), draft.join("shallow"))?;
        }
        // Its absence means that there are none.
        let mut made = Self::open(&repository.git, &draft)?;
        made.adopt_submodules(repository, submodules)?;
        fs_err::rename(&draft, directory)?;
        Self::open(&repository.git, directory)
    }

    /// Takes up the git directory that [`ControlGit::create`] made, in this process or another.
    pub fn open(git: &Git, directory: &Path) -> Result<Self, GitError> {
        let directory = fs_err::canonicalize(directory)?;
        let configuration = fs_err::read_to_string(directory.join("config"))?;
        let submodules = match read_if_there(&directory.join(submodules::FILE))? {
            text if text.is_empty() => Submodules::default(),
            text => serde_json::from_slice(&text).map_err(io::Error::from)?,
        };
        let object_format = if configuration.contains(SHA256) {
            ObjectFormat::Sha256
        } else {
            ObjectFormat::Sha1
        };
        Ok(Self {
            git: git.clone(),
            directory,
            object_format,
            submodules: Arc::new(submodules),
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// A command on objects only.
    pub(crate) fn command(&self, command: &'static str) -> GitCommand<'_> {
        self.git
            .command(command, &self.directory)
            .git_dir(&self.directory)
    }

    /// A command on the files in `work_tree`, which is only ever read as files.
    pub(crate) fn tree_command(
        &self,
        command: &'static str,
        work_tree: &Path,
        index: &Path,
    ) -> GitCommand<'_> {
        let command = self
            .git
            .command(command, work_tree)
            .git_dir(&self.directory)
            .env("GIT_WORK_TREE", work_tree)
            .env("GIT_INDEX_FILE", index);
        match self.git.lfs_program() {
            Some(program) => {
                let settings = lfs::settings(program, &self.directory);
                settings.into_iter().fold(command, GitCommand::config)
            }
            None => command,
        }
    }

    pub(crate) fn git(&self) -> &Git {
        &self.git
    }

    pub(crate) fn object_format(&self) -> ObjectFormat {
        self.object_format
    }

    /// An empty directory inside this one, gone when dropped.
    pub(crate) fn scratch(&self) -> io::Result<Scratch> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}-{number}", std::process::id());
            let path = self.directory.join("scratch").join(name);
            match fs_err::create_dir(&path) {
                Ok(()) => return Ok(Scratch { path }),
                // Left by a killed process that had our number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A git directory inside `scratch` with this one's settings and objects, for commands that
    /// need a HEAD or references of their own.
    pub(crate) fn scratch_git(&self, scratch: &Scratch, head: &str) -> io::Result<PathBuf> {
        let path = scratch.path().join("git");
        fs_err::create_dir_all(path.join("refs/heads"))?;
        fs_err::create_dir_all(path.join("info"))?;
        fs_err::write(path.join("HEAD"), format!("{head}\n"))?;
        for name in ["config", "info/exclude", "info/attributes"] {
            let bytes = read_if_there(&self.directory.join(name))?;
            if !bytes.is_empty() {
                fs_err::write(path.join(name), bytes)?;
            }
        }
        Ok(path)
    }

    /// The user's commit that the run began at.
    pub(super) fn head(&self) -> Result<CommitId, GitError> {
        let head = fs_err::read(self.directory.join("HEAD"))?;
        parse_commit("rev-parse", &head)
    }

    pub(crate) fn objects(&self) -> PathBuf {
        self.directory.join("objects")
    }
}

/// A directory for the intermediate files of one operation.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind is inside the run's directory and goes with it.
        drop(fs_err::remove_dir_all(&self.path));
    }
}

const SHA256: &str = "objectformat = sha256";

/// Settings that hold for the control plane's git directory and for those it gives to agents.
pub(crate) fn common_settings(repository: &Repository) -> String {
    let mut text = String::new();
    match repository.object_format {
        ObjectFormat::Sha1 => text.push_str("[core]\n\trepositoryformatversion = 0\n"),
        ObjectFormat::Sha256 => {
            text.push_str("[extensions]\n\t");
            text.push_str(SHA256);
            text.push_str("\n[core]\n\trepositoryformatversion = 1\n");
        }
    }
    // As in the user's checkout: the same blob is the same bytes there and here.
    for line in &repository.settings.line_endings {
        text.push('\t');
        text.push_str(line);
        text.push('\n');
    }
    text.push_str("\tfilemode = true\n\tsymlinks = true\n");
    text
}

/// A path line of `objects/info/alternates`, for each directory.
pub(crate) fn alternates(directories: &[&Path]) -> Vec<u8> {
    let mut text = Vec::new();
    for directory in directories {
        let path = directory.as_os_str().as_bytes();
        if path.contains(&b'\n') || path.starts_with(b"\"") {
            text.push(b'"');
            for byte in path {
                match byte {
                    b'\n' => text.extend_from_slice(b"\\n"),
                    b'"' | b'\\' => text.extend_from_slice(&[b'\\', *byte]),
                    other => text.push(*other),
                }
            }
            text.push(b'"');
        } else {
            text.extend_from_slice(path);
        }
        text.push(b'\n');
    }
    text
}

pub(crate) fn read_if_there(path: &Path) -> io::Result<Vec<u8>> {
    match fs_err::read(path) {
        Ok(bytes) => Ok(bytes),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

fn configuration(repository: &Repository) -> String {
    let mut text = common_settings(repository);
    text.push_str(concat!(
        "\tbare = true\n",
        "\tlogallrefupdates = false\n",
        // A mixed-ending file is worth no warning: what was not kept is listed.
        "\tsafecrlf = false\n",
        // One flush for many objects instead of one each.
        "\tfsyncmethod = batch\n",
        // As many as the machine has cores.
        "[checkout]\n\tworkers = 0\n",
        // A file stays where its author put it, whatever else moved.
        "[merge]\n\tdirectoryrenames = false\n",
    ));
    text
}

fn end_line(bytes: &mut Vec<u8>) {
    if bytes.last().is_some_and(|last| *last != b'\n') {
        bytes.push(b'\n');
    }
}
