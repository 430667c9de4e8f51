use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::git::Git;
use crate::tree::PrivateGit;

const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const PREFIX: &str = "refs/mo/abc/rescue/main-";

/// A repository of a user's, a run's git directory, and a worktree made from it.
struct World {
    root: tempfile::TempDir,
    repository: Repository,
    control: ControlGit,
    place: WorktreePlace,
    safe: Safe,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let user = root.path().join("user");
        fs_err::create_dir(&user).unwrap();
        git(&user, &["init", "-q", "-b", "main"]);
        fs_err::write(user.join("file"), "one\n").unwrap();
        fs_err::write(user.join(".gitignore"), "ignored/\n").unwrap();
        git(&user, &["add", "-A"]);
        git(&user, &["commit", "-q", "-m", "first"]);
        let program = Git::find(OsStr::new(SEARCH_PATH)).unwrap();
        let repository = Repository::discover(&program, &user).unwrap();
        let path = root.path().join("control.git");
        let control = ControlGit::create(&path, &repository, b"").unwrap();
        let place = WorktreePlace {
            path: root.path().join("worktree"),
            index_file: path.join("main.index"),
        };
        let private = PrivateGit {
            repository: &repository,
            head_branch: "mini-ork/abc",
            head_commit: &repository.head,
        };
        control
            .materialise(&repository.head_tree, &place, Some(&private))
            .unwrap();
        let safe = Safe {
            base: repository.head.clone(),
            base_tree: repository.head_tree.clone(),
            trees: BTreeSet::new(),
            seconds: 7,
        };
        Self {
            root,
            repository,
            control,
            place,
            safe,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs_err::write(self.path(name), text).unwrap();
    }

    /// What an agent does with git.
    fn git(&self, arguments: &[&str]) -> String {
        git(&self.place.path, arguments)
    }

    fn user_git(&self, arguments: &[&str]) -> String {
        git(&self.root.path().join("user"), arguments)
    }

    fn find(&self, look: Look) -> Unsaved {
        self.control
            .find_unsaved(&self.repository, &self.place, &self.safe, look)
            .unwrap()
    }

    fn names(&self, look: Look) -> Vec<String> {
        let unsaved = self.find(look);
        assert_eq!(unsaved.obstacles, Vec::<String>::new());
        unsaved.finds.into_iter().map(|find| find.name).collect()
    }

    /// Rescues everything; returns what git shows of each ref.
    fn rescue(&self) -> Vec<Rescued> {
        let unsaved = self.find(Look::EverythingOpened);
        assert_eq!(unsaved.obstacles, Vec::<String>::new());
        let rescue = || {
            self.control
                .rescue(&self.repository, &unsaved, &self.safe, PREFIX)
                .unwrap()
        };
        let rescued = rescue();
        assert_eq!(rescue(), rescued, "a second time");
        self.user_git(&["fsck", "--strict", "--no-dangling"]);
        rescued
    }

    /// The one obstacle, and that a rescue is not to go on.
    fn obstacle(&self) -> String {
        let unsaved = self.find(Look::EverythingOpened);
        assert!(!unsaved.is_empty());
        assert_eq!(unsaved.obstacles.len(), 1, "{:?}", unsaved.obstacles);
        unsaved.obstacles[0].clone()
    }
}

#[expect(clippy::disallowed_methods, reason = "the git of users and agents")]
fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_EDITOR", "true")
        .args(["-c", "user.name=x", "-c", "user.email=x@x"])
        .args(["-c", "protocol.file.allow=always"])
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn starts(rescued: &[Rescued]) -> Vec<String> {
    let names = rescued.iter().map(|one| {
        let name = one.reference.strip_prefix(PREFIX).unwrap();
        name.rsplit_once('-').unwrap().0.to_owned()
    });
    names.collect()
}

#[test]
fn a_worktree_that_nobody_touched_holds_nothing() {
    let world = World::new();
    world.git(&["status"]);
    world.git(&["log", "-1"]);
    fs_err::create_dir(world.path("ignored")).unwrap();
    world.write("ignored/cache", "x");
    for look in [Look::Commits, Look::Everything, Look::EverythingOpened] {
        assert!(world.find(look).is_empty(), "{look:?}");
    }
    let before = fs_err::read_dir(world.control.path().join("objects"))
        .unwrap()
        .count();
    assert_eq!(before, 2, "only `info` and `pack`");
    fs_err::remove_dir_all(&world.place.path).unwrap();
    assert!(world.find(Look::Everything).is_empty());
}

#[test]
fn files_are_rescued_when_no_tree_has_them() {
    let mut world = World::new();
    world.write("file", "two\n");
    world.write("new", "untracked\n");
    let rescued = world.rescue();
    assert_eq!(starts(&rescued), ["files"]);
    let reference = &rescued[0].reference;
    assert_eq!(
        world.user_git(&["show", &format!("{reference}:new")]),
        "untracked"
    );
    assert_eq!(
        world.user_git(&["rev-parse", &format!("{reference}^")]),
        world.repository.head.as_str()
    );
    let tree = world.user_git(&["rev-parse", &format!("{reference}^{{tree}}")]);
    world.safe.trees.insert(TreeId::parse(&tree).unwrap());
    assert!(world.find(Look::Everything).is_empty());
}

#[test]
fn every_kind_of_commit_is_rescued() {
    let world = World::new();
    // Two stashes, so that one is only in the reflog; one of them with untracked files.
    world.write("file", "stash one\n");
    world.git(&["stash"]);
    world.write("untracked", "stash two\n");
    world.git(&["stash", "-u"]);
    // A branch with two commits, of which the last leads to the first.
    world.git(&["checkout", "-q", "-b", "Feature/x"]);
    for text in ["branch one\n", "branch two\n"] {
        world.write("file", text);
        world.git(&["commit", "-q", "-am", text]);
    }
    // A commit that was amended away, and one on a detached HEAD that is left again.
    world.git(&["commit", "-q", "--amend", "-m", "other words"]);
    world.git(&["checkout", "-q", "--detach", "mini-ork/abc"]);
    world.write("file", "detached\n");
    world.git(&["commit", "-q", "-am", "detached"]);
    world.git(&["tag", "-a", "-m", "words", "v1"]);
    world.git(&["pack-refs", "--all"]);
    world.git(&["checkout", "-q", "mini-ork/abc"]);
    assert_eq!(world.names(Look::Commits).len(), 5);
    let rescued = world.rescue();
    let mut names = starts(&rescued);
    names.sort();
    assert_eq!(
        names,
        [
            "branch-feature-x",
            "reflog-head",
            "stash-0",
            "stash-1",
            "tags-v1"
        ]
    );
    let content = |name: &str, path: &str| {
        let wanted = format!("{PREFIX}{name}-");
        let found = rescued
            .iter()
            .find(|one| one.reference.starts_with(&wanted))
            .unwrap();
        world.user_git(&["show", &format!("{}{path}", found.reference)])
    };
    assert_eq!(content("stash-1", ":file"), "stash one");
    assert_eq!(content("stash-0", "^3:untracked"), "stash two");
    assert_eq!(content("branch-feature-x", ":file"), "branch two");
    assert_eq!(content("branch-feature-x", "~1:file"), "branch one");
    assert_eq!(content("tags-v1", ":file"), "detached");
}

#[test]
fn a_rebase_and_what_is_staged_are_rescued() {
    let world = World::new();
    for (branch, text) in [("left", "left\n"), ("right", "right\n")] {
        world.git(&["checkout", "-q", "-b", branch, "mini-ork/abc"]);
        world.write("file", text);
        world.git(&["commit", "-q", "-am", branch]);
    }
    #[expect(clippy::disallowed_methods, reason = "git that ends with an error")]
    let rebase = Command::new("git")
        .args([
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@x",
            "rebase",
            "left",
        ])
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .current_dir(&world.place.path)
        .output()
        .unwrap();
    assert!(!rebase.status.success());
    world.git(&["branch", "-q", "-D", "left"]);
    world.git(&["update-ref", "-d", "refs/heads/right"]);
    let names = starts(&world.rescue());
    assert!(names.iter().any(|name| name == "files"), "{names:?}");
    assert_eq!(names.len(), 3, "{names:?}");

    let world = World::new();
    world.write("staged", "staged\n");
    world.git(&["add", "staged"]);
    fs_err::remove_file(world.path("staged")).unwrap();
    let rescued = world.rescue();
    assert_eq!(starts(&rescued), ["staged"]);
    let shown = world.user_git(&["show", &format!("{}:staged", rescued[0].reference)]);
    assert_eq!(shown, "staged");
    assert!(world.find(Look::Commits).is_empty());
}

#[test]
fn a_commit_of_a_safe_tree_is_no_find_in_a_quick_look() {
    let mut world = World::new();
    world.write("file", "the result\n");
    world.git(&["commit", "-q", "-am", "done"]);
    assert_eq!(world.names(Look::Commits), ["branch-mini-ork-abc"]);
    let tree = world.git(&["rev-parse", "HEAD^{tree}"]);
    world.safe.trees.insert(TreeId::parse(&tree).unwrap());
    assert!(world.find(Look::Commits).is_empty());
    assert_eq!(world.names(Look::Everything), ["branch-mini-ork-abc"]);
    assert_eq!(starts(&world.rescue()), ["branch-mini-ork-abc"]);
    // Now the user's repository keeps it.
    assert!(world.find(Look::Everything).is_empty());
}

#[test]
fn packs_and_many_branches_are_rescued() {
    let world = World::new();
    for number in 0..(MOST_NAMES + 3) {
        let name = format!("b{number}");
        world.git(&["checkout", "-q", "-b", &name, "mini-ork/abc"]);
        world.write("file", &name);
        world.git(&["commit", "-q", "-am", &name]);
    }
    world.git(&["checkout", "-q", "mini-ork/abc"]);
    world.git(&["-c", "gc.auto=1", "gc", "-q"]);
    let rescued = world.rescue();
    assert_eq!(rescued.len(), MOST_NAMES + 1);
    let others = &rescued[MOST_NAMES];
    assert!(others.what.starts_with("3 more"), "{}", others.what);
    let parents = world.user_git(&["rev-list", "--parents", "-1", &others.reference]);
    assert_eq!(parents.split(' ').count(), 4);
}

#[test]
fn nothing_in_the_private_git_is_obeyed() {
    let world = World::new();
    let foreign = world.root.path().join("foreign");
    fs_err::create_dir(&foreign).unwrap();
    git(&foreign, &["init", "-q"]);
    fs_err::write(foreign.join("secret"), "secret\n").unwrap();
    git(&foreign, &["add", "-A"]);
    git(&foreign, &["commit", "-q", "-m", "secret"]);
    let secret = git(&foreign, &["rev-parse", "HEAD"]);
    world.write("file", "own\n");
    world.git(&["commit", "-q", "-am", "own"]);
    let git_directory = world.path(".git");
    let canary = world.root.path().join("canary");
    let program = format!("touch {}", canary.display());
    for (key, value) in [
        ("core.fsmonitor", program.as_str()),
        ("core.hooksPath", "hooks"),
        ("core.sshCommand", &program),
        ("filter.x.clean", &program),
        ("core.alternateRefsCommand", &program),
        ("uploadpack.packObjectsHook", &program),
    ] {
        git(&world.place.path, &["config", key, value]);
    }
    fs_err::write(world.path(".gitattributes"), "* filter=x\n").unwrap();
    for hook in ["pre-commit", "reference-transaction", "post-index-change"] {
        let path = git_directory.join("hooks").join(hook);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, format!("#!/bin/sh\n{program}\n")).unwrap();
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    // Objects that another repository of the user has are not the agent's to take.
    let mut borrowed = fs_err::read(git_directory.join("objects/info/alternates")).unwrap();
    borrowed.extend(format!("{}\n", foreign.join(".git/objects").display()).into_bytes());
    fs_err::write(git_directory.join("objects/info/alternates"), borrowed).unwrap();
    fs_err::write(
        git_directory.join("refs/heads/stolen"),
        format!("{secret}\n"),
    )
    .unwrap();
    let names = starts(&world.rescue());
    assert_eq!(names, ["files", "branch-mini-ork-abc"]);
    assert!(!canary.exists());
    let there = world.user_git(&["cat-file", "--batch-check", "--batch-all-objects"]);
    assert!(!there.contains(&secret), "{there}");
}

#[test]
fn what_cannot_be_saved_is_said() {
    let commit = |world: &World| {
        world.write("file", "two\n");
        world.git(&["commit", "-q", "-am", "two"]);
        world.git(&["reset", "-q", "--hard", "HEAD~1"]);
    };
    let world = World::new();
    fs_err::create_dir(world.path("inner")).unwrap();
    git(&world.path("inner"), &["init", "-q"]);
    assert_eq!(world.obstacle(), "`inner` holds a repository of its own");

    let world = World::new();
    let elsewhere = world.root.path().join("elsewhere");
    fs_err::rename(world.path(".git"), &elsewhere).unwrap();
    fs_err::os::unix::fs::symlink(&elsewhere, world.path(".git")).unwrap();
    assert!(world.obstacle().contains("no directory"));

    let world = World::new();
    commit(&world);
    let objects = world.path(".git/objects");
    let moved = world.root.path().join("objects");
    fs_err::rename(&objects, &moved).unwrap();
    fs_err::os::unix::fs::symlink(&moved, &objects).unwrap();
    assert!(world.obstacle().contains("lie elsewhere"));

    let world = World::new();
    commit(&world);
    fs_err::os::unix::fs::symlink("/dev/zero", world.path(".git/objects/pack/x.pack")).unwrap();
    assert_eq!(world.obstacle(), "`.git/objects/pack/x.pack` is a link");

    let world = World::new();
    commit(&world);
    world.write(".git/objects/pack/pack-1.pack", "PACK of lies");
    assert!(world.obstacle().contains("pack-1.pack` cannot be read"));

    let world = World::new();
    commit(&world);
    fs_err::create_dir(world.path(".git/reftable")).unwrap();
    assert!(world.obstacle().contains("a form not known here"));

    let world = World::new();
    world.write("file", "staged\n");
    world.git(&["add", "file"]);
    world.git(&["commit", "-q", "-m", "x"]);
    world.write(".git/index", "DIRC of lies");
    assert!(world.obstacle().contains("what is staged cannot be read"));
}

#[test]
fn a_commit_that_git_would_not_check_in_is_not_rescued() {
    let world = World::new();
    let tree = world.git(&["rev-parse", "HEAD^{tree}"]);
    let broken = world.root.path().join("broken");
    fs_err::write(&broken, format!("tree {tree}\nauthor nobody\n\nx\n")).unwrap();
    let path = broken.to_str().unwrap();
    let id = world.git(&["hash-object", "-t", "commit", "-w", "--literally", path]);
    fs_err::write(world.path(".git/refs/heads/broken"), format!("{id}\n")).unwrap();
    let unsaved = world.find(Look::EverythingOpened);
    let rescued = world
        .control
        .rescue(&world.repository, &unsaved, &world.safe, PREFIX);
    assert!(!unsaved.is_empty());
    assert!(unsaved.obstacles.len() + usize::from(rescued.is_err()) > 0);
    assert_eq!(world.user_git(&["for-each-ref", "refs/mo"]), "");
}

#[test]
fn closed_files_are_opened_only_to_act() {
    let world = World::new();
    fs_err::create_dir(world.path("closed")).unwrap();
    world.write("closed/file", "x\n");
    world.write("shut", "y\n");
    let nobody = || std::fs::Permissions::from_mode(0o000);
    fs_err::set_permissions(world.path("shut"), nobody()).unwrap();
    fs_err::set_permissions(world.path("closed"), nobody()).unwrap();
    let mode = |name: &str| {
        fs_err::metadata(world.path(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(world.names(Look::Everything), ["files"]);
    assert_eq!((mode("closed"), mode("shut")), (0, 0));
    let rescued = world.rescue();
    let shown = |path: &str| world.user_git(&["show", &format!("{}:{path}", rescued[0].reference)]);
    assert_eq!(
        (shown("closed/file"), shown("shut")),
        ("x".into(), "y".into())
    );
}
