use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use mini_ork_control::run::{RunView, now_ms};
use mini_ork_node::sys;

use crate::error::CommandError;
use crate::render;
use crate::settings::GlobalSettings;

/// The directory in which everything happens, gone when dropped.
#[derive(Debug)]
pub(super) struct Lab {
    root: PathBuf,
    program: PathBuf,
    path: OsString,
    cores: usize,
}

impl Lab {
    pub(super) fn make(place: &Path, global: &GlobalSettings) -> Result<Self, CommandError> {
        let root = place.join(format!(
            "mini-ork-bench-{}-{}",
            std::process::id(),
            now_ms()
        ));
        fs_err::create_dir_all(&root).map_err(|error| failed(&error))?;
        let root = fs_err::canonicalize(root).map_err(|error| failed(&error))?;
        let lab = Self {
            root,
            program: global.program.clone(),
            path: global
                .environment
                .raw("PATH")
                .unwrap_or_default()
                .to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        };
        fs_err::create_dir(lab.root.join("user")).map_err(|error| failed(&error))?;
        Ok(lab)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// The `PATH` of the programs.
    pub(super) fn path(&self) -> &OsStr {
        &self.path
    }

    pub(super) fn cores(&self) -> usize {
        self.cores
    }

    /// mini-ork itself.
    pub(super) fn mini_ork(&self) -> Command {
        self.command(&self.program)
    }

    /// A program that sees an empty home and nothing of the user's settings.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one constructor of a program that is measured"
    )]
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", self.root.join("user"))
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "bench")
            .env("GIT_AUTHOR_EMAIL", "bench@localhost")
            .env("GIT_COMMITTER_NAME", "bench")
            .env("GIT_COMMITTER_EMAIL", "bench@localhost")
            .current_dir(&self.root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    pub(super) fn git(&self, directory: &Path, arguments: &[&str]) -> Result<(), CommandError> {
        let mut command = self.command("git");
        command.arg("-C").arg(directory).args(arguments);
        finish(command, &format!("git {}", arguments.join(" ")))
    }

    /// A repository with one commit of a few small files.
    pub(super) fn small_repository(&self, name: &str) -> Result<PathBuf, CommandError> {
        const FILES: usize = 40;
        let path = self.root.join(name);
        for number in 0..FILES {
            let directory = path.join(format!("src/part{}", number % 5));
            let lines: String = (0..20)
                .map(|line| format!("line {line} of file {number}\n"))
                .collect();
            fs_err::create_dir_all(&directory)
                .and_then(|()| fs_err::write(directory.join(format!("file{number}.txt")), lines))
                .map_err(|error| failed(&error))?;
        }
        self.git(&path, &["init", "-q"])?;
        self.git(&path, &["add", "-A"])?;
        self.git(&path, &["commit", "-q", "-m", "start"])?;
        Ok(path)
    }

    /// Writes files below the directory of the lab.
    pub(super) fn write(&self, path: &Path, content: &str) -> Result<(), CommandError> {
        let path = self.root.join(path);
        path.parent()
            .map_or(Ok(()), fs_err::create_dir_all)
            .and_then(|()| fs_err::write(&path, content))
            .map_err(|error| failed(&error))
    }

    /// `mini-ork run RECIPE` on `repository`, with the kickoff and the home that were written.
    pub(super) fn run_command(&self, home: &Path, recipe: &str, repository: &Path) -> Command {
        let mut command = self.mini_ork();
        command
            .arg("run")
            .arg(recipe)
            .arg(self.root.join("kickoff.md"))
            .args(["--json", "--no-input", "--repo"])
            .arg(repository)
            .arg("--home")
            .arg(home);
        command
    }

    /// Runs `command`, a [`Self::run_command`], to its end.
    pub(super) fn drive(&self, mut command: Command) -> Result<Driven, CommandError> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (began, began_ms) = (Instant::now(), now_ms());
        let output = command.output().map_err(|error| failed(&error))?;
        let took_ms = milliseconds(began);
        let view = view_of(&output.stdout).ok_or_else(|| {
            CommandError::failure("a run that was to be measured failed")
                .details([String::from_utf8_lossy(&output.stderr).trim().to_owned()])
        })?;
        Ok(Driven {
            view,
            took_ms,
            began_ms,
        })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = sys::remove_tree(&self.root) {
            render::err(&format!("cannot remove the measuring directory: {error}\n"));
        }
    }
}

/// A run that was published.
#[derive(Debug)]
pub(super) struct Driven {
    pub(super) view: RunView,
    /// From the start of the program to its end.
    pub(super) took_ms: f64,
    /// When the program was started, since the Unix epoch.
    pub(super) began_ms: u64,
}

/// The run that `output` tells of, when it was published.
pub(super) fn view_of(output: &[u8]) -> Option<RunView> {
    let view: RunView = serde_json::from_slice(output).ok()?;
    (view.status == "published").then_some(view)
}

/// Runs `command` to a good end; `what` is what it is called when it fails. In milliseconds.
pub(super) fn time(mut command: Command, what: &str) -> Result<f64, CommandError> {
    let began = Instant::now();
    let status = command.status();
    let took = milliseconds(began);
    check(status, what)?;
    Ok(took)
}

/// Runs `command` to a good end.
pub(super) fn finish(mut command: Command, what: &str) -> Result<(), CommandError> {
    check(command.status(), what)
}

pub(super) fn check(
    status: io::Result<std::process::ExitStatus>,
    what: &str,
) -> Result<(), CommandError> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(CommandError::failure(format!("`{what}` failed: {status}"))),
        Err(error) => {
            Err(CommandError::failure(format!("`{what}` cannot be run")).caused_by(&error))
        }
    }
}

pub(super) fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// What went wrong besides the measuring.
pub(super) fn failed(error: &dyn std::error::Error) -> CommandError {
    CommandError::failure("cannot measure").caused_by(error)
}

/// Says what happens now.
pub(super) fn progress(text: &str) {
    render::err(&format!("{text}\n"));
}
