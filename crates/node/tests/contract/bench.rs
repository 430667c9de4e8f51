use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mini_ork_node::supervise::{STDERR_LOG, STDOUT_LOG};
use mini_ork_node::workspace::{Drive, SpawnRequest, Workspace, WorkspaceProcess};
use mini_ork_protocol::{ByteString, ExitOutcome, ExitRecord, StdinSource};

const PATIENCE: Duration = Duration::from_secs(60);
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A backend under test.
pub(crate) struct Bench {
    pub(crate) workspace: Arc<dyn Workspace>,
    pub(crate) drive: Drive,
    /// A directory of this machine that programs can write to.
    pub(crate) root: PathBuf,
    /// The workspace as the next control plane opens it.
    pub(crate) reopen: Box<dyn Fn() -> Arc<dyn Workspace>>,
    /// Its first process, as its programs see it; none without a session server.
    pub(crate) init: Option<u32>,
    /// Whether its loopback addresses are not those of this machine.
    own_network: bool,
    counter: AtomicU32,
}

impl Bench {
    pub(crate) fn new(
        drive: Drive,
        root: PathBuf,
        reopen: Box<dyn Fn() -> Arc<dyn Workspace>>,
        init: Option<u32>,
        own_network: bool,
    ) -> Self {
        Self {
            workspace: reopen(),
            drive,
            root,
            reopen,
            init,
            own_network,
            counter: AtomicU32::new(0),
        }
    }

    pub(crate) fn has_a_server(&self) -> bool {
        self.init.is_some()
    }

    pub(crate) fn has_a_network_of_its_own(&self) -> bool {
        self.own_network
    }

    pub(crate) fn has_a_way_in(&self) -> bool {
        self.workspace.way_in().is_some()
    }

    /// A record directory of its own.
    pub(crate) fn records(&self) -> PathBuf {
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        self.drive.proof.join(format!("records-{number}"))
    }

    /// A word that is in the command line of a case's processes and of no other.
    pub(crate) fn token(&self) -> String {
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        format!("97{}{number:04}", std::process::id())
    }

    pub(crate) fn shell(&self, script: &str) -> SpawnRequest {
        self.request(&["sh", "-c", script])
    }

    pub(crate) fn request(&self, argv: &[&str]) -> SpawnRequest {
        SpawnRequest {
            directory: self.records(),
            argv: argv.iter().copied().map(ByteString::from).collect(),
            cwd: self.root.clone(),
            env: vec![("PATH".into(), PATH.into())],
            stdin: StdinSource::Null,
            timeout: Some(Duration::from_secs(100)),
            grace: Duration::from_secs(2),
            output_limit: 1 << 30,
            secrets: Vec::new(),
        }
    }

    pub(crate) async fn start(&self, request: SpawnRequest) -> Running {
        let directory = request.directory.clone();
        let process = self.workspace.spawn(request).await.unwrap();
        Running { process, directory }
    }

    pub(crate) async fn run(&self, request: SpawnRequest) -> Ended {
        self.start(request).await.wait().await
    }

    /// What a shell script says, which has to end well.
    pub(crate) async fn say(&self, script: &str) -> String {
        let ended = self.run(self.shell(script)).await;
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.code(), Some(0), "{script}: {said} {complaint}");
        said
    }

    /// The command lines of processes that the workspace shows and that have `token` in them.
    pub(crate) async fn processes(&self, token: &str) -> String {
        let (first, rest) = token.split_at(2);
        // The shell that looks has it in two pieces.
        self.say(&format!(
            "a={first} b={rest}; for d in /proc/[0-9]*; do l=$(tr '\\0' ' ' < $d/cmdline 2>/dev/null); \
             case \"$l\" in *$a$b*) echo \"$d $l\";; esac; done"
        ))
        .await
    }
}

pub(crate) struct Running {
    pub(crate) process: Box<dyn WorkspaceProcess>,
    pub(crate) directory: PathBuf,
}

impl Running {
    pub(crate) async fn wait(&self) -> Ended {
        let record = self.process.wait().await.unwrap();
        Ended::of(record, &self.directory)
    }

    /// Waits until it has written `text`.
    pub(crate) async fn heard(&self, text: &str) {
        let log = self.directory.join(STDOUT_LOG);
        let wanted = text.to_owned();
        until(&format!("output {text:?}"), || {
            let said = fs_err::read(&log).unwrap_or_default();
            String::from_utf8_lossy(&said).contains(&wanted)
        })
        .await;
    }
}

pub(crate) struct Ended {
    pub(crate) record: ExitRecord,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Ended {
    pub(crate) fn of(record: ExitRecord, directory: &Path) -> Self {
        Self {
            record,
            stdout: fs_err::read(directory.join(STDOUT_LOG)).unwrap_or_default(),
            stderr: fs_err::read(directory.join(STDERR_LOG)).unwrap_or_default(),
        }
    }

    pub(crate) fn code(&self) -> Option<i32> {
        match self.record.outcome {
            ExitOutcome::Exited { code } => Some(code),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "no {what} within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { tokio::time::timeout(2 * PATIENCE, future).await.unwrap() })
}
