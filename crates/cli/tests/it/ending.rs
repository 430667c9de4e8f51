//! How a run ends before its work is done: by a limit or by somebody's wish. No process is left,
//! and no work is lost.

use std::time::Duration;

use mini_ork_testkit::{Lane, Repo, TestEnv, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    APPROVE, CHECK, PROJECT, agent, fan_recipe, journal, new_env, node, only_row, run_json,
    spawn_until_begun, text,
};

/// A world whose implementer leaves work and then waits with a busy loop and a detached process.
fn waiting() -> TestEnv {
    let env = new_env();
    env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    let work = format!(
        "echo 40 > answer\n(while :; do :; done) &\nsetsid sleep 300 &\necho x > '{}'\nsleep 300",
        env.root().join("begun").display()
    );
    env.lanes(&[("default", Lane::Shell(&agent(&work)))]);
    env
}

#[track_caller]
fn assert_work_is_kept(env: &TestEnv, view: &Value) {
    let repo = Repo::at(env, &env.root().join("repo"));
    let kept = text(&view["kept"][0], "reference");
    assert_eq!(repo.show(kept, "answer"), "40\n");
    env.assert_no_process();
}

#[test]
fn an_interrupt_cancels_and_keeps_the_work() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let env = waiting();
        let running = spawn_until_begun(&env, "code-fix");
        running.signal(signal);
        let view = running.wait().expect(130).json();
        assert_eq!(text(&view, "status"), "cancelled");
        assert_eq!(text(&view, "reason"), "cancelled");
        assert_work_is_kept(&env, &view);
    }
}

#[test]
fn a_second_interrupt_kills_at_once() {
    let env = waiting();
    let begun = env.root().join("begun");
    let work = format!(
        "trap 'echo told >> {0}' TERM\necho 40 > answer\necho x > {0}\nwhile :; do sleep 0.1; done",
        begun.display()
    );
    env.lanes(&[("default", Lane::Shell(&agent(&work)))]);
    let running = spawn_until_begun(&env, "code-fix");
    running.signal(Signal::INT);
    wait_for("word to the lane", Duration::from_secs(30), || {
        fs_err::read_to_string(&begun).unwrap().contains("told")
    });
    running.signal(Signal::INT);
    let output = running.wait().expect(130);
    assert!(
        output.errors().contains("killing"),
        "{}",
        output.transcript()
    );
    assert_work_is_kept(&env, &output.json());
}

#[test]
fn a_cancelled_run_is_taken_up_again() {
    let env = waiting();
    let running = spawn_until_begun(&env, "code-fix");
    running.signal(Signal::INT);
    running.wait().expect(130);
    env.lanes(&[("default", Lane::Shell("exit 1"))]);
    // What the run will do was fixed when it began: its lane is still the one of then.
    let work = agent("echo 42 > answer");
    env.write("lanes/default-lane.sh", &work);
    let view = env.mini_ork(["recover", "--json"]).run().expect(0).json();
    assert_eq!(text(&view, "status"), "published");
}

#[test]
fn kill_ends_a_run_of_another_process() {
    let env = waiting();
    let running = spawn_until_begun(&env, "code-fix");
    let said = env.mini_ork(["kill", "--json"]).run().expect(0).json();
    assert_eq!(text(&said, "status"), "cancelled");
    let view = running.wait().expect(130).json();
    assert_work_is_kept(&env, &view);
    let again = env.mini_ork(["kill", "@", "--json"]).run().expect(0).json();
    assert_eq!(again["killed"], false);
}

#[test]
fn kill_ends_a_run_whose_control_plane_died() {
    let env = waiting();
    let running = spawn_until_begun(&env, "code-fix");
    running.signal(Signal::KILL);
    running.wait().expect_killed();
    assert!(!env.processes().is_empty());
    env.mini_ork(["kill"]).run().expect(0);
    env.assert_no_process();
    let row = only_row(&env);
    assert_eq!(row.status.unwrap().name(), "cancelled");
    // Nothing of what it did is lost.
    let worktree = env.run_directory(&row.run).join("worktree/answer");
    assert_eq!(fs_err::read_to_string(worktree).unwrap(), "40\n");
}

#[test]
fn a_deadline_ends_the_run() {
    let env = waiting();
    let repo = Repo::at(&env, &env.root().join("repo"));
    let view = env
        .mini_ork(["run", "code-fix", "--json", "--deadline", "1s", "--repo"])
        .arg(repo.path())
        .arg("kickoff.md")
        .run()
        .expect(1)
        .json();
    assert_eq!(text(&view, "status"), "failed");
    assert_eq!(text(&view, "reason"), "timeout");
    assert!(
        text(&view, "detail").contains("deadline of 1 s"),
        "{view:#}"
    );
    assert_work_is_kept(&env, &view);
}

#[test]
fn a_node_that_takes_too_long_is_killed_with_all_it_started() {
    let env = waiting();
    let repo = Repo::at(&env, &env.root().join("repo"));
    fan_recipe(&env, &["edit"], ", timeout_minutes: 0.02");
    let view = run_json(&env, &repo, "fan").expect(1).json();
    assert_eq!(text(&view, "reason"), "timeout", "{view:#}");
    assert_eq!(text(node(&view, "edit"), "reason"), "timeout");
    assert_work_is_kept(&env, &view);

    // The same for one that sets no limit of its own.
    fan_recipe(&env, &["edit"], "");
    let view = env
        .mini_ork(["run", "fan", "--json", "--repo", "repo", "kickoff.md"])
        .env("MO_NODE_TIMEOUT_S", "1")
        .run()
        .expect(1)
        .json();
    assert_eq!(text(node(&view, "edit"), "reason"), "timeout");
    assert_work_is_kept(&env, &view);
}

#[test]
fn a_used_up_budget_stops_before_the_next_node_is_paid() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    let script = format!(
        "version: 1\nsteps:\n\
         - {{role: planner, cost_usd: 0.4, stdout: a plan}}\n\
         - {{role: worker, cost_usd: 0.2, write: {{answer: \"42\\n\"}}, stdout: done}}\n\
         - {{stdout: '{APPROVE}', cost_usd: 0.1}}\n"
    );
    env.lanes(&[("default", Lane::Scripted(&script))]);
    let view = env
        .mini_ork(["run", "code-fix", "--json", "--budget", "0.3", "--repo"])
        .arg(repo.path())
        .arg("kickoff.md")
        .run()
        .expect(75)
        .json();
    assert_eq!(text(&view, "reason"), "budget_exhausted");
    assert_eq!(view["cost_usd"], 0.4);
    assert_eq!(text(node(&view, "implementer"), "state"), "failed");

    // The same limit stops it again; a higher one lets it go on from where it was.
    env.mini_ork(["recover"]).run().expect(75);
    let view = env
        .mini_ork(["recover", "--json", "--budget", "5"])
        .run()
        .expect(0)
        .json();
    assert_eq!(text(&view, "status"), "published");
    let cost = view["cost_usd"].as_f64().unwrap();
    assert!(
        (cost - 0.8).abs() < 1e-9,
        "the planner is paid once: {cost}"
    );
    let run = text(&view, "run");
    let starts = journal(&env, run)
        .iter()
        .filter(|event| {
            format!("{event:?}").contains("NodeStarted")
                && format!("{event:?}").contains("\"planner\"")
        })
        .count();
    assert_eq!(starts, 1);
}
