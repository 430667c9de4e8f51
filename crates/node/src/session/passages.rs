//! Ways from the inside to services of this machine: ports that are led out, and the network.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mini_ork_protocol::{SessionAnswer, SessionCall, SessionRequest};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::SessionError;
use super::client::{ANSWER_LIMIT, Client, exchange};
use super::frame::read_frame;
use super::mux::{Mux, MuxStream};
use crate::egress::PolicyProxy;

/// Most connections at a time through one port, and through all of them. Those to the network are
/// counted by the proxy, so that neither kind takes the room of the other; together they are fewer
/// than the streams of a connection.
const MOST_CONNECTIONS: usize = 64;
const MOST_TOGETHER: usize = 128;

/// The loopback ports that are led out, by the name of their service.
#[derive(Debug, Clone, Default)]
pub(super) struct Passages(Arc<Mutex<BTreeMap<String, Way>>>);

#[derive(Debug, Clone)]
struct Way {
    port: u16,
    room: Arc<Semaphore>,
    /// Nobody has use for it any more; the inside may still listen.
    is_closed: bool,
}

impl Passages {
    /// The way of `service` is open from here on.
    pub(super) fn open(&self, service: String, port: u16) {
        let way = Way {
            port,
            room: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            is_closed: false,
        };
        self.lock().insert(service, way);
    }

    fn close(&self, service: &str) {
        if let Some(way) = self.lock().get_mut(service) {
            way.is_closed = true;
        }
    }

    /// Has the inside listen at all open ports, as a server does not that was started anew.
    pub(super) async fn lead_again(&self, mux: &Mux) -> Result<(), SessionError> {
        let open: Vec<(String, u16)> = {
            let ways = self.lock();
            let open = ways.iter().filter(|(_, way)| !way.is_closed);
            open.map(|(service, way)| (service.clone(), way.port))
                .collect()
        };
        for (service, port) in open {
            let request = SessionRequest::Forward { port, service };
            let asked = timeout(ANSWER_LIMIT, exchange(mux, &request, &[])).await;
            let (answer, _) = asked
                .unwrap_or_else(|elapsed| Err(elapsed.into()))
                .map_err(SessionError::Unreachable)?;
            match answer {
                SessionAnswer::Listening { port: taken } if taken == port => {}
                // Somebody else may have taken the port, and would be told what is for the service.
                SessionAnswer::Refused(refusal) => return Err(SessionError::Refused(refusal)),
                _ => return Err(SessionError::Confused),
            }
        }
        Ok(())
    }

    /// Has the inside listen no more at ports that nobody has use for. What it does not answer is
    /// asked the next time.
    pub(super) async fn give_back(&self, mux: &Mux) {
        let closed: Vec<String> = {
            let ways = self.lock();
            let closed = ways.iter().filter(|(_, way)| way.is_closed);
            closed.map(|(service, _)| service.clone()).collect()
        };
        for service in closed {
            let request = SessionRequest::Unforward {
                service: service.clone(),
            };
            let asked = timeout(ANSWER_LIMIT, exchange(mux, &request, &[])).await;
            if !matches!(asked, Ok(Ok((SessionAnswer::Done, _)))) {
                return;
            }
            self.lock().remove(&service);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Way>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A port inside that leads to the same port outside. Dropping it closes the way, and then the
/// inside gives the port back.
#[derive(Debug)]
pub(super) struct Passage {
    pub(super) service: String,
    pub(super) passages: Passages,
    pub(super) client: Weak<Client>,
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.passages.close(&self.service);
        // Without a runtime it is the next one who leads a port that gives this one back.
        if let (Some(client), Ok(runtime)) =
            (self.client.upgrade(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(async move { client.give_back().await });
        }
    }
}

/// What programs inside can reach.
#[derive(Debug, Clone)]
pub(super) struct Services {
    pub(super) passages: Passages,
    /// Decides about connections to the network; without one there are none.
    pub(super) proxy: Option<Arc<PolicyProxy>>,
}

/// Takes connections that programs inside make. How many there are is bounded by the streams that a
/// connection has.
pub(super) async fn answer_calls(mut calls: mpsc::Receiver<MuxStream>, services: Services) {
    let together = Arc::new(Semaphore::new(MOST_TOGETHER));
    while let Some(mut stream) = calls.recv().await {
        let together = Arc::clone(&together);
        let services = services.clone();
        tokio::spawn(async move {
            // Writing nothing acknowledges the stream. The other side opens no more while 256 wait
            // for that, and many a service says nothing for long.
            let _ = stream.write(&[]).await;
            // The connection is over when one side says so, whatever the reason.
            let _ = answer_call(stream, &services, &together).await;
        });
    }
}

async fn answer_call(
    mut stream: MuxStream,
    services: &Services,
    together: &Semaphore,
) -> io::Result<()> {
    let call: SessionCall = timeout(ANSWER_LIMIT, read_frame(&mut stream)).await??;
    if let (SessionCall::EGRESS, Some(proxy)) = (call.service.as_str(), &services.proxy) {
        proxy.serve(stream).await;
        return Ok(());
    }
    let way = services.passages.lock().get(&call.service).cloned();
    let Some(way) = way.filter(|way| !way.is_closed) else {
        return Ok(());
    };
    // One too many is closed at once.
    let (Ok(_permit), Ok(_together)) = (way.room.try_acquire(), together.try_acquire()) else {
        return Ok(());
    };
    let mut service = TcpStream::connect((Ipv4Addr::LOCALHOST, way.port)).await?;
    service.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut stream, &mut service).await?;
    Ok(())
}

#[cfg(test)]
#[path = "passages_tests.rs"]
mod tests;
