use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mini_ork_protocol::{ByteString, ExitOutcome, StdinSource};

use super::{
    ATTEMPT_LIMIT, Attempt, Canary, PROBE_ARGUMENT, ProbeResolver, ProbeSpec, Seen, probe_entries,
};
use crate::egress::{AllowList, NetworkPolicy};
use crate::supervise::STDOUT_LOG;
use crate::workspace::{
    self, Access, BackendSettings, Drive, Share, SpawnRequest, UnknownBackend, Workspace,
    WorkspaceError,
};

/// How long all attempts together may take. Where nothing answers at all they take longest.
const LIMIT: Duration = Duration::from_secs(300);
const MOST_OUTPUT: u64 = 16 << 20;
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const STEP: Duration = Duration::from_millis(20);

/// What came of all attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// Which boundary held, in one sentence.
    pub isolation: String,
    /// What was tried.
    pub attempts: Vec<Attempt>,
    /// The port of the canary outside, on all addresses of this machine.
    pub canary: u16,
    /// What the canary says, and what was sent with everything that could carry it.
    pub word: String,
    /// What reached it.
    pub seen: Seen,
}

impl Verification {
    /// Whether the policy held everywhere, and everything that is allowed works.
    pub fn is_good(&self) -> bool {
        self.seen == Seen::default()
            && self
                .attempts
                .iter()
                .all(|attempt| attempt.verdict.is_good())
    }
}

/// Why a policy could not be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// There is no such backend.
    #[error(transparent)]
    Backend(#[from] UnknownBackend),
    /// There is no workspace.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The canary, or what is needed for the workspace, could not be made.
    #[error("the outside could not be prepared")]
    Outside(#[source] io::Error),
    /// The program that tries everything did not come to its end.
    #[error("the attempts were broken off: {0}")]
    BrokenOff(String),
}

/// Tries to get out of a workspace of `backend` with the policy of `settings`, to which the names of
/// the probes are added. `directory` is empty and is the workspace's own.
pub async fn verify(
    backend: &str,
    mut settings: BackendSettings,
    directory: &Path,
) -> Result<Verification, VerifyError> {
    let canary = Canary::start().map_err(VerifyError::Outside)?;
    let allowed = Allowed::start(canary.port()).map_err(VerifyError::Outside)?;
    let addresses = Canary::addresses();
    let is_list = matches!(settings.network, NetworkPolicy::Allowlist(_));
    let own_list = settings.network.allowed().unwrap_or_default();
    if let NetworkPolicy::Allowlist(list) = &settings.network {
        let mut entries: Vec<String> = list.entries().iter().map(ToString::to_string).collect();
        entries.extend(probe_entries(canary.port(), allowed.port));
        let list = AllowList::parse(entries.iter().map(String::as_str)).map_err(|mistakes| {
            let first = mistakes.first().map(ToString::to_string);
            VerifyError::Outside(io::Error::other(first.unwrap_or_default()))
        })?;
        settings.network = NetworkPolicy::Allowlist(list);
    }
    let outer = addresses.iter().filter(|address| !address.is_loopback());
    let own = outer.copied().collect();
    settings.resolver = Arc::new(ProbeResolver::new(Arc::clone(&settings.resolver), own));
    let drive = drive_at(directory).map_err(VerifyError::Outside)?;
    let spec = ProbeSpec {
        addresses,
        port: canary.port(),
        word: canary.word().to_owned(),
        allowlist: is_list,
        allow: own_list.entries().iter().map(ToString::to_string).collect(),
    };
    let workspace = workspace::open(backend, &settings)?;
    let tried = try_all(&*workspace, &drive, &spec).await;
    let isolation = workspace.isolation();
    workspace.down(&drive).await?;
    Ok(Verification {
        isolation,
        attempts: tried?,
        canary: canary.port(),
        word: canary.word().to_owned(),
        seen: canary.seen(),
    })
}

async fn try_all(
    workspace: &dyn Workspace,
    drive: &Drive,
    spec: &ProbeSpec,
) -> Result<Vec<Attempt>, VerifyError> {
    workspace.up(drive).await?;
    let json = serde_json::to_string(spec).map_err(|error| VerifyError::Outside(error.into()))?;
    let records = drive.proof.join("probe");
    let request = SpawnRequest {
        directory: records.clone(),
        argv: vec![
            workspace.program().as_path().into(),
            PROBE_ARGUMENT.into(),
            ByteString::from(json.as_str()),
        ],
        cwd: drive.proof.clone(),
        env: vec![("PATH".into(), PATH.into())],
        stdin: StdinSource::Null,
        timeout: Some(LIMIT),
        grace: Duration::from_secs(1),
        output_limit: MOST_OUTPUT,
        secrets: Vec::new(),
    };
    let exit = workspace.spawn(request).await?.wait().await?;
    if exit.outcome != (ExitOutcome::Exited { code: 0 }) {
        return Err(VerifyError::BrokenOff(format!("{:?}", exit.outcome)));
    }
    let log = fs_err::File::open(records.join(STDOUT_LOG)).map_err(VerifyError::Outside)?;
    let mut attempts = Vec::new();
    for line in BufReader::new(log.take(MOST_OUTPUT)).lines() {
        let line = line.map_err(VerifyError::Outside)?;
        let attempt = serde_json::from_str(&line);
        attempts.push(attempt.map_err(|error| VerifyError::BrokenOff(error.to_string()))?);
    }
    Ok(attempts)
}

fn drive_at(directory: &Path) -> io::Result<Drive> {
    let share = |name: &str, inside: &str| {
        fs_err::create_dir_all(directory.join(name))?;
        Ok::<_, io::Error>(Share {
            host: directory.join(name),
            inside: Path::new("/workspace").join(inside),
            access: Access::ReadWrite,
        })
    };
    let shares = vec![share("nodes", "run/nodes")?, share("home", "home")?];
    fs_err::create_dir_all(directory.join("private"))?;
    let bytes = crate::sys::random_bytes::<6>()?;
    let number: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Drive {
        name: format!("verify-{number}"),
        private: directory.join("private"),
        proof: directory.join("nodes"),
        shares,
    })
}

/// The one server that may be reached. Its answer leads to the canary.
struct Allowed {
    port: u16,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Allowed {
    fn start(canary: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let answer = format!(
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{canary}/\r\nContent-Length: 16\r\n\r\n\
             mini-ork-allowed"
        );
        let thread = thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                let Ok((mut stream, _)) = listener.accept() else {
                    thread::sleep(STEP);
                    continue;
                };
                let answer = answer.clone();
                // Whoever keeps a connection keeps nobody else waiting.
                thread::spawn(move || answer_all(&mut stream, &answer));
            }
        });
        Ok(Self {
            port,
            over,
            thread: Some(thread),
        })
    }
}

/// Answers each request, also several of one connection.
fn answer_all(stream: &mut TcpStream, answer: &str) {
    const END: &[u8] = b"\r\n\r\n";
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_read_timeout(Some(ATTEMPT_LIMIT));
    let mut read: Vec<u8> = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        read.extend_from_slice(&buffer[..count]);
        while let Some(end) = read.windows(END.len()).position(|part| part == END) {
            let head: Vec<u8> = read.drain(..end + END.len()).collect();
            let is_last = String::from_utf8_lossy(&head).contains("Connection: close");
            if stream.write_all(answer.as_bytes()).is_err() || is_last {
                return;
            }
        }
        if read.len() > 1 << 16 {
            return;
        }
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
