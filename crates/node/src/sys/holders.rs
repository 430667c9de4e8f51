use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Processes other than this one that have something below `root` open, or as their program,
/// working directory or root directory; each with one path for each such thing.
///
/// A process of another user does not show this, and is not among them.
pub fn processes_below(root: &Path) -> io::Result<BTreeSet<(i32, PathBuf)>> {
    let root = match fs_err::canonicalize(root) {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(error),
    };
    let own = rustix::process::getpid().as_raw_pid();
    let mut found = BTreeSet::new();
    for entry in fs_err::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if pid == own {
            continue;
        }
        let process = entry.path();
        let named = ["cwd", "root", "exe"].map(|name| process.join(name));
        let open = fs_err::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|descriptor| descriptor.path());
        // It may end while it is looked at.
        let targets = named
            .into_iter()
            .chain(open)
            .filter_map(|link| fs_err::read_link(link).ok());
        found.extend(
            targets
                .filter(|target| target.starts_with(&root))
                .map(|target| (pid, target)),
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a process that sits somewhere")]
    fn a_process_is_found_by_where_it_sits() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("in side");
        fs_err::create_dir(&inner).unwrap();
        assert!(processes_below(root.path()).unwrap().is_empty());
        let mut child = Command::new("cat")
            .current_dir(&inner)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let found = processes_below(root.path()).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        let inner = fs_err::canonicalize(&inner).unwrap();
        assert!(found.contains(&(pid, inner)), "{found:?}");
        assert!(processes_below(root.path()).unwrap().is_empty());
    }
}
