//! The key of a lane while its agent works, after it, and after the control plane was killed.

use std::path::PathBuf;

use mini_ork_testkit::{ModelServer, Running, Script, Turn, assert_no_secret};
use rustix::process::Signal;

use super::{ANTHROPIC, CLAUDE, CODEX, Kind, OPENCODE, World, code_fix, world};
use crate::support::{only_row, text};

/// A run whose implementer waits in a tool until it is told to go on.
pub(super) struct Waiting {
    pub(super) world: World,
    pub(super) server: ModelServer,
    go: PathBuf,
}

impl Waiting {
    pub(super) fn new(kind: Kind) -> Option<Self> {
        let go = std::env::temp_dir().join(format!(
            "mo-go-{}-{:?}",
            kind.yaml.len(),
            std::thread::current().id()
        ));
        let go = go.with_extension(std::process::id().to_string());
        let server = ModelServer::start_tls(script(&go));
        let world = world(kind, &server)?;
        Some(Self { world, server, go })
    }

    /// The run, once the agent is in its tool.
    pub(super) fn start(&self) -> Running {
        let running = self.world.run(&self.server, "code-fix").spawn();
        let inside = self.go.with_extension("inside");
        mini_ork_testkit::wait_for("tool of the agent", super::LIMIT, || inside.exists());
        running
    }

    pub(super) fn go_on(&self) {
        fs_err::write(&self.go, "").unwrap();
    }

    #[track_caller]
    fn assert_clean(&self) {
        assert_no_secret(self.server.key(), &[self.world.env.root()]);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = fs_err::remove_file(&self.go);
        let _ = fs_err::remove_file(self.go.with_extension("inside"));
    }
}

fn script(go: &std::path::Path) -> Script {
    let inside = go.with_extension("inside");
    let wait = format!(
        "touch '{}'; while [ ! -e '{}' ]; do sleep 0.05; done; echo 42 > answer",
        inside.display(),
        go.display(),
    );
    code_fix([Turn::run(wait), Turn::text("The answer is 42 now.")])
}

#[track_caller]
fn the_key_is_nowhere(kind: Kind) {
    let Some(waiting) = Waiting::new(kind) else {
        return;
    };
    let running = waiting.start();
    waiting.assert_clean();
    waiting.go_on();
    let output = running.wait().expect(0);
    assert_eq!(text(&output.json(), "status"), "published");
    waiting.world.assert_clean(&waiting.server, &output);
    waiting.world.env.assert_no_process();
}

#[test]
fn bc_42_claude_never_has_the_key() {
    the_key_is_nowhere(CLAUDE);
}

#[test]
fn bc_42_codex_never_has_the_key() {
    the_key_is_nowhere(CODEX);
}

#[test]
fn bc_42_opencode_never_has_the_key() {
    the_key_is_nowhere(OPENCODE);
}

#[test]
fn bc_42_the_built_in_agent_never_has_the_key() {
    the_key_is_nowhere(ANTHROPIC);
}

/// The agent outlives the control plane; the next one answers it at the same place.
#[track_caller]
fn goes_on_after_a_kill(kind: Kind) {
    let Some(waiting) = Waiting::new(kind) else {
        return;
    };
    let running = waiting.start();
    let run = only_row(&waiting.world.env).run;
    running.signal(Signal::KILL);
    running.wait().expect_killed();
    waiting.assert_clean();
    let before = waiting.server.requests().len();
    let recovering = waiting
        .world
        .mini_ork(&waiting.server, &["recover", &run, "--json"])
        .spawn();
    waiting.go_on();
    let output = recovering.wait().expect(0);
    assert_eq!(text(&output.json(), "status"), "published");
    let after = waiting.server.requests();
    let again = after[before..]
        .iter()
        .filter(|request| request.contains("You plan a fix"));
    assert_eq!(again.count(), 0, "what was done is not paid twice");
    assert_eq!(waiting.world.recorded(), waiting.server.dealt());
    waiting.world.assert_clean(&waiting.server, &output);
}

#[test]
fn claude_goes_on_after_the_control_plane_was_killed() {
    goes_on_after_a_kill(CLAUDE);
}

#[test]
fn codex_goes_on_after_the_control_plane_was_killed() {
    goes_on_after_a_kill(CODEX);
}

#[test]
fn the_built_in_agent_goes_on_after_the_control_plane_was_killed() {
    goes_on_after_a_kill(ANTHROPIC);
}
