//! What mini-ork is when it starts itself again: a supervisor, a scripted lane, an agent, a filter of
//! git, or a process of a measurement.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mini_ork_node::agent::{AGENT_ARGUMENT, Surroundings, agent_main};
use mini_ork_node::confine::{CONFINE_ARGUMENT, confine_main};
use mini_ork_node::git::{LFS_ARGUMENT, lfs_main};
use mini_ork_node::probe::{PROBE_ARGUMENT, probe_main};
use mini_ork_node::replay::{REPLAY_ARGUMENT, replay_main};
use mini_ork_node::session::{SERVE_ARGUMENT, init_main};
use mini_ork_node::supervise::{SUPERVISE_ARGUMENT, supervise_main};

use super::bench::{PARTY_ARGUMENT, party_main};
use crate::render;
use crate::settings::Environment;

/// Runs the internal command that the arguments name; `None` when they name none.
pub(crate) fn dispatch() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next()?;
    if command == CONFINE_ARGUMENT {
        return Some(confine_main());
    }
    if command == SERVE_ARGUMENT {
        return Some(init_main(Path::new(&arguments.next()?), None));
    }
    if command == PROBE_ARGUMENT {
        return Some(probe_main(&arguments.next()?, &mut io::stdout()));
    }
    if command == LFS_ARGUMENT {
        let directory = PathBuf::from(arguments.next()?);
        let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
        return Some(lfs_main(&directory, &mut input, &mut output));
    }
    if command == SUPERVISE_ARGUMENT {
        let directory = PathBuf::from(arguments.next()?);
        return Some(supervise_main(&directory));
    }
    if command == REPLAY_ARGUMENT {
        return Some(replay_main(Path::new(&arguments.next()?)));
    }
    if command == PARTY_ARGUMENT {
        return Some(party_main(arguments));
    }
    if command == AGENT_ARGUMENT {
        return Some(work(&arguments.next()?));
    }
    None
}

/// Is the built-in agent in the current directory.
fn work(spec: &OsStr) -> ExitCode {
    let found = std::env::current_exe().and_then(|program| Ok((program, std::env::current_dir()?)));
    match found {
        Ok((program, root)) => {
            let surroundings = Surroundings {
                program,
                root,
                environment: Environment::read().all(),
            };
            agent_main(
                spec,
                surroundings,
                &mut io::stdin().lock(),
                &mut io::stdout(),
            )
        }
        Err(error) => {
            render::err(&format!("built-in agent: cannot find its place: {error}\n"));
            ExitCode::FAILURE
        }
    }
}
