//! Commands that need no run: recipes, settings, doctor, init, completions, help.

use std::os::unix::fs::PermissionsExt as _;

use mini_ork_testkit::{Lane, checkout_state};
use serde_json::Value;

use crate::support::{PROJECT, agent, new_env, text};

fn found<'a>(list: &'a Value, key: &str, value: &str) -> &'a Value {
    let list = list.as_array().unwrap();
    let one = list.iter().find(|item| item[key] == value);
    one.unwrap_or_else(|| panic!("no {key} {value} in {list:#?}"))
}

#[test]
fn recipes_are_listed_with_where_they_come_from() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.recipe("broken", &[("workflow.yaml", "version: 1\nnods: []\n")]);
    let listed = env
        .mini_ork(["recipe", "ls", "--json", "--repo", "repo"])
        .run()
        .expect(0)
        .json();
    let bundled = found(&listed["recipes"], "recipe", "code-fix");
    assert_eq!(text(&bundled["origin"], "kind"), "bundled");
    let broken = found(&listed["recipes"], "recipe", "broken");
    assert_eq!(broken["valid"], false);
    assert_eq!(text(&broken["origin"], "kind"), "home");
    let shown = env.mini_ork(["recipe", "ls"]).run().expect(0).text();
    assert!(shown.contains("workflow.yaml:2"), "{shown}");

    // The repository's own recipe comes first, seen from within.
    repo.write(
        ".mini-ork/recipes/code-fix/workflow.yaml",
        "version: 1\nnodes: []\n",
    );
    let inside = env
        .mini_ork(["recipe", "ls", "--json"])
        .cwd(repo.path())
        .run()
        .expect(0)
        .json();
    let first = found(&inside["recipes"], "recipe", "code-fix");
    assert_eq!(text(&first["origin"], "kind"), "repository");
    assert_eq!(first["valid"], false);
}

#[test]
fn a_recipe_is_shown_with_its_graph_and_lanes() {
    let env = new_env();
    env.lanes(&[("default", Lane::Shell(&agent("true")))]);
    let shown = env
        .mini_ork(["recipe", "show", "code-fix"])
        .run()
        .expect(0)
        .text();
    for part in [
        "implementer",
        "worker = default-lane",
        "scope_gate",
        "workflow.yaml",
        "up to 2×",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let json = env
        .mini_ork(["recipe", "show", "code-fix", "--json"])
        .run()
        .expect(0)
        .json();
    let node = found(&json["nodes"], "id", "implementer");
    assert_eq!(text(node, "resolved_lane"), "default-lane");
    let unknown = env.mini_ork(["recipe", "show", "code-fx"]).run().expect(2);
    assert!(
        unknown.errors().contains("code-fix"),
        "{}",
        unknown.errors()
    );
}

#[test]
fn every_mistake_of_a_recipe_is_told_at_once() {
    let env = new_env();
    let workflow =
        "version: 1\ntask_class: t\nnods: []\nnodes:\n  - {name: a, type: implementr}\nedges: []\n";
    env.write("mine/workflow.yaml", workflow);
    let refused = env
        .mini_ork(["recipe", "validate", "./mine"])
        .run()
        .expect(2);
    for part in ["workflow.yaml:3", "workflow.yaml:5", "nods", "implementer"] {
        assert!(
            refused.errors().contains(part),
            "{part} in\n{}",
            refused.errors()
        );
    }
    let json = env
        .mini_ork(["recipe", "validate", "mine", "--json"])
        .run()
        .expect(2)
        .json();
    assert!(json["mistakes"].as_array().unwrap().len() >= 2, "{json}");
    assert_eq!(json["mistakes"][0]["line"], 3);
    for bundled in [
        "code-fix",
        "docs",
        "parallel-fix",
        "research-synthesis",
        "review",
    ] {
        env.mini_ork(["recipe", "validate", bundled])
            .run()
            .expect(0);
    }
    env.mini_ork(["recipe", "validate", "./nowhere"])
        .run()
        .expect(2);
}

#[test]
fn settings_say_where_each_value_came_from() {
    let env = new_env();
    env.repo("repo", PROJECT);
    env.lanes(&[("default", Lane::Shell(&agent("true")))]);
    let json = env
        .mini_ork(["settings", "--json", "--repo", "repo"])
        .env("MINI_ORK_MAX_PARALLEL", "7")
        .run()
        .expect(0)
        .json();
    let of = |name| found(&json["settings"], "name", name);
    assert_eq!(text(of("max_parallel"), "value"), "7");
    assert_eq!(
        text(of("max_parallel"), "source"),
        "variable MINI_ORK_MAX_PARALLEL"
    );
    assert_eq!(text(of("node_timeout"), "source"), "default");
    assert_eq!(text(of("repository"), "source"), "flag --repo");
    assert_eq!(text(of("daily_budget_usd"), "value"), "50");
    assert_eq!(text(of("daily_budget_usd"), "source"), "default");
    assert_eq!(text(of("may_ask"), "value"), "no");
    let lane = found(&json["lanes"], "lane", "default-lane");
    assert!(text(lane, "file").ends_with("config/providers.yaml"));
    let built_in = found(&json["lanes"], "lane", "claude");
    assert_eq!(text(built_in, "file"), "built in");
    assert_eq!(text(&json["roles"][0], "lane"), "default-lane");
    let shown = env.mini_ork(["settings"]).run().expect(0).text();
    assert!(
        shown.contains("MINI_ORK_HOME") && shown.contains("default-lane"),
        "{shown}"
    );
    let refused = env
        .mini_ork(["settings"])
        .env("MINI_ORK_MAX_PARALLEL", "many")
        .run()
        .expect(2);
    assert!(
        refused.errors().contains("MINI_ORK_MAX_PARALLEL"),
        "{}",
        refused.errors()
    );
}

#[test]
fn doctor_tells_what_is_missing_by_its_exit_code() {
    let env = new_env();
    let without = env.mini_ork(["doctor"]).run().expect(1);
    assert!(without.text().contains("✗ lanes"), "{}", without.text());
    assert!(!env.home().exists(), "looking made the home");

    env.lanes(&[("default", Lane::Shell(&agent("true")))]);
    let good = env.mini_ork(["doctor", "--json"]).run().expect(0).json();
    assert_eq!(good["ok"], true);
    for name in ["git", "home", "disk", "state", "processes", "lane"] {
        assert_eq!(
            text(found(&good["checks"], "name", name), "found"),
            "ok",
            "{good}"
        );
    }

    env.write(
        "home/config/providers.yaml",
        "providers:\n  default-lane: {kind: executable, command: [no-such-agent]}\n",
    );
    let bad = env.mini_ork(["doctor"]).run().expect(1).text();
    assert!(bad.contains("no-such-agent") && bad.contains("→"), "{bad}");

    let no_git = env
        .mini_ork(["doctor"])
        .env("PATH", env.bin())
        .run()
        .expect(1);
    assert!(no_git.text().contains("✗ git"), "{}", no_git.text());
    env.assert_no_process();
}

#[test]
fn init_makes_what_is_missing_and_overwrites_nothing() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    let before = checkout_state(repo.path());
    let first = env
        .mini_ork(["init", "--repo", "repo", "--json"])
        .run()
        .expect(0)
        .json();
    assert_eq!(first["made"].as_array().map(Vec::len), Some(3));
    assert_ne!(checkout_state(repo.path()), before);
    let config = repo.path().join(".mini-ork/config/providers.yaml");
    let mine = "providers:\n  mine: {kind: executable, command: [sh]}\n";
    fs_err::write(&config, mine).unwrap();
    let second = env
        .mini_ork(["init"])
        .cwd(repo.path())
        .run()
        .expect(0)
        .text();
    assert!(
        second.contains("kept") && !second.contains("made"),
        "{second}"
    );
    assert_eq!(fs_err::read_to_string(&config).unwrap(), mine);
    env.mini_ork(["settings"]).cwd(repo.path()).run().expect(0);

    let kickoff = repo.path().join(".mini-ork/kickoff.example.md");
    let mut arguments = vec!["run", "code-fix", "--dry-run"];
    for role in ["planner=mine", "worker=mine", "reviewer=mine", "judge=mine"] {
        arguments.extend(["--lane", role]);
    }
    let planned = env.mini_ork(arguments).arg(&kickoff).run().expect(0);
    assert!(planned.text().contains("mine"), "{}", planned.text());

    let outside = env.mini_ork(["init"]).run().expect(2);
    assert!(
        outside.errors().contains("git init"),
        "{}",
        outside.errors()
    );
    // A repository has a checkout before its first commit.
    env.call("git", ["init", "--quiet", "empty"])
        .run()
        .expect(0);
    env.mini_ork(["init", "--repo", "empty"]).run().expect(0);
}

#[test]
fn doctor_tells_every_mistake_of_a_profile() {
    let env = new_env();
    env.write(
        "home/config/environments/bad.yaml",
        "network: open\nresources:\n  memory: 1M\nprovider: other\n",
    );
    let doctor = |arguments: &[&str]| {
        let call = env.mini_ork(arguments).env("MO_NODE_ENV", "bad");
        call.run().expect(1)
    };
    let shown = doctor(&["doctor"]).text();
    let json = doctor(&["doctor", "--json"]).json();
    let checks = json["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == "sandbox");
    let in_json = text(check.unwrap(), "text");
    for part in [
        "the profile `bad` cannot be used",
        "bad.yaml:1  network:",
        "bad.yaml:3  resources.memory:",
        "bad.yaml:4  provider:",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
        assert!(in_json.contains(part), "{part}: {in_json}");
    }
    assert!(shown.contains("docs/sandboxing.md"), "{shown}");
}

#[test]
fn init_that_cannot_write_says_where() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    repo.write(".mini-ork", "a file\n");
    let refused = env.mini_ork(["init", "--repo", "repo"]).run().expect(1);
    assert!(
        refused.errors().contains(".mini-ork"),
        "{}",
        refused.errors()
    );
}

#[test]
fn completions_know_recipes() {
    let env = new_env();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = env.mini_ork(["completions", shell]).run().expect(0);
        assert!(script.text().contains("mini-ork"), "{shell}");
    }
    env.recipe(
        "my-own",
        &[(
            "workflow.yaml",
            "version: 1\ntask_class: t\nnodes:\n  - {name: p, type: publisher}\nedges: []\n",
        )],
    );
    let offered = env
        .mini_ork(["--", "mini-ork", "recipe", "show", ""])
        .env("COMPLETE", "bash")
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_INDEX", "3")
        .run()
        .expect(0)
        .text();
    for name in ["code-fix", "my-own"] {
        assert!(
            offered.lines().any(|line| line == name),
            "{name} in {offered}"
        );
    }
    let unset = env
        .mini_ork(["completions", "bash"])
        .without_env("MINI_ORK_HOME")
        .without_env("HOME")
        .run();
    unset.expect(0);
}

#[test]
fn completions_know_profiles_and_backends() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.write("home/config/environments/box.yaml", "network: none\n");
    repo.write(".mini-ork/config/environments/ci.yaml", "network: none\n");
    let offered = |words: &[&str]| -> Vec<String> {
        let all = [&["--", "mini-ork"], words, &[""]].concat();
        let call = env.mini_ork(&all).cwd(repo.path()).env("COMPLETE", "bash");
        let call = call.env("_CLAP_IFS", "\n");
        let index = (words.len() + 1).to_string();
        let offered = call.env("_CLAP_COMPLETE_INDEX", index).run().expect(0);
        offered.text().lines().map(ToOwned::to_owned).collect()
    };
    for command in [&["run"][..], &["sandbox", "verify"]] {
        let with = |flag| offered(&[command, &[flag]].concat());
        assert_eq!(with("--env"), ["box", "ci"], "{command:?}");
        assert_eq!(with("--backend"), ["local", "docker"], "{command:?}");
    }
    let all = offered(&["sandbox-gc", "--backend"]);
    assert_eq!(all, ["local", "docker", "all"]);
}

#[test]
fn help_has_every_topic_and_lists_them_for_an_unknown_word() {
    let env = new_env();
    for topic in [
        "recipes",
        "lanes",
        "kickoffs",
        "sandboxing",
        "profiles",
        "network",
        "environment",
        "exit-codes",
        "recovery",
        "run",
    ] {
        let page = env.mini_ork(["help", topic]).run().expect(0).text();
        assert!(page.lines().count() > 5, "{topic}: {page}");
        assert!(!page.contains('\u{1b}'), "{topic}: {page}");
    }
    let unknown = env.mini_ork(["help", "nothing"]).run().expect(2);
    assert!(
        unknown.errors().contains("recovery"),
        "{}",
        unknown.errors()
    );
    let all = env.mini_ork(["help"]).run().expect(0).text();
    assert!(all.contains("Topics") && all.contains("conflicts"), "{all}");
}

#[test]
fn colour_is_for_terminals_unless_it_is_asked_for() {
    let env = new_env();
    let plain = env.mini_ork(["recipe", "ls"]).run().expect(0);
    assert!(!plain.text().contains('\u{1b}'), "{}", plain.text());
    let asked = env
        .mini_ork(["recipe", "ls", "--color", "always"])
        .run()
        .expect(0);
    assert!(asked.text().contains('\u{1b}'), "{}", asked.text());
}

#[test]
fn a_program_on_path_must_be_executable_for_doctor() {
    let env = new_env();
    env.write(
        "home/config/providers.yaml",
        "providers:\n  mine: {kind: executable, command: [my-agent]}\n",
    );
    env.program_on_path("my-agent", "#!/bin/sh\n");
    let found_it = env.mini_ork(["doctor"]).run().expect(0).text();
    assert!(found_it.contains("no role `default`"), "{found_it}");
    let path = env.bin().join("my-agent");
    fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let missing = env.mini_ork(["doctor"]).run().expect(1).text();
    assert!(missing.contains("`my-agent` was not found"), "{missing}");
}
