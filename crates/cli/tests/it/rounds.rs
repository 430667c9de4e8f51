//! What follows from a verdict: another round with the evidence, a rollback, or the end.

use mini_ork_testkit::{Lane, Repo, TestEnv};
use serde_json::Value;

use crate::support::{
    APPROVE, CHECK, PROJECT, agent, attempt_directory, lines_of, new_env, node, run_json, text,
};

/// A run of `code-fix` in which writers do `work` and reviewers say `review`, both shell.
fn code_fix(work: &str, review: &str, code: i32) -> (TestEnv, Value) {
    let env = new_env();
    let view = {
        let repo = env.repo("repo", PROJECT);
        env.kickoff("The answer is wrong", &[CHECK]);
        let told = env.root().join("told");
        let note = format!(
            "echo \"$MO_NODE_ID $MO_NODE_ROUND\" >> '{}'\n",
            told.display()
        );
        env.lanes(&[
            ("default", Lane::Shell(&format!("{note}{}", agent(work)))),
            (
                "reviewer",
                Lane::Shell(&format!("{note}cat > /dev/null\n{review}\n")),
            ),
        ]);
        run_json(&env, &repo, "code-fix").expect(code).json()
    };
    (env, view)
}

fn approve() -> String {
    format!("echo '{APPROVE}'")
}

fn told(env: &TestEnv, name: &str) -> usize {
    lines_of(&env.root().join("told"))
        .iter()
        .filter(|line| line.starts_with(name))
        .count()
}

fn repo(env: &TestEnv) -> Repo<'_> {
    Repo::at(env, &env.root().join("repo"))
}

#[test]
fn the_evidence_of_a_failed_check_is_in_the_prompt_of_the_next_round() {
    let work = "echo \"attempt $MO_NODE_ROUND\" >> log.txt\n\
                if [ $MO_NODE_ROUND = 2 ]; then echo 42 > answer; else echo 'not yet' > answer; fi";
    let (env, view) = code_fix(work, &approve(), 0);
    assert_eq!(node(&view, "implementer")["round"], 2);
    let second = attempt_directory(&env, &view, "implementer");
    let first = second.parent().unwrap().join("1.1");
    let prompt =
        |directory: &std::path::Path| fs_err::read_to_string(directory.join("prompt.md")).unwrap();
    assert!(!prompt(&first).contains("# Round"));
    let prompt = prompt(&second);
    assert!(prompt.contains("# Round 2"), "{prompt}");
    assert!(prompt.contains("## test\n"), "{prompt}");
    // The second round built on the first.
    let branch = text(&view, "branch");
    assert_eq!(repo(&env).show(branch, "log.txt"), "attempt 1\nattempt 2\n");
    assert_eq!(
        told(&env, "reviewer"),
        1,
        "only work that passed is reviewed"
    );
}

#[test]
fn after_the_last_round_the_work_is_rolled_back_and_kept() {
    let (env, view) = code_fix("echo $MO_NODE_ROUND > answer", &approve(), 1);
    assert_eq!(text(&view, "reason"), "verdict_fail");
    assert_eq!(text(node(&view, "rollback"), "state"), "done");
    assert_eq!(node(&view, "implementer")["round"], 3);
    assert_eq!(told(&env, "reviewer"), 0);
    let run = text(&view, "run");
    let reference = format!("refs/mo/{run}/implementer.3");
    assert_eq!(repo(&env).refs("refs/mo"), [reference.as_str()]);
    assert_eq!(repo(&env).show(&reference, "answer"), "3\n");
    assert_eq!(view["kept"][0]["reference"], reference.as_str());
    assert!(repo(&env).refs("refs/heads/mini-ork").is_empty());

    // Taken up again, it begins a new round with what was found last.
    let again = env.mini_ork(["recover", "--json"]).run().expect(1).json();
    assert_eq!(node(&again, "implementer")["round"], 5);
    assert_eq!(told(&env, "planner"), 1, "what was good is not done again");
    let prompt = attempt_directory(&env, &again, "implementer").join("prompt.md");
    assert!(
        fs_err::read_to_string(prompt)
            .unwrap()
            .contains("# Round 5")
    );
    assert_eq!(repo(&env).refs("refs/mo").len(), 2);
}

#[test]
fn a_reviewer_who_asks_for_changes_gets_them() {
    let review = format!(
        "if [ $MO_NODE_ROUND = 1 ]; then\n\
         echo '{{\"verdict\": \"request_changes\", \"summary\": \"no note\", \
         \"findings\": [\"say why in NOTES\"]}}'\nelse echo '{APPROVE}'; fi"
    );
    let work = "echo 42 > answer; [ $MO_NODE_ROUND = 1 ] || echo because > NOTES";
    let (env, view) = code_fix(work, &review, 0);
    assert_eq!(told(&env, "reviewer"), 2);
    let prompt = attempt_directory(&env, &view, "implementer").join("prompt.md");
    let prompt = fs_err::read_to_string(prompt).unwrap();
    assert!(prompt.contains("say why in NOTES"), "{prompt}");
    assert_eq!(repo(&env).show(text(&view, "branch"), "NOTES"), "because\n");
}

#[test]
fn a_reviewer_who_rejects_ends_the_run() {
    let review = r#"echo '{"verdict": "reject", "summary": "wrong idea", "findings": []}'"#;
    let (env, view) = code_fix("echo 42 > answer", review, 1);
    assert_eq!(text(&view, "reason"), "verdict_fail");
    assert!(text(&view, "detail").contains("wrong idea"), "{view:#}");
    assert_eq!((told(&env, "reviewer"), told(&env, "implementer")), (1, 1));
    assert_eq!(text(node(&view, "rollback"), "state"), "done");
    assert_eq!(repo(&env).refs("refs/mo").len(), 1);
}

/// Only one JSON object at the end of the answer is a verdict; everything near it is none.
#[test]
fn what_is_no_verdict_approves_nothing() {
    for review in [
        "echo approve",
        "echo '{\"verdict\": \"fine\", \"summary\": \"\", \"findings\": []}'",
        &format!("echo '{APPROVE}'; echo 'but look again'"),
        "true",
    ] {
        let (env, view) = code_fix("echo 42 > answer", review, 1);
        assert_eq!(text(&view, "reason"), "verdict_fail", "{review}");
        assert_eq!(told(&env, "reviewer"), 2, "asked once more: {review}");
        assert_eq!(told(&env, "implementer"), 1, "{review}");
        assert!(repo(&env).refs("refs/heads/mini-ork").is_empty());
    }
}

const SCOPED: &str = "# The answer is wrong\n\n## Problem\nIt is 41.\n\n## Definition of Done\n\
                      - It is 42.\n\n## Scope\n- `answer`\n\n## Verification\n```\nsh check.sh\n```\n";

#[test]
fn changes_out_of_scope_are_refused() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.write("kickoff.md", SCOPED);
    env.lanes(&[(
        "default",
        Lane::Shell(&agent("echo 42 > answer; echo x > other")),
    )]);
    let view = run_json(&env, &repo, "code-fix").expect(1).json();
    assert_eq!(text(&view, "reason"), "artifact_contract");
    assert!(text(&view, "detail").contains("`other`"), "{view:#}");
    assert_eq!(node(&view, "implementer")["attempt"], 2);
    let prompt = attempt_directory(&env, &view, "implementer").join("prompt.md");
    assert!(fs_err::read_to_string(prompt).unwrap().contains("`other`"));
    assert_eq!(text(node(&view, "test"), "state"), "blocked");

    // Told of it, an agent may do better at its second attempt.
    let work = "echo 42 > answer; [ $MO_NODE_ATTEMPT = 2 ] || echo x > other";
    env.lanes(&[("default", Lane::Shell(&agent(work)))]);
    let view = run_json(&env, &repo, "code-fix").expect(0).json();
    let branch = text(&view, "branch");
    assert_eq!(repo.git(["diff", "--name-only", "HEAD", branch]), "answer");
}
