//! What differs between two trees.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::control::ControlGit;
use super::error::GitError;
use super::id::{FileMode, ObjectId, RepoPath, TreeId};
use super::objects::{parse_object, parse_path};

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The path, in the later tree if it is there.
    pub path: RepoPath,
    /// In what way.
    pub kind: ChangeKind,
    /// What it was.
    pub old_mode: Option<FileMode>,
    /// What it is.
    pub new_mode: Option<FileMode>,
    /// Lines that are new; none for a file that is not text.
    pub added_lines: Option<u64>,
    /// Lines that are gone; none for a file that is not text.
    pub removed_lines: Option<u64>,
}

/// How a path differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It was not there.
    Added,
    /// Its content is another, and perhaps its mode.
    Modified,
    /// It is not there any more.
    Deleted,
    /// It has another name, and perhaps another content.
    Renamed {
        /// The name in the earlier tree.
        from: RepoPath,
    },
    /// A file became a link, or the like.
    TypeChanged,
    /// Only its executable bit differs.
    ModeChanged,
}

/// A difference as git tells it, renames not looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawChange {
    pub(crate) path: RepoPath,
    pub(crate) old: Option<(FileMode, ObjectId)>,
    pub(crate) new: Option<(FileMode, ObjectId)>,
}

impl ControlGit {
    /// What turns `before` into `after`, in the order of paths. Empty when they are the same. In
    /// submodules that are here, the files are compared.
    pub fn changes(&self, before: &TreeId, after: &TreeId) -> Result<Vec<Change>, GitError> {
        if before == after {
            return Ok(Vec::new());
        }
        let (before, after) = (&self.expanded(before)?, &self.expanded(after)?);
        let output = self
            .command("diff-tree")
            .args([
                "-r",
                "-z",
                "--raw",
                "--numstat",
                "--find-renames",
                "--no-abbrev",
            ])
            .args(["--no-ext-diff", "--no-textconv"])
            .args([before, after])
            .run()?;
        parse_changes(&output)
    }

    /// The differences as a patch that `git apply` takes, also of files that are not text. No
    /// program of the repository or the user takes part.
    pub fn patch(
        &self,
        before: &TreeId,
        after: &TreeId,
        sink: &mut (dyn Write + Send),
    ) -> Result<(), GitError> {
        self.changes_and_patch(before, after, sink).map(drop)
    }

    /// Both [`Self::changes`] and [`Self::patch`], for the price of one.
    pub fn changes_and_patch(
        &self,
        before: &TreeId,
        after: &TreeId,
        sink: &mut (dyn Write + Send),
    ) -> Result<Vec<Change>, GitError> {
        if before == after {
            return Ok(Vec::new());
        }
        let (before, after) = (&self.expanded(before)?, &self.expanded(after)?);
        let mut splitter = Splitter {
            records: Vec::new(),
            patch: sink,
            in_patch: false,
        };
        self.command("diff-tree")
            .args(["-r", "-z", "--raw", "--numstat", "-p", "--binary"])
            .args(["--find-renames", "--no-abbrev", "--full-index"])
            .args(["--no-color", "--submodule=short"])
            .args(["--no-ext-diff", "--no-textconv"])
            .args([before, after])
            .run_to(&mut splitter)?;
        parse_changes(&splitter.records)
    }

    pub(crate) fn raw_changes(
        &self,
        before: &TreeId,
        after: &TreeId,
    ) -> Result<Vec<RawChange>, GitError> {
        let output = self
            .command("diff-tree")
            .args(["-r", "-z", "--raw", "--no-renames", "--no-abbrev"])
            .args([before, after])
            .run()?;
        let mut fields = Fields::new(&output);
        let mut changes = Vec::new();
        while let Some(header) = fields.next() {
            let header = RawHeader::parse(header)?;
            let path = parse_path(COMMAND, fields.expect("path")?)?;
            changes.push(RawChange {
                path,
                old: header.old,
                new: header.new,
            });
        }
        Ok(changes)
    }
}

const COMMAND: &str = "diff-tree";

/// Takes the records for itself and passes on the patch that follows them. Between the two is an
/// empty field, and no record has one.
struct Splitter<'a> {
    records: Vec<u8>,
    patch: &'a mut (dyn Write + Send),
    in_patch: bool,
}

impl Write for Splitter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.in_patch {
            return self.patch.write(bytes);
        }
        // The two NULs may come in two pieces.
        let seen = self.records.len().saturating_sub(1);
        self.records.extend_from_slice(bytes);
        let fresh = self.records.get(seen..).unwrap_or_default();
        if let Some(at) = fresh.windows(2).position(|pair| pair == [0, 0]) {
            let patch = self.records.split_off(seen + at + 2);
            self.records.pop();
            self.in_patch = true;
            self.patch.write_all(&patch)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.patch.flush()
    }
}

/// NUL-terminated fields; an empty field is one.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn new(output: &'a [u8]) -> Self {
        Self { rest: output }
    }

    fn expect(&mut self, what: &str) -> Result<&'a [u8], GitError> {
        self.next()
            .ok_or_else(|| unreadable(format!("no {what} at its end")))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        let field = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Some(field)
    }
}

/// `:<old mode> <new mode> <old id> <new id> <letter>[<score>]`
struct RawHeader {
    old: Option<(FileMode, ObjectId)>,
    new: Option<(FileMode, ObjectId)>,
    letter: u8,
}

impl RawHeader {
    fn parse(header: &[u8]) -> Result<Self, GitError> {
        let wrong = || unreadable(format!("header `{}`", header.escape_ascii()));
        let fields: Vec<&[u8]> = header
            .strip_prefix(b":")
            .ok_or_else(wrong)?
            .split(|byte| *byte == b' ')
            .collect();
        let [old_mode, new_mode, old_id, new_id, status] = fields[..] else {
            return Err(wrong());
        };
        let side = |mode: &[u8], id: &[u8]| -> Result<Option<(FileMode, ObjectId)>, GitError> {
            if mode == b"000000" {
                return Ok(None);
            }
            Ok(Some((
                FileMode::parse(mode).ok_or_else(wrong)?,
                parse_object(COMMAND, id)?,
            )))
        };
        Ok(Self {
            old: side(old_mode, old_id)?,
            new: side(new_mode, new_id)?,
            letter: *status.first().ok_or_else(wrong)?,
        })
    }

    fn kind(&self, from: Option<RepoPath>) -> Result<ChangeKind, GitError> {
        Ok(match (self.letter, from, &self.old, &self.new) {
            (b'R', Some(from), _, _) => ChangeKind::Renamed { from },
            (b'A', None, _, _) => ChangeKind::Added,
            (b'D', None, _, _) => ChangeKind::Deleted,
            (b'T', None, _, _) => ChangeKind::TypeChanged,
            (b'M', None, Some((_, old)), Some((_, new))) if old == new => ChangeKind::ModeChanged,
            (b'M', None, _, _) => ChangeKind::Modified,
            _ => return Err(unreadable(format!("status `{}`", char::from(self.letter)))),
        })
    }
}

/// All raw records, then for each of them a line count.
fn parse_changes(output: &[u8]) -> Result<Vec<Change>, GitError> {
    let mut fields = Fields::new(output);
    let mut changes = Vec::new();
    let mut positions = HashMap::new();
    while let Some(field) = fields.next() {
        if field.starts_with(b":") {
            let header = RawHeader::parse(field)?;
            let mut path = parse_path(COMMAND, fields.expect("path")?)?;
            let mut from = None;
            if header.letter == b'R' {
                from = Some(path);
                path = parse_path(COMMAND, fields.expect("new path")?)?;
            }
            positions.insert(path.clone(), changes.len());
            changes.push(Change {
                path,
                kind: header.kind(from)?,
                old_mode: header.old.map(|(mode, _)| mode),
                new_mode: header.new.map(|(mode, _)| mode),
                added_lines: None,
                removed_lines: None,
            });
        } else {
            let mut parts = field.splitn(3, |byte| *byte == b'\t');
            let (Some(added), Some(removed), Some(path)) =
                (parts.next(), parts.next(), parts.next())
            else {
                return Err(unreadable(format!("count `{}`", field.escape_ascii())));
            };
            let path = if path.is_empty() {
                fields.expect("old path")?;
                fields.expect("new path")?
            } else {
                path
            };
            let path = parse_path(COMMAND, path)?;
            let Some(change) = positions.get(&path).and_then(|at| changes.get_mut(*at)) else {
                return Err(unreadable(format!("a count for `{path}` only")));
            };
            change.added_lines = parse_count(added)?;
            change.removed_lines = parse_count(removed)?;
        }
    }
    Ok(changes)
}

fn parse_count(text: &[u8]) -> Result<Option<u64>, GitError> {
    if text == b"-" {
        return Ok(None);
    }
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .map(Some)
        .ok_or_else(|| unreadable(format!("number `{}`", text.escape_ascii())))
}

fn unreadable(what: String) -> GitError {
    GitError::Unreadable {
        command: COMMAND,
        what,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_and_counts_are_brought_together() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let output = format!(
            ":100644 100755 {a} {a} M\0mode\0:100644 100644 {a} {b} R090\0old\nname\0new\tname\0:000000 100644 {a} {b} A\0bin\0\
             0\t0\tmode\0{}\t2\t\0old\nname\0new\tname\0-\t-\tbin\0",
            3
        );
        let changes = parse_changes(output.as_bytes()).unwrap();
        assert_eq!(changes[0].kind, ChangeKind::ModeChanged);
        assert_eq!(
            changes[1].kind,
            ChangeKind::Renamed {
                from: RepoPath::new("old\nname").unwrap()
            }
        );
        assert_eq!(changes[1].path.as_bytes(), b"new\tname");
        assert_eq!(
            (changes[1].added_lines, changes[1].removed_lines),
            (Some(3), Some(2))
        );
        assert_eq!((changes[2].added_lines, changes[2].old_mode), (None, None));
    }

    #[test]
    fn records_end_and_the_patch_begins_wherever_the_pieces_meet() {
        let output = b":records\0path\x001\t0\tpath\0\0diff --git\0\0rest";
        for piece in 1..output.len() {
            let mut patch = Vec::new();
            let mut splitter = Splitter {
                records: Vec::new(),
                patch: &mut patch,
                in_patch: false,
            };
            for bytes in output.chunks(piece) {
                splitter.write_all(bytes).unwrap();
            }
            assert_eq!(splitter.records, b":records\0path\x001\t0\tpath\0");
            assert_eq!(patch, b"diff --git\0\0rest", "{piece}");
        }
    }

    proptest! {
            #[test]
            fn no_output_makes_the_parser_panic(parts in prop::collection::vec(
                prop::sample::select(vec![
    &b":100644 000000 "[..],
    b"\0",
    b"\t",
    b"1",
    b"x",
    b" R1",
    b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    b" ",
    b":",
    b"\xff"
    ]), 0..40)) {
                drop(parse_changes(&parts.concat()));
            }
        }
}
