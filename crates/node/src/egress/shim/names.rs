use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;

use super::super::host::{Host, HostName};
use super::super::policy::{AllowList, LOCALHOST};
use super::plan::{Door, LoopbackPlan, NAME_SERVER, numbered};
use super::query::{self, Known};
use super::way_out::connect;
use super::{Doors, ShimError};

/// Most names below `*.host` entries that get an address in the life of a workspace.
const MOST_NAMES: usize = 1000;
/// Most unknown names that are told to the outside, each once.
const MOST_TOLD: usize = 200;
/// The first block of their addresses; the ones before it are for names that are listed exactly.
const FIRST_BLOCK: u8 = 16;
const QUESTION_LIMIT: Duration = Duration::from_secs(10);

/// The name server of a workspace. It knows the names of the list and asks nobody.
pub(super) struct Names {
    allowed: AllowList,
    doors: Arc<Doors>,
    addresses: Mutex<HashMap<HostName, Ipv4Addr>>,
    made: Mutex<usize>,
    told: Mutex<BTreeSet<HostName>>,
}

impl Names {
    pub(super) fn new(allowed: AllowList, plan: &LoopbackPlan, doors: Arc<Doors>) -> Self {
        Self {
            allowed,
            doors,
            addresses: Mutex::new(plan.names().iter().cloned().collect()),
            made: Mutex::new(0),
            told: Mutex::default(),
        }
    }

    /// Answers questions from now on.
    pub(super) async fn start(self) -> Result<(), ShimError> {
        let failed = |source| ShimError {
            address: NAME_SERVER.into(),
            source,
        };
        let socket = UdpSocket::bind(NAME_SERVER).await.map_err(failed)?;
        let listener = TcpListener::bind(NAME_SERVER).await.map_err(failed)?;
        let names = Arc::new(self);
        let doors = Arc::clone(&names.doors);
        let streams = Arc::clone(&names);
        doors.keep(async move { names.serve_datagrams(&socket).await });
        doors.serve(listener, move |stream| {
            let names = Arc::clone(&streams);
            async move { names.serve_stream(stream).await }
        });
        Ok(())
    }

    async fn serve_datagrams(&self, socket: &UdpSocket) {
        let mut message = [0; 1500];
        loop {
            let Ok((count, from)) = socket.recv_from(&mut message).await else {
                // An answer that nobody waited for; the socket is as good as before.
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            };
            if let Some(answer) = self.answer(&message[..count]) {
                let _ = socket.send_to(&answer, from).await;
            }
        }
    }

    async fn serve_stream(&self, mut stream: TcpStream) {
        loop {
            let read = async {
                let length = usize::from(stream.read_u16().await?);
                let mut message = vec![0; length];
                stream.read_exact(&mut message).await?;
                Ok::<_, std::io::Error>(message)
            };
            let Ok(Ok(message)) = timeout(QUESTION_LIMIT, read).await else {
                return;
            };
            let Some(answer) = self.answer(&message) else {
                return;
            };
            let Ok(length) = u16::try_from(answer.len()) else {
                return;
            };
            let framed = [&length.to_be_bytes()[..], &answer].concat();
            if stream.write_all(&framed).await.is_err() {
                return;
            }
        }
    }

    fn answer(&self, message: &[u8]) -> Option<Vec<u8>> {
        let question = query::read(message)?;
        let known = match &question.name {
            Some(name) => self.look_up(name),
            None => Known::Nowhere,
        };
        Some(query::answer(&question, known))
    }

    fn look_up(&self, name: &HostName) -> Known {
        if name.as_str() == LOCALHOST {
            return Known::At(Ipv4Addr::LOCALHOST);
        }
        let mut addresses = lock(&self.addresses);
        if let Some(address) = addresses.get(name) {
            return Known::At(*address);
        }
        let host = Host::Name(name.clone());
        let entries = self.allowed.entries().iter();
        let mut ports: Vec<u16> = entries
            .filter(|entry| entry.matches(&host))
            .flat_map(super::super::AllowEntry::ports)
            .collect();
        if ports.is_empty() {
            self.tell(name);
            return Known::Nowhere;
        }
        ports.sort_unstable();
        ports.dedup();
        let mut made = lock(&self.made);
        if *made >= MOST_NAMES {
            return Known::Full;
        }
        let address = numbered(FIRST_BLOCK, *made);
        *made += 1;
        for port in ports {
            let door = Door {
                at: SocketAddr::new(address.into(), port),
                host: host.clone(),
            };
            if self.doors.open(&door).is_err() {
                return Known::Full;
            }
        }
        addresses.insert(name.clone(), address);
        Known::At(address)
    }

    /// Lets the outside count what was looked for and is not on the list.
    fn tell(&self, name: &HostName) {
        let mut told = lock(&self.told);
        if told.len() < MOST_TOLD && told.insert(name.clone()) {
            let (way_out, name) = (Arc::clone(&self.doors.way_out), name.to_string());
            self.doors.keep(async move {
                let _ = connect(&way_out, &name, 0).await;
            });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
