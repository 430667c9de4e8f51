use std::io::Read as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mini_ork_node::confine::{ConfineError, Confinement, confine, end};
use mini_ork_node::egress::{AllowList, Denial, LoopbackPlan, PolicyProxy};
use mini_ork_protocol::ByteString;
use mini_ork_testkit::{skip, wait_for};
use tokio::net::UnixStream;

use crate::support::{Server, Zone};

const PROGRAM: &str = env!("CARGO_BIN_EXE_mini-ork-node-test-inside");
const LIMIT: Duration = Duration::from_secs(60);

/// A confined workspace in a directory of its own.
pub(crate) struct Boxed {
    pub(crate) root: tempfile::TempDir,
    entries: String,
    proxy: Arc<PolicyProxy>,
    /// Directories whose sockets lead nowhere.
    quiet: Vec<PathBuf>,
}

impl Boxed {
    pub(crate) fn new(entries: &[String], zone: &Arc<Zone>) -> Self {
        let allowed = AllowList::parse(entries.iter().map(String::as_str)).unwrap();
        let root = tempfile::tempdir().unwrap();
        for name in ["work", "tmp"] {
            fs_err::create_dir(root.path().join(name)).unwrap();
        }
        Self {
            root,
            entries: entries.join(","),
            proxy: Arc::new(PolicyProxy::new(allowed, Arc::clone(zone) as _)),
            quiet: Vec::new(),
        }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    fn confinement(&self, script: &str) -> Confinement {
        let entries = self.entries.split(',').filter(|entry| !entry.is_empty());
        let plan = LoopbackPlan::new(&AllowList::parse(entries).unwrap());
        let text = |text: &str| ByteString::from(Path::new(text));
        let mut env = vec![(
            text("PATH"),
            text("/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"),
        )];
        let proxies = LoopbackPlan::environment();
        env.extend(
            proxies
                .iter()
                .map(|(name, value)| (text(name), text(value))),
        );
        Confinement {
            argv: [PROGRAM, &self.entries, script].map(text).to_vec(),
            env,
            cwd: self.work().as_path().into(),
            writable: vec![self.work().as_path().into()],
            replaced: Vec::new(),
            readable: vec![text(PROGRAM)],
            hidden: Vec::new(),
            quiet: self
                .quiet
                .iter()
                .map(|path| path.as_path().into())
                .collect(),
            temporary: self.root.path().join("tmp").as_path().into(),
            hosts: plan.hosts_file("box"),
            resolver: LoopbackPlan::resolver_file(),
            record: self.root.path().join("first.json").as_path().into(),
            processes: 2048,
            socket: Some(self.root.path().join("socket").as_path().into()),
        }
    }

    /// Runs a script in a shell inside and returns what it said; none where the machine forbids it.
    pub(crate) fn run(&self, script: &str) -> Option<String> {
        self.run_until(script, || true)
    }

    /// As [`Self::run`], and waits for something before it ends the workspace.
    fn run_until(&self, script: &str, condition: impl Fn() -> bool) -> Option<String> {
        let log = self.root.path().join("log");
        let file = fs_err::File::create(&log).unwrap().into_file();
        let first = match confine(Path::new(PROGRAM), &self.confinement(script), file) {
            Ok(first) => first,
            Err(ConfineError::Refused(reason)) => {
                skip(&format!("no namespaces here: {reason}"));
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let (socket, proxy) = (self.root.path().join("socket"), Arc::clone(&self.proxy));
        std::thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().unwrap();
            runtime.block_on(async {
                let mut ways = tokio::task::JoinSet::new();
                for _ in 0..8 {
                    let (socket, proxy) = (socket.clone(), Arc::clone(&proxy));
                    ways.spawn(async move {
                        while let Ok(stream) = UnixStream::connect(&socket).await {
                            proxy.serve(stream).await;
                        }
                    });
                }
                while ways.join_next().await.is_some() {}
            });
        });
        let said = || fs_err::read_to_string(&log).unwrap();
        let until = Instant::now() + LIMIT;
        while !said().contains("ended ") && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        wait_for("what was to happen", LIMIT, condition);
        end(first).unwrap();
        let said = said();
        assert!(said.contains("ended "), "{said}");
        let _ = fs_err::remove_file(self.root.path().join("socket"));
        Some(said)
    }

    pub(crate) fn denials(&self) -> Vec<Denial> {
        self.proxy.denials()
    }
}

fn nothing_allowed() -> Boxed {
    Boxed::new(&[], &Zone::of(&[]))
}

#[test]
fn only_loopback_is_there_and_only_the_own_processes() {
    let script = "grep -c : /proc/net/dev; cat /proc/net/route | wc -l; ls /proc | grep -c '^[0-9]'; \
        grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp|Uid)' /proc/self/status; id -u; \
        cat /etc/hosts /etc/resolv.conf; readlink /proc/1/ns/user; ls /dev /run /tmp";
    let Some(said) = nothing_allowed().run(script) else {
        return;
    };
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["1", "1"], "an interface, no route: {said}");
    assert!(lines[2].parse::<u32>().unwrap() < 8, "{said}");
    for line in [
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(lines.contains(&line), "{line}: {said}");
    }
    let user = rustix::process::geteuid().as_raw().to_string();
    assert!(lines.contains(&user.as_str()), "{said}");
    assert!(
        lines.contains(&"127.0.0.1 box") && lines.contains(&"nameserver 127.1.0.1"),
        "{said}"
    );
    assert!(!said.contains("sda") && !said.contains("docker"), "{said}");
    assert!(said.ends_with("ended 0\n"), "{said}");
}

#[test]
fn nothing_is_written_but_where_it_is_allowed() {
    let boxed = nothing_allowed();
    let outside = boxed.root.path().join("outside");
    fs_err::write(&outside, "kept").unwrap();
    let script = format!(
        "echo a > file && echo own; echo a > /tmp/x && echo temporary; \
         for path in /etc/x /usr/x /proc/sys/kernel/core_pattern /proc/sysrq-trigger \
            /sys/kernel/x /dev/sda /home/x /var/x; do \
            (echo a > $path) 2>/dev/null && echo wrote $path; done; \
         mount -t tmpfs none /mnt 2>/dev/null && echo mounted; \
         umount /tmp 2>/dev/null && echo unmounted; \
         cat {outside} 2>/dev/null; echo a > {outside}; \
         unshare -Urm sh -c 'umount /run || umount /tmp || mount -o remount,rw /' 2>/dev/null && echo escaped; \
         true",
        outside = outside.display(),
    );
    let Some(said) = boxed.run(&script) else {
        return;
    };
    assert_eq!(said, "own\ntemporary\nended 0\n");
    assert_eq!(fs_err::read_to_string(&outside).unwrap(), "kept");
    assert_eq!(
        fs_err::read_to_string(boxed.work().join("file")).unwrap(),
        "a\n"
    );
    let temporary = boxed.root.path().join("tmp/x");
    assert!(temporary.exists());
}

#[test]
fn bc_33_programs_that_ignore_the_proxy_get_to_listed_hosts_and_no_others() {
    let server = Server::echo(b"hello\n");
    let canary = Server::echo(b"hello\n");
    let port = server.port();
    let zone = Zone::of(&[
        ("db.test", &["127.0.0.1"]),
        ("x.wild.test", &["127.0.0.1"]),
        ("canary.test", &["127.0.0.1"]),
    ]);
    let entries = [
        format!("db.test:{port}"),
        format!("*.wild.test:{port}"),
        format!("127.0.0.1:{port}"),
    ];
    let boxed = Boxed::new(&entries, &zone);
    let reach = "import socket,sys\n\
        for host, port in [a.rsplit(':', 1) for a in sys.argv[1:]]:\n\
        \ttry:\n\
        \t\ts = socket.create_connection((host, int(port)), 10); s.settimeout(10)\n\
        \t\tprint(host, s.recv(100))\n\
        \texcept OSError as e: print(host, 'failed')\n";
    let script = format!(
        "unset HTTP_PROXY http_proxy HTTPS_PROXY https_proxy ALL_PROXY all_proxy; \
         cat > reach.py <<'END'\n{reach}END\n\
         /usr/bin/python3 reach.py db.test:{port} x.wild.test:{port} 127.0.0.1:{port} \
            canary.test:{canary} 127.0.0.1:{canary} wild.test:{port} 1.1.1.1:443 ::1:{canary}",
        canary = canary.port(),
    );
    if !Path::new("/usr/bin/python3").exists() {
        return skip("no python3 here");
    }
    let told = || {
        boxed
            .denials()
            .iter()
            .any(|denial| denial.place == "canary.test")
    };
    let Some(said) = boxed.run_until(&script, told) else {
        return;
    };
    let expected = "db.test b'hello\\n'\nx.wild.test b'hello\\n'\n127.0.0.1 b'hello\\n'\n\
        canary.test failed\n127.0.0.1 failed\nwild.test failed\n1.1.1.1 failed\n::1 failed\nended 0\n";
    assert_eq!(said, expected);
    assert_eq!((server.count(), canary.count()), (3, 0));
}

#[test]
fn the_proxy_inside_speaks_http_and_socks() {
    let server = Server::web();
    let port = server.port();
    let zone = Zone::of(&[("web.test", &["127.0.0.1"])]);
    let entries = [format!("web.test:{port}"), format!("127.0.0.1:{port}")];
    let boxed = Boxed::new(&entries, &zone);
    let script = format!(
        "curl -sS http://web.test:{port}/absolute; echo; \
         curl -sS -p http://web.test:{port}/tunnel; echo; \
         curl -sS --noproxy '' -x socks5h://127.1.0.1:3128 http://web.test:{port}/socks; echo; \
         curl -sS --noproxy '*' http://web.test:{port}/direct; echo; \
         curl -sS -o answer -w '%{{http_code}}\\n' http://denied.test/; cat answer; \
         curl -s -p -o answer -w '%{{http_connect}}\\n' http://denied.test/; \
         curl -s --noproxy '' -x socks5h://127.1.0.1:3128 http://denied.test/ || echo refused; \
         curl -s --noproxy '' -x http://127.1.0.1:3128 http://127.0.0.1:1/ -o answer -w '%{{http_code}}\\n'",
    );
    if !Path::new("/usr/bin/curl").exists() {
        return skip("no curl here");
    }
    let Some(said) = boxed.run(&script) else {
        return;
    };
    let expected = "/absolute\n/tunnel\n/socks\n/direct\n403\nmini-ork: denied.test:80 may not be \
        reached from this workspace: it is not on the list of allowed hosts\n403\nrefused\n403\nended 0\n";
    assert_eq!(said, expected);
    let denied: u64 = boxed.denials().iter().map(|denial| denial.count).sum();
    assert_eq!(denied, 4, "{:?}", boxed.denials());
}

#[test]
fn sockets_of_the_machine_are_not_reached() {
    let Ok(directory) = tempfile::tempdir_in("/var") else {
        return skip("cannot write below /var");
    };
    let path = directory.path().join("daemon");
    let daemon = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let name = format!("mini-ork-test-{}", std::process::id());
    let address =
        <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(
            &name,
        );
    let abstract_daemon = std::os::unix::net::UnixListener::bind_addr(&address.unwrap()).unwrap();
    let script = format!(
        "cat > reach.py <<'END'\nimport socket\n\
         for where in ['{}', '\\0{name}']:\n\ttry:\n\t\tsocket.socket(socket.AF_UNIX).connect(where); print('reached')\n\
         \texcept OSError as e: print('closed')\n\
         for family, kind in [(40, 1), (17, 3), (2, 3), (10, 3), (38, 5), (31, 1)]:\n\ttry:\n\t\tsocket.socket(family, kind, 0); print('made', family)\n\
         \texcept OSError as e: print('none')\nEND\n/usr/bin/python3 reach.py",
        path.display()
    );
    let boxed = nothing_allowed();
    let Some(said) = boxed.run(&script) else {
        return;
    };
    assert_eq!(
        said,
        format!("{}{}ended 0\n", "closed\n".repeat(2), "none\n".repeat(6))
    );
    for listener in [daemon, abstract_daemon] {
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err());
    }
}

/// Connects to each path, and says whether somebody was there.
const KNOCK: &str = "import socket, sys\nfor where in sys.argv[1:]:\n\ttry:\n\t\tsocket.socket(socket.AF_UNIX).connect(where); print('reached')\n\texcept OSError as e: print('closed')\n";

#[test]
fn a_socket_that_was_renamed_after_it_was_bound_is_not_reached() {
    let Ok(directory) = tempfile::tempdir_in("/var") else {
        return skip("cannot write below /var");
    };
    let at = |name: &str| directory.path().join(name);
    // As OpenSSH makes the socket of a shared connection.
    let linked = UnixListener::bind(at("cm-x.draft")).unwrap();
    fs_err::hard_link(at("cm-x.draft"), at("cm-x")).unwrap();
    fs_err::remove_file(at("cm-x.draft")).unwrap();
    let renamed = UnixListener::bind(at("draft")).unwrap();
    fs_err::rename(at("draft"), at("renamed")).unwrap();
    let script = format!(
        "cat > knock.py <<'END'\n{KNOCK}END\n/usr/bin/python3 knock.py {} {}",
        at("cm-x").display(),
        at("renamed").display(),
    );
    let Some(said) = nothing_allowed().run(&script) else {
        return;
    };
    assert_eq!(said, "closed\nclosed\nended 0\n");
    for listener in [linked, renamed] {
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err());
    }
}

#[test]
fn a_socket_that_is_made_later_in_a_quiet_directory_is_not_reached() {
    let Ok(directory) = tempfile::tempdir_in("/var") else {
        return skip("cannot write below /var");
    };
    let at = |name: &str| directory.path().join(name);
    fs_err::create_dir(at("deeper")).unwrap();
    fs_err::write(at("config"), "Host a\n").unwrap();
    let old = UnixListener::bind(at("old")).unwrap();
    let mut boxed = nothing_allowed();
    boxed.quiet = vec![directory.path().to_owned(), at("missing")];
    let script = format!(
        "cat > knock.py <<'END'\n{KNOCK}END\ntouch ready; while ! test -e go; do sleep 0.01; done; \
         cat {config}; touch {config} 2>/dev/null && echo written; \
         /usr/bin/python3 knock.py {} {} {} {}",
        at("old").display(),
        at("new").display(),
        at("deeper/new").display(),
        at("linked").display(),
        config = at("config").display(),
    );
    let (ready, go) = (boxed.work().join("ready"), boxed.work().join("go"));
    let (old_path, new_path) = (at("old"), at("new"));
    let (deeper, linked) = (at("deeper/new"), at("linked"));
    let later = std::thread::spawn(move || {
        let until = Instant::now() + LIMIT;
        while !ready.exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        // The program is there anew: what covered its first socket goes with that.
        fs_err::remove_file(&old_path).unwrap();
        let made = [&old_path, &new_path, &deeper].map(|path| UnixListener::bind(path).unwrap());
        fs_err::hard_link(&new_path, linked).unwrap();
        fs_err::write(go, "").unwrap();
        made
    });
    let said = boxed.run(&script);
    fs_err::write(boxed.work().join("ready"), "").unwrap();
    let made = later.join().unwrap();
    let Some(said) = said else {
        return;
    };
    assert_eq!(said, format!("Host a\n{}ended 0\n", "closed\n".repeat(4)));
    for listener in made.into_iter().chain([old]) {
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err());
    }
}

#[test]
fn everything_ends_with_the_first_process_and_it_starts_fast() {
    let boxed = nothing_allowed();
    let script =
        "for i in 1 2 3; do (setsid sh -c 'touch started; sleep 1000' &) ; done; sleep 1000";
    let log = boxed.root.path().join("log");
    let file = fs_err::File::create(&log).unwrap().into_file();
    let started = Instant::now();
    let first = match confine(Path::new(PROGRAM), &boxed.confinement(script), file) {
        Ok(first) => first,
        Err(ConfineError::Refused(reason)) => return skip(&reason),
        Err(error) => panic!("{error}"),
    };
    let took = started.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    wait_for("start", LIMIT, || boxed.work().join("started").exists());
    let marker = boxed.work();
    let mut sleepers = 0;
    let inside = |pid: &Path| {
        let mut text = String::new();
        let cwd = fs_err::read_link(pid.join("cwd")).unwrap_or_default();
        let _ =
            fs_err::File::open(pid.join("cmdline")).map(|mut file| file.read_to_string(&mut text));
        cwd == marker && text.starts_with("sleep")
    };
    let count = || {
        let processes = fs_err::read_dir("/proc").unwrap().flatten();
        processes.filter(|entry| inside(&entry.path())).count()
    };
    wait_for("sleepers", LIMIT, || {
        sleepers = count();
        sleepers >= 3
    });
    end(first).unwrap();
    wait_for("their end", LIMIT, || count() == 0);
    end(first).unwrap();
}

#[test]
fn bc_38_without_a_way_out_everything_is_closed() {
    let server = Server::web();
    let port = server.port();
    let zone = Zone::of(&[("web.test", &["127.0.0.1"])]);
    let entries = [format!("web.test:{port}"), format!("127.0.0.1:{port}")];
    let boxed = Boxed::new(&entries, &zone);
    // Nobody connects to the socket: there is no proxy.
    let script = format!(
        "curl -s -m 2 http://web.test:{port}/ || echo closed; \
         curl -s -m 2 --noproxy '*' http://web.test:{port}/ || echo closed"
    );
    let log = boxed.root.path().join("log");
    let file = fs_err::File::create(&log).unwrap().into_file();
    let first = match confine(Path::new(PROGRAM), &boxed.confinement(&script), file) {
        Ok(first) => first,
        Err(ConfineError::Refused(reason)) => return skip(&reason),
        Err(error) => panic!("{error}"),
    };
    wait_for("end", LIMIT, || {
        fs_err::read_to_string(&log).unwrap().contains("ended")
    });
    end(first).unwrap();
    assert_eq!(
        fs_err::read_to_string(&log).unwrap(),
        "closed\nclosed\nended 0\n"
    );
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
}
