//! Bringing commits into the user's repository.

use mini_ork_node::git::{CommitId, Expected, PublishError, PublishOutcome, TreeId};

use crate::support::{Run, World, files, gits, write};

const BRANCH: &str = "refs/heads/mini-ork/r1";

fn commit(run: &Run, tree: &TreeId, message: &str) -> CommitId {
    run.control
        .commit(tree, std::slice::from_ref(&run.repository.head), message, 7)
        .unwrap()
}

fn changed(run: &Run, files: usize) -> CommitId {
    for number in 0..files {
        write(
            &run.in_work(format!("new/{number}")),
            format!("content {number}\n"),
        );
    }
    write(&run.in_work("a"), "changed\n");
    commit(run, &run.snapshot(), "result")
}

fn publish(
    run: &Run,
    commit: &CommitId,
    expected: &Expected,
) -> Result<PublishOutcome, PublishError> {
    run.control
        .publish(&run.repository, commit, BRANCH, expected)
}

#[test]
fn a_commit_arrives_whole_whatever_its_size() {
    for git in gits() {
        for count in [1, 150] {
            let world = World::with(git.clone());
            let run = world.run_on(&[("a", "1\n"), ("b", "b\n")]);
            let commit = changed(&run, count);
            let outcome = run.untouched_but_objects(|| publish(&run, &commit, &Expected::Absent));
            assert_eq!(outcome.unwrap(), PublishOutcome::Published);
            assert_eq!(
                publish(&run, &commit, &Expected::Absent).unwrap(),
                PublishOutcome::AlreadyThere
            );
            assert_eq!(
                world.run(&run.user, &["rev-parse", BRANCH]),
                commit.as_str()
            );
            // Nothing is borrowed from the run.
            fs_err::remove_dir_all(run.control.path()).unwrap();
            world.run(&run.user, &["fsck", "--strict", "--no-dangling"]);
            world.run(&run.user, &["checkout", "-q", "mini-ork/r1"]);
            assert_eq!(files(&run.user).len(), count + 3);
        }
    }
}

#[test]
fn only_what_is_missing_is_sent() {
    let world = World::new();
    let run = world.run_on(&[("a", "1\n"), ("big", &"x\n".repeat(100_000))]);
    let before = world.run(&run.user, &["count-objects", "-v"]);
    let count = |text: &str| -> u64 {
        text.lines()
            .filter_map(|line| {
                line.strip_prefix("count: ")
                    .or_else(|| line.strip_prefix("in-pack: "))
            })
            .map(|number| number.parse::<u64>().unwrap())
            .sum()
    };
    let commit = changed(&run, 0);
    publish(&run, &commit, &Expected::Absent).unwrap();
    let after = world.run(&run.user, &["count-objects", "-v"]);
    // A commit, a tree and a blob.
    assert_eq!(count(&after), count(&before) + 3);
}

#[test]
fn a_reference_that_is_not_as_expected_is_left_alone() {
    for git in gits() {
        let world = World::with(git);
        let run = world.run_on(&[("a", "1\n")]);
        let first = changed(&run, 1);
        publish(&run, &first, &Expected::Absent).unwrap();
        let second = changed(&run, 2);
        let error = publish(&run, &second, &Expected::Absent).unwrap_err();
        assert!(
            matches!(&error, PublishError::Moved { found, .. } if *found == first),
            "{error}"
        );
        let error = publish(&run, &second, &Expected::At(second.clone())).unwrap_err();
        assert!(
            matches!(
                error,
                PublishError::Gone { .. } | PublishError::Moved { .. }
            ) || error.to_string().is_empty()
        );
        assert_eq!(
            publish(&run, &second, &Expected::At(first.clone())).unwrap(),
            PublishOutcome::Published
        );

        let error = run
            .control
            .delete_ref(&run.repository, BRANCH, &first)
            .unwrap_err();
        assert!(matches!(error, PublishError::Moved { .. }), "{error}");
        run.control
            .delete_ref(&run.repository, BRANCH, &second)
            .unwrap();
        run.control
            .delete_ref(&run.repository, BRANCH, &second)
            .unwrap();
        let error = publish(&run, &second, &Expected::At(first)).unwrap_err();
        assert!(matches!(error, PublishError::Gone { .. }), "{error}");
        assert_eq!(
            world.run(&run.user, &["for-each-ref", "--format=%(refname)"]),
            "refs/heads/main"
        );
    }
}

#[test]
fn a_branch_that_is_checked_out_is_never_moved() {
    for git in gits() {
        let world = World::with(git);
        let run = world.run_on(&[("a", "1\n")]);
        let commit = changed(&run, 1);
        let head = Expected::At(run.repository.head.clone());
        let error = run
            .untouched(|| {
                run.control
                    .publish(&run.repository, &commit, "refs/heads/main", &head)
            })
            .unwrap_err();
        assert!(matches!(error, PublishError::CheckedOut { .. }), "{error}");

        let linked = world.path("linked\nwith line");
        world.run(
            &run.user,
            &[
                "worktree",
                "add",
                "-q",
                "-b",
                "mini-ork/r1",
                linked.to_str().unwrap(),
            ],
        );
        let error = publish(&run, &commit, &head).unwrap_err();
        assert!(
            matches!(&error, PublishError::CheckedOut { worktree, .. } if *worktree == linked),
            "{error}"
        );
    }
}

#[test]
fn names_that_are_no_references_are_refused() {
    let world = World::new();
    let run = world.run_on(&[("a", "1\n")]);
    let commit = changed(&run, 1);
    for name in [
        "main",
        "refs/heads/a..b",
        "refs/heads/",
        "refs/heads/x.lock",
        "-d",
        "HEAD",
        "refs/heads/a b",
        "",
    ] {
        let error = run
            .control
            .publish(&run.repository, &commit, name, &Expected::Absent)
            .unwrap_err();
        assert!(
            matches!(error, PublishError::BadName { .. }),
            "{name}: {error}"
        );
    }
    // A directory cannot be where a branch is.
    world.run(&run.user, &["branch", "mini-ork"]);
    let error = publish(&run, &commit, &Expected::Absent).unwrap_err();
    assert!(error.to_string().contains("refs/heads/mini-ork"), "{error}");
}

#[test]
fn every_store_of_references_works() {
    for git in gits() {
        let world = World::with(git);
        let user = world.repository("packed", &[("a", "1\n")]);
        world.run(&user, &["branch", "other"]);
        world.run(&user, &["pack-refs", "--all"]);
        let run = world.run_in(&user);
        let commit = changed(&run, 1);
        publish(&run, &commit, &Expected::Absent).unwrap();
        world.run(&user, &["pack-refs", "--all"]);
        assert_eq!(
            publish(&run, &commit, &Expected::Absent).unwrap(),
            PublishOutcome::AlreadyThere
        );
        run.control
            .delete_ref(&run.repository, BRANCH, &commit)
            .unwrap();
        assert_eq!(world.run(&user, &["for-each-ref"]).lines().count(), 2);
    }
    let world = World::new();
    let user = world.path("reftable");
    fs_err::create_dir(&user).unwrap();
    if !world
        .try_run(
            &user,
            &["init", "-q", "-b", "main", "--ref-format=reftable"],
        )
        .status
        .success()
    {
        println!("left out: this git has no reftable");
        return;
    }
    write(&user.join("a"), "1\n");
    world.run(&user, &["add", "-A"]);
    world.run(&user, &["commit", "-q", "-m", "one"]);
    let run = world.run_in(&user);
    assert_eq!(run.repository.branch, Some("main".into()));
    assert_eq!(
        world.run(&run.place.path, &["log", "--format=%s", "main"]),
        "one"
    );
    let commit = changed(&run, 1);
    publish(&run, &commit, &Expected::Absent).unwrap();
    assert_eq!(world.run(&user, &["rev-parse", BRANCH]), commit.as_str());
}

#[test]
fn a_chain_of_commits_and_a_keep_reference() {
    let world = World::new();
    let run = world.run_on(&[("a", "1\n")]);
    let first = changed(&run, 1);
    let keep = "refs/mo/r1/implementer";
    run.control
        .publish(&run.repository, &first, keep, &Expected::Absent)
        .unwrap();
    write(&run.in_work("last"), "x\n");
    let tree = run.snapshot();
    let second = run
        .control
        .commit(&tree, std::slice::from_ref(&first), "second", 8)
        .unwrap();
    publish(&run, &second, &Expected::Absent).unwrap();
    assert_eq!(
        world.run(&run.user, &["log", "--format=%s", BRANCH]),
        "second\nresult\nfirst"
    );
    world.run(&run.user, &["fsck", "--strict", "--no-dangling"]);
}

#[test]
fn history_cut_off_and_a_bare_repository() {
    let world = World::new();
    let full = world.repository("full", &[("a", "1\n")]);
    write(&full.join("a"), "2\n");
    world.run(&full, &["commit", "-q", "-am", "second"]);
    let url = format!("file://{}", full.display());
    world.run(
        &world.path(""),
        &["clone", "-q", "--bare", "--depth=1", &url, "user"],
    );
    let run = world.run_in(&world.path("user"));
    let commit = changed(&run, 1);
    publish(&run, &commit, &Expected::Absent).unwrap();
    assert_eq!(
        world.run(&run.user, &["log", "--format=%s", BRANCH]),
        "result\nsecond"
    );
    world.run(&run.user, &["fsck", "--no-dangling"]);
}
