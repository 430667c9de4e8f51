//! The objects of a hostile git directory, copied to where nothing of it but bytes counts.

use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use rustix::fs::{FileType, Mode, OFlags, chmod, fstat, openat};

use super::super::beneath::{Root, is_absence, named};
use super::super::place::TreeError;
use super::super::walk::{Found, walk};
use super::Safe;
use crate::git::{
    CommitId, ControlGit, GitCommand, GitError, RepoPath, Repository, Scratch, TreeId, alternates,
    parse_tree,
};

/// Most objects that lie in files of their own.
const MOST_FILES: usize = 200_000;
/// Most bytes of all objects, compressed as they are.
const MOST_BYTES: u64 = 1 << 30;
const LONGEST_INDEX: u64 = 256 << 20;

/// What the `.git` of a directory has for itself.
pub(super) enum Private {
    /// There is none, or it has no objects: it cannot know a commit that nothing else has.
    Nothing,
    /// What it has lies elsewhere; the sentence says so.
    Elsewhere(String),
    /// Its directory.
    Objects(Root),
}

/// Looks into the `.git` of `root`. A few system calls.
pub(super) fn open_private(root: &Root) -> io::Result<Private> {
    let git = match root.enter(b".git") {
        Ok(git) => git,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Private::Nothing),
        Err(error) if is_absence(&error) => {
            let what = "its `.git` is no directory, so what it stands for is not known";
            return Ok(Private::Elsewhere(what.to_owned()));
        }
        Err(error) => return Err(error),
    };
    let objects = match git.enter(b"objects") {
        Ok(objects) => objects,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Private::Nothing),
        Err(error) if is_absence(&error) => {
            let what = "the objects of its `.git` lie elsewhere";
            return Ok(Private::Elsewhere(what.to_owned()));
        }
        Err(error) => return Err(error),
    };
    let mut some = false;
    walk(&objects, &mut |found| {
        match found {
            Found::Entry { path, .. } => match *path {
                b"info" => return Ok(false),
                b"pack" => return Ok(true),
                _ => some = true,
            },
            Found::Closed { .. } | Found::TooLong { .. } => some = true,
            Found::Empty { .. } => {}
        }
        Ok(false)
    })?;
    Ok(if some {
        Private::Objects(git)
    } else {
        Private::Nothing
    })
}

/// An object directory of ours with the copies in it. It borrows from the run's store and the
/// user's, and from nowhere else, whatever the original says. Gone when dropped.
#[derive(Debug)]
pub(super) struct Quarantine {
    scratch: Scratch,
    objects: PathBuf,
}

impl Quarantine {
    /// Copies the objects of `git`; or the sentence that says why they cannot all be copied.
    pub(super) fn fill(
        control: &ControlGit,
        repository: &Repository,
        git: &Root,
    ) -> Result<Result<Self, String>, TreeError> {
        let (loose, packs) = match object_files(git)? {
            Ok(files) => files,
            Err(obstacle) => return Ok(Err(obstacle)),
        };
        let scratch = control.scratch()?;
        let objects = scratch.path().join("objects");
        fs_err::create_dir_all(objects.join("info"))?;
        fs_err::create_dir_all(objects.join("pack"))?;
        fs_err::write(
            objects.join("info/alternates"),
            alternates(&[&control.objects(), &repository.object_directory]),
        )?;
        let quarantine = Self { scratch, objects };
        let mut left = MOST_BYTES;
        for path in loose {
            let Some(mut from) = open(git, &path)? else {
                continue;
            };
            let length = from.metadata()?.len();
            if length > left {
                return Ok(Err(too_much()));
            }
            left -= length;
            let Some(name) = path.as_bytes().strip_prefix(b"objects/") else {
                continue;
            };
            let to = quarantine.objects.join(text(name));
            if let Some(directory) = to.parent() {
                fs_err::create_dir_all(directory)?;
            }
            let mut to = fs_err::File::create(to)?;
            io::copy(&mut io::Read::take(&mut from, length), &mut to)?;
            to.flush()?;
        }
        for path in packs {
            let Some(from) = open(git, &path)? else {
                continue;
            };
            let length = from.metadata()?.len();
            if length > left {
                return Ok(Err(too_much()));
            }
            left -= length;
            // The index beside a pack is what somebody says is in it; this reads it.
            let taken = quarantine
                .command(control, "index-pack")
                .args(["--stdin", "--fix-thin"])
                .arg(format!("--max-input-size={length}"))
                .input_file(from)
                .run();
            if let Err(error) = taken {
                let name = path.as_bytes().escape_ascii();
                return Ok(Err(format!("`.git/{name}` cannot be read: {error}")));
            }
        }
        Ok(Ok(quarantine))
    }

    /// A command of our git directory that also sees the copies, and writes beside them.
    pub(super) fn command<'a>(
        &self,
        control: &'a ControlGit,
        command: &'static str,
    ) -> GitCommand<'a> {
        control
            .command(command)
            .env("GIT_OBJECT_DIRECTORY", &self.objects)
    }

    /// The objects that `revisions` ask for and that are only here, as a file.
    pub(super) fn pack(
        &self,
        control: &ControlGit,
        revisions: Vec<u8>,
    ) -> Result<std::fs::File, GitError> {
        let mut pack = fs_err::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(self.scratch.path().join("pack"))?;
        self.command(control, "pack-objects")
            .args(["--revs", "--local", "--thin", "--stdout", "--quiet"])
            .input(revisions)
            .run_to(&mut pack)?;
        io::Seek::rewind(&mut pack)?;
        Ok(pack.into_parts().0)
    }

    /// What is staged, as a tree and a commit of it; none when nothing is, or when a merge is in
    /// progress there: then every version comes from a commit. Or the sentence that says why that
    /// cannot be read.
    pub(super) fn staged(
        &self,
        control: &ControlGit,
        git: &Root,
        safe: &Safe,
    ) -> Result<Result<Option<(TreeId, CommitId)>, String>, TreeError> {
        let path = RepoPath::new("index").map_err(|error| io::Error::other(error.to_string()))?;
        let Some(mut from) = open(git, &path)? else {
            return Ok(Ok(None));
        };
        if from.metadata()?.len() > LONGEST_INDEX {
            return Ok(Err("the index in its `.git` is too large".to_owned()));
        }
        let copy = self.scratch.path().join("index");
        io::copy(
            &mut io::Read::take(&mut from, LONGEST_INDEX),
            &mut fs_err::File::create(&copy)?,
        )?;
        let command = |name| self.command(control, name).env("GIT_INDEX_FILE", &copy);
        let staged = command("ls-files")
            .args(["-u", "-z"])
            .run()
            .and_then(|unmerged| {
                if unmerged.is_empty() {
                    Ok(Some(parse_tree(
                        "write-tree",
                        &command("write-tree").run()?,
                    )?))
                } else {
                    Ok(None)
                }
            });
        let tree = match staged {
            Ok(Some(tree)) => tree,
            Ok(None) => return Ok(Ok(None)),
            Err(error) => return Ok(Err(format!("what is staged cannot be read: {error}"))),
        };
        let time = format!("@{} +0000", safe.seconds);
        let commit = self
            .command(control, "commit-tree")
            .arg(&tree)
            .args(["-p", safe.base.as_str(), "-F", "-"])
            .env("GIT_AUTHOR_DATE", &time)
            .env("GIT_COMMITTER_DATE", &time)
            .input(b"mini-ork: rescued staged files\n".to_vec())
            .run()?;
        let commit =
            CommitId::parse(String::from_utf8_lossy(&commit).trim_end()).map_err(|error| {
                GitError::Unreadable {
                    command: "commit-tree",
                    what: error.to_string(),
                }
            })?;
        Ok(Ok(Some((tree, commit))))
    }
}

/// Files that are not readable for their owner; the superuser reads them anyway.
pub(super) fn closed_files(root: &Root) -> io::Result<Vec<Vec<u8>>> {
    let mut closed = Vec::new();
    walk(root, &mut |found| {
        if let Found::Entry {
            path,
            kind: FileType::RegularFile,
            ..
        } = found
            && found.stat()?.is_some_and(|stat| stat.st_mode & 0o400 == 0)
        {
            closed.push(path.to_vec());
        }
        let git = matches!(found, Found::Entry { name, .. } if *name == b".git");
        Ok(!git)
    })?;
    Ok(closed)
}

/// Lets the owner read the file at `path`.
pub(super) fn open_file_up(root: &Root, path: &[u8]) -> io::Result<()> {
    let target = root.target(path)?;
    let wrap = |error| named(error, &root.path().join(text(path)));
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = openat(&target.parent, target.name, flags, Mode::empty()).map_err(wrap)?;
    let mode = fstat(&handle).map_err(wrap)?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::RegularFile {
        return Ok(());
    }
    // Such a handle cannot be changed itself, but what it stands for can.
    let through = format!("/proc/self/fd/{}", handle.as_raw_fd());
    chmod(through, Mode::from_raw_mode(mode) | Mode::RUSR).map_err(wrap)
}

type ObjectFiles = (Vec<RepoPath>, Vec<RepoPath>);

/// The loose objects and the packs below `objects`.
fn object_files(git: &Root) -> io::Result<Result<ObjectFiles, String>> {
    let (mut loose, mut packs) = (Vec::new(), Vec::new());
    let mut obstacle = None;
    walk(git, &mut |found| {
        let (path, kind) = match found {
            Found::Entry { path, kind, .. } => (*path, *kind),
            Found::Closed { path } if path.starts_with(b"objects") => {
                obstacle = Some(format!("`.git/{}` cannot be read", path.escape_ascii()));
                return Ok(false);
            }
            _ => return Ok(false),
        };
        if path == b"objects" {
            return Ok(kind == FileType::Directory);
        }
        let Some(inner) = path.strip_prefix(b"objects/") else {
            return Ok(false);
        };
        if kind == FileType::Symlink {
            // What it leads to is not for the directory to give away.
            obstacle = Some(format!("`.git/{}` is a link", path.escape_ascii()));
            return Ok(false);
        }
        let mut parts = inner.split(|byte| *byte == b'/');
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        let fan = first.len() == 2 && is_hex(first);
        match (kind, second) {
            (FileType::Directory, None) => return Ok(fan || first == b"pack"),
            (FileType::RegularFile, Some(name)) => {
                let Ok(path) = RepoPath::new(path) else {
                    return Ok(false);
                };
                if fan && is_hex(name) && matches!(name.len(), 38 | 62) {
                    loose.push(path);
                } else if first == b"pack" && name.ends_with(b".pack") {
                    packs.push(path);
                }
            }
            _ => {}
        }
        if loose.len() + packs.len() > MOST_FILES {
            obstacle = Some(format!("its `.git` has more than {MOST_FILES} objects"));
        }
        Ok(false)
    })?;
    Ok(match obstacle {
        Some(obstacle) => Err(obstacle),
        None => Ok((loose, packs)),
    })
}

/// None for what is no regular file any more.
fn open(git: &Root, path: &RepoPath) -> io::Result<Option<std::fs::File>> {
    match git.open_file(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(Some(file)),
        Ok(_) => Ok(None),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_hex(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn too_much() -> String {
    format!(
        "the objects of its `.git` take more than {} MiB",
        MOST_BYTES >> 20
    )
}

fn text(path: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(path)
}
