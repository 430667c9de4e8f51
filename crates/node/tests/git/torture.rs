//! BC-57: everything that is awkward to carry.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use mini_ork_node::tree::NotCarriedKind;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::{Run, World, files, full, gits, set_mode, write};

/// What a tree carries byte for byte.
fn awkward(root: &Path) {
    for name in [
        &b"new\nline"[..],
        b"back\\slash",
        b"not \xff utf-8",
        "e\u{301} decomposed".as_bytes(),
        "\u{e9} composed".as_bytes(),
        b"-option",
        b":(magic)",
        b"*",
        b" ",
        b"tab\t",
        b"\"quoted\"",
        b"$(touch canary)",
        &[b'x'; 255],
    ] {
        write(&root.join("names").join(OsStr::from_bytes(name)), name);
    }
    write(&root.join("empty file"), "");
    write(&root.join("no line end"), "x");
    write(&root.join("crlf"), "a\r\nb\r\n");
    write(&root.join("mixed"), "a\r\nb\n");
    write(&root.join("nul"), "a\0b");
    write(&root.join("tool"), "#!/bin/sh\n");
    set_mode(&root.join("tool"), 0o755);
    for (name, target) in [
        ("up", "../.."),
        ("abs", "/etc/passwd"),
        ("dangling", "no such"),
        ("self", "self"),
    ] {
        fs_err::os::unix::fs::symlink(target, root.join(name)).unwrap();
    }
    let deep: String = (0..60).map(|_| "directory/").collect();
    write(&root.join(deep).join("leaf"), "deep\n");
}

#[test]
fn bc_57_what_is_carried_is_carried_byte_for_byte() {
    for git in gits() {
        let world = World::with(git);
        let run = world.run_on(&[("a", "1\n")]);
        awkward(&run.place.path);
        let before = files(&run.place.path);
        let tree = run.snapshot();
        assert_eq!(run.not_carried(), []);
        let there = world.place("there");
        run.control.materialise(&tree, &there, None).unwrap();
        assert_eq!(files(&there.path), before);
        assert_eq!(run.control.snapshot(&there).unwrap().tree, tree);
    }
}

#[test]
fn bc_57_what_is_not_carried_is_told() {
    for git in gits() {
        let world = World::with(git);
        let run = world.run_on(&[("a", "1\n"), (".gitignore", "build/\n*.tmp\n")]);
        let at = |path: &str| run.in_work(path);
        write(&at("build/out/x"), "x\n");
        write(&at("d/y.tmp"), "x\n");
        fs_err::create_dir_all(at("hollow/inner")).unwrap();
        write(&at("own only"), "x\n");
        set_mode(&at("own only"), 0o600);
        write(&at("suid"), "x\n");
        set_mode(&at("suid"), 0o4755);
        write(&at("one"), "x\n");
        fs_err::hard_link(at("one"), at("other")).unwrap();
        mknodat(
            CWD,
            at("pipe"),
            FileType::Fifo,
            Mode::from_raw_mode(0o644),
            0,
        )
        .unwrap();
        let tree = run.snapshot();
        let expected: Vec<(String, NotCarriedKind)> = vec![
            ("build".to_owned(), NotCarriedKind::Ignored),
            ("d".to_owned(), NotCarriedKind::Ignored),
            ("hollow/inner".to_owned(), NotCarriedKind::EmptyDirectory),
            ("one".to_owned(), NotCarriedKind::HardLink),
            ("other".to_owned(), NotCarriedKind::HardLink),
            (
                "own only".to_owned(),
                NotCarriedKind::ModeBits { mode: 0o600 },
            ),
            ("pipe".to_owned(), NotCarriedKind::Pipe),
            ("suid".to_owned(), NotCarriedKind::ModeBits { mode: 0o4755 }),
        ];
        assert_eq!(run.not_carried(), expected);
        assert_eq!(
            run.paths(&tree),
            [".gitignore", "a", "one", "other", "own only", "suid"]
        );
    }
}

#[test]
fn bc_57_attributes_act_as_in_a_checkout_and_what_they_change_is_told() {
    for git in gits() {
        let world = World::with(git);
        let rules = "*.bat text eol=crlf\n*.txt text\n*.id ident\n*.u16 text working-tree-encoding=UTF-16LE\n";
        let user = world.repository(
            "user",
            &[
                (".gitattributes", rules),
                ("a.bat", "x\r\ny\r\n"),
                ("a.id", "$Id$\n"),
            ],
        );
        write(&user.join("a.u16"), utf16("wide\n"));
        world.run(&user, &["add", "-A"]);
        world.run(&user, &["commit", "-q", "-m", "wide"]);
        // As a fresh checkout has them.
        fs_err::remove_file(user.join("a.id")).unwrap();
        world.run(&user, &["checkout", "-q", "--", "."]);
        let run = world.run_in(&user);
        assert_eq!(files(&run.place.path), files(&user));
        assert_eq!(fs_err::read(run.in_work("a.u16")).unwrap(), utf16("wide\n"));
        assert!(
            fs_err::read_to_string(run.in_work("a.id"))
                .unwrap()
                .starts_with("$Id: ")
        );

        write(&run.in_work("good.bat"), "x\r\n");
        write(&run.in_work("mixed.bat"), "x\r\ny\n");
        write(&run.in_work("crlf.txt"), "x\r\n");
        write(&run.in_work("stale.id"), "$Id: 0000 $\n");
        write(&run.in_work("b.u16"), utf16("more\n"));
        let tree = run.snapshot();
        let expected: Vec<(String, NotCarriedKind)> = ["crlf.txt", "mixed.bat", "stale.id"]
            .map(|name| (name.to_owned(), NotCarriedKind::Normalised))
            .to_vec();
        assert_eq!(run.not_carried(), expected);
        let there = world.place("there");
        run.control.materialise(&tree, &there, None).unwrap();
        for name in ["good.bat", "b.u16", "a.bat"] {
            assert_eq!(
                fs_err::read(there.path.join(name)).unwrap(),
                fs_err::read(run.in_work(name)).unwrap()
            );
        }
    }
}

#[test]
fn line_endings_follow_the_setting_of_the_repository() {
    let world = World::new();
    let user = world.repository("user", &[("a", "x\ny\n")]);
    world.run(&user, &["config", "core.autocrlf", "true"]);
    fs_err::remove_file(user.join("a")).unwrap();
    world.run(&user, &["checkout", "-q", "--", "."]);
    let run = world.run_in(&user);
    assert_eq!(fs_err::read(run.in_work("a")).unwrap(), b"x\r\ny\r\n");
    assert_eq!(run.snapshot(), *run.base());
    write(&run.in_work("unix"), "x\n");
    run.snapshot();
    assert_eq!(
        run.not_carried(),
        [("unix".to_owned(), NotCarriedKind::Normalised)]
    );
    assert_eq!(
        world.run(&run.place.path, &["status", "--porcelain"]),
        "?? unix"
    );
}

#[test]
fn a_list_that_nobody_would_read_is_cut() {
    let world = World::new();
    let run = world.run_on(&[("a", "1\n")]);
    for number in 0..600 {
        fs_err::create_dir(run.in_work(format!("empty {number:03}"))).unwrap();
    }
    run.snapshot();
    let list = run.control.not_carried(&run.place, run.base()).unwrap();
    assert_eq!((list.entries.len(), list.more), (500, 100));
}

/// Larger than what git keeps in memory, without being large on disk.
#[test]
fn full_bc_57_a_file_of_5_gib() {
    if !full() {
        return;
    }
    let world = World::new();
    let run = world.run_on(&[("a", "1\n")]);
    let file = fs_err::File::create(run.in_work("sparse")).unwrap();
    file.set_len(5 << 30).unwrap();
    let tree = run.snapshot();
    assert_eq!(size_of(&run, &tree, "sparse"), Some(5 << 30));
}

fn size_of(run: &Run, tree: &mini_ork_node::git::TreeId, name: &str) -> Option<u64> {
    let entries = run.control.list(tree).unwrap();
    entries
        .into_iter()
        .find(|entry| entry.path.as_bytes() == name.as_bytes())?
        .size
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}
