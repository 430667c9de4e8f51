//! Runs behind a boundary.

use std::path::Path;
use std::time::Duration;

use mini_ork_testkit::{
    Call, ContainerEngine, Lane, Output, Repo, TestEnv, checkout_state, static_node_program,
    wait_for,
};

use crate::support::{
    CHECK, PROJECT, REHEARSAL, agent, assert_owned, new_env, node, only_row, text,
};

/// What small projects and their agents need.
pub(crate) const TOOLS: &[&str] = &[
    "sh", "bash", "git", "cat", "sed", "grep", "env", "id", "ls", "sleep", "stat", "rm", "ln",
    "mkdir",
];
const PATIENCE: Duration = Duration::from_secs(60);

/// `call` with a container of `image`.
pub(crate) fn in_container<'a>(
    call: Call<'a>,
    engine: &ContainerEngine,
    image: &str,
    node_program: &Path,
) -> Call<'a> {
    call.env("MO_SANDBOX_BACKEND", "docker")
        .env("MO_SANDBOX_IMAGE", image)
        .env("DOCKER_HOST", engine.endpoint())
        .env("MO_NODE_PROGRAM", node_program)
}

/// A world with an engine and an image that has the tools.
pub(crate) struct World {
    pub(crate) env: TestEnv,
    pub(crate) engine: ContainerEngine,
    pub(crate) image: String,
    pub(crate) node_program: std::path::PathBuf,
}

impl World {
    pub(crate) fn new() -> Option<Self> {
        Self::on(ContainerEngine::start())
    }

    pub(crate) fn on(engine: Option<ContainerEngine>) -> Option<Self> {
        Self::with(new_env(), engine, TOOLS)
    }

    /// On this engine, with an image that has `tools`.
    pub(crate) fn with(
        env: TestEnv,
        engine: Option<ContainerEngine>,
        tools: &[&str],
    ) -> Option<Self> {
        let engine = engine?;
        let node_program = static_node_program()?;
        let image = engine.image_of_this_machine(tools);
        env.repo("repo", PROJECT);
        env.kickoff("The answer is wrong", &[CHECK]);
        Some(Self {
            env,
            engine,
            image,
            node_program,
        })
    }

    pub(crate) fn repo(&self) -> Repo<'_> {
        Repo::at(&self.env, &self.env.root().join("repo"))
    }

    /// Lets a shell script do all roles.
    pub(crate) fn lane(&self, script: &str) {
        let script = serde_json::to_string(&agent(script)).unwrap();
        let providers =
            format!("providers:\n  own: {{kind: executable, command: [sh, -c, {script}]}}\n");
        self.env.write("home/config/providers.yaml", &providers);
        self.env
            .write("home/config/agents.yaml", "lanes:\n  default: own\n");
    }

    pub(crate) fn call(&self, arguments: &[&str]) -> Call<'_> {
        let call = self.env.mini_ork(arguments);
        in_container(call, &self.engine, &self.image, &self.node_program)
    }

    pub(crate) fn run(&self) -> Call<'_> {
        self.call(&["run", "code-fix", "--json", "--repo"])
            .arg(self.repo().path())
            .arg(self.env.root().join("kickoff.md"))
    }

    #[track_caller]
    pub(crate) fn assert_nothing_is_left(&self) {
        assert_eq!(self.engine.containers(), Vec::<String>::new());
        self.env.assert_no_process();
    }
}

#[test]
fn a_run_in_a_container_publishes_and_git_works_inside() {
    let Some(world) = World::new() else {
        return;
    };
    let before = checkout_state(world.repo().path());
    world.lane(
        "set -e\n\
         git log --oneline | grep -q first\n\
         test -z \"$(git status --porcelain)\"\n\
         git blame answer | grep -q 41\n\
         echo 42 > answer\n\
         git commit -qam 'the answer'\n\
         test $(git log --oneline | grep -c .) = 2\n\
         test $HOME = /workspace/home\n\
         test $(pwd) = /workspace/target\n\
         test -r $MINI_ORK_PLAN_PATH\n\
         if (echo x > /usr/bin/x) 2>/dev/null; then exit 9; fi\n\
         if ls $MINI_ORK_RUN_DIR/run.json 2>/dev/null; then exit 9; fi",
    );
    let planned = world.run().arg("--dry-run").run().expect(0).json();
    assert_eq!(planned["sandboxes"], 1);
    assert_eq!(planned["sandbox"]["image"], world.image.as_str());
    assert_eq!(planned["sandbox"]["network"], "none");
    assert_eq!(world.env.runs(), Vec::<String>::new());
    let view = world.run().run().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    assert_eq!(world.repo().show(text(&view, "branch"), "answer"), "42\n");
    assert_eq!(checkout_state(world.repo().path()), before);
    world.repo().git(["fsck", "--strict"]);
    let isolation = text(&view, "isolation");
    assert!(isolation.contains("network interfaces: lo"), "{isolation}");
    assert!(isolation.contains("sha256:"), "{isolation}");
    let own = rustix::process::geteuid().as_raw();
    assert_owned(&world.env.run_directory(text(&view, "run")), own);
    assert_owned(world.repo().path(), own);
    world.assert_nothing_is_left();
}

/// As `scripts/demo` without a container: two rounds of a scripted lane, and the branch.
#[test]
fn a_script_is_replayed_in_a_container() {
    let Some(world) = World::new() else {
        return;
    };
    world.env.lanes(&[("default", Lane::Scripted(REHEARSAL))]);
    let run = world.run().env("MO_SANDBOX_SCOPE", "agent");
    let view = run.run().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    assert_eq!(node(&view, "implementer")["round"], 2);
    assert_eq!(view["cost_usd"], 0.25);
    assert_eq!(world.repo().show(text(&view, "branch"), "answer"), "42\n");
    world.assert_nothing_is_left();
}

/// One sentence, the remedy, exit code 2, nothing made, and never a run without the boundary.
#[test]
fn what_a_container_needs_and_is_not_there() {
    let Some(world) = World::new() else {
        return;
    };
    world.lane("echo 42 > answer");
    let refused = |call: Call<'_>, says: &[&str]| {
        let output: Output = call.run().expect(2);
        for part in says {
            assert!(
                output.errors().contains(part),
                "{part}: {}",
                output.errors()
            );
        }
        assert_eq!(world.env.runs(), Vec::<String>::new());
        world.assert_nothing_is_left();
    };
    refused(
        world
            .run()
            .env("DOCKER_HOST", "unix:///nowhere/docker.sock"),
        &[
            "no container engine answers at unix:///nowhere/docker.sock",
            "DOCKER_HOST",
        ],
    );
    refused(
        world.run().env("MO_SANDBOX_IMAGE", "no-such-image:1"),
        &[
            "no image `no-such-image:1`",
            "mini-ork image pull no-such-image:1",
        ],
    );
    refused(
        world.run().without_env("MO_SANDBOX_IMAGE"),
        &["no image was chosen", "MO_SANDBOX_IMAGE=IMAGE"],
    );
    refused(
        world.run().env("MO_SANDBOX_RUNTIME", "kata"),
        &["no runtime `kata`; it has", "runc"],
    );
    refused(
        world.run().env("MO_NODE_PROGRAM", world.env.program()),
        &["needs the libraries of this machine", "scripts/node"],
    );
    refused(
        world.run().env("MO_SANDBOX_NETWORK", "full"),
        &["has no network for containers", "MO_SANDBOX_NETWORK"],
    );
    refused(
        world.run().env("MO_SANDBOX_SCOPE", "tool"),
        &[
            "`own`",
            "MO_SANDBOX_SCOPE=agent",
            "MO_SANDBOX_ALLOW_HOST_AGENT=1",
        ],
    );
}

/// The control plane is killed while an agent works inside; the next one finds it at work.
#[test]
fn a_run_in_a_container_is_recovered() {
    let Some(world) = World::new() else {
        return;
    };
    world.lane(
        "echo $$ >> $MO_OUTPUT_DIR/../started\n\
         while ! test -e $MO_OUTPUT_DIR/../go; do sleep 0.1; done\n\
         echo 42 > answer",
    );
    let running = world.run().spawn();
    let attempt = || {
        let run = world.env.runs().pop()?;
        let nodes = world.env.run_directory(&run).join("nodes");
        let node = fs_err::read_dir(nodes).ok()?.flatten().find(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with("implementer")
        })?;
        let attempt = node.path().join("1.1");
        attempt.join("started").exists().then_some(attempt)
    };
    wait_for("the implementer", PATIENCE, || attempt().is_some());
    running.signal(rustix::process::Signal::KILL);
    running.wait().expect_killed();
    assert_eq!(world.engine.containers().len(), 1, "it goes on");
    let attempt = attempt().unwrap();
    fs_err::write(attempt.join("go"), "").unwrap();
    let view = world.call(&["recover", "--json"]).run().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    let started = fs_err::read_to_string(attempt.join("started")).unwrap();
    assert_eq!(started.lines().count(), 1, "it ran once");
    world.assert_nothing_is_left();
}

/// A container is found by its label when nothing else is left of its run.
#[test]
fn a_container_without_a_run_is_removed() {
    let Some(world) = World::new() else {
        return;
    };
    world.lane("sleep 1000");
    let running = world.run().spawn();
    wait_for("agent", PATIENCE, || {
        world.engine.docker(&["ps"]).contains("mini-ork-")
    });
    running.signal(rustix::process::Signal::KILL);
    running.wait().expect_killed();
    let run = world.env.runs().pop().unwrap();
    fs_err::remove_dir_all(world.env.run_directory(&run)).unwrap();
    let removed = world.call(&["sandbox-gc", "--json"]).run().expect(0).json();
    assert_eq!(removed["removed"].as_array().unwrap().len(), 1, "{removed}");
    world.assert_nothing_is_left();
}

/// The container is killed under its agent: the attempt is lost, and nothing is left.
#[test]
fn a_container_that_is_killed_is_told() {
    let Some(world) = World::new() else {
        return;
    };
    world.lane("echo x > $MO_OUTPUT_DIR/../started; sleep 1000");
    let running = world.run().spawn();
    wait_for("agent", PATIENCE, || {
        let run = world.env.runs().pop();
        run.is_some_and(|run| {
            let nodes = world.env.run_directory(&run).join("nodes");
            fs_err::read_dir(nodes).is_ok_and(|nodes| {
                nodes
                    .flatten()
                    .any(|node| node.path().join("1.1/started").exists())
            })
        })
    });
    for name in world.engine.containers() {
        world.engine.docker(&["kill", &name]);
    }
    let view = running.wait().expect(1).json();
    assert_eq!(text(&view, "status"), "failed", "{view:#}");
    assert_eq!(text(&view, "reason"), "infra_lost", "{view:#}");
    world.assert_nothing_is_left();
}

/// The same, but the run is ended from outside.
#[test]
fn a_run_in_a_container_is_killed() {
    let Some(world) = World::new() else {
        return;
    };
    world.lane("sleep 1000");
    let running = world.run().spawn();
    wait_for("container", PATIENCE, || {
        let listed = world.call(&["sandbox", "ls"]).run();
        listed.text().contains("running")
    });
    running.signal(rustix::process::Signal::KILL);
    running.wait().expect_killed();
    let run = only_row(&world.env).run;
    let listed = |state: &str| {
        let text = world.call(&["sandbox", "ls"]).run().expect(0).text();
        assert!(
            text.contains(run.as_str()) && text.contains(state),
            "{text}"
        );
        let shown = world.call(&["sandbox", "inspect", "@", "--json"]).run();
        assert_eq!(shown.expect(0).json()["state"], state);
    };
    listed("running");
    let kept = world
        .call(&["sandbox-gc", "--max-age", "1h", "--json"])
        .run()
        .expect(0)
        .json();
    assert_eq!(kept["removed"], serde_json::json!([]), "{kept}");
    let why = &kept["kept"][0]["why"];
    assert_eq!(why, "its run was interrupted and can be recovered");
    world.call(&["kill", run.as_str()]).run().expect(0);
    listed("released");
    world.assert_nothing_is_left();
}

/// What an agent puts in the place of files and directories of later nodes leads the control plane
/// nowhere.
#[test]
fn links_on_the_shared_drive_lead_nowhere() {
    let Some(world) = World::new() else {
        return;
    };
    let outside = world.env.root().join("outside");
    fs_err::create_dir(&outside).unwrap();
    fs_err::write(outside.join("kept"), "kept").unwrap();
    // Every later node of the recipe finds its directory replaced.
    world.lane(&format!(
        "echo 42 > answer\n\
         for node in reviewer verifier publisher verify review; do\n\
         for directory in $MINI_ORK_RUN_DIR/nodes/$node-*; do rm -rf $directory; done; done\n\
         cd $MINI_ORK_RUN_DIR/nodes\n\
         for name in $(sed -e 's/[^a-z]/ /g' $MINI_ORK_PLAN_PATH); do\n\
         test -e $name || ln -s {0} $name; done\n\
         for old in */1.1; do ln -sf {0}/kept $old/prompt.md.new; ln -sf {0}/kept $old/result.json.new; ln -sf {0}/kept $old/diff.patch.new; done",
        outside.display()
    ));
    let view = world.run().run().json();
    assert_eq!(fs_err::read_dir(&outside).unwrap().count(), 1, "{view:#}");
    assert_eq!(fs_err::read(outside.join("kept")).unwrap(), b"kept");
    world.assert_nothing_is_left();
}

/// An ordinary user whom the engine lets in: what programs write inside is that user's.
#[test]
fn an_ordinary_user_runs_in_a_container() {
    const NOBODY: u32 = 65534;
    let Some(world) = World::new() else {
        return;
    };
    world.lane("test $(id -u) = 65534 || exit 9; echo 42 > answer; echo x > new");
    world.engine.open_to_all();
    let program = world.env.root().join("mini-ork-node");
    fs_err::copy(&world.node_program, &program).unwrap();
    let own = world
        .env
        .call("chown", ["-R", "65534:65534"])
        .arg(world.env.root());
    own.run().expect(0);
    let arguments = ["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"];
    let call = world.env.mini_ork_as(NOBODY, arguments);
    let call = in_container(call, &world.engine, &world.image, &program);
    let view = call.run().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    assert_owned(&world.env.run_directory(text(&view, "run")), NOBODY);
    assert_owned(world.repo().path(), NOBODY);
    assert_eq!(world.engine.containers(), Vec::<String>::new());
}
