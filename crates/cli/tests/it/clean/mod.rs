//! What `mini-ork clean` removes, what it saves first, and what it leaves alone.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mini_ork_testkit::{Lane, Repo, TestEnv, checkout_state, skip, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{CHECK, PROJECT, agent, lines_of, new_env, only_row, run_json, text};

mod retention;

const LIMIT: Duration = Duration::from_secs(60);

/// A world with a small project; writers do `work`.
fn world(work: &str) -> TestEnv {
    let env = new_env();
    env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    set_work(&env, work);
    env
}

fn set_work(env: &TestEnv, work: &str) {
    env.lanes(&[("default", Lane::Shell(&agent(work)))]);
}

fn repo(env: &TestEnv) -> Repo<'_> {
    Repo::at(env, &env.root().join("repo"))
}

/// A run that ends with `code`; returns its id.
fn run(env: &TestEnv, code: i32) -> String {
    let view = run_json(env, &repo(env), "code-fix").expect(code).json();
    text(&view, "run").to_owned()
}

/// `clean` with `arguments`, as JSON.
fn clean(env: &TestEnv, arguments: &[&str]) -> Value {
    let all = ["clean", "--json"].iter().chain(arguments);
    env.mini_ork(all).run().expect(0).json()
}

/// The items of `run`: what each is, and what happened to it.
fn items<'a>(view: &'a Value, run: &str) -> Vec<(&'a str, &'a str)> {
    let all = view["items"].as_array().unwrap().iter();
    all.filter(|item| item["run"] == run)
        .map(|item| (text(item, "what"), text(item, "action")))
        .collect()
}

fn refs(env: &TestEnv, run: &str) -> Vec<String> {
    repo(env).refs(&format!("refs/mo/{run}/"))
}

fn worktree(env: &TestEnv, run: &str) -> PathBuf {
    env.run_directory(run).join("worktree")
}

/// Names in the directory of runs that are no runs.
fn remains(env: &TestEnv) -> Vec<String> {
    let mut names = env.runs();
    names.retain(|name| name.starts_with('.'));
    names
}

fn status(env: &TestEnv, run: &str) -> Option<String> {
    let reader = mini_ork_control::store::StoreReader::open(&env.home());
    let id = mini_ork_protocol::RunId::parse(run).unwrap();
    let row = reader.unwrap().unwrap().run(&id).unwrap()?;
    row.status.map(|status| status.name().to_owned())
}

#[test]
fn bc_16_only_a_clean_worktree_goes_without_a_rescue() {
    let env = world("true");
    let before = checkout_state(repo(&env).path());
    let conditions = [
        "clean",
        "tracked",
        "untracked",
        "stash",
        "rebase",
        "detached",
        "branch",
        "live",
    ];
    let runs: Vec<(&str, String)> = conditions
        .iter()
        .map(|condition| (*condition, run(&env, 1)))
        .collect();
    let mut sitting = None;
    for (condition, run) in &runs {
        let tree = Repo::at(&env, &worktree(&env, run));
        match *condition {
            "tracked" => tree.write("answer", "tracked\n"),
            "untracked" => tree.write("new file", "untracked\n"),
            "stash" => {
                tree.write("answer", "stashed\n");
                tree.git(["stash"]);
            }
            "rebase" => {
                for (branch, answer) in [("left", "left\n"), ("right", "right\n")] {
                    tree.git(["checkout", "--quiet", "-b", branch, "main"]);
                    tree.write("answer", answer);
                    tree.git(["commit", "--quiet", "-am", branch]);
                }
                assert!(!tree.git_succeeds(["rebase", "left"]));
                tree.git(["checkout", "--quiet", "--force", "--detach", "main"]);
                for branch in ["left", "right"] {
                    tree.git(["update-ref", "-d", &format!("refs/heads/{branch}")]);
                }
                fs_err::remove_dir_all(tree.path().join(".git/logs")).unwrap();
            }
            "detached" => {
                tree.git(["checkout", "--quiet", "--detach"]);
                tree.write("answer", "detached\n");
                tree.git(["commit", "--quiet", "-am", "detached"]);
                tree.git(["reset", "--quiet", "--hard", "HEAD~1"]);
            }
            "branch" => {
                tree.git(["checkout", "--quiet", "-b", "own"]);
                tree.write("answer", "branch\n");
                tree.git(["commit", "--quiet", "-am", "branch"]);
                tree.git(["checkout", "--quiet", "main"]);
            }
            "live" => {
                sitting = Some(env.call("sleep", ["60"]).cwd(tree.path()).spawn());
            }
            _ => {}
        }
    }

    let planned = clean(&env, &["--dry-run"]);
    for (condition, run) in &runs {
        let worktree_action = match *condition {
            "clean" => "remove",
            "live" => "keep",
            _ => "rescue_then_remove",
        };
        assert_eq!(
            items(&planned, run)[0],
            ("worktree", worktree_action),
            "{condition}: {planned:#}"
        );
        assert!(worktree(&env, run).is_dir(), "{condition}");
        assert_eq!(refs(&env, run), Vec::<String>::new(), "{condition}");
    }

    let done = clean(&env, &[]);
    for (condition, run) in &runs {
        let directory = env.run_directory(run);
        let kept = refs(&env, run);
        let gone = !worktree(&env, run).exists() && !directory.join("control.git").exists();
        match *condition {
            "clean" => assert!(gone && kept.is_empty(), "{kept:?} {done:#}"),
            "live" => assert!(
                worktree(&env, run).is_dir() && directory.join("control.git").is_dir(),
                "{done:#}"
            ),
            _ => {
                assert!(gone && !kept.is_empty(), "{condition}: {done:#}");
                let listed = done.to_string();
                for reference in &kept {
                    assert!(reference.starts_with(&format!("refs/mo/{run}/rescue/main-")));
                    assert!(listed.contains(reference), "{reference} {done:#}");
                }
            }
        }
    }
    let shown = |condition: &str, part: &str, path: &str| {
        let (_, run) = runs.iter().find(|(name, _)| *name == condition).unwrap();
        let kept = refs(&env, run);
        let reference = kept.iter().find(|reference| reference.contains(part));
        repo(&env).show(reference.unwrap(), path)
    };
    assert_eq!(shown("tracked", "files", "answer"), "tracked\n");
    assert_eq!(shown("untracked", "files", "new file"), "untracked\n");
    assert_eq!(shown("stash", "stash-0", "answer"), "stashed\n");
    assert_eq!(shown("rebase", "orig-head", "answer"), "right\n");
    assert_eq!(shown("detached", "head", "answer"), "detached\n");
    assert_eq!(shown("branch", "branch-own", "answer"), "branch\n");

    // Once the process is gone, nothing keeps the last one.
    let sitting = sitting.unwrap();
    sitting.signal(Signal::KILL);
    sitting.wait();
    let live = &runs[7].1;
    assert_eq!(
        items(&clean(&env, &[]), live),
        [("worktree", "remove"), ("control_git", "remove")]
    );
    repo(&env).git(["fsck", "--strict"]);
    checkout_state(repo(&env).path()).assert_same(&before, "after cleaning");
    assert_eq!(remains(&env), Vec::<String>::new());
    // What is left of each run is its record.
    let again = clean(&env, &[]);
    assert_eq!(again["items"].as_array().unwrap().len(), 0, "{again:#}");
}

#[test]
fn a_cleaned_run_recovers_from_what_is_kept() {
    let env = world("echo 43 > answer");
    let run = run(&env, 1);
    let kept = refs(&env, &run);
    assert!(!kept.is_empty());
    clean(&env, &[]);
    assert!(!env.run_directory(&run).join("control.git").exists());
    repo(&env).git(["gc", "--quiet", "--prune=now"]);
    set_work(&env, "echo 42 > answer");
    let view = env.mini_ork(["recover", &run, "--json"]).run();
    let view = view.expect(0).json();
    assert_eq!(text(&view, "status"), "published");
    let branch = text(&view, "branch");
    assert_eq!(repo(&env).show(branch, "answer"), "42\n");
    assert_eq!(
        repo(&env).git(["rev-list", "--count", &format!("main..{branch}")]),
        "1"
    );
}

/// A run that was killed has kept nothing yet: its results are only in its own git directory.
#[test]
fn results_of_a_killed_run_are_kept_before_they_go() {
    let env = world("echo 42 > answer");
    let call = env.mini_ork(["run", "code-fix", "--repo", "repo", "kickoff.md"]);
    call.env("MO_FAULT", "node-ended:2").run().expect_killed();
    let run = only_row(&env).run;
    env.mini_ork(["kill", &run]).run().expect(0);
    assert_eq!(status(&env, &run).as_deref(), Some("cancelled"));
    assert_eq!(refs(&env, &run), Vec::<String>::new());
    let done = clean(&env, &[]);
    assert!(
        !env.run_directory(&run).join("control.git").exists(),
        "{done:#}"
    );
    let reference = format!("refs/mo/{run}/implementer.1");
    assert_eq!(refs(&env, &run), [reference.as_str()]);
    assert_eq!(repo(&env).show(&reference, "answer"), "42\n");
    repo(&env).git(["gc", "--quiet", "--prune=now"]);
    let view = env
        .mini_ork(["recover", &run, "--json"])
        .run()
        .expect(0)
        .json();
    assert_eq!(text(&view, "status"), "published");
    assert_eq!(repo(&env).show(text(&view, "branch"), "answer"), "42\n");
    // Nothing of it is the only copy any more.
    clean(&env, &["--older-than", "0d"]);
    assert_eq!(refs(&env, &run), Vec::<String>::new());
    assert_eq!(env.runs(), Vec::<String>::new());
    assert_eq!(
        repo(&env).show(&format!("mini-ork/{run}"), "answer"),
        "42\n"
    );
}

#[test]
fn work_outlives_its_run() {
    let env = world("echo 43 > answer");
    let run = run(&env, 1);
    let kept = refs(&env, &run);
    fs_err::write(worktree(&env, &run).join("notes"), "mine\n").unwrap();
    let closed = worktree(&env, &run).join("closed");
    fs_err::create_dir(&closed).unwrap();
    fs_err::write(closed.join("file"), "closed\n").unwrap();
    fs_err::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    let done = clean(&env, &["--older-than", "0d"]);
    assert_eq!(
        items(&done, &run),
        [("run", "rescue_then_remove")],
        "{done:#}"
    );
    assert_eq!((env.runs(), status(&env, &run)), (Vec::new(), None));
    let now = refs(&env, &run);
    assert!(
        kept.iter().all(|reference| now.contains(reference)),
        "{now:?}"
    );
    let rescued: Vec<_> = now
        .iter()
        .filter(|name| name.contains("/rescue/"))
        .collect();
    assert_eq!(rescued.len(), 1, "{now:?}");
    assert_eq!(repo(&env).show(rescued[0], "notes"), "mine\n");
    assert_eq!(repo(&env).show(rescued[0], "closed/file"), "closed\n");
}

/// Whatever could not be saved stays, with its reason, and does not keep the others.
#[test]
fn what_cannot_be_saved_stays() {
    let env = world("true");
    let nested = run(&env, 1);
    Repo::init(&env, &worktree(&env, &nested).join("inner"));
    let other = run(&env, 1);
    for arguments in [&[][..], &["--older-than", "0d"]] {
        let done = clean(&env, arguments);
        assert!(
            done.to_string()
                .contains("`inner` holds a repository of its own")
        );
        assert!(worktree(&env, &nested).join("inner/.git").is_dir());
        assert!(!worktree(&env, &other).exists());
    }
    // Without the repository there is no place to save anything in.
    fs_err::remove_dir_all(worktree(&env, &nested).join("inner")).unwrap();
    let moved = env.root().join("moved");
    fs_err::rename(repo(&env).path(), &moved).unwrap();
    let done = clean(&env, &["--older-than", "0d"]);
    assert!(
        done.to_string()
            .contains("nothing can be saved in its repository")
    );
    assert!(worktree(&env, &nested).is_dir());
    fs_err::rename(&moved, repo(&env).path()).unwrap();
    clean(&env, &["--older-than", "0d"]);
    assert_eq!(env.runs(), Vec::<String>::new());
}

#[test]
fn a_live_run_and_an_interrupted_one_are_left_alone() {
    let env = world("echo 42 > answer");
    let call = env.mini_ork(["run", "code-fix", "--repo", "repo", "kickoff.md"]);
    call.env("MO_FAULT", "node-ended:2").run().expect_killed();
    let interrupted = only_row(&env).run;

    let (begun, go) = (env.root().join("begun"), env.root().join("go"));
    set_work(
        &env,
        &format!(
            "echo x >> '{}'\nwhile ! test -e '{}'; do sleep 0.05; done\necho 42 > answer",
            begun.display(),
            go.display()
        ),
    );
    let live = env
        .mini_ork(["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"])
        .spawn();
    wait_for("start of the lane", LIMIT, || !lines_of(&begun).is_empty());
    let done = clean(&env, &["--older-than", "0d", "--max-size", "1K"]);
    let actions: Vec<&str> = done["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| text(item, "action"))
        .collect();
    assert_eq!(actions, ["keep", "keep"], "{done:#}");
    let listed = done.to_string();
    assert!(listed.contains(&format!("`mini-ork recover {interrupted}` continues it")));
    assert!(
        listed.contains(&format!("process {} runs it", live.pid())),
        "{listed}"
    );
    fs_err::write(&go, "").unwrap();
    assert_eq!(text(&live.wait().expect(0).json(), "status"), "published");
    env.mini_ork(["recover", &interrupted]).run().expect(0);
    env.assert_no_process();
}

#[test]
fn a_published_run_keeps_what_its_agent_stashed() {
    let env =
        world("echo 41.5 > answer; git stash -q; echo 42 > answer; git commit -qam 'my own words'");
    let view = run_json(&env, &repo(&env), "code-fix").expect(0).json();
    let run = text(&view, "run");
    let kept = refs(&env, run);
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(kept[0].starts_with(&format!("refs/mo/{run}/rescue/main-stash-0-")));
    assert_eq!(view["kept"][0]["reference"], kept[0].as_str());
    assert_eq!(repo(&env).show(&kept[0], "answer"), "41.5\n");
    assert!(!worktree(&env, run).exists());
    repo(&env).git(["fsck", "--strict"]);

    // A commit of nothing but the result is no loss.
    set_work(&env, "echo 42 > answer; git commit -qam 'my own words'");
    let view = run_json(&env, &repo(&env), "code-fix").expect(0).json();
    assert_eq!(refs(&env, text(&view, "run")), Vec::<String>::new());
    assert!(!worktree(&env, text(&view, "run")).exists());

    // What cannot be saved keeps its worktree, and the run says so.
    set_work(
        &env,
        "echo 42 > answer; git commit -qam x; mkdir .git/reftable",
    );
    let view = run_json(&env, &repo(&env), "code-fix").expect(0).json();
    assert!(
        view["warnings"].to_string().contains("a worktree stays"),
        "{view:#}"
    );
    assert!(worktree(&env, text(&view, "run")).is_dir());
}
