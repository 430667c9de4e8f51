use std::collections::HashMap;
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mini_ork_node::confine::ConfineError;
use mini_ork_node::egress::{NetworkPolicy, SystemResolver};
use mini_ork_node::probe::{Canary, Verdict, Verification, VerifyError, verify};
use mini_ork_node::supervise::Supervisor;
use mini_ork_node::workspace::docker::DockerSettings;
use mini_ork_node::workspace::{BackendSettings, ConfinedSettings, WorkspaceError};
use mini_ork_testkit::{ContainerEngine, skip, static_node_program, wait_for};

const PROGRAM: &str = env!("CARGO_BIN_EXE_mini-ork-node");

fn settings(network: NetworkPolicy) -> BackendSettings {
    BackendSettings {
        supervisor: Supervisor::new(PROGRAM.into()),
        docker: DockerSettings::default(),
        confined: ConfinedSettings {
            program: PROGRAM.into(),
            ..ConfinedSettings::default()
        },
        network,
        resolver: Arc::new(SystemResolver),
    }
}

/// None where the machine forbids it.
fn verified(network: NetworkPolicy) -> Option<Verification> {
    let directory = tempfile::tempdir().unwrap();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    let verified = runtime.block_on(verify("local", settings(network), directory.path()));
    match verified {
        Ok(verified) => Some(verified),
        Err(VerifyError::Workspace(WorkspaceError::Confine(ConfineError::Refused(reason)))) => {
            skip(&reason);
            None
        }
        Err(error) => panic!("{error}: {error:?}"),
    }
}

fn bad(verified: &Verification) -> Vec<String> {
    let attempts = verified.attempts.iter();
    attempts
        .filter(|attempt| !attempt.verdict.is_good())
        .map(|attempt| format!("{} {}: {}", attempt.way, attempt.what, attempt.outcome))
        .collect()
}

/// Counts the packets that this machine sees, by their port of destination.
struct Capture {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<HashMap<u16, u64>>>,
}

impl Capture {
    /// None for an ordinary user.
    fn start() -> Option<Self> {
        // All protocols, as the system call has them.
        let every = rustix::net::RawProtocol::new(u32::from(3_u16.to_be()));
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::PACKET,
            rustix::net::SocketType::DGRAM,
            every.map(rustix::net::Protocol::from_raw),
        );
        let socket = socket.ok()?;
        let limit = Some(Duration::from_millis(50));
        let timeout = rustix::net::sockopt::Timeout::Recv;
        rustix::net::sockopt::set_socket_timeout(&socket, timeout, limit).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let mut counts = HashMap::new();
            let mut packet = [0; 256];
            loop {
                let flags = rustix::net::RecvFlags::empty();
                match rustix::net::recv(&socket, &mut packet, flags) {
                    Ok((_, count)) => {
                        if let Some(port) = destination(&packet[..count.min(256)]) {
                            *counts.entry(port).or_default() += 1;
                        }
                    }
                    Err(_) if stop.load(Ordering::SeqCst) => return counts,
                    Err(_) => {}
                }
            }
        });
        Some(Self {
            over,
            thread: Some(thread),
        })
    }

    fn end(mut self) -> HashMap<u16, u64> {
        self.over.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn destination(packet: &[u8]) -> Option<u16> {
    let (protocol, at) = match packet.first()? >> 4 {
        4 => (*packet.get(9)?, usize::from(packet[0] & 15) * 4),
        6 => (*packet.get(6)?, 40),
        _ => return None,
    };
    let port = packet.get(at + 2..at + 4)?;
    matches!(protocol, 6 | 17).then(|| u16::from_be_bytes([port[0], port[1]]))
}

#[test]
fn bc_31_not_one_packet_reaches_the_canary() {
    let Some(capture) = Capture::start() else {
        return skip("packets can only be captured as root");
    };
    let policy = NetworkPolicy::new("allowlist", ["example.com"]).unwrap();
    let Some(verified) = verified(policy) else {
        return;
    };
    // A packet that does come, after all that must not.
    let control = Canary::start().unwrap();
    drop(TcpStream::connect((Ipv4Addr::LOCALHOST, control.port())).unwrap());
    let counts = capture.end();
    assert!(counts.contains_key(&control.port()), "the capture works");
    assert_eq!(counts.get(&verified.canary), None, "{counts:?}");
}

#[test]
fn bc_31_and_33_nothing_gets_out_without_a_network() {
    let Some(verified) = verified(NetworkPolicy::None) else {
        return;
    };
    assert_eq!(bad(&verified), Vec::<String>::new());
    assert!(verified.is_good(), "{:?}", verified.seen);
    assert!(verified.attempts.len() > 100, "{}", verified.attempts.len());
}

#[test]
fn bc_34_and_36_nothing_gets_out_by_way_of_what_is_allowed() {
    let policy = NetworkPolicy::new("allowlist", ["example.com", "*.example.org"]).unwrap();
    let Some(verified) = verified(policy) else {
        return;
    };
    assert_eq!(bad(&verified), Vec::<String>::new());
    assert!(verified.is_good(), "{:?}", verified.seen);
    let open = verified
        .attempts
        .iter()
        .filter(|attempt| attempt.verdict == Verdict::Open);
    assert_eq!(open.count(), 2, "what is allowed works");
}

#[test]
fn a_canary_notes_what_reaches_it() {
    let canary = Canary::start().unwrap();
    let mut said = String::new();
    let place = (Ipv4Addr::LOCALHOST, canary.port());
    let mut stream = TcpStream::connect(place).unwrap();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.contains(canary.word()));
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.send_to(b"noise", place).unwrap();
    socket.send_to(canary.word().as_bytes(), place).unwrap();
    wait_for("a datagram", Duration::from_secs(20), || {
        let seen = canary.seen();
        (seen.connections, seen.datagrams) == (1, 1)
    });
    assert!(Canary::addresses().contains(&Ipv4Addr::LOCALHOST.into()));
}

/// None where no engine can be started.
fn verified_in_container(network: NetworkPolicy) -> Option<Verification> {
    let node_program = static_node_program()?;
    let engine = ContainerEngine::start()?;
    let mut settings = settings(network);
    settings.docker = DockerSettings {
        endpoint: engine.endpoint(),
        image: Some(engine.busybox_image()),
        node_program,
        ..DockerSettings::default()
    };
    let directory = tempfile::tempdir().unwrap();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    let verified = runtime.block_on(verify("docker", settings, directory.path()));
    assert_eq!(engine.containers(), Vec::<String>::new());
    Some(verified.unwrap())
}

#[test]
fn bc_31_and_33_nothing_gets_out_of_a_container() {
    let Some(verified) = verified_in_container(NetworkPolicy::None) else {
        return;
    };
    assert_eq!(bad(&verified), Vec::<String>::new());
    assert!(verified.is_good(), "{:?}", verified.seen);
}

#[test]
fn bc_34_and_36_a_container_reaches_what_is_allowed_and_no_more() {
    let policy = NetworkPolicy::new("allowlist", ["example.com", "*.example.org"]).unwrap();
    let Some(verified) = verified_in_container(policy) else {
        return;
    };
    assert_eq!(bad(&verified), Vec::<String>::new());
    assert!(verified.is_good(), "{:?}", verified.seen);
}
