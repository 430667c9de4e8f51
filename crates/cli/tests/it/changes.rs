//! `diff`, `apply` and `conflicts`: the work of a run, seen and taken, also of one that failed or
//! whose own git directory is gone.

use std::path::Path;

use mini_ork_testkit::{Lane, Output, Repo, TestEnv, checkout_state};

use crate::support::{
    CHECK, PROJECT, agent, new_env, run_json, text, with_failed_run, with_published_run,
};

/// A recipe with two writers beside each other and a reviewer after them.
const FORK: &str = "version: 1
task_class: fork
nodes:
  - {name: left, type: implementer, prompt_ref: prompts/p.md, retries: 0}
  - {name: right, type: implementer, prompt_ref: prompts/p.md, retries: 0}
  - {name: look, type: reviewer, prompt_ref: prompts/p.md}
  - {name: publish, type: publisher}
edges:
  - {from: left, to: look, edge_type: depends_on}
  - {from: right, to: look, edge_type: depends_on}
  - {from: look, to: publish, edge_type: depends_on}
";

/// Runs [`FORK`] with a shell command for each writer.
fn fork(env: &TestEnv, repo: &Repo<'_>, left: &str, right: &str) -> Output {
    env.recipe(
        "fork",
        &[("workflow.yaml", FORK), ("prompts/p.md", "{{ kickoff }}\n")],
    );
    env.kickoff("Two at once", &[]);
    let work = format!("case $MO_NODE_ID in left) {left} ;; right) {right} ;; esac");
    env.lanes(&[("default", Lane::Shell(&agent(&work)))]);
    run_json(env, repo, "fork")
}

#[test]
fn a_published_change_is_shown_and_applied_once() {
    let (env, run) = with_published_run();
    let repo = Repo::at(&env, &env.root().join("repo"));
    let patch = env.mini_ork(["diff"]).run().expect(0);
    assert!(patch.text().contains("-41\n+42\n"), "{}", patch.text());
    let stat = env.mini_ork(["diff", "--stat"]).run().expect(0).text();
    assert!(stat.ends_with("answer\n1 file +1 −1\n"), "{stat}");
    let json = env.mini_ork(["diff", "--json"]).run().expect(0).json();
    assert_eq!(text(&json["files"][0], "path"), "answer");
    assert_eq!(json["files"][0]["added_lines"], 1);
    assert_eq!(text(&json["place"], "branch"), format!("mini-ork/{run}"));
    let of_node = env.mini_ork(["diff", "@", "implementer"]).run().expect(0);
    assert_eq!(of_node.stdout, patch.stdout);

    let before = checkout_state(repo.path());
    let trial = env.mini_ork(["apply", "--dry-run"]).run().expect(0).text();
    assert!(
        trial.contains("would apply") && trial.contains("answer"),
        "{trial}"
    );
    assert_eq!(checkout_state(repo.path()), before);
    env.mini_ork(["apply"]).run().expect(0);
    assert_eq!(repo.git(["status", "--porcelain"]), " M answer");
    let again = env.mini_ork(["apply", "--json"]).run().expect(0).json();
    assert_eq!(text(&again, "outcome"), "already_applied");
}

#[test]
fn applying_is_refused_when_it_would_lose_work() {
    let (env, _) = with_published_run();
    let repo = Repo::at(&env, &env.root().join("repo"));
    repo.write("answer", "my own\n");
    let before = checkout_state(repo.path());
    let refused = env.mini_ork(["apply"]).run().expect(1);
    for part in ["answer  was changed since", "nothing was changed", "hint:"] {
        assert!(refused.errors().contains(part), "{}", refused.errors());
    }
    let json = env.mini_ork(["apply", "--json"]).run().expect(1).json();
    assert_eq!(text(&json["obstacles"][0], "path"), "answer");
    assert_eq!(text(&json["obstacles"][0], "reason"), "changed");
    assert_eq!(checkout_state(repo.path()), before);
}

#[test]
fn run_with_apply_changes_the_checkout_and_says_when_it_cannot() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    env.lanes(&[("default", Lane::Shell(&agent("echo 42 > answer")))]);
    let run = |code| {
        env.mini_ork(["run", "code-fix", "kickoff.md", "--apply", "--repo"])
            .arg(repo.path())
            .run()
            .expect(code)
    };
    run(0);
    assert_eq!(
        fs_err::read_to_string(repo.path().join("answer")).unwrap(),
        "42\n"
    );
    repo.write("answer", "my own\n");
    let refused = run(1);
    assert!(
        refused.text().starts_with("published"),
        "{}",
        refused.text()
    );
    assert!(
        refused.errors().contains("was not applied"),
        "{}",
        refused.errors()
    );
    assert_eq!(
        fs_err::read_to_string(repo.path().join("answer")).unwrap(),
        "my own\n"
    );
}

#[test]
fn the_work_of_a_failed_run_can_be_seen_and_taken_also_from_its_kept_refs() {
    let (env, run) = with_failed_run();
    let with_own_git = env.mini_ork(["diff"]).run().expect(0);
    assert!(
        with_own_git.text().contains("-41\n+53\n"),
        "{}",
        with_own_git.text()
    );
    let control = env.run_directory(&run).join("control.git");
    assert!(control.is_dir());
    fs_err::remove_dir_all(&control).unwrap();
    let from_refs = env.mini_ork(["diff"]).run().expect(0);
    assert_eq!(from_refs.stdout, with_own_git.stdout);
    let json = env.mini_ork(["diff", "--json"]).run().expect(0).json();
    assert!(
        json["place"]["kept"][0]
            .as_str()
            .unwrap()
            .starts_with(&format!("refs/mo/{run}/")),
        "{json}"
    );
    env.mini_ork(["apply"]).run().expect(0);
    let answer = env.root().join("repo/answer");
    assert_eq!(fs_err::read_to_string(answer).unwrap(), "53\n");
    assert_eq!(left_behind(&env.run_directory(&run)), Vec::<String>::new());
}

/// Directories that a command made to look into a run and did not remove.
fn left_behind(directory: &Path) -> Vec<String> {
    fs_err::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("look-"))
        .collect()
}

#[test]
fn what_cannot_be_shown_is_said_with_a_hint() {
    let (env, _) = with_published_run();
    let reads = env.mini_ork(["diff", "@", "planner"]).run().expect(2);
    assert!(
        reads
            .errors()
            .contains("nodes that change files: implementer"),
        "{}",
        reads.errors()
    );
    let unknown = env.mini_ork(["diff", "@", "nobody"]).run().expect(2);
    assert!(
        unknown.errors().contains("implementer"),
        "{}",
        unknown.errors()
    );
    let no_run = env.mini_ork(["diff", "zzz"]).run().expect(2);
    assert!(
        no_run.errors().contains("mini-ork runs"),
        "{}",
        no_run.errors()
    );
}

#[test]
fn conflicts_show_both_versions_and_who_made_them() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    let failed = fork(
        &env,
        &repo,
        "echo left > answer; echo l > only-left",
        "echo right > answer",
    )
    .expect(1)
    .json();
    assert_eq!(text(&failed, "reason"), "merge_conflict");
    let run = text(&failed, "run");
    let check = || {
        let shown = env.mini_ork(["conflicts"]).run().expect(0).text();
        for part in [
            "1 conflict",
            "answer",
            "left",
            "+left",
            "right",
            "+right",
            "-41",
        ] {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
        let json = env.mini_ork(["conflicts", "--json"]).run().expect(0).json();
        let conflict = &json["conflicts"][0];
        assert_eq!(json["conflicts"].as_array().map(Vec::len), Some(1));
        assert_eq!(text(conflict, "kind"), "content");
        assert_eq!(text(&conflict["base"], "content"), "41\n");
        assert_eq!(text(&conflict["ours"], "content"), "left\n");
        assert_eq!(text(&conflict["ours"], "mode"), "100644");
        assert_eq!(conflict["ours"]["nodes"], serde_json::json!(["left"]));
        assert_eq!(text(&conflict["theirs"], "content"), "right\n");
        assert_eq!(conflict["theirs"]["nodes"], serde_json::json!(["right"]));
    };
    check();
    let diff = env.mini_ork(["diff"]).run().expect(0);
    assert!(
        diff.errors().contains("mini-ork conflicts"),
        "{}",
        diff.errors()
    );
    let refused = env.mini_ork(["apply"]).run().expect(1);
    assert!(
        refused.errors().contains("could not be merged"),
        "{}",
        refused.errors()
    );
    fs_err::remove_dir_all(env.run_directory(run).join("control.git")).unwrap();
    check();
}

#[test]
fn a_run_without_conflicts_says_so_and_each_node_keeps_its_patch() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    fork(&env, &repo, "echo l > left.txt", "echo r > right.txt").expect(0);
    let shown = env.mini_ork(["conflicts"]).run().expect(0).text();
    assert!(shown.contains("no conflicts"), "{shown}");
    // The trees of the single nodes went with the run's own git directory.
    let left = env.mini_ork(["diff", "@", "left"]).run().expect(0).text();
    assert!(left.contains("+l\n") && !left.contains("+r\n"), "{left}");
    let json = env
        .mini_ork(["diff", "@", "left", "--json"])
        .run()
        .expect(0)
        .json();
    assert!(text(&json, "patch_file").ends_with("diff.patch"), "{json}");
    let all = env.mini_ork(["diff"]).run().expect(0).text();
    assert!(all.contains("+l\n") && all.contains("+r\n"), "{all}");
}

#[test]
fn a_recipe_that_changes_nothing_has_no_diff() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.recipe(
        "look",
        &[
            (
                "workflow.yaml",
                "version: 1\ntask_class: look\nnodes:\n  - name: find\n    type: researcher\n    \
                 prompt_ref: prompts/p.md\n    outputs: [{name: report, path: report.md}]\n  \
                 - {name: publish, type: publisher}\nedges:\n  \
                 - {from: find, to: publish, edge_type: depends_on}\n",
            ),
            ("prompts/p.md", "{{ kickoff }}\n"),
        ],
    );
    env.kickoff("Look at it", &[]);
    let lane = "cat > /dev/null; echo '# A report' > \"$MO_OUTPUT_DIR/report.md\"; echo done";
    env.lanes(&[("default", Lane::Shell(lane))]);
    run_json(&env, &repo, "look").expect(0);
    let refused = env.mini_ork(["diff"]).run().expect(2);
    assert!(
        refused.errors().contains("changes no files"),
        "{}",
        refused.errors()
    );
}
