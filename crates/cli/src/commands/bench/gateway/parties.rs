//! The processes of the measurement.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::roles::PARTY_ARGUMENT;
use crate::commands::bench::lab::{Lab, failed};
use crate::error::CommandError;

/// The vendor's certificate, in the lab.
pub(super) const AUTHORITY: &str = "authority.pem";
/// Opens nothing.
pub(super) const KEY: &str = "the-key-of-a-measurement";
/// How long a program may take to begin.
const PATIENCE: Duration = Duration::from_secs(20);

/// A way from the client to the vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Direct,
    Nginx,
    Gateway,
}

impl Route {
    pub(super) const ALL: [Self; 3] = [Self::Direct, Self::Nginx, Self::Gateway];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Gateway => "gateway",
        }
    }
}

/// Whom the client talks to. Its process ends when it is dropped.
pub(super) struct Party {
    child: Option<Child>,
    pub(super) address: SocketAddr,
    /// What the client shows.
    pub(super) token: String,
    /// The certificate that the client has to check, when it talks TLS.
    pub(super) authority: Option<Vec<u8>>,
}

impl Party {
    pub(super) fn vendor(lab: &Lab) -> Result<Self, CommandError> {
        let mut command = lab.mini_ork();
        command.args([PARTY_ARGUMENT, "vendor"]).arg(lab.root());
        Self::announced(command)
    }

    /// What the client talks to on `route`.
    pub(super) fn between(lab: &Lab, vendor: &Self, route: Route) -> Result<Self, CommandError> {
        match route {
            Route::Direct => {
                let pem = fs_err::read(lab.root().join(AUTHORITY));
                Ok(Self {
                    child: None,
                    address: vendor.address,
                    token: KEY.to_owned(),
                    authority: Some(pem.map_err(|error| failed(&error))?),
                })
            }
            Route::Gateway => {
                let mut command = lab.mini_ork();
                command
                    .args([PARTY_ARGUMENT, "gateway"])
                    .arg(lab.root())
                    .arg(format!("https://localhost:{}", vendor.address.port()));
                Self::announced(command)
            }
            Route::Nginx => Self::nginx(lab, vendor),
        }
    }

    /// A process that says on its first line where it is.
    fn announced(mut command: Command) -> Result<Self, CommandError> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout)
                .read_line(&mut line)
                .map_err(|error| failed(&error))?;
        }
        let mut words = line.split_whitespace();
        let address = words.next().and_then(|word| word.parse().ok());
        let (Some(address), Some(token)) = (address, words.next()) else {
            let _ = child.kill().and_then(|()| child.wait());
            return Err(CommandError::failure("a process of the measurement failed"));
        };
        Ok(Self {
            child: Some(child),
            address,
            token: token.to_owned(),
            authority: None,
        })
    }

    fn nginx(lab: &Lab, vendor: &Self) -> Result<Self, CommandError> {
        let address = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(|error| failed(&error))?;
        let configuration = configuration(lab, address, vendor.address);
        lab.write(Path::new("nginx.conf"), &configuration)?;
        let start = |program| {
            let mut command = lab.command(program);
            command
                .arg("-p")
                .arg(lab.root())
                .args(["-e", "nginx.log", "-c", "nginx.conf"]);
            command.spawn()
        };
        // Where it is on most systems is not on the path of a user.
        let child = start("nginx").or_else(|_| start("/usr/sbin/nginx"));
        let child = child.map_err(|error| {
            CommandError::failure("`nginx` cannot be run")
                .caused_by(&error)
                .hint("the gateway is measured beside it: apt-get install nginx-light")
        })?;
        let mut party = Self {
            child: Some(child),
            address,
            token: KEY.to_owned(),
            authority: None,
        };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = match &mut party.child {
                Some(child) => child.try_wait().map_err(|error| failed(&error))?.is_some(),
                None => true,
            };
            if ended || began.elapsed() > PATIENCE {
                let log = fs_err::read_to_string(lab.root().join("nginx.log")).unwrap_or_default();
                return Err(CommandError::failure("nginx did not begin").details([log]));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(party)
    }

    /// What its processes take now, each with its part of what it shares, in bytes.
    pub(super) fn shared(&self) -> Result<f64, CommandError> {
        self.sum("smaps_rollup", "Pss:")
    }

    /// The most that its processes ever took, each with all of what it shares, in bytes.
    pub(super) fn most_resident(&self) -> Result<f64, CommandError> {
        self.sum("status", "VmHWM:")
    }

    fn sum(&self, file: &str, name: &str) -> Result<f64, CommandError> {
        let mut sum = 0.0;
        for pid in self.processes() {
            let text = fs_err::read_to_string(format!("/proc/{pid}/{file}"))
                .map_err(|error| failed(&error))?;
            let kibibytes: Option<f64> = text
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
            sum += kibibytes.unwrap_or_default() * 1024.0;
        }
        Ok(sum)
    }

    fn processes(&self) -> Vec<u32> {
        let Some(child) = &self.child else {
            return Vec::new();
        };
        let pid = child.id();
        let children = fs_err::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        let children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        std::iter::once(pid).chain(children).collect()
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else {
            return;
        };
        // Ours end with their standard input. nginx ends its workers on SIGTERM.
        drop(child.stdin.take());
        if let Ok(pid) = i32::try_from(child.id())
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = child.wait();
    }
}

/// As an administrator writes it who wants streams at once and nothing in files. Connections to the
/// vendor are kept, as the gateway does.
fn configuration(lab: &Lab, own: SocketAddr, vendor: SocketAddr) -> String {
    let cores = lab.cores();
    format!(
        "daemon off;
worker_processes {cores};
pid nginx.pid;
error_log nginx.log warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    client_max_body_size 32m;
    keepalive_timeout 600s;
    keepalive_requests 1000000;
    upstream vendor {{
        server {vendor};
        keepalive 512;
        keepalive_requests 1000000;
        keepalive_timeout 600s;
    }}
    server {{
        listen {own};
        location / {{
            proxy_pass https://vendor;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header Host localhost;
            proxy_set_header X-Api-Key {KEY};
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_ssl_protocols TLSv1.2 TLSv1.3;
            proxy_ssl_server_name on;
            proxy_ssl_name localhost;
            proxy_ssl_verify on;
            proxy_ssl_trusted_certificate {authority};
        }}
    }}
}}
",
        authority = lab.root().join(AUTHORITY).display(),
    )
}
