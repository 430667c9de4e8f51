//! Bounds, and who can reach a gateway at all.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use mini_ork_node::gateway::{Gateway, GatewayLimits, Roots};
use mini_ork_node::model::{CallLedger, FailureClass};

use super::lane::{
    Book, CHAT, Lane, MESSAGES, ask, base_url, exchange, path, plain, quick, settings,
};
use super::upstream::{Answer, Upstream};
use crate::support::block_on;

#[test]
fn the_calls_of_a_node_have_a_bound() {
    block_on(async {
        let limits = GatewayLimits {
            max_calls: 2,
            ..quick()
        };
        let lane = Lane::limited(CHAT, vec![Answer::json(200, plain(CHAT))], limits).await;
        let statuses = [
            lane.ask().await.status,
            lane.ask().await.status,
            lane.ask().await.status,
        ];
        assert_eq!(statuses, [200, 200, 400]);
        assert_eq!(lane.upstream.seen().len(), 2);
        let report = lane.gateway.close().await;
        assert_eq!(report.calls, 2);
        assert_eq!(report.failure.unwrap().class, FailureClass::Calls);
    });
}

#[test]
fn many_requests_at_once_are_all_served() {
    block_on(async {
        let lane = Lane::open(MESSAGES, vec![Answer::json(200, plain(MESSAGES))]).await;
        let body = format!("{{\"model\":\"m\",\"x\":\"{}\"}}", "x".repeat(900 << 10));
        // More than may be in memory at a time.
        let head = lane.head(path(MESSAGES), &[]);
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..12 {
            let (address, head, body) = (lane.gateway.address(), head.clone(), body.clone());
            asking.spawn(async move { exchange(address, &head, body.as_bytes()).await.status });
        }
        while let Some(status) = asking.join_next().await {
            assert_eq!(status.unwrap(), 200);
        }
        assert_eq!(lane.recorded(12).await.len(), 12);
    });
}

#[test]
fn bc_47_a_sandbox_reaches_its_own_gateway_alone() {
    let result = block_on(async {
        let vendor = Upstream::plain(vec![Answer::json(200, plain(CHAT))]).await;
        let sibling = Lane::open(CHAT, vec![Answer::json(200, plain(CHAT))]).await;
        let taken = [vendor.address.port(), sibling.gateway.address().port()];
        let (sandbox, listener) = Sandbox::enter(taken)?;
        let roots = Roots {
            system: false,
            extra_pem: None,
        };
        let settings = settings(CHAT, &base_url(CHAT, vendor.address), roots);
        let own = settings.placeholder.expose().to_owned();
        let book: Arc<dyn CallLedger> = Arc::new(Book::default());
        let gateway = Gateway::open(listener, settings, book).await.unwrap();

        let address = gateway.address();
        let other = sibling.placeholder.expose();
        assert_eq!(sandbox.status(address, &own).await, Some(200));
        assert_eq!(sandbox.status(address, other).await, Some(401));
        let neighbours = [sibling.gateway.address(), vendor.address];
        for neighbour in neighbours {
            for token in [&own, other] {
                assert_eq!(sandbox.status(neighbour, token).await, None);
            }
        }
        assert_eq!(vendor.seen().len(), 1);
        assert!(sibling.upstream.seen().is_empty());
        assert_eq!(sibling.report().calls, 0);

        gateway.close().await;
        assert_eq!(sandbox.status(address, &own).await, None);
        Ok::<_, String>(())
    });
    if let Err(reason) = result {
        println!("SKIP: no network of its own can be made here: {reason}");
    }
}

/// A thread in a network of its own, which has a loopback interface and nothing else.
struct Sandbox {
    requests: mpsc::Sender<(SocketAddr, String)>,
    statuses: mpsc::Receiver<Option<u16>>,
}

impl Sandbox {
    /// Gives a listener from in there, on a port that is not `taken` out here.
    fn enter(taken: [u16; 2]) -> Result<(Self, TcpListener), String> {
        let (requests, asked) = mpsc::channel::<(SocketAddr, String)>();
        let (answer, statuses) = mpsc::channel();
        let (made, making) = mpsc::channel();
        std::thread::spawn(move || {
            let listener = Self::listen(taken);
            let is_made = listener.is_ok();
            made.send(listener).unwrap();
            if is_made {
                for (address, token) in asked {
                    answer.send(ask_from_here(address, &token)).unwrap();
                }
            }
        });
        let listener = making.recv().unwrap()?;
        Ok((Self { requests, statuses }, listener))
    }

    #[expect(unsafe_code, reason = "it has no safe form any more")]
    #[expect(
        clippy::disallowed_methods,
        reason = "the one constructor of what brings an interface up"
    )]
    fn listen(taken: [u16; 2]) -> Result<TcpListener, String> {
        let network = rustix::thread::UnshareFlags::NEWNET;
        // SAFETY: only the descriptor table must not be unshared.
        unsafe { rustix::thread::unshare_unsafe(network) }.map_err(|error| error.to_string())?;
        // It is started by this thread, so it is in the same network.
        let up = std::process::Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status()
            .map_err(|error| format!("ip: {error}"))?;
        assert!(up.success());
        loop {
            let listener = super::lane::listener();
            if !taken.contains(&listener.local_addr().unwrap().port()) {
                return Ok(listener);
            }
        }
    }

    /// The status that `address` answers to a request with `token`, when it answers.
    async fn status(&self, address: SocketAddr, token: &str) -> Option<u16> {
        self.requests.send((address, token.to_owned())).unwrap();
        loop {
            match self.statuses.try_recv() {
                Ok(status) => return status,
                Err(mpsc::TryRecvError::Empty) => {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn ask_from_here(address: SocketAddr, token: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    let (path, body) = (path(CHAT), ask(CHAT));
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    Some(reply[9..12].parse().unwrap())
}
