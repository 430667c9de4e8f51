//! What mini-ork is when it starts itself again: a supervisor, a scripted lane, an agent, or a
//! process of a measurement.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mini_ork_control::lanes::{Occasion, SCRIPTED_ARGUMENT, run_script};
use mini_ork_node::agent::{AGENT_ARGUMENT, Surroundings, agent_main};
use mini_ork_node::confine::{CONFINE_ARGUMENT, confine_main};
use mini_ork_node::probe::{PROBE_ARGUMENT, probe_main};
use mini_ork_node::session::{SERVE_ARGUMENT, SESSION_ARGUMENT, init_main, session_main};
use mini_ork_node::supervise::{SUPERVISE_ARGUMENT, supervise_main};

use super::bench::{PARTY_ARGUMENT, party_main};
use crate::env_vars;
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
        return Some(init_main(Path::new(&arguments.next()?)));
    }
    if command == SESSION_ARGUMENT {
        return Some(session_main());
    }
    if command == PROBE_ARGUMENT {
        return Some(probe_main(&arguments.next()?, &mut io::stdout()));
    }
    if command == SUPERVISE_ARGUMENT {
        let directory = PathBuf::from(arguments.next()?);
        return Some(supervise_main(&directory));
    }
    if command == SCRIPTED_ARGUMENT {
        let file: OsString = arguments.next()?;
        return Some(replay(Path::new(&file)));
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

/// Replays the step of a scripted lane for the node that the environment names.
fn replay(file: &Path) -> ExitCode {
    let environment = Environment::read();
    let text = |name| environment.text(name).ok().flatten().unwrap_or_default();
    let (node, role) = (text(env_vars::MO_NODE_ID), text(env_vars::MO_NODE_ROLE));
    let kind = text(env_vars::MO_NODE_TYPE);
    let round = text(env_vars::MO_NODE_ROUND).parse().unwrap_or(1);
    let occasion = Occasion {
        node: &node,
        role: &role,
        kind: &kind,
        round,
    };
    let usage = environment.path(env_vars::MO_USAGE_FILE);
    let worked = std::env::current_dir()
        .map_err(|error| error.to_string())
        .and_then(|cwd| {
            run_script(
                file,
                occasion,
                &cwd,
                usage.as_deref(),
                &mut io::stdout().lock(),
                &mut io::stderr().lock(),
            )
            .map_err(|error| mini_ork_control::run::with_sources(&error))
        });
    match worked {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            render::err(&format!("scripted lane: {message}\n"));
            ExitCode::FAILURE
        }
    }
}
