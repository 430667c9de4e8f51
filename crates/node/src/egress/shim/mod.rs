//! The shim: what listens on the loopback of a workspace and carries connections out.

mod names;
mod plan;
mod query;
mod socks;
mod way_out;
mod web;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub use plan::{LoopbackPlan, NAME_SERVER, PROXY_ADDRESS};
pub use way_out::WayOut;

use super::policy::AllowList;
use names::Names;
use plan::Door;
use way_out::{carry, connect};

/// Most connections at once; the next one waits until one has ended.
const MOST_CONNECTIONS: usize = 512;
const FIRST_BYTE_LIMIT: Duration = Duration::from_secs(60);

/// The shim at work. Dropping it closes its listeners, and connections but tunnels.
pub struct Shim {
    doors: Arc<Doors>,
}

impl Shim {
    /// Listens for all that `allowed` lists, in a workspace whose files are made by the same
    /// [`LoopbackPlan`]. Everything listens once this returns.
    pub async fn start(allowed: &AllowList, way_out: Arc<dyn WayOut>) -> Result<Self, ShimError> {
        let doors = Arc::new(Doors {
            way_out,
            slots: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            tasks: Mutex::default(),
        });
        // From here on a failure closes what is open.
        let shim = Self { doors };
        let plan = LoopbackPlan::new(allowed);
        for door in plan.doors() {
            shim.doors.open(door)?;
        }
        let proxy = SocketAddr::from(PROXY_ADDRESS);
        let listener = listen(proxy)?;
        let way_out = Arc::clone(&shim.doors.way_out);
        shim.doors.serve(listener, move |program| {
            let way_out = Arc::clone(&way_out);
            async move {
                let first = tokio::time::timeout(FIRST_BYTE_LIMIT, web::first_byte(&program));
                match first.await {
                    Ok(Ok(socks::VERSION)) => {
                        let _ = socks::serve(program, &way_out).await;
                    }
                    Ok(Ok(_)) => web::serve(program, &way_out).await,
                    _ => {}
                }
            }
        });
        Names::new(allowed.clone(), &plan, Arc::clone(&shim.doors))
            .start()
            .await?;
        Ok(shim)
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        // The tasks hold the doors themselves.
        self.doors.tasks().abort_all();
    }
}

impl fmt::Debug for Shim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shim").finish_non_exhaustive()
    }
}

/// The shim could not listen, so that a host of the list could not be reached.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} in the workspace")]
pub struct ShimError {
    /// Where.
    pub address: SocketAddr,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// The listeners, and everything that runs for them.
struct Doors {
    way_out: Arc<dyn WayOut>,
    slots: Arc<Semaphore>,
    tasks: Mutex<JoinSet<()>>,
}

impl Doors {
    /// Listens at a door and carries what comes to its host.
    fn open(&self, door: &Door) -> Result<(), ShimError> {
        let listener = listen(door.at)?;
        let (way_out, host, port) = (
            Arc::clone(&self.way_out),
            door.host.to_string(),
            door.at.port(),
        );
        self.serve(listener, move |program| {
            let (way_out, host) = (Arc::clone(&way_out), host.clone());
            async move {
                if let Ok(Ok(outside)) = connect(&way_out, &host, port).await {
                    carry(program, outside).await;
                }
            }
        });
        Ok(())
    }

    /// Accepts for ever, each connection in a task of its own.
    fn serve<F, W>(&self, listener: TcpListener, work: F)
    where
        F: Fn(TcpStream) -> W + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let slots = Arc::clone(&self.slots);
        self.keep(async move {
            let mut connections = JoinSet::new();
            loop {
                while connections.try_join_next().is_some() {}
                match listener.accept().await {
                    Ok((program, _)) => {
                        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                            return;
                        };
                        let _ = program.set_nodelay(true);
                        let work = work(program);
                        connections.spawn(async move {
                            work.await;
                            drop(slot);
                        });
                    }
                    // The other side went away, or there are no descriptors left.
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        });
    }

    fn keep(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener, ShimError> {
    let bound = std::net::TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    });
    bound.map_err(|source| ShimError { address, source })
}
