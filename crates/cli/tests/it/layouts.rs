//! The user's checkout in every form that it can have: the same before and after, whatever becomes
//! of the run, and inside a run git works as in a plain checkout.

use mini_ork_testkit::{CheckoutState, LaidOut, Lane, Layout, Repo, TestEnv, checkout_state, skip};

use crate::support::{CHECK, PROJECT, agent, new_env, text};

/// What an agent does with git, before it leaves the right answer uncommitted.
const WORK_WITH_GIT: &str = "set -e
test -z \"$(git status --porcelain)\"
git log --oneline | grep -q first
git blame check.sh | grep -q 'A Person'
test -z \"$(git diff)\"
echo 40 > answer
git diff | grep -q '^+40'
git add --all
git commit --quiet -m 'a step'
git log -1 --format=%s | grep -q 'a step'
echo 39 > answer
git stash push --quiet
test \"$(cat answer)\" = 40
git stash pop --quiet
git checkout --quiet answer
git branch by-the-agent
git tag by-the-agent-too
git worktree list | wc -l | grep -q '^1$'
git config user.name 'The Agent'
git config --global --list > /dev/null 2>&1 && exit 1
echo 42 > answer";

fn states(place: &LaidOut) -> Vec<CheckoutState> {
    place
        .watched
        .iter()
        .map(|path| checkout_state(path))
        .collect()
}

#[track_caller]
fn assert_same(before: &[CheckoutState], place: &LaidOut, when: &str) {
    for (before, now) in before.iter().zip(states(place)) {
        before.assert_same(&now, when);
    }
}

/// A published, a failed and a killed run in `layout`, with a look at the checkout after each.
fn assert_untouched(layout: Layout) {
    let env = new_env();
    let place = layout.make(&env, PROJECT);
    assert_untouched_in(&env, &place);
}

fn assert_untouched_in(env: &TestEnv, place: &LaidOut) {
    let repo = Repo::at(env, &place.checkout);
    let kickoff = env.kickoff("The answer is wrong", &[CHECK]);
    let run = || {
        env.mini_ork(["run", "code-fix", "--json"])
            .arg(&kickoff)
            .cwd(&place.cwd)
    };
    let worktrees = repo.git(["worktree", "list", "--porcelain"]);
    let before = states(place);

    env.lanes(&[("default", Lane::Shell(&agent(WORK_WITH_GIT)))]);
    let output = run().run().expect(0);
    let view = output.json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    assert_same(&before, place, "after a published run");
    let branch = text(&view, "branch");
    assert_eq!(repo.show(branch, "answer"), "42\n");
    assert_eq!(
        repo.git(["rev-list", "--count", &format!("HEAD..{branch}")]),
        "1"
    );
    assert_eq!(repo.git(["worktree", "list", "--porcelain"]), worktrees);

    env.lanes(&[("default", Lane::Shell(&agent("echo 43 >> answer")))]);
    let failed = run().run().expect(1).json();
    assert_eq!(text(&failed, "reason"), "verdict_fail", "{failed:#}");
    assert_same(&before, place, "after a failed run");

    env.lanes(&[("default", Lane::Shell(&agent(WORK_WITH_GIT)))]);
    run()
        .env("MO_FAULT", "snapshot-taken:2")
        .run()
        .expect_killed();
    assert_same(&before, place, "after a killed run");
    env.mini_ork(["recover", "--json"]).run().expect(0);
    assert_same(&before, place, "after a recovered run");
    assert_eq!(repo.git(["worktree", "list", "--porcelain"]), worktrees);
    repo.git(["fsck", "--strict", "--no-dangling"]);
    assert!(fs_err::read_dir(env.user_home()).unwrap().next().is_none());
    env.assert_no_process();
}

#[test]
fn staged_unstaged_untracked_and_ignored_files_and_a_stash() {
    assert_untouched(Layout::Untidy);
}

#[test]
fn a_detached_head() {
    assert_untouched(Layout::Detached);
}

#[test]
fn bc_49_a_linked_worktree() {
    assert_untouched(Layout::Linked);
}

#[test]
fn bc_49_a_linked_worktree_with_relative_paths() {
    assert_untouched(Layout::LinkedRelative);
}

#[test]
fn bc_49_a_bare_repository_with_a_worktree() {
    assert_untouched(Layout::BareWithWorktree);
}

#[test]
fn bc_49_a_bare_repository() {
    assert_untouched(Layout::Bare);
}

#[test]
fn bc_49_a_subdirectory() {
    assert_untouched(Layout::Subdirectory);
}

#[test]
fn a_checkout_with_a_submodule() {
    assert_untouched(Layout::WithSubmodule);
}

#[test]
fn a_submodule() {
    assert_untouched(Layout::InSubmodule);
}

#[test]
fn bc_52_a_path_with_spaces_quotes_and_a_line_break() {
    assert_untouched(Layout::OddPath);
}

#[test]
fn a_merge_that_is_not_concluded() {
    assert_untouched(Layout::Merging);
}

/// Every layout above has its test.
#[test]
fn no_layout_is_forgotten() {
    let own = include_str!("layouts.rs");
    for layout in Layout::ALL {
        let call = format!("assert_untouched(Layout::{layout:?});");
        assert!(own.contains(&call), "{layout:?} has no test");
    }
}

#[test]
fn bc_53_a_repository_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return skip("bc_53: only root can make a repository of another user");
    }
    let env = new_env();
    let place = Layout::Untidy.make(&env, PROJECT);
    give_away(&place.checkout);
    assert_untouched_in(&env, &place);
}

fn give_away(path: &std::path::Path) {
    std::os::unix::fs::lchown(path, Some(12345), Some(12345)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        for entry in fs_err::read_dir(path).unwrap() {
            give_away(&entry.unwrap().path());
        }
    }
}
