use std::path::{Component, Path, PathBuf};

use mini_ork_node::git::Repository;
use mini_ork_node::workspace::{Access, Drive, Share};
use mini_ork_protocol::RunId;

use super::RunError;
use super::directory::{MAIN_PLACE, RunDirectory, write_json};
use super::open::Pieces;

/// Most object directories that borrow from each other.
const MOST_ALTERNATES: usize = 16;
/// Longest list of borrowed object directories.
const LONGEST_ALTERNATES: u64 = 64 << 10;

/// Makes the workspace of a run ready; returns what its programs see of this machine. From then on
/// the record tells which boundary holds, and no longer which one was asked for.
pub(super) async fn up(pieces: &mut Pieces) -> Result<Drive, RunError> {
    let drive = drive(
        &pieces.plan.run,
        &pieces.directory,
        Some(&pieces.repository),
        pieces.record.base.is_none(),
    );
    let up = pieces.workspace.up(&drive).await;
    up.map_err(RunError::Workspace)?;
    let isolation = pieces.workspace.isolation();
    if pieces.record.isolation != isolation {
        pieces.record.isolation = isolation;
        write_json(&pieces.directory.record(), &pieces.record).map_err(RunError::Io)?;
    }
    Ok(drive)
}

/// What the programs of a run see of this machine. The git directory of the control plane, its
/// records, and what other runs have are not among it.
pub(super) fn drive(
    run: &RunId,
    directory: &RunDirectory,
    repository: Option<&Repository>,
    in_place: bool,
) -> Drive {
    let root = directory.root();
    let share = |host: PathBuf, inside: &str, access| Share {
        host,
        inside: Path::new("/workspace").join(inside),
        access,
    };
    let mut shares = vec![
        share(root.to_owned(), "run", Access::Name),
        share(root.join("nodes"), "run/nodes", Access::ReadWrite),
        share(root.join("baseline"), "run/baseline", Access::ReadWrite),
        share(root.join("agents"), "home", Access::ReadWrite),
        share(directory.recipe(), "recipe", Access::ReadOnly),
        share(directory.plan(), "run/plan.json", Access::ReadOnly),
        share(directory.kickoff(), "run/kickoff.md", Access::ReadOnly),
    ];
    match repository.and_then(|repository| repository.toplevel.clone()) {
        Some(checkout) if in_place => shares.push(share(checkout, "target", Access::ReadOnly)),
        _ => shares.extend([
            share(directory.worktree(MAIN_PLACE), "target", Access::ReadWrite),
            share(root.join("worktrees"), "places", Access::ReadWrite),
        ]),
    }
    // Private git directories name these by their paths on this machine.
    let objects = repository.map(|repository| {
        let own = directory.control_git().join("objects");
        borrowed(&[own, repository.object_directory.clone()])
    });
    shares.extend(objects.unwrap_or_default().into_iter().map(|path| Share {
        host: path.clone(),
        inside: path,
        access: Access::ReadOnly,
    }));
    Drive {
        name: run.as_str().to_owned(),
        private: root.join("sandbox"),
        proof: root.join("nodes"),
        shares,
    }
}

/// Object directories with those that they borrow from.
fn borrowed(first: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut pending: Vec<PathBuf> = first.to_vec();
    while let Some(directory) = pending.pop() {
        if found.contains(&directory) || found.len() == MOST_ALTERNATES || !directory.is_dir() {
            continue;
        }
        let list = directory.join("info/alternates");
        let short = fs_err::metadata(&list).is_ok_and(|list| list.len() <= LONGEST_ALTERNATES);
        let text = short.then(|| fs_err::read_to_string(&list).ok()).flatten();
        for line in text.unwrap_or_default().lines() {
            if !line.is_empty() && !line.starts_with('#') {
                pending.push(normal(&directory.join(line)));
            }
        }
        found.push(directory);
    }
    found
}

/// `path` without `.` and `..`, which git takes out of a borrowed path by its text alone.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borrowed_objects_are_followed_once() {
        let place = tempfile::tempdir().unwrap();
        let objects = |name: &str, borrows: &str| {
            let path = place.path().join(name);
            fs_err::create_dir_all(path.join("info")).unwrap();
            fs_err::write(path.join("info/alternates"), borrows).unwrap();
            path
        };
        let second = objects("second", "../first\n");
        let first = objects(
            "first",
            &format!("# borrowed\n{}\n../none\n", second.display()),
        );
        let found = borrowed(std::slice::from_ref(&first));
        assert_eq!(found, [first, second]);
    }

    #[test]
    fn what_the_control_plane_keeps_to_itself_is_not_shared() {
        let directory = RunDirectory::at("/h/runs/abc".into());
        let drive = drive(&RunId::parse("abc").unwrap(), &directory, None, false);
        let root = directory.root();
        for kept in ["control.git", "gateways", "sandbox", "run.json", "lock"] {
            let kept = root.join(kept);
            let shared = drive
                .shares
                .iter()
                .any(|share| share.access != Access::Name && kept.starts_with(&share.host));
            assert!(!shared, "{}", kept.display());
        }
        let inside = |host: &str| drive.inside(&root.join(host));
        assert_eq!(
            inside("nodes/a/1.1/out"),
            Path::new("/workspace/run/nodes/a/1.1/out")
        );
        assert_eq!(inside("worktree/src"), Path::new("/workspace/target/src"));
        assert_eq!(inside("worktrees/a"), Path::new("/workspace/places/a"));
        assert_eq!(inside("agents/a"), Path::new("/workspace/home/a"));
        assert_eq!(
            inside("recipe/verify.sh"),
            Path::new("/workspace/recipe/verify.sh")
        );
    }
}
