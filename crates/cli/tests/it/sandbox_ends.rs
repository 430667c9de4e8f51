//! What dies under a run with a sandbox, and what is left: nothing after the next command.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mini_ork_control::run::RunEvent;
use mini_ork_testkit::{Call, ContainerEngine, GVISOR, Running, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::network;
use crate::sandbox::World;
use crate::support::{journal, only_row, text};

const PATIENCE: Duration = Duration::from_secs(60);
/// The first attempt waits until it is told to go on; later ones work at once.
const WAITING: &str = "echo $$ >> $MO_OUTPUT_DIR/../started\n\
    if test $MO_NODE_ROUND.$MO_NODE_ATTEMPT = 1.1; then\n\
    while ! test -e $MO_OUTPUT_DIR/../go; do sleep 0.1; done; fi\n\
    echo 42 > answer";

impl World {
    /// Starts `call`, a run, and returns when its writer has begun, with its first attempt.
    fn begun(&self, call: Call<'_>) -> (Running, PathBuf) {
        let before = self.env.runs();
        let running = call.spawn();
        let attempt = || {
            let run = self
                .env
                .runs()
                .into_iter()
                .find(|run| !before.contains(run))?;
            let nodes = self.env.run_directory(&run).join("nodes");
            let mut nodes = fs_err::read_dir(nodes).ok()?.flatten();
            let node = nodes.find(|node| {
                let name = node.file_name();
                name.to_string_lossy().starts_with("implementer")
            })?;
            let attempt = node.path().join("1.1");
            attempt.join("started").exists().then_some(attempt)
        };
        wait_for("the implementer", PATIENCE, || attempt().is_some());
        (running, attempt().unwrap())
    }

    /// The first process of the only container, or the server that is its child.
    fn inside(&self, server: bool) -> Pid {
        let name = self.engine.containers().pop().unwrap();
        let listed = self.engine.docker(&["top", &name, "-eo", "pid,ppid,args"]);
        let serving = listed
            .lines()
            .filter(|line| line.contains("mini-ork-node serve"));
        let serving: Vec<(i32, i32)> = serving
            .map(|line| {
                let mut words = line.split_whitespace().map_while(|word| word.parse().ok());
                (words.next().unwrap(), words.next().unwrap())
            })
            .collect();
        let is_child = |parent: i32| serving.iter().any(|(pid, _)| *pid == parent);
        let found = serving
            .iter()
            .find(|(_, parent)| is_child(*parent) == server);
        let (pid, _) = found.unwrap_or_else(|| panic!("{listed}"));
        Pid::from_raw(*pid).unwrap()
    }

    fn kill_inside(&self, server: bool) {
        kill_process(self.inside(server), Signal::KILL).unwrap();
    }

    /// Recovers the run to a good end.
    #[track_caller]
    fn recovered(&self) {
        let view = self.call(&["recover", "--json"]).run().expect(0).json();
        assert_eq!(text(&view, "status"), "published", "{view:#}");
    }

    fn gc(&self, arguments: &[&str]) -> Value {
        let call = self.call(&["sandbox-gc", "--json"]);
        let call = arguments.iter().fold(call, Call::arg);
        call.run().expect(0).json()
    }

    /// State and reason of the only sandbox that there was.
    fn only_sandbox(&self) -> Value {
        let listed = self.call(&["sandbox", "ls", "--json"]).run().expect(0);
        let listed = listed.json();
        let all = listed["sandboxes"].as_array().unwrap();
        assert_eq!(all.len(), 1, "{listed:#}");
        all[0].clone()
    }
}

/// The view of a run that was published.
#[track_caller]
fn published(running: Running) -> Value {
    let view = running.wait().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    view
}

/// The view of a run that lost what ran in its sandbox.
#[track_caller]
fn lost(running: Running) -> Value {
    let view = running.wait().expect(1).json();
    assert_eq!(text(&view, "status"), "failed", "{view:#}");
    assert_eq!(text(&view, "reason"), "infra_lost", "{view:#}");
    view
}

#[track_caller]
fn ran_once(attempt: &Path) {
    let started = fs_err::read_to_string(attempt.join("started")).unwrap();
    assert_eq!(started.lines().count(), 1, "it ran once");
}

fn killed(running: Running) {
    running.signal(Signal::KILL);
    running.wait().expect_killed();
}

/// How often the journal of the only run says that it is closed.
fn closings(world: &World) -> usize {
    let run = only_row(&world.env).run;
    let events = journal(&world.env, &run);
    let closed = events
        .iter()
        .filter(|event| matches!(event, RunEvent::Closed(_)));
    closed.count()
}

#[test]
fn bc_03_a_killed_runner_leaves_nothing() {
    let Some(world) = World::new() else {
        return;
    };
    world.lane(WAITING);
    let run = || {
        world
            .run()
            .env("MO_SANDBOX_NETWORK", "allowlist")
            .env("MO_SANDBOX_ALLOW", "example.com")
    };
    let (first, _) = world.begun(run());
    killed(first);
    let left = world.engine.containers();
    assert_eq!(left.len(), 1, "{left:?}");
    let (second, attempt) = world.begun(run());
    assert_eq!(world.engine.containers().len(), 2);
    // `recover` could go on in it, for whoever wants that.
    let looked = world.gc(&["--max-age", "1h"]);
    assert_eq!(looked["removed"], serde_json::json!([]), "{looked:#}");
    assert_eq!(looked["kept"].as_array().unwrap().len(), 2, "{looked:#}");
    let dry = world.gc(&["--dry-run"]);
    assert_eq!(dry["removed"].as_array().unwrap().len(), 1, "{dry:#}");
    assert_eq!(world.engine.containers().len(), 2);
    let swept = world.gc(&[]);
    let removed = swept["removed"].as_array().unwrap();
    assert_eq!(removed.len(), 1, "{swept:#}");
    assert_eq!(format!("mini-ork-{}", text(&removed[0], "run")), left[0]);
    let alive = world.engine.docker(&["ps", "--format", "{{.Names}}"]);
    assert_eq!(alive.lines().count(), 1, "{alive}");
    assert!(!alive.contains(&left[0]), "{alive}");
    fs_err::write(attempt.join("go"), "").unwrap();
    let view = second.wait().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    world.assert_nothing_is_left();
    // The first goes on in a sandbox of its own.
    let first = text(&removed[0], "run");
    let view = world.call(&["recover", first, "--json"]).run().expect(0);
    assert_eq!(text(&view.json(), "status"), "published");
    world.assert_nothing_is_left();
}

/// Wherever the control plane is killed, what it left is found: also what the engine makes after it.
#[test]
fn bc_03_a_runner_is_killed_while_it_begins() {
    let Some(world) = World::new() else {
        return;
    };
    world.lane(WAITING);
    for number in 1..=20_u64 {
        let running = world.run().spawn();
        // Somewhere in what it does first.
        std::thread::sleep(Duration::from_millis(40 * number));
        killed(running);
    }
    wait_for("a clean engine", PATIENCE, || {
        world.gc(&["--max-age", "0"]);
        world.engine.containers().is_empty()
    });
    world.assert_nothing_is_left();
    let listed = world.call(&["sandbox", "ls", "--json"]).run().expect(0);
    let listed = listed.json();
    let sandboxes = listed["sandboxes"].as_array().unwrap();
    let running = sandboxes.iter().filter(|one| one["state"] == "running");
    assert_eq!(running.count(), 0, "{listed:#}");
    assert!(!sandboxes.is_empty());
}

#[test]
fn processes_inside_that_are_killed() {
    let Some(world) = World::new() else {
        return;
    };
    world.lane(WAITING);
    let (running, attempt) = world.begun(world.run());
    // The agent: another attempt is made.
    let agent = fs_err::read_to_string(attempt.join("started")).unwrap();
    let name = world.engine.containers().pop().unwrap();
    let kill = format!("kill -9 {}", agent.trim());
    world.engine.docker(&["exec", &name, "sh", "-c", &kill]);
    published(running);
    world.assert_nothing_is_left();

    // The server: it is started anew, and the agent goes on.
    let (running, attempt) = world.begun(world.run());
    world.kill_inside(true);
    fs_err::write(attempt.join("go"), "").unwrap();
    published(running);
    ran_once(&attempt);
    world.assert_nothing_is_left();

    // The first process, and with it everything.
    let (running, _) = world.begun(world.run());
    world.kill_inside(false);
    lost(running);
    world.assert_nothing_is_left();
    world.recovered();
    world.assert_nothing_is_left();
}

/// It is asked to end, and with it everything inside: the run was not cancelled by that.
#[test]
fn a_container_that_somebody_stops() {
    let Some(world) = World::new() else {
        return;
    };
    world.lane(WAITING);
    let (running, _) = world.begun(world.run());
    let name = world.engine.containers().pop().unwrap();
    world.engine.docker(&["stop", &name]);
    lost(running);
    world.assert_nothing_is_left();
}

/// What is left of a run is said in its report.
#[track_caller]
fn says_what_is_left(view: &Value) {
    let warnings = view["warnings"].to_string();
    assert!(
        warnings.contains("`mini-ork sandbox-gc` removes it"),
        "{view:#}"
    );
}

/// The sandbox goes on without its engine, and so does the run; the next sweep removes what is left.
#[test]
fn an_engine_that_is_killed_and_stays_down() {
    let Some(world) = World::new() else {
        return;
    };
    world.lane(WAITING);
    let (running, attempt) = world.begun(world.run());
    world.engine.kill();
    fs_err::write(attempt.join("go"), "").unwrap();
    let view = published(running);
    ran_once(&attempt);
    says_what_is_left(&view);
    assert_eq!(world.only_sandbox()["state"], "running");

    world.engine.start_again();
    let swept = world.gc(&[]);
    assert_eq!(swept["removed"].as_array().unwrap().len(), 1, "{swept:#}");
    let sandbox = world.only_sandbox();
    assert_eq!(sandbox["state"], "released");
    assert_eq!(sandbox["reason"], "its run has ended");
    world.assert_nothing_is_left();
}

/// Nobody can tell what became of the sandbox: the run ends and says so.
#[test]
fn an_engine_and_a_container_that_are_killed() {
    let Some(world) = World::new() else {
        return;
    };
    world.lane(WAITING);
    let (running, _) = world.begun(world.run());
    let first = world.inside(false);
    world.engine.kill();
    kill_process(first, Signal::KILL).unwrap();
    let view = lost(running);
    says_what_is_left(&view);
    assert_eq!(closings(&world), 1);
    assert_eq!(world.only_sandbox()["state"], "running");

    let refused = world.call(&["sandbox-gc", "--json"]).run().expect(1);
    assert!(
        refused.errors().contains("stay on record"),
        "{}",
        refused.errors()
    );
    assert_eq!(refused.json()["failed"].as_array().unwrap().len(), 1);
    // What is on no record is not told as a sandbox without a name.
    let named = ["sandbox-gc", "--json", "--backend", "docker"];
    let refused = world.call(&named).run().expect(1);
    let errors = refused.errors();
    assert!(
        errors.contains("1 sandbox could not be removed")
            && errors.contains("no container engine answers"),
        "{errors}"
    );
    assert_eq!(refused.json()["failed"].as_array().unwrap().len(), 1);
    let output = world.call(&["recover"]).run().expect(2);
    assert!(
        output.errors().contains("no container engine answers"),
        "{}",
        output.errors()
    );
    assert_eq!(closings(&world), 1);

    world.engine.start_again();
    let swept = world.gc(&[]);
    assert_eq!(swept["removed"].as_array().unwrap().len(), 1, "{swept:#}");
    let sandbox = world.only_sandbox();
    assert_eq!(sandbox["state"], "released");
    world.assert_nothing_is_left();
}

/// Without `live-restore` the next daemon ends what the one before left: the run is lost at once.
#[test]
fn an_engine_that_is_killed_and_started_anew() {
    let Some(world) = World::new() else {
        return;
    };
    world.lane(WAITING);
    let (running, _) = world.begun(world.run());
    world.engine.kill();
    world.engine.start_again();
    lost(running);
    world.assert_nothing_is_left();
    world.recovered();
    world.assert_nothing_is_left();
}

/// A run whose engine is away is ended from outside; what is left is said.
#[test]
fn a_run_is_killed_while_its_engine_is_down() {
    let Some(world) = World::new() else {
        return;
    };
    world.lane(WAITING);
    let (running, _) = world.begun(world.run());
    killed(running);
    world.engine.kill();
    let output = world.call(&["kill"]).run().expect(1);
    assert!(
        output.text().contains("mini-ork sandbox-gc"),
        "{}",
        output.text()
    );
    assert_eq!(closings(&world), 1);
    world.engine.start_again();
    world.gc(&["--backend", "docker"]);
    world.assert_nothing_is_left();
}

/// The containers go on without the daemon, and the run waits for the next one.
#[test]
fn an_engine_with_live_restore_that_is_started_anew() {
    let Some(world) = World::on(ContainerEngine::start_with_live_restore()) else {
        return;
    };
    world.lane(WAITING);
    let (running, attempt) = world.begun(world.run());
    world.engine.kill();
    world.engine.start_again();
    fs_err::write(attempt.join("go"), "").unwrap();
    published(running);
    ran_once(&attempt);
    world.assert_nothing_is_left();
}

/// Control plane and daemon are killed; the sandbox lives, and `recover` goes on in it.
#[test]
fn a_run_is_recovered_after_its_engine_was_started_anew() {
    let Some(world) = World::on(ContainerEngine::start_with_live_restore()) else {
        return;
    };
    world.lane(WAITING);
    let (running, attempt) = world.begun(world.run());
    killed(running);
    world.engine.kill();
    world.engine.start_again();
    fs_err::write(attempt.join("go"), "").unwrap();
    world.recovered();
    ran_once(&attempt);
    world.assert_nothing_is_left();
}

/// What a run began with holds, whatever the environment and the names of images say by then.
#[test]
fn a_run_is_recovered_behind_the_boundary_that_it_began_with() {
    let Some(world) = World::on(ContainerEngine::start_with_gvisor()) else {
        return;
    };
    world.lane(WAITING);
    let engine = &world.engine;
    engine.docker(&["tag", &world.image, "tools"]);
    let image = engine.docker(&["inspect", "--format", "{{.Id}}", "tools"]);
    let run = world.run().env("MO_SANDBOX_IMAGE", "tools");
    let run = run
        .env("MO_SANDBOX_RUNTIME", GVISOR)
        .env("MO_SANDBOX_PIDS", "300");
    let (running, _) = world.begun(run);
    killed(running);
    world.gc(&[]);
    let changed = [
        "create",
        "--name",
        "changed",
        "--network",
        "none",
        "tools",
        "sh",
    ];
    engine.docker(&changed);
    engine.docker(&["commit", "--change", "ENV OTHER=1", "changed", "tools"]);
    engine.docker(&["rm", "changed"]);
    let view = world
        .call(&["recover", "--json"])
        .without_env("MO_SANDBOX_IMAGE")
        .run()
        .expect(0)
        .json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    let isolation = text(&view, "isolation");
    assert!(isolation.contains("runtime runsc"), "{isolation}");
    assert!(isolation.contains(image.trim()), "{isolation}");
    let record = world.env.run_directory(text(&view, "run")).join("run.json");
    let record: Value = serde_json::from_slice(&fs_err::read(record).unwrap()).unwrap();
    let settings = record["settings"].as_array().unwrap();
    let pids = settings.iter().find(|one| one["name"] == "sandbox_pids");
    assert_eq!(pids.unwrap()["value"], "300", "{settings:#?}");
    world.assert_nothing_is_left();
}

/// A confined workspace whose run is deleted under it is found by its record.
#[test]
fn bc_03_a_confined_workspace_without_a_run_is_ended() {
    let env = network::world("echo x > begun; sleep 1000");
    let running = network::run(&env).env("MO_SANDBOX_NETWORK", "none").spawn();
    wait_for("the implementer", PATIENCE, || {
        let run = env.runs().pop();
        run.is_some_and(|run| env.run_directory(&run).join("worktree/begun").exists())
    });
    let run = only_row(&env).run;
    let listed = env.mini_ork(["sandbox", "inspect", &run, "--json"]).run();
    let shown = listed.expect(0).json();
    assert_eq!(text(&shown, "backend"), "local");
    assert_eq!(text(&shown, "state"), "running");
    assert_eq!(shown["made_by"]["alive"], true);
    let swept = || {
        env.mini_ork(["sandbox-gc", "--json", "--max-age", "0"])
            .run()
    };
    let kept = swept().expect(0).json();
    assert_eq!(kept["kept"][0]["why"], "its run goes on", "{kept:#}");
    running.signal(Signal::KILL);
    running.wait().expect_killed();
    fs_err::remove_dir_all(env.run_directory(&run)).unwrap();
    let removed = swept().expect(0).json();
    assert_eq!(
        removed["removed"][0]["why"], "its run is gone",
        "{removed:#}"
    );
    env.assert_no_process();
    let listed = env.mini_ork(["sandbox", "ls"]).run().expect(0).text();
    assert!(
        listed.contains("released") && listed.contains(&run),
        "{listed}"
    );
}
