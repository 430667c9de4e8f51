//! What a hostile program would try to get out of a workspace, tried for real: [`probe_main`] runs
//! inside, a [`Canary`] stands outside and notes what reaches it.

mod canary;
mod direct;
mod dns;
mod names;
mod proxied;
mod session;
mod unix;
mod verify;

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use canary::{Canary, Seen};
pub(crate) use direct::is_idle_interface;
pub use names::{PROBE_NAMES, ProbeResolver, probe_entries};
pub use verify::{Verification, VerifyError, verify};

/// The first argument of a program that calls [`probe_main`]; the second is a [`ProbeSpec`].
pub const PROBE_ARGUMENT: &str = "__probe";

/// How long one attempt may take. Without a route it fails at once.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(3);

/// What the inside has to know of the outside.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeSpec {
    /// Addresses of the machine outside, and of others that only it reaches.
    pub addresses: Vec<IpAddr>,
    /// The port of the canary, for TCP and UDP alike.
    pub port: u16,
    /// What the canary says to everybody who connects, and what is in every datagram to it.
    pub word: String,
    /// Whether some hosts are to be reached; the names of [`PROBE_NAMES`] are on the list then.
    pub allowlist: bool,
    /// The entries of the list. What they open is no breach.
    pub allow: Vec<String>,
}

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// What kind of way it is.
    pub way: String,
    /// What exactly was tried.
    pub what: String,
    /// What came of it.
    pub outcome: String,
    /// How it is to be judged.
    pub verdict: Verdict,
}

/// How an attempt is judged, from inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was closed, as it has to be.
    Closed,
    /// It was open, as it has to be.
    Open,
    /// It was open.
    Breach,
    /// It is allowed, and did not work.
    Blocked,
}

impl Verdict {
    /// Whether the policy held here.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Closed | Self::Open)
    }
}

/// Tries everything and writes each [`Attempt`] as a line of JSON. To be called with one thread and
/// no runtime.
pub fn probe_main(spec: &OsStr, output: &mut impl Write) -> ExitCode {
    let spec = spec.to_str().map(serde_json::from_str::<ProbeSpec>);
    let Some(Ok(spec)) = spec else {
        return ExitCode::from(2);
    };
    let mut log = Log {
        output,
        lost: false,
    };
    direct::try_all(&spec, &mut log);
    dns::try_all(&spec, &mut log);
    unix::try_all(&mut log);
    session::try_all(&mut log);
    proxied::try_all(&spec, &mut log);
    if log.lost {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Where attempts are written to.
struct Log<'a> {
    output: &'a mut dyn Write,
    lost: bool,
}

impl Log<'_> {
    fn attempt(&mut self, way: &str, what: impl fmt::Display, outcome: String, verdict: Verdict) {
        let attempt = Attempt {
            way: way.to_owned(),
            what: what.to_string(),
            outcome,
            verdict,
        };
        let line = serde_json::to_string(&attempt).map_err(io::Error::from);
        let written = line.and_then(|line| writeln!(self.output, "{line}"));
        self.lost |= written.is_err();
    }

    /// What has to be closed: an error is good.
    fn closed<T: fmt::Debug>(&mut self, way: &str, what: impl fmt::Display, result: io::Result<T>) {
        match result {
            Ok(found) => self.attempt(way, what, format!("open: {found:?}"), Verdict::Breach),
            Err(error) => self.attempt(way, what, error.to_string(), Verdict::Closed),
        }
    }

    /// What has to be open: an error is bad.
    fn open<T>(&mut self, way: &str, what: impl fmt::Display, result: io::Result<T>) {
        match result {
            Ok(_) => self.attempt(way, what, "open".to_owned(), Verdict::Open),
            Err(error) => self.attempt(way, what, error.to_string(), Verdict::Blocked),
        }
    }
}
