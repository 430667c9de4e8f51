//! A node outlives the control plane that started it: recovery attaches to it while it runs, and
//! takes what it left when it has ended.

use std::time::Duration;

use mini_ork_testkit::{Lane, TestEnv, wait_for};

use crate::kill_points::{Scenario, assert_interrupted, status, traces};
use crate::support::{agent, lines_of};

/// A world whose implementer waits for a file, run until it waits and then left alone by SIGKILL.
struct Waiting {
    env: TestEnv,
}

impl Waiting {
    fn begin() -> Self {
        let env = Scenario::Straight.prepare();
        let (begun, go) = (env.root().join("begun"), env.root().join("go"));
        let lane = agent(&format!(
            "echo x >> '{}'; while [ ! -e '{}' ]; do sleep 0.02; done; echo 42 > answer",
            begun.display(),
            go.display()
        ));
        env.lanes(&[("default", Lane::Shell(&lane))]);
        let run = Scenario::Straight.start(&env).spawn();
        wait_for("start of the implementer", Duration::from_secs(30), || {
            !lines_of(&begun).is_empty()
        });
        run.signal(rustix::process::Signal::KILL);
        run.wait().expect_killed();
        assert_interrupted(&env);
        Self { env }
    }

    fn let_go(&self) {
        fs_err::write(self.env.root().join("go"), "").unwrap();
    }

    fn assert_published_once(&self) {
        let found = traces(&self.env);
        assert_eq!(
            (found.status.as_str(), found.commits.as_str()),
            ("published", "1")
        );
        assert_eq!(
            lines_of(&self.env.root().join("begun")).len(),
            1,
            "it ran once"
        );
        self.env.assert_no_process();
    }
}

#[test]
fn recovery_attaches_to_a_node_that_still_runs() {
    let waiting = Waiting::begin();
    assert!(
        !waiting.env.processes().is_empty(),
        "the node outlives the control plane"
    );
    let mut recovery = waiting.env.mini_ork(["recover", "--json"]).spawn();
    wait_for("owner of the run", Duration::from_secs(30), || {
        status(&waiting.env) == "running"
    });
    assert!(recovery.is_running());
    waiting.let_go();
    recovery.wait().expect(0);
    waiting.assert_published_once();
}

#[test]
fn recovery_harvests_a_node_that_ended_while_nobody_was_there() {
    let waiting = Waiting::begin();
    waiting.let_go();
    waiting.env.assert_no_process();
    assert_interrupted(&waiting.env);
    waiting.env.mini_ork(["recover", "--json"]).run().expect(0);
    waiting.assert_published_once();
}

#[test]
fn a_run_that_is_driven_is_not_taken_over() {
    let waiting = Waiting::begin();
    let recovery = waiting.env.mini_ork(["recover", "--json"]).spawn();
    wait_for("owner of the run", Duration::from_secs(30), || {
        status(&waiting.env) == "running"
    });
    let second = waiting.env.mini_ork(["recover"]).run().expect(1);
    let said = format!("driven by process {}", recovery.pid());
    assert!(second.errors().contains(&said), "{}", second.transcript());
    waiting.let_go();
    recovery.wait().expect(0);
    waiting.assert_published_once();
}

/// A supervisor that is killed takes the word on its program's end with it: the attempt is lost
/// and made again, and nothing of the first one is left.
#[test]
fn a_node_whose_supervisor_was_killed_is_tried_again() {
    let waiting = Waiting::begin();
    for line in waiting.env.processes() {
        if line.contains("supervise") {
            let pid = line.split(':').next().unwrap().parse().unwrap();
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
    }
    waiting.let_go();
    waiting.env.mini_ork(["recover", "--json"]).run().expect(0);
    assert_eq!(traces(&waiting.env).status, "published");
    waiting.env.assert_no_process();
}
