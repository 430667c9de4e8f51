//! Reading and making objects in a run's own object store.

use std::io::Write;

use super::control::ControlGit;
use super::error::GitError;
use super::id::{CommitId, FileMode, ObjectFormat, ObjectId, RepoPath, TreeId};
use super::repository::{parse_commit, parse_tree};

/// One entry of a tree, with the directories above it in its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// Where it is.
    pub path: RepoPath,
    /// What it is.
    pub mode: FileMode,
    /// Its content.
    pub id: ObjectId,
    /// Bytes of its content as stored; none for a submodule.
    pub size: Option<u64>,
}

/// The content that a path has in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileContent {
    /// What it is.
    pub mode: FileMode,
    /// The content, or the target of a symbolic link.
    pub bytes: Vec<u8>,
}

/// What becomes of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// It is no longer there. No error when it was not.
    Remove,
    /// It has this content.
    Write {
        /// What it is; not a submodule.
        mode: FileMode,
        /// The content.
        bytes: Vec<u8>,
    },
    /// It is what another tree has there.
    Take {
        /// What it is.
        mode: FileMode,
        /// Its content.
        id: ObjectId,
    },
}

impl ControlGit {
    /// Everything in `tree` but directories, in the order of the tree.
    pub fn list(&self, tree: &TreeId) -> Result<Vec<TreeEntry>, GitError> {
        let listing = self
            .command("ls-tree")
            .args(["-r", "-l", "-z", "--full-tree"])
            .arg(tree)
            .run()?;
        parse_tree_listing("ls-tree", &listing, true)
    }

    /// What `path` has in `tree`; none when it is not there, or is a directory or submodule.
    /// Content of more than 1 GiB is an error.
    pub fn read_blob(
        &self,
        tree: &TreeId,
        path: &RepoPath,
    ) -> Result<Option<FileContent>, GitError> {
        let listing = self
            .command("ls-tree")
            .args(["-z", "--full-tree"])
            .arg(tree)
            .arg("--")
            .arg(path.as_path())
            .run()?;
        // A directory is listed as a tree, which is no mode of ours.
        let Some(record) = records(&listing).find(|record| !record.starts_with(b"040000")) else {
            return Ok(None);
        };
        let entry = parse_tree_entry("ls-tree", record, false)?;
        if entry.mode == FileMode::Submodule || entry.path != *path {
            return Ok(None);
        }
        let bytes = self.command("cat-file").arg("blob").arg(&entry.id).run()?;
        Ok(Some(FileContent {
            mode: entry.mode,
            bytes,
        }))
    }

    /// Writes the content of a blob to `sink`.
    pub fn write_object(
        &self,
        id: &ObjectId,
        sink: &mut (dyn Write + Send),
    ) -> Result<(), GitError> {
        self.command("cat-file").arg("blob").arg(id).run_to(sink)
    }

    /// `base` with the edits made. A path that is written takes the place of a file that one of its
    /// directories was, and of a directory that it was. The order of the edits does not matter, as
    /// long as no path is given twice and no written path lies below another.
    pub fn overlay(&self, base: &TreeId, edits: &[(RepoPath, Edit)]) -> Result<TreeId, GitError> {
        let scratch = self.scratch()?;
        let index = scratch.path().join("index");
        let command = |name| self.command(name).env("GIT_INDEX_FILE", &index);
        command("read-tree").arg(base).run()?;
        let null_id = self.object_format().null_id();
        let (mut removals, mut writes) = (Vec::new(), Vec::new());
        for (path, edit) in edits {
            match edit {
                Edit::Remove => push_index_record(&mut removals, "0", &null_id, path.as_bytes()),
                Edit::Write { mode, bytes } => {
                    let id = self.write_blob(bytes)?;
                    push_index_record(&mut writes, mode.as_str(), id.as_str(), path.as_bytes());
                }
                Edit::Take { mode, id } => {
                    push_index_record(&mut writes, mode.as_str(), id.as_str(), path.as_bytes());
                }
            }
        }
        removals.append(&mut writes);
        if !removals.is_empty() {
            command("update-index")
                .args(["--replace", "-z", "--index-info"])
                .input(removals)
                .run()?;
        }
        parse_tree("write-tree", &command("write-tree").run()?)
    }

    /// A commit of `tree` by `mini-ork <mini-ork@local>` at `seconds` since the Unix epoch, never
    /// signed. The same arguments give the same id.
    pub fn commit(
        &self,
        tree: &TreeId,
        parents: &[CommitId],
        message: &str,
        seconds: i64,
    ) -> Result<CommitId, GitError> {
        let time = format!("@{seconds} +0000");
        let parents = parents.iter().flat_map(|parent| ["-p", parent.as_str()]);
        let output = self
            .command("commit-tree")
            .arg(tree)
            .args(parents)
            .args(["-F", "-"])
            .env("GIT_AUTHOR_DATE", &time)
            .env("GIT_COMMITTER_DATE", &time)
            .input(message.as_bytes().to_vec())
            .run()?;
        parse_commit("commit-tree", &output)
    }

    fn write_blob(&self, bytes: &[u8]) -> Result<ObjectId, GitError> {
        let output = self
            .command("hash-object")
            .args(["-w", "--stdin"])
            .input(bytes.to_vec())
            .run()?;
        parse_object("hash-object", output.trim_ascii_end())
    }
}

/// NUL-terminated records.
pub(super) fn records(output: &[u8]) -> impl Iterator<Item = &[u8]> {
    output
        .split(|byte| *byte == 0)
        .filter(|record| !record.is_empty())
}

/// A line for `update-index -z --index-info`; mode `0` removes.
pub(crate) fn push_index_record(input: &mut Vec<u8>, mode: &str, id: &str, path: &[u8]) {
    input.extend_from_slice(mode.as_bytes());
    input.push(b' ');
    input.extend_from_slice(id.as_bytes());
    input.push(b'\t');
    input.extend_from_slice(path);
    input.push(0);
}

pub(super) fn parse_object(command: &'static str, hex: &[u8]) -> Result<ObjectId, GitError> {
    ObjectId::parse(&String::from_utf8_lossy(hex)).map_err(|error| GitError::Unreadable {
        command,
        what: error.to_string(),
    })
}

pub(super) fn parse_path(command: &'static str, path: &[u8]) -> Result<RepoPath, GitError> {
    RepoPath::new(path).map_err(|error| GitError::Unreadable {
        command,
        what: error.to_string(),
    })
}

pub(super) fn parse_tree_listing(
    command: &'static str,
    listing: &[u8],
    with_size: bool,
) -> Result<Vec<TreeEntry>, GitError> {
    records(listing)
        .map(|record| parse_tree_entry(command, record, with_size))
        .collect()
}

/// `<mode> <type> <id>[ <size>]\t<path>`, the size padded with blanks.
fn parse_tree_entry(
    command: &'static str,
    record: &[u8],
    with_size: bool,
) -> Result<TreeEntry, GitError> {
    let unreadable = || GitError::Unreadable {
        command,
        what: format!("entry `{}`", record.escape_ascii()),
    };
    let tab = record
        .iter()
        .position(|byte| *byte == b'\t')
        .ok_or_else(unreadable)?;
    let mut fields = record[..tab]
        .split(|byte| *byte == b' ')
        .filter(|field| !field.is_empty());
    let mode = fields
        .next()
        .and_then(FileMode::parse)
        .ok_or_else(unreadable)?;
    let id = fields.nth(1).ok_or_else(unreadable)?;
    let size = match (with_size, fields.next()) {
        (true, Some(b"-")) | (false, None) => None,
        (true, Some(size)) => {
            let text = std::str::from_utf8(size).map_err(|_| unreadable())?;
            Some(text.parse().map_err(|_| unreadable())?)
        }
        _ => return Err(unreadable()),
    };
    Ok(TreeEntry {
        path: parse_path(command, &record[tab + 1..])?,
        mode,
        id: parse_object(command, id)?,
        size,
    })
}

impl ObjectFormat {
    /// The id of the empty blob, which git knows without storing it.
    pub(crate) fn empty_blob(self) -> &'static str {
        match self {
            Self::Sha1 => "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
            Self::Sha256 => "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn listings_are_read() {
        let id = "a".repeat(40);
        let listing =
            format!("100755 blob {id}      12\ta b\nc\x00160000 commit {id}       -\tsub\0");
        let entries = parse_tree_listing("ls-tree", listing.as_bytes(), true).unwrap();
        assert_eq!(entries[0].path.as_bytes(), b"a b\nc");
        assert_eq!(
            (entries[0].mode, entries[0].size),
            (FileMode::Executable, Some(12))
        );
        assert_eq!(
            (entries[1].mode, entries[1].size),
            (FileMode::Submodule, None)
        );
        for bad in [
            format!("100644 blob {id} 1\t../x"),
            format!("040000 tree {id} -\tx"),
            format!("100644 blob {id} x\tx"),
            "100644 blob zz 1\tx".to_owned(),
            "100644".to_owned(),
        ] {
            assert!(
                parse_tree_listing("ls-tree", bad.as_bytes(), true).is_err(),
                "{bad}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_listing_makes_the_parser_panic(mut output in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(parse_tree_listing("ls-tree", &output, true));
            output.splice(0..0, b"100644 blob ".iter().copied());
            drop(parse_tree_listing("ls-tree", &output, false));
        }

        #[test]
        fn entries_are_read_back(path in prop::collection::vec(1_u8.., 1..30), size: u64) {
            if let Ok(path) = RepoPath::new(path) {
                let mut record = format!("120000 blob {} {size:>7}\t", "b".repeat(64)).into_bytes();
                record.extend_from_slice(path.as_bytes());
                let entry = parse_tree_entry("ls-tree", &record, true).unwrap();
                prop_assert_eq!((entry.path, entry.size), (path, Some(size)));
            }
        }
    }
}
