//! The outside dies, comes back, and is cut off: nothing is open meanwhile, and nothing else ever.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use mini_ork_node::egress::NetworkPolicy;
use mini_ork_node::probe::Canary;
use mini_ork_node::session::SessionError;
use mini_ork_node::supervise::Stop;
use mini_ork_node::workspace::WorkspaceError;
use mini_ork_testkit::{skip, wait_for};

use crate::places::{PATIENCE, Place};
use crate::support::{Server, Zone};

const HOST: &str = "web.test";

/// What is tried for as long as the workspace lives: the allowed host by the proxy and past it, and
/// the canary in three ways. One line for each turn.
const TRIES: &str = "try() { answer=$(curl -sf -m 2 \"$@\" 2>/dev/null) && test -n \"$answer\" && echo open || echo closed; }\n\
    while :; do\n\
    allowed=$(try http://$HOST:$PORT/x) direct=$(try --noproxy '*' http://$HOST:$PORT/x)\n\
    one=$(try http://$HOST:$CANARY/) two=$(try --noproxy '*' http://127.0.0.1:$CANARY/) three=$(try -x socks5h://127.1.0.1:3128 http://127.0.0.1:$CANARY/)\n\
    echo $allowed $direct $one $two $three; done";
const OPEN: &str = "open open closed closed closed";
const CLOSED: &str = "closed closed closed closed closed";

struct World {
    server: Server,
    canary: Canary,
}

impl World {
    fn new() -> Option<Self> {
        if !Path::new("/usr/bin/curl").exists() {
            skip("there is no curl; scripts/test installs it");
            return None;
        }
        Some(Self {
            server: Server::web(),
            canary: Canary::start().unwrap(),
        })
    }

    fn zone() -> Arc<Zone> {
        Zone::of(&[(HOST, &["127.0.0.1"])])
    }

    fn policy(&self) -> NetworkPolicy {
        let port = self.server.port();
        let entries = [format!("{HOST}:{port}"), format!("127.0.0.1:{port}")];
        NetworkPolicy::new("allowlist", entries.iter().map(String::as_str)).unwrap()
    }

    fn keep_closed(&self, mut place: Place) {
        let script = format!(
            "HOST={HOST} PORT={} CANARY={}\n{TRIES}",
            self.server.port(),
            self.canary.port()
        );
        let (process, log) = place.start(&script);
        // While it starts: nobody is there any more.
        drop(process);
        place.leave();
        let lines = || -> Vec<String> {
            let text = fs_err::read_to_string(&log).unwrap_or_default();
            // A line that is not whole yet says nothing.
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            whole.lines().map(ToOwned::to_owned).collect()
        };
        let closed_since = |from: usize| {
            let reached = self.server.count();
            wait_for("closed turns", PATIENCE, || {
                lines()
                    .iter()
                    .skip(from)
                    .filter(|line| *line == CLOSED)
                    .count()
                    >= 2
            });
            assert_eq!(self.server.count(), reached, "nobody got through meanwhile");
            lines().len()
        };
        let open_since = |place: &Place, from: usize| {
            place.serve_until("an open turn", || {
                lines().iter().skip(from).any(|line| line == OPEN)
            });
            lines().len()
        };
        let mut at = closed_since(0);
        place.come().unwrap();
        at = open_since(&place, at);
        place.leave();
        at = closed_since(at);
        place.come().unwrap();
        at = open_since(&place, at);
        // The server inside dies: the outside finds the new one and has a shim started there.
        place.kill_server();
        at = open_since_asked(&place, at, &lines);
        if place.backend == "docker" {
            // The channel is cut.
            assert!(place.cut() > 0);
            at = open_since_asked(&place, at, &lines);
        }
        let others: Vec<String> = lines()
            .into_iter()
            .filter(|line| !line.ends_with("closed closed closed"))
            .collect();
        assert_eq!(others, Vec::<String>::new());
        assert!(at > 0);
        let seen = self.canary.seen();
        assert_eq!((seen.connections, seen.datagrams), (0, 0));
        let found = place.serve(place.workspace().attach(log.parent().unwrap()));
        let mini_ork_node::workspace::Attached::Running(process) = found.unwrap() else {
            panic!("it does not run any more");
        };
        let ended = place.serve(async {
            process.stop(Stop::Immediate).unwrap();
            process.wait().await
        });
        ended.unwrap();
    }
}

/// The outside connects again when it next wants something, as the wait for a program does.
fn open_since_asked(place: &Place, from: usize, lines: &dyn Fn() -> Vec<String>) -> usize {
    let said = place.run("echo asked");
    assert_eq!(said, "asked\n");
    place.serve_until("an open turn", || {
        lines().iter().skip(from).any(|line| line == OPEN)
    });
    lines().len()
}

#[test]
fn bc_38_a_confined_workspace_is_closed_whenever_nobody_is_outside() {
    let Some(world) = World::new() else {
        return;
    };
    if let Some(place) = Place::confined(world.policy(), World::zone(), Vec::new()) {
        world.keep_closed(place);
    }
}

#[test]
fn bc_38_a_container_is_closed_whenever_nobody_is_outside() {
    let Some(world) = World::new() else {
        return;
    };
    if let Some(place) = Place::in_container(world.policy(), World::zone(), Vec::new(), "") {
        world.keep_closed(place);
    }
}

/// An engine that gives containers another network than they were to have is noticed before any
/// program runs.
#[test]
fn bc_38_a_container_that_has_a_network_all_the_same_is_refused() {
    let policy = NetworkPolicy::None;
    let Some(mut place) = Place::made(policy, World::zone(), Vec::new(), "", true) else {
        return;
    };
    let honest = place.settings.docker.endpoint.clone();
    let liar = Liar::start(&place.root.path().join("liar.sock"), &honest);
    place.settings.docker.endpoint = liar.endpoint.clone();
    match place.come() {
        Err(WorkspaceError::Session(SessionError::OtherWayOut { way })) => {
            assert!(way.contains("interfaces"), "{way}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(liar.lies.load(Ordering::SeqCst), 1);
    let left = place.engine.as_ref().unwrap().containers();
    assert_eq!(left, Vec::<String>::new());
    place.settings.docker.endpoint = honest;
}

/// Hands on what an engine is told, but for the network.
struct Liar {
    endpoint: String,
    lies: Arc<AtomicUsize>,
}

impl Liar {
    fn start(at: &Path, honest: &str) -> Self {
        let listener = UnixListener::bind(at).unwrap();
        let honest = honest.strip_prefix("unix://").unwrap().to_owned();
        let lies: Arc<AtomicUsize> = Arc::default();
        let count = Arc::clone(&lies);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let engine = UnixStream::connect(&honest).unwrap();
                let (from, to) = (client.try_clone().unwrap(), engine.try_clone().unwrap());
                let count = Arc::clone(&count);
                thread::spawn(move || carry(from, to, Some(&count)));
                thread::spawn(move || carry(engine, client, None));
            }
        });
        Self {
            endpoint: format!("unix://{}", at.display()),
            lies,
        }
    }
}

fn carry(mut from: UnixStream, mut to: UnixStream, lies: Option<&AtomicUsize>) {
    const WANTED: &[u8] = b"\"NetworkMode\":\"none\"";
    const TOLD: &[u8] = b"\"NetworkMode\":\"\"    ";
    let mut buffer = vec![0; 1 << 20];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &mut buffer[..count];
        let found = bytes.windows(WANTED.len()).position(|part| part == WANTED);
        if let (Some(at), Some(lies)) = (found, lies) {
            bytes[at..at + WANTED.len()].copy_from_slice(TOLD);
            lies.fetch_add(1, Ordering::SeqCst);
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}
