//! What runs cost: written down with the end of each node, added up over all runs of a home, and
//! bounded for a day.

use mini_ork_testkit::{Lane, Output, Repo, TestEnv};
use rusqlite::Connection;
use serde_json::Value;

use crate::support::{APPROVE, CHECK, PROJECT, journal, new_env, node, run_json, text};

/// A planner for $0.40, a worker for $0.20, a reviewer and a judge for $0.10 each.
fn priced() -> TestEnv {
    let env = new_env();
    env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    let script = format!(
        "version: 1\nsteps:\n\
         - {{role: planner, cost_usd: 0.4, stdout: a plan}}\n\
         - {{role: worker, cost_usd: 0.2, write: {{answer: \"42\\n\"}}, stdout: done}}\n\
         - {{stdout: '{APPROVE}', cost_usd: 0.1}}\n"
    );
    env.lanes(&[
        ("default", Lane::Scripted(&script)),
        ("worker", Lane::Scripted(&script)),
    ]);
    env
}

fn repo(env: &TestEnv) -> Repo<'_> {
    Repo::at(env, &env.root().join("repo"))
}

fn run_within(env: &TestEnv, daily: &str) -> Output {
    env.mini_ork(["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"])
        .env("MO_DAILY_BUDGET_USD", daily)
        .run()
}

fn costs(env: &TestEnv, arguments: &[&str]) -> Value {
    env.mini_ork(["costs", "--json"].iter().chain(arguments))
        .run()
        .expect(0)
        .json()
}

#[track_caller]
fn assert_spent(group: &Value, runs: u64, nodes: u64, cost: f64) {
    let found = group["cost_usd"].as_f64().unwrap();
    assert!((found - cost).abs() < 1e-9, "{group:#}");
    assert_eq!(group["runs"], runs, "{group:#}");
    assert_eq!(group["nodes"], nodes, "{group:#}");
    assert_eq!(group["cost_unknown"], false, "{group:#}");
}

/// Changes `state.db` as nothing of mini-ork would.
fn edit(env: &TestEnv, statement: &str) {
    let connection = Connection::open(env.home().join("state.db")).unwrap();
    assert!(connection.execute(statement, []).unwrap() > 0);
}

#[test]
fn two_runs_of_a_home_are_added_up() {
    let env = priced();
    let nothing = costs(&env, &[]);
    assert_eq!(nothing["groups"], serde_json::json!([]));
    assert_spent(&nothing["total"], 0, 0, 0.0);
    assert!(
        !env.home().join("state.db").exists(),
        "looking makes nothing"
    );

    for _ in 0..2 {
        run_json(&env, &repo(&env), "code-fix").expect(0);
    }
    let by_lane = costs(&env, &["--by", "lane"]);
    assert_spent(&by_lane["total"], 2, 8, 1.6);
    assert_spent(&by_lane["last_day"], 2, 8, 1.6);
    assert_eq!(text(&by_lane["groups"][0], "name"), "default-lane");
    assert_spent(&by_lane["groups"][0], 2, 6, 1.2);
    assert_eq!(text(&by_lane["groups"][1], "name"), "worker-lane");
    assert_spent(&by_lane["groups"][1], 2, 2, 0.4);
    assert_eq!(by_lane["daily_budget_usd"], 50.0);
    assert_eq!(text(&by_lane, "daily_budget_source"), "default");
    let by_recipe = costs(&env, &["--by", "recipe"]);
    assert_eq!(text(&by_recipe["groups"][0], "name"), "code-fix");
    assert_spent(&by_recipe["groups"][0], 2, 8, 1.6);

    let shown = env.mini_ork(["costs", "--by", "recipe"]).run().expect(0);
    let shown = shown.text();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines,
        [
            "RECIPE    RUNS  NODES  SPENT",
            "code-fix  2     8      $1.60",
            "total     2     8      $1.60",
            "last 24 h: $1.60 of $50.00 a day (default)",
        ]
    );

    // What was paid stays paid when the runs themselves are removed.
    env.mini_ork(["clean", "--older-than", "0d"])
        .run()
        .expect(0);
    assert!(env.runs().is_empty());
    let after = costs(&env, &["--by", "recipe"]);
    assert_spent(&after["groups"][0], 2, 8, 1.6);
}

#[test]
fn costs_are_told_by_day_and_since() {
    let env = priced();
    run_json(&env, &repo(&env), "code-fix").expect(0);
    // 2020-01-02 23:30 in the time zone of the test.
    edit(
        &env,
        "UPDATE costs SET at_ms = 1578007800000 WHERE node = 'planner'",
    );
    let call = |arguments: &[&str]| {
        env.mini_ork(["costs", "--json"].iter().chain(arguments))
            .env("TZ", "UTC")
            .run()
            .expect(0)
            .json()
    };
    let all = call(&["--by", "day"]);
    let days = all["groups"].as_array().unwrap();
    assert_spent(&all["total"], 1, 4, 0.8);
    assert_eq!(text(days.last().unwrap(), "name"), "2020-01-02");
    assert_spent(days.last().unwrap(), 1, 1, 0.4);
    assert!(text(&days[0], "name") > "2020-01-02");
    assert_spent(&all["last_day"], 1, 3, 0.4);
    for since in ["1h", "7d"] {
        let recent = call(&["--since", since]);
        assert_spent(&recent["total"], 1, 3, 0.4);
        assert_spent(&recent["last_day"], 1, 3, 0.4);
    }
    for since in ["0d", "-1", "soon", "1e3"] {
        let refused = env
            .mini_ork(["costs"])
            .arg(format!("--since={since}"))
            .run()
            .expect(2);
        assert!(refused.errors().contains("--since"), "{}", refused.errors());
    }
}

#[test]
fn what_a_lane_does_not_say_is_unknown_and_never_zero() {
    let env = new_env();
    env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    let silent = crate::support::agent("echo 42 > answer");
    let paid = format!(
        "echo '{{\"cost_usd\": 0.25}}' > \"$MO_USAGE_FILE\"\n{}",
        crate::support::agent("false")
    );
    env.lanes(&[
        ("default", Lane::Shell(&silent)),
        ("reviewer", Lane::Shell(&paid)),
    ]);
    run_json(&env, &repo(&env), "code-fix").expect(0);
    let by_lane = costs(&env, &["--by", "lane"]);
    let groups = &by_lane["groups"];
    assert_eq!(text(&groups[0], "name"), "reviewer-lane");
    assert_spent(&groups[0], 1, 1, 0.25);
    assert_eq!(text(&groups[1], "name"), "default-lane");
    assert!(groups[1]["cost_usd"].is_null(), "{groups:#}");
    assert_eq!(groups[1]["cost_unknown"], true);
    assert_eq!(by_lane["total"]["cost_usd"], 0.25);
    assert_eq!(by_lane["total"]["cost_unknown"], true);
    let shown = env.mini_ork(["costs", "--by", "lane"]).run().expect(0);
    let shown = shown.text();
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("default-lane").ends_with("  unknown"), "{shown}");
    assert!(line("total").ends_with("$0.25 + unknown"), "{shown}");
    assert!(
        shown.contains("last 24 h: $0.25 + unknown of $50.00 a day"),
        "{shown}"
    );
    assert!(!shown.contains("$0.00"), "{shown}");
}

#[test]
fn a_day_that_an_earlier_run_used_up_refuses_the_next_node_of_another() {
    let env = priced();
    run_within(&env, "1").expect(0);
    // $0.80 are spent; the planner of the second run makes it $1.20.
    let view = run_within(&env, "1").expect(75).json();
    assert_eq!(text(&view, "reason"), "budget_exhausted");
    assert_eq!(text(node(&view, "implementer"), "state"), "failed");
    let detail = text(node(&view, "implementer"), "summary");
    assert!(
        detail.contains("$1.20 of the daily budget of $1.00"),
        "{detail}"
    );
    // Refused is not unknown: nobody was asked.
    assert_eq!(view["cost_usd"], 0.4);
    assert_eq!(view["cost_unknown"], false);
    assert_spent(&costs(&env, &[])["total"], 2, 5, 1.2);
    assert!(text(&view, "hint").contains("MO_DAILY_BUDGET_USD"));

    // A third run does not get to its first node, and one with room of its own is refused as well.
    let third = env
        .mini_ork(["run", "code-fix", "--json", "--budget", "9", "--repo"])
        .arg("repo")
        .arg("kickoff.md")
        .env("MO_DAILY_BUDGET_USD", "1.20")
        .run()
        .expect(75)
        .json();
    assert_eq!(text(node(&third, "planner"), "state"), "failed");
    assert_eq!(third["cost_usd"], 0.0);

    // The budget that held when the run began is not that of the run: the one of now counts.
    let run = text(&view, "run");
    let recover = |daily: &str| {
        env.mini_ork(["recover", run, "--json"])
            .env("MO_DAILY_BUDGET_USD", daily)
            .run()
    };
    recover("1").expect(75);
    let bad = recover("plenty").expect(2);
    assert!(
        bad.errors().contains("MO_DAILY_BUDGET_USD"),
        "{}",
        bad.errors()
    );
    let view = recover("5").expect(0).json();
    assert_eq!(text(&view, "status"), "published");
    let cost = view["cost_usd"].as_f64().unwrap();
    assert!(
        (cost - 0.8).abs() < 1e-9,
        "the planner is paid once: {cost}"
    );
    assert_spent(&costs(&env, &[])["total"], 2, 8, 1.6);
}

#[test]
fn work_before_the_daily_budget_ran_out_is_kept() {
    let env = priced();
    // $0.60 are spent when the reviewer is to start.
    let view = run_within(&env, "0.5").expect(75).json();
    assert_eq!(text(node(&view, "implementer"), "state"), "done");
    assert_eq!(text(node(&view, "reviewer"), "reason"), "budget_exhausted");
    let run = text(&view, "run");
    let started = |name: &str| {
        journal(&env, run).iter().any(|event| {
            let event = format!("{event:?}");
            event.starts_with("NodeStarted") && event.contains(&format!("\"{name}\""))
        })
    };
    assert!(started("implementer") && !started("reviewer"));
    let reference = text(&view["kept"][0], "reference");
    assert_eq!(repo(&env).show(reference, "answer"), "42\n");
    let view = env
        .mini_ork(["recover", "--json"])
        .env("MO_DAILY_BUDGET_USD", "2")
        .run()
        .expect(0)
        .json();
    assert_eq!(repo(&env).show(text(&view, "branch"), "answer"), "42\n");
}

#[test]
fn a_program_that_is_being_paid_is_not_refused_by_recover() {
    let env = priced();
    run_within(&env, "9").expect(0);
    env.mini_ork(["run", "code-fix", "--repo", "repo", "kickoff.md"])
        .env("MO_FAULT", "process-started")
        .run()
        .expect_killed();
    // $0.80 are spent by the run before.
    let view = env
        .mini_ork(["recover", "--json"])
        .env("MO_DAILY_BUDGET_USD", "0.5")
        .run()
        .expect(75)
        .json();
    assert_eq!(text(node(&view, "planner"), "state"), "done");
    assert_eq!(text(node(&view, "implementer"), "state"), "failed");
    assert_spent(&costs(&env, &[])["total"], 2, 5, 1.2);
}

#[test]
fn what_is_older_than_a_day_does_not_count() {
    let env = priced();
    run_within(&env, "0.9").expect(0);
    const DAY_MS: u64 = 24 * 60 * 60 * 1000;
    edit(&env, &format!("UPDATE costs SET at_ms = at_ms - {DAY_MS}"));
    run_within(&env, "0.9").expect(0);
    // Almost a day is not a day.
    edit(
        &env,
        &format!("UPDATE costs SET at_ms = at_ms - {}", DAY_MS - 3_600_000),
    );
    let view = run_within(&env, "0.8").expect(75).json();
    assert_eq!(text(node(&view, "planner"), "reason"), "budget_exhausted");
}

#[test]
fn the_record_of_a_run_tells_the_daily_budget_and_its_source() {
    let env = priced();
    let view = run_within(&env, "7.5").expect(0).json();
    let record = env.run_directory(text(&view, "run")).join("run.json");
    let record: Value = serde_json::from_slice(&fs_err::read(record).unwrap()).unwrap();
    let settings = record["settings"].as_array().unwrap();
    let setting = settings
        .iter()
        .find(|setting| setting["name"] == "daily_budget_usd")
        .unwrap();
    assert_eq!(text(setting, "value"), "7.5");
    assert_eq!(text(setting, "source"), "variable MO_DAILY_BUDGET_USD");
}

/// Calls as a gateway has them written down: one that ended, and one that was cut.
fn add_calls(env: &TestEnv) {
    edit(
        env,
        "INSERT INTO costs (run, recipe, node, round, attempt, lane, metered, model, at_ms,
                            duration_ms, input_tokens, cache_read_tokens, cache_write_tokens,
                            output_tokens, complete, cost_usd)
         SELECT run, recipe, node, 1, 1, 'metered', 1, 'm', at_ms, 5, 1500, 2000000, 0, 40,
                complete, 0.125
         FROM (SELECT run, recipe, node, at_ms FROM costs WHERE node = 'implementer'),
              (SELECT 0 AS complete UNION SELECT 1)",
    );
}

#[test]
fn calls_are_shown_with_their_tokens_and_a_cut_one_as_at_least() {
    let env = priced();
    let run = run_json(&env, &repo(&env), "code-fix").expect(0).json();
    assert_eq!(run["costs"]["total"]["calls"], 0);
    add_calls(&env);
    let by_lane = costs(&env, &["--by", "lane"]);
    let metered = &by_lane["groups"][1];
    assert_eq!(text(metered, "name"), "metered");
    assert_eq!(metered["nodes"], 1);
    assert_eq!(metered["calls"], 2);
    assert_eq!(metered["cut_calls"], 1);
    assert_eq!(metered["cost_usd"], 0.25);
    assert_eq!(metered["cost_unknown"], true);
    assert_eq!(metered["tokens"]["input"], 3000);
    assert_eq!(metered["tokens"]["cache_read"], 4_000_000);
    let shown = env.mini_ork(["costs", "--by", "lane"]).run().expect(0);
    let shown = shown.text();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines,
        [
            "LANE          RUNS  NODES  CALLS  INPUT  FROM CACHE  TO CACHE  OUTPUT  SPENT",
            "default-lane  1     3      –      –      –           –         –       $0.60",
            "metered       1     1      2      3.0k+  4.0M+       0+        80+     at least $0.25",
            "worker-lane   1     1      –      –      –           –         –       $0.20",
            "total         1     4      2      3.0k+  4.0M+       0+        80+     at least $1.05",
            "last 24 h: at least $1.05 of $50.00 a day (default)",
        ]
    );
    let id = text(&run, "run");
    let status = env.mini_ork(["status", id]).run().expect(0);
    let status = status.text();
    assert!(
        status.contains("at least $1.05 · 2 calls, tokens: 3.0k+ in"),
        "{status}"
    );
    let status = env
        .mini_ork(["status", id, "--json"])
        .run()
        .expect(0)
        .json();
    let lanes = status["costs"]["lanes"].as_array().unwrap();
    let found: Vec<(&str, &str)> = lanes
        .iter()
        .map(|lane| (text(lane, "node"), text(lane, "lane")))
        .collect();
    assert_eq!(
        found,
        [
            ("planner", "default-lane"),
            ("implementer", "worker-lane"),
            ("reviewer", "default-lane"),
            ("eval", "default-lane"),
            ("implementer", "metered"),
        ]
    );
    assert_eq!(status["cost_usd"], 1.05);
}

#[test]
fn the_report_tells_what_each_node_cost_on_each_lane() {
    let env = priced();
    let view = run_json(&env, &repo(&env), "code-fix").expect(0).json();
    let report = env.run_directory(text(&view, "run")).join("report.md");
    let report = fs_err::read_to_string(report).unwrap();
    for line in [
        "| node | lane | calls | input | from cache | to cache | output | cost |",
        "| implementer | worker-lane | – | – | – | – | – | $0.20 |",
        "| **total** |  | – | – | – | – | – | $0.80 |",
    ] {
        assert!(report.lines().any(|found| found == line), "{report}");
    }
}

/// A gateway writes each call down while the node runs: it counts at once, and no word of the lane
/// is added to it in the end.
#[test]
fn calls_of_a_node_that_runs_count_at_once_and_in_its_end() {
    let env = new_env();
    env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    let work = format!(
        "touch '{0}/begun'; while ! test -e '{0}/go-on'; do sleep 0.05; done; echo 42 > answer\n\
         echo '{{\"cost_usd\": 0.5}}' > \"$MO_USAGE_FILE\"",
        env.root().display()
    );
    env.lanes(&[("default", Lane::Shell(&crate::support::agent(&work)))]);
    let running = crate::support::spawn_until_begun(&env, "code-fix");
    edit(
        &env,
        "INSERT INTO costs (run, recipe, node, round, attempt, lane, metered, at_ms, complete,
                            cost_usd)
         SELECT run, recipe, 'implementer', 1, 1, 'metered', 1, started_at_ms, 1, 0.125 FROM runs",
    );
    let status = env.mini_ork(["status", "--json"]).run().expect(0).json();
    assert_eq!(status["status"], "running");
    assert_eq!(status["costs"]["total"]["calls"], 1);
    assert_eq!(status["cost_usd"], 0.125);
    fs_err::write(env.root().join("go-on"), "").unwrap();
    let view = running.wait().expect(0).json();
    let implementer = node(&view, "implementer");
    assert_eq!(implementer["cost_usd"], 0.125);
    assert_eq!(implementer["cost_unknown"], false);
    assert_eq!(view["cost_usd"], 0.125);
    // The others said nothing of their cost.
    assert_eq!(view["cost_unknown"], true);
}
