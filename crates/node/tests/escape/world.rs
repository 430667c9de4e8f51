use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mini_ork_node::egress::{NetworkPolicy, SystemResolver};
use mini_ork_node::supervise::{STDERR_LOG, STDOUT_LOG, Supervisor};
use mini_ork_node::workspace::docker::{self, ContainerLimits, DockerSettings};
use mini_ork_node::workspace::{
    Access, BackendSettings, ConfinedBoundary, ConfinedSettings, Drive, Ledger, Share,
    SpawnRequest, Workspace, WorkspaceProcess, open,
};
use mini_ork_protocol::{ByteString, ExitOutcome, ExitRecord, StdinSource};
use mini_ork_testkit::{ContainerEngine, skip, static_node_program};

const NODE_PROGRAM: &str = env!("CARGO_BIN_EXE_mini-ork-node");
const ATTACKER: &str = env!("CARGO_BIN_EXE_mini-ork-node-test-attacker");
const ATTACKER_NAME: &str = "mini-ork-node-test-attacker";
const PATIENCE: Duration = Duration::from_secs(150);

/// A boundary under attack.
pub(crate) struct World {
    backend: &'static str,
    settings: BackendSettings,
    attacker: String,
    place: tempfile::TempDir,
    /// Ends after everything else.
    engine: Option<ContainerEngine>,
}

impl World {
    /// Containers on an engine of their own; `None` where none can be started.
    pub(crate) fn of_containers(limits: ContainerLimits) -> Option<Self> {
        Self::on(ContainerEngine::start()?, None, limits)
    }

    /// Containers on `engine`, made with `runtime`.
    pub(crate) fn on(
        engine: ContainerEngine,
        runtime: Option<&str>,
        limits: ContainerLimits,
    ) -> Option<Self> {
        let node_program = static_node_program()?;
        let docker = DockerSettings {
            runtime: runtime.map(ToOwned::to_owned),
            endpoint: engine.endpoint(),
            image: Some(engine.image_of_this_machine(&[
                "sh", "sleep", "rm", "ln", "mkdir", "mkfifo", "mv", "setsid", "env", "kill", "cat",
                "head", "tr", "truncate", "ls", ATTACKER,
            ])),
            node_program,
            limits,
            ..DockerSettings::default()
        };
        Some(Self {
            backend: "docker",
            settings: settings(docker, ConfinedSettings::default()),
            attacker: ATTACKER_NAME.to_owned(),
            place: tempfile::tempdir().unwrap(),
            engine: Some(engine),
        })
    }

    /// Namespaces of this machine; `None` where they are forbidden.
    pub(crate) fn of_namespaces() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let confined = ConfinedSettings {
            program: NODE_PROGRAM.into(),
            hidden: vec![place.path().to_owned()],
            ..ConfinedSettings::default()
        };
        let check = place.path().join("check");
        fs_err::create_dir(&check).unwrap();
        if let Err(error) = ConfinedBoundary::new(confined.clone()).check(&check) {
            skip(&error.to_string());
            return None;
        }
        Some(Self {
            backend: "local",
            settings: settings(DockerSettings::default(), confined),
            attacker: ATTACKER.to_owned(),
            place,
            engine: None,
        })
    }

    /// The workspace of another run.
    pub(crate) async fn workspace(&self, name: &str) -> Inside<'_> {
        self.workspace_at(name, &self.place.path().join(name)).await
    }

    /// The same with the drive at `place`.
    pub(crate) async fn workspace_at(&self, name: &str, place: &Path) -> Inside<'_> {
        let share = |host: &str, inside: &str| Share {
            host: place.join(host),
            inside: inside.into(),
            access: Access::ReadWrite,
        };
        let drive = Drive {
            name: name.to_owned(),
            private: place.join("private"),
            proof: place.join("nodes"),
            shares: vec![
                share("nodes", "/workspace/run/nodes"),
                share("worktree", "/workspace/target"),
                share("home", "/workspace/home"),
            ],
        };
        let workspace = self.open();
        workspace.up(&drive).await.unwrap();
        Inside {
            world: self,
            workspace,
            root: place.join("worktree"),
            drive,
            counter: AtomicU32::new(0),
        }
    }

    fn open(&self) -> Arc<dyn Workspace> {
        open(self.backend, &self.settings).unwrap()
    }

    /// The containers of this world on the engine that `ledger` does not know, by their runs.
    pub(crate) async fn strays(&self, ledger: &Ledger) -> Vec<String> {
        let endpoint = &self.settings.docker.endpoint;
        let strays = docker::strays(endpoint, self.place.path(), ledger).await;
        strays.unwrap().into_iter().map(|(_, run)| run).collect()
    }

    fn engine_socket(&self) -> String {
        let endpoint = &self.settings.docker.endpoint;
        endpoint
            .strip_prefix("unix://")
            .unwrap_or_default()
            .to_owned()
    }

    #[track_caller]
    pub(crate) fn assert_nothing_is_left(&self) {
        if let Some(engine) = &self.engine {
            assert_eq!(engine.containers(), Vec::<String>::new());
        }
    }
}

fn settings(docker: DockerSettings, confined: ConfinedSettings) -> BackendSettings {
    BackendSettings {
        supervisor: Supervisor::new(NODE_PROGRAM.into()),
        docker,
        confined,
        network: NetworkPolicy::None,
        resolver: Arc::new(SystemResolver),
        authorities: Vec::new(),
    }
}

/// A workspace, seen from outside.
pub(crate) struct Inside<'a> {
    world: &'a World,
    pub(crate) workspace: Arc<dyn Workspace>,
    pub(crate) drive: Drive,
    /// The worktree, as this machine has it.
    pub(crate) root: PathBuf,
    counter: AtomicU32,
}

impl Inside<'_> {
    pub(crate) fn request(&self, argv: &[&str]) -> SpawnRequest {
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        let given = self.drive.shares.iter();
        let given: Vec<String> = given
            .map(|share| self.workspace.inside(&share.host).display().to_string())
            .collect();
        SpawnRequest {
            directory: self.drive.proof.join(format!("node-{number}/1.1/lane")),
            argv: argv.iter().copied().map(ByteString::from).collect(),
            cwd: self.root.clone(),
            env: vec![
                ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
                ("GIVEN".into(), given.join(":").as_str().into()),
                (
                    "ENGINE_SOCKET".into(),
                    self.world.engine_socket().as_str().into(),
                ),
                (
                    "SECRET_HALVES".into(),
                    self.token_in_halves().as_str().into(),
                ),
            ],
            stdin: StdinSource::Null,
            timeout: Some(Duration::from_secs(100)),
            grace: Duration::from_secs(1),
            output_limit: 1 << 24,
            secrets: Vec::new(),
        }
    }

    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::at(self.drive.private.clone())
    }

    /// What opens the session, in hexadecimal digits.
    fn token_in_halves(&self) -> String {
        let record = self.ledger().read(&self.drive.name).unwrap();
        let token = record.unwrap().token.expose().to_vec();
        assert!(token.len() >= 16, "{token:?}");
        let digits: Vec<String> = token.iter().map(|byte| format!("{byte:02x}")).collect();
        let (first, second) = digits.split_at(digits.len() / 2);
        format!("{} {}", first.concat(), second.concat())
    }

    pub(crate) async fn start(&self, request: SpawnRequest) -> Running {
        let directory = request.directory.clone();
        let process = self.workspace.spawn(request).await.unwrap();
        Running { process, directory }
    }

    /// Runs the attacker with `arguments`.
    pub(crate) async fn attack(&self, arguments: &[&str]) -> Ended {
        self.start(self.attack_request(arguments))
            .await
            .wait()
            .await
    }

    pub(crate) fn attack_request(&self, arguments: &[&str]) -> SpawnRequest {
        let argv: Vec<&str> = std::iter::once(self.world.attacker.as_str())
            .chain(arguments.iter().copied())
            .collect();
        self.request(&argv)
    }

    /// What a shell script says, which has to end well.
    pub(crate) async fn say(&self, script: &str) -> String {
        let ended = self
            .start(self.request(&["sh", "-c", script]))
            .await
            .wait()
            .await;
        assert_eq!(ended.code(), Some(0), "{script}: {ended:?}");
        ended.stdout
    }

    /// As the next control plane does it.
    pub(crate) async fn reopen(&self) -> Arc<dyn Workspace> {
        let workspace = self.world.open();
        workspace.up(&self.drive).await.unwrap();
        workspace
    }

    pub(crate) async fn down(&self) {
        self.workspace.down(&self.drive).await.unwrap();
    }
}

pub(crate) struct Running {
    pub(crate) process: Box<dyn WorkspaceProcess>,
    pub(crate) directory: PathBuf,
}

impl Running {
    pub(crate) async fn wait(&self) -> Ended {
        self.ended(self.process.wait().await.unwrap())
    }

    /// The same where the server dies more often than anybody asks again.
    pub(crate) async fn wait_patiently(&self) -> Ended {
        loop {
            if let Ok(record) = self.process.wait().await {
                return self.ended(record);
            }
        }
    }

    fn ended(&self, record: ExitRecord) -> Ended {
        let text = |name: &str| {
            let bytes = fs_err::read(self.directory.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ended {
            record,
            stdout: text(STDOUT_LOG),
            stderr: text(STDERR_LOG),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) record: ExitRecord,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        match self.record.outcome {
            ExitOutcome::Exited { code } => Some(code),
            _ => None,
        }
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.unwrap() })
}
