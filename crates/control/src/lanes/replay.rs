use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use rustix::fs::OFlags;

use super::scripted::{Occasion, Script, Step};
use crate::beneath::{Directory, Links};
use crate::yaml::Mistakes;

/// Why a scripted lane could not do its step.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The script could not be read.
    #[error("cannot read the script `{}`", path.display())]
    Read {
        /// The script.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The script has mistakes.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
    /// No step suits the occasion.
    #[error(
        "no step of `{}` suits the node `{node}` (role `{role}`, type `{kind}`) in round {round}",
        path.display()
    )]
    NoStep {
        /// The script.
        path: PathBuf,
        /// Name of the node.
        node: String,
        /// Its role.
        role: String,
        /// Its kind.
        kind: String,
        /// Round of the retry loop.
        round: u32,
    },
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

/// Does what the script `file` says for this occasion in the workspace `cwd`, and gives the exit
/// code of the lane. See [`replay`]. What the step is said to have cost goes into the file `usage`.
pub fn run_script(
    file: &Path,
    occasion: Occasion<'_>,
    cwd: &Path,
    usage: Option<&Path>,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> Result<u8, ReplayError> {
    let bytes = fs_err::read(file).map_err(|source| ReplayError::Read {
        path: file.to_owned(),
        source,
    })?;
    let script = Script::parse(&file.display().to_string(), &bytes)?;
    let step = script.select(occasion).ok_or_else(|| ReplayError::NoStep {
        path: file.to_owned(),
        node: occasion.node.to_owned(),
        role: occasion.role.to_owned(),
        kind: occasion.kind.to_owned(),
        round: occasion.round,
    })?;
    if let Some(usage) = usage {
        let cost = serde_json::json!({ "cost_usd": step.cost_usd }).to_string();
        fs_err::write(usage, cost).map_err(ReplayError::Output)?;
    }
    replay(step, cwd, stdout, stderr)
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

    fn play(cwd: &Path, yaml: &str) -> (Result<u8, ReplayError>, String, String) {
        let script = cwd.parent().unwrap().join("script.yaml");
        fs_err::write(&script, format!("version: 1\nsteps:\n- {yaml}\n")).unwrap();
        let occasion = Occasion {
            node: "n",
            role: "r",
            kind: "k",
            round: 1,
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = run_script(&script, occasion, cwd, None, &mut out, &mut err);
        (
            code,
            String::from_utf8(out).unwrap(),
            String::from_utf8(err).unwrap(),
        )
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
            "{delete: [old], write: {d/e/new: \"1\\n\"}, append: {log: b, fresh: c}, \
             run: [sh, -c, \"cat; pwd > where; exit 3\"], stdout: hello, stderr: oh}",
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
        let (code, ..) = play(&cwd, "{run: [sh, -c, 'exit 3'], exit: 0}");
        assert_eq!(code.unwrap(), 0);
        let (code, ..) = play(&cwd, "{run: [sh, -c, 'kill -9 $$']}");
        assert_eq!(code.unwrap(), 137);
        let (code, ..) = play(&cwd, "{write: {log: z}}");
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
        for step in [
            "{write: {way/secret: x}}",
            "{write: {way/new: x}}",
            "{write: {way/sub/new: x}}",
            "{append: {way/secret: x}}",
            "{delete: [way/secret]}",
            "{write: {file: x}}",
            "{append: {file: x}}",
            "{write: {here/new: x}}",
        ] {
            let (code, ..) = play(&cwd, step);
            assert!(
                matches!(code, Err(ReplayError::Edit { .. })),
                "{step}: {code:?}"
            );
        }
        let names: Vec<_> = fs_err::read_dir(&outside)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["secret"]);
        assert_eq!(fs_err::read_to_string(outside.join("secret")).unwrap(), "s");
        // A link itself may be deleted; what it leads to stays.
        play(&cwd, "{delete: [file]}").0.unwrap();
        assert!(outside.join("secret").exists() && !cwd.join("file").is_symlink());
    }

    #[test]
    fn what_cannot_be_done_is_an_error() {
        let (_temporary, cwd) = workspace();
        let (code, ..) = play(&cwd, "{node: other}");
        let message = code.unwrap_err().to_string();
        assert!(
            message.contains("suits the node `n` (role `r`, type `k`) in round 1"),
            "{message}"
        );
        assert!(matches!(
            play(&cwd, "{delete: [nothing]}").0,
            Err(ReplayError::Edit { .. })
        ));
        assert!(matches!(
            play(&cwd, "{run: [/no/such/program]}").0,
            Err(ReplayError::Run { .. })
        ));
        assert!(matches!(
            play(&cwd, "{exit: x}").0,
            Err(ReplayError::Mistakes(_))
        ));
        rustix::fs::mkfifoat(rustix::fs::CWD, cwd.join("fifo"), rustix::fs::Mode::RWXU).unwrap();
        assert!(matches!(
            play(&cwd, "{write: {fifo: x}}").0,
            Err(ReplayError::Edit { .. })
        ));
    }
}
