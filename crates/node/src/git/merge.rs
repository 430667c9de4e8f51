//! Three-way merge of trees.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::control::ControlGit;
use super::error::GitError;
use super::id::{CommitId, FileMode, ObjectId, RepoPath, TreeId};
use super::objects::{parse_object, parse_path};
use super::repository::parse_tree;

/// What came of a merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merge {
    /// The merged tree. Where there is a conflict it holds both versions: between markers labelled
    /// `ours` and `theirs`, or beside each other with these words in the name.
    pub tree: TreeId,
    /// What git could not decide, in the order of paths; empty when the merge is clean.
    pub conflicts: Vec<Conflict>,
}

/// One thing that two writers disagree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The path it is about; of a rename, the earlier one.
    pub path: RepoPath,
    /// What the disagreement is.
    pub kind: ConflictKind,
    /// What both started from.
    pub base: Option<ConflictSide>,
    /// What the first writer has.
    pub ours: Option<ConflictSide>,
    /// What the second writer has.
    pub theirs: Option<ConflictSide>,
    /// Git's words about it, for people.
    pub message: String,
}

/// One version of the thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictSide {
    /// Where the merged tree or the writer has it.
    pub path: RepoPath,
    /// What it is.
    pub mode: FileMode,
    /// Its content.
    pub id: ObjectId,
}

/// Kinds of disagreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictKind {
    /// Both changed the same lines.
    Content,
    /// Both added the path, with different content.
    AddAdd,
    /// One changed the file and the other deleted it.
    ModifyDelete {
        /// Who deleted it.
        deleted_by: MergeSide,
    },
    /// Both renamed the file, differently.
    RenameRename,
    /// One renamed the file and the other deleted it.
    RenameDelete {
        /// Who deleted it.
        deleted_by: MergeSide,
    },
    /// A rename ends where the other writer has another file.
    RenameCollision,
    /// Both set the executable bit, differently.
    Mode,
    /// One has a file where the other has a link, or the like.
    TypeChange,
    /// One has a directory where the other has a file.
    DirectoryFile,
    /// Both changed a file that is not text.
    Binary,
    /// Both changed the commit of a submodule.
    Submodule,
    /// Git calls it a conflict and it is none of the above; the message says more.
    Other,
}

/// One of the two writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeSide {
    /// The first.
    Ours,
    /// The second.
    Theirs,
}

impl ControlGit {
    /// Merges what `ours` and `theirs` made of `base`. A function of the three trees: nothing else
    /// takes part, in particular no attributes, no merge drivers and no history.
    pub fn merge(&self, base: &TreeId, ours: &TreeId, theirs: &TreeId) -> Result<Merge, GitError> {
        let decided = if ours == theirs || theirs == base {
            Some(ours)
        } else if ours == base {
            Some(theirs)
        } else {
            None
        };
        if let Some(tree) = decided {
            return Ok(Merge {
                tree: tree.clone(),
                conflicts: Vec::new(),
            });
        }
        // Before 2.45 git merges commits only, and finds their base itself.
        let base = self.commit(base, &[], "base", 0)?;
        let commit = |tree, word: &str| -> Result<CommitId, GitError> {
            self.commit(tree, std::slice::from_ref(&base), word, 0)
        };
        let (ours, theirs) = (commit(ours, OURS)?, commit(theirs, THEIRS)?);
        // In a git directory of their own they have names, which end up in markers and file names.
        let scratch = self.scratch()?;
        let git_dir = self.scratch_git(&scratch, base.as_str())?;
        fs_err::write(git_dir.join("refs/heads").join(OURS), format!("{ours}\n"))?;
        fs_err::write(
            git_dir.join("refs/heads").join(THEIRS),
            format!("{theirs}\n"),
        )?;
        let (code, output) = self
            .git()
            .command(COMMAND, &git_dir)
            .git_dir(&git_dir)
            .env("GIT_OBJECT_DIRECTORY", self.objects())
            .args(["--write-tree", "-z", "--messages", OURS, THEIRS])
            .run_with_codes(&[0, 1])?;
        parse_merge(&output, code == 1)
    }
}

const COMMAND: &str = "merge-tree";
const OURS: &str = "ours";
const THEIRS: &str = "theirs";

type Version = (FileMode, ObjectId);

/// What the three sides have at some paths that belong together.
#[derive(Default)]
struct Group {
    versions: [Option<ConflictSide>; 3],
    paths: Vec<RepoPath>,
}

struct Message {
    paths: Vec<RepoPath>,
    kind: String,
    text: String,
}

/// The tree, the versions of each undecided path, an empty record, then messages.
fn parse_merge(output: &[u8], conflicted: bool) -> Result<Merge, GitError> {
    let mut records = output
        .strip_suffix(b"\0")
        .unwrap_or(output)
        .split(|byte| *byte == 0);
    let tree = parse_tree(COMMAND, records.next().unwrap_or_default())?;
    if !conflicted {
        return Ok(Merge {
            tree,
            conflicts: Vec::new(),
        });
    }
    let mut undecided: BTreeMap<RepoPath, [Option<Version>; 3]> = BTreeMap::new();
    for record in records.by_ref().take_while(|record| !record.is_empty()) {
        let (path, stage, version) = parse_version(record)?;
        undecided.entry(path).or_default()[stage] = Some(version);
    }
    let messages = parse_messages(records)?;
    let mut conflicts: Vec<Conflict> = group(&undecided, &messages)
        .into_iter()
        .map(|group| describe(group, &messages))
        .collect();
    // A conflict that leaves no versions must still be seen.
    for message in &messages {
        if let Some(path) = message.paths.first()
            && !message
                .paths
                .iter()
                .any(|path| undecided.contains_key(path))
        {
            conflicts.push(Conflict {
                path: path.clone(),
                kind: ConflictKind::Other,
                base: None,
                ours: None,
                theirs: None,
                message: message.text.clone(),
            });
        }
    }
    if conflicts.is_empty() {
        return Err(unreadable("a conflict without a path".to_owned()));
    }
    conflicts.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(Merge { tree, conflicts })
}

/// `<mode> <id> <stage>\t<path>`
fn parse_version(record: &[u8]) -> Result<(RepoPath, usize, Version), GitError> {
    let wrong = || unreadable(format!("version `{}`", record.escape_ascii()));
    let tab = record
        .iter()
        .position(|byte| *byte == b'\t')
        .ok_or_else(wrong)?;
    let fields: Vec<&[u8]> = record[..tab].split(|byte| *byte == b' ').collect();
    let [mode, id, stage] = fields[..] else {
        return Err(wrong());
    };
    let stage = match stage {
        b"1" => 0,
        b"2" => 1,
        b"3" => 2,
        _ => return Err(wrong()),
    };
    let mode = FileMode::parse(mode).ok_or_else(wrong)?;
    Ok((
        parse_path(COMMAND, &record[tab + 1..])?,
        stage,
        (mode, parse_object(COMMAND, id)?),
    ))
}

/// `<count>`, that many paths, the kind, the text; repeated. Those that are no conflict are left
/// out.
fn parse_messages<'a>(
    mut records: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Message>, GitError> {
    let mut messages = Vec::new();
    while let Some(count) = records.next() {
        if count.is_empty() {
            continue;
        }
        let count: usize = std::str::from_utf8(count)
            .ok()
            .and_then(|count| count.parse().ok())
            .ok_or_else(|| unreadable(format!("count `{}`", count.escape_ascii())))?;
        let mut paths = Vec::new();
        for _ in 0..count {
            let path = records
                .next()
                .ok_or_else(|| unreadable("a message cut off".to_owned()))?;
            paths.push(parse_path(COMMAND, path)?);
        }
        let (Some(kind), Some(text)) = (records.next(), records.next()) else {
            return Err(unreadable("a message cut off".to_owned()));
        };
        let kind = String::from_utf8_lossy(kind).into_owned();
        if kind.starts_with("CONFLICT") {
            let text = String::from_utf8_lossy(text).trim().to_owned();
            messages.push(Message { paths, kind, text });
        }
    }
    Ok(messages)
}

/// Git keeps the three versions of one thing at several paths when one of them had to move aside.
fn group(undecided: &BTreeMap<RepoPath, [Option<Version>; 3]>, messages: &[Message]) -> Vec<Group> {
    let mut left = undecided.clone();
    let mut groups = Vec::new();
    let moved = |kind: &str| {
        ["rename/rename", "distinct modes", "file/directory"]
            .iter()
            .any(|word| kind.contains(word))
    };
    for message in messages.iter().filter(|message| moved(&message.kind)) {
        let present: Vec<RepoPath> = message
            .paths
            .iter()
            .filter(|path| left.contains_key(*path))
            .cloned()
            .collect();
        let mut filled = [0; 3];
        for versions in present.iter().filter_map(|path| left.get(path)) {
            for (count, version) in filled.iter_mut().zip(versions) {
                *count += usize::from(version.is_some());
            }
        }
        if present.is_empty() || filled.iter().any(|count| *count > 1) {
            continue;
        }
        let mut group = Group {
            paths: message.paths.clone(),
            ..Group::default()
        };
        for path in present {
            if let Some(versions) = left.remove(&path) {
                fill(&mut group, &path, versions);
            }
        }
        groups.push(group);
    }
    for (path, versions) in left {
        let mut group = Group {
            paths: vec![path.clone()],
            ..Group::default()
        };
        fill(&mut group, &path, versions);
        groups.push(group);
    }
    groups
}

fn fill(group: &mut Group, path: &RepoPath, versions: [Option<Version>; 3]) {
    for (slot, version) in group.versions.iter_mut().zip(versions) {
        if let Some((mode, id)) = version {
            *slot = Some(ConflictSide {
                path: path.clone(),
                mode,
                id,
            });
        }
    }
}

fn describe(mut group: Group, messages: &[Message]) -> Conflict {
    let about: Vec<&Message> = messages
        .iter()
        .filter(|message| message.paths.iter().any(|path| group.paths.contains(path)))
        .collect();
    let said = |word: &str| about.iter().any(|message| message.kind.contains(word));
    let kind = classify(&group.versions, said);
    if let (ConflictKind::RenameDelete { .. }, Some(base)) = (&kind, &mut group.versions[0]) {
        // Git moves what both started from to the new path; the message has both paths.
        let earlier = about
            .iter()
            .filter(|message| message.kind.contains("rename/delete"))
            .flat_map(|message| &message.paths)
            .find(|path| **path != base.path);
        if let Some(earlier) = earlier {
            base.path.clone_from(earlier);
        }
    }
    let path = match (&kind, &group.versions[0]) {
        (ConflictKind::RenameRename | ConflictKind::RenameDelete { .. }, Some(base)) => {
            base.path.clone()
        }
        (ConflictKind::DirectoryFile | ConflictKind::TypeChange, _) => {
            // The one that was moved aside has a longer name.
            let shortest = group.paths.iter().min_by_key(|path| path.as_bytes().len());
            shortest.unwrap_or(&group.paths[0]).clone()
        }
        _ => group.paths[0].clone(),
    };
    let message: Vec<&str> = about.iter().map(|message| message.text.as_str()).collect();
    let [base, ours, theirs] = group.versions;
    Conflict {
        path,
        kind,
        base,
        ours,
        theirs,
        message: message.join("\n"),
    }
}

fn classify(versions: &[Option<ConflictSide>; 3], said: impl Fn(&str) -> bool) -> ConflictKind {
    let is_submodule = |side: &Option<ConflictSide>| {
        side.as_ref()
            .is_some_and(|side| side.mode == FileMode::Submodule)
    };
    if said("submodule") || versions.iter().any(is_submodule) {
        return ConflictKind::Submodule;
    }
    if said("file/directory") {
        return ConflictKind::DirectoryFile;
    }
    if said("distinct modes") {
        return ConflictKind::TypeChange;
    }
    if said("rename/rename") {
        return ConflictKind::RenameRename;
    }
    let deleted_by = match versions {
        [_, None, Some(_)] => Some(MergeSide::Ours),
        [_, Some(_), None] => Some(MergeSide::Theirs),
        _ => None,
    };
    match (deleted_by, versions) {
        (Some(deleted_by), _) if said("rename/delete") => ConflictKind::RenameDelete { deleted_by },
        (Some(deleted_by), [Some(_), ..]) => ConflictKind::ModifyDelete { deleted_by },
        (_, _) if said("rename involved in collision") => ConflictKind::RenameCollision,
        (None, [base, Some(ours), Some(theirs)]) => {
            if ours.id == theirs.id {
                ConflictKind::Mode
            } else if said("binary") {
                ConflictKind::Binary
            } else if base.is_none() {
                ConflictKind::AddAdd
            } else {
                ConflictKind::Content
            }
        }
        _ => ConflictKind::Other,
    }
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
    fn a_conflict_that_leaves_no_versions_is_still_one() {
        let tree = "a".repeat(40);
        let output = format!("{tree}\0\x001\0dir\0CONFLICT (directory rename split)\0text\n\0");
        let merge = parse_merge(output.as_bytes(), true).unwrap();
        assert_eq!(merge.conflicts.len(), 1);
        assert_eq!(merge.conflicts[0].kind, ConflictKind::Other);
        assert_eq!(merge.conflicts[0].message, "text");
        assert!(parse_merge(format!("{tree}\0\0").as_bytes(), true).is_err());
        assert!(parse_merge(b"", false).is_err());
    }

    proptest! {
            #[test]
            fn no_output_makes_the_parser_panic(parts in prop::collection::vec(
                prop::sample::select(vec![
    &b"100644 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 2\t"[..],
    b"\0",
    b"\0\0",
    b"1\0",
    b"path",
    b"CONFLICT (rename/rename)",
    b"99999999999999999999",
    b"\xff",
    b"120000 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 1\tq\0",
    b"3\0q\0path\0q\0"
    ]), 0..40)) {
                let mut output = b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\0".to_vec();
                output.extend(parts.concat());
                drop(parse_merge(&output, true));
            }
        }
}
