use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::host::{Host, HostError, HostName, split_port};

/// The ports of an entry that names none: the ones of the web.
pub const DEFAULT_PORTS: [u16; 2] = [80, 443];
/// Most entries of a list. Each takes an address and listeners in the workspace.
pub const MOST_ENTRIES: usize = 200;
/// The name that each machine has for itself.
pub(super) const LOCALHOST: &str = "localhost";

/// How much of the network the programs of a workspace reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkPolicy {
    /// The network of the machine, as it is.
    Full,
    /// The hosts of the list, through the policy proxy, and nothing else.
    Allowlist(AllowList),
    /// Nothing.
    None,
}

impl NetworkPolicy {
    /// The policy called `name`, one of [`POLICY_NAMES`], with these entries. All mistakes at once.
    pub fn new<'a>(
        name: &str,
        entries: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, Vec<PolicyMistake>> {
        let list = AllowList::parse(entries);
        match (name, list) {
            ("allowlist", Ok(list)) if list.entries.is_empty() => Err(vec![PolicyMistake::NoEntry]),
            ("allowlist", Ok(list)) => Ok(Self::Allowlist(list)),
            ("full", Ok(list)) if list.entries.is_empty() => Ok(Self::Full),
            ("none", Ok(list)) if list.entries.is_empty() => Ok(Self::None),
            ("full" | "none", Ok(_)) => Err(vec![PolicyMistake::Unused {
                policy: name.to_owned(),
            }]),
            ("full" | "none" | "allowlist", Err(mistakes)) => Err(mistakes),
            (_, list) => {
                let unknown = PolicyMistake::Unknown {
                    policy: name.to_owned(),
                };
                let others = list.err().unwrap_or_default();
                Err([unknown].into_iter().chain(others).collect())
            }
        }
    }

    /// The name, as settings and records have it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Allowlist(_) => "allowlist",
            Self::None => "none",
        }
    }

    /// The hosts that the policy proxy lets through; none when there is no boundary to pass.
    pub fn allowed(&self) -> Option<AllowList> {
        match self {
            Self::Full => None,
            Self::Allowlist(list) => Some(list.clone()),
            Self::None => Some(AllowList::default()),
        }
    }
}

/// The names of all policies.
pub const POLICY_NAMES: [&str; 3] = ["full", "allowlist", "none"];

/// The hosts that may be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList {
    entries: Vec<AllowEntry>,
}

impl AllowList {
    /// Reads entries, in their order. All mistakes at once.
    pub fn parse<'a>(
        entries: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, Vec<PolicyMistake>> {
        let mut read: Vec<(usize, AllowEntry)> = Vec::new();
        let mut mistakes = Vec::new();
        for (index, text) in entries.into_iter().enumerate() {
            if index >= MOST_ENTRIES {
                mistakes.push(PolicyMistake::Many);
                break;
            }
            match text.parse::<AllowEntry>() {
                Ok(entry) if read.iter().any(|(_, other)| *other == entry) => {
                    mistakes.push(PolicyMistake::Twice {
                        index,
                        entry: entry.to_string(),
                    });
                }
                Ok(entry) => read.push((index, entry)),
                Err(problem) => mistakes.push(PolicyMistake::Entry {
                    index,
                    entry: text.escape_debug().take(80).collect(),
                    problem,
                }),
            }
        }
        for (index, entry) in &read {
            let mut others = read.iter().filter(|(other, _)| other != index);
            if let Some((_, by)) = others.find(|(_, other)| other.covers(entry)) {
                mistakes.push(PolicyMistake::Covered {
                    index: *index,
                    entry: entry.to_string(),
                    by: by.to_string(),
                });
            }
        }
        if mistakes.is_empty() {
            let entries = read.into_iter().map(|(_, entry)| entry).collect();
            return Ok(Self { entries });
        }
        // What is wrong with the list as a whole comes last.
        mistakes.sort_by_key(|mistake| mistake.index().unwrap_or(usize::MAX));
        Err(mistakes)
    }

    /// The entries, in their order.
    pub fn entries(&self) -> &[AllowEntry] {
        &self.entries
    }

    /// Whether a connection to this port of this host is wanted.
    pub fn permits(&self, host: &Host, port: u16) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.has_port(port) && entry.matches(host))
    }

    /// Whether the list has this port of exactly this address, which is then taken even where
    /// addresses are refused.
    pub fn lists_address(&self, address: IpAddr, port: u16) -> bool {
        self.permits(&Host::from(address), port)
    }

    /// Whether a port of a name is wanted, whichever port that is.
    pub fn knows(&self, host: &Host) -> bool {
        self.entries.iter().any(|entry| entry.matches(host))
    }
}

/// The entries, or `no host`.
impl fmt::Display for AllowList {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.entries.is_empty() {
            return formatter.write_str("no host");
        }
        let entries: Vec<String> = self.entries.iter().map(ToString::to_string).collect();
        formatter.write_str(&entries.join(", "))
    }
}

/// One entry: `host`, `host:port` or `*.host`, the last with a port or without.
///
/// A name matches itself, in any case and with or without a dot at its end. `*.host` matches what
/// is below `host`, at any depth, and not `host`. An address matches itself only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowEntry {
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    Exactly(Host),
    Below(HostName),
}

impl AllowEntry {
    /// The ports that it opens.
    pub fn ports(&self) -> Vec<u16> {
        self.port.map_or(DEFAULT_PORTS.to_vec(), |port| vec![port])
    }

    /// The one host that it names; none for `*.host`.
    pub fn exactly(&self) -> Option<&Host> {
        match &self.hosts {
            Hosts::Exactly(host) => Some(host),
            Hosts::Below(_) => None,
        }
    }

    /// Whether it is for this host.
    pub fn matches(&self, host: &Host) -> bool {
        match (&self.hosts, host) {
            (Hosts::Exactly(own), host) => own == host,
            (Hosts::Below(above), Host::Name(name)) => name.is_below(above),
            (Hosts::Below(_), Host::Address(_)) => false,
        }
    }

    /// Whether it opens all that `other` does.
    fn covers(&self, other: &Self) -> bool {
        let hosts = match (&self.hosts, &other.hosts) {
            (Hosts::Exactly(own), Hosts::Exactly(host)) => own == host,
            (Hosts::Below(_), Hosts::Exactly(host)) => self.matches(host),
            (Hosts::Below(own), Hosts::Below(above)) => own == above || above.is_below(own),
            (Hosts::Exactly(_), Hosts::Below(_)) => false,
        };
        hosts && other.ports().iter().all(|port| self.has_port(*port))
    }

    /// Whether it stands for everything below a name under which anybody can have one, such as
    /// `*.com` or `*.co.uk`. It is carried out, and worth a warning.
    pub fn is_wide(&self) -> bool {
        // What registries of countries call the second level.
        const SECOND: [&str; 10] = [
            "ac", "co", "com", "edu", "go", "gov", "ne", "net", "or", "org",
        ];
        let Hosts::Below(above) = &self.hosts else {
            return false;
        };
        match above.as_str().split_once('.') {
            None => true,
            Some((second, country)) => country.len() == 2 && SECOND.contains(&second),
        }
    }

    fn has_port(&self, port: u16) -> bool {
        match self.port {
            Some(own) => own == port,
            None => DEFAULT_PORTS.contains(&port),
        }
    }
}

impl FromStr for AllowEntry {
    type Err = EntryError;

    fn from_str(text: &str) -> Result<Self, EntryError> {
        if text.trim() != text {
            return Err(EntryError::Blanks);
        }
        if let Some((_, rest)) = text.split_once("://") {
            let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
            return Err(EntryError::Url {
                host: host.escape_debug().take(80).collect(),
            });
        }
        if text.contains('/') {
            return Err(EntryError::Path);
        }
        let (host, port) = split_port(text).ok_or(EntryError::Port)?;
        let hosts = match host.strip_prefix("*.") {
            Some(above) => Hosts::Below(HostName::parse(above)?),
            None if host.contains('*') => return Err(EntryError::Star),
            None => {
                let host = Host::parse(host)?;
                check_reachable(&host, port)?;
                Hosts::Exactly(host)
            }
        };
        Ok(Self { hosts, port })
    }
}

/// Refuses hosts that nobody outside of the workspace could be.
fn check_reachable(host: &Host, port: Option<u16>) -> Result<(), EntryError> {
    let is_here = match host {
        Host::Name(name) => name.as_str() == LOCALHOST,
        Host::Address(address) => address.is_unspecified(),
    };
    if is_here {
        let port = port.map_or_else(|| "PORT".to_owned(), |port| port.to_string());
        return Err(EntryError::Here { port });
    }
    let kind = match host {
        Host::Address(address) if address.is_multicast() => "a multicast address",
        Host::Address(IpAddr::V4(address)) if address.is_broadcast() => "the broadcast address",
        Host::Address(IpAddr::V6(address)) if address.is_unicast_link_local() => {
            "a link-local address, which means nothing without an interface"
        }
        _ => return Ok(()),
    };
    Err(EntryError::Nowhere { kind })
}

impl fmt::Display for AllowEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::Exactly(host) => write!(formatter, "{host}")?,
            Hosts::Below(above) => write!(formatter, "*.{above}")?,
        }
        self.port
            .map_or(Ok(()), |port| write!(formatter, ":{port}"))
    }
}

/// What is wrong with one entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Blanks around it.
    #[error("there are blanks around it")]
    Blanks,
    /// It is a URL.
    #[error("it is a URL, and what is behind a host cannot be told apart: write `{host}`")]
    Url {
        /// What to write.
        host: String,
    },
    /// It has a slash.
    #[error("neither a path nor a range of addresses can be allowed: write a host")]
    Path,
    /// The port is none.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// A star in a place where there is none.
    #[error("`*` may only be the first part, as in `*.example.com`")]
    Star,
    /// It is the workspace itself.
    #[error(
        "inside, it is the workspace itself: for a port of this machine write `127.0.0.1:{port}`"
    )]
    Here {
        /// The port that it has, or a word for it.
        port: String,
    },
    /// No connection leads there.
    #[error("it is {kind}: no connection leads there")]
    Nowhere {
        /// What it is.
        kind: &'static str,
    },
    /// The host is none.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// What is wrong with a policy. Where it is written is the caller's to say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyMistake {
    /// There is no such policy.
    #[error("there is no network policy `{policy}`; known: {}", POLICY_NAMES.join(", "))]
    Unknown {
        /// What was asked for.
        policy: String,
    },
    /// A list that allows nothing.
    #[error("`allowlist` without a host to allow: name one, or choose `none`")]
    NoEntry,
    /// A list that nobody reads.
    #[error("hosts are allowed, and `{policy}` does not look at them: choose `allowlist`")]
    Unused {
        /// The policy.
        policy: String,
    },
    /// An entry that is none.
    #[error("`{entry}` cannot be allowed: {problem}")]
    Entry {
        /// Which, from 0.
        index: usize,
        /// As it was written.
        entry: String,
        /// Why.
        #[source]
        problem: EntryError,
    },
    /// An entry that does nothing.
    #[error("`{entry}` is there twice")]
    Twice {
        /// Which, from 0.
        index: usize,
        /// As it is kept.
        entry: String,
    },
    /// An entry that does nothing because of another.
    #[error("`{entry}` is covered by `{by}`: leave it out")]
    Covered {
        /// Which, from 0.
        index: usize,
        /// As it is kept.
        entry: String,
        /// The entry that does the same and more.
        by: String,
    },
    /// Too many of them.
    #[error("more than {MOST_ENTRIES} hosts are allowed")]
    Many,
}

impl PolicyMistake {
    /// The entry that is wrong, from 0; none when it is the policy.
    pub fn index(&self) -> Option<usize> {
        match self {
            Self::Entry { index, .. } | Self::Twice { index, .. } | Self::Covered { index, .. } => {
                Some(*index)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
