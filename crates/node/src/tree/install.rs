//! Changing files of a checkout, all or none.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Mode, RenameFlags, Stat, linkat, mkdirat, renameat, renameat_with, statat,
    unlinkat,
};
use rustix::io::Errno;

use super::beneath::{Root, Target, named};
use crate::git::{FileMode, RepoPath};

/// What becomes of one path.
pub(super) struct Step<'a> {
    pub(super) path: &'a RepoPath,
    /// The file that was judged; none when nothing was there.
    pub(super) before: Option<Stat>,
    /// What it becomes; none when it goes.
    pub(super) mode: Option<FileMode>,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Somebody writes there at the same time.
    #[error("{path} was changed while the result was being applied")]
    Raced {
        /// The path.
        path: RepoPath,
    },
    /// The system refused something, and everything was put back.
    #[error("the result could not be applied, and nothing was changed")]
    TakenBack {
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system refused something, and then refused to put it back.
    #[error("the result was applied in part; the files that it replaced are in {}", kept.display())]
    LeftInPart {
        /// Where they are, by number, in the order of their replacement.
        kept: PathBuf,
        /// What the system said first.
        #[source]
        source: io::Error,
    },
}

/// Takes the new files from `staged` into the checkout `root`.
///
/// Everything is prepared in a directory on the same file system first, so that a full disk shows
/// before anything is changed; after that there are only renames. Each is undone when a later one
/// fails. Files that are replaced are never missing in between.
pub(super) fn install(
    root: &Root,
    git_dir: &Path,
    staged: &Path,
    steps: &[Step<'_>],
) -> Result<(), InstallError> {
    let workshop =
        Workshop::open(root, git_dir).map_err(|source| InstallError::TakenBack { source })?;
    let mut installer = Installer {
        root,
        workshop: &workshop,
        undo: Vec::new(),
    };
    let outcome = installer.run(staged, steps);
    let Err(failure) = outcome else {
        workshop.remove();
        return Ok(());
    };
    if installer.take_back().is_err() {
        let source = match failure {
            Failure::System(source) => source,
            Failure::Raced(path) => io::Error::other(format!("{path} was changed meanwhile")),
        };
        return Err(InstallError::LeftInPart {
            kept: workshop.path,
            source,
        });
    }
    workshop.remove();
    Err(match failure {
        Failure::System(source) => InstallError::TakenBack { source },
        Failure::Raced(path) => InstallError::Raced { path },
    })
}

enum Failure {
    System(io::Error),
    Raced(RepoPath),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// A directory for new and replaced files, from which they can be renamed into the checkout.
struct Workshop {
    path: PathBuf,
}

impl Workshop {
    fn open(root: &Root, git_dir: &Path) -> io::Result<Self> {
        // In the git directory nobody sees it, if that is on the same file system.
        let same = fs_err::metadata(git_dir)?.dev() == fs_err::metadata(root.path())?.dev();
        let place = if same { git_dir } else { root.path() };
        let mut number = 0_u32;
        loop {
            let path = place.join(format!(".mini-ork-apply-{}-{number}", std::process::id()));
            match fs_err::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn new_file(&self, number: usize) -> PathBuf {
        self.path.join(format!("{number}.new"))
    }

    fn old_file(&self, number: usize) -> PathBuf {
        self.path.join(format!("{number}.old"))
    }

    fn remove(&self) {
        // A leftover does no harm, and the work is done.
        drop(fs_err::remove_dir_all(&self.path));
    }
}

enum Undo<'a> {
    Restore { path: &'a RepoPath, kept: PathBuf },
    Remove { path: &'a RepoPath },
    RemoveDirectory { path: Vec<u8> },
    MakeDirectory { path: Vec<u8>, mode: Mode },
}

struct Installer<'a> {
    root: &'a Root,
    workshop: &'a Workshop,
    undo: Vec<Undo<'a>>,
}

impl<'a> Installer<'a> {
    fn run(&mut self, staged: &Path, steps: &[Step<'a>]) -> Result<(), Failure> {
        for (number, step) in steps.iter().enumerate() {
            if let Some(mode) = step.mode {
                self.prepare(&staged.join(step.path.as_path()), number, step, mode)?;
            }
        }
        // Deletions first: a file may have to make way for a directory, and the other way round.
        for (number, step) in steps.iter().enumerate() {
            if step.mode.is_none() {
                self.delete(number, step)?;
            }
        }
        for (number, step) in steps.iter().enumerate() {
            if step.mode.is_some() {
                self.place(number, step)?;
            }
        }
        Ok(())
    }

    fn prepare(
        &self,
        staged: &Path,
        number: usize,
        step: &Step<'a>,
        mode: FileMode,
    ) -> io::Result<()> {
        let new = self.workshop.new_file(number);
        if mode == FileMode::Symlink {
            let target = fs_err::read_link(staged)?;
            return fs_err::os::unix::fs::symlink(target, new);
        }
        fs_err::copy(staged, &new)?;
        let Some(before) = step
            .before
            .filter(|stat| stat.st_mode & 0o170_000 == 0o100_000)
        else {
            return Ok(());
        };
        // Who may read it is the user's decision, and is not in the tree.
        let bits = before.st_mode & 0o777;
        let bits = match mode {
            FileMode::Executable => bits | (bits & 0o444) >> 2,
            _ => bits & !0o111,
        };
        fs_err::set_permissions(&new, std::fs::Permissions::from_mode(bits))
    }

    fn delete(&mut self, number: usize, step: &Step<'a>) -> Result<(), Failure> {
        let target = self.root.target(step.path.as_bytes())?;
        self.check(step, &target)?;
        let kept = self.workshop.old_file(number);
        renameat(&target.parent, target.name, CWD, &kept)
            .map_err(|error| self.wrap(error, step))?;
        self.undo.push(Undo::Restore {
            path: step.path,
            kept,
        });
        // As git does: a directory is there for what is in it.
        let parents: Vec<&[u8]> = step.path.parents().collect();
        for parent in parents.into_iter().rev() {
            let target = self.root.target(parent)?;
            let mode = self.mode_of(&target, step)?;
            match unlinkat(&target.parent, target.name, AtFlags::REMOVEDIR) {
                Ok(()) => {
                    self.undo.push(Undo::MakeDirectory {
                        path: parent.to_vec(),
                        mode,
                    });
                }
                Err(Errno::NOTEMPTY | Errno::EXIST) => break,
                Err(error) => return Err(self.wrap(error, step).into()),
            }
        }
        Ok(())
    }

    fn place(&mut self, number: usize, step: &Step<'a>) -> Result<(), Failure> {
        let parents: Vec<&[u8]> = step.path.parents().collect();
        for parent in parents {
            let target = self.root.target(parent)?;
            match mkdirat(&target.parent, target.name, Mode::from_raw_mode(0o777)) {
                Ok(()) => self.undo.push(Undo::RemoveDirectory {
                    path: parent.to_vec(),
                }),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(self.wrap(error, step).into()),
            }
        }
        let target = self.root.target(step.path.as_bytes())?;
        let new = self.workshop.new_file(number);
        if step
            .before
            .is_some_and(|stat| stat.st_mode & 0o170_000 != 0o040_000)
        {
            self.check(step, &target)?;
            let kept = self.workshop.old_file(number);
            // A second name for the file; where there is no such thing, its only one.
            let linked = linkat(&target.parent, target.name, CWD, &kept, AtFlags::empty());
            if linked.is_err() {
                renameat(&target.parent, target.name, CWD, &kept)
                    .map_err(|error| self.wrap(error, step))?;
            }
            self.undo.push(Undo::Restore {
                path: step.path,
                kept,
            });
            renameat(CWD, &new, &target.parent, target.name)
                .map_err(|error| self.wrap(error, step))?;
        } else {
            if step.before.is_some() {
                self.make_way(&target, step)?;
            }
            put_new(&new, &target).map_err(|error| match error {
                Errno::EXIST => Failure::Raced(step.path.clone()),
                other => Failure::System(self.wrap(other, step)),
            })?;
            self.undo.push(Undo::Remove { path: step.path });
        }
        Ok(())
    }

    /// A directory whose files have all been deleted goes, with the empty ones in it.
    fn make_way(&mut self, target: &Target<'_>, step: &Step<'a>) -> Result<(), Failure> {
        let mut directories = Vec::new();
        let inner = match Root::open(&self.root.path().join(step.path.as_path())) {
            Ok(inner) => inner,
            // The last deletion took it along.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        super::walk::walk(&inner, &mut |found| {
            if let super::walk::Found::Entry { path, .. } = found {
                directories.push([step.path.as_bytes(), b"/", path].concat());
            }
            Ok(true)
        })?;
        for path in directories.into_iter().rev() {
            let target = self.root.target(&path)?;
            self.remove_directory(&target, path.clone(), step)?;
        }
        self.remove_directory(target, step.path.as_bytes().to_vec(), step)
    }

    fn remove_directory(
        &mut self,
        target: &Target<'_>,
        path: Vec<u8>,
        step: &Step<'a>,
    ) -> Result<(), Failure> {
        let mode = self.mode_of(target, step)?;
        match unlinkat(&target.parent, target.name, AtFlags::REMOVEDIR) {
            Ok(()) => {
                self.undo.push(Undo::MakeDirectory { path, mode });
                Ok(())
            }
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {
                Err(Failure::Raced(step.path.clone()))
            }
            Err(error) => Err(self.wrap(error, step).into()),
        }
    }

    /// Fails when the file is another than the one that was judged.
    fn check(&self, step: &Step<'a>, target: &Target<'_>) -> Result<(), Failure> {
        let now = match statat(&target.parent, target.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(identity(&stat)),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(self.wrap(error, step).into()),
        };
        if now == step.before.as_ref().map(identity) {
            Ok(())
        } else {
            Err(Failure::Raced(step.path.clone()))
        }
    }

    fn mode_of(&self, target: &Target<'_>, step: &Step<'a>) -> io::Result<Mode> {
        let stat = statat(&target.parent, target.name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| self.wrap(error, step))?;
        Ok(Mode::from_raw_mode(stat.st_mode))
    }

    /// Undoes everything, last first. Goes on after a failure, and tells of it.
    fn take_back(&mut self) -> io::Result<()> {
        let mut outcome = Ok(());
        while let Some(undo) = self.undo.pop() {
            if let Err(error) = self.undo_one(&undo) {
                outcome = Err(error);
            }
        }
        outcome
    }

    fn undo_one(&self, undo: &Undo<'a>) -> io::Result<()> {
        let path = match undo {
            Undo::Restore { path, .. } | Undo::Remove { path } => path.as_bytes(),
            Undo::RemoveDirectory { path } | Undo::MakeDirectory { path, .. } => path,
        };
        let target = self.root.target(path)?;
        let done = match undo {
            Undo::Restore { kept, .. } => renameat(CWD, kept, &target.parent, target.name),
            Undo::Remove { .. } => unlinkat(&target.parent, target.name, AtFlags::empty()),
            Undo::RemoveDirectory { .. } => {
                unlinkat(&target.parent, target.name, AtFlags::REMOVEDIR)
            }
            Undo::MakeDirectory { mode, .. } => mkdirat(&target.parent, target.name, *mode),
        };
        done.map_err(|error| named(error, &self.root.path().join(OsStr::from_bytes(path))))
    }

    fn wrap(&self, error: Errno, step: &Step<'a>) -> io::Error {
        named(error, &self.root.path().join(step.path.as_path()))
    }
}

/// Renames without replacing anything.
fn put_new(new: &Path, target: &Target<'_>) -> Result<(), Errno> {
    let parent: &OwnedFd = &target.parent;
    match renameat_with(CWD, new, parent, target.name, RenameFlags::NOREPLACE) {
        // Some file systems do not know how to promise that.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            match statat(parent, target.name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => renameat(CWD, new, parent, target.name),
                Err(error) => Err(error),
            }
        }
        other => other,
    }
}

/// What changes whenever a file is written or replaced.
fn identity(stat: &Stat) -> (u64, u64, u32, i64, i64, i64) {
    (
        stat.st_dev,
        stat.st_ino,
        stat.st_mode,
        stat.st_size,
        stat.st_mtime,
        stat.st_mtime_nsec as i64,
    )
}
