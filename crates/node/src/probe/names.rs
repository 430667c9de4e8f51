use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use crate::egress::{HostName, Resolve};

/// Names that are put on the list for the time of the probes, with what their zone answers. They
/// end in a domain that nobody can have.
///
/// None of them leads to a host of the public: the last one is the only one that may be reached,
/// because its address is listed as well.
pub const PROBE_NAMES: [(&str, &[&str]); 10] = [
    ("loopback.probe.test", &["127.0.0.1", "::1"]),
    ("mapped.probe.test", &["::ffff:127.0.0.1"]),
    ("private.probe.test", &["10.0.0.1", "192.168.1.1"]),
    ("shared.probe.test", &["100.64.0.1"]),
    ("metadata.probe.test", &["169.254.169.254", "fd00:ec2::254"]),
    ("bridge.probe.test", &["172.17.0.1"]),
    (
        "translated.probe.test",
        &["64:ff9b::7f00:1", "2002:7f00:1::"],
    ),
    ("unspecified.probe.test", &["0.0.0.0", "::"]),
    ("own.probe.test", &[]),
    (REBINDING, &[]),
];

/// Its zone answers with an address that is reserved for documentation first, and then with
/// loopback.
const REBINDING: &str = "rebinding.probe.test";
const OWN: &str = "own.probe.test";
/// The name that may be reached.
pub(super) const ALLOWED: &str = "allowed.probe.test";

/// The entries that put these names on a list: the ports of the canary and of the server that may
/// be reached.
pub fn probe_entries(canary: u16, allowed: u16) -> Vec<String> {
    let names = PROBE_NAMES
        .iter()
        .map(|(name, _)| format!("{name}:{canary}"));
    let allowed = [
        format!("{ALLOWED}:{allowed}"),
        format!("127.0.0.1:{allowed}"),
    ];
    names.chain(allowed).collect()
}

/// Knows the names of the probes, and asks another resolver for the rest.
#[derive(Debug)]
pub struct ProbeResolver {
    others: Arc<dyn Resolve>,
    own: Vec<IpAddr>,
    rebound: AtomicU64,
}

impl ProbeResolver {
    /// `own` are the addresses of this machine.
    pub fn new(others: Arc<dyn Resolve>, own: Vec<IpAddr>) -> Self {
        Self {
            others,
            own,
            rebound: AtomicU64::new(0),
        }
    }
}

#[async_trait]
impl Resolve for ProbeResolver {
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        let parse = |addresses: &[&str]| {
            let parsed = addresses.iter().filter_map(|address| address.parse().ok());
            Ok(parsed.collect())
        };
        match name.as_str() {
            ALLOWED => parse(&["127.0.0.1"]),
            OWN => Ok(self.own.clone()),
            REBINDING => match self.rebound.fetch_add(1, Ordering::SeqCst) % 2 {
                0 => parse(&["192.0.2.1"]),
                _ => parse(&["127.0.0.1"]),
            },
            other => match PROBE_NAMES.iter().find(|(known, _)| *known == other) {
                Some((_, addresses)) => parse(addresses),
                None => self.others.resolve(name).await,
            },
        }
    }
}
