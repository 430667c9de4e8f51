//! What a run tells a script: one JSON object of one shape, and an exit code.

use std::collections::BTreeSet;

use mini_ork_testkit::{Lane, TestEnv, wait_for};
use serde_json::Value;
use std::time::Duration;

use crate::support::{CHECK, PROJECT, agent, lines_of, new_env, run_json, text};

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

fn published() -> (TestEnv, Value) {
    let env = new_env();
    let value = {
        let repo = env.repo("repo", PROJECT);
        env.kickoff("The answer is wrong", &[CHECK]);
        env.lanes(&[("default", Lane::Shell(&agent("echo 42 > answer")))]);
        run_json(&env, &repo, "code-fix").expect(0).json()
    };
    (env, value)
}

#[test]
fn every_outcome_has_the_same_shape() {
    let (_env, good) = published();
    assert_eq!(text(&good, "status"), "published");

    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    env.lanes(&[("default", Lane::Shell(&agent("echo 43 >> answer")))]);
    let failed = run_json(&env, &repo, "code-fix").expect(1).json();
    assert_eq!(text(&failed, "status"), "failed");
    assert_eq!(text(&failed, "reason"), "verdict_fail");

    env.write("kickoff.md", "# Something\n");
    let blocked = run_json(&env, &repo, "code-fix").expect(6).json();
    assert_eq!(text(&blocked, "status"), "blocked");
    assert!(!blocked["questions"].as_array().unwrap().is_empty());

    env.kickoff("The answer is wrong", &[CHECK]);
    let begun = env.root().join("begun");
    let work = format!("echo x >> '{}'; sleep 60", begun.display());
    env.lanes(&[("default", Lane::Shell(&agent(&work)))]);
    let running = env
        .mini_ork(["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"])
        .spawn();
    wait_for("start of the lane", Duration::from_secs(30), || {
        !lines_of(&begun).is_empty()
    });
    running.signal(rustix::process::Signal::INT);
    let cancelled = running.wait().expect(130).json();
    assert_eq!(text(&cancelled, "status"), "cancelled");

    for other in [&failed, &blocked, &cancelled] {
        assert_eq!(keys(&good), keys(other));
        for node in other["nodes"].as_array().unwrap() {
            assert_eq!(keys(node), keys(&good["nodes"][0]));
        }
    }
    env.assert_no_process();
}
