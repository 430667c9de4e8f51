//! Agents that are outside of the boundary that their tools, or at least all verifiers, are behind.

use std::path::PathBuf;

use mini_ork_testkit::{ModelServer, Running, Turn, wait_for};
use rustix::process::Signal;
use serde_json::json;

use super::boundary::Boundary;
use super::{ANTHROPIC, CLAUDE, Kind, LIMIT, World, code_fix, world};
use crate::support::{node, only_row, text};

/// What tells that a command is not where the agent is: it does not see it.
const WORK: &str = "set -e; ! cat /proc/[0-9]*/cmdline | grep -q __agen[t]; \
    test $(grep -c : /proc/net/dev) = 1; ! env | grep -q MO_AGENT_TOKEN; \
    : > begun; until test -e go; do sleep 0.05; done; rm begun go; echo 42 > answer";

/// A run with `scope` of an agent of `kind` whose tool waits.
struct Work {
    world: World,
    server: ModelServer,
    boundary: Boundary,
    kind: Kind,
}

impl Work {
    fn new(kind: Kind, boundary: impl FnOnce(&World) -> Option<Boundary>) -> Option<Self> {
        Self::with(kind, boundary, WORK)
    }

    fn with(
        kind: Kind,
        boundary: impl FnOnce(&World) -> Option<Boundary>,
        work: &str,
    ) -> Option<Self> {
        let turns = [Turn::run(work), Turn::text("The answer is 42 now.")];
        let server = ModelServer::start_tls(code_fix(turns));
        let world = world(kind, &server)?;
        let boundary = boundary(&world)?;
        Some(Self {
            world,
            server,
            boundary,
            kind,
        })
    }

    fn call(&self, arguments: &[&str]) -> mini_ork_testkit::Call<'_> {
        let call = self.world.mini_ork(&self.server, arguments);
        let call = self.boundary.around(call, self.kind);
        call.env("MO_SANDBOX_SCOPE", "tool")
    }

    fn run(&self) -> mini_ork_testkit::Call<'_> {
        self.call(&["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"])
    }

    fn worktree(&self) -> Option<PathBuf> {
        let run = self.world.env.runs().pop()?;
        Some(self.world.env.run_directory(&run).join("worktree"))
    }

    /// The run, once the tool waits.
    fn start(&self) -> Running {
        let running = self.run().spawn();
        wait_for("tool of the agent", LIMIT, || {
            let worktree = self.worktree();
            worktree.is_some_and(|worktree| worktree.join("begun").exists())
        });
        running
    }

    /// Where the gateway of the agent whose tool waits listens.
    fn gateway_port(&self) -> u16 {
        let run = self.world.env.run_directory(&self.world.env.runs()[0]);
        let records = fs_err::read_dir(run.join("gateways")).unwrap().flatten();
        let record = records
            .map(|record| record.path())
            .find(|path| path.to_str().unwrap().contains("/implementer-"));
        let record = fs_err::read(record.unwrap()).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
        record["port"].as_u64().unwrap().try_into().unwrap()
    }

    fn go_on(&self) {
        fs_err::write(self.worktree().unwrap().join("go"), "").unwrap();
    }
}

fn uses_tools_inside(boundary: impl FnOnce(&World) -> Option<Boundary>) {
    let Some(work) = Work::new(ANTHROPIC, boundary) else {
        return;
    };
    let running = work.start();
    work.go_on();
    let output = running.wait().expect(0);
    let view = output.json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    assert_eq!(
        work.world.repo().show(text(&view, "branch"), "answer"),
        "42\n"
    );
    assert_eq!(view["tools_inside"], json!(["only"]));
    assert_eq!(view["agents_on_host"], json!([]));
    let run = work.world.env.run_directory(text(&view, "run"));
    let record = fs_err::read_to_string(run.join("run.json")).unwrap();
    assert!(record.contains("\"only\": \"tools_inside\""), "{record}");
    let report = fs_err::read_to_string(run.join("report.md")).unwrap();
    assert!(
        report.contains("its tools in the workspace: `only`"),
        "{report}"
    );
    let logs = work.call(&["logs", "@", "implementer"]).run().expect(0);
    assert!(
        logs.text().contains("The answer is 42 now."),
        "{}",
        logs.text()
    );
    work.world.assert_clean(&work.server, &output);
    work.boundary.assert_nothing_is_left(&work.world);
}

#[test]
fn the_tools_alone_are_in_a_container() {
    uses_tools_inside(|_| Boundary::container(ANTHROPIC));
}

#[test]
fn the_tools_alone_are_confined() {
    uses_tools_inside(Boundary::confined);
}

fn goes_on_after_a_kill(boundary: impl FnOnce(&World) -> Option<Boundary>) {
    let Some(work) = Work::new(ANTHROPIC, boundary) else {
        return;
    };
    let running = work.start();
    running.signal(Signal::KILL);
    running.wait().expect_killed();
    let before = work.server.requests().len();
    let recovering = work.call(&["recover", "--json"]).spawn();
    // Without its gateway the agent would end.
    let port = work.gateway_port();
    wait_for("gateway", LIMIT, || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    work.go_on();
    let view = recovering.wait().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    let requests = work.server.requests();
    let again = requests[before..].iter();
    let again = again.filter(|request| request.contains("You plan a fix"));
    assert_eq!(again.count(), 0, "what was done is not paid twice");
    work.boundary.assert_nothing_is_left(&work.world);
}

#[test]
fn an_agent_outside_of_a_container_outlives_the_control_plane() {
    goes_on_after_a_kill(|_| Boundary::container(ANTHROPIC));
}

#[test]
fn an_agent_outside_of_namespaces_outlives_the_control_plane() {
    goes_on_after_a_kill(Boundary::confined);
}

/// Neither the agent outside nor what its tool runs inside is left.
#[test]
fn an_agent_outside_and_its_tools_are_killed() {
    let Some(work) = Work::new(ANTHROPIC, Boundary::confined) else {
        return;
    };
    let running = work.start();
    running.signal(Signal::KILL);
    running.wait().expect_killed();
    let run = only_row(&work.world.env).run;
    work.call(&["kill", &run]).run().expect(0);
    work.boundary.assert_nothing_is_left(&work.world);
}

/// An agent that dies outside leaves nothing at work inside: the next one looks for it.
fn leaves_no_command(boundary: impl FnOnce(&World) -> Option<Boundary>) {
    let look = "if test -e $HOME/pid; then \
        if kill -0 $(cat $HOME/pid); then exit 1; fi; echo 42 > answer; exit; fi; \
        echo $$ > $HOME/pid; : > begun; sleep 1000; true";
    let Some(work) = Work::with(ANTHROPIC, boundary, look) else {
        return;
    };
    let running = work.start();
    let run = work.world.env.run_directory(&work.world.env.runs()[0]);
    let nodes = fs_err::read_dir(run.join("outside")).unwrap().flatten();
    let record = nodes
        .map(|node| node.path().join("1.1/lane/process.json"))
        .find(|path| path.to_str().unwrap().contains("/implementer-"));
    let record = fs_err::read(record.unwrap()).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let pid = i32::try_from(record["program"]["pid"].as_i64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    let view = running.wait().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    assert_eq!(node(&view, "implementer")["attempt"], 2);
    work.boundary.assert_nothing_is_left(&work.world);
}

#[test]
fn an_agent_that_dies_leaves_no_command_in_a_container() {
    leaves_no_command(|_| Boundary::container(ANTHROPIC));
}

#[test]
fn an_agent_that_dies_leaves_no_command_in_namespaces() {
    leaves_no_command(Boundary::confined);
}

/// What a command puts in the place of its own records leads the agent outside nowhere: it neither
/// reads nor removes anything there.
#[test]
fn bc_58_links_of_a_tool_lead_the_agent_outside_nowhere() {
    const SECRET: &str = "a-word-of-the-outside";
    let outside = tempfile::tempdir().unwrap();
    let trap = outside.path().join("1");
    fs_err::create_dir(&trap).unwrap();
    fs_err::write(trap.join("stdout.log"), SECRET).unwrap();
    let swap = format!(
        "set -e; cd $HOME/implementer-*/only/commands; own=$(ls); rm -rf $own; \
        ln -s {} $own; cd /workspace/target; echo 42 > answer",
        outside.path().display()
    );
    let boundary = |_: &World| Boundary::container(ANTHROPIC);
    let Some(work) = Work::with(ANTHROPIC, boundary, &swap) else {
        return;
    };
    let view = work.run().run().json();
    assert_eq!(
        fs_err::read_to_string(trap.join("stdout.log")).unwrap(),
        SECRET
    );
    assert_eq!(fs_err::read_dir(&trap).unwrap().count(), 1);
    for request in work.server.requests() {
        assert!(!request.contains(SECRET), "{view:#}");
    }
    // It was done, or this shows nothing.
    let run = work.world.env.run_directory(text(&view, "run"));
    let branch = view["branch"].as_str();
    assert!(branch.is_some(), "{}: {view:#}", run.display());
    work.boundary.assert_nothing_is_left(&work.world);
}

/// The container goes away under the tools: the agent ends, and the reason is told.
#[test]
fn an_agent_outside_of_a_container_that_is_killed_ends() {
    let boundary = |_: &World| Boundary::container(ANTHROPIC);
    let Some(work) = Work::new(ANTHROPIC, boundary) else {
        return;
    };
    let running = work.start();
    work.boundary.kill();
    let view = running.wait().expect(1).json();
    assert_eq!(text(&view, "reason"), "infra_lost", "{view:#}");
    work.boundary.assert_nothing_is_left(&work.world);
}

/// The tools of a program of somebody else cannot be moved: refused before anything is made, or, when
/// the user says so, on this machine and told.
#[test]
fn an_agent_whose_tools_cannot_be_moved_is_refused_unless_it_is_let() {
    let work = "set -e; test -e \"$MINI_ORK_RUN_DIR/run.json\"; : > begun; \
        until test -e go; do sleep 0.05; done; rm begun go; echo 42 > answer";
    let boundary = |_: &World| Boundary::container(CLAUDE);
    let Some(work) = Work::with(CLAUDE, boundary, work) else {
        return;
    };
    let refused = work.run().run().expect(2);
    for part in [
        "the tools of `only` are part of its program and cannot be moved",
        "MO_SANDBOX_SCOPE=agent",
        "MO_SANDBOX_ALLOW_HOST_AGENT=1",
    ] {
        assert!(refused.errors().contains(part), "{}", refused.errors());
    }
    assert_eq!(work.world.env.runs(), Vec::<String>::new());
    work.boundary.assert_nothing_is_left(&work.world);

    // The verifier says where it runs.
    work.world.env.kickoff(
        "The answer is wrong",
        &["test $(pwd) = /workspace/target && sh check.sh"],
    );
    let call = work.run().env("MO_SANDBOX_ALLOW_HOST_AGENT", "1");
    let running = call.spawn();
    wait_for("tool of the agent", LIMIT, || {
        let worktree = work.worktree();
        worktree.is_some_and(|worktree| worktree.join("begun").exists())
    });
    work.go_on();
    let output = running.wait().expect(0);
    let view = output.json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    assert_eq!(view["agents_on_host"], json!(["only"]));
    let run = work.world.env.run_directory(text(&view, "run"));
    let report = fs_err::read_to_string(run.join("report.md")).unwrap();
    assert!(report.contains("the agent ran on the host"), "{report}");
    let record = fs_err::read_to_string(run.join("run.json")).unwrap();
    assert!(record.contains("\"only\": \"host\""), "{record}");
    work.world.assert_clean(&work.server, &output);
    work.boundary.assert_nothing_is_left(&work.world);
}
