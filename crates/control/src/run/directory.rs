//! Where everything of a run lies on disk, and who owns it now.

use std::ffi::OsStr;
use std::fs::{File, Permissions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mini_ork_node::beneath::{Directory, Links};
use mini_ork_node::supervise::CLAIM;
use mini_ork_node::sys;
use mini_ork_protocol::{NodeId, NodeSegment, ProcessIdentity, RunId};
use rustix::fs::OFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Paths of one run's directory, `<home>/runs/<run>`.
#[derive(Debug, Clone)]
pub struct RunDirectory {
    root: PathBuf,
}

impl RunDirectory {
    /// The directory of `run` under `home`, whether or not it exists.
    pub fn of(home: &Path, run: &RunId) -> Self {
        Self::at(home.join("runs").join(run.as_str()))
    }

    /// The directory at `root`. The links on the way to it are the user's own and are followed here
    /// and now; further below there are none that anybody should follow.
    pub fn at(root: PathBuf) -> Self {
        let resolved = root.parent().and_then(|parent| parent.canonicalize().ok());
        Self {
            root: match (resolved, root.file_name()) {
                (Some(parent), Some(name)) => parent.join(name),
                _ => root,
            },
        }
    }

    /// Makes the directory, for the user alone; an error of kind `AlreadyExists` when it is there.
    pub fn create(&self) -> io::Result<()> {
        if let Some(parent) = self.root.parent() {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)
                .map_err(|error| named(parent, &error))?;
        }
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&self.root)
            .map_err(|error| named(&self.root, &error))
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `plan.json`.
    pub fn plan(&self) -> PathBuf {
        self.root.join("plan.json")
    }

    /// `run.json`: roots, and settings with where each came from.
    pub fn record(&self) -> PathBuf {
        self.root.join("run.json")
    }

    /// The kickoff as it was when the run started.
    pub fn kickoff(&self) -> PathBuf {
        self.root.join("kickoff.md")
    }

    /// What the user answered to the kickoff's open questions.
    pub fn answers(&self) -> PathBuf {
        self.root.join("answers.json")
    }

    /// The result as scripts read it.
    pub fn verdict(&self) -> PathBuf {
        self.root.join("verdict.json")
    }

    /// The result as people read it.
    pub fn report(&self) -> PathBuf {
        self.root.join("report.md")
    }

    /// The recipe's files, pinned: what an agent writes into its worktree never becomes a verifier.
    pub fn recipe(&self) -> PathBuf {
        self.root.join("recipe")
    }

    /// The git directory of the control plane.
    pub fn control_git(&self) -> PathBuf {
        self.root.join("control.git")
    }

    /// The worktree called `place`.
    pub fn worktree(&self, place: &str) -> PathBuf {
        if place == MAIN_PLACE {
            self.root.join("worktree")
        } else {
            self.root.join("worktrees").join(place)
        }
    }

    /// The names of the worktrees that there are, in the order of their names after the main one.
    pub(crate) fn places(&self) -> Vec<String> {
        let mut places: Vec<String> = fs_err::read_dir(self.root.join("worktrees"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name != MAIN_PLACE)
            .collect();
        places.sort();
        if fs_err::symlink_metadata(self.worktree(MAIN_PLACE)).is_ok() {
            places.insert(0, MAIN_PLACE.to_owned());
        }
        places
    }

    /// The control plane's index of that worktree, where no agent writes.
    pub fn index(&self, place: &str) -> PathBuf {
        self.root.join("control.git").join(format!("{place}.index"))
    }

    /// Everything of one attempt of a node.
    pub fn attempt(&self, node: &NodeId, round: u32, attempt: u32) -> PathBuf {
        self.node(node).join(format!("{round}.{attempt}"))
    }

    /// Everything of a node.
    pub fn node(&self, node: &NodeId) -> PathBuf {
        self.root
            .join("nodes")
            .join(NodeSegment::from(node).as_str())
    }

    /// What an attempt has of programs that run outside of the boundary of the run, where programs
    /// inside see nothing.
    pub(crate) fn outside(&self, node: &NodeId, round: u32, attempt: u32) -> PathBuf {
        let segment = NodeSegment::from(node);
        let attempt = format!("{round}.{attempt}");
        self.root.join(OUTSIDE).join(segment.as_str()).join(attempt)
    }

    /// The records and the output of the program of an attempt's lane.
    pub(crate) fn lane_process(&self, node: &NodeId, round: u32, attempt: u32) -> PathBuf {
        const LANE: &str = "lane";
        let outside = self.outside(node, round, attempt).join(LANE);
        if outside.is_dir() {
            return outside;
        }
        self.attempt(node, round, attempt).join(LANE)
    }

    /// Where an attempt's program finds the gateway to its model. Not below the node's directory,
    /// which a program may see.
    pub(crate) fn gateway(&self, node: &NodeId, round: u32, attempt: u32) -> PathBuf {
        let segment = NodeSegment::from(node);
        let name = format!("{}.{round}.{attempt}.json", segment.as_str());
        self.root.join("gateways").join(name)
    }

    /// The home of a node's agent, kept over rounds so that it can remember.
    pub(crate) fn agent_home(&self, node: &NodeId, lane: &str) -> PathBuf {
        let segment = NodeSegment::from(node);
        self.agents().join(segment.as_str()).join(lane)
    }

    /// The same for an agent that runs outside of the boundary of the run.
    pub(crate) fn agent_home_outside(&self, node: &NodeId, lane: &str) -> PathBuf {
        let segment = NodeSegment::from(node);
        self.agents_outside().join(segment.as_str()).join(lane)
    }

    /// The homes of all agents that run outside.
    pub(crate) fn agents_outside(&self) -> PathBuf {
        self.root.join("agents-outside")
    }

    /// The homes of all agents.
    pub(crate) fn agents(&self) -> PathBuf {
        self.root.join("agents")
    }

    /// Test runs on the base, shared by all rounds.
    pub fn baseline(&self, digest: &str) -> PathBuf {
        self.root.join("baseline").join(digest)
    }

    /// Outputs collected for the user.
    pub fn artifacts(&self) -> PathBuf {
        self.root.join("artifacts")
    }

    /// Every directory of the run that may hold the records of a process.
    pub fn process_directories(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for parent in [self.root.join("nodes"), self.root.join("baseline")] {
            collect_process_directories(&parent, 4, &mut found);
        }
        found
    }

    /// The same of processes outside of the boundary of the run.
    pub(crate) fn processes_outside(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect_process_directories(&self.root.join(OUTSIDE), 2, &mut found);
        found
    }

    /// Whether any program was ever started with its records below `directory`.
    pub(crate) fn has_processes(directory: &Path) -> bool {
        let mut found = Vec::new();
        collect_process_directories(directory, 1, &mut found);
        !found.is_empty()
    }

    fn lock_file(&self) -> PathBuf {
        self.root.join("lock")
    }
}

/// Longest record that is read.
const LONGEST_RECORD: u64 = 256 << 20;
/// Where programs outside of the boundary of the run have their records.
const OUTSIDE: &str = "outside";
/// The name of the worktree that nodes share when the graph lets them.
pub(crate) const MAIN_PLACE: &str = "main";

const LOCK_PATIENCE: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Held by the one control plane that drives a run; released by the system when it dies, so a run
/// whose lock is free and that has no terminal status was interrupted.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

/// Why a run cannot be driven.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process drives it.
    #[error("the run is driven by process {}", owner.map_or_else(|| "unknown".to_owned(), |owner| owner.pid.to_string()))]
    Held {
        /// Which one, when it could be read.
        owner: Option<ProcessIdentity>,
    },
    /// The lock file cannot be used.
    #[error("cannot lock the run directory")]
    Io(#[source] io::Error),
}

impl RunLock {
    /// Takes the lock of the run in `directory`. Waits a second at most: a command that
    /// only asks who the owner is holds the lock for an instant, and so does a supervisor that was
    /// being born when its control plane was killed.
    pub fn take(directory: &RunDirectory) -> Result<Self, LockError> {
        let path = directory.lock_file();
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| LockError::Io(named(&path, &error)))?;
        let mut patience = LOCK_PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if patience > 0 => {
                    patience -= 1;
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(LockError::Held {
                        owner: read_owner(&mut file),
                    });
                }
                Err(TryLockError::Error(error)) => {
                    return Err(LockError::Io(named(&path, &error)));
                }
            }
        }
        let owner = sys::own_identity().map_err(LockError::Io)?;
        (|| {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(format!("{} {}\n", owner.pid, owner.start_ticks).as_bytes())
        })()
        .map_err(|error| LockError::Io(named(&path, &error)))?;
        Ok(Self { _file: file })
    }

    /// Who drives the run in `directory` now; `None` when nobody does.
    pub fn owner(directory: &RunDirectory) -> io::Result<Option<Owner>> {
        let path = directory.lock_file();
        let mut file = match File::options().read(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(named(&path, &error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(Owner {
                identity: read_owner(&mut file),
            })),
            Err(TryLockError::Error(error)) => Err(named(&path, &error)),
        }
    }
}

/// The process that drives a run.
#[derive(Debug, Clone, Copy)]
pub struct Owner {
    /// Absent for the instant between taking the lock and writing the name.
    pub identity: Option<ProcessIdentity>,
}

/// Writes `value` as JSON so that a reader sees the old file or the new one, never a part.
pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value).map_err(io::Error::other)?;
    text.push(b'\n');
    write_atomically(path, &text)
}

/// Writes `bytes` so that a reader sees the old file or the new one, never a part.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_atomically_by(path, |file| file.write_all(bytes))
}

/// Lets `write` write a file so that a reader sees the old one or the new one, never a part.
pub(crate) fn write_atomically_by<E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut fs_err::File) -> Result<(), E>,
) -> Result<(), E> {
    let (directory, name) = strict_parent(path)?;
    let mut draft = name.to_owned();
    draft.push(".new");
    // Whatever is in its place, by an earlier control plane or by a program.
    match directory.remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let file = directory.create(Path::new(&draft), OFlags::EXCL)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    write(&mut fs_err::File::from_parts(file, path))?;
    Ok(directory.rename(&draft, name)?)
}

/// The directory of `path`, and its name there. Programs may write to directories of a run and put
/// links there; none of them is followed.
fn strict_parent(path: &Path) -> io::Result<(Directory, &OsStr)> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((Directory::open_strictly(parent)?, name)),
        _ => Err(named(path, &io::ErrorKind::InvalidInput.into())),
    }
}

/// Reads a JSON file that [`write_json`] wrote.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let (directory, name) = strict_parent(path)?;
    let bytes = directory.read(Path::new(name), LONGEST_RECORD, Links::Refused)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}: {error}", path.display()),
        )
    })
}

/// Makes the directory of all runs, for the user alone. On the way to it may be links.
pub(super) fn make_runs(home: &Path) -> io::Result<()> {
    let path = home.join("runs");
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(&path);
    made.map_err(|error| named(&path, &error))
}

/// Makes `path` and its parents, for the user alone, without following any link.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    match Directory::open_strictly(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found.map(drop),
    }
    if let Some(parent) = path.parent() {
        make_directory(parent)?;
    }
    let (directory, name) = strict_parent(path)?;
    directory.make_private_directory(name)?;
    Directory::open_strictly(path).map(drop)
}

/// Where the attempt whose directory is `attempt` has what is outside of the boundary.
pub(super) fn outside_of(attempt: &Path) -> Option<PathBuf> {
    let node = attempt.parent()?;
    let root = node.parent()?.parent()?;
    let path = root.join(OUTSIDE).join(node.file_name()?);
    Some(path.join(attempt.file_name()?))
}

pub(super) fn collect_process_directories(
    directory: &Path,
    depth: usize,
    found: &mut Vec<PathBuf>,
) {
    let Ok(entries) = fs_err::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if path.join(CLAIM).is_file() {
            found.push(path);
        } else if depth > 0 {
            collect_process_directories(&path, depth - 1, found);
        }
    }
}

fn read_owner(file: &mut File) -> Option<ProcessIdentity> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(64).read_to_string(&mut text).ok()?;
    let mut fields = text.split_whitespace();
    let pid = fields.next()?.parse().ok()?;
    let start_ticks = fields.next()?.parse().ok()?;
    Some(ProcessIdentity { pid, start_ticks })
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_at_a_time() {
        let home = tempfile::tempdir().unwrap();
        let directory = RunDirectory::of(home.path(), &RunId::parse("abc").unwrap());
        directory.create().unwrap();
        assert_eq!(
            directory.create().unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert!(RunLock::owner(&directory).unwrap().is_none());

        let lock = RunLock::take(&directory).unwrap();
        let own = sys::own_identity().unwrap();
        let owner = RunLock::owner(&directory).unwrap().unwrap();
        assert_eq!(owner.identity, Some(own));
        assert!(matches!(
            RunLock::take(&directory),
            Err(LockError::Held { owner: Some(found) }) if found == own
        ));
        drop(lock);
        assert!(RunLock::owner(&directory).unwrap().is_none());
        assert!(RunLock::take(&directory).is_ok());
    }

    #[test]
    fn a_json_file_is_whole_or_absent() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x.json");
        write_json(&path, &vec![1, 2]).unwrap();
        assert_eq!(read_json::<Vec<u32>>(&path).unwrap(), [1, 2]);
        fs_err::write(&path, b"{").unwrap();
        let error = read_json::<Vec<u32>>(&path).unwrap_err();
        assert!(error.to_string().contains("x.json"), "{error}");
    }
}
