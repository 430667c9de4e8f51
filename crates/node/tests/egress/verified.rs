use std::io::Read as _;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use mini_ork_node::confine::ConfineError;
use mini_ork_node::egress::{NetworkPolicy, SystemResolver};
use mini_ork_node::probe::{Canary, Seen, Verdict, Verification, VerifyError, verify};
use mini_ork_node::supervise::Supervisor;
use mini_ork_node::workspace::docker::DockerSettings;
use mini_ork_node::workspace::{BackendSettings, ConfinedSettings, WorkspaceError};
use mini_ork_testkit::{ContainerEngine, GVISOR, skip, static_node_program, wait_for};

use crate::capture::Capture;

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
        authorities: Vec::new(),
    }
}

fn allowlist() -> NetworkPolicy {
    NetworkPolicy::new("allowlist", ["example.com", "*.example.org"]).unwrap()
}

/// Tries everything in a workspace of `backend` while all packets of this machine are looked at:
/// none reaches the canary, and none carries its word to anybody. None where the machine forbids
/// such a workspace.
#[track_caller]
fn assert_closed(backend: &str, settings: BackendSettings) -> Option<Verification> {
    let directory = tempfile::tempdir().unwrap();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    let capture = Capture::start();
    let verified = runtime.block_on(verify(backend, settings, directory.path()));
    let verified = match verified {
        Ok(verified) => verified,
        Err(VerifyError::Workspace(WorkspaceError::Confine(ConfineError::Refused(reason)))) => {
            skip(&reason);
            return None;
        }
        Err(error) => panic!("{error}: {error:?}"),
    };
    match capture {
        Some(capture) => {
            // Packets that do come, after all that must not.
            let control = Canary::start().unwrap();
            let place = (Ipv4Addr::LOCALHOST, control.port());
            let mut said = String::new();
            let mut stream = TcpStream::connect(place).unwrap();
            stream.read_to_string(&mut said).unwrap();
            let captured = capture.end();
            assert!(captured.to(control.port()) > 0, "the capture works");
            assert!(captured.has(control.word()), "the capture works");
            assert_eq!(captured.to(verified.canary), 0, "{captured:?}");
            assert!(!captured.has(&verified.word), "{captured:?}");
        }
        None => skip("packets can only be captured as root"),
    }
    let attempts = verified.attempts.iter();
    let bad: Vec<String> = attempts
        .filter(|attempt| !attempt.verdict.is_good())
        .map(|attempt| format!("{} {}: {}", attempt.way, attempt.what, attempt.outcome))
        .collect();
    assert_eq!(bad, Vec::<String>::new());
    assert_eq!(verified.seen, Seen::default());
    assert!(verified.is_good() && verified.attempts.len() > 100);
    Some(verified)
}

/// Everything that the list of bypasses has was tried, and what is allowed worked.
#[track_caller]
fn assert_complete(verified: &Verification) {
    for way in [
        "TCP",
        "TCP, IPv6",
        "TCP, IPv4 as IPv6",
        "UDP",
        "UDP, IPv6",
        "QUIC",
        "ICMP",
        "raw socket",
        "DNS over UDP",
        "DNS over TCP",
        "DNS over TLS",
        "DNS over HTTPS",
        "DNS of its own",
        "CONNECT",
        "SOCKS",
        "proxied request",
        "name of a reserved address",
        "pipelined CONNECT",
        "pipelined requests",
        "CONNECT in CONNECT",
        "other Host",
        "second request",
        "two Hosts",
        "other name in TLS",
        "no name in TLS",
        "redirection",
        "session server",
        "Unix socket",
    ] {
        let tried = verified.attempts.iter().any(|attempt| attempt.way == way);
        assert!(tried, "{way} was not tried");
    }
    let open = verified
        .attempts
        .iter()
        .filter(|attempt| attempt.verdict == Verdict::Open);
    assert_eq!(open.count(), 2, "what is allowed works");
}

#[test]
fn bc_31_and_33_nothing_gets_out_of_a_confined_workspace() {
    assert_closed("local", settings(NetworkPolicy::None));
}

#[test]
fn bc_34_and_36_a_confined_workspace_reaches_what_is_allowed_and_no_more() {
    if let Some(verified) = assert_closed("local", settings(allowlist())) {
        assert_complete(&verified);
    }
}

/// None where the engine cannot be started.
#[track_caller]
fn verified_in_container(
    engine: Option<ContainerEngine>,
    runtime: Option<&str>,
    network: NetworkPolicy,
) -> Option<Verification> {
    let node_program = static_node_program()?;
    let engine = engine?;
    let mut settings = settings(network);
    settings.docker = DockerSettings {
        endpoint: engine.endpoint(),
        image: Some(engine.busybox_image()),
        runtime: runtime.map(ToOwned::to_owned),
        node_program,
        ..DockerSettings::default()
    };
    let verified = assert_closed("docker", settings);
    assert_eq!(engine.containers(), Vec::<String>::new());
    verified
}

#[test]
fn bc_31_and_33_nothing_gets_out_of_a_container() {
    verified_in_container(ContainerEngine::start(), None, NetworkPolicy::None);
}

#[test]
fn bc_34_and_36_a_container_reaches_what_is_allowed_and_no_more() {
    let verified = verified_in_container(ContainerEngine::start(), None, allowlist());
    if let Some(verified) = verified {
        assert_complete(&verified);
        let mut attempts = verified.attempts.iter();
        let knocked = attempts.any(|attempt| attempt.what.starts_with("@mini-ork-session"));
        assert!(knocked, "the server inside was asked without its token");
    }
}

#[test]
fn bc_31_and_33_nothing_gets_out_of_gvisor() {
    let engine = ContainerEngine::start_with_gvisor();
    verified_in_container(engine, Some(GVISOR), NetworkPolicy::None);
}

#[test]
fn bc_34_and_36_gvisor_reaches_what_is_allowed_and_no_more() {
    let engine = ContainerEngine::start_with_gvisor();
    if let Some(verified) = verified_in_container(engine, Some(GVISOR), allowlist()) {
        assert_complete(&verified);
    }
}

#[test]
fn bc_34_and_36_a_container_of_podman_reaches_what_is_allowed_and_no_more() {
    let engine = ContainerEngine::start_podman(0);
    if let Some(verified) = verified_in_container(engine, None, allowlist()) {
        assert_complete(&verified);
    }
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
