//! Whole runs of agents that take too much, leave what nobody can remove, or play with what is
//! shared. What they try against the boundary itself is in the escape suite of `node`.

use mini_ork_testkit::{Call, ContainerEngine, TestEnv, skip};

use crate::sandbox::{TOOLS, World};
use crate::support::{CHECK, PROJECT, agent, new_env};

mod drive;
mod leftovers;
mod limits;
mod ports;

/// A container with what the agents here need.
fn containers() -> Option<World> {
    let tools = [
        TOOLS,
        &[
            "head", "tail", "seq", "chmod", "touch", "mkfifo", "truncate", "mv", "busybox", "dd",
        ],
    ]
    .concat();
    World::with(new_env(), ContainerEngine::start(), &tools)
}

/// A world for the backend `local` with a policy; `None` where this machine forbids it.
fn namespaces() -> Option<TestEnv> {
    let env = new_env();
    env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    let output = env
        .mini_ork(["sandbox", "verify", "--json"])
        .env("MO_SANDBOX_NETWORK", "none")
        .run();
    if output.errors().contains("does not let an ordinary user") {
        skip(&output.errors());
        return None;
    }
    Some(env)
}

/// Lets `work` do what writers do.
fn lane(env: &TestEnv, work: &str) {
    let script = serde_json::to_string(&agent(work)).unwrap();
    let providers =
        format!("providers:\n  own: {{kind: executable, command: [sh, -c, {script}]}}\n");
    env.write("home/config/providers.yaml", &providers);
    env.write("home/config/agents.yaml", "lanes:\n  default: own\n");
}

fn confined(call: Call<'_>) -> Call<'_> {
    call.env("MO_SANDBOX_NETWORK", "none")
}

const RUN: [&str; 6] = ["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"];
