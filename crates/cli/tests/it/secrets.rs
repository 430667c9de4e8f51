//! What is in the user's environment and in the files of a lane stays there.

use std::time::Duration;

use mini_ork_testkit::{Lane, assert_no_secret, places_with, wait_for};

use crate::support::{CHECK, PROJECT, agent, new_env, text};

#[test]
fn bc_42_a_secret_of_the_environment_or_a_lane_reaches_nothing() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    // Put together here, so that it is in no file of the build.
    let secret = format!("sentinel-{}-{}", std::process::id(), "b7c1");
    let (begun, go) = (env.root().join("begun"), env.root().join("go"));
    let key_file = env.write("user/.agent/key", &secret);
    let work = format!(
        "key=$(cat '{}')\n[ -n \"$key\" ] || exit 9\nenv > seen-by-the-lane\necho x > '{}'\n\
         while [ ! -e '{}' ]; do sleep 0.02; done\necho 42 > answer",
        key_file.display(),
        begun.display(),
        go.display()
    );
    let shell = agent(&work).replace("cat > /dev/null", &format!("cat > /dev/null # {secret}"));
    env.lanes(&[("default", Lane::Shell(&shell))]);
    let running = env
        .mini_ork(["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"])
        .env("ANTHROPIC_API_KEY", &secret)
        .env("GITHUB_TOKEN", &secret)
        .env("SOME_VARIABLE", &secret)
        .env("MO_CHANGED_FILES", &secret)
        .env("AWS_SECRET_ACCESS_KEY", &secret)
        .env("SSH_AUTH_SOCK", &secret)
        .env("RUST_LOG", "trace")
        .spawn();
    wait_for("start of the lane", Duration::from_secs(30), || {
        begun.exists()
    });

    // While it runs, only the process that was given it has it.
    let own = format!("/proc/{}/environ", running.pid());
    let runs = env.home().join("runs");
    let places = places_with(&secret, &[&runs, &env.home(), repo.path()]);
    assert_eq!(places, [own]);
    fs_err::write(&go, "").unwrap();
    let output = running.wait().expect(0);
    let view = output.json();
    assert!(
        !output
            .transcript()
            .split("--- stdout")
            .nth(1)
            .unwrap()
            .contains(&secret)
    );

    // Afterwards nothing has it: not the records, not the database, not the branch.
    assert_no_secret(
        &secret,
        &[&env.home(), repo.path(), &env.root().join("tmp")],
    );
    let seen = repo.show(text(&view, "branch"), "seen-by-the-lane");
    assert!(
        seen.contains("MO_NODE_ROLE=worker") && !seen.contains(&secret),
        "{seen}"
    );
    let names: Vec<&str> = seen
        .lines()
        .filter_map(|line| line.split_once('=').map(|(name, _)| name))
        .collect();
    for name in names {
        assert!(
            name.starts_with("MO_")
                || name.starts_with("MINI_ORK_")
                || [
                    "PATH",
                    "HOME",
                    "TMPDIR",
                    "COMPOSE_PROJECT_NAME",
                    "CARGO_HOME",
                    "RUSTUP_HOME",
                    "RUSTUP_TOOLCHAIN",
                    "LD_LIBRARY_PATH",
                    "PWD",
                    "OLDPWD",
                    "SHLVL",
                    "_"
                ]
                .contains(&name),
            "{name} is on nobody's list"
        );
    }
}
