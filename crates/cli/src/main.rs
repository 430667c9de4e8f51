//! `mini-ork`: runs coding-agent workflows on a git repository.

mod cli;
mod commands;
mod env_vars;
mod error;
mod render;
mod settings;

use std::process::ExitCode;

fn main() -> ExitCode {
    // A supervisor or a replayed lane is this program under another first argument. They come
    // before everything else: their start is on the path of every node.
    if let Some(code) = commands::internal::dispatch() {
        return code;
    }
    commands::main()
}
