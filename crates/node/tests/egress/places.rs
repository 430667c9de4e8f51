//! Workspaces of the backends that have a network policy, with everything that they need.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fs_err::os::unix::fs::symlink;
use mini_ork_node::confine::ConfineError;
use mini_ork_node::egress::{NetworkPolicy, Resolve};
use mini_ork_node::supervise::{STDERR_LOG, STDOUT_LOG, Supervisor};
use mini_ork_node::workspace::docker::DockerSettings;
use mini_ork_node::workspace::{
    Access, BackendSettings, ConfinedSettings, Drive, Share, SpawnRequest, Workspace,
    WorkspaceError, WorkspaceProcess, open,
};
use mini_ork_protocol::{ByteString, StdinSource};
use mini_ork_testkit::{ContainerEngine, skip, static_node_program};
use tokio::runtime::Runtime;

const PROGRAM: &str = env!("CARGO_BIN_EXE_mini-ork-node");
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A workspace with a directory `work` for programs, and the outside that serves it.
pub(crate) struct Place {
    pub(crate) backend: &'static str,
    pub(crate) settings: BackendSettings,
    pub(crate) drive: Drive,
    runtime: Option<Runtime>,
    workspace: Option<Arc<dyn Workspace>>,
    started: AtomicUsize,
    pub(crate) engine: Option<ContainerEngine>,
    pub(crate) root: tempfile::TempDir,
}

impl Place {
    /// A confined one on this machine; none where the machine forbids it.
    pub(crate) fn confined(
        network: NetworkPolicy,
        resolver: Arc<dyn Resolve>,
        authorities: Vec<PathBuf>,
    ) -> Option<Self> {
        let mut place = Self::new("local", network, resolver, authorities);
        match place.come() {
            Err(WorkspaceError::Confine(ConfineError::Refused(reason))) => {
                skip(&reason);
                None
            }
            come => {
                come.unwrap();
                Some(place)
            }
        }
    }

    /// A container with the programs of this machine, and `trusted` as the certificates of its
    /// image; none where there is no engine.
    pub(crate) fn in_container(
        network: NetworkPolicy,
        resolver: Arc<dyn Resolve>,
        authorities: Vec<PathBuf>,
        trusted: &str,
    ) -> Option<Self> {
        let bridge = network == NetworkPolicy::Full;
        let mut place = Self::made(network, resolver, authorities, trusted, bridge)?;
        place.come().unwrap();
        Some(place)
    }

    /// The same, and nobody has come yet. The engine may have a network for containers that ask
    /// for it.
    pub(crate) fn made(
        network: NetworkPolicy,
        resolver: Arc<dyn Resolve>,
        authorities: Vec<PathBuf>,
        trusted: &str,
        bridge: bool,
    ) -> Option<Self> {
        let node_program = static_node_program()?;
        let engine = if bridge {
            ContainerEngine::start_with_bridge()?
        } else {
            ContainerEngine::start()?
        };
        let mut place = Self::new("docker", network, resolver, authorities);
        let image = place.root.path().join("image");
        for directory in ["usr", "etc/ssl/certs", "tmp", "proc", "sys", "dev", "root"] {
            fs_err::create_dir_all(image.join(directory)).unwrap();
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            symlink(format!("usr/{name}"), image.join(name)).unwrap();
        }
        let users = "root:x:0:0:root:/root:/bin/sh\n";
        fs_err::write(image.join("etc/passwd"), users).unwrap();
        let bundle = image.join("etc/ssl/certs/ca-certificates.crt");
        fs_err::write(bundle, trusted).unwrap();
        place.settings.docker = DockerSettings {
            endpoint: engine.endpoint(),
            image: Some(engine.import(&image, "mini-ork-test-place")),
            node_program,
            ..DockerSettings::default()
        };
        // The programs of this machine, and those of Rust.
        for path in [Path::new("/usr"), toolchain()] {
            place.drive.shares.push(Share {
                host: path.to_owned(),
                inside: path.to_owned(),
                access: Access::ReadOnly,
            });
        }
        place.engine = Some(engine);
        Some(place)
    }

    fn new(
        backend: &'static str,
        network: NetworkPolicy,
        resolver: Arc<dyn Resolve>,
        authorities: Vec<PathBuf>,
    ) -> Self {
        let root = tempfile::tempdir().unwrap();
        let share = |name: &str, inside: &str| {
            fs_err::create_dir(root.path().join(name)).unwrap();
            Share {
                host: root.path().join(name),
                inside: Path::new("/workspace").join(inside),
                access: Access::ReadWrite,
            }
        };
        let shares = vec![
            share("nodes", "run/nodes"),
            share("work", "target"),
            share("home", "home"),
        ];
        let private = root.path().join("private");
        fs_err::create_dir(&private).unwrap();
        Self {
            backend,
            settings: BackendSettings {
                supervisor: Supervisor::new(PROGRAM.into()),
                docker: DockerSettings::default(),
                confined: ConfinedSettings {
                    program: PROGRAM.into(),
                    ..ConfinedSettings::default()
                },
                network,
                resolver,
                authorities,
            },
            drive: Drive {
                name: format!("place-{}", std::process::id()),
                private,
                proof: root.path().join("nodes"),
                shares,
            },
            runtime: None,
            workspace: None,
            started: AtomicUsize::new(0),
            engine: None,
            root,
        }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    /// The outside is there, and goes on in the sandbox that it finds.
    pub(crate) fn come(&mut self) -> Result<(), WorkspaceError> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        let workspace = open(self.backend, &self.settings).unwrap();
        runtime.block_on(workspace.up(&self.drive))?;
        self.runtime = Some(runtime);
        self.workspace = Some(workspace);
        Ok(())
    }

    /// The outside is gone, as when it was killed: its connections are cut.
    pub(crate) fn leave(&mut self) {
        self.workspace = None;
        self.runtime = None;
    }

    pub(crate) fn workspace(&self) -> &dyn Workspace {
        self.workspace.as_deref().unwrap()
    }

    /// Serves what is inside for as long as `work` takes.
    pub(crate) fn serve<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.as_ref().unwrap().block_on(work)
    }

    /// Serves what is inside until something has happened.
    #[track_caller]
    pub(crate) fn serve_until(&self, what: &str, condition: impl Fn() -> bool) {
        let until = Instant::now() + PATIENCE;
        let happened = self.serve(async {
            while !condition() {
                if Instant::now() > until {
                    return false;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            true
        });
        assert!(happened, "{what} did not happen");
    }

    /// Starts a script in a shell; what it says is in the file that is returned.
    pub(crate) fn start(&self, script: &str) -> (Box<dyn WorkspaceProcess>, PathBuf) {
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        let directory = self.drive.proof.join(number.to_string());
        let workspace = self.workspace();
        let path = format!("{}/bin:/usr/local/bin:/usr/bin:/bin", toolchain().display());
        let mut env: Vec<(ByteString, ByteString)> = workspace
            .environment(&[])
            .into_iter()
            .filter(|(name, _)| name != "PATH")
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        env.push(("PATH".into(), path.as_str().into()));
        let request = SpawnRequest {
            directory: directory.clone(),
            argv: ["/bin/sh", "-c", script].map(ByteString::from).to_vec(),
            cwd: self.work(),
            env,
            stdin: StdinSource::Null,
            timeout: Some(4 * PATIENCE),
            grace: Duration::from_secs(1),
            output_limit: 1 << 20,
            secrets: Vec::new(),
        };
        let process = self.serve(workspace.spawn(request)).unwrap();
        (process, directory.join(STDOUT_LOG))
    }

    /// Runs a script to its end and returns what it said.
    pub(crate) fn run(&self, script: &str) -> String {
        let (process, log) = self.start(script);
        self.serve(process.wait()).unwrap();
        let complaints = fs_err::read_to_string(log.with_file_name(STDERR_LOG)).unwrap();
        fs_err::read_to_string(log).unwrap() + &complaints
    }

    /// Kills the server of the sandbox: the child of the first process, with the same command line.
    pub(crate) fn kill_server(&self) {
        let serving = self.processes("serve");
        let parent = |pid: i32| {
            let status = fs_err::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
            line.and_then(|number| number.trim().parse().ok())
        };
        let of_another = |pid: &i32| parent(*pid).is_some_and(|parent| serving.contains(&parent));
        let server = serving.iter().copied().find(of_another);
        kill(server.unwrap_or_else(|| panic!("{serving:?}")));
    }

    /// Kills the connections to the sandbox; returns how many there were.
    pub(crate) fn cut(&self) -> usize {
        let bridges = self.processes("bridge");
        bridges.iter().copied().for_each(kill);
        bridges.len()
    }

    /// The processes of the sandbox that have `argument` on their command line.
    fn processes(&self, argument: &str) -> Vec<i32> {
        let mark = self.root.path().file_name().unwrap().to_str().unwrap();
        let mut found = Vec::new();
        for entry in fs_err::read_dir("/proc").unwrap().flatten() {
            let read = |name| fs_err::read(entry.path().join(name)).unwrap_or_default();
            let command = String::from_utf8_lossy(&read("cmdline")).into_owned();
            let mounts = String::from_utf8_lossy(&read("mountinfo")).into_owned();
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.parse::<i32>().ok());
            if command.split('\0').any(|own| own == argument) && mounts.contains(mark) {
                found.extend(pid);
            }
        }
        found
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let workspace = open(self.backend, &self.settings).unwrap();
        self.leave();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        let down = runtime.block_on(workspace.down(&self.drive));
        if !std::thread::panicking() {
            down.unwrap();
            let engine = self.engine.as_ref();
            let left = engine.map(ContainerEngine::containers).unwrap_or_default();
            assert_eq!(left, Vec::<String>::new());
        }
    }
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// The directory of Rust's programs.
fn toolchain() -> &'static Path {
    Path::new(env!("CARGO")).ancestors().nth(2).unwrap()
}
