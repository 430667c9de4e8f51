use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::TestEnv;

/// Longer than any command of a test takes on a slow machine.
const LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(3);

/// A value of the environment of the test run itself.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where tests read their environment"
)]
pub(crate) fn ambient(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The one constructor of programs that tests start. Nothing of the environment is inherited but
/// where programs and the Rust toolchain lie.
#[expect(
    clippy::disallowed_methods,
    reason = "the one constructor of programs that tests start"
)]
pub(crate) fn command(env: &TestEnv, program: &OsStr) -> Command {
    let mut path = env.bin().into_os_string();
    if let Some(ambient) = ambient("PATH") {
        path.push(":");
        path.push(ambient);
    }
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", path)
        .env("HOME", env.user_home())
        .env("TMPDIR", env.root().join("tmp"))
        .env("CARGO_HOME", env.cargo_home())
        .current_dir(env.root());
    for name in ["RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"] {
        if let Some(value) = ambient(name) {
            command.env(name, value);
        }
    }
    let rustup = ambient("RUSTUP_HOME").or_else(|| {
        let home = PathBuf::from(ambient("HOME")?).join(".rustup");
        home.is_dir().then(|| home.into_os_string())
    });
    if let Some(rustup) = rustup {
        command.env("RUSTUP_HOME", rustup);
    }
    command
}

/// A program of this world that is about to be called.
#[derive(Debug)]
pub struct Call<'a> {
    env: &'a TestEnv,
    command: Command,
    stdin: Vec<u8>,
    limit: Duration,
}

impl<'a> Call<'a> {
    pub(crate) fn new<A: AsRef<OsStr>>(
        env: &'a TestEnv,
        program: &OsStr,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let mut command = command(env, program);
        command.args(arguments);
        Self {
            env,
            command,
            stdin: Vec::new(),
            limit: LIMIT,
        }
    }

    /// In `directory`, not in the root of the world.
    #[must_use]
    pub fn cwd(mut self, directory: impl AsRef<Path>) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// With another argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// With a variable in its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Without one of the variables that it gets otherwise.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// With `bytes` on its standard input, which is empty otherwise.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Killed after `limit` (2 minutes otherwise), which fails the test.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    #[must_use]
    pub(crate) fn user(mut self, user: u32) -> Self {
        self.command.uid(user).gid(user);
        self
    }

    /// Starts it and returns at once.
    #[track_caller]
    pub fn spawn(mut self) -> Running {
        let shown = format!("{:?}", self.command);
        let io = self
            .env
            .root()
            .join("io")
            .join(self.env.count().to_string());
        let file = |extension: &str| io.with_extension(extension);
        fs_err::write(file("stdin"), &self.stdin).unwrap();
        let stdin: File = fs_err::File::open(file("stdin")).unwrap().into();
        let create = |path: PathBuf| -> File { fs_err::File::create(path).unwrap().into() };
        let child = self
            .command
            .stdin(stdin)
            .stdout(create(file("stdout")))
            .stderr(create(file("stderr")))
            .spawn()
            .unwrap_or_else(|error| panic!("{shown} cannot be started: {error}"));
        Running {
            child,
            shown,
            stdout: file("stdout"),
            stderr: file("stderr"),
            until: Instant::now() + self.limit,
        }
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn run(self) -> Output {
        self.spawn().wait()
    }
}

/// A program that runs.
#[derive(Debug)]
pub struct Running {
    child: Child,
    shown: String,
    stdout: PathBuf,
    stderr: PathBuf,
    until: Instant,
}

impl Running {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// What it has written to standard output so far.
    pub fn stdout_so_far(&self) -> String {
        lossy(&self.stdout)
    }

    /// What it has written to standard error so far.
    pub fn stderr_so_far(&self) -> String {
        lossy(&self.stderr)
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(mut self) -> Output {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > self.until {
                self.child.kill().unwrap();
                self.child.wait().unwrap();
                panic!("{} did not end in time\n{}", self.shown, self.transcript());
            }
            std::thread::sleep(PAUSE);
        };
        Output {
            status,
            shown: format!("{}\n{}", self.shown, self.transcript()),
            stdout: fs_err::read(&self.stdout).unwrap(),
            stderr: fs_err::read(&self.stderr).unwrap(),
        }
    }

    fn transcript(&self) -> String {
        format!(
            "--- stdout\n{}\n--- stderr\n{}",
            self.stdout_so_far(),
            self.stderr_so_far()
        )
    }
}

/// A program that has ended.
#[derive(Debug)]
pub struct Output {
    status: ExitStatus,
    shown: String,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Its exit code; none when a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The call, and all that it said.
    pub fn transcript(&self) -> &str {
        &self.shown
    }

    /// Panics unless it ended with `code`.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code(), Some(code), "{}", self.shown);
        self
    }

    /// Panics unless it was ended by SIGKILL: a fault point was passed.
    #[track_caller]
    pub fn expect_killed(self) -> Self {
        assert_eq!(self.signal(), Some(Signal::KILL.as_raw()), "{}", self.shown);
        self
    }

    /// Standard output, which must be one JSON object on one line and nothing else.
    #[track_caller]
    pub fn json(&self) -> Value {
        let text = self.text();
        let line = text
            .strip_suffix('\n')
            .filter(|line| !line.contains('\n'))
            .unwrap_or_else(|| panic!("not one line: {}", self.shown));
        let value: Value = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("no JSON: {error}\n{}", self.shown));
        assert!(value.is_object(), "{}", self.shown);
        value
    }
}

fn lossy(path: &Path) -> String {
    let bytes = fs_err::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
