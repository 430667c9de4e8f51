//! Submodules, whose files are in a run like those of the repository itself.

use std::path::{Path, PathBuf};

use mini_ork_node::git::{ChangeKind, CommitId, ConflictKind, Expected, TreeId};
use mini_ork_node::tree::{ApplyOutcome, Look, NotCarriedKind, PrivateGit, Safe};

use crate::support::{Run, World, files, gits, write};

const BRANCH: &str = "refs/heads/mini-ork/r1";

/// A checkout with a submodule in a submodule, at `outer/lib` and `outer/lib/deep/inner`.
fn nested(world: &World) -> PathBuf {
    let inner = world.repository("inner", &[("deepest.txt", "deepest\n")]);
    let lib = world.repository("lib", &[("lib.txt", "lib\n"), ("src/a.c", "int a;\n")]);
    add(world, &lib, &inner, "deep/inner");
    let user = world.repository("user", &[("x", "1\n"), ("src/b.c", "int b;\n")]);
    add(world, &user, &lib, "lib");
    let update = [
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "update",
        "--init",
        "--recursive",
    ];
    world.run(&user, &update);
    user
}

fn add(world: &World, outer: &Path, inner: &Path, at: &str) {
    let add = [
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        inner.to_str().unwrap(),
        at,
    ];
    world.run(outer, &add);
    world.run(outer, &["commit", "-q", "-m", "submodule"]);
}

/// The files of a checkout without any `.git`.
fn content(directory: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut found = files(directory);
    found.retain(|(path, ..)| path.iter().all(|name| name != ".git"));
    found
}

fn commit(run: &Run, tree: &TreeId) -> CommitId {
    let tree = run.control.collapsed(tree, "result\n", 7).unwrap();
    let parents = std::slice::from_ref(&run.repository.head);
    run.control.commit(&tree, parents, "result\n", 7).unwrap()
}

fn publish(run: &Run, commit: &CommitId) {
    let published = run
        .control
        .publish(&run.repository, commit, BRANCH, &Expected::Absent);
    published.unwrap();
}

fn changed_paths(run: &Run, tree: &TreeId) -> Vec<String> {
    let changes = run.control.changes(run.base(), tree).unwrap();
    changes.iter().map(|one| one.path.to_string()).collect()
}

#[test]
fn bc_54_submodules_have_their_files_at_every_depth() {
    for git in gits() {
        let world = World::with(git);
        let user = nested(&world);
        // What they were made from is gone: nothing can be fetched.
        for origin in ["inner", "lib"] {
            fs_err::remove_dir_all(world.path(origin)).unwrap();
        }
        let run = world.run_in(&user);
        run.untouched(|| {
            assert_eq!(content(&run.place.path), content(&user));
            assert!(run.control.submodules().absent.is_empty());
            let tree = run.snapshot();
            assert_eq!(commit_tree(&run, &tree), *run.base());
            assert!(changed_paths(&run, &tree).is_empty());
            assert!(run.not_carried().is_empty());
        });
        // The one who works there sees files, and nothing of it as changed.
        assert_eq!(world.run(&run.place.path, &["status", "--porcelain"]), "");
        world.run(&run.place.path, &["fsck", "--strict", "--no-dangling"]);
        assert_eq!(
            world.run(&run.place.path, &["log", "--format=%s"]),
            "mini-ork: submodules as plain files\nsubmodule\nfirst"
        );
    }
}

fn commit_tree(run: &Run, tree: &TreeId) -> TreeId {
    run.control.tree_of(&commit(run, tree)).unwrap()
}

#[test]
fn bc_54_without_a_checkout_they_come_from_the_repository_alone() {
    let world = World::new();
    let user = nested(&world);
    let expected = content(&user);
    world.run(&user, &["submodule", "--quiet", "deinit", "-f", "--all"]);
    let run = world.run_in(&user);
    assert_eq!(content(&run.place.path), expected);

    // A linked worktree has none of its own.
    let linked = world.path("linked");
    world.run(&user, &["worktree", "add", "-q", linked.to_str().unwrap()]);
    let repository = world.discover(&linked);
    let control = world.control("linked.git", &repository);
    let place = world.place("linked-work");
    control
        .materialise(&repository.head_tree, &place, None)
        .unwrap();
    assert_eq!(content(&place.path), expected);
}

#[test]
fn bc_54_changes_in_submodules_are_seen_and_published_as_commits_in_them() {
    for git in gits() {
        let world = World::with(git);
        let user = nested(&world);
        let run = world.run_in(&user);
        write(&run.in_work("lib/deep/inner/deepest.txt"), "changed\n");
        write(&run.in_work("lib/deep/inner/new.txt"), "new\n");
        // Content goes from one repository to another.
        fs_err::copy(run.in_work("lib/lib.txt"), run.in_work("copy")).unwrap();
        fs_err::copy(run.in_work("x"), run.in_work("lib/x")).unwrap();
        let tree = run.snapshot();
        let expected = [
            "copy",
            "lib/deep/inner/deepest.txt",
            "lib/deep/inner/new.txt",
            "lib/x",
        ];
        assert_eq!(changed_paths(&run, &tree), expected);
        let mut patch = Vec::new();
        run.control.patch(run.base(), &tree, &mut patch).unwrap();
        let patch = String::from_utf8(patch).unwrap();
        assert!(
            patch.contains("+++ b/lib/deep/inner/deepest.txt"),
            "{patch}"
        );

        let commit = commit(&run, &tree);
        run.untouched_but_objects(|| publish(&run, &commit));
        publish(&run, &commit);
        let (lib, inner) = (user.join("lib"), user.join("lib/deep/inner"));
        for (at, path) in [(&user, "lib"), (&lib, "deep/inner")] {
            let link = world.run(at, &["rev-parse", &format!("{BRANCH}:{path}")]);
            assert_eq!(world.run(&at.join(path), &["rev-parse", BRANCH]), link);
            let parent = world.run(&at.join(path), &["rev-parse", &format!("{BRANCH}^")]);
            assert_eq!(parent, world.run(&at.join(path), &["rev-parse", "HEAD"]));
        }
        // Compared with what is recorded, both forms are the same work.
        let published = run.control.tree_of(&commit).unwrap();
        assert_eq!(run.control.expanded(&published).unwrap(), tree);
        assert_eq!(changed_paths(&run, &published), expected);

        // Nothing is borrowed from the run, and git brings all of it out.
        let result = content(&run.place.path);
        fs_err::remove_dir_all(run.control.path()).unwrap();
        for directory in [&user, &lib, &inner] {
            world.run(directory, &["fsck", "--strict", "--no-dangling"]);
        }
        world.run(
            &user,
            &["checkout", "-q", "--recurse-submodules", "mini-ork/r1"],
        );
        assert_eq!(content(&user), result);
    }
}

#[test]
fn bc_54_a_result_with_changed_submodules_is_applied_to_the_checkout() {
    let world = World::new();
    let user = nested(&world);
    let run = world.run_in(&user);
    write(&run.in_work("lib/deep/inner/deepest.txt"), "changed\n");
    fs_err::remove_dir_all(run.in_work("lib/src")).unwrap();
    let tree = commit_tree(&run, &run.snapshot());
    let apply = || run.control.apply(&run.repository, run.base(), &tree, false);
    let outcome = apply().unwrap();
    assert!(matches!(outcome, ApplyOutcome::Applied { paths } if paths.len() == 2));
    assert_eq!(content(&run.place.path), content(&user));
    assert_eq!(
        world.run(&user.join("lib"), &["status", "--porcelain"]),
        " M deep/inner\n D src/a.c"
    );
    assert!(matches!(apply().unwrap(), ApplyOutcome::AlreadyApplied));
    // What the user has changed in there is as safe as elsewhere.
    run.control
        .apply(&run.repository, &tree, run.base(), false)
        .unwrap();
    write(&user.join("lib/src/a.c"), "int mine;\n");
    let kept = content(&user);
    apply().unwrap_err();
    assert_eq!(content(&user), kept);
}

#[test]
fn bc_54_work_on_one_submodule_is_merged_file_by_file() {
    let world = World::new();
    let user = nested(&world);
    let run = world.run_in(&user);
    let edited = |path: &str, content: &str| {
        run.control.reset(&run.place, run.base()).unwrap();
        write(&run.in_work(path), content);
        run.snapshot()
    };
    let base = run.control.expanded(run.base()).unwrap();
    let one = edited("lib/lib.txt", "one\n");
    let two = edited("lib/deep/inner/deepest.txt", "two\n");
    let merge = run.control.merge(&base, &one, &two).unwrap();
    assert!(merge.conflicts.is_empty());
    let paths = ["lib/deep/inner/deepest.txt", "lib/lib.txt"];
    assert_eq!(changed_paths(&run, &merge.tree), paths);
    let other = edited("lib/lib.txt", "other\n");
    let merge = run.control.merge(&base, &one, &other).unwrap();
    assert_eq!(merge.conflicts.len(), 1);
    assert_eq!(merge.conflicts[0].kind, ConflictKind::Content);
    assert_eq!(merge.conflicts[0].path.to_string(), "lib/lib.txt");
}

#[test]
fn bc_54_a_submodule_that_goes_is_told_file_by_file() {
    let world = World::new();
    let user = nested(&world);
    let run = world.run_in(&user);
    fs_err::remove_dir_all(run.in_work("lib")).unwrap();
    std::os::unix::fs::symlink("/etc", run.in_work("lib")).unwrap();
    let tree = run.snapshot();
    let changes = run.control.changes(run.base(), &tree).unwrap();
    assert!(changes.len() >= 4, "{changes:?}");
    let deleted = changes.iter().filter(|one| one.kind == ChangeKind::Deleted);
    assert!(deleted.count() >= 3);
    let commit = commit(&run, &tree);
    publish(&run, &commit);
    let listing = world.run(&user, &["ls-tree", BRANCH, "lib"]);
    assert!(listing.starts_with("120000 blob"), "{listing}");
    run.control.reset(&run.place, run.base()).unwrap();
    assert_eq!(content(&run.place.path), content(&user));
}

#[test]
fn bc_54_what_a_private_git_alone_has_of_a_submodule_is_rescued() {
    let world = World::new();
    let user = nested(&world);
    let run = world.run_in(&user);
    let safe = Safe {
        base: run.repository.head.clone(),
        base_tree: run.control.expanded(run.base()).unwrap(),
        trees: [].into(),
        seconds: 7,
    };
    let look = |look| {
        let found = run
            .control
            .find_unsaved(&run.repository, &run.place, &safe, look);
        found.unwrap()
    };
    assert!(look(Look::Commits).is_empty());
    assert!(look(Look::Everything).is_empty());
    write(&run.in_work("lib/lib.txt"), "stashed\n");
    world.run(&run.place.path, &["stash", "-q"]);
    let unsaved = look(Look::Commits);
    let rescued = run
        .control
        .rescue(&run.repository, &unsaved, &safe, "refs/mo/r1/")
        .unwrap();
    assert_eq!(rescued.len(), 1);
    fs_err::remove_dir_all(run.control.path()).unwrap();
    let kept = format!("{}:lib/lib.txt", rescued[0].reference);
    assert_eq!(world.run(&user, &["cat-file", "blob", &kept]), "stashed");
    world.run(&user, &["fsck", "--strict", "--no-dangling"]);
}

#[test]
fn bc_54_what_is_not_here_is_told_with_the_reason() {
    let world = World::new();
    let user = nested(&world);
    let lib = user.join("lib");
    // A commit that was never fetched.
    let tree = world.run(&user, &["rev-parse", "HEAD^{tree}"]);
    let missing = "1".repeat(tree.len());
    let entry = format!("160000,{missing},gone");
    world.run(&user, &["update-index", "--add", "--cacheinfo", &entry]);
    world.run(&lib.join("deep/inner"), &["checkout", "-q", "--detach"]);
    let entry = format!("160000,{missing},deep/inner");
    world.run(&lib, &["update-index", "--cacheinfo", &entry]);
    world.run(&lib, &["commit", "-q", "-m", "moved"]);
    world.run(&user, &["add", "lib"]);
    world.run(&user, &["commit", "-q", "-m", "more"]);
    let run = world.run_in(&user);
    let known = run.control.submodules();
    let absent: Vec<(String, &str)> = known
        .absent
        .iter()
        .map(|one| (one.path.to_string(), one.reason.as_str()))
        .collect();
    assert_eq!(
        absent,
        [
            ("gone".to_owned(), "it is not checked out here"),
            (
                "lib/deep/inner".to_owned(),
                "its repository here does not have the commit"
            )
        ]
    );
    assert!(run.in_work("lib/lib.txt").is_file());
    let empty = |path: &str| fs_err::read_dir(run.in_work(path)).unwrap().count() == 0;
    assert!(empty("gone") && empty("lib/deep/inner"));
    write(&run.in_work("gone/file"), "x\n");
    write(&run.in_work("lib/lib.txt"), "changed\n");
    let tree = run.snapshot();
    assert_eq!(changed_paths(&run, &tree), ["lib/lib.txt"]);
    let left = ("gone".to_owned(), NotCarriedKind::SubmoduleContent);
    assert!(run.not_carried().contains(&left));
    let commit = commit(&run, &tree);
    publish(&run, &commit);
    let links = world.run(&user, &["ls-tree", BRANCH, "gone"]);
    assert!(links.contains(&missing), "{links}");
}

#[test]
fn bc_54_a_name_of_a_submodule_leads_nowhere() {
    let world = World::new();
    let user = nested(&world);
    let other = world.repository("user/other", &[("secret", "s\n")]);
    let head = world.run(&other, &["rev-parse", "HEAD"]);
    for name in ["../../other/.git", "/etc", ".", "x/../../../other/.git"] {
        let path = format!("at{}", name.len());
        let key = format!("submodule.{name}.path");
        world.run(&user, &["config", "-f", ".gitmodules", &key, &path]);
        let entry = format!("160000,{head},{path}");
        world.run(&user, &["update-index", "--add", "--cacheinfo", &entry]);
    }
    world.run(&user, &["add", ".gitmodules"]);
    world.run(&user, &["commit", "-q", "-m", "names"]);
    let run = world.run_in(&user);
    assert_eq!(run.control.submodules().absent.len(), 4);
    assert!(run.in_work("lib/lib.txt").is_file());
}

#[test]
fn bc_54_a_link_in_the_place_of_a_submodule_leads_nowhere() {
    let world = World::new();
    let user = nested(&world);
    let other = world.repository("other", &[("secret", "s\n")]);
    let head = world.run(&other, &["rev-parse", "HEAD"]);
    let entry = format!("160000,{head},link");
    world.run(&user, &["update-index", "--add", "--cacheinfo", &entry]);
    world.run(&user, &["commit", "-q", "-m", "link"]);
    std::os::unix::fs::symlink(&other, user.join("link")).unwrap();
    let run = world.run_in(&user);
    assert_eq!(fs_err::read_dir(run.in_work("link")).unwrap().count(), 0);
    assert_eq!(run.control.submodules().absent.len(), 1);
}

#[test]
fn bc_54_a_shallow_submodule_can_be_changed() {
    let world = World::new();
    let lib = world.repository("lib", &[("lib.txt", "lib\n")]);
    write(&lib.join("lib.txt"), "second\n");
    world.run(&lib, &["commit", "-q", "-a", "-m", "second"]);
    let user = world.repository("user", &[("x", "1\n")]);
    let url = format!("file://{}", lib.display());
    let add = [
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        "--depth=1",
        &url,
        "lib",
    ];
    world.run(&user, &add);
    world.run(&user, &["commit", "-q", "-m", "submodule"]);
    assert!(user.join(".git/modules/lib/shallow").is_file());
    let run = world.run_in(&user);
    write(&run.in_work("lib/lib.txt"), "third\n");
    let commit = commit(&run, &run.snapshot());
    publish(&run, &commit);
    fs_err::remove_dir_all(run.control.path()).unwrap();
    assert_eq!(
        world.run(&user.join("lib"), &["show", &format!("{BRANCH}:lib.txt")]),
        "third"
    );
    world.run(&user.join("lib"), &["fsck", "--strict", "--no-dangling"]);
}

#[test]
fn bc_54_nothing_that_a_submodule_configures_is_run() {
    for git in gits() {
        let world = World::with(git);
        let user = nested(&world);
        let canary = world.path("canary");
        let touch = format!("touch '{}'; cat", canary.display());
        for module in ["lib", "lib/modules/deep/inner"] {
            let config = user.join(".git/modules").join(module).join("config");
            let config = config.to_str().unwrap();
            for key in [
                "filter.evil.clean",
                "filter.evil.smudge",
                "core.fsmonitor",
                "core.hooksPath",
                "filter.lfs.process",
                "core.pager",
                "core.sshCommand",
            ] {
                world.run(&user, &["config", "-f", config, key, &touch]);
            }
        }
        write(
            &user.join(".git/modules/lib/info/attributes"),
            "* filter=evil\n",
        );
        let hook = user.join(".git/modules/lib/hooks/reference-transaction");
        write(&hook, format!("#!/bin/sh\n{touch}\n"));
        crate::support::set_mode(&hook, 0o755);
        let run = world.run_in(&user);
        write(&run.in_work(".gitattributes"), "* filter=evil\n");
        write(&run.in_work("lib/.gitattributes"), "* filter=evil\n");
        write(&run.in_work("lib/lib.txt"), "changed\n");
        // A repository that the agent makes where the submodule is.
        world.run(&run.in_work("lib"), &["init", "-q"]);
        world.run(&run.in_work("lib"), &["config", "core.fsmonitor", &touch]);
        let tree = run.snapshot();
        let commit = commit(&run, &tree);
        publish(&run, &commit);
        run.control.reset(&run.place, run.base()).unwrap();
        run.control.uncommitted(&run.repository).unwrap();
        let private = PrivateGit {
            repository: &run.repository,
            head_branch: "mini-ork/r2",
            head_commit: &run.repository.head,
        };
        let place = world.place("again");
        run.control
            .materialise(&tree, &place, Some(&private))
            .unwrap();
        assert!(!canary.exists());
        world.try_run(&user.join("lib"), &["status"]);
        assert!(canary.exists(), "the user's own git does run them");
    }
}
