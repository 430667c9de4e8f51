//! Recipes that change nothing: they work in the user's checkout, and leave it as it is.

use mini_ork_testkit::{Lane, Layout, Repo, checkout_state};

use crate::support::{PROJECT, REPORT, agent, new_env, node, run_json, text};

#[test]
fn reports_are_collected_and_the_checkout_is_untouched() {
    for (recipe, writer) in [("research-synthesis", "synthesizer"), ("review", "report")] {
        let env = new_env();
        let place = Layout::Untidy.make(&env, PROJECT);
        let repo = Repo::at(&env, &place.checkout);
        env.kickoff("Is the answer right?", &[]);
        let report = env.write("report.md", REPORT);
        // Readers see the checkout as it is, with what is not committed.
        let work = format!(
            "test -f untracked/file || exit 3\n\
             if [ $MO_NODE_ID = {writer} ]; then cp '{}' \"$MO_OUTPUT_DIR/report.md\"; fi\n{}",
            report.display(),
            agent("")
        );
        env.lanes(&[("default", Lane::Shell(&work))]);
        let before = checkout_state(repo.path());
        let view = run_json(&env, &repo, recipe).expect(0).json();
        before.assert_same(&checkout_state(repo.path()), "after a run that only reads");
        assert_eq!(
            view["artifacts"],
            serde_json::json!(["artifacts/report.md"])
        );
        assert!(view["branch"].is_null() && view["base_tree"].is_null());
        let artifact = env
            .run_directory(text(&view, "run"))
            .join("artifacts/report.md");
        assert_eq!(fs_err::read_to_string(artifact).unwrap(), REPORT);
        env.assert_no_process();
    }
}

#[test]
fn a_report_may_simply_be_printed() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.kickoff("Is the answer right?", &[]);
    let report = env.write("report.md", REPORT);
    env.lanes(&[(
        "default",
        Lane::Shell(&format!("cat '{}'", report.display())),
    )]);
    let view = run_json(&env, &repo, "review").expect(0).json();
    let artifact = env
        .run_directory(text(&view, "run"))
        .join("artifacts/report.md");
    assert_eq!(fs_err::read_to_string(artifact).unwrap(), REPORT);
}

#[test]
fn a_reader_that_writes_to_the_checkout_fails() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.kickoff("Is the answer right?", &[]);
    for work in [
        "echo 42 > answer",
        "echo x > new",
        "rm README.md",
        "chmod +x check.sh",
    ] {
        let lane = format!("[ $MO_NODE_ID = security ] && {work}\necho said");
        env.lanes(&[("default", Lane::Shell(&lane))]);
        let view = run_json(&env, &repo, "review").expect(1).json();
        assert_eq!(
            text(&view, "reason"),
            "artifact_contract",
            "{work}: {view:#}"
        );
        repo.git(["reset", "--quiet", "--hard"]);
        repo.git(["clean", "--quiet", "-fdx"]);
    }
}

/// In a recipe that writes, what a reader leaves in the worktree is undone and told.
#[test]
fn what_a_reader_leaves_in_the_worktree_is_undone() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &["sh check.sh"]);
    let lane = format!(
        "[ $MO_NODE_TYPE = planner ] && echo plan > PLAN\n\
         [ $MO_NODE_TYPE = reviewer ] && echo 43 > answer\n{}",
        agent("test -e PLAN && exit 4; echo 42 > answer")
    );
    env.lanes(&[("default", Lane::Shell(&lane))]);
    let view = run_json(&env, &repo, "code-fix").expect(0).json();
    let branch = text(&view, "branch");
    assert_eq!(repo.git(["diff", "--name-only", "HEAD", branch]), "answer");
    assert_eq!(repo.show(branch, "answer"), "42\n");
    let warnings = view["warnings"].to_string();
    assert!(
        warnings.contains("PLAN") && warnings.contains("answer"),
        "{warnings}"
    );
    assert_eq!(node(&view, "implementer")["changed_files"], 1);
}
