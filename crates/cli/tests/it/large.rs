//! A repository with many files.

use std::time::Duration;

use mini_ork_testkit::{Lane, checkout_state, full};

use crate::support::{agent, fan_recipe, new_env, text};

/// A run with three writers on a tree of `count` files, which must end within `limit`.
fn run_on(count: usize, limit: Duration) {
    let env = new_env();
    let repo = env.repo("repo", &[]);
    for number in 0..count {
        let directory = number / 100;
        if number % 100 == 0 {
            fs_err::create_dir_all(repo.path().join(format!("d{directory}"))).unwrap();
        }
        let path = repo.path().join(format!("d{directory}/f{number}"));
        fs_err::write(path, format!("{number}\n").repeat(20)).unwrap();
    }
    repo.commit_all("many");
    env.kickoff("Many files", &[]);
    fan_recipe(&env, &["one", "two", "three"], "");
    let work = "echo $MO_NODE_ID > new-$MO_NODE_ID; echo changed >> d0/f$(printf %s $MO_NODE_ID | wc -c)$( [ $MO_NODE_ID = two ] && echo 0 )";
    env.lanes(&[("default", Lane::Shell(&agent(work)))]);
    let before = checkout_state(repo.path());
    let view = env
        .mini_ork(["run", "fan", "--json", "--repo", "repo", "kickoff.md"])
        .limit(limit)
        .run()
        .expect(0)
        .json();
    before.assert_same(&checkout_state(repo.path()), "after a run on many files");
    let branch = text(&view, "branch");
    let changed = repo.git(["diff", "--name-only", "HEAD", branch]);
    assert_eq!(changed.lines().count(), 6, "{changed}");
    assert_eq!(repo.files(branch).len(), count + 3);
    env.assert_no_process();
}

#[test]
fn bc_63_five_thousand_files() {
    run_on(5000, Duration::from_secs(60));
}

#[test]
fn full_bc_63_a_hundred_thousand_files() {
    if full() {
        run_on(100_000, Duration::from_secs(600));
    }
}
