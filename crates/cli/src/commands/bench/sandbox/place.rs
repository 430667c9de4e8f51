use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mini_ork_control::run::now_ms;
use mini_ork_node::supervise::STDERR_LOG;
use mini_ork_node::workspace::{
    self, Access, BackendSettings, Drive, Share, SpawnRequest, Workspace,
};
use mini_ork_protocol::{ByteString, ExitOutcome, StdinSource};

use super::super::lab::{Lab, failed, milliseconds};
use crate::error::CommandError;

/// Longer than anything that is measured.
const LIMIT: Duration = Duration::from_secs(600);
const MOST_OUTPUT: u64 = 64 << 20;

/// A workspace with directories as a run has them.
pub(super) struct Place<'a> {
    lab: &'a Lab,
    workspace: Arc<dyn Workspace>,
    drive: Drive,
    root: PathBuf,
    programs: Cell<u32>,
}

impl<'a> Place<'a> {
    pub(super) fn new(
        lab: &'a Lab,
        backend: &str,
        settings: &BackendSettings,
        name: &str,
    ) -> Result<Self, CommandError> {
        let workspace = workspace::open(backend, settings).map_err(|error| failed(&error))?;
        let root = lab.root().join("places").join(name);
        for directory in ["nodes", "target", "home", "private"] {
            fs_err::create_dir_all(root.join(directory)).map_err(|error| failed(&error))?;
        }
        let share = |name: &str, inside: &str| Share {
            host: root.join(name),
            inside: Path::new("/workspace").join(inside),
            access: Access::ReadWrite,
        };
        let drive = Drive {
            name: format!("bench-{}-{}-{name}", std::process::id(), now_ms()),
            private: root.join("private"),
            proof: root.join("nodes"),
            shares: vec![
                share("nodes", "run/nodes"),
                share("target", "target"),
                share("home", "home"),
            ],
        };
        Ok(Self {
            lab,
            workspace,
            drive,
            root,
            programs: Cell::new(0),
        })
    }

    /// Its directory for files, on this machine.
    pub(super) fn target(&self) -> PathBuf {
        self.root.join("target")
    }

    /// The name of its container.
    pub(super) fn container(&self) -> String {
        format!("mini-ork-{}", self.drive.name)
    }

    pub(super) async fn up(&self) -> Result<(), CommandError> {
        let up = self.workspace.up(&self.drive).await;
        up.map_err(|error| failed(&error))
    }

    pub(super) async fn down(&self) -> Result<(), CommandError> {
        let down = self.workspace.down(&self.drive).await;
        down.map_err(|error| failed(&error))
    }

    /// Runs a program in the directory for files to a good end. In milliseconds, from before it is
    /// asked for until its end is known.
    pub(super) async fn run(&self, argv: &[&str]) -> Result<f64, CommandError> {
        let number = self.programs.get();
        self.programs.set(number + 1);
        let records = self.drive.proof.join(number.to_string());
        let own = [
            ("PATH".into(), self.lab.path().to_owned()),
            ("HOME".into(), self.root.join("home").into_os_string()),
        ];
        let environment = self.workspace.environment(&own).into_iter();
        let mut env: Vec<(ByteString, ByteString)> = environment
            .map(|(name, value)| (name.as_os_str().into(), value.as_os_str().into()))
            .collect();
        env.push(("GIT_OPTIONAL_LOCKS".into(), "0".into()));
        let request = SpawnRequest {
            directory: records.clone(),
            argv: argv.iter().copied().map(ByteString::from).collect(),
            cwd: self.target(),
            env,
            stdin: StdinSource::Null,
            timeout: Some(LIMIT),
            grace: Duration::from_secs(1),
            output_limit: MOST_OUTPUT,
            secrets: Vec::new(),
        };
        let began = Instant::now();
        let process = self.workspace.spawn(request).await;
        let process = process.map_err(|error| failed(&error))?;
        let ended = process.wait().await.map_err(|error| failed(&error))?;
        let took = milliseconds(began);
        if ended.outcome != (ExitOutcome::Exited { code: 0 }) {
            let said = fs_err::read(records.join(STDERR_LOG)).unwrap_or_default();
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            let what = argv.join(" ");
            return Err(
                CommandError::failure(format!("`{what}` failed in a sandbox")).details([said]),
            );
        }
        Ok(took)
    }

    /// Whether the program `name` can be run.
    pub(super) async fn has(&self, name: &str) -> bool {
        self.run(&[name, "--version"]).await.is_ok()
    }
}
