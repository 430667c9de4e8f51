//! Connections of programs to the network: the shim inside, and how the outside has it started.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mini_ork_protocol::{SessionAnswer, SessionCall, SessionRequest, Welcome};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::SessionError;
use super::client::exchange;
use super::frame::write_frame;
use super::mux::Mux;
use crate::egress::{AllowList, ByteStream, PolicyProxy, Shim, WayOut};
use crate::probe::{Canary, is_idle_interface};
use crate::text::with_sources;

/// How long a shim may take to listen.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a canary is tried. Without a route it fails at once.
const CANARY_LIMIT: Duration = Duration::from_secs(2);
/// Most addresses at which it is tried.
const MOST_CANARIES: usize = 32;

/// The shim of a server, once it was asked for.
#[derive(Debug, Default)]
pub(super) struct Egress(Mutex<Option<(Vec<String>, Shim)>>);

impl Egress {
    /// Starts the shim when nothing of `canary` can be reached. The error is a sentence.
    pub(super) async fn start(
        &self,
        allow: Vec<String>,
        canary: &[String],
        outside: watch::Receiver<Option<Mux>>,
    ) -> Result<(), String> {
        for address in canary.iter().take(MOST_CANARIES) {
            let address: SocketAddr = address.parse().map_err(|_| "a canary has no address")?;
            let reached = timeout(CANARY_LIMIT, TcpStream::connect(address)).await;
            if let Ok(Ok(_)) = reached {
                return Err(format!(
                    "{address} outside can be reached from the workspace"
                ));
            }
        }
        let mut shim = self.0.lock().await;
        match shim.as_ref() {
            Some((known, _)) if *known == allow => return Ok(()),
            Some(_) => return Err("there is a shim for another list".to_owned()),
            None => {}
        }
        let list = AllowList::parse(allow.iter().map(String::as_str))
            .map_err(|_| "the list cannot be read")?;
        let started = Shim::start(&list, Arc::new(Streams(outside))).await;
        let started = started.map_err(|error| with_sources(&error))?;
        *shim = Some((allow, started));
        Ok(())
    }
}

/// Streams of the latest connection of the outside.
struct Streams(watch::Receiver<Option<Mux>>);

#[async_trait]
impl WayOut for Streams {
    async fn open(&self) -> io::Result<Box<dyn ByteStream>> {
        let mux = self.0.borrow().clone();
        let mux = mux.ok_or(io::ErrorKind::NotConnected)?;
        let mut stream = mux.open().await?;
        let call = SessionCall {
            service: SessionCall::EGRESS.to_owned(),
        };
        write_frame(&mut stream, &call).await?;
        Ok(Box::new(stream))
    }
}

/// Has the shim for `proxy` started behind a new connection, and finds out before that there is no
/// other way out.
pub(super) async fn start_shim(
    mux: &Mux,
    welcome: &Welcome,
    proxy: &PolicyProxy,
) -> Result<(), SessionError> {
    let others = welcome.interfaces.iter();
    let others: Vec<&String> = others.filter(|name| !is_idle_interface(name)).collect();
    if !others.is_empty() {
        return Err(SessionError::OtherWayOut {
            way: format!("{} network interfaces", others.len()),
        });
    }
    let four = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await;
    let four = four.map_err(SessionError::Unreachable)?;
    let port = four.local_addr().map_err(SessionError::Unreachable)?.port();
    let _six = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await;
    let addresses = Canary::addresses().into_iter();
    let outer = |address: &IpAddr| !address.is_loopback() && !is_link_local(*address);
    let canary = addresses.filter(outer).take(MOST_CANARIES);
    let request = SessionRequest::Egress {
        allow: proxy
            .allowed()
            .entries()
            .iter()
            .map(ToString::to_string)
            .collect(),
        canary: canary
            .map(|address| SocketAddr::new(address, port).to_string())
            .collect(),
    };
    let asked = timeout(START_LIMIT, exchange(mux, &request, &[])).await;
    let (answer, _) = asked
        .unwrap_or_else(|elapsed| Err(elapsed.into()))
        .map_err(SessionError::Unreachable)?;
    // Whatever the inside says of it.
    if let Ok(Ok(_)) = timeout(Duration::ZERO, four.accept()).await {
        return Err(SessionError::OtherWayOut {
            way: format!("port {port} of this machine"),
        });
    }
    match answer {
        SessionAnswer::Done => Ok(()),
        SessionAnswer::Refused(refusal) => Err(SessionError::NoEgress {
            reason: crate::text::on_one_line(&refusal.message),
        }),
        _ => Err(SessionError::Confused),
    }
}

/// It needs the number of an interface, which is another one inside.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.segments()[0] & 0xffc0 == 0xfe80)
}
