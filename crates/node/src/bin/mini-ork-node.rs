//! The part of mini-ork that runs where the work runs.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use mini_ork_node::supervise::{SUPERVISE_ARGUMENT, supervise_main};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next(), arguments.next()) {
        (Some(command), Some(directory), None) if command == SUPERVISE_ARGUMENT => {
            supervise_main(Path::new(&directory))
        }
        _ => {
            let usage =
                format!("usage: mini-ork-node {SUPERVISE_ARGUMENT} DIRECTORY < SPECIFICATION");
            let _ = writeln!(std::io::stderr(), "{usage}");
            ExitCode::from(2)
        }
    }
}
