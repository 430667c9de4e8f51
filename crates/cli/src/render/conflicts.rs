use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mini_ork_node::git::{ConflictKind, FileMode, MergeSide, ObjectId, RepoPath};
use serde_json::{Value, json};

use super::changes::{PatchPainter, path_json};
use super::text::{Style, one_line, paint, plural};

/// Lines of a difference that are shown.
const MOST_LINES: usize = 40;

/// A conflict with everything that is shown of it.
#[derive(Debug)]
pub(crate) struct ShownConflict {
    pub(crate) path: RepoPath,
    pub(crate) kind: ConflictKind,
    pub(crate) message: String,
    /// The nodes whose merged work is "ours".
    pub(crate) ours_nodes: Vec<String>,
    pub(crate) theirs_node: String,
    pub(crate) base: Option<ShownSide>,
    pub(crate) ours: Option<ShownSide>,
    pub(crate) theirs: Option<ShownSide>,
    /// From the base to ours, as a patch.
    pub(crate) ours_difference: Vec<u8>,
    /// From the base to theirs, as a patch.
    pub(crate) theirs_difference: Vec<u8>,
}

/// One version of it.
#[derive(Debug)]
pub(crate) struct ShownSide {
    pub(crate) path: RepoPath,
    pub(crate) mode: FileMode,
    pub(crate) id: ObjectId,
    /// Its beginning; none for a submodule.
    pub(crate) content: Option<Vec<u8>>,
    /// How long the whole content is.
    pub(crate) size: u64,
}

/// The conflicts of a run, for people.
pub(crate) fn conflicts(run: &str, conflicts: &[ShownConflict]) -> String {
    let mut text = format!(
        "{} in run {}\n",
        paint(Style::Bad, &plural(conflicts.len(), "conflict")),
        paint(Style::Accent, run)
    );
    for conflict in conflicts {
        let ours = conflict.ours_nodes.join(" and ");
        let _ = writeln!(
            text,
            "\n{}  {}\n{}",
            paint(Style::Strong, &conflict.path.to_string()),
            kind(conflict.kind),
            paint(Style::Dim, &one_line(&conflict.message, 200)),
        );
        version(
            &mut text,
            &ours,
            conflict.ours.as_ref(),
            &conflict.ours_difference,
        );
        version(
            &mut text,
            &conflict.theirs_node,
            conflict.theirs.as_ref(),
            &conflict.theirs_difference,
        );
    }
    let _ = writeln!(
        text,
        "\nboth versions in full: mini-ork conflicts {run} --json"
    );
    text
}

impl ShownConflict {
    /// It for scripts.
    pub(crate) fn json(&self) -> Value {
        let side =
            |side: &Option<ShownSide>, nodes: &[String]| side.as_ref().map(|side| side.json(nodes));
        let theirs = std::slice::from_ref(&self.theirs_node);
        json!({
            "path": path_json(self.path.as_path().as_os_str()),
            "kind": kind_name(self.kind),
            "deleted_by": deleted_by(self.kind),
            "message": self.message,
            "ours_nodes": self.ours_nodes,
            "theirs_node": self.theirs_node,
            "base": side(&self.base, &[]),
            "ours": side(&self.ours, &self.ours_nodes),
            "theirs": side(&self.theirs, theirs),
        })
    }
}

impl ShownSide {
    fn json(&self, nodes: &[String]) -> Value {
        let mut value = json!({
            "path": path_json(self.path.as_path().as_os_str()),
            "mode": self.mode.as_str(),
            "oid": self.id.as_str(),
            "nodes": nodes,
        });
        if let Some(content) = &self.content {
            value["size"] = self.size.into();
            value["truncated"] = (self.size > content.len() as u64).into();
            let (name, data) = match std::str::from_utf8(content) {
                Ok(text) => ("content", text.to_owned()),
                Err(_) => ("content_base64", STANDARD.encode(content)),
            };
            value[name] = data.into();
        }
        value
    }
}

fn version(text: &mut String, node: &str, side: Option<&ShownSide>, difference: &[u8]) {
    let what = match side {
        None => "deleted it".to_owned(),
        Some(side) => format!("{}, {}", side.path, mode(side.mode)),
    };
    let _ = writeln!(text, "  {}  {what}", paint(Style::Accent, node));
    let painted = PatchPainter::default().paint(difference);
    // The header of a patch says once more what stands above.
    let hunks = painted.lines().skip_while(|line| {
        !anstream::adapter::strip_str(line)
            .to_string()
            .starts_with("@@")
    });
    let lines: Vec<&str> = hunks.collect();
    for line in lines.iter().take(MOST_LINES) {
        let _ = writeln!(text, "    {line}");
    }
    if lines.len() > MOST_LINES {
        let _ = writeln!(text, "    and {} more lines", lines.len() - MOST_LINES);
    }
}

fn mode(mode: FileMode) -> &'static str {
    match mode {
        FileMode::Regular => "a file",
        FileMode::Executable => "an executable file",
        FileMode::Symlink => "a symbolic link",
        FileMode::Submodule => "a submodule",
    }
}

fn kind(kind: ConflictKind) -> &'static str {
    match kind {
        ConflictKind::Content => "both changed the same lines",
        ConflictKind::AddAdd => "both added it, with different content",
        ConflictKind::ModifyDelete { .. } => "one changed it and the other deleted it",
        ConflictKind::RenameRename => "both renamed it, differently",
        ConflictKind::RenameDelete { .. } => "one renamed it and the other deleted it",
        ConflictKind::RenameCollision => "a rename ends where the other has another file",
        ConflictKind::Mode => "both set its executable bit, differently",
        ConflictKind::TypeChange => "one has a file where the other has a link, or the like",
        ConflictKind::DirectoryFile => "one has a directory where the other has a file",
        ConflictKind::Binary => "both changed it, and it is not text",
        ConflictKind::Submodule => "both changed the commit of the submodule",
        ConflictKind::Other => "it cannot be merged",
    }
}

fn kind_name(kind: ConflictKind) -> &'static str {
    match kind {
        ConflictKind::Content => "content",
        ConflictKind::AddAdd => "add_add",
        ConflictKind::ModifyDelete { .. } => "modify_delete",
        ConflictKind::RenameRename => "rename_rename",
        ConflictKind::RenameDelete { .. } => "rename_delete",
        ConflictKind::RenameCollision => "rename_collision",
        ConflictKind::Mode => "mode",
        ConflictKind::TypeChange => "type_change",
        ConflictKind::DirectoryFile => "directory_file",
        ConflictKind::Binary => "binary",
        ConflictKind::Submodule => "submodule",
        ConflictKind::Other => "other",
    }
}

fn deleted_by(kind: ConflictKind) -> Option<&'static str> {
    match kind {
        ConflictKind::ModifyDelete { deleted_by } | ConflictKind::RenameDelete { deleted_by } => {
            Some(match deleted_by {
                MergeSide::Ours => "ours",
                MergeSide::Theirs => "theirs",
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(content: &[u8], size: u64) -> ShownSide {
        ShownSide {
            path: RepoPath::new("f").unwrap(),
            mode: FileMode::Regular,
            id: ObjectId::parse(&"a".repeat(40)).unwrap(),
            content: Some(content.to_vec()),
            size,
        }
    }

    fn conflict() -> ShownConflict {
        ShownConflict {
            path: RepoPath::new("f").unwrap(),
            kind: ConflictKind::ModifyDelete {
                deleted_by: MergeSide::Theirs,
            },
            message: "CONFLICT \u{1b}[2J".to_owned(),
            ours_nodes: vec!["part_a".to_owned(), "part_b".to_owned()],
            theirs_node: "part_c".to_owned(),
            base: Some(side(b"x\n", 2)),
            ours: Some(side(b"\xff", 500)),
            theirs: None,
            ours_difference: b"diff --git a/f b/f\n@@ -1 +1 @@\n-x\n+y\n".to_vec(),
            theirs_difference: Vec::new(),
        }
    }

    #[test]
    fn a_conflict_shows_who_did_what() {
        let text = conflicts("abc", &[conflict()]);
        let plain = anstream::adapter::strip_str(&text).to_string();
        for part in [
            "1 conflict in run abc",
            "one changed it and the other deleted it",
            "part_a and part_b  f, a file",
            "    -x\n    +y\n",
            "part_c  deleted it",
        ] {
            assert!(plain.contains(part), "{part} in\n{plain}");
        }
        assert!(
            !plain.contains("diff --git") && !plain.contains('\u{1b}'),
            "{plain}"
        );
    }

    #[test]
    fn scripts_get_the_versions_and_where_they_come_from() {
        let value = conflict().json();
        assert_eq!(value["kind"], "modify_delete");
        assert_eq!(value["deleted_by"], "theirs");
        assert_eq!(value["base"]["content"], "x\n");
        assert_eq!(value["ours"]["content_base64"], "/w==");
        assert_eq!(value["ours"]["truncated"], true);
        assert_eq!(value["ours"]["nodes"][1], "part_b");
        assert_eq!(value["theirs"], Value::Null);
    }
}
