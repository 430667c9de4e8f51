#![expect(unsafe_code, reason = "a fork is not offered by a library")]

use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Takes memory until there is none: the leader itself, or a grandchild whose end the leader tells
/// by an exit code of its own.
pub(crate) fn memory(who: &str, mebibytes: usize) -> ExitCode {
    let own = std::env::current_exe().unwrap();
    let most = mebibytes.to_string();
    match who {
        "leader" => {
            let mut held: Vec<Vec<u8>> = Vec::new();
            for _ in 0..mebibytes {
                // Not zeros: pages that were never written are not there.
                held.push(vec![1; 1 << 20]);
            }
            println!("took {} MiB", held.len());
            ExitCode::SUCCESS
        }
        "grandchild" | "forgiven" => {
            let child = Command::new(own).args(["memory", "child", &most]).status();
            println!("the child ended: {:?}", child.unwrap());
            ExitCode::from(if who == "forgiven" { 0 } else { 3 })
        }
        _ => {
            let status = Command::new(own).args(["memory", "leader", &most]).status();
            ExitCode::from(if status.unwrap().success() { 0 } else { 4 })
        }
    }
}

/// Forks until it is refused, and then goes on for a while.
pub(crate) fn forks(most: u32) -> ExitCode {
    let mut made = 0;
    let mut refused = 0;
    while made < most && refused < 200 {
        // SAFETY: the child makes system calls only.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: no memory is involved.
                unsafe { libc::pause() };
            },
            pid if pid > 0 => made += 1,
            _ => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    println!("made {made} refused {refused}");
    ExitCode::from(if refused > 0 { 5 } else { 0 })
}

/// Writes to a file until it is not let, a thousand MiB a second at most.
pub(crate) fn disk(path: &str) -> ExitCode {
    let piece = vec![1; 1 << 18];
    let mut file = fs_err::File::create(path).unwrap();
    loop {
        if let Err(error) = file.write_all(&piece) {
            println!("ended: {error}");
            return ExitCode::from(6);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
