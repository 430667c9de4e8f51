//! Git LFS without its program: files that a tree has only a pointer to.
//!
//! A worktree of a run has the content where this machine has it, and else the pointer. The filter
//! that git asks for `filter=lfs` is [`filter`], in a process of ours: attributes can choose it, and
//! no configuration of a repository can put another program in its place. New content goes into a
//! store of the run, and with a published commit into the user's.

mod filter;
mod pointer;
mod publish;

use std::ffi::OsString;
use std::io::{self, Read, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::control::{ControlGit, read_if_there};
use super::error::GitError;
use super::id::RepoPath;
use super::repository::Repository;
pub use filter::{LFS_ARGUMENT, lfs_main};
pub(super) use pointer::LARGEST;
use pointer::Pointer;

/// Where a control directory lists the stores of the user.
const LIST: &str = "lfs-stores";
/// Where a control directory keeps new content.
const OWN: &str = "lfs";

/// Content by its digest: what a run has made, and what the user's repositories had before.
#[derive(Debug)]
struct Stores {
    own: PathBuf,
    users: Vec<PathBuf>,
}

/// What becomes of content in a tree.
enum Kept {
    Pointer(Pointer),
    /// It stays itself.
    Raw(fs_err::File),
}

/// Files at HEAD that Git LFS keeps elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LfsFiles {
    /// How many of them this machine has the content of.
    pub present: usize,
    /// The others, which are their pointers in a run's worktree.
    pub absent: Vec<RepoPath>,
}

impl Stores {
    /// Those of the control directory `directory`.
    fn open(directory: &Path) -> io::Result<Self> {
        let list = read_if_there(&directory.join(LIST))?;
        let users = list
            .split(|byte| *byte == 0)
            .filter(|path| !path.is_empty())
            .map(|path| PathBuf::from(std::ffi::OsStr::from_bytes(path)))
            .collect();
        Ok(Self {
            own: directory.join(OWN),
            users,
        })
    }

    /// The content that `pointer` names; none when no store has it.
    fn open_content(&self, pointer: &Pointer) -> Option<fs_err::File> {
        let stores = std::iter::once(&self.own).chain(&self.users);
        stores
            .filter_map(|store| fs_err::File::open(object(store, &pointer.digest)).ok())
            .find(|file| {
                let found = file.metadata();
                found.is_ok_and(|found| found.is_file() && found.len() == pointer.size)
            })
    }

    /// Keeps what `content` yields, unless a store has it.
    fn keep(&self, mut content: impl Read) -> io::Result<Kept> {
        fs_err::create_dir_all(&self.own)?;
        let mut draft = tempfile_in(&self.own)?;
        let mut digest = Sha256::new();
        let mut buffer = vec![0; 64 << 10];
        let mut size = 0;
        loop {
            let count = content.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            let bytes = buffer.get(..count).unwrap_or_default();
            digest.update(bytes);
            draft.file.write_all(bytes)?;
            size += count as u64;
        }
        let pointer = Pointer {
            digest: hex(&digest.finalize()),
            size,
        };
        if self.raw(&pointer).is_file() {
            return Ok(Kept::Raw(fs_err::File::open(&draft.path)?));
        }
        if self.open_content(&pointer).is_none() {
            draft.keep_as(&object(&self.own, &pointer.digest))?;
        }
        Ok(Kept::Pointer(pointer))
    }

    /// Puts what the run has made of `pointers` into the store of the user at `to`.
    fn hand_over(&self, pointers: &[Pointer], to: &Path) -> io::Result<()> {
        for pointer in pointers {
            let (from, to) = (
                object(&self.own, &pointer.digest),
                object(to, &pointer.digest),
            );
            if !from.is_file() || to.is_file() {
                continue;
            }
            let directory = to.parent().unwrap_or(Path::new("/"));
            fs_err::create_dir_all(directory)?;
            let mut draft = tempfile_in(directory)?;
            io::copy(&mut fs_err::File::open(&from)?, &mut draft.file)?;
            draft.file.sync_all()?;
            draft.keep_as(&to)?;
        }
        Ok(())
    }

    /// Remembers that a tree has `content` itself where it should have a pointer, so that it stays
    /// so: whether git asks about a file that nobody touched is a matter of time.
    fn remember_raw(&self, content: &[u8]) -> io::Result<()> {
        let pointer = Pointer {
            digest: hex(&Sha256::digest(content)),
            size: content.len() as u64,
        };
        let mark = self.raw(&pointer);
        fs_err::create_dir_all(mark.parent().unwrap_or(&self.own))?;
        fs_err::write(mark, [])
    }

    fn raw(&self, pointer: &Pointer) -> PathBuf {
        self.own.join("raw").join(&pointer.digest)
    }

    fn made_something(&self) -> bool {
        self.own.join("objects").is_dir()
    }
}

/// Lists the stores of the user for the control directory `directory`.
pub(super) fn record(directory: &Path, users: &[PathBuf]) -> io::Result<()> {
    let mut list = Vec::new();
    for path in users {
        list.extend_from_slice(path.as_os_str().as_bytes());
        list.push(0);
    }
    fs_err::write(directory.join(LIST), list)
}

impl ControlGit {
    /// How many files at HEAD of `repository` Git LFS keeps elsewhere, and which of them this
    /// machine has no content of.
    pub fn lfs_files(&self, repository: &Repository) -> Result<LfsFiles, GitError> {
        let stores = Stores::open(self.path())?;
        let mut found = LfsFiles::default();
        for (path, content) in repository.lfs_pointers()? {
            let pointer = Pointer::parse(&content);
            if pointer.is_some_and(|pointer| stores.open_content(&pointer).is_some()) {
                found.present += 1;
            } else {
                found.absent.push(path);
            }
        }
        Ok(found)
    }
}

/// The setting that makes git ask our filter, in a process of `program`, about files with
/// `filter=lfs`.
pub(super) fn settings(program: &Path, directory: &Path) -> [OsString; 2] {
    let mut process = OsString::from("filter.lfs.process=");
    process.push(quoted(program));
    process.push(" ");
    process.push(LFS_ARGUMENT);
    process.push(" ");
    process.push(quoted(directory));
    // Without it git would take the content itself into a tree when the filter fails.
    [process, "filter.lfs.required=true".into()]
}

/// As one word for a shell, which git gives the command to.
fn quoted(path: &Path) -> OsString {
    use std::os::unix::ffi::OsStringExt as _;
    let mut word = vec![b'\''];
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'\'' => word.extend_from_slice(b"'\\''"),
            other => word.push(*other),
        }
    }
    word.push(b'\'');
    OsString::from_vec(word)
}

/// Where a store has the content with this digest.
fn object(store: &Path, digest: &str) -> PathBuf {
    let (first, rest) = digest.split_at(2);
    let second = rest.get(..2).unwrap_or_default();
    store.join("objects").join(first).join(second).join(digest)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file under a name that nobody looks for, removed unless it is kept.
struct Draft {
    file: fs_err::File,
    path: PathBuf,
}

fn tempfile_in(directory: &Path) -> io::Result<Draft> {
    let name = hex(&crate::sys::random_bytes::<8>()?);
    let path = directory.join(format!(".draft-{name}"));
    let file = fs_err::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)?;
    Ok(Draft { file, path })
}

impl Draft {
    fn keep_as(self, path: &Path) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            fs_err::create_dir_all(directory)?;
        }
        fs_err::rename(&self.path, path)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Gone already when it was kept.
        drop(fs_err::remove_file(&self.path));
    }
}
