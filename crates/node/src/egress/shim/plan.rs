use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use super::super::host::{Host, HostName};
use super::super::policy::{AllowEntry, AllowList, LOCALHOST};

/// Where the shim takes HTTP proxy requests and SOCKS. An address of its own, so that no port is
/// taken from the programs of the workspace.
pub const PROXY_ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 1, 0, 1), 3128);
/// Where the shim answers for names.
pub const NAME_SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 1, 0, 1), 53);

/// What is not for the proxy: the workspace's own ports, and the lane gateway among them.
const NO_PROXY: &str = "localhost,127.0.0.1,::1";

/// Which loopback address of a workspace stands for which host. A function of the list, so that
/// whoever makes the workspace's files and the shim inside agree without a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopbackPlan {
    names: Vec<(HostName, Ipv4Addr)>,
    doors: Vec<Door>,
}

/// An address of the workspace that leads to a port of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Door {
    pub(super) at: SocketAddr,
    pub(super) host: Host,
}

impl LoopbackPlan {
    /// The plan for a list.
    ///
    /// Each name that is listed exactly gets an address, and an address of loopback that is listed
    /// stands for itself, each with all ports that the list opens for it. Other addresses and
    /// `*.host` need the proxy or the name server.
    pub fn new(allowed: &AllowList) -> Self {
        let mut hosts: Vec<&Host> = Vec::new();
        for host in allowed.entries().iter().filter_map(AllowEntry::exactly) {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        let mut plan = Self {
            names: Vec::new(),
            doors: Vec::new(),
        };
        for host in hosts {
            let address = match host {
                Host::Name(name) => {
                    let address = numbered(1, plan.names.len());
                    plan.names.push((name.clone(), address));
                    IpAddr::V4(address)
                }
                Host::Address(address) if address.is_loopback() => *address,
                Host::Address(_) => continue,
            };
            let entries = allowed.entries().iter();
            let ports: BTreeSet<u16> = entries
                .filter(|entry| entry.matches(host))
                .flat_map(AllowEntry::ports)
                .collect();
            plan.doors.extend(ports.into_iter().map(|port| Door {
                at: SocketAddr::new(address, port),
                host: host.clone(),
            }));
        }
        plan
    }

    /// The content of the workspace's `/etc/hosts`, on a machine of this name.
    pub fn hosts_file(&self, machine: &str) -> String {
        let mut text = format!("127.0.0.1 {LOCALHOST}\n::1 {LOCALHOST}\n");
        if HostName::parse(machine).is_ok_and(|machine| machine.as_str() != LOCALHOST) {
            let _ = writeln!(text, "127.0.0.1 {machine}");
        }
        for (name, address) in &self.names {
            let _ = writeln!(text, "{address} {name}");
        }
        text
    }

    /// The content of the workspace's `/etc/resolv.conf`.
    pub fn resolver_file() -> String {
        format!(
            "nameserver {}\noptions timeout:2 attempts:1\n",
            NAME_SERVER.ip()
        )
    }

    /// The variables that lead programs to the proxy. They make for better messages: a program
    /// that ignores them gets to the same hosts by the names.
    pub fn environment() -> Vec<(&'static str, String)> {
        let proxy = format!("http://{PROXY_ADDRESS}");
        let mut variables = Vec::new();
        for name in [
            "HTTP_PROXY",
            "http_proxy",
            "HTTPS_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "all_proxy",
        ] {
            variables.push((name, proxy.clone()));
        }
        for name in ["NO_PROXY", "no_proxy"] {
            variables.push((name, NO_PROXY.to_owned()));
        }
        // Node reads the variables only when it is told to.
        variables.push(("NODE_USE_ENV_PROXY", "1".to_owned()));
        variables
    }

    /// The names with their addresses, each as `name:address`.
    pub fn host_entries(&self) -> Vec<String> {
        let names = self.names.iter();
        names
            .map(|(name, address)| format!("{name}:{address}"))
            .collect()
    }

    pub(super) fn names(&self) -> &[(HostName, Ipv4Addr)] {
        &self.names
    }

    pub(super) fn doors(&self) -> &[Door] {
        &self.doors
    }
}

/// The address with this number, counted from 0, in `127.1.BLOCK.0` and the blocks after it.
pub(super) fn numbered(block: u8, number: usize) -> Ipv4Addr {
    const EACH: usize = 250;
    let byte = |value: usize| u8::try_from(value % 256).unwrap_or(u8::MAX);
    let block = usize::from(block) + number / EACH;
    Ipv4Addr::new(127, 1, byte(block), byte(1 + number % EACH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listed_name_has_an_address_and_its_ports() {
        let list = AllowList::parse([
            "a.com",
            "*.b.com",
            "a.com:22",
            "db.example:5432",
            "127.0.0.1:8081",
            "203.0.113.5",
            "c.b.com:99",
        ])
        .unwrap();
        let plan = LoopbackPlan::new(&list);
        let hosts = plan.hosts_file("box");
        assert!(hosts.contains("127.0.0.1 box\n"), "{hosts}");
        assert!(
            hosts.ends_with("127.1.1.1 a.com\n127.1.1.2 db.example\n127.1.1.3 c.b.com\n"),
            "{hosts}"
        );
        let doors: Vec<String> = plan
            .doors()
            .iter()
            .map(|door| format!("{} {}", door.at, door.host))
            .collect();
        assert_eq!(
            doors,
            [
                "127.1.1.1:22 a.com",
                "127.1.1.1:80 a.com",
                "127.1.1.1:443 a.com",
                "127.1.1.2:5432 db.example",
                "127.0.0.1:8081 127.0.0.1",
                "127.1.1.3:80 c.b.com",
                "127.1.1.3:99 c.b.com",
                "127.1.1.3:443 c.b.com",
            ]
        );
        assert!(!plan.hosts_file("a\n1.1.1.1 b").contains("1.1.1.1"));
    }

    #[test]
    fn no_two_numbers_share_an_address() {
        let all: std::collections::BTreeSet<Ipv4Addr> =
            (0..5000).map(|number| numbered(16, number)).collect();
        assert_eq!(all.len(), 5000);
        assert!(all.iter().all(|address| address.octets()[3] != 0));
    }
}
