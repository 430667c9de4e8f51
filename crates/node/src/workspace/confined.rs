use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use mini_ork_protocol::{ByteString, ProcessIdentity, SecretBytes};
use tokio::net::UnixStream;

use super::{Access, Drive, Share, WorkspaceError};
use crate::confine::{self, Confinement, SOCKET_DESCRIPTOR, confine};
use crate::egress::{AllowList, LoopbackPlan};
use crate::session::{Boundary, Channel, DialError, Dialer, SERVE_ARGUMENT, Sandbox};
use crate::sys::files::read_bounded;
use crate::sys::{process, random_bytes};

/// Files in the private directory of a drive.
const TOKEN: &str = "token";
const FIRST: &str = "first.json";
const SOCKET: &str = "session";
const LOG: &str = "session.log";
const TEMPORARY: &str = "tmp";
/// Longest of them that is read.
const LONGEST: u64 = 4096;
/// Where the home of programs is in a drive.
const HOME: &str = "/workspace/home";
/// Tools that look for their files in the home of the user, which programs do not have here.
const BELOW_HOME: [(&str, &str); 3] = [
    ("RUSTUP_HOME", ".rustup"),
    ("PYENV_ROOT", ".pyenv"),
    ("NVM_DIR", ".nvm"),
];

/// Where programs put their own files in their home, whatever the user's own variables say.
const OWN_DIRECTORIES: [(&str, &str); 3] = [
    ("XDG_CACHE_HOME", ".cache"),
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_DATA_HOME", ".local/share"),
];

/// What a confined workspace on this machine has to know.
#[derive(Debug, Clone, Default)]
pub struct ConfinedSettings {
    /// The mini-ork program.
    pub program: PathBuf,
    /// Directories that programs must not see, such as the home of mini-ork.
    pub hidden: Vec<PathBuf>,
    /// The home of the user, for tools that have their files there.
    pub home: Option<PathBuf>,
    /// The hosts that may be reached.
    pub allowed: AllowList,
}

/// Programs run on this machine as this user, in namespaces of their own: the network is what a
/// policy lets through, and only the run's own directories can be written.
#[derive(Debug)]
pub struct ConfinedBoundary {
    settings: ConfinedSettings,
}

impl ConfinedBoundary {
    /// A boundary of these settings.
    pub fn new(settings: ConfinedSettings) -> Self {
        Self { settings }
    }

    /// Finds out whether this machine lets a user confine programs. Leaves nothing.
    pub fn check(&self, directory: &Path) -> Result<(), WorkspaceError> {
        let drive = Drive {
            name: "check".to_owned(),
            private: directory.to_owned(),
            proof: directory.to_owned(),
            shares: Vec::new(),
        };
        let first = self.start(&drive)?;
        confine::end(first).map_err(WorkspaceError::Remembered)
    }

    fn start(&self, drive: &Drive) -> Result<ProcessIdentity, WorkspaceError> {
        let private = &drive.private;
        let temporary = private.join(TEMPORARY);
        fs_err::create_dir_all(&temporary).map_err(WorkspaceError::Remembered)?;
        let socket = private.join(SOCKET);
        match fs_err::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(WorkspaceError::Remembered(error));
            }
            _ => {}
        }
        let log = fs_err::File::create(private.join(LOG)).map_err(WorkspaceError::Remembered)?;
        let path = |path: &Path| ByteString::from(path);
        let of = |access| {
            let shares = drive
                .shares
                .iter()
                .filter(move |share| share.access == access);
            shares.map(|share| path(&share.host))
        };
        let plan = LoopbackPlan::new(&self.settings.allowed);
        let machine = rustix::system::uname();
        let machine = machine.nodename().to_string_lossy().into_owned();
        let program = path(&self.settings.program);
        let address = format!("&{SOCKET_DESCRIPTOR}");
        let confinement = Confinement {
            argv: vec![
                program.clone(),
                SERVE_ARGUMENT.into(),
                address.as_str().into(),
            ],
            env: Vec::new(),
            cwd: path(Path::new("/")),
            writable: of(Access::ReadWrite).collect(),
            readable: of(Access::ReadOnly).chain([program]).collect(),
            hidden: self
                .settings
                .hidden
                .iter()
                .map(|hidden| path(hidden))
                .collect(),
            temporary: path(&temporary),
            hosts: plan.hosts_file(&machine),
            resolver: LoopbackPlan::resolver_file(),
            record: path(&private.join(FIRST)),
            socket: Some(path(&socket)),
        };
        Ok(confine(
            &self.settings.program,
            &confinement,
            log.into_file(),
        )?)
    }

    fn sandbox(&self, drive: &Drive, first: ProcessIdentity, token: SecretBytes) -> Sandbox {
        let mut shares = drive.shares.iter();
        let home = shares.find(|share| share.inside == Path::new(HOME));
        let mut environment: Vec<(OsString, OsString)> = vec![
            ("TMPDIR".into(), "/tmp".into()),
            ("XDG_RUNTIME_DIR".into(), "/tmp".into()),
        ];
        if let Some(home) = home {
            environment.push(("HOME".into(), home.host.clone().into()));
            for (name, directory) in OWN_DIRECTORIES {
                environment.push((name.into(), home.host.join(directory).into()));
            }
            for (name, directory) in BELOW_HOME {
                let directory = self.settings.home.as_ref().map(|home| home.join(directory));
                if let Some(directory) = directory.filter(|directory| directory.is_dir()) {
                    environment.push((name.into(), directory.into()));
                }
            }
        }
        Sandbox {
            dialer: Arc::new(SocketDialer {
                directory: drive.private.clone(),
                first,
            }),
            token,
            program: self.settings.program.clone(),
            environment,
            keeps_own: true,
            isolation: self.isolation(),
        }
    }
}

#[async_trait]
impl Boundary for ConfinedBoundary {
    fn backend(&self) -> &'static str {
        "local"
    }

    fn isolation(&self) -> String {
        "local, confined: namespaces of their own for users, mounts, processes and the network"
            .to_owned()
    }

    /// Everything is where it is outside.
    fn place(&self, drive: &Drive) -> Drive {
        let mut drive = drive.clone();
        for share in &mut drive.shares {
            *share = Share {
                inside: share.host.clone(),
                ..share.clone()
            };
        }
        drive
    }

    async fn raise(&self, drive: &Drive) -> Result<Sandbox, WorkspaceError> {
        let remembered = (first(&drive.private)?, token(&drive.private)?);
        if let (Some(first), Some(token)) = remembered
            && is_alive(first)
        {
            return Ok(self.sandbox(drive, first, token));
        }
        let token = write_token(&drive.private).map_err(WorkspaceError::Remembered)?;
        let (settings, own) = (self.settings.clone(), drive.clone());
        let started = tokio::task::spawn_blocking(move || Self { settings }.start(&own));
        let first = started
            .await
            .map_err(|error| WorkspaceError::Remembered(error.into()))??;
        Ok(self.sandbox(drive, first, token))
    }

    async fn lower(&self, drive: &Drive) -> Result<(), WorkspaceError> {
        let Some(first) = first(&drive.private)? else {
            return Ok(());
        };
        let private = drive.private.clone();
        let ended = tokio::task::spawn_blocking(move || {
            confine::end(first)?;
            for file in [FIRST, SOCKET, TOKEN] {
                match fs_err::remove_file(private.join(file)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        });
        let ended = ended.await.map_err(io::Error::from);
        ended
            .and_then(|ended| ended)
            .map_err(WorkspaceError::Remembered)
    }
}

/// Reaches the server of a confined workspace through a socket that is not seen inside.
#[derive(Debug)]
struct SocketDialer {
    directory: PathBuf,
    first: ProcessIdentity,
}

#[async_trait]
impl Dialer for SocketDialer {
    async fn dial(&self) -> Result<Box<dyn Channel>, DialError> {
        if !is_alive(self.first) {
            return Err(DialError::Gone {
                reason: "its first process has ended".to_owned(),
            });
        }
        // The path may be longer than an address of a socket can be.
        let directory = fs_err::File::open(&self.directory).map_err(DialError::Failed)?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
        match UnixStream::connect(path).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(DialError::Failed(error)),
        }
    }
}

fn is_alive(first: ProcessIdentity) -> bool {
    process::status(first.pid).is_some_and(|status| status.identity == first && !status.ended)
}

/// Who the first process is, when one was started.
fn first(private: &Path) -> Result<Option<ProcessIdentity>, WorkspaceError> {
    let bytes = read_bounded(&private.join(FIRST), LONGEST).map_err(WorkspaceError::Remembered)?;
    let first = bytes
        .map(|bytes| serde_json::from_slice(&bytes))
        .transpose();
    first.map_err(|error| WorkspaceError::Remembered(error.into()))
}

fn token(private: &Path) -> Result<Option<SecretBytes>, WorkspaceError> {
    let bytes = read_bounded(&private.join(TOKEN), LONGEST).map_err(WorkspaceError::Remembered)?;
    Ok(bytes.map(|bytes| SecretBytes::from(bytes.as_slice())))
}

/// Text that only the outside has, in a file for this user alone.
fn write_token(private: &Path) -> io::Result<SecretBytes> {
    fs_err::create_dir_all(private)?;
    let token = random_bytes::<16>()?;
    let mut file = fs_err::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(private.join(TOKEN))?;
    file.write_all(&token)?;
    Ok(SecretBytes::from(token.as_slice()))
}
