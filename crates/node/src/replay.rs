//! A scripted lane: what an agent would have done, done as it was written down.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::beneath::{Directory, Links};
use crate::text::with_sources;

/// First argument of a mini-ork that is to replay a step; the second is a file with the [`Step`] as
/// JSON.
pub const REPLAY_ARGUMENT: &str = "__scripted";

/// Longest file with a step.
const LONGEST_STEP: u64 = 64 << 20;

/// What an agent would have done at one occasion.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Time that passes before anything else.
    pub sleep: Duration,
    /// Files that are removed.
    pub delete: Vec<String>,
    /// Files that get this content.
    pub write: BTreeMap<String, String>,
    /// Files that get this content at their end.
    pub append: BTreeMap<String, String>,
    /// A program that then runs.
    pub run: Option<Vec<String>>,
    /// Text for the standard output.
    pub stdout: String,
    /// Text for the standard error.
    pub stderr: String,
    /// Exit code; that of `run` when absent, else 0.
    pub exit: Option<u8>,
}

/// Why a step could not be done.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A file of the workspace could not be changed; it is left to the message to name it.
    #[error("cannot {action}")]
    Edit {
        /// What was to be done.
        action: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The program of the step did not start.
    #[error("cannot run `{program}`")]
    Run {
        /// The program.
        program: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The step's text could not be written.
    #[error("cannot write the output of the step")]
    Output(
        /// What the system said.
        #[source]
        io::Error,
    ),
}

/// Does the step in `file` in the current directory. See [`replay`].
pub fn replay_main(file: &Path) -> ExitCode {
    let (mut stdout, mut stderr) = (io::stdout().lock(), io::stderr().lock());
    let worked = read_step(file)
        .map_err(|error| error.to_string())
        .and_then(|(step, cwd)| {
            replay(&step, &cwd, &mut stdout, &mut stderr).map_err(|error| with_sources(&error))
        });
    match worked {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            let _ = writeln!(stderr, "scripted lane: {message}");
            ExitCode::FAILURE
        }
    }
}

fn read_step(file: &Path) -> io::Result<(Step, PathBuf)> {
    let bytes = crate::sys::files::read_bounded(file, LONGEST_STEP)?;
    let bytes = bytes.ok_or(io::ErrorKind::NotFound)?;
    Ok((serde_json::from_slice(&bytes)?, std::env::current_dir()?))
}

/// Sleeps, deletes, writes, appends, runs the program and prints, in this order, and gives the exit
/// code.
///
/// Files are changed below `cwd` only: no symbolic link is followed, neither as a directory on the
/// way nor as the file itself. Directories are made as needed. The program of the step runs in
/// `cwd` with the environment, the standard output and the standard error of this process, and may
/// do what it likes.
pub fn replay(
    step: &Step,
    cwd: &Path,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> Result<u8, ReplayError> {
    std::thread::sleep(step.sleep);
    let workspace = Directory::open(cwd).map_err(|source| ReplayError::Edit {
        action: "open the workspace".to_owned(),
        source,
    })?;
    let edit = |verb: &str, path: &str, result: io::Result<()>| {
        result.map_err(|source| ReplayError::Edit {
            action: format!("{verb} `{path}`"),
            source,
        })
    };
    for path in &step.delete {
        edit("delete", path, delete(&workspace, path))?;
    }
    for (path, content) in &step.write {
        edit("write", path, put(&workspace, path, content, OFlags::TRUNC))?;
    }
    for (path, content) in &step.append {
        edit(
            "append to",
            path,
            put(&workspace, path, content, OFlags::APPEND),
        )?;
    }
    let status = step.run.as_deref().map(|argv| run(argv, cwd)).transpose()?;
    print(step, stdout, stderr).map_err(ReplayError::Output)?;
    Ok(step.exit.or_else(|| status.map(exit_code)).unwrap_or(0))
}

fn put(workspace: &Directory, path: &str, content: &str, mode: OFlags) -> io::Result<()> {
    let path = Path::new(path);
    let name = Path::new(path.file_name().unwrap_or_default());
    let mut file = match parent(path) {
        None => workspace.create(name, mode)?,
        Some(parent) => make_directories(workspace, parent)?.create(name, mode)?,
    };
    file.write_all(content.as_bytes())
}

fn delete(workspace: &Directory, path: &str) -> io::Result<()> {
    let path = Path::new(path);
    let name = path.file_name().unwrap_or_default();
    match parent(path) {
        None => workspace.remove_file(name),
        Some(parent) => workspace
            .directory(parent, Links::Refused)?
            .remove_file(name),
    }
}

fn parent(path: &Path) -> Option<&Path> {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
}

fn make_directories(workspace: &Directory, path: &Path) -> io::Result<Directory> {
    let mut opened: Option<Directory> = None;
    for name in path {
        let here = opened.as_ref().unwrap_or(workspace);
        here.make_directory(name)?;
        opened = Some(here.directory(Path::new(name), Links::Refused)?);
    }
    opened.map_or_else(|| workspace.directory(path, Links::Refused), Ok)
}

fn run(argv: &[String], cwd: &Path) -> Result<ExitStatus, ReplayError> {
    let Some((program, arguments)) = argv.split_first() else {
        return Ok(ExitStatus::default());
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the one constructor of a step's program"
    )]
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(cwd)
        // The prompt on the lane's own input is not for the program.
        .stdin(Stdio::null())
        .status()
        .map_err(|source| ReplayError::Run {
            program: program.clone(),
            source,
        })
}

fn print(step: &Step, stdout: &mut dyn Write, stderr: &mut dyn Write) -> io::Result<()> {
    stdout.write_all(step.stdout.as_bytes())?;
    stderr.write_all(step.stderr.as_bytes())?;
    stdout.flush()?;
    stderr.flush()
}

/// As a shell gives it: 128 and the signal's number for a program that was killed.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(cwd: &Path, step: &Step) -> (Result<u8, ReplayError>, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = replay(step, cwd, &mut out, &mut err);
        (
            code,
            String::from_utf8(out).unwrap(),
            String::from_utf8(err).unwrap(),
        )
    }

    fn step(json: &str) -> Step {
        let mut whole = serde_json::to_value(Step::default()).unwrap();
        let given: serde_json::Value = serde_json::from_str(json).unwrap();
        for (key, value) in given.as_object().unwrap() {
            whole[key] = value.clone();
        }
        serde_json::from_value(whole).unwrap()
    }

    fn workspace() -> (tempfile::TempDir, PathBuf) {
        let temporary = tempfile::tempdir().unwrap();
        let cwd = temporary.path().join("workspace");
        fs_err::create_dir(&cwd).unwrap();
        (temporary, cwd)
    }

    #[test]
    fn a_step_edits_runs_and_prints() {
        let (_temporary, cwd) = workspace();
        fs_err::write(cwd.join("old"), "x").unwrap();
        fs_err::write(cwd.join("log"), "a").unwrap();
        let (code, out, err) = play(
            &cwd,
            &step(
                r#"{"delete": ["old"], "write": {"d/e/new": "1\n"}, "append": {"log": "b", "fresh": "c"},
                "run": ["sh", "-c", "cat; pwd > where; exit 3"], "stdout": "hello", "stderr": "oh"}"#,
            ),
        );
        assert_eq!(
            (code.unwrap(), out.as_str(), err.as_str()),
            (3, "hello", "oh")
        );
        let read = |name: &str| fs_err::read_to_string(cwd.join(name)).unwrap();
        assert!(!cwd.join("old").exists());
        assert_eq!(
            (read("d/e/new"), read("log"), read("fresh")),
            ("1\n".into(), "ab".into(), "c".into())
        );
        assert_eq!(
            Path::new(read("where").trim_end()),
            cwd.canonicalize().unwrap()
        );
        let (code, ..) = play(&cwd, &step(r#"{"run": ["sh", "-c", "exit 3"], "exit": 0}"#));
        assert_eq!(code.unwrap(), 0);
        let (code, ..) = play(&cwd, &step(r#"{"run": ["sh", "-c", "kill -9 $$"]}"#));
        assert_eq!(code.unwrap(), 137);
        let (code, ..) = play(&cwd, &step(r#"{"write": {"log": "z"}}"#));
        assert_eq!(code.unwrap(), 0);
        assert_eq!(read("log"), "z");
    }

    #[test]
    fn no_edit_leaves_the_workspace() {
        let (temporary, cwd) = workspace();
        let outside = temporary.path().join("outside");
        fs_err::create_dir(&outside).unwrap();
        fs_err::write(outside.join("secret"), "s").unwrap();
        fs_err::os::unix::fs::symlink("../outside", cwd.join("way")).unwrap();
        fs_err::os::unix::fs::symlink("../outside/secret", cwd.join("file")).unwrap();
        fs_err::os::unix::fs::symlink(".", cwd.join("here")).unwrap();
        for json in [
            r#"{"write": {"way/secret": "x"}}"#,
            r#"{"write": {"way/new": "x"}}"#,
            r#"{"write": {"way/sub/new": "x"}}"#,
            r#"{"append": {"way/secret": "x"}}"#,
            r#"{"delete": ["way/secret"]}"#,
            r#"{"write": {"file": "x"}}"#,
            r#"{"append": {"file": "x"}}"#,
            r#"{"write": {"here/new": "x"}}"#,
        ] {
            let (code, ..) = play(&cwd, &step(json));
            assert!(
                matches!(code, Err(ReplayError::Edit { .. })),
                "{json}: {code:?}"
            );
        }
        let names: Vec<_> = fs_err::read_dir(&outside)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["secret"]);
        assert_eq!(fs_err::read_to_string(outside.join("secret")).unwrap(), "s");
        // A link itself may be deleted; what it leads to stays.
        play(&cwd, &step(r#"{"delete": ["file"]}"#)).0.unwrap();
        assert!(outside.join("secret").exists() && !cwd.join("file").is_symlink());
    }

    #[test]
    fn what_cannot_be_done_is_an_error() {
        let (_temporary, cwd) = workspace();
        assert!(matches!(
            play(&cwd, &step(r#"{"delete": ["nothing"]}"#)).0,
            Err(ReplayError::Edit { .. })
        ));
        assert!(matches!(
            play(&cwd, &step(r#"{"run": ["/no/such/program"]}"#)).0,
            Err(ReplayError::Run { .. })
        ));
        rustix::fs::mkfifoat(rustix::fs::CWD, cwd.join("fifo"), rustix::fs::Mode::RWXU).unwrap();
        assert!(matches!(
            play(&cwd, &step(r#"{"write": {"fifo": "x"}}"#)).0,
            Err(ReplayError::Edit { .. })
        ));
    }
}
