//! The one constructor of git commands.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::error::GitError;
use super::exchange::{End, exchange};

/// `merge-tree --write-tree`, `-z` of `cat-file` and the `-c safe.directory` scope are this old.
const OLDEST_VERSION: (u32, u32) = (2, 38);
/// A 5 GiB file takes minutes to hash and deflate on a busy machine.
const DEADLINE: Duration = Duration::from_secs(3600);
/// A listing of a million paths is about a tenth of this.
const OUTPUT_LIMIT: usize = 1 << 30;

/// A git program that is new enough.
#[derive(Debug, Clone)]
pub struct Git {
    program: PathBuf,
    search_path: OsString,
    version: String,
    deadline: Duration,
    lfs_program: Option<PathBuf>,
}

impl Git {
    /// Finds `git` on `search_path`, which has the form of a `PATH` variable.
    ///
    /// Relative directories are passed over: in a repository they would run what the repository
    /// brings. Fails when there is none, or when it is older than 2.38.
    pub fn find(search_path: &OsStr) -> Result<Self, GitError> {
        let program = std::env::split_paths(search_path)
            .filter(|directory| directory.is_absolute())
            .map(|directory| directory.join("git"))
            .find(|candidate| is_program(candidate))
            .ok_or_else(|| GitError::NotFound {
                search_path: search_path.to_owned(),
            })?;
        let mut git = Self {
            program,
            search_path: search_path.to_owned(),
            version: String::new(),
            deadline: DEADLINE,
            lfs_program: None,
        };
        let output = git.command("version", Path::new("/")).run()?;
        let found = String::from_utf8_lossy(&output).trim().to_owned();
        if version(&found).is_none_or(|version| version < OLDEST_VERSION) {
            return Err(GitError::TooOld {
                program: git.program,
                found,
            });
        }
        git.version = found;
        Ok(git)
    }

    /// Where the program is.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// What it calls itself, such as `git version 2.47.1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The same program with another time limit for each command (an hour otherwise).
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// With `program`, which is [`super::lfs_main`] when it is asked to, for files that Git LFS keeps
    /// elsewhere. Without one they are their pointers.
    #[must_use]
    pub fn with_lfs(mut self, program: PathBuf) -> Self {
        self.lfs_program = Some(program);
        self
    }

    pub(super) fn lfs_program(&self) -> Option<&Path> {
        self.lfs_program.as_deref()
    }

    /// A command that runs in `directory`. It has no repository until told which.
    pub(crate) fn command(&self, command: &'static str, directory: &Path) -> GitCommand<'_> {
        GitCommand {
            git: self,
            command,
            directory: directory.to_owned(),
            configuration: Vec::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
            magic_pathspecs: false,
            input: Input::Nothing,
            output_limit: OUTPUT_LIMIT,
        }
    }
}

/// What a command finds on its standard input.
enum Input {
    Nothing,
    Bytes(Vec<u8>),
    File(std::fs::File),
}

/// A git command that is being put together.
pub(crate) struct GitCommand<'a> {
    git: &'a Git,
    command: &'static str,
    directory: PathBuf,
    configuration: Vec<OsString>,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    magic_pathspecs: bool,
    input: Input,
    output_limit: usize,
}

impl GitCommand<'_> {
    /// The repository, named: nothing is discovered, so the `.git` of the working directory is not
    /// looked at, and no owner is compared.
    pub(crate) fn git_dir(self, path: &Path) -> Self {
        self.env("GIT_DIR", path)
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name, value.as_ref().to_owned()));
        self
    }

    pub(crate) fn config(mut self, setting: impl Into<OsString>) -> Self {
        self.configuration.push(setting.into());
        self
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    pub(crate) fn args<I: IntoIterator<Item = A>, A: AsRef<OsStr>>(mut self, arguments: I) -> Self {
        self.arguments
            .extend(arguments.into_iter().map(|each| each.as_ref().to_owned()));
        self
    }

    /// Lets pathspecs begin with `:(…)`; otherwise they are names.
    pub(crate) fn magic_pathspecs(mut self) -> Self {
        self.magic_pathspecs = true;
        self
    }

    pub(crate) fn input(mut self, bytes: Vec<u8>) -> Self {
        self.input = Input::Bytes(bytes);
        self
    }

    pub(crate) fn input_file(mut self, file: std::fs::File) -> Self {
        self.input = Input::File(file);
        self
    }

    /// The output, when the command ends with 0.
    pub(crate) fn run(self) -> Result<Vec<u8>, GitError> {
        self.run_with_codes(&[0]).map(|(_, output)| output)
    }

    /// The code and the output, when the code is one of `codes`.
    pub(crate) fn run_with_codes(self, codes: &[i32]) -> Result<(i32, Vec<u8>), GitError> {
        let mut output = Vec::new();
        let code = self.drive(&mut output, codes)?;
        Ok((code, output))
    }

    /// Streams the output, when the command ends with 0. What was written before a failure stays
    /// written.
    pub(crate) fn run_to(mut self, sink: &mut (dyn Write + Send)) -> Result<(), GitError> {
        self.output_limit = usize::MAX;
        self.drive(sink, &[0]).map(drop)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one constructor of git commands"
    )]
    fn build(&self) -> Command {
        let mut command = Command::new(&self.git.program);
        command
            .env_clear()
            // For the helpers of git itself, which are found through the program.
            .env("PATH", &self.git.search_path)
            // Messages are shown and logged; without a locale they are the same everywhere.
            .env("LC_ALL", "C")
            // The machine's and the person's settings may name programs, and change formats.
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_ATTR_NOSYSTEM", "1")
            // Nobody sits at this terminal.
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_PAGER", "cat")
            .env("GIT_EDITOR", ":")
            // A look must not write the index it looks at.
            .env("GIT_OPTIONAL_LOCKS", "0")
            // An object that is not there is an error, not a reason to call somewhere.
            .env("GIT_NO_LAZY_FETCH", "1")
            // A commit is what its id says.
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            // The reflog wants a name.
            .env("GIT_AUTHOR_NAME", "mini-ork")
            .env("GIT_AUTHOR_EMAIL", "mini-ork@local")
            .env("GIT_COMMITTER_NAME", "mini-ork")
            .env("GIT_COMMITTER_EMAIL", "mini-ork@local");
        if !self.magic_pathspecs {
            command.env("GIT_LITERAL_PATHSPECS", "1");
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        for setting in [
            // Settings of a repository that name a program, or a file outside.
            "core.hooksPath=/dev/null",
            "core.fsmonitor=false",
            "core.attributesFile=/dev/null",
            "core.excludesFile=/dev/null",
            // For git before GIT_NO_LAZY_FETCH: no transport may be started at all.
            "protocol.allow=never",
            // Housekeeping belongs to the owner of the repository.
            "gc.auto=0",
            "maintenance.auto=false",
            // A submodule has a configuration of its own.
            "submodule.recurse=false",
        ] {
            command.arg("-c").arg(setting);
        }
        for setting in &self.configuration {
            command.arg("-c").arg(setting);
        }
        command
            .arg(self.command)
            .args(&self.arguments)
            .current_dir(&self.directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // So that its helpers die with it at the deadline, and a Ctrl-C is ours to handle.
            .process_group(0);
        command
    }

    fn drive(mut self, sink: &mut (dyn Write + Send), codes: &[i32]) -> Result<i32, GitError> {
        let mut command = self.build();
        let input = match std::mem::replace(&mut self.input, Input::Nothing) {
            Input::Nothing => {
                command.stdin(Stdio::null());
                None
            }
            Input::File(file) => {
                command.stdin(Stdio::from(file));
                None
            }
            Input::Bytes(bytes) => {
                command.stdin(Stdio::piped());
                Some(bytes)
            }
        };
        let mut child = command.spawn().map_err(|source| GitError::Spawn {
            command: self.command,
            directory: self.directory.clone(),
            source,
        })?;
        let exchange = exchange(
            &mut child,
            input,
            sink,
            self.output_limit,
            self.git.deadline,
        );
        // After both pipes have ended there is nothing left for git to do; after a failed
        // exchange the group has been killed.
        let status = child.wait().map_err(|source| self.pipe_error(source))?;
        match exchange.end {
            End::Complete => {}
            End::DeadlinePassed => {
                return Err(GitError::TimedOut {
                    command: self.command,
                    directory: self.directory,
                    after: self.git.deadline,
                });
            }
            End::LimitReached => {
                return Err(GitError::TooMuchOutput {
                    command: self.command,
                    directory: self.directory,
                    limit: self.output_limit,
                });
            }
            End::Broken(source) => return Err(self.pipe_error(source)),
        }
        match status.code() {
            Some(code) if codes.contains(&code) => Ok(code),
            _ => Err(GitError::Failed {
                command: self.command,
                directory: self.directory,
                ending: ending(status),
                message: printable(&exchange.error_output),
            }),
        }
    }

    fn pipe_error(&self, source: io::Error) -> GitError {
        GitError::Pipe {
            command: self.command,
            directory: self.directory.clone(),
            source,
        }
    }
}

fn is_program(path: &Path) -> bool {
    fs_err::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("git version ")?.split('.');
    Some((
        numbers.next()?.parse().ok()?,
        numbers.next()?.split(' ').next()?.parse().ok()?,
    ))
}

fn ending(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("failed with code {code}"),
        None => status.to_string(),
    }
}

/// File names are in there, and they may hold what a terminal obeys.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let clean: String = text
        .chars()
        .map(|each| {
            if each.is_control() && each != '\n' {
                '\u{fffd}'
            } else {
                each
            }
        })
        .collect();
    clean.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn versions_of_all_makers_are_read() {
        assert_eq!(version("git version 2.39.5"), Some((2, 39)));
        assert_eq!(version("git version 2.50.1 (Apple Git-155)"), Some((2, 50)));
        assert_eq!(version("git version 2.38"), Some((2, 38)));
        assert_eq!(version("git version 3.0.rc1"), Some((3, 0)));
        assert_eq!(version("hub version 2"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn messages_hold_nothing_a_terminal_obeys() {
        assert_eq!(
            printable(b"bad \x1b]0;x\x07 name\nnext\n"),
            "bad \u{fffd}]0;x\u{fffd} name\nnext"
        );
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let git = Git::find(OsStr::new("/usr/local/bin:/usr/bin:/bin"))
            .unwrap()
            .with_deadline(Duration::from_millis(300));
        // Nobody writes to this pipe, and it stays open.
        let (reader, _writer) = io::pipe().unwrap();
        let before = Instant::now();
        let error = git
            .command("hash-object", Path::new("/"))
            .arg("--stdin")
            .input_file(std::fs::File::from(std::os::fd::OwnedFd::from(reader)))
            .run()
            .unwrap_err();
        assert!(matches!(error, GitError::TimedOut { .. }), "{error}");
        assert!(before.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn failures_say_what_where_and_why() {
        let error = Git::find(OsStr::new("relative:/nonexistent")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "found no git program on the search path `relative:/nonexistent`"
        );

        let git = Git::find(OsStr::new("/usr/local/bin:/usr/bin:/bin")).unwrap();
        let place = tempfile::tempdir().unwrap();
        let error = git
            .command("rev-parse", place.path())
            .arg("HEAD")
            .run()
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("`git rev-parse`") && text.contains("128"),
            "{text}"
        );
        assert!(text.contains(&place.path().display().to_string()), "{text}");
        assert!(text.contains("not a git repository"), "{text}");
    }

    #[test]
    fn output_has_a_limit_and_input_is_delivered_whole() {
        let git = Git::find(OsStr::new("/usr/local/bin:/usr/bin:/bin")).unwrap();
        let place = tempfile::tempdir().unwrap();
        let bytes = vec![b'x'; 3 << 20];
        let hash = git
            .command("hash-object", place.path())
            .args(["--stdin"])
            .input(bytes.clone())
            .run()
            .unwrap();
        assert_eq!(hash.len(), 41);
        let mut command = git.command("stripspace", place.path()).input(bytes);
        command.output_limit = 1 << 20;
        assert!(matches!(
            command.run().unwrap_err(),
            GitError::TooMuchOutput { .. }
        ));
    }
}
