//! What a directory holds that a tree of git does not.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use mini_ork_protocol::ByteString;
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::beneath::Root;
use super::place::{TreeError, WorktreePlace};
use super::survey::survey;
use super::walk::Found;
use crate::git::{ControlGit, FileMode, RawChange, RepoPath, TreeId, parse_tree, read_if_there};

/// A report is read by people.
const LONGEST_LIST: usize = 500;

/// What was left behind, in the order of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCarriedList {
    /// At most 500.
    pub entries: Vec<NotCarried>,
    /// How many more there are.
    pub more: u64,
}

/// One thing that was left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCarried {
    /// Relative to the directory. Bytes: it need not be a path that a tree could have.
    pub path: ByteString,
    /// What about it.
    pub kind: NotCarriedKind,
}

/// What is left behind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotCarriedKind {
    /// A file, or a directory with all that is in it, that rules tell git to ignore.
    Ignored,
    /// A directory without entries.
    EmptyDirectory,
    /// The `.git` of a repository in this directory; its other files are carried.
    NestedGit,
    /// What is in the directory of a submodule.
    SubmoduleContent,
    /// A name that git refuses, because some file system takes it for `.git`.
    ForbiddenName,
    /// A path that is too long for git.
    PathTooLong,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A device, or something that has no name here.
    Device,
    /// Permission bits that a fresh file would not have.
    ModeBits {
        /// All of them.
        mode: u32,
    },
    /// A file that has other names; the files are carried, and are separate there.
    HardLink,
    /// Bytes: line endings, `$Id$` or the encoding are not as the attributes say they should be,
    /// and will be when the tree is written out.
    Normalised,
}

impl ControlGit {
    /// What the directory of `place` holds that its last snapshot does not. `base` is the tree it
    /// was made from. To be called right after [`ControlGit::snapshot`].
    pub fn not_carried(
        &self,
        place: &WorktreePlace,
        base: &TreeId,
    ) -> Result<NotCarriedList, TreeError> {
        let _lock = place.lock()?;
        let root = Root::open(&place.path)?;
        let tracked = self.tracked(place)?;
        let mut found: Vec<(Vec<u8>, NotCarriedKind)> = Vec::new();

        let listing = self
            .place_command("ls-files", place)
            .args([
                "--others",
                "--ignored",
                "--exclude-standard",
                "--directory",
                "-z",
            ])
            .run()?;
        let ignored: HashSet<&[u8]> = listing
            .split(|byte| *byte == 0)
            .filter(|path| !path.is_empty())
            .map(|path| path.strip_suffix(b"/").unwrap_or(path))
            .collect();
        // Git lists a directory and what is in it, when that is all it has.
        let inside = |path: &[u8]| {
            let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            slashes
                .into_iter()
                .any(|(end, _)| ignored.contains(&path[..end]))
        };
        let outermost = ignored.iter().filter(|path| !inside(path));
        found.extend(outermost.map(|path| (path.to_vec(), NotCarriedKind::Ignored)));

        let modes = UsualModes::of(&place.index_file)?;
        let mut links: HashMap<(u64, u64), Vec<Vec<u8>>> = HashMap::new();
        let survey = survey(&root, &tracked.submodules, &mut |entry| {
            let Found::Entry { path, kind, .. } = entry else {
                return Ok(false);
            };
            if ignored.contains(*path) {
                return Ok(false);
            }
            if let Some(stat) = entry.stat()?
                && *kind != FileType::Symlink
            {
                let mode = stat.st_mode & 0o7777;
                if !modes.contains(mode, *kind == FileType::Directory) {
                    found.push((path.to_vec(), NotCarriedKind::ModeBits { mode }));
                }
                if *kind == FileType::RegularFile && stat.st_nlink > 1 {
                    links
                        .entry((stat.st_dev, stat.st_ino))
                        .or_default()
                        .push(path.to_vec());
                }
            }
            Ok(true)
        })?;
        found.extend(
            links
                .into_values()
                .flatten()
                .map(|path| (path, NotCarriedKind::HardLink)),
        );
        let plain = [
            (survey.nested, NotCarriedKind::NestedGit),
            (survey.forbidden, NotCarriedKind::ForbiddenName),
            (survey.too_long, NotCarriedKind::PathTooLong),
            (survey.filled_submodules, NotCarriedKind::SubmoduleContent),
        ];
        for (paths, kind) in plain {
            found.extend(paths.into_iter().map(|path| (path, kind.clone())));
        }
        // These are not in git's list even when they are ignored.
        let special = survey.special.into_iter().map(|(path, kind)| match kind {
            FileType::Fifo => (path, NotCarriedKind::Pipe),
            FileType::Socket => (path, NotCarriedKind::Socket),
            _ => (path, NotCarriedKind::Device),
        });
        let empty = survey
            .empty
            .into_iter()
            .map(|path| (path, NotCarriedKind::EmptyDirectory));
        found.extend(special.chain(empty));
        found.extend(
            self.normalised(place, &root, base)?
                .into_iter()
                .map(|path| (path.as_bytes().to_vec(), NotCarriedKind::Normalised)),
        );
        Ok(bounded(found))
    }

    /// Files whose bytes would be others if the tree were written out.
    fn normalised(
        &self,
        place: &WorktreePlace,
        root: &Root,
        base: &TreeId,
    ) -> Result<Vec<RepoPath>, TreeError> {
        let tree = parse_tree(
            "write-tree",
            &self.place_command("write-tree", place).run()?,
        )?;
        // Files that nobody touched are as git wrote them.
        let changed: Vec<RawChange> = self
            .raw_changes(base, &tree)?
            .into_iter()
            .filter(|change| {
                matches!(
                    change.new,
                    Some((FileMode::Regular | FileMode::Executable, _))
                )
            })
            .collect();
        let converted = self.converted(place, &changed)?;
        if converted.is_empty() {
            return Ok(Vec::new());
        }
        let scratch = self.scratch()?;
        let written = scratch.path().join("written");
        fs_err::create_dir(&written)?;
        let mut option = OsString::from("--prefix=");
        option.push(&written);
        option.push("/");
        let mut input = Vec::new();
        for path in &converted {
            input.extend_from_slice(path.as_bytes());
            input.push(0);
        }
        self.place_command("checkout-index", place)
            .arg(option)
            .args(["-z", "--stdin", "--quiet"])
            .input(input)
            .run()?;
        let mut different = Vec::new();
        for path in converted {
            let file = match root.open_file(&path) {
                Ok(file) => file,
                Err(error) if super::beneath::is_absence(&error) => continue,
                Err(error) => return Err(error.into()),
            };
            let other = fs_err::File::open(written.join(path.as_path()))?;
            if !same_bytes(file, other)? {
                different.push(path);
            }
        }
        Ok(different)
    }

    /// The changed files that some attribute or setting has git convert.
    fn converted(
        &self,
        place: &WorktreePlace,
        changed: &[RawChange],
    ) -> Result<Vec<RepoPath>, TreeError> {
        if changed.is_empty() {
            return Ok(Vec::new());
        }
        let configuration = read_if_there(&self.path().join("config"))?;
        if bstr::ByteSlice::contains_str(configuration.as_slice(), b"autocrlf") {
            return Ok(changed.iter().map(|change| change.path.clone()).collect());
        }
        let mut input = Vec::new();
        for change in changed {
            input.extend_from_slice(change.path.as_bytes());
            input.push(0);
        }
        let output = self
            .place_command("check-attr", place)
            .args([
                "-z",
                "--stdin",
                "text",
                "eol",
                "crlf",
                "ident",
                "working-tree-encoding",
            ])
            .input(input)
            .run()?;
        let fields: Vec<&[u8]> = output.split(|byte| *byte == 0).collect();
        let touched: HashSet<&[u8]> = fields
            .chunks_exact(3)
            .filter(|triple| !matches!(triple[2], b"unspecified" | b"unset"))
            .map(|triple| triple[0])
            .collect();
        let converted = changed
            .iter()
            .filter(|change| touched.contains(change.path.as_bytes()));
        Ok(converted.map(|change| change.path.clone()).collect())
    }
}

/// Permission bits that say nothing: those that a usual umask, or ours, leaves of a fresh file.
struct UsualModes {
    own_umask: u32,
}

impl UsualModes {
    /// Git makes its index with all the bits that our umask allows.
    fn of(index: &Path) -> io::Result<Self> {
        let mode = fs_err::metadata(index)?.mode();
        let group_and_others = !mode & 0o066;
        // The right to enter goes with the right to read, in every umask that anybody uses.
        Ok(Self {
            own_umask: group_and_others | (group_and_others & 0o044) >> 2,
        })
    }

    fn contains(&self, mode: u32, directory: bool) -> bool {
        [self.own_umask, 0o022, 0o002].iter().any(|umask| {
            let executable = 0o777 & !umask;
            mode == executable || !directory && mode == (0o666 & !umask)
        })
    }
}

fn same_bytes(left: impl Read, right: impl Read) -> io::Result<bool> {
    let mut left = io::BufReader::with_capacity(64 << 10, left);
    let mut right = io::BufReader::with_capacity(64 << 10, right);
    loop {
        let (first, second) = (left.fill_buf()?, right.fill_buf()?);
        let count = first.len().min(second.len());
        // An empty buffer is the end of a file.
        if first[..count] != second[..count] || first.is_empty() != second.is_empty() {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
        left.consume(count);
        right.consume(count);
    }
}

fn bounded(found: Vec<(Vec<u8>, NotCarriedKind)>) -> NotCarriedList {
    let ordered: BTreeMap<(Vec<u8>, NotCarriedKind), ()> =
        found.into_iter().map(|entry| (entry, ())).collect();
    let more = ordered.len().saturating_sub(LONGEST_LIST);
    let entries = ordered
        .into_keys()
        .take(LONGEST_LIST)
        .map(|(path, kind)| NotCarried {
            path: ByteString::from(OsStr::from_bytes(&path)),
            kind,
        })
        .collect();
    NotCarriedList {
        entries,
        more: more as u64,
    }
}
