//! Putting a result into the user's checkout.

use mini_ork_node::tree::{ApplyError, ApplyOutcome, Obstacle, ObstacleReason};

use crate::support::{Run, World, files, gits, mode, set_mode, write};

fn apply(
    run: &Run,
    tree: &mini_ork_node::git::TreeId,
    dry: bool,
) -> Result<ApplyOutcome, ApplyError> {
    run.control.apply(&run.repository, run.base(), tree, dry)
}

fn obstacles(outcome: Result<ApplyOutcome, ApplyError>) -> Vec<(String, ObstacleReason)> {
    match outcome {
        Err(ApplyError::Refused { obstacles }) => obstacles
            .into_iter()
            .map(|Obstacle { path, reason }| (path.to_string(), reason))
            .collect(),
        other => panic!("not refused: {other:?}"),
    }
}

/// Every kind of change at once.
fn change(run: &Run) -> mini_ork_node::git::TreeId {
    write(&run.in_work("mod"), "changed\n");
    fs_err::remove_file(run.in_work("dir/only")).unwrap();
    fs_err::rename(run.in_work("old"), run.in_work("new name")).unwrap();
    set_mode(&run.in_work("bits"), 0o755);
    write(&run.in_work("bin"), b"x\0y");
    write(&run.in_work("deep/er/added"), "a\n");
    fs_err::remove_file(run.in_work("to link")).unwrap();
    fs_err::os::unix::fs::symlink("mod", run.in_work("to link")).unwrap();
    fs_err::remove_file(run.in_work("to dir")).unwrap();
    write(&run.in_work("to dir/inner"), "i\n");
    fs_err::remove_dir_all(run.in_work("to file")).unwrap();
    write(&run.in_work("to file"), "f\n");
    run.snapshot()
}

const FILES: &[(&str, &str)] = &[
    ("mod", "m\n"),
    ("dir/only", "o\n"),
    ("old", "1\n2\n3\n"),
    ("bits", "b\n"),
    ("bin", "x\0z"),
    ("to link", "l\n"),
    ("to dir", "d\n"),
    ("to file/a", "a\n"),
    ("to file/b/c", "c\n"),
    ("same", "s\n"),
];

#[test]
fn all_changes_arrive_and_the_index_does_not_know() {
    for git in gits() {
        let world = World::with(git);
        let run = world.run_on(FILES);
        set_mode(&run.user.join("mod"), 0o600);
        let tree = change(&run);
        write(&run.user.join("same"), "the user is at work here\n");
        write(&run.user.join("untracked"), "and here\n");
        let planned = run.untouched(|| apply(&run, &tree, true)).unwrap();
        let index = fs_err::read(run.user.join(".git/index")).unwrap();
        let ApplyOutcome::WouldApply { paths } = planned else {
            panic!("{planned:?}")
        };
        assert_eq!(
            apply(&run, &tree, false).unwrap(),
            ApplyOutcome::Applied { paths }
        );
        assert_eq!(fs_err::read(run.user.join(".git/index")).unwrap(), index);
        assert_eq!(
            world.run(&run.user, &["rev-parse", "HEAD"]),
            run.repository.head.as_str()
        );

        let mut theirs = files(&run.user);
        theirs.retain(|(path, ..)| path.as_os_str() != "untracked" && path.as_os_str() != "same");
        let mut ours = files(&run.place.path);
        ours.retain(|(path, ..)| path.as_os_str() != "same" && path.as_os_str() != "dir");
        for (path, bits, _) in &mut theirs {
            if path.as_os_str() == "mod" {
                assert_eq!(*bits, 0o600, "who may read it is the user's decision");
                *bits = 0o644;
            }
        }
        assert_eq!(theirs, ours);
        assert_eq!(
            fs_err::read(run.user.join("same")).unwrap(),
            b"the user is at work here\n"
        );
        assert_eq!(mode(&run.user.join("bits")), 0o755);
        assert!(
            !run.user.join("dir").exists(),
            "as git does with a directory that is empty"
        );
        assert_eq!(
            apply(&run, &tree, false).unwrap(),
            ApplyOutcome::AlreadyApplied
        );
        assert!(
            fs_err::read_dir(run.user.join(".git"))
                .unwrap()
                .all(|entry| {
                    !entry
                        .unwrap()
                        .file_name()
                        .to_string_lossy()
                        .contains("mini-ork")
                })
        );
    }
}

#[test]
fn whatever_the_user_did_to_a_path_is_told_and_nothing_is_written() {
    for git in gits() {
        let world = World::with(git);
        let run = world.run_on(FILES);
        let tree = change(&run);
        let outside = world.path("outside");
        write(&outside.join("added"), "not yours\n");
        let at = |name: &str| run.user.join(name);
        write(&at("mod"), "mine\n");
        write(&at("new name"), "in the way\n");
        fs_err::remove_file(at("bits")).unwrap();
        fs_err::remove_file(at("bin")).unwrap();
        fs_err::os::unix::fs::symlink("mod", at("bin")).unwrap();
        fs_err::create_dir(at("deep")).unwrap();
        fs_err::os::unix::fs::symlink(&outside, at("deep/er")).unwrap();
        write(&at("to file/untracked"), "u\n");
        let expected = [
            ("bin", ObstacleReason::Changed),
            ("bits", ObstacleReason::Missing),
            ("deep/er/added", ObstacleReason::InTheWay),
            ("mod", ObstacleReason::Changed),
            ("new name", ObstacleReason::InTheWay),
            ("to file", ObstacleReason::InTheWay),
        ]
        .map(|(name, reason)| (name.to_owned(), reason));
        let mut found = run.untouched(|| obstacles(apply(&run, &tree, false)));
        found.sort_by(|left, right| left.0.cmp(&right.0));
        assert_eq!(found, expected);
        assert_eq!(
            run.untouched(|| obstacles(apply(&run, &tree, true))).len(),
            expected.len()
        );
    }
}

#[test]
fn what_was_applied_in_part_is_completed() {
    let world = World::new();
    let run = world.run_on(FILES);
    let tree = change(&run);
    write(&run.user.join("mod"), "changed\n");
    fs_err::remove_file(run.user.join("dir/only")).unwrap();
    let ApplyOutcome::Applied { paths } = apply(&run, &tree, false).unwrap() else {
        panic!()
    };
    assert!(!paths.iter().any(|path| path.as_bytes() == b"mod"));
    assert_eq!(
        apply(&run, &tree, true).unwrap(),
        ApplyOutcome::AlreadyApplied
    );
    assert_eq!(
        apply(&run, run.base(), true).unwrap(),
        ApplyOutcome::AlreadyApplied
    );
}

/// A directory that cannot be written stops it half way; the files before it are put back.
#[test]
fn a_failure_half_way_is_taken_back() {
    let world = World::new();
    let run = world.run_on(&[("a", "1\n"), ("gone/x", "x\n"), ("z/deep/file", "1\n")]);
    write(&run.in_work("a"), "2\n");
    fs_err::remove_dir_all(run.in_work("gone")).unwrap();
    write(&run.in_work("new/b"), "b\n");
    write(&run.in_work("z/deep/file"), "2\n");
    let tree = run.snapshot();
    let blocked = run.user.join("z/deep");
    let _guard = Blocked::new(&blocked);
    if fs_err::write(blocked.join("probe"), "").is_ok() {
        fs_err::remove_file(blocked.join("probe")).unwrap();
        println!("left out: nothing here stops root from writing");
        return;
    }
    let error = run
        .untouched_but_times(|| apply(&run, &tree, false))
        .unwrap_err();
    assert!(matches!(error, ApplyError::Install(_)), "{error}");
    assert!(error.to_string().contains("nothing was changed"), "{error}");
}

/// A directory that nobody can write in; for root, by the attribute that holds for root too.
struct Blocked<'a>(&'a std::path::Path);

impl<'a> Blocked<'a> {
    fn new(path: &'a std::path::Path) -> Self {
        set_mode(path, 0o555);
        Self::immutable(path, true);
        Self(path)
    }

    fn immutable(path: &std::path::Path, on: bool) {
        use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
        let directory = fs_err::File::open(path).unwrap();
        if let Ok(mut flags) = ioctl_getflags(&directory) {
            flags.set(IFlags::IMMUTABLE, on);
            let _ = ioctl_setflags(&directory, flags);
        }
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        Self::immutable(self.0, false);
        set_mode(self.0, 0o755);
    }
}

#[test]
fn line_endings_and_encodings_are_those_of_the_checkout() {
    for git in gits() {
        let world = World::with(git);
        let rules = "*.bat text eol=crlf\n*.id ident\n";
        let user = world.repository(
            "user",
            &[
                (".gitattributes", rules),
                ("a.bat", "x\r\n"),
                ("b.id", "$Id$\n"),
            ],
        );
        fs_err::remove_file(user.join("b.id")).unwrap();
        world.run(&user, &["checkout", "-q", "--", "."]);
        let run = world.run_in(&user);
        write(&run.in_work("a.bat"), "x\r\ny\r\n");
        write(&run.in_work("b.id"), "$Id$\nmore\n");
        write(&run.in_work("c.bat"), "new\r\n");
        let tree = run.snapshot();
        assert!(matches!(
            apply(&run, &tree, false).unwrap(),
            ApplyOutcome::Applied { .. }
        ));
        assert_eq!(fs_err::read(user.join("a.bat")).unwrap(), b"x\r\ny\r\n");
        assert_eq!(fs_err::read(user.join("c.bat")).unwrap(), b"new\r\n");
        assert_eq!(
            apply(&run, &tree, false).unwrap(),
            ApplyOutcome::AlreadyApplied
        );
        world.run(&user, &["add", "-A"]);
        assert_eq!(world.run(&user, &["write-tree"]), tree.as_str());
    }
}

#[test]
fn a_bare_repository_and_a_submodule_cannot_take_it() {
    let world = World::new();
    let user = world.repository("user", &[("a", "1\n")]);
    let id = world.run(&user, &["rev-parse", "HEAD"]);
    world.run(
        &user,
        &[
            "update-index",
            "--add",
            "--cacheinfo",
            &format!("160000,{id},sub"),
        ],
    );
    world.run(&user, &["commit", "-q", "-m", "link"]);
    fs_err::create_dir(user.join("sub")).unwrap();
    let run = world.run_in(&user);
    fs_err::remove_dir(run.in_work("sub")).unwrap();
    let tree = run.snapshot();
    assert_eq!(
        obstacles(apply(&run, &tree, false)),
        [("sub".to_owned(), ObstacleReason::Submodule)]
    );

    world.run(
        &world.path(""),
        &["clone", "-q", "--bare", user.to_str().unwrap(), "bare"],
    );
    let bare = world.discover(&world.path("bare"));
    let error = run
        .control
        .apply(&bare, run.base(), &tree, true)
        .unwrap_err();
    assert!(matches!(error, ApplyError::NoCheckout { .. }), "{error}");
}
