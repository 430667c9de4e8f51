//! The part of mini-ork that runs where the work runs.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use mini_ork_node::agent::{AGENT_ARGUMENT, Surroundings, agent_main};
use mini_ork_node::confine::{CONFINE_ARGUMENT, confine_main};
use mini_ork_node::git::{LFS_ARGUMENT, lfs_main};
use mini_ork_node::probe::{PROBE_ARGUMENT, probe_main};
use mini_ork_node::replay::{REPLAY_ARGUMENT, replay_main};
use mini_ork_node::session::{BRIDGE_ARGUMENT, SERVE_ARGUMENT, bridge_main, init_main};
use mini_ork_node::supervise::{SUPERVISE_ARGUMENT, supervise_main};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next(), arguments.next()) {
        (Some(command), Some(directory), None) if command == SUPERVISE_ARGUMENT => {
            supervise_main(Path::new(&directory))
        }
        (Some(command), Some(spec), None) if command == AGENT_ARGUMENT => agent(&spec),
        (Some(command), Some(file), None) if command == REPLAY_ARGUMENT => {
            replay_main(Path::new(&file))
        }
        (Some(command), None, None) if command == CONFINE_ARGUMENT => confine_main(),
        (Some(command), Some(spec), None) if command == PROBE_ARGUMENT => {
            probe_main(&spec, &mut io::stdout())
        }
        (Some(command), Some(address), door) if command == SERVE_ARGUMENT => {
            init_main(Path::new(&address), door.as_deref().map(Path::new))
        }
        (Some(command), Some(address), None) if command == BRIDGE_ARGUMENT => {
            bridge_main(Path::new(&address))
        }
        (Some(command), Some(directory), None) if command == LFS_ARGUMENT => lfs_main(
            Path::new(&directory),
            &mut io::stdin().lock(),
            &mut io::stdout().lock(),
        ),
        _ => {
            let usage = format!(
                "usage: mini-ork-node {SUPERVISE_ARGUMENT} DIRECTORY < SPECIFICATION\n       \
                 mini-ork-node {AGENT_ARGUMENT} SPECIFICATION < PROMPT\n       \
                 mini-ork-node {REPLAY_ARGUMENT} STEP\n       \
                 mini-ork-node {CONFINE_ARGUMENT} < SPECIFICATION\n       \
                 mini-ork-node {SERVE_ARGUMENT} ADDRESS [DOOR]\n       \
                 mini-ork-node {BRIDGE_ARGUMENT} ADDRESS"
            );
            let _ = writeln!(io::stderr(), "{usage}");
            ExitCode::from(2)
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where this program reads its environment"
)]
fn agent(spec: &OsStr) -> ExitCode {
    let found = std::env::current_exe().and_then(|program| Ok((program, std::env::current_dir()?)));
    match found {
        Ok((program, root)) => {
            let surroundings = Surroundings {
                program,
                root,
                environment: std::env::vars_os().collect(),
            };
            agent_main(
                spec,
                surroundings,
                &mut io::stdin().lock(),
                &mut io::stdout(),
            )
        }
        Err(error) => {
            let _ = writeln!(
                io::stderr(),
                "mini-ork-node: cannot find its place: {error}"
            );
            ExitCode::FAILURE
        }
    }
}
