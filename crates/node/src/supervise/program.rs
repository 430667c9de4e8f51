use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use mini_ork_protocol::{ByteString, ProcessSpec, StdinSource};
use rustix::fs::Access;
use rustix::io::Errno;

use super::RUN_MARKER_VARIABLE;
use crate::sys::birth::{self, Born, Image};
use crate::sys::cgroup::Cgroup;

/// Starts the program in a process group of its own, in `group` if the system lets it; its end is
/// for the caller to take note of. The error is a sentence for the user.
pub(super) fn spawn(
    spec: &ProcessSpec,
    [stdout, stderr]: [&File; 2],
    group: Option<&Cgroup>,
) -> Result<Born, String> {
    let Some(name) = spec.argv.first() else {
        return Err("there is no program to run: the argument list is empty".to_owned());
    };
    let cwd = Path::new(spec.cwd.as_os_str());
    check_cwd(cwd)?;
    check_bytes(spec)?;
    let program = resolve(name.as_os_str(), cwd, search_path(&spec.env))?;
    let stdin = open_stdin(&spec.stdin)?;
    let arguments = spec.argv.iter().map(|text| c_string(text.as_bytes()));
    let image = Image {
        file: c_string(program.as_os_str().as_bytes())?,
        arguments: arguments.collect::<Result<_, _>>()?,
        environment: environment(spec)?,
        directory: c_string(spec.cwd.as_bytes())?,
        standard: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
    };
    birth::start(&image, group).map_err(|error| explain(&error, &program, cwd))
}

/// Each name once, with the last value that it is given.
fn environment(spec: &ProcessSpec) -> Result<Vec<CString>, String> {
    let given = spec.env.iter();
    let mut variables: BTreeMap<&[u8], &[u8]> = given
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        .collect();
    variables.insert(RUN_MARKER_VARIABLE.as_bytes(), spec.marker.as_bytes());
    let entries = variables.into_iter();
    entries
        .map(|(name, value)| c_string(&[name, b"=", value].concat()))
        .collect()
}

/// What was checked before; only the marker was not.
fn c_string(bytes: &[u8]) -> Result<CString, String> {
    CString::new(bytes).map_err(|_| "what was to be run contains a NUL byte".to_owned())
}

fn check_cwd(cwd: &Path) -> Result<(), String> {
    let shown = cwd.display();
    if !cwd.is_absolute() {
        return Err(format!(
            "the working directory `{shown}` is not an absolute path"
        ));
    }
    match fs_err::metadata(cwd) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(format!(
            "the working directory `{shown}` is not a directory"
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("the working directory `{shown}` does not exist"))
        }
        Err(error) => Err(format!("the working directory cannot be used: {error}")),
    }
}

/// Refuses what cannot be handed over unchanged.
fn check_bytes(spec: &ProcessSpec) -> Result<(), String> {
    let has_nul = |text: &ByteString| text.as_bytes().contains(&0);
    if let Some(position) = spec.argv.iter().position(has_nul) {
        return Err(format!(
            "argument {position} contains a NUL byte, which no argument can"
        ));
    }
    for (key, value) in &spec.env {
        // The value stays out of the message: it may be a secret.
        let shown = String::from_utf8_lossy(key.as_bytes());
        let shown = shown.escape_debug();
        if key.as_bytes().is_empty() || key.as_bytes().contains(&b'=') || has_nul(key) {
            return Err(format!(
                "`{shown}` cannot be the name of an environment variable"
            ));
        }
        if has_nul(value) {
            return Err(format!(
                "the environment variable `{shown}` contains a NUL byte"
            ));
        }
    }
    Ok(())
}

fn search_path(environment: &[(ByteString, ByteString)]) -> Option<&OsStr> {
    // The last one of a name is the one that the program gets.
    let found = environment
        .iter()
        .rev()
        .find(|(key, _)| key.as_bytes() == b"PATH");
    found.map(|(_, value)| value.as_os_str())
}

/// Finds the file to run: as given when there is a slash in it, else on `path`.
///
/// Entries of `path` that are relative are passed over. They would be looked up in the working
/// directory, where an agent's `git` would then be the one that mini-ork runs.
fn resolve(name: &OsStr, cwd: &Path, path: Option<&OsStr>) -> Result<PathBuf, String> {
    let shown = name.display();
    if name.as_bytes().contains(&b'/') {
        let file = cwd.join(name);
        return match fs_err::metadata(&file) {
            Ok(metadata) if metadata.is_dir() => {
                Err(format!("the program `{shown}` is a directory"))
            }
            Ok(_) if !may_execute(&file) => Err(format!("the program `{shown}` is not executable")),
            Ok(_) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
                "the program `{shown}` was not found from `{}`",
                cwd.display()
            )),
            Err(error) => Err(format!("the program `{shown}` cannot be used: {error}")),
        };
    }
    let Some(path) = path else {
        return Err(format!(
            "the program `{shown}` was not found: its environment has no PATH"
        ));
    };
    let mut passed_over = None;
    for entry in path.as_bytes().split(|byte| *byte == b':') {
        let directory = PathBuf::from(OsString::from_vec(entry.to_vec()));
        let file = directory.join(name);
        if name.is_empty() || !directory.is_absolute() || !file.is_file() {
            continue;
        }
        if may_execute(&file) {
            return Ok(file);
        }
        passed_over.get_or_insert(file);
    }
    Err(match passed_over {
        Some(file) => format!("the program `{}` is not executable", file.display()),
        None => format!(
            "the program `{shown}` was not found on the PATH `{}`",
            path.display()
        ),
    })
}

fn may_execute(file: &Path) -> bool {
    rustix::fs::access(file, Access::EXEC_OK).is_ok()
}

fn open_stdin(source: &StdinSource) -> Result<File, String> {
    let failed = |error: io::Error| format!("the standard input cannot be used: {error}");
    let path = match source {
        StdinSource::Null => Path::new("/dev/null"),
        StdinSource::File(path) => {
            let path = Path::new(path.as_os_str());
            // Asked before it is opened: opening a FIFO waits for a writer.
            if !fs_err::metadata(path).map_err(failed)?.is_file() {
                return Err(format!(
                    "the standard input `{}` is not a regular file",
                    path.display()
                ));
            }
            path
        }
    };
    let file = fs_err::File::open(path).map_err(failed)?;
    Ok(file.into_file())
}

fn explain(error: &io::Error, program: &Path, cwd: &Path) -> String {
    let (program, cwd) = (program.display(), cwd.display());
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => {
            format!(
                "the program `{program}` cannot run: the interpreter that it names was not found"
            )
        }
        Some(Errno::NOEXEC) => {
            format!("the program `{program}` is of a format that this machine does not run")
        }
        Some(Errno::TOOBIG) => format!(
            "the program `{program}` was not run: its arguments and environment are longer than \
             this machine allows"
        ),
        _ => format!("the program `{program}` could not be run in `{cwd}`: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use fs_err::os::unix::fs::OpenOptionsExt as _;

    use super::*;

    fn put(path: &Path, mode: u32) {
        fs_err::OpenOptions::new()
            .write(true)
            .create(true)
            .mode(mode)
            .open(path)
            .unwrap();
    }

    fn find(name: &str, cwd: &Path, path: &str) -> Result<PathBuf, String> {
        resolve(OsStr::new(name), cwd, Some(OsStr::new(path)))
    }

    #[test]
    fn a_program_is_looked_up_on_the_given_path_only() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (root.path().join("1"), root.path().join("2"));
        for directory in [&first, &second] {
            fs_err::create_dir(directory).unwrap();
        }
        put(&first.join("tool"), 0o600);
        let both = format!("{}:{}", first.display(), second.display());
        assert!(
            find("tool", root.path(), &both)
                .unwrap_err()
                .ends_with("is not executable")
        );
        put(&second.join("tool"), 0o700);
        assert_eq!(
            find("tool", root.path(), &both).unwrap(),
            second.join("tool")
        );
        assert!(
            find("sh", root.path(), &both)
                .unwrap_err()
                .contains("was not found on the PATH")
        );
        assert!(
            find("", root.path(), &both)
                .unwrap_err()
                .contains("was not found")
        );
        let none = resolve(OsStr::new("sh"), root.path(), None).unwrap_err();
        assert!(none.ends_with("has no PATH"), "{none}");
    }

    #[test]
    fn the_working_directory_decides_only_when_it_is_asked_to() {
        let root = tempfile::tempdir().unwrap();
        put(&root.path().join("git"), 0o700);
        for path in ["", ".", "::", "bin"] {
            assert!(find("git", root.path(), path).is_err(), "{path:?}");
        }
        assert_eq!(
            find("./git", root.path(), "").unwrap(),
            root.path().join("./git")
        );
        assert!(
            find("./none", root.path(), "")
                .unwrap_err()
                .contains("was not found from")
        );
        assert!(
            find("/", root.path(), "")
                .unwrap_err()
                .ends_with("is a directory")
        );
    }
}
