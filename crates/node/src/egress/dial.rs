use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::address::{is_own, reserved};
use super::host::{Host, HostName};
use super::policy::AllowList;
use super::wire::Answer;

const RESOLVE_LIMIT: Duration = Duration::from_secs(10);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Most addresses of a name that are tried.
const MOST_ADDRESSES: usize = 8;

/// Finds the addresses of names, outside of the workspace.
#[async_trait]
pub trait Resolve: Send + Sync + fmt::Debug {
    /// The addresses of `name`, in the order in which they are to be tried.
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of this machine.
#[derive(Debug, Clone, Copy)]
pub struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        // With the dot at its end the name is whole: no search domain of this machine is added.
        // A name of one part is meant as this machine means it.
        let text = name.as_str();
        let text = if text.contains('.') {
            format!("{text}.")
        } else {
            text.to_owned()
        };
        let found = tokio::net::lookup_host((text, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Connects to `host`, which is on the list, at an address that has been looked at: the name is
/// resolved once, and nobody resolves it again.
pub(super) async fn dial(
    host: &Host,
    port: u16,
    allowed: &AllowList,
    resolver: &dyn Resolve,
) -> Result<TcpStream, Answer> {
    let addresses = match host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => match timeout(RESOLVE_LIMIT, resolver.resolve(name)).await {
            Ok(Ok(addresses)) if !addresses.is_empty() => addresses,
            _ => return Err(Answer::Unknown),
        },
    };
    let addresses = addresses.into_iter().map(|address| address.to_canonical());
    let may_be_reached = |address: &IpAddr| {
        allowed.lists_address(*address, port) || (reserved(*address).is_none() && !is_own(*address))
    };
    let reachable: Vec<IpAddr> = addresses
        .take(MOST_ADDRESSES)
        .filter(may_be_reached)
        .collect();
    if reachable.is_empty() {
        return Err(Answer::Reserved);
    }
    for address in reachable {
        let place = SocketAddr::from((address, port));
        if let Ok(Ok(stream)) = timeout(CONNECT_LIMIT, TcpStream::connect(place)).await {
            let _ = stream.set_nodelay(true);
            return Ok(stream);
        }
    }
    Err(Answer::Unreachable)
}
