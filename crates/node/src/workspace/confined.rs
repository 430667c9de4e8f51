use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use mini_ork_protocol::{ByteString, ProcessIdentity, SecretBytes};
use tokio::net::UnixStream;

use super::{
    Access, Drive, LOCAL, Ledger, SandboxKind, SandboxRecord, SandboxState, Share, WorkspaceError,
};
use crate::certificates::{AUTHORITY_VARIABLES, Authorities, of_this_machine};
use crate::confine::{self, Confinement, SOCKET_DESCRIPTOR, confine};
use crate::egress::{AllowList, LoopbackPlan};
use crate::session::{
    Boundary, Channel, DialError, Dialer, SERVE_ARGUMENT, Sandbox, ServerAddress,
};
use crate::sys::files::read_bounded;
use crate::sys::{process, random_bytes, remove_tree};

/// Files in the private directory of a drive.
const FIRST: &str = "first.json";
const SOCKET: &str = "session";
const LOG: &str = "session.log";
const TEMPORARY: &str = "tmp";
const CERTIFICATES: &str = "certificates.pem";
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

/// Where agents and engines keep sockets in the home of the user, beside files that are read.
const SOCKETS_BELOW_HOME: [&str; 9] = [
    ".ssh",
    ".gnupg",
    ".docker",
    ".colima",
    ".lima",
    ".rd",
    ".orbstack",
    ".1password",
    ".local/share/containers/podman",
];

/// Where programs put their own files in their home, whatever the user's own variables say.
const OWN_DIRECTORIES: [(&str, &str); 3] = [
    ("XDG_CACHE_HOME", ".cache"),
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_DATA_HOME", ".local/share"),
];

/// What a confined workspace on this machine has to know.
#[derive(Debug, Clone)]
pub struct ConfinedSettings {
    /// The mini-ork program.
    pub program: PathBuf,
    /// Directories that programs must not see, such as the home of mini-ork.
    pub hidden: Vec<PathBuf>,
    /// The home of the user, for tools that have their files there.
    pub home: Option<PathBuf>,
    /// The hosts that may be reached.
    pub allowed: AllowList,
    /// Most processes and threads, unless the user is root.
    pub processes: u32,
    /// Where records of sandboxes are kept; where the drive is private when absent.
    pub ledger: Option<PathBuf>,
    /// Files with certificates that are trusted besides those of this machine.
    pub authorities: Vec<PathBuf>,
}

impl Default for ConfinedSettings {
    fn default() -> Self {
        Self {
            program: PathBuf::new(),
            hidden: Vec::new(),
            home: None,
            allowed: AllowList::default(),
            processes: 2048,
            ledger: None,
            authorities: Vec::new(),
        }
    }
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
        let started = self.start(&drive);
        let noted = started.as_ref().ok().copied();
        let removed = remove_now(directory, noted);
        started?;
        removed.map_err(WorkspaceError::Remembered)?;
        Ok(())
    }

    fn ledger(&self, drive: &Drive) -> Ledger {
        let own = &self.settings.ledger;
        Ledger::at(own.clone().unwrap_or_else(|| drive.private.clone()))
    }

    /// The sandbox on record, when it still runs.
    fn adopt(&self, drive: &Drive) -> Result<Option<Sandbox>, WorkspaceError> {
        let ledger = self.ledger(drive);
        let record = ledger.read(&drive.name);
        let Some(mut record) = record
            .map_err(WorkspaceError::Remembered)?
            .filter(SandboxRecord::is_open)
        else {
            return Ok(None);
        };
        let SandboxKind::Local { first: noted } = record.kind else {
            return Ok(None);
        };
        // It writes down who it is before it runs.
        let found = noted.or(first(&drive.private).map_err(WorkspaceError::Remembered)?);
        let write = |record: &SandboxRecord| {
            let written = ledger.write(record);
            written.map_err(WorkspaceError::Remembered)
        };
        match found {
            Some(first) if is_alive(first) => {
                record.state = SandboxState::Running;
                record.kind = SandboxKind::Local { first: found };
                write(&record)?;
                Ok(Some(self.sandbox(drive, first, record.token)))
            }
            _ => {
                let closed = ledger.close(&mut record, "it was gone when its run went on");
                closed.map_err(WorkspaceError::Remembered)?;
                Ok(None)
            }
        }
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
        let certificates = self.write_certificates(private)?;
        let (bundle, covered) = match &certificates {
            Some((bundle, covered)) => (Some(path(bundle)), covered.map(path)),
            None => (None, None),
        };
        let plan = LoopbackPlan::new(&self.settings.allowed);
        let machine = rustix::system::uname();
        let machine = machine.nodename().to_string_lossy().into_owned();
        let program = path(&self.settings.program);
        let address = format!("&{SOCKET_DESCRIPTOR}");
        let home = self.settings.home.iter();
        let confinement = Confinement {
            argv: vec![
                program.clone(),
                SERVE_ARGUMENT.into(),
                address.as_str().into(),
            ],
            env: Vec::new(),
            cwd: path(Path::new("/")),
            writable: of(Access::ReadWrite).collect(),
            readable: of(Access::ReadOnly)
                .chain([program])
                .chain(bundle.clone())
                .collect(),
            // Many programs know that place alone.
            replaced: bundle.zip(covered).into_iter().collect(),
            hidden: self
                .settings
                .hidden
                .iter()
                .map(|hidden| path(hidden))
                .collect(),
            quiet: home
                .flat_map(|home| SOCKETS_BELOW_HOME.map(|directory| path(&home.join(directory))))
                .collect(),
            temporary: path(&temporary),
            hosts: plan.hosts_file(&machine),
            resolver: LoopbackPlan::resolver_file(),
            record: path(&private.join(FIRST)),
            processes: self.settings.processes,
            socket: Some(path(&socket)),
        };
        Ok(confine(
            &self.settings.program,
            &confinement,
            log.into_file(),
        )?)
    }

    /// Those of this machine with the user's own, and where this machine has its own; none where
    /// the user has none.
    fn write_certificates(
        &self,
        private: &Path,
    ) -> Result<Option<(PathBuf, Option<&'static Path>)>, WorkspaceError> {
        let authorities = Authorities::read(&self.settings.authorities)?;
        if authorities.is_empty() {
            return Ok(None);
        }
        let file = private.join(CERTIFICATES);
        let (covered, own) = of_this_machine().unzip();
        let bundle = authorities.bundle(own.as_slice());
        fs_err::write(&file, bundle).map_err(WorkspaceError::Remembered)?;
        Ok(Some((file, covered)))
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
        if !self.settings.authorities.is_empty() {
            let file = drive.private.join(CERTIFICATES);
            let names = AUTHORITY_VARIABLES.into_iter();
            environment.extend(names.map(|name| (name.into(), file.clone().into())));
        }
        Sandbox {
            dialer: dialer(&drive.private, first),
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
        LOCAL
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
        if let Some(adopted) = self.adopt(drive)? {
            return Ok(adopted);
        }
        let remembered = WorkspaceError::Remembered;
        let token = random_bytes::<16>().map_err(remembered)?;
        let kind = SandboxKind::Local { first: None };
        let mut record = SandboxRecord::new(drive, &token, kind).map_err(remembered)?;
        let ledger = self.ledger(drive);
        ledger.write(&record).map_err(remembered)?;
        let (settings, own) = (self.settings.clone(), drive.clone());
        let started = tokio::task::spawn_blocking(move || Self { settings }.start(&own));
        let started = started.await.map_err(|error| remembered(error.into()))?;
        let first = match started {
            Ok(first) => first,
            Err(error) => {
                // Its first process may be there, and stuck before the program. Unless that is gone
                // for certain, it stays on record.
                if remove(&drive.private, None).await.is_ok() {
                    let _ = ledger.close(&mut record, &format!("it could not be started: {error}"));
                }
                return Err(error);
            }
        };
        record.state = SandboxState::Running;
        record.kind = SandboxKind::Local { first: Some(first) };
        ledger.write(&record).map_err(remembered)?;
        Ok(self.sandbox(drive, first, record.token))
    }

    async fn lower(&self, drive: &Drive) -> Result<(), WorkspaceError> {
        self.ledger(drive).lower(&drive.name).await
    }
}

/// Ends the first process of a sandbox and with it all others; says whether it ran. `noted` is what
/// the record says of it.
pub(super) async fn remove(
    private: &Path,
    noted: Option<ProcessIdentity>,
) -> Result<bool, WorkspaceError> {
    let private = private.to_owned();
    let ended = tokio::task::spawn_blocking(move || remove_now(&private, noted));
    let ended = ended.await.map_err(io::Error::from);
    ended
        .and_then(|ended| ended)
        .map_err(WorkspaceError::Remembered)
}

/// As [`remove`]. Blocks.
fn remove_now(private: &Path, noted: Option<ProcessIdentity>) -> io::Result<bool> {
    let found = match noted {
        Some(first) => Some(first),
        None => first(private)?,
    };
    let Some(first) = found else {
        return Ok(false);
    };
    let ran = is_alive(first);
    confine::end(first)?;
    for file in [FIRST, SOCKET] {
        match fs_err::remove_file(private.join(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    remove_tree(&private.join(TEMPORARY))?;
    Ok(ran)
}

/// Reaches the server of a confined workspace through a socket that is not seen inside.
#[derive(Debug)]
struct SocketDialer {
    directory: PathBuf,
    first: ProcessIdentity,
}

/// Reaches the server at the socket in `directory` while `first` lives.
pub(super) fn dialer(directory: &Path, first: ProcessIdentity) -> Arc<dyn Dialer> {
    Arc::new(SocketDialer {
        directory: directory.to_owned(),
        first,
    })
}

#[async_trait]
impl Dialer for SocketDialer {
    fn address(&self) -> Option<ServerAddress> {
        Some(ServerAddress::Socket {
            directory: self.directory.clone(),
            first: self.first,
        })
    }

    async fn dial(&self) -> Result<Box<dyn Channel>, DialError> {
        if !is_alive(self.first) {
            return Err(DialError::Gone {
                reason: "its first process has ended".to_owned(),
                out_of_memory: false,
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
fn first(private: &Path) -> io::Result<Option<ProcessIdentity>> {
    let bytes = read_bounded(&private.join(FIRST), LONGEST)?;
    let first = bytes
        .map(|bytes| serde_json::from_slice(&bytes))
        .transpose();
    Ok(first?)
}

#[cfg(test)]
#[path = "confined_tests.rs"]
mod tests;
