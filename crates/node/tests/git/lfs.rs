//! Files that Git LFS keeps elsewhere, without the program of Git LFS.

use std::path::{Path, PathBuf};

use mini_ork_node::git::{CommitId, Expected, Git};
use sha2::{Digest as _, Sha256};

use crate::support::{Run, World, gits, write};

const BRANCH: &str = "refs/heads/mini-ork/r1";
const RULE: (&str, &str) = (
    ".gitattributes",
    "*.bin filter=lfs diff=lfs merge=lfs -text\n",
);

fn with_lfs(git: Git) -> Git {
    git.with_lfs(PathBuf::from(env!("CARGO_BIN_EXE_mini-ork-node")))
}

fn digest(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn pointer(content: &[u8]) -> String {
    format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n",
        digest(content),
        content.len()
    )
}

/// Where a git directory keeps `content`.
fn stored(git_dir: &Path, content: &[u8]) -> PathBuf {
    let digest = digest(content);
    git_dir
        .join("lfs/objects")
        .join(&digest[..2])
        .join(&digest[2..4])
        .join(digest)
}

fn publish(run: &Run) -> CommitId {
    let tree = run.control.collapsed(&run.snapshot(), "r\n", 7).unwrap();
    let parents = std::slice::from_ref(&run.repository.head);
    let commit = run.control.commit(&tree, parents, "r\n", 7).unwrap();
    run.control
        .publish(&run.repository, &commit, BRANCH, &Expected::Absent)
        .unwrap();
    commit
}

#[test]
fn bc_54_lfs_files_have_their_content_and_are_published_as_pointers() {
    for git in gits() {
        let world = World::with(with_lfs(git));
        let big: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let user = world.repository(
            "user",
            &[
                RULE,
                ("big.bin", &pointer(&big)),
                ("d/lost.bin", &pointer(b"lost")),
                ("d/raw.bin", "never a pointer\n"),
                ("empty.bin", ""),
            ],
        );
        write(&stored(&user.join(".git"), &big), &big);
        let run = world.run_in(&user);
        assert!(fs_err::read(run.in_work("big.bin")).unwrap() == big);
        let lost = fs_err::read_to_string(run.in_work("d/lost.bin")).unwrap();
        assert_eq!(lost, pointer(b"lost"));
        let found = run.control.lfs_files(&run.repository).unwrap();
        assert_eq!(found.present, 1);
        assert_eq!(
            found
                .absent
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            ["d/lost.bin"]
        );
        run.untouched(|| assert_eq!(run.snapshot(), *run.base()));
        assert!(run.not_carried().is_empty());
        // The git of the one who works there knows no filter, and may put the pointer there.
        world.run(&run.place.path, &["checkout", "-q", "--", "big.bin"]);
        write(&run.in_work("d/raw.bin"), "never a pointer\n");
        assert_eq!(run.snapshot(), *run.base());

        let new = vec![5; 200_000];
        write(&run.in_work("big.bin"), &new);
        write(&run.in_work("more.bin"), b"more");
        write(&run.in_work("same.bin"), &big);
        let first = run.snapshot();
        let read = |tree, path: &str| {
            let path = mini_ork_node::git::RepoPath::new(path).unwrap();
            let content = run.control.read_blob(tree, &path).unwrap().unwrap();
            String::from_utf8(content.bytes).unwrap()
        };
        assert_eq!(read(&first, "big.bin"), pointer(&new));
        assert_eq!(read(&first, "same.bin"), pointer(&big));
        // What is replaced before the end is nobody's.
        write(&run.in_work("more.bin"), b"even more");
        run.untouched_but_objects(|| publish(&run));
        let git_dir = user.join(".git");
        assert!(fs_err::read(stored(&git_dir, &new)).unwrap() == new);
        assert_eq!(
            fs_err::read(stored(&git_dir, b"even more")).unwrap(),
            b"even more"
        );
        assert!(!stored(&git_dir, b"more").exists());
        let shown = world.run(&user, &["show", &format!("{BRANCH}:more.bin")]);
        assert_eq!(shown, pointer(b"even more").trim_end());
        // The next worktree has it from the user's store.
        run.control.reset(&run.place, &first).unwrap();
        assert!(fs_err::read(run.in_work("big.bin")).unwrap() == new);
        assert_eq!(run.snapshot(), first);
    }
}

#[test]
fn bc_54_lfs_content_of_a_submodule_is_kept_by_the_submodule() {
    let world = World::with(with_lfs(World::new().git));
    let lib = world.repository("lib", &[RULE, ("a.bin", &pointer(b"content"))]);
    let user = world.repository("user", &[("x", "1\n")]);
    let add = [
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
    ];
    world.run(&user, &[&add[..], &[lib.to_str().unwrap(), "lib"]].concat());
    world.run(&user, &["commit", "-q", "-m", "submodule"]);
    let module = user.join(".git/modules/lib");
    write(&stored(&module, b"content"), b"content");
    let run = world.run_in(&user);
    assert_eq!(fs_err::read(run.in_work("lib/a.bin")).unwrap(), b"content");
    write(&run.in_work("lib/a.bin"), b"other");
    publish(&run);
    assert!(stored(&module, b"other").is_file());
    assert!(!stored(&user.join(".git"), b"other").exists());
}

#[test]
fn bc_54_a_chosen_store_of_lfs_is_used() {
    let world = World::with(with_lfs(World::new().git));
    let user = world.repository("user", &[RULE, ("a.bin", &pointer(b"content"))]);
    let store = world.path("The Store");
    world.run(&user, &["config", "lfs.storage", store.to_str().unwrap()]);
    let content = stored(Path::new("/"), b"content");
    let inside = content.strip_prefix("/lfs").unwrap();
    write(&store.join(inside), b"content");
    let run = world.run_in(&user);
    assert_eq!(fs_err::read(run.in_work("a.bin")).unwrap(), b"content");
}

#[test]
fn bc_54_without_a_filter_and_with_hostile_pointers_files_stay_what_they_are() {
    let outside = "version https://git-lfs.github.com/spec/v1\noid sha256:../../../../../etc/passwd\nsize 1\n";
    for git in [World::new().git, with_lfs(World::new().git)] {
        let world = World::with(git);
        let user = world.repository(
            "user",
            &[RULE, ("a.bin", outside), ("b.bin", &pointer(b"b"))],
        );
        let run = world.run_in(&user);
        assert_eq!(
            fs_err::read_to_string(run.in_work("a.bin")).unwrap(),
            outside
        );
        assert_eq!(
            fs_err::read_to_string(run.in_work("b.bin")).unwrap(),
            pointer(b"b")
        );
        assert_eq!(run.snapshot(), *run.base());
    }
}

#[test]
fn bc_54_no_configuration_puts_another_filter_in_the_place_of_ours() {
    let world = World::with(with_lfs(World::new().git));
    let user = world.repository("user", &[RULE, ("a.bin", &pointer(b"content"))]);
    let canary = world.path("canary");
    let touch = format!("touch '{}'; cat", canary.display());
    for key in [
        "filter.lfs.clean",
        "filter.lfs.smudge",
        "filter.lfs.process",
    ] {
        world.run(&user, &["config", key, &touch]);
    }
    write(&user.join(".lfsconfig"), "[lfs]\n\tstorage = /etc\n");
    let run = world.run_in(&user);
    write(&run.in_work("a.bin"), b"changed");
    for key in [
        "filter.lfs.clean",
        "filter.lfs.smudge",
        "filter.lfs.process",
    ] {
        world.run(&run.place.path, &["config", key, &touch]);
    }
    publish(&run);
    assert!(!canary.exists());
}
