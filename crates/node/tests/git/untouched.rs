//! I6: the user's repository is byte-identical before and after.

use mini_ork_node::git::Uncommitted;
use mini_ork_node::tree::{PrivateGit, checkout_fingerprint};

use crate::support::{World, gits, set_mode, write};

/// A checkout in the middle of everything.
fn busy(world: &World) -> std::path::PathBuf {
    let inner = world.repository("inner", &[("y", "y\n")]);
    let user = world.repository(
        "user",
        &[
            ("a b", "1\n"),
            ("c\nd", "2\n"),
            ("e", "3\n"),
            ("f", "4\n"),
            (".gitignore", "*.o\n"),
        ],
    );
    let url = inner.to_str().unwrap();
    world.run(
        &user,
        &[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            url,
            "sub",
        ],
    );
    world.run(&user, &["commit", "-q", "-m", "submodule"]);
    write(&user.join("e"), "stashed\n");
    world.run(&user, &["stash", "-q"]);
    let linked = world.path("linked tree");
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
    world.run(&user, &["checkout", "-q", "--detach"]);
    write(&user.join("a b"), "staged\n");
    write(&user.join("staged new"), "s\n");
    world.run(&user, &["add", "-A"]);
    write(&user.join("a b"), "and changed again\n");
    fs_err::remove_file(user.join("c\nd")).unwrap();
    set_mode(&user.join("f"), 0o755);
    write(&user.join("un\ntracked"), "u\n");
    write(&user.join("dir/untracked"), "u\n");
    write(&user.join("ignored.o"), "o\n");
    write(&user.join("sub/y"), "changed in the submodule\n");
    user
}

#[test]
fn i6_a_whole_run_leaves_everything_as_it_was() {
    for git in gits() {
        for split in [false, true] {
            let world = World::with(git.clone());
            let user = busy(&world);
            if split {
                world.run(&user, &["update-index", "--split-index"]);
            }
            let run = world.run_in(&user);
            run.untouched(|| {
                let counts = run.control.uncommitted(&run.repository).unwrap();
                let expected = Uncommitted {
                    staged: 2,
                    unstaged: 3,
                    untracked: 2,
                    unmerged: 0,
                };
                assert_eq!(counts, expected);
                assert_eq!(run.repository.branch, None);
                let again = world.discover(&user.join("dir"));
                assert_eq!(again.head, run.repository.head);
                assert_eq!(again.submodules().unwrap().len(), 1);
                run.control.lfs_files(&again).unwrap();
                let place = world.place("another");
                let private = PrivateGit {
                    repository: &again,
                    head_branch: "mini-ork/r2",
                    head_commit: &again.head,
                };
                run.control
                    .materialise(run.base(), &place, Some(&private))
                    .unwrap();
                write(&run.in_work("e"), "work\n");
                let tree = run.snapshot();
                run.not_carried();
                run.control.changes(run.base(), &tree).unwrap();
                run.control
                    .apply(&run.repository, run.base(), &tree, true)
                    .unwrap();
                run.control
                    .commit(&tree, std::slice::from_ref(&run.repository.head), "m", 0)
                    .unwrap();
                run.control.reset(&run.place, run.base()).unwrap();
            });
            assert_eq!(world.run(&user, &["stash", "list"]).lines().count(), 1);
            assert_eq!(world.run(&user, &["worktree", "list"]).lines().count(), 2);
        }
    }
}

#[test]
fn a_clean_checkout_has_nothing_uncommitted() {
    let world = World::new();
    let run = world.run_on(&[("a", "1\n")]);
    assert_eq!(
        run.control.uncommitted(&run.repository).unwrap(),
        Uncommitted::default()
    );
    // Touched and not changed is not changed.
    write(&run.user.join("a"), "1\n");
    assert_eq!(
        run.control.uncommitted(&run.repository).unwrap(),
        Uncommitted::default()
    );
    world.run(
        &world.path(""),
        &["clone", "-q", "--bare", run.user.to_str().unwrap(), "bare"],
    );
    let bare = world.discover(&world.path("bare"));
    assert_eq!(
        run.control.uncommitted(&bare).unwrap(),
        Uncommitted::default()
    );
}

#[test]
fn i6_each_thing_that_is_protected_is_seen_when_it_changes() {
    let world = World::new();
    let user = world.repository("user", &[("a", "1\n"), ("d/b", "2\n")]);
    let repository = world.discover(&user);
    let before = checkout_fingerprint(&repository).unwrap();
    let check = |what: &str, act: &dyn Fn(), undo: &dyn Fn()| {
        let before = checkout_fingerprint(&repository).unwrap();
        act();
        let differences = before.differences(&checkout_fingerprint(&repository).unwrap());
        assert!(differences.contains(&what), "{what}: {differences:?}");
        undo();
    };
    let git = |arguments: &'static [&str]| {
        let world = &world;
        let user = user.clone();
        move || drop(world.run(&user, arguments))
    };
    let nothing = || ();
    check(
        "HEAD",
        &git(&["checkout", "-q", "--detach"]),
        &git(&["checkout", "-q", "main"]),
    );
    check(
        "references or stashes",
        &git(&["branch", "x"]),
        &git(&["branch", "-D", "x"]),
    );
    check(
        "references or stashes",
        &git(&["tag", "x"]),
        &git(&["tag", "-d", "x"]),
    );
    check("the configuration", &git(&["config", "a.b", "c"]), &nothing);
    check(
        "hooks",
        &|| write(&user.join(".git/hooks/pre-commit"), "x"),
        &nothing,
    );
    check("files", &|| write(&user.join("a"), "1\n"), &nothing);
    check("files", &|| set_mode(&user.join("d/b"), 0o755), &nothing);
    check(
        "files",
        &|| fs_err::os::unix::fs::symlink("x", user.join("l")).unwrap(),
        &nothing,
    );
    check(
        "files",
        &|| fs_err::create_dir(user.join("empty")).unwrap(),
        &nothing,
    );
    check("the index", &git(&["add", "-A"]), &nothing);
    check("references or stashes", &git(&["stash", "-q"]), &nothing);
    assert_ne!(checkout_fingerprint(&repository).unwrap(), before);

    let own = checkout_fingerprint(&repository).unwrap();
    world.run(&user, &["branch", "mini-ork/r9"]);
    world.run(&user, &["update-ref", "refs/mo/r9/x", "HEAD"]);
    assert_eq!(checkout_fingerprint(&repository).unwrap(), own);
    let wire = serde_json::to_string(&own).unwrap();
    assert_eq!(
        serde_json::from_str::<mini_ork_node::tree::CheckoutFingerprint>(&wire).unwrap(),
        own
    );
}
