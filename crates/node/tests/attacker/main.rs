//! A hostile program, for the tests: it tries to get out of where it runs and says how far it came.
//!
//! `all TOKEN` makes every attempt, each in a process of its own, and prints a line for each:
//! `NAME closed: WHY` or `NAME OPEN: WHAT`. Nothing that it tries does harm where it succeeds.
//! What does harm where there are no limits (`memory`, `forks`, `disk`, `watch`) is called by its
//! own name only.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program of the tests"
)]

mod bombs;
mod devices;
mod files;
mod kernel;
mod processes;
mod session;

use std::process::{Command, ExitCode};

/// Why it did not work, or what did.
type Attempt = Result<String, String>;

/// What is given to an attempt: a word that names whatever it leaves behind.
type Act = fn(&str) -> Attempt;

const ATTEMPTS: &[(&str, Act)] = &[
    ("files outside", files::write_outside),
    ("files of the system", files::write_to_kernel),
    ("other users' files", files::become_owner),
    ("links out of the drive", files::hard_link_outside),
    ("device nodes", devices::make),
    ("devices", devices::open),
    ("sockets", devices::connect),
    ("mounts", kernel::mount),
    ("mounts of a new namespace", kernel::mount_in_new_namespace),
    ("namespaces of others", kernel::enter_namespaces),
    ("privileges", kernel::gain_privileges),
    ("users", kernel::become_another),
    ("system calls", kernel::call),
    ("keys", kernel::read_keys),
    ("processes of others", processes::look_into),
    ("tracing", processes::trace),
    ("the session", session::speak),
    ("the session by its bridge", session::speak_by_bridge),
    ("tokens", session::find_token),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["all", token] => all(token),
        ["attempt", name, token] => one(name, token),
        ["memory", who, mebibytes] => bombs::memory(who, mebibytes.parse().unwrap()),
        ["forks", most] => bombs::forks(most.parse().unwrap()),
        ["disk", path] => bombs::disk(path),
        ["watch", seconds] => processes::watch(seconds.parse().unwrap()),
        ["hold", seconds] => session::hold(seconds.parse().unwrap()),
        _ => ExitCode::from(2),
    }
}

fn all(token: &str) -> ExitCode {
    // What is not confined at all is not to be harmed.
    if !rustix::thread::no_new_privs().unwrap() {
        println!("everything OPEN: there is no boundary, and nothing else was tried");
        return ExitCode::SUCCESS;
    }
    let own = std::env::current_exe().unwrap();
    for (name, _) in ATTEMPTS {
        let output = Command::new(&own).args(["attempt", name, token]).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() && said.starts_with(name) {
            print!("{said}");
        } else {
            // One that the system ended tells nothing.
            println!(
                "{name} OPEN: it did not come to its end: {:?} {said}",
                output.status
            );
        }
    }
    ExitCode::SUCCESS
}

fn one(name: &str, token: &str) -> ExitCode {
    let Some((_, act)) = ATTEMPTS.iter().find(|(known, _)| *known == name) else {
        return ExitCode::from(2);
    };
    match act(token) {
        Ok(why) => println!("{name} closed: {}", why.replace('\n', " ")),
        Err(what) => println!("{name} OPEN: {}", what.replace('\n', " ")),
    }
    ExitCode::SUCCESS
}

/// Collects what worked; anything is too much.
fn judge(tried: usize, open: &[String], why: &str) -> Attempt {
    if tried == 0 {
        return Err("nothing was there to be tried".to_owned());
    }
    if open.is_empty() {
        return Ok(format!("{tried} tried, {why}"));
    }
    let shown: Vec<String> = open.iter().take(20).cloned().collect();
    Err(format!("{} of {tried}: {}", open.len(), shown.join(", ")))
}
