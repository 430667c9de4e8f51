//! Runs of the backend `local` with a network policy.

use mini_ork_testkit::{
    Call, ContainerEngine, Lane, TestEnv, checkout_state, skip, static_node_program,
};
use serde_json::Value;

use crate::sandbox::in_container;
use crate::support::{CHECK, PROJECT, REHEARSAL, agent, assert_owned, new_env, node, text};

/// A repository and a lane that does all roles with the shell script `work`, whatever the workspace.
pub(crate) fn world(work: &str) -> TestEnv {
    let env = new_env();
    env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    // A script in a file would lie in a directory that is hidden inside.
    let script = serde_json::to_string(&agent(work)).unwrap();
    let providers =
        format!("providers:\n  own: {{kind: executable, command: [sh, -c, {script}]}}\n");
    env.write("home/config/providers.yaml", &providers);
    env.write("home/config/agents.yaml", "lanes:\n  default: own\n");
    env
}

pub(crate) fn run(env: &TestEnv) -> Call<'_> {
    env.mini_ork(["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"])
}

/// Whether this machine lets programs be confined; says `SKIP` where it does not.
pub(crate) fn can_confine(env: &TestEnv) -> bool {
    let output = env.mini_ork(["sandbox", "verify", "--json"]).run();
    let refused = output.errors().contains("does not let an ordinary user");
    if refused {
        skip(&output.errors());
    }
    !refused
}

#[test]
fn a_confined_run_publishes_and_what_it_was_denied_is_told() {
    let env = world(
        "set -e\n\
         test $(grep -c : /proc/net/dev) = 1\n\
         git log --oneline | grep -q first\n\
         ! touch /usr/x 2>/dev/null\n\
         ! ls \"$MINI_ORK_RUN_DIR/run.json\" 2>/dev/null\n\
         touch $HOME/own /tmp/own\n\
         bash -c 'exec 3<>/dev/tcp/127.1.0.1/3128\n\
            printf \"CONNECT denied.example:443 HTTP/1.1\\r\\n\\r\\n\" >&3\n\
            read -r line <&3; case $line in *403*) ;; *) exit 1 ;; esac'\n\
         echo 42 > answer\n\
         git commit -qam 'the answer'",
    );
    if !can_confine(&env) {
        return;
    }
    let before = checkout_state(&env.root().join("repo"));
    let call = run(&env)
        .env("MO_SANDBOX_NETWORK", "allowlist")
        .env("MO_SANDBOX_ALLOW", "example.com, *.example.org");
    let view = call.run().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    let isolation = text(&view, "isolation");
    assert!(isolation.contains("confined"), "{isolation}");
    assert!(
        isolation.contains("reaches example.com, *.example.org;"),
        "{isolation}"
    );
    let warnings = view["warnings"].to_string();
    assert!(
        warnings.contains("add `denied.example:443` to `allow_domains`"),
        "{warnings}"
    );
    let report = env.run_directory(text(&view, "run")).join("report.md");
    let report = fs_err::read_to_string(report).unwrap();
    assert!(report.contains("denied.example:443"), "{report}");
    assert_eq!(checkout_state(&env.root().join("repo")), before);
    env.assert_no_process();
}

/// What would be made is told before anything is.
#[test]
fn a_dry_run_tells_whether_a_sandbox_would_be_made() {
    let env = world("echo 42 > answer");
    let call = |json: bool| {
        let call = env.mini_ork(["run", "code-fix", "--dry-run", "--repo", "repo"]);
        let call = if json { call.arg("--json") } else { call };
        call.arg("kickoff.md")
    };
    let plain = call(false).run().expect(0).text();
    assert!(
        plain.contains("workspace local · a worktree") && plain.contains("\n0 sandboxes would be"),
        "{plain}"
    );
    let plain = call(true).run().expect(0).json();
    assert_eq!(
        (&plain["sandboxes"], &plain["sandbox"]),
        (&0.into(), &Value::Null)
    );
    if !can_confine(&env) {
        return;
    }
    let confined = |json| {
        let call = call(json).env("MO_SANDBOX_NETWORK", "allowlist");
        call.env("MO_SANDBOX_ALLOW", "example.com,*.example.org")
            .env("MO_SANDBOX_SCOPE", "tool")
            .env("MO_SANDBOX_ALLOW_HOST_AGENT", "1")
            .run()
            .expect(0)
    };
    let shown = confined(false).text();
    assert!(
        shown.contains(
            "workspace local · scope tool · network allowlist (example.com, *.example.org) · a"
        ) && shown.contains("\n1 sandbox would be made; nothing was done"),
        "{shown}"
    );
    let shown = confined(true).json();
    assert_eq!(shown["sandboxes"], 1);
    assert_eq!(
        shown["sandbox"],
        serde_json::json!({
            "image": null,
            "runtime": null,
            "scope": "tool",
            "network": "allowlist",
            "network_allow": ["example.com", "*.example.org"],
        })
    );
    assert_eq!(env.runs(), Vec::<String>::new());
}

#[test]
fn a_script_is_replayed_in_a_confined_workspace() {
    let env = world("true");
    if !can_confine(&env) {
        return;
    }
    env.lanes(&[("default", Lane::Scripted(REHEARSAL))]);
    let call = run(&env).env("MO_SANDBOX_NETWORK", "none");
    let view = call.run().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    assert_eq!(node(&view, "implementer")["round"], 2);
    env.assert_no_process();
}

/// What programs write inside belongs to the user who runs it.
#[test]
fn an_ordinary_user_runs_in_a_confined_workspace() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        return skip("only root can be another user");
    }
    let env = world(
        "test $(id -u) = 65534 || exit 9; echo 42 > answer; echo x > new; git commit -qam 'the answer'",
    );
    if !can_confine(&env) {
        return;
    }
    let own = env.call("chown", ["-R", "65534:65534"]).arg(env.root());
    own.run().expect(0);
    let arguments = ["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"];
    let call = env.mini_ork_as(NOBODY, arguments);
    let output = call.env("MO_SANDBOX_NETWORK", "none").run();
    if output.errors().contains("does not let an ordinary user") {
        return skip(&output.errors());
    }
    let view = output.expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    assert_owned(&env.run_directory(text(&view, "run")), NOBODY);
    assert_owned(&env.root().join("repo"), NOBODY);
    env.assert_no_process();
}

#[test]
fn bc_38_a_policy_of_nothing_is_verified_and_kept() {
    let env = world("bash -c 'exec 3<>/dev/tcp/127.1.0.1/80' 2>/dev/null || echo 42 > answer");
    if !can_confine(&env) {
        return;
    }
    let verified = env
        .mini_ork(["sandbox", "verify", "--json"])
        .run()
        .expect(0)
        .json();
    assert_eq!(verified["held"], true, "{verified:#}");
    assert_eq!(verified["canary"]["connections"], 0);
    let shown = env
        .mini_ork(["sandbox", "verify"])
        .env("MO_SANDBOX_NETWORK", "allowlist")
        .env("MO_SANDBOX_ALLOW", "example.com");
    let shown = shown.run().expect(0);
    assert!(
        shown.text().contains("network allowlist held"),
        "{}",
        shown.text()
    );
    let view = run(&env)
        .env("MO_SANDBOX_NETWORK", "none")
        .run()
        .expect(0)
        .json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    env.assert_no_process();
}

#[test]
fn bc_31_the_policy_of_a_container_is_verified() {
    let Some(node_program) = static_node_program() else {
        return;
    };
    let Some(engine) = ContainerEngine::start() else {
        return;
    };
    let env = world("true");
    let call = env.mini_ork(["sandbox", "verify", "--backend", "docker"]);
    let call = in_container(call, &engine, &engine.busybox_image(), &node_program);
    let shown = call.run().expect(0);
    assert!(
        shown.text().contains("network none held"),
        "{}",
        shown.text()
    );
    assert_eq!(engine.containers(), Vec::<String>::new());
}

#[test]
fn nothing_can_be_verified_where_nothing_is_closed() {
    let env = world("true");
    let call = env
        .mini_ork(["sandbox", "verify"])
        .env("MO_SANDBOX_NETWORK", "full");
    let output = call.run().expect(2);
    assert!(
        output.errors().contains("nothing to verify"),
        "{}",
        output.errors()
    );
}

/// A refusal is named as the reason where the program's own words say that it failed by it.
#[test]
fn a_node_that_failed_for_a_refused_host_says_so() {
    let env = world(
        "bash -c 'exec 3<>/dev/tcp/127.1.0.1/3128\n\
            printf \"CONNECT needed.example:443 HTTP/1.1\\r\\n\\r\\n\" >&3\n\
            read -r line <&3; echo \"cannot fetch https://needed.example/x: $line\" >&2'\n\
         exit 4",
    );
    if !can_confine(&env) {
        return;
    }
    let view = run(&env)
        .env("MO_SANDBOX_NETWORK", "none")
        .run()
        .expect(1)
        .json();
    assert_eq!(text(&view, "reason"), "egress_denied", "{view:#}");
    assert!(
        text(&view, "detail").contains("needed.example:443"),
        "{view:#}"
    );
    assert!(text(&view, "hint").contains("allow_domains"), "{view:#}");
}

/// Where the policy cannot be enforced nothing is started, and nothing is made.
#[test]
fn bc_38_a_policy_that_cannot_be_enforced_is_an_error_and_no_run() {
    let env = world("echo 42 > answer");
    let forbid = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    let call = |policy: &str| {
        let arguments = ["--user", "--map-root-user", "sh", "-c", forbid, "sh"];
        let call = env.call("unshare", arguments).arg(env.program());
        let words = ["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"];
        let call = words.iter().fold(call, Call::arg);
        let call = call.env("MINI_ORK_HOME", env.home());
        call.env("MO_SANDBOX_NETWORK", policy).env(
            "MO_SANDBOX_ALLOW",
            if policy == "allowlist" {
                "example.com"
            } else {
                ""
            },
        )
    };
    if call("full").run().code() != Some(0) {
        return skip("namespaces cannot be forbidden here");
    }
    let before = env.runs();
    for policy in ["none", "allowlist"] {
        let output = call(policy).run().expect(2);
        assert!(
            output
                .errors()
                .contains("the network policy cannot be enforced here"),
            "{}",
            output.errors()
        );
    }
    assert_eq!(env.runs(), before);
    env.assert_no_process();
}
