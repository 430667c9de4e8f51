//! Runs of the backend `local` with a network policy.

use mini_ork_testkit::{Call, TestEnv, checkout_state, skip};

use crate::support::{CHECK, PROJECT, agent, new_env, text};

fn world(work: &str) -> TestEnv {
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

fn run(env: &TestEnv) -> Call<'_> {
    env.mini_ork(["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"])
}

/// Whether this machine lets programs be confined; says `SKIP` where it does not.
fn can_confine(env: &TestEnv) -> bool {
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
        warnings.contains("add `denied.example:443` to MO_SANDBOX_ALLOW"),
        "{warnings}"
    );
    let report = env.run_directory(text(&view, "run")).join("report.md");
    let report = fs_err::read_to_string(report).unwrap();
    assert!(report.contains("denied.example:443"), "{report}");
    assert_eq!(checkout_state(&env.root().join("repo")), before);
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
