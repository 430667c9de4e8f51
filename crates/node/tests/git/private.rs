//! BC-52: the `.git` that an agent works with.

use mini_ork_node::tree::PrivateGit;

use crate::support::{World, gits, write};

#[test]
fn bc_52_commit_stash_and_blame_work_inside_and_stay_inside() {
    for git in gits() {
        let world = World::with(git);
        let user = world.repository("user", &[("src/a.rs", "one\n"), ("b", "b\n")]);
        world.run(&user, &["branch", "other"]);
        world.run(&user, &["tag", "-a", "-m", "t", "v1"]);
        write(&user.join("b"), "dirty\n");
        world.run(&user, &["stash", "-q"]);
        write(&user.join("b"), "dirty again\n");
        let run = world.run_in(&user);
        let work = &run.place.path;
        run.untouched(|| {
            assert_eq!(
                world
                    .run(work, &["status", "--porcelain=v2", "--branch"])
                    .lines()
                    .count(),
                2
            );
            assert_eq!(
                world.run(work, &["rev-parse", "--abbrev-ref", "HEAD"]),
                "mini-ork/r1"
            );
            assert_eq!(world.run(work, &["log", "--format=%s", "main"]), "first");
            assert_eq!(
                world.run(work, &["rev-parse", "v1^{commit}"]),
                run.repository.head.as_str()
            );
            assert!(world.run(work, &["blame", "src/a.rs"]).contains("one"));
            assert_eq!(world.run(work, &["stash", "list"]), "");

            write(&work.join("src/a.rs"), "one\ntwo\n");
            write(&work.join("new"), "n\n");
            assert!(world.run(work, &["diff"]).contains("+two"));
            world.run(work, &["stash", "-q", "-u"]);
            assert_eq!(world.run(work, &["status", "--porcelain"]), "");
            world.run(work, &["stash", "pop", "-q"]);
            world.run(work, &["add", "-A"]);
            world.run(work, &["commit", "-q", "-m", "by the agent"]);
            world.run(work, &["branch", "-D", "other"]);
            world.run(work, &["config", "core.pager", "cat"]);
            world.run(work, &["gc", "-q", "--prune=now"]);
            world.run(work, &["fsck", "--no-dangling"]);
            assert_eq!(
                world.run(work, &["log", "-1", "--format=%an <%ae>"]),
                "A User <user@example.org>"
            );
            assert_eq!(world.run(work, &["config", "user.email"]), "mini-ork@local");
        });
        assert_eq!(world.run(&user, &["worktree", "list"]).lines().count(), 1);
        assert_eq!(
            world.run(&user, &["branch", "--list", "other"]).trim(),
            "other"
        );
        let tree = run.snapshot();
        assert_eq!(run.paths(&tree), ["b", "new", "src/a.rs"]);
        assert_eq!(
            world.run(work, &["rev-parse", "HEAD^{tree}"]),
            tree.as_str()
        );
    }
}

#[test]
fn bc_49_the_private_git_knows_no_path_of_the_checkout() {
    let world = World::new();
    let user = world.repository("user", &[("a", "1\n")]);
    let linked = world.path("linked");
    world.run(
        &user,
        &[
            "worktree",
            "add",
            "-q",
            "-b",
            "topic",
            linked.to_str().unwrap(),
        ],
    );
    let run = world.run_in(&linked);
    assert!(run.in_work(".git").is_dir());
    assert_eq!(world.run(&run.place.path, &["status", "--porcelain"]), "");
    assert_eq!(
        world.run(&run.place.path, &["log", "--format=%s", "topic"]),
        "first"
    );
    assert_eq!(world.run(&linked, &["worktree", "list"]).lines().count(), 2);
}

/// A branch called `mini-ork` would be a file where ours needs a directory.
#[test]
fn a_branch_in_the_way_is_left_out() {
    let world = World::new();
    let user = world.repository("user", &[("a", "1\n")]);
    world.run(&user, &["branch", "mini-ork"]);
    let run = world.run_in(&user);
    assert_eq!(
        world.run(&run.place.path, &["rev-parse", "HEAD"]),
        run.repository.head.as_str()
    );
    world.run(&run.place.path, &["fsck"]);
}

/// The tree of an earlier node is in the run's store only.
#[test]
fn a_later_node_sees_the_work_of_an_earlier_one() {
    let world = World::new();
    let run = world.run_on(&[("a", "1\n")]);
    write(&run.in_work("a"), "2\n");
    let tree = run.snapshot();
    let commit = run
        .control
        .commit(&tree, std::slice::from_ref(&run.repository.head), "step", 0)
        .unwrap();
    let place = world.place("second");
    let private = PrivateGit {
        repository: &run.repository,
        head_branch: "mini-ork/r1",
        head_commit: &commit,
    };
    run.control
        .materialise(&tree, &place, Some(&private))
        .unwrap();
    assert_eq!(world.run(&place.path, &["status", "--porcelain"]), "");
    assert_eq!(
        world.run(&place.path, &["log", "--format=%s"]),
        "step\nfirst"
    );
    world.run(&place.path, &["commit", "-q", "--allow-empty", "-m", "x"]);
    world.run(&place.path, &["fsck", "--no-dangling"]);
}

#[test]
fn cut_off_history_works_inside_too() {
    let world = World::new();
    let full = world.repository("full", &[("a", "1\n")]);
    write(&full.join("a"), "2\n");
    world.run(&full, &["commit", "-q", "-am", "second"]);
    let url = format!("file://{}", full.display());
    world.run(&world.path(""), &["clone", "-q", "--depth=1", &url, "user"]);
    let run = world.run_in(&world.path("user"));
    assert_eq!(
        world.run(&run.place.path, &["log", "--format=%s"]),
        "second"
    );
    assert_eq!(
        world.run(&run.place.path, &["log", "--format=%s", "origin/main"]),
        "second"
    );
}

/// A status that had to read files again would be slow in a big repository.
#[test]
fn the_first_status_inside_reads_no_file() {
    let world = World::new();
    let run = world.run_on(&[("a", "1\n"), ("d/b", "2\n")]);
    // With the same metadata and other content, only reading would tell.
    let path = run.in_work("d/b");
    let index = run.in_work(".git/index");
    let before = fs_err::metadata(&path).unwrap();
    assert!(before.modified().unwrap() <= fs_err::metadata(&index).unwrap().modified().unwrap());
    let listing = world.run(&run.place.path, &["ls-files", "--debug", "d/b"]);
    use std::os::unix::fs::MetadataExt as _;
    assert!(
        listing.contains(&format!("ino: {}", before.ino() as u32)),
        "{listing}"
    );
    assert!(
        listing.contains(&format!(
            "mtime: {}:{}",
            before.mtime(),
            before.mtime_nsec()
        )),
        "{listing}"
    );
}
