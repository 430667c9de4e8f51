//! Profiles: what a run works in, from a file.

use mini_ork_testkit::{ContainerEngine, Repo, TestEnv, static_node_program};

use crate::network::{can_confine, run, world};
use crate::sandbox::{TOOLS, in_container};
use crate::support::text;

/// Value and source of a setting in the record of the only run.
fn setting(env: &TestEnv, name: &str) -> (String, String) {
    let run = env.runs().pop().unwrap();
    let record = fs_err::read(env.run_directory(&run).join("run.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let settings = record["settings"].as_array().unwrap();
    let found = settings.iter().find(|setting| setting["name"] == name);
    let found = found.unwrap_or_else(|| panic!("{name}: {record:#}"));
    (
        text(found, "value").to_owned(),
        text(found, "source").to_owned(),
    )
}

/// The repository's file wins over the home's, a variable over both; what a run began with holds
/// when the files are gone.
#[test]
fn a_profile_says_what_a_run_works_in_and_recover_goes_by_it() {
    let env = world(
        "test \"$GREETING $COLOUR\" = 'hello blue' || exit 7; test -e GO || exit 1; echo 42 > answer",
    );
    let go = env.root().join("go").display().to_string();
    let providers = env.root().join("home/config/providers.yaml");
    let script = fs_err::read_to_string(&providers).unwrap();
    fs_err::write(&providers, script.replace("GO", &go)).unwrap();
    env.write(
        "home/config/environments/ci.yaml",
        "network: none\nenv:\n  GREETING: home\n  COLOUR: blue\n",
    );
    env.write(
        "repo/.mini-ork/config/environments/ci.yaml",
        "network: full\nenv: {GREETING: hello}\n",
    );
    let view = run(&env).arg("--env").arg("ci").run().expect(1).json();
    assert_eq!(text(&view, "reason"), "command_failed", "{view:#}");
    assert_eq!(setting(&env, "profile"), ("ci".into(), "flag --env".into()));
    let (network, source) = setting(&env, "network");
    assert_eq!(network, "full");
    assert!(
        source.starts_with("file ")
            && source.ends_with("repo/.mini-ork/config/environments/ci.yaml:1"),
        "{source}"
    );
    let (colour, source) = setting(&env, "env.COLOUR");
    assert_eq!(colour, "blue");
    assert!(
        source.ends_with("home/config/environments/ci.yaml:4"),
        "{source}"
    );
    fs_err::remove_dir_all(env.root().join("home/config/environments")).unwrap();
    fs_err::remove_dir_all(env.root().join("repo/.mini-ork")).unwrap();
    fs_err::write(&go, "").unwrap();
    let view = env.mini_ork(["recover", "--json"]).run().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
}

#[test]
fn a_profile_closes_the_network_and_a_variable_wins() {
    let env = world(
        "test $(grep -c : /proc/net/dev) = 1 && grep -q allowed.example /etc/hosts && echo 42 > answer",
    );
    if !can_confine(&env) {
        return;
    }
    env.write(
        "home/config/environments/closed.yaml",
        "network: allowlist\nallow_domains: [allowed.example, '*.com']\n",
    );
    let output = run(&env).env("MO_NODE_ENV", "closed").run().expect(0);
    let view = output.json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    assert!(output.errors().contains("`*.com`"), "{}", output.errors());
    let (hosts, source) = setting(&env, "network_allow");
    assert_eq!(hosts, "allowed.example,*.com");
    assert!(source.ends_with("closed.yaml:1"), "{source}");
    let verified = env
        .mini_ork(["sandbox", "verify", "--json", "--env", "closed"])
        .run()
        .expect(0)
        .json();
    assert_eq!(verified["policy"], "allowlist");
    let verified = env
        .mini_ork(["sandbox", "verify", "--json", "--env", "closed"])
        .env("MO_SANDBOX_NETWORK", "none");
    assert_eq!(verified.run().expect(0).json()["policy"], "none");
    let shown = env
        .mini_ork(["settings", "--json"])
        .env("MO_NODE_ENV", "closed");
    let shown = shown.run().expect(0).text();
    assert!(shown.contains("closed.yaml:1"), "{shown}");
}

/// Everything that is wrong with a profile is told with its place, before anything is made.
#[test]
fn bc_72_a_profile_that_cannot_be_carried_out_ends_before_anything_is_made() {
    let env = world("echo 42 > answer");
    let refused = |content: &str, says: &[&str]| {
        env.write("home/config/environments/bad.yaml", content);
        let output = run(&env).arg("--env").arg("bad").run().expect(2);
        for part in says {
            assert!(
                output.errors().contains(part),
                "{part}: {}",
                output.errors()
            );
        }
        assert_eq!(env.runs(), Vec::<String>::new());
        assert!(!env.root().join("home/state.db").exists());
    };
    refused(
        "network: allowlist\nresources:\n  cpus: 0\n  memory: -1\n  cpu: 1\nimage: 5\nsecrets: [A]\nprovider: e2b\n",
        &[
            "bad.yaml:1  network: `allowlist` without a host",
            "bad.yaml:3  resources.cpus: is `0`",
            "bad.yaml:4  resources.memory: is `-1`",
            "bad.yaml:5  resources.cpu: is another name of `cpus`",
            "bad.yaml:6  image: is the number `5`",
            "bad.yaml:7  secrets: is not carried out",
            "bad.yaml:8  provider: is not carried out",
        ],
    );
    for number in ["NaN", "1e99", "5m", "-1", "0", "1.2345"] {
        refused(
            &format!("resources: {{cpus: {number}}}\n"),
            &["bad.yaml:1  resources.cpus"],
        );
        refused(
            &format!("resources: {{memory: {number}}}\n"),
            &["bad.yaml:1  resources.memory"],
        );
    }
    refused(
        "env: {NPM_TOKEN: x}\n",
        &["env.NPM_TOKEN: looks like a secret", "`secrets`"],
    );
    refused(
        "image: debian:12\n",
        &[
            "bad.yaml:1  image: the backend `local` has none",
            "MO_SANDBOX_BACKEND=docker",
        ],
    );
    let output = run(&env).arg("--env").arg("bda").run().expect(2);
    assert!(
        output.errors().contains("did you mean `bad`?"),
        "{}",
        output.errors()
    );
    let output = run(&env).arg("--env").arg("../bad").run().expect(2);
    assert!(
        output.errors().contains("no profile"),
        "{}",
        output.errors()
    );
}

#[test]
fn a_profile_chooses_image_and_bounds_of_a_container() {
    let Some(node_program) = static_node_program() else {
        return;
    };
    let Some(engine) = ContainerEngine::start() else {
        return;
    };
    let env = world(
        "set -e; test $GREETING = hello; test $(grep -c ^processor /proc/cpuinfo) -ge 1\n\
         test $(cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes) = 268435456\n\
         grep -q 'BEGIN CERT' $SSL_CERT_FILE; test $SSL_CERT_FILE = /opt/mini-ork/certificates.pem\n\
         echo 42 > answer",
    );
    let image = engine.image_of_this_machine(TOOLS);
    env.write(
        "home/config/environments/box.yaml",
        &format!("image: {image}\nenv: {{GREETING: hello}}\nresources: {{cpu: 1, memory: 256m}}\n"),
    );
    let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    env.write("own.pem", certificate);
    let call = in_container(run(&env), &engine, "unused", &node_program)
        .without_env("MO_SANDBOX_IMAGE")
        .arg("--env")
        .arg("box");
    let missing = run(&env).env("SSL_CERT_FILE", env.root().join("none.pem"));
    let missing = in_container(missing, &engine, &image, &node_program)
        .run()
        .expect(2);
    assert!(
        missing.errors().contains("none.pem"),
        "{}",
        missing.errors()
    );
    assert_eq!(env.runs(), Vec::<String>::new());
    let view = call
        .env("NODE_EXTRA_CA_CERTS", env.root().join("own.pem"))
        .run()
        .expect(0)
        .json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    assert_eq!(setting(&env, "sandbox_image").0, image);
    assert_eq!(setting(&env, "sandbox_memory").0, "256m");
    let branch = text(&view, "branch");
    assert_eq!(
        Repo::at(&env, &env.root().join("repo")).show(branch, "answer"),
        "42\n"
    );
    assert_eq!(engine.containers(), Vec::<String>::new());
}
