//! BC-62: several writers of one tree.

use std::collections::BTreeMap;

use mini_ork_node::git::{
    Conflict, ConflictKind, ControlGit, Edit, FileMode, Git, Merge, MergeSide, RepoPath, TreeId,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::{Run, World, gits, search_path, set_mode, write};

fn lines(from: u32, to: u32) -> String {
    (from..to).map(|line| format!("line {line}\n")).collect()
}

/// The tree that `act` makes of the base.
fn writer(run: &Run, act: impl FnOnce(&Run)) -> TreeId {
    run.control.reset(&run.place, run.base()).unwrap();
    act(run);
    run.snapshot()
}

fn find<'a>(merge: &'a Merge, name: &str) -> &'a Conflict {
    let found: Vec<_> = merge
        .conflicts
        .iter()
        .filter(|conflict| conflict.path.as_bytes() == name.as_bytes())
        .collect();
    assert_eq!(found.len(), 1, "{name}: {:#?}", merge.conflicts);
    found[0]
}

fn side(conflict: &Conflict, which: MergeSide) -> String {
    let side = match which {
        MergeSide::Ours => &conflict.ours,
        MergeSide::Theirs => &conflict.theirs,
    };
    side.as_ref()
        .map(|side| side.path.to_string())
        .unwrap_or_default()
}

#[test]
fn bc_62_each_kind_of_conflict_is_an_object_with_both_versions() {
    for git in gits() {
        let world = World::with(git);
        let run = world.run_on(&[
            ("content\nfile", &lines(0, 20)),
            ("deleted", "1\n"),
            ("edited", "2\n"),
            ("renamed", &lines(20, 60)),
            ("moved", &lines(60, 99)),
            ("bin", "a\0b"),
            ("type", "t\n"),
            ("dir/inner", "i\n"),
            ("both bits", "b\n"),
        ]);
        let ours = writer(&run, |run| {
            write(&run.in_work("content\nfile"), lines(1, 20));
            fs_err::remove_file(run.in_work("deleted")).unwrap();
            write(&run.in_work("edited"), "ours\n");
            fs_err::rename(run.in_work("renamed"), run.in_work("renamed by us")).unwrap();
            fs_err::rename(run.in_work("moved"), run.in_work("moved away")).unwrap();
            write(&run.in_work("bin"), b"a\0ours");
            fs_err::remove_file(run.in_work("type")).unwrap();
            fs_err::os::unix::fs::symlink("bin", run.in_work("type")).unwrap();
            fs_err::remove_dir_all(run.in_work("dir")).unwrap();
            write(&run.in_work("dir"), "a file\n");
            write(&run.in_work("new"), "ours\n");
            write(&run.in_work("bits"), "same\n");
            set_mode(&run.in_work("bits"), 0o755);
            write(&run.in_work("same"), "same\n");
            write(&run.in_work("only ours"), "o\n");
        });
        let theirs = writer(&run, |run| {
            write(
                &run.in_work("content\nfile"),
                format!("first\n{}", lines(1, 20)),
            );
            write(&run.in_work("deleted"), "theirs\n");
            fs_err::remove_file(run.in_work("edited")).unwrap();
            fs_err::rename(run.in_work("renamed"), run.in_work("renamed by them")).unwrap();
            fs_err::remove_file(run.in_work("moved")).unwrap();
            write(&run.in_work("bin"), b"a\0theirs");
            write(&run.in_work("type"), "changed\n");
            write(&run.in_work("dir/more"), "m\n");
            write(&run.in_work("new"), "theirs\n");
            write(&run.in_work("bits"), "same\n");
            write(&run.in_work("same"), "same\n");
            write(&run.in_work("only theirs"), "t\n");
        });
        let merge = run.control.merge(run.base(), &ours, &theirs).unwrap();
        assert_eq!(find(&merge, "content\nfile").kind, ConflictKind::Content);
        let deleted = find(&merge, "deleted");
        assert_eq!(
            deleted.kind,
            ConflictKind::ModifyDelete {
                deleted_by: MergeSide::Ours
            }
        );
        assert!(deleted.base.is_some() && deleted.ours.is_none() && deleted.theirs.is_some());
        let edited = find(&merge, "edited");
        assert_eq!(
            edited.kind,
            ConflictKind::ModifyDelete {
                deleted_by: MergeSide::Theirs
            }
        );
        let renamed = find(&merge, "renamed");
        assert_eq!(renamed.kind, ConflictKind::RenameRename);
        assert_eq!(side(renamed, MergeSide::Ours), "renamed by us");
        assert_eq!(side(renamed, MergeSide::Theirs), "renamed by them");
        let moved = find(&merge, "moved");
        assert_eq!(
            moved.kind,
            ConflictKind::RenameDelete {
                deleted_by: MergeSide::Theirs
            }
        );
        assert_eq!(side(moved, MergeSide::Ours), "moved away");
        assert_eq!(find(&merge, "bin").kind, ConflictKind::Binary);
        let kind = find(&merge, "type");
        assert_eq!(kind.kind, ConflictKind::TypeChange);
        assert_eq!(kind.ours.as_ref().unwrap().mode, FileMode::Symlink);
        assert_eq!(kind.theirs.as_ref().unwrap().mode, FileMode::Regular);
        assert_eq!(find(&merge, "dir").kind, ConflictKind::DirectoryFile);
        assert_eq!(find(&merge, "new").kind, ConflictKind::AddAdd);
        assert_eq!(find(&merge, "bits").kind, ConflictKind::Mode);

        // A file moved out of a directory that became a file leaves a conflict of its own.
        let names: Vec<String> = merge
            .conflicts
            .iter()
            .map(|conflict| conflict.path.to_string())
            .collect();
        assert_eq!(names.len(), 10, "{names:?}");
        assert!(
            names.is_sorted()
                && merge
                    .conflicts
                    .iter()
                    .all(|conflict| !conflict.message.is_empty())
        );
        let paths = run.paths(&merge.tree);
        assert!(
            paths.contains(&"only ours".to_owned()) && paths.contains(&"only theirs".to_owned())
        );
        let marked = run
            .control
            .read_blob(&merge.tree, &RepoPath::new("content\nfile").unwrap())
            .unwrap()
            .unwrap();
        let marked = String::from_utf8(marked.bytes).unwrap();
        assert!(
            marked.contains("<<<<<<< ours\n") && marked.contains(">>>>>>> theirs\n"),
            "{marked}"
        );

        let wire = serde_json::to_string(&merge).unwrap();
        assert_eq!(serde_json::from_str::<Merge>(&wire).unwrap(), merge);
        assert_eq!(
            run.control.merge(run.base(), &ours, &theirs).unwrap(),
            merge
        );
    }
}

#[test]
fn bc_62_a_merge_that_can_be_decided_is_clean() {
    for git in gits() {
        let world = World::with(git);
        let run = world.run_on(&[("a", &lines(0, 30)), ("bits", "x\n"), ("gone", "g\n")]);
        let ours = writer(&run, |run| {
            write(&run.in_work("a"), lines(1, 30));
            set_mode(&run.in_work("bits"), 0o755);
            fs_err::remove_file(run.in_work("gone")).unwrap();
        });
        let theirs = writer(&run, |run| {
            write(&run.in_work("a"), lines(0, 31));
            write(&run.in_work("bits"), "y\n");
            fs_err::remove_file(run.in_work("gone")).unwrap();
            // No rule of the tree takes part in a merge.
            write(&run.in_work(".gitattributes"), "* merge=ours binary\n");
        });
        let merge = run.control.merge(run.base(), &ours, &theirs).unwrap();
        assert!(merge.conflicts.is_empty(), "{:?}", merge.conflicts);
        let read = |name| {
            run.control
                .read_blob(&merge.tree, &RepoPath::new(name).unwrap())
                .unwrap()
        };
        assert_eq!(read("a").unwrap().bytes, lines(1, 31).into_bytes());
        let bits = read("bits").unwrap();
        assert_eq!(
            (bits.mode, bits.bytes.as_slice()),
            (FileMode::Executable, &b"y\n"[..])
        );
        assert_eq!(read("gone"), None);
        let mirrored = run.control.merge(run.base(), &theirs, &ours).unwrap();
        assert_eq!(mirrored.tree, merge.tree);
        for (ours, theirs, tree) in [
            (run.base(), &theirs, &theirs),
            (&ours, run.base(), &ours),
            (&ours, &ours, &ours),
        ] {
            assert_eq!(
                run.control.merge(run.base(), ours, theirs).unwrap().tree,
                *tree
            );
        }
    }
}

#[test]
fn bc_62_a_submodule_that_both_moved() {
    let world = World::new();
    let user = world.repository("user", &[("a", "1\n")]);
    let id = world.run(&user, &["rev-parse", "HEAD"]);
    let link = format!("160000,{id},sub");
    world.run(&user, &["update-index", "--add", "--cacheinfo", &link]);
    world.run(&user, &["commit", "-q", "-m", "link"]);
    let run = world.run_in(&user);
    let at = |digit: &str| {
        let id = mini_ork_node::git::ObjectId::parse(&digit.repeat(40)).unwrap();
        let edit = Edit::Take {
            mode: FileMode::Submodule,
            id,
        };
        run.control
            .overlay(run.base(), &[(RepoPath::new("sub").unwrap(), edit)])
            .unwrap()
    };
    let merge = run.control.merge(run.base(), &at("1"), &at("2")).unwrap();
    assert_eq!(find(&merge, "sub").kind, ConflictKind::Submodule);
}

/// One edit of a writer, small enough that writers meet.
type WriterEdits = BTreeMap<u8, Option<u8>>;

fn tree_of(control: &ControlGit, base: &TreeId, edits: &WriterEdits) -> TreeId {
    let edits: Vec<(RepoPath, Edit)> = edits
        .iter()
        .map(|(path, content)| {
            let edit = match content {
                None => Edit::Remove,
                Some(content) => Edit::Write {
                    mode: if content % 3 == 0 {
                        FileMode::Executable
                    } else {
                        FileMode::Regular
                    },
                    bytes: format!("{content}\n").into_bytes(),
                },
            };
            (RepoPath::new(format!("p{path}")).unwrap(), edit)
        })
        .collect();
    control.overlay(base, &edits).unwrap()
}

/// The results of all writers, in the order of the writers.
fn fold(
    control: &ControlGit,
    base: &TreeId,
    results: &BTreeMap<usize, TreeId>,
) -> (TreeId, Vec<Conflict>) {
    let (mut merged, mut conflicts) = (base.clone(), Vec::new());
    for tree in results.values() {
        let merge = control.merge(base, &merged, tree).unwrap();
        merged = merge.tree;
        conflicts.extend(merge.conflicts);
    }
    (merged, conflicts)
}

#[test]
fn bc_62_the_result_does_not_depend_on_who_finished_first() {
    let world = World::with(Git::find(&search_path()).unwrap());
    let run = world.run_on(&[("p0", "base\n"), ("p1", "base\n"), ("p2", "base\n")]);
    let edits = prop::collection::btree_map(0_u8..5, prop::option::of(0_u8..4), 1..4);
    let writers = prop::collection::vec(edits, 2..5);
    let arrival = any::<prop::sample::Index>();
    let mut runner = TestRunner::new(Config {
        cases: 12,
        ..Config::default()
    });
    runner
        .run(&(writers, arrival), |(writers, arrival)| {
            let order: Vec<usize> = (0..writers.len()).collect();
            let first = arrival.index(writers.len());
            let mut results = Vec::new();
            for rotation in [first, 0] {
                // Objects of one order must not help the other.
                let name = format!("c{}", fs_err::read_dir(world.path("")).unwrap().count());
                let control = world.control(&name, &run.repository);
                let mut arrived = BTreeMap::new();
                let mut arrivals = order.clone();
                arrivals.rotate_left(rotation);
                for writer in arrivals {
                    arrived.insert(writer, tree_of(&control, run.base(), &writers[writer]));
                }
                results.push(fold(&control, run.base(), &arrived));
            }
            prop_assert_eq!(&results[0], &results[1]);
            // Nothing that two writers disagree on is decided silently.
            for path in 0_u8..5 {
                let said: std::collections::BTreeSet<_> = writers
                    .iter()
                    .filter_map(|edits| edits.get(&path))
                    .collect();
                let base = path < 3;
                let said: Vec<_> = said
                    .into_iter()
                    .filter(|edit| base || edit.is_some())
                    .collect();
                let name = format!("p{path}");
                let told = results[0].1.iter().any(|conflict| {
                    let sides = [&conflict.base, &conflict.ours, &conflict.theirs];
                    conflict.path.as_bytes() == name.as_bytes()
                        || sides
                            .into_iter()
                            .flatten()
                            .any(|side| side.path.as_bytes() == name.as_bytes())
                });
                if said.len() > 1 {
                    prop_assert!(told, "{name}: {said:?} {:?}", results[0].1);
                }
            }
            Ok(())
        })
        .unwrap();
}
