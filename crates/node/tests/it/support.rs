use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fs_err::os::unix::fs::OpenOptionsExt as _;
use mini_ork_node::supervise::{
    STDERR_LOG, STDOUT_LOG, SUPERVISE_ARGUMENT, SupervisedProcess, Supervisor,
};
use mini_ork_protocol::{
    ByteString, Containment, ExitRecord, GENERATION, ProcessSpec, StdinSource,
};

pub(crate) const NODE_PROGRAM: &str = env!("CARGO_BIN_EXE_mini-ork-node");
pub(crate) const WATCHER_PROGRAM: &str = env!("CARGO_BIN_EXE_mini-ork-node-test-watcher");
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A private directory, a supervisor, and a word that is in the command line of every process of
/// this test and of no other.
pub(crate) struct World {
    pub(crate) root: tempfile::TempDir,
    pub(crate) supervisor: Supervisor,
    pub(crate) token: String,
}

impl World {
    pub(crate) fn new() -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        Self {
            root: tempfile::tempdir().unwrap(),
            supervisor: Supervisor::new(NODE_PROGRAM.into()),
            // Also a number of seconds, so that it can be what `sleep` sleeps.
            token: format!("99{}{number:04}", std::process::id()),
        }
    }

    /// One whose supervisors see no cgroup. None without the right to take it from their sight;
    /// then no supervisor here has one anyway.
    pub(crate) fn without_cgroup() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let mut world = Self::new();
        let wrapper = world.root.path().join("supervisor");
        let script = format!(
            "#!/bin/sh\nexport PATH={PATH}\nexec unshare -m sh -c \
             'mount -t tmpfs none /sys/fs/cgroup && exec {NODE_PROGRAM} \"$@\"' sh \"$@\"\n"
        );
        write_program(&wrapper, &script);
        world.supervisor = Supervisor::new(wrapper);
        Some(world)
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.root.path().join("records")
    }

    pub(crate) fn read_stdout(&self) -> Vec<u8> {
        fs_err::read(self.directory().join(STDOUT_LOG)).unwrap()
    }

    pub(crate) fn read_stderr(&self) -> Vec<u8> {
        fs_err::read(self.directory().join(STDERR_LOG)).unwrap()
    }

    /// `sh -c SCRIPT`, with the token as `$0`, which subshells inherit.
    pub(crate) fn shell(&self, script: &str) -> ProcessSpec {
        self.spec(&["sh", "-c", script, &self.token])
    }

    pub(crate) fn spec(&self, argv: &[&str]) -> ProcessSpec {
        ProcessSpec {
            generation: GENERATION,
            argv: argv.iter().copied().map(ByteString::from).collect(),
            cwd: ByteString::from(self.root.path()),
            env: vec![
                ("PATH".into(), PATH.into()),
                ("TOKEN".into(), self.token.as_str().into()),
            ],
            stdin: StdinSource::Null,
            marker: format!("marker-{}", self.token),
            timeout_ms: None,
            grace_ms: 10_000,
            output_limit: 1 << 40,
            secrets: Vec::new(),
        }
    }

    pub(crate) async fn start(&self, spec: &ProcessSpec) -> SupervisedProcess {
        self.supervisor
            .start(&self.directory(), spec)
            .await
            .unwrap()
    }

    pub(crate) async fn run(&self, spec: &ProcessSpec) -> ExitRecord {
        self.start(spec).await.wait().await.unwrap()
    }

    /// The processes of this test that run.
    pub(crate) fn processes(&self) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs_err::read_dir("/proc").unwrap() {
            let path = entry.unwrap().path();
            let bytes = fs_err::read(path.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&bytes).replace('\0', " ");
            if line.contains(&self.token) {
                found.push(format!("{}: {line}", path.display()));
            }
        }
        found
    }

    pub(crate) fn assert_nothing_is_left(&self) {
        assert_eq!(self.processes(), Vec::<String>::new());
    }

    pub(crate) fn wait_for_processes(&self, count: usize) {
        wait_until(&format!("{count} processes"), || {
            self.processes().len() >= count
        });
    }
}

impl Drop for World {
    /// A test that fails must not leave a busy loop behind.
    fn drop(&mut self) {
        for line in self.processes() {
            let pid = line
                .trim_start_matches("/proc/")
                .split(':')
                .next()
                .unwrap_or_default();
            if let Some(pid) = pid.parse().ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

pub(crate) fn containment(process: &SupervisedProcess) -> Containment {
    process.record().unwrap().containment
}

pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "no {what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { tokio::time::timeout(2 * PATIENCE, future).await.unwrap() })
}

pub(crate) fn write_program(path: &Path, script: &str) {
    use std::io::Write as _;
    let mut options = fs_err::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o700)
        .open(path)
        .unwrap();
    file.write_all(script.as_bytes()).unwrap();
}

/// The one constructor of the program that plays the control plane.
#[expect(
    clippy::disallowed_methods,
    reason = "the one constructor of the watcher"
)]
pub(crate) fn watcher() -> Command {
    let mut command = Command::new(WATCHER_PROGRAM);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// A supervisor whose other side is up to the test.
#[expect(
    clippy::disallowed_methods,
    reason = "the one constructor of a supervisor without a client"
)]
pub(crate) fn supervisor_alone(directory: &Path) -> Command {
    let mut command = Command::new(NODE_PROGRAM);
    command.arg(SUPERVISE_ARGUMENT).arg(directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}
