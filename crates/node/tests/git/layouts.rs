//! BC-49 and BC-53: repositories of every layout, and of other owners.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use mini_ork_node::git::{DiscoverError, LfsFiles, ObjectFormat, Repository};
use mini_ork_protocol::ByteString;

use crate::support::{World, files, gits, is_root, write};

/// Finds the repository from `start` and makes a place of it that has the same files.
fn check(world: &World, start: &Path, toplevel: &Path) -> Repository {
    let found = world.discover(start);
    assert_eq!(found.toplevel.as_deref(), Some(toplevel));
    let head = world.run(toplevel, &["rev-parse", "HEAD"]);
    assert_eq!(found.head.as_str(), head);
    let name = format!(
        "control-{}",
        fs_err::read_dir(world.path("")).unwrap().count()
    );
    let control = world.control(&name, &found);
    let place = world.place(&format!("{name}-work"));
    control.materialise(&found.head_tree, &place, None).unwrap();
    assert_eq!(files(&place.path), files(toplevel));
    assert_eq!(control.snapshot(&place).unwrap().tree, found.head_tree);
    found
}

#[test]
fn bc_49_every_layout_is_found() {
    for git in gits() {
        let world = World::with(git);
        let user = world.repository("a\nrepo", &[("src/deep/x.rs", "x\n"), ("readme", "r\n")]);

        let plain = check(&world, &user, &user);
        assert_eq!(plain.branch, Some(ByteString::from("main")));
        assert_eq!(plain.git_dir, plain.common_dir);
        assert!(!plain.shallow);
        check(&world, &user.join("src/deep"), &user);
        check(&world, &user.join(".git"), &user);
        check(&world, &user.join(".git/refs"), &user);

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
        write(&linked.join("new/only here"), "1\n");
        world.run(&linked, &["add", "-A"]);
        world.run(&linked, &["commit", "-q", "-m", "second"]);
        let found = check(&world, &linked.join("new"), &linked);
        assert_eq!(found.branch, Some(ByteString::from("topic")));
        assert_eq!(found.common_dir, plain.git_dir);
        assert_ne!(found.git_dir, plain.git_dir);

        // As `worktree.useRelativePaths` writes it.
        let name = linked.file_name().unwrap();
        write(
            &linked.join(".git"),
            "gitdir: ../a\nrepo/.git/worktrees/linked\n",
        );
        let admin = user.join(".git/worktrees").join(name);
        write(&admin.join("gitdir"), "../../../../linked/.git\n");
        check(&world, &linked, &linked);
        check(&world, &admin, &user);

        world.run(&user, &["checkout", "-q", "--detach"]);
        assert_eq!(check(&world, &user, &user).branch, None);
    }
}

#[test]
fn bc_49_bare_with_worktrees() {
    for git in gits() {
        let world = World::with(git);
        let origin = world.repository("origin", &[("x", "1\n")]);
        let project = world.path("project");
        fs_err::create_dir(&project).unwrap();
        let bare = project.join(".bare");
        world.run(
            &project,
            &["clone", "-q", "--bare", origin.to_str().unwrap(), ".bare"],
        );
        write(&project.join(".git"), "gitdir: ./.bare\n");
        world.run(&project, &["worktree", "add", "-q", "main"]);

        check(&world, &project.join("main"), &project.join("main"));
        for start in [&project, &bare] {
            let found = world.discover(start);
            assert_eq!(found.toplevel, None);
            assert_eq!(found.git_dir, bare);
        }
    }
}

#[test]
fn bc_49_submodule_checkouts_and_odd_names() {
    let world = World::new();
    let inner = world.repository("inner", &[("lib/y", "y\n")]);
    let user = world.repository("user", &[("x", "1\n")]);
    world.run(
        &user,
        &[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            inner.to_str().unwrap(),
            "third/inner",
        ],
    );
    world.run(&user, &["commit", "-q", "-m", "submodule"]);
    let submodule = user.join("third/inner");
    check(&world, &submodule.join("lib"), &submodule);
    assert_eq!(check_submodules(&world, &user), ["third/inner"]);

    let odd = world.path("").join(OsStr::from_bytes(b"not \xff utf-8\n"));
    fs_err::rename(&inner, &odd).unwrap();
    check(&world, &odd.join("lib"), &odd);
}

fn check_submodules(world: &World, user: &Path) -> Vec<String> {
    world
        .discover(user)
        .submodules()
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn objects_with_long_names_and_cut_off_history() {
    for git in gits() {
        let world = World::with(git);
        let long = world.path("long");
        fs_err::create_dir(&long).unwrap();
        world.run(&long, &["init", "-q", "--object-format=sha256"]);
        write(&long.join("a"), "a\n");
        world.run(&long, &["add", "-A"]);
        world.run(&long, &["commit", "-q", "-m", "one"]);
        let found = check(&world, &long, &long);
        assert_eq!(found.object_format, ObjectFormat::Sha256);

        let full = world.repository("full", &[("a", "1\n")]);
        world.run(&full, &["commit", "-q", "--allow-empty", "-m", "second"]);
        let url = format!("file://{}", full.display());
        world.run(
            &world.path(""),
            &["clone", "-q", "--depth=1", &url, "shallow"],
        );
        let shallow = world.path("shallow");
        assert!(check(&world, &shallow, &shallow).shallow);
    }
}

#[test]
fn what_is_no_start_has_an_error_of_its_own() {
    let world = World::new();
    let outside = world.path("nothing");
    fs_err::create_dir(&outside).unwrap();
    let error = Repository::discover(&world.git, &outside).unwrap_err();
    assert!(
        matches!(error, DiscoverError::NotARepository { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("nothing"), "{error}");

    world.run(&outside, &["init", "-q"]);
    let error = Repository::discover(&world.git, &outside).unwrap_err();
    assert!(matches!(error, DiscoverError::NoCommits { .. }), "{error}");

    let error = Repository::discover(&world.git, &world.path("absent")).unwrap_err();
    assert!(error.to_string().contains("absent"), "{error}");
}

#[test]
fn bc_53_a_repository_of_another_user() {
    if !is_root() {
        println!("left out: only root can give a directory away");
        return;
    }
    let world = World::new();
    let user = world.repository("user", &[("x", "1\n"), ("d/y", "2\n")]);
    let mut pending = vec![user.clone()];
    while let Some(path) = pending.pop() {
        std::os::unix::fs::lchown(&path, Some(1234), Some(1234)).unwrap();
        if path.is_dir() && !path.is_symlink() {
            pending.extend(
                fs_err::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    let refused = world.try_run(&user, &["status"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("dubious ownership"));
    for git in gits() {
        let found = Repository::discover(&git, &user.join("d")).unwrap();
        assert_eq!(found.toplevel.as_deref(), Some(user.as_path()));
        let name = format!(
            "control-{}",
            fs_err::read_dir(world.path("")).unwrap().count()
        );
        let control = world.control(&name, &found);
        let place = world.place(&format!("{name}-work"));
        control.materialise(&found.head_tree, &place, None).unwrap();
        assert_eq!(files(&place.path), files(&user));
    }
    assert_eq!(
        fs_err::read_dir(world.home()).unwrap().count(),
        0,
        "no configuration is written"
    );
}

#[test]
fn lfs_pointers_are_told_from_files() {
    let world = World::new();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 9\n";
    let user = world.repository(
        "user",
        &[
            ("assets/.gitattributes", "*.bin filter=lfs diff=lfs\n"),
            ("assets/a.bin", pointer),
            ("b.txt", "x\n"),
        ],
    );
    let repository = world.discover(&user);
    let control = world.control("control.git", &repository);
    let found = control.lfs_files(&repository).unwrap();
    assert_eq!(
        found
            .absent
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["assets/a.bin"]
    );

    let other = world.repository("other", &[("doc", pointer)]);
    let repository = world.discover(&other);
    let found = control.lfs_files(&repository).unwrap();
    assert_eq!(found, LfsFiles::default());
}
