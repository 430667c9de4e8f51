//! BC-63: a big repository.

use std::path::Path;
use std::time::{Duration, Instant};

use mini_ork_node::tree::checkout_fingerprint;

use crate::support::{World, full, write};

fn fill(root: &Path, count: usize) {
    for number in 0..count {
        let (outer, inner) = (number / 100 % 20, number / 100);
        write(
            &root.join(format!("d{outer}/s{inner}/f{number}.txt")),
            format!("file {number}\n").repeat(30),
        );
    }
}

struct Times {
    user_worktree: Duration,
    materialise: Duration,
    snapshot: Duration,
}

fn measure(count: usize) -> Times {
    let world = World::new();
    let user = world.repository("user", &[("a", "1\n")]);
    fill(&user, count);
    world.run(&user, &["add", "-A"]);
    world.run(&user, &["commit", "-q", "-m", "all"]);
    world.run(&user, &["repack", "-adq"]);
    let repository = world.discover(&user);
    let control = world.control("control.git", &repository);
    let place = world.place("work 1");
    // The best of three, in turns: the machine does other things too. Nothing is removed in
    // between, for a file system goes on with that behind our back.
    let (mut user_worktree, mut materialise) = (Duration::MAX, Duration::MAX);
    for round in ["1", "2", "3"] {
        let worktree = world.path(&format!("worktree {round}"));
        let options = [
            "-c",
            "checkout.workers=2",
            "worktree",
            "add",
            "-q",
            "--detach",
        ];
        let timed = Instant::now();
        world.run(
            &user,
            &[&options[..], &[worktree.to_str().unwrap()]].concat(),
        );
        user_worktree = user_worktree.min(timed.elapsed());
        let place = world.place(&format!("work {round}"));
        let timed = Instant::now();
        control
            .materialise(&repository.head_tree, &place, None)
            .unwrap();
        materialise = materialise.min(timed.elapsed());
    }

    // Reading a file again would store what is in it: the run's own store is empty so far.
    let objects = || {
        let found = world.run(control.path(), &["count-objects", "-v"]);
        found.lines().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = objects();
    // The first look may have to read files as young as the index.
    control.snapshot(&place).unwrap();
    let index = fs_err::read(&place.index_file).unwrap();
    let timed = Instant::now();
    assert_eq!(control.snapshot(&place).unwrap().tree, repository.head_tree);
    let snapshot = timed.elapsed();
    assert_eq!(objects(), before, "nothing was written");
    assert_eq!(fs_err::read(&place.index_file).unwrap(), index);

    write(&place.path.join("d0/s0/f0.txt"), "changed\n");
    let tree = control.snapshot(&place).unwrap().tree;
    let changes = control.changes(&repository.head_tree, &tree).unwrap();
    assert_eq!(changes.len(), 1);
    let timed = Instant::now();
    control.reset(&place, &repository.head_tree).unwrap();
    let reset = timed.elapsed();
    assert_eq!(control.snapshot(&place).unwrap().tree, repository.head_tree);
    let timed = Instant::now();
    assert_eq!(
        control
            .not_carried(&place, &repository.head_tree)
            .unwrap()
            .entries,
        []
    );
    let not_carried = timed.elapsed();
    let timed = Instant::now();
    checkout_fingerprint(&repository).unwrap();
    println!(
        "{count} files: git worktree add {user_worktree:?}, materialise {materialise:?}, \
         unchanged snapshot {snapshot:?}, reset {reset:?}, not carried {not_carried:?}, \
         fingerprint {:?}",
        timed.elapsed()
    );
    Times {
        user_worktree,
        materialise,
        snapshot,
    }
}

#[test]
fn bc_63_an_unchanged_tree_writes_nothing() {
    measure(500);
}

/// A file whose content changed behind its metadata is not seen: proof that it was not read.
#[test]
fn bc_63_an_unchanged_file_is_not_read() {
    use std::os::unix::fs::MetadataExt as _;
    let world = World::new();
    let run = world.run_on(&[("a", "before\n"), ("b", "b\n")]);
    let path = run.in_work("a");
    // Long ago, so that the index is later than the file beyond doubt.
    let file = fs_err::OpenOptions::new().write(true).open(&path).unwrap();
    let past = std::time::SystemTime::now() - Duration::from_secs(1000);
    file.set_modified(past).unwrap();
    run.snapshot();
    let before = fs_err::metadata(&path).unwrap();
    // The change time cannot be set back. Without it, the rest of the metadata can.
    let configuration = run.control.path().join("config");
    let mut text = fs_err::read_to_string(&configuration).unwrap();
    text.push_str("[core]\n\ttrustctime = false\n");
    fs_err::write(&configuration, text).unwrap();
    fs_err::write(&path, "behind\n").unwrap();
    file.set_modified(past).unwrap();
    let after = fs_err::metadata(&path).unwrap();
    assert_eq!(
        (before.mtime(), before.size(), before.ino()),
        (after.mtime(), after.size(), after.ino())
    );
    assert_eq!(run.snapshot(), *run.base());
}

#[test]
fn full_bc_63_fifty_thousand_files() {
    if !full() {
        return;
    }
    let times = measure(50_000);
    assert!(
        times.materialise <= times.user_worktree.mul_f64(1.5),
        "{:?}",
        times.materialise
    );
    assert!(
        times.snapshot < Duration::from_secs(5),
        "{:?}",
        times.snapshot
    );
}
