//! `mini-ork lanes`: which lanes there are, and whether they can be started.

use std::os::unix::fs::PermissionsExt as _;

use mini_ork_testkit::TestEnv;
use serde_json::{Value, json};

use crate::support::{PROJECT, new_env, text};

const SCRIPT: &str = "version: 1\nsteps:\n- {stdout: fine}\n";

/// Three lanes, one of them described by the repository.
fn ready() -> TestEnv {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.write(
        "home/config/providers.yaml",
        "providers:\n\
         \x20 careful:\n    kind: executable\n    command: [my-agent, --quiet]\n\
         \x20   extra_env: {MY_AGENT_ACCOUNT: hunter-two}\n\
         \x20 rehearsal: {kind: scripted, file: rehearsal.yaml}\n",
    );
    env.write(
        "home/config/agents.yaml",
        "lanes:\n  default: careful\n  worker: careful\n",
    );
    env.write("home/rehearsal.yaml", SCRIPT);
    repo.write(
        ".mini-ork/config/providers.yaml",
        "providers:\n  house: {kind: executable, script: agents/house.sh}\n",
    );
    repo.write(
        ".mini-ork/config/agents.yaml",
        "lanes:\n  reviewer: house\n",
    );
    repo.write(".mini-ork/agents/house.sh", "#!/bin/sh\n");
    executable(&env, "repo/.mini-ork/agents/house.sh", true);
    env.program_on_path("my-agent", "#!/bin/sh\n");
    env
}

fn executable(env: &TestEnv, path: &str, yes: bool) {
    let mode = if yes { 0o755 } else { 0o644 };
    let permissions = std::fs::Permissions::from_mode(mode);
    fs_err::set_permissions(env.root().join(path), permissions).unwrap();
}

#[track_caller]
fn check(env: &TestEnv, code: i32) -> Value {
    env.mini_ork(["lanes", "check", "--json", "--repo", "repo"])
        .run()
        .expect(code)
        .json()
}

/// The only thing that a check found missing.
#[track_caller]
fn only_problem(env: &TestEnv) -> Value {
    let json = check(env, 1);
    assert_eq!(json["ok"], false);
    let checks = json["checks"].as_array().unwrap();
    let mut missing = checks.iter().filter(|check| check["found"] == "missing");
    let problem = missing.next().unwrap().clone();
    assert!(missing.next().is_none(), "{json:#}");
    problem
}

#[test]
fn lanes_are_listed_with_their_roles_and_files() {
    let env = ready();
    let json = env
        .mini_ork(["lanes", "ls", "--json", "--repo", "repo"])
        .run()
        .expect(0)
        .json();
    let lanes = json["lanes"].as_array().unwrap();
    let (built_in, lanes): (Vec<&Value>, Vec<&Value>) = lanes
        .iter()
        .partition(|lane| text(lane, "file") == "built in");
    let names: Vec<&str> = built_in.iter().map(|lane| text(lane, "lane")).collect();
    assert_eq!(
        names,
        ["anthropic", "claude", "codex", "openai", "opencode"]
    );
    let names: Vec<&str> = lanes.iter().map(|lane| text(lane, "lane")).collect();
    assert_eq!(names, ["careful", "house", "rehearsal"]);
    assert_eq!(text(lanes[0], "kind"), "executable");
    assert_eq!(lanes[0]["command"], json!(["my-agent", "--quiet"]));
    assert_eq!(lanes[0]["roles"], json!(["default", "worker"]));
    assert_eq!(lanes[1]["roles"], json!(["reviewer"]));
    assert!(text(lanes[1], "file").ends_with("repo/.mini-ork/config/providers.yaml"));
    assert_eq!(text(lanes[2], "kind"), "scripted");
    assert_eq!(lanes[2]["roles"], json!([]));
    assert!(lanes[2]["command"].is_null());
    assert!(text(lanes[2], "runs").ends_with("home/rehearsal.yaml"));

    let shown = env
        .mini_ork(["lanes", "ls"])
        .cwd(env.root().join("repo"))
        .run()
        .expect(0)
        .text();
    assert!(shown.starts_with("LANE "), "{shown}");
    assert!(shown.contains("default, worker"), "{shown}");

    let empty = new_env();
    let shown = empty.mini_ork(["lanes", "ls"]).run().expect(0).text();
    assert!(shown.contains("claude with claude-"), "{shown}");
}

#[test]
fn a_lane_is_shown_in_full_but_for_the_values_of_its_variables() {
    let env = ready();
    for more in [&["--json"][..], &[]] {
        let arguments = ["lanes", "show", "careful", "--repo", "repo"];
        let shown = env
            .mini_ork(arguments.iter().chain(more))
            .run()
            .expect(0)
            .text();
        for part in [
            "executable",
            "my-agent",
            "--quiet",
            "MY_AGENT_ACCOUNT",
            "worker",
            "home/config/providers.yaml",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("hunter-two"), "{shown}");
    }
    let unknown = env
        .mini_ork(["lanes", "show", "carefull", "--repo", "repo"])
        .run()
        .expect(2);
    assert!(
        unknown.errors().contains("`careful`"),
        "{}",
        unknown.errors()
    );
}

#[test]
fn a_model_lane_is_shown_with_the_name_of_its_key() {
    let env = new_env();
    let shown = env
        .mini_ork(["lanes", "show", "claude"])
        .run()
        .expect(0)
        .text();
    for part in [
        "claude-code",
        "anthropic-messages at https://api.anthropic.com",
        "ANTHROPIC_API_KEY, held by the gateway",
        "built in",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let json = env
        .mini_ork(["lanes", "show", "codex", "--json"])
        .run()
        .expect(0)
        .json();
    let model = &json["lane"]["model"];
    assert_eq!(text(model, "driver"), "codex");
    assert_eq!(text(model, "key"), "OPENAI_API_KEY");
    assert_eq!(model["limits"]["max_calls"], 200);
}

#[test]
fn bc_44_program_and_key_are_looked_for_once_a_role_wants_them() {
    let env = ready();
    assert_eq!(check(&env, 0)["ok"], true);
    env.write(
        "home/config/agents.yaml",
        "lanes:\n  default: [careful, opencode]\n",
    );
    let problem = only_problem(&env);
    assert!(
        text(&problem, "text").contains("`opencode` was not found"),
        "{problem}"
    );
    env.program_on_path("opencode", "#!/bin/sh\n");
    let problem = only_problem(&env);
    assert!(
        text(&problem, "text").contains("OPENAI_API_KEY")
            && text(&problem, "remedy").contains("mini-ork vault set OPENAI_API_KEY"),
        "{problem}"
    );
    let checks = env
        .mini_ork(["lanes", "check", "--repo", "repo"])
        .env("OPENAI_API_KEY", "SENTINEL")
        .run()
        .expect(0)
        .text();
    assert!(checks.contains("default → careful → opencode"), "{checks}");
    assert!(!checks.contains("SENTINEL"), "{checks}");
    let blank = env
        .mini_ork(["lanes", "check", "--repo", "repo"])
        .env("OPENAI_API_KEY", " \n")
        .run()
        .expect(1)
        .text();
    assert!(blank.contains("OPENAI_API_KEY"), "{blank}");
}

#[test]
fn a_check_finds_what_would_keep_a_lane_from_being_started() {
    let env = ready();
    let good = check(&env, 0);
    assert_eq!(good["ok"], true, "{good:#}");
    let roles = good["checks"].as_array().unwrap();
    let roles = roles.iter().find(|check| check["name"] == "roles").unwrap();
    assert!(text(roles, "text").contains("reviewer → house"), "{roles}");

    executable(&env, "repo/.mini-ork/agents/house.sh", false);
    let problem = only_problem(&env);
    assert!(text(&problem, "text").starts_with("house: "), "{problem}");
    assert!(
        text(&problem, "remedy").contains("make it executable"),
        "{problem}"
    );
    executable(&env, "repo/.mini-ork/agents/house.sh", true);

    fs_err::remove_file(env.bin().join("my-agent")).unwrap();
    let problem = only_problem(&env);
    assert!(
        text(&problem, "text").contains("`my-agent` was not found"),
        "{problem}"
    );
    assert!(
        text(&problem, "remedy").contains("home/config/providers.yaml"),
        "{problem}"
    );
    env.program_on_path("my-agent", "#!/bin/sh\n");

    env.write(
        "home/rehearsal.yaml",
        "version: 1\nsteps:\n- {stdoutt: fine}\n",
    );
    let problem = only_problem(&env);
    assert!(
        text(&problem, "text").contains("rehearsal.yaml:3")
            && text(&problem, "text").contains("stdout"),
        "{problem}"
    );
    let shown = env
        .mini_ork(["lanes", "check", "--repo", "repo"])
        .run()
        .expect(1)
        .text();
    assert!(shown.contains("✗ lane"), "{shown}");
    env.write("home/rehearsal.yaml", SCRIPT);

    env.write("home/config/agents.yaml", "lanes:\n  default: carful\n");
    let problem = only_problem(&env);
    assert!(
        text(&problem, "text").contains("agents.yaml:2")
            && text(&problem, "text").contains("`carful`"),
        "{problem}"
    );
    env.mini_ork(["lanes", "ls", "--repo", "repo"])
        .run()
        .expect(2);

    let nothing = new_env();
    nothing.mini_ork(["lanes", "check"]).run().expect(1);
}
