//! What the commands that look at runs show: the same facts for people and for scripts, also for
//! runs that failed, go on, or were interrupted.

use std::time::Duration;

use mini_ork_testkit::{Lane, Output, wait_for};
use serde_json::Value;

use crate::support::{
    CHECK, PROJECT, agent, new_env, run_json, text, with_failed_run, with_published_run,
};

#[test]
fn alone_it_works_before_there_is_anything() {
    let env = new_env();
    let nowhere = env
        .mini_ork([] as [&str; 0])
        .without_env("MINI_ORK_HOME")
        .without_env("HOME")
        .run()
        .expect(0);
    assert!(
        nowhere.text().contains("mini-ork init"),
        "{}",
        nowhere.text()
    );
    let fresh = env.mini_ork([] as [&str; 0]).run().expect(0);
    assert!(fresh.text().lines().count() <= 10, "{}", fresh.text());
    assert!(!env.home().exists(), "looking made the home");
}

#[test]
fn alone_it_names_the_latest_run_and_what_to_do_next() {
    let (env, run) = with_published_run();
    let shown = env.mini_ork([] as [&str; 0]).run().expect(0).text();
    assert!(shown.contains(&format!("mini-ork apply {run}")), "{shown}");
    assert!(shown.lines().count() <= 10, "{shown}");
}

#[test]
fn without_a_run_lists_are_empty_and_references_say_how_to_begin() {
    let env = new_env();
    let listed = env.mini_ork(["runs"]).run().expect(0);
    assert_eq!(listed.text(), "");
    assert!(
        listed.errors().contains("no run yet"),
        "{}",
        listed.errors()
    );
    let json = env.mini_ork(["runs", "--json"]).run().expect(0).json();
    assert_eq!(json["runs"].as_array().map(Vec::len), Some(0));
    for command in ["status", "logs", "diff", "apply", "conflicts"] {
        let refused = env.mini_ork([command]).run().expect(2);
        assert!(
            refused.errors().contains("hint: start one"),
            "{}",
            refused.errors()
        );
    }
    assert!(!env.home().exists());
}

#[test]
fn runs_are_listed_with_their_state() {
    let (env, run) = with_published_run();
    let shown = env.mini_ork(["runs"]).run().expect(0).text();
    let mut lines = shown.lines();
    let header: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(
        header,
        [
            "RUN", "STARTED", "RECIPE", "STATE", "SPENT", "WHERE", "TITLE"
        ]
    );
    let row = lines.next().unwrap();
    for part in [
        &run,
        "code-fix",
        "published",
        "local",
        "The answer is wrong",
    ] {
        assert!(row.contains(part), "{part} in {row}");
    }
    let listed = env.mini_ork(["runs", "--json"]).run().expect(0).json();
    assert_eq!(text(&listed["runs"][0], "run"), run);
    assert_eq!(text(&listed["runs"][0], "status"), "published");
    let offered = env
        .mini_ork(["--", "mini-ork", "status", ""])
        .env("COMPLETE", "bash")
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_INDEX", "2")
        .run()
        .expect(0)
        .text();
    assert!(offered.lines().any(|line| line == run), "{offered}");
}

#[test]
fn a_dead_run_is_never_shown_as_running() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    env.lanes(&[("default", Lane::Shell(&agent("echo 42 > answer")))]);
    env.mini_ork(["run", "code-fix", "--repo"])
        .arg(repo.path())
        .arg("kickoff.md")
        .env("MO_FAULT", "node-started:2")
        .run()
        .expect_killed();
    let listed = env.mini_ork(["runs", "--json"]).run().expect(0).json();
    assert_eq!(text(&listed["runs"][0], "status"), "interrupted");
    let view = env.mini_ork(["status", "--json"]).run().expect(0).json();
    assert_eq!(text(&view, "status"), "interrupted");
    let shown = env.mini_ork(["status"]).run().expect(0).text();
    assert!(shown.contains("mini-ork recover"), "{shown}");
    assert!(!shown.contains("running"), "{shown}");
    let alone = env.mini_ork([] as [&str; 0]).run().expect(0).text();
    assert!(alone.contains("mini-ork recover"), "{alone}");
    let checked = env.mini_ork(["doctor", "--json"]).run().expect(0).json();
    let names: Vec<&str> = checked["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["found"] == "note")
        .map(|check| text(check, "name"))
        .collect();
    assert!(names.contains(&"runs"), "{checked}");
}

#[test]
fn status_shows_the_graph_and_the_evidence_of_a_failure() {
    let (env, run) = with_failed_run();
    let shown = env.mini_ork(["status", &run[..4]]).run().expect(0).text();
    for part in [
        "✓ planner",
        "✗ test",
        "test found",
        &format!("mini-ork logs {run} test"),
        &format!("mini-ork diff {run}"),
        &format!("mini-ork recover {run}"),
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let view = env.mini_ork(["status", "--json"]).run().expect(0).json();
    assert!(view["nodes"][0]["started_at_ms"].as_u64() > Some(0));
}

#[test]
fn logs_reach_a_pipe_byte_for_byte() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    let work = r"echo 42 > answer; printf 'one\033[2J\377\n'; printf 'two\r\n' >&2; printf last";
    env.lanes(&[("default", Lane::Shell(&agent(work)))]);
    run_json(&env, &repo, "code-fix").expect(0);
    let all = env.mini_ork(["logs", "@", "implementer"]).run().expect(0);
    assert_eq!(all.stdout, b"one\x1b[2J\xff\nlastdone\ntwo\r\n");

    let lines = env
        .mini_ork(["logs", "@", "implementer", "--json"])
        .run()
        .expect(0)
        .text();
    let pieces: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(text(&pieces[0], "stream"), "stdout");
    assert_eq!(text(&pieces[0], "data_base64"), "b25lG1sySv8KbGFzdGRvbmUK");
    assert_eq!(
        (text(&pieces[1], "stream"), text(&pieces[1], "data")),
        ("stderr", "two\r\n")
    );
    assert_eq!(pieces[1]["offset"], 0);

    let everything = env.mini_ork(["logs"]).run().expect(0).text();
    assert!(
        everything.starts_with("planner has an idea\n"),
        "{everything}"
    );
    let unknown = env.mini_ork(["logs", "@", "nobody"]).run().expect(2);
    assert!(
        unknown.errors().contains("implementer"),
        "{}",
        unknown.errors()
    );
}

#[test]
fn followed_logs_end_with_the_run() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    let go_on = env.root().join("go-on");
    let work = format!(
        "echo begun; while ! test -e '{}'; do sleep 0.05; done; echo 42 > answer; echo ended",
        go_on.display()
    );
    env.lanes(&[("default", Lane::Shell(&agent(&work)))]);
    let run = env
        .mini_ork(["run", "code-fix", "--json", "--repo"])
        .arg(repo.path())
        .arg("kickoff.md")
        .spawn();
    let limit = Duration::from_secs(60);
    wait_for("run", limit, || {
        let listed = env.mini_ork(["runs", "--json"]).run().json();
        listed["runs"][0]["status"] == "running"
    });
    let mut followed = env.mini_ork(["logs", "@", "-f"]).spawn();
    let cut_off = env.mini_ork(["logs", "@", "--follow"]).spawn();
    wait_for("first line", limit, || {
        followed.stdout_so_far().contains("begun\n")
    });
    wait_for("first line", limit, || {
        cut_off.stdout_so_far().contains("begun\n")
    });
    assert!(followed.is_running());
    cut_off.signal(rustix::process::Signal::INT);
    let cut_off = cut_off.wait().expect(130);
    assert_eq!(cut_off.errors(), "");
    let shown = env.mini_ork(["status"]).run().expect(0).text();
    assert!(shown.contains("begun") && shown.contains("-f"), "{shown}");

    fs_err::write(go_on, "").unwrap();
    let followed = followed.wait().expect(0);
    run.wait().expect(0);
    let whole = env.mini_ork(["logs"]).run().expect(0);
    let sorted = |output: &Output| {
        let mut lines: Vec<String> = output.text().lines().map(ToOwned::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&followed), sorted(&whole));
}

#[test]
fn a_reader_that_has_seen_enough_ends_a_command_in_silence() {
    let (env, _) = with_published_run();
    for command in ["logs", "diff", "runs", "status"] {
        let line = format!(
            "'{}' {command} 2>errors | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}; cat errors",
            env.program().display()
        );
        let shown = env
            .call("bash", ["-c", &line])
            .env("MINI_ORK_HOME", env.home())
            .run()
            .text();
        assert_eq!(shown, "0\n", "{command}");
    }
}
