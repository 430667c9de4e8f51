//! What differs between trees, and trees made from others.

use mini_ork_node::git::{Change, ChangeKind, Edit, FileMode, RepoPath};

use crate::support::{World, gits, set_mode, write};

fn path(text: &str) -> RepoPath {
    RepoPath::new(text).unwrap()
}

#[test]
fn every_kind_of_change_is_told() {
    for git in gits() {
        let world = World::with(git);
        let long: String = (0..40).map(|line| format!("line {line}\n")).collect();
        let run = world.run_on(&[
            ("mod", "a\nb\n"),
            ("gone", "x\n"),
            ("old name", &long),
            ("bits", "b\n"),
            ("link", "l\n"),
            ("bin", "a\0b"),
        ]);
        write(&run.in_work("mod"), "a\nc\nd\n");
        fs_err::remove_file(run.in_work("gone")).unwrap();
        fs_err::rename(run.in_work("old name"), run.in_work("new\nname")).unwrap();
        set_mode(&run.in_work("bits"), 0o755);
        fs_err::remove_file(run.in_work("link")).unwrap();
        fs_err::os::unix::fs::symlink("mod", run.in_work("link")).unwrap();
        write(&run.in_work("bin"), b"a\0c");
        write(&run.in_work("added"), "1\n");
        let after = run.snapshot();
        let changes = run.control.changes(run.base(), &after).unwrap();
        let find = |name: &str| -> &Change {
            changes
                .iter()
                .find(|change| change.path == path(name))
                .unwrap()
        };
        assert_eq!(changes.len(), 7);
        assert_eq!(find("mod").kind, ChangeKind::Modified);
        assert_eq!(
            (find("mod").added_lines, find("mod").removed_lines),
            (Some(2), Some(1))
        );
        assert_eq!(find("gone").kind, ChangeKind::Deleted);
        assert_eq!(find("gone").new_mode, None);
        assert_eq!(
            find("new\nname").kind,
            ChangeKind::Renamed {
                from: path("old name")
            }
        );
        assert_eq!(find("bits").kind, ChangeKind::ModeChanged);
        assert_eq!(find("bits").new_mode, Some(FileMode::Executable));
        assert_eq!(find("link").kind, ChangeKind::TypeChanged);
        assert_eq!(
            (&find("bin").kind, find("bin").added_lines),
            (&ChangeKind::Modified, None)
        );
        assert_eq!(find("added").kind, ChangeKind::Added);
        assert!(run.control.changes(&after, &after).unwrap().is_empty());

        // The patch makes of the first tree the second, also what is not text.
        let mut patch = Vec::new();
        run.control.patch(run.base(), &after, &mut patch).unwrap();
        let other = world.place("other");
        run.control.materialise(run.base(), &other, None).unwrap();
        write(&world.path("patch"), &patch);
        world.run(
            &other.path,
            &["apply", world.path("patch").to_str().unwrap()],
        );
        assert_eq!(run.control.snapshot(&other).unwrap().tree, after);
    }
}

#[test]
fn an_overlay_edits_a_tree() {
    let world = World::new();
    let run = world.run_on(&[
        ("a", "1\n"),
        ("d/b", "2\n"),
        ("d/c", "3\n"),
        ("file", "f\n"),
    ]);
    let control = &run.control;
    let id = control.list(run.base()).unwrap()[0].id.clone();
    let edits = [
        (path("a"), Edit::Remove),
        (path("absent"), Edit::Remove),
        (
            path("d"),
            Edit::Write {
                mode: FileMode::Executable,
                bytes: b"now a file".to_vec(),
            },
        ),
        (
            path("file/below"),
            Edit::Write {
                mode: FileMode::Symlink,
                bytes: b"../d".to_vec(),
            },
        ),
        (
            path("copy"),
            Edit::Take {
                mode: FileMode::Regular,
                id,
            },
        ),
    ];
    let tree = control.overlay(run.base(), &edits).unwrap();
    assert_eq!(run.paths(&tree), ["copy", "d", "file/below"]);
    let blob = control.read_blob(&tree, &path("d")).unwrap().unwrap();
    assert_eq!(
        (blob.mode, blob.bytes.as_slice()),
        (FileMode::Executable, &b"now a file"[..])
    );
    assert_eq!(
        control
            .read_blob(&tree, &path("copy"))
            .unwrap()
            .unwrap()
            .bytes,
        b"1\n"
    );
    assert_eq!(control.read_blob(&tree, &path("file")).unwrap(), None);
    assert_eq!(control.read_blob(&tree, &path("nothing")).unwrap(), None);
    // A name is a name, not a pattern.
    assert_eq!(control.read_blob(&tree, &path("c*")).unwrap(), None);
    assert_eq!(control.overlay(run.base(), &[]).unwrap(), *run.base());
    let mut reversed = edits.to_vec();
    reversed.reverse();
    assert_eq!(control.overlay(run.base(), &reversed).unwrap(), tree);
}

#[test]
fn a_commit_is_a_function_of_its_arguments() {
    let world = World::new();
    let run = world.run_on(&[("a", "1\n")]);
    let parents = std::slice::from_ref(&run.repository.head);
    let make = |time| {
        run.control
            .commit(run.base(), parents, "subject\n\nbody", time)
            .unwrap()
    };
    assert_eq!(make(1_700_000_000), make(1_700_000_000));
    assert_ne!(make(1_700_000_000), make(1_700_000_001));
    let text = world.run(
        run.control.path(),
        &["cat-file", "-p", make(1_700_000_000).as_str()],
    );
    assert!(
        text.contains("author mini-ork <mini-ork@local> 1700000000 +0000"),
        "{text}"
    );
    assert!(
        text.contains("committer mini-ork <mini-ork@local> 1700000000 +0000"),
        "{text}"
    );
    assert!(text.ends_with("subject\n\nbody"), "{text}");
}
