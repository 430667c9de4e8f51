//! Reading a directory back, and putting it right again.

use std::os::unix::net::UnixListener;

use mini_ork_node::tree::{NotCarriedKind, TreeError};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::{Run, World, files, gits, is_root, set_mode, write};

fn pipe(path: &std::path::Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
}

#[test]
fn bc_57_repositories_inside_are_carried_as_files() {
    for git in gits() {
        let world = World::with(git);
        let run = world.run_on(&[("src/a", "1\n"), ("plain", "p\n")]);
        // With a commit, without one, one in the other, one around tracked files, one in a file's
        // place, and one that is no repository at all.
        let work = &run.place.path;
        fs_err::create_dir_all(run.in_work("vendor/lib/sub")).unwrap();
        for inner in ["vendor/lib", "vendor/lib/sub", "src"] {
            world.run(&run.in_work(inner), &["init", "-q"]);
        }
        write(&run.in_work("vendor/lib/x"), "x\n");
        world.run(&run.in_work("vendor/lib"), &["add", "x"]);
        world.run(&run.in_work("vendor/lib"), &["commit", "-q", "-m", "inner"]);
        write(&run.in_work("vendor/lib/sub/y"), "y\n");
        write(&run.in_work("vendor/lib/sub/z.o"), "ignored\n");
        write(&run.in_work(".gitignore"), "*.o\n");
        fs_err::remove_file(run.in_work("plain")).unwrap();
        write(&run.in_work("plain/q"), "q\n");
        world.run(&run.in_work("plain"), &["init", "-q"]);
        write(&run.in_work("odd/.git"), "gitdir: /nonexistent\n");
        write(&run.in_work("odd/w"), "w\n");
        fs_err::create_dir_all(run.in_work("piped/.git")).unwrap();
        pipe(&run.in_work("piped/.git/HEAD"));
        write(&run.in_work("piped/v"), "v\n");

        let tree = run.snapshot();
        let expected = [
            ".gitignore",
            "odd/w",
            "piped/v",
            "plain/q",
            "src/a",
            "vendor/lib/sub/y",
            "vendor/lib/x",
        ];
        assert_eq!(run.paths(&tree), expected);
        assert_eq!(run.snapshot(), tree, "a second look sees the same");
        let left = run.not_carried();
        for inner in [
            "odd",
            "piped",
            "plain",
            "src",
            "vendor/lib",
            "vendor/lib/sub",
        ] {
            assert!(
                left.contains(&(inner.to_owned(), NotCarriedKind::NestedGit)),
                "{left:?}"
            );
        }
        assert!(
            left.contains(&("vendor/lib/sub/z.o".to_owned(), NotCarriedKind::Ignored)),
            "{left:?}"
        );
        assert!(
            work.join("vendor/lib/.git/HEAD").is_file(),
            "nothing was changed in there"
        );
    }
}

#[test]
fn bc_57_submodules_that_are_not_here_stay_as_they_were_and_their_content_is_told() {
    for git in gits() {
        let world = World::with(git);
        let inner = world.repository("inner", &[("y", "y\n")]);
        let user = world.repository("user", &[("x", "1\n")]);
        let url = inner.to_str().unwrap();
        let add = [
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            url,
            "sub",
        ];
        world.run(&user, &add);
        world.run(&user, &["commit", "-q", "-m", "submodule"]);
        let clone = world.path("clone");
        let arguments = [
            "clone",
            "-q",
            user.to_str().unwrap(),
            clone.to_str().unwrap(),
        ];
        world.run(&user, &arguments);
        let run = world.run_in(&clone);
        let absent = &run.control.submodules().absent;
        assert_eq!(
            absent
                .iter()
                .map(|one| one.path.to_string())
                .collect::<Vec<_>>(),
            ["sub"]
        );
        assert!(run.in_work("sub").is_dir());
        assert_eq!(run.snapshot(), *run.base());
        assert!(run.not_carried().is_empty());

        world.run(&run.in_work("sub"), &["init", "-q"]);
        world.run(
            &run.in_work("sub"),
            &["commit", "-q", "--allow-empty", "-m", "other"],
        );
        write(&run.in_work("sub/new"), "n\n");
        write(&run.in_work("x"), "2\n");
        let tree = run.snapshot();
        assert_eq!(run.paths(&tree), [".gitmodules", "sub", "x"]);
        assert_eq!(run.control.changes(run.base(), &tree).unwrap().len(), 1);
        assert_eq!(
            run.not_carried(),
            [("sub".to_owned(), NotCarriedKind::SubmoduleContent)]
        );

        run.control.reset(&run.place, run.base()).unwrap();
        assert_eq!(fs_err::read_dir(run.in_work("sub")).unwrap().count(), 0);
        fs_err::remove_dir(run.in_work("sub")).unwrap();
        assert_eq!(run.paths(&run.snapshot()), [".gitmodules", "x"]);
    }
}

#[test]
fn names_that_git_refuses_are_left_out_and_told() {
    for git in gits() {
        let world = World::with(git);
        let run = world.run_on(&[("a", "1\n"), (".gitmodules", "")]);
        for name in [
            ".GIT/config",
            "d/git~1",
            "d/.git. ",
            "e\\.git",
            ".g\u{200c}it",
        ] {
            write(&run.in_work(name), "x\n");
        }
        fs_err::remove_file(run.in_work(".gitmodules")).unwrap();
        fs_err::os::unix::fs::symlink("a", run.in_work(".gitmodules")).unwrap();
        write(&run.in_work("d/fine"), "x\n");
        let tree = run.snapshot();
        assert_eq!(run.paths(&tree), [".gitmodules", "a", "d/fine"]);
        let left = run.not_carried();
        assert_eq!(left.len(), 6, "{left:?}");
        assert!(
            left.iter()
                .all(|(_, kind)| *kind == NotCarriedKind::ForbiddenName),
            "{left:?}"
        );
        run.control.reset(&run.place, run.base()).unwrap();
        assert_eq!(files(&run.place.path).len(), 2);
        assert_eq!(run.snapshot(), *run.base());
    }
}

#[test]
fn pipes_and_sockets_do_not_hold_it_up() {
    for git in gits() {
        let world = World::with(git);
        let run = world.run_on(&[("tracked", "1\n"), ("b", "b\n")]);
        fs_err::remove_file(run.in_work("tracked")).unwrap();
        pipe(&run.in_work("tracked"));
        pipe(&run.in_work("other"));
        let _listener = UnixListener::bind(run.in_work("socket")).unwrap();
        assert_eq!(run.paths(&run.snapshot()), ["b"]);
        let expected = [
            ("other".to_owned(), NotCarriedKind::Pipe),
            ("socket".to_owned(), NotCarriedKind::Socket),
            ("tracked".to_owned(), NotCarriedKind::Pipe),
        ];
        assert_eq!(run.not_carried(), expected);
        run.control.reset(&run.place, run.base()).unwrap();
        assert_eq!(run.snapshot(), *run.base());
        assert_eq!(files(&run.place.path).len(), 2);
    }
}

#[test]
fn a_directory_that_cannot_be_read_is_an_error_with_its_name() {
    let world = World::new();
    let run = world.run_on(&[("a", "1\n"), (".gitignore", "cache/\n")]);
    write(&run.in_work("secret room/x"), "x\n");
    write(&run.in_work("cache/y"), "y\n");
    set_mode(&run.in_work("secret room"), 0o000);
    set_mode(&run.in_work("cache"), 0o000);
    if is_root() {
        println!("root reads everything");
        assert_eq!(
            run.paths(&run.snapshot()),
            [".gitignore", "a", "secret room/x"]
        );
    } else {
        let error = run.control.snapshot(&run.place).unwrap_err();
        assert!(matches!(error, TreeError::Unreadable { .. }), "{error}");
        assert!(error.to_string().contains("secret room"), "{error}");
    }
    run.control.reset(&run.place, run.base()).unwrap();
    assert!(!run.in_work("secret room").exists());
    assert!(run.in_work("cache").exists());
    assert_eq!(run.snapshot(), *run.base());
    set_mode(&run.in_work("cache"), 0o755);
}

#[test]
fn reset_makes_it_exactly_the_tree_and_keeps_what_is_ignored() {
    for git in gits() {
        let world = World::with(git);
        let run = world.run_on(&[
            ("a", "1\n"),
            ("d/b", "2\n"),
            ("d/e/c", "3\n"),
            ("file", "f\n"),
            (".gitignore", "target/\n*.log\n"),
        ]);
        let before = files(&run.place.path);
        let outside = world.path("outside");
        write(&outside.join("b"), "do not touch\n");
        write(&outside.join("e/c"), "do not touch\n");

        write(&run.in_work("a"), "changed\n");
        set_mode(&run.in_work("file"), 0o755);
        fs_err::remove_dir_all(run.in_work("d")).unwrap();
        fs_err::os::unix::fs::symlink(&outside, run.in_work("d")).unwrap();
        write(&run.in_work("new/deep/x"), "x\n");
        write(&run.in_work("target/out"), "cache\n");
        write(&run.in_work("new/y.log"), "log\n");
        fs_err::create_dir_all(run.in_work("empty/inner/most")).unwrap();
        fs_err::create_dir_all(run.in_work("nested")).unwrap();
        world.run(&run.in_work("nested"), &["init", "-q"]);
        fs_err::os::unix::fs::symlink(&outside, run.in_work("way out")).unwrap();
        fs_err::os::unix::fs::symlink("loop", run.in_work("loop")).unwrap();
        write(&run.in_work("locked/in/z"), "z\n");
        set_mode(&run.in_work("locked/in"), 0o500);
        set_mode(&run.in_work("locked"), 0o100);

        run.control.reset(&run.place, run.base()).unwrap();
        let mut after = files(&run.place.path);
        let kept: Vec<_> = ["new", "new/y.log", "target", "target/out"]
            .map(std::path::PathBuf::from)
            .to_vec();
        after.retain(|(path, ..)| !kept.contains(path));
        assert_eq!(after, before);
        assert!(kept.iter().all(|path| run.in_work(path).exists()));
        assert_eq!(fs_err::read(outside.join("b")).unwrap(), b"do not touch\n");
        assert_eq!(
            fs_err::read(outside.join("e/c")).unwrap(),
            b"do not touch\n"
        );
        assert_eq!(run.snapshot(), *run.base());
        assert!(run.in_work(".git/HEAD").exists());
    }
}

#[test]
fn reset_goes_to_any_tree_after_any_change() {
    let world = World::new();
    let run = world.run_on(&[("a", "1\n"), ("d/b", "2\n")]);
    fs_err::remove_file(run.in_work("a")).unwrap();
    write(&run.in_work("a/now/a directory"), "x\n");
    fs_err::remove_dir_all(run.in_work("d")).unwrap();
    write(&run.in_work("d"), "now a file\n");
    let other = run.snapshot();
    assert_eq!(run.paths(&other), ["a/now/a directory", "d"]);
    run.control.reset(&run.place, run.base()).unwrap();
    assert_eq!(run.paths(&run.snapshot()), ["a", "d/b"]);
    run.control.reset(&run.place, &other).unwrap();
    assert_eq!(run.snapshot(), other);
    assert_eq!(fs_err::read(run.in_work("d")).unwrap(), b"now a file\n");
}

/// Too deep for git, for a path, and for one open directory per level.
#[test]
fn a_directory_deeper_than_a_path_is_told_and_removed() {
    let world = World::new();
    let run = world.run_on(&[("a", "1\n")]);
    dig(&run, "deep", 3000);
    write(&run.in_work("deep/x"), "x\n");
    assert_eq!(run.paths(&run.snapshot()), ["a", "deep/x"]);
    let left = run.not_carried();
    assert!(
        left.iter()
            .any(|(_, kind)| *kind == NotCarriedKind::PathTooLong),
        "{left:?}"
    );
    run.control.reset(&run.place, run.base()).unwrap();
    assert_eq!(files(&run.place.path).len(), 1);
}

fn dig(run: &Run, name: &str, depth: usize) {
    use rustix::fs::{OFlags, mkdirat, openat};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut level = rustix::fs::open(&run.place.path, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        mkdirat(&level, name, Mode::from_raw_mode(0o755)).unwrap();
        level = openat(&level, name, flags, Mode::empty()).unwrap();
    }
}

#[test]
fn a_lock_of_a_killed_process_is_no_obstacle() {
    let world = World::new();
    let run = world.run_on(&[("a", "1\n")]);
    let mut lock = run.place.index_file.clone().into_os_string();
    lock.push(".lock");
    fs_err::write(&lock, "").unwrap();
    write(&run.in_work("b"), "b\n");
    assert_eq!(run.paths(&run.snapshot()), ["a", "b"]);
    fs_err::write(&lock, "").unwrap();
    run.control.reset(&run.place, run.base()).unwrap();
    assert_eq!(run.snapshot(), *run.base());
}

#[test]
fn a_place_is_made_whole_or_not_at_all() {
    let world = World::new();
    let run = world.run_on(&[("a", "1\n")]);
    let error = run
        .control
        .materialise(run.base(), &run.place, None)
        .unwrap_err();
    assert!(matches!(error, TreeError::NotEmpty { .. }), "{error}");
    assert!(run.in_work("a").exists());
    let place = world.place("other");
    let absent = mini_ork_node::git::TreeId::parse(&"1".repeat(40)).unwrap();
    assert!(run.control.materialise(&absent, &place, None).is_err());
    assert!(!place.path.exists());
    run.control.materialise(run.base(), &place, None).unwrap();
    assert!(!place.path.join(".git").exists());
}

/// Global ignore rules come as bytes, the repository's own from its directory.
#[test]
fn rules_of_the_user_hold_in_the_run() {
    let world = World::new();
    let user = world.repository("user", &[("a", "1\n")]);
    write(&user.join(".git/info/exclude"), "*.local");
    let repository = world.discover(&user);
    let control =
        mini_ork_node::git::ControlGit::create(&world.path("c.git"), &repository, b".idea/\n")
            .unwrap();
    let place = world.place("work");
    control
        .materialise(&repository.head_tree, &place, None)
        .unwrap();
    write(&place.path.join(".idea/x"), "x\n");
    write(&place.path.join("b.local"), "x\n");
    write(&place.path.join("c"), "x\n");
    let tree = control.snapshot(&place).unwrap().tree;
    let paths: Vec<String> = control
        .list(&tree)
        .unwrap()
        .iter()
        .map(|entry| entry.path.to_string())
        .collect();
    assert_eq!(paths, ["a", "c"]);
    let again = mini_ork_node::git::ControlGit::open(&world.git, control.path()).unwrap();
    assert_eq!(again.snapshot(&place).unwrap().tree, tree);
}
