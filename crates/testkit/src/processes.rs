use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};

/// The processes, except this one, that have `text` in their command line, their environment, or
/// the path of their program or current directory: one line each, sorted.
pub fn processes_with(text: &str) -> Vec<String> {
    let mut found: Vec<String> = matching(text)
        .into_iter()
        .map(|(pid, line)| format!("{pid}: {line}"))
        .collect();
    found.sort();
    found
}

/// Kills all processes that work below `root` or have it in their environment. One that merely
/// names it in its command line may be anybody's.
pub(crate) fn kill_processes_of(root: &Path) {
    // A process that forks while it is looked for is found in the next turn.
    for _ in 0..20 {
        let found: Vec<i32> = others()
            .filter(|(_, directory)| belongs_to(directory, root))
            .map(|(pid, _)| pid)
            .collect();
        if found.is_empty() {
            return;
        }
        for pid in found {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn matching(text: &str) -> Vec<(i32, String)> {
    others()
        .filter(|(_, directory)| mentions(directory, text.as_bytes()))
        .map(|(pid, directory)| (pid, command_line(&directory)))
        .collect()
}

fn others() -> impl Iterator<Item = (i32, PathBuf)> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    process_directories()
        .into_iter()
        .filter(move |(pid, directory)| *pid != own && !is_zombie(directory))
}

fn belongs_to(directory: &Path, root: &Path) -> bool {
    let environment = fs_err::read(directory.join("environ")).unwrap_or_default();
    let cwd = fs_err::read_link(directory.join("cwd")).unwrap_or_default();
    contains(&environment, root.as_os_str().as_encoded_bytes()) || cwd.starts_with(root)
}

/// `/proc/PID` of every process.
pub(crate) fn process_directories() -> Vec<(i32, PathBuf)> {
    let entries = fs_err::read_dir("/proc").unwrap();
    entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, entry.path()))
        })
        .collect()
}

/// What is found in a process that has gone meanwhile is nothing.
fn mentions(directory: &Path, text: &[u8]) -> bool {
    let in_file = |name: &str| {
        let bytes = fs_err::read(directory.join(name)).unwrap_or_default();
        contains(&bytes, text)
    };
    let in_link = |name: &str| {
        let target = fs_err::read_link(directory.join(name)).unwrap_or_default();
        contains(target.as_os_str().as_encoded_bytes(), text)
    };
    in_file("cmdline") || in_file("environ") || in_link("cwd") || in_link("exe")
}

fn is_zombie(directory: &Path) -> bool {
    let stat = fs_err::read_to_string(directory.join("stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_none_or(|(_, rest)| matches!(rest.trim_start().chars().next(), Some('Z' | 'X') | None))
}

fn command_line(directory: &Path) -> String {
    let bytes = fs_err::read(directory.join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .replace('\0', " ")
        .trim_end()
        .to_owned()
}

pub(crate) fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}
