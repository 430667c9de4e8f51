//! What every backend has to do, in the same way.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use fs_err::os::unix::fs::symlink;
use mini_ork_node::supervise::{STDOUT_LOG, Stop};
use mini_ork_node::workspace::{Attached, EntryKind, InnerPath, ListRequest};
use mini_ork_protocol::{ByteString, ExitOutcome, MountProof, SecretBytes, StdinSource};

use crate::bench::{Bench, Ended};
use crate::ports::ports_are_given_back;
use crate::way_in::another_process_may_be_let_in;

/// What every backend does, or those that it applies to.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) applies: fn(&Bench) -> bool,
    pub(crate) run: for<'a> fn(&'a Bench) -> Pin<Box<dyn Future<Output = ()> + 'a>>,
}

macro_rules! cases {
    ($($name:ident $(if $applies:expr)?),* $(,)?) => {
        /// All cases.
        pub(crate) const CASES: &[Case] = &[
            $(Case {
                name: stringify!($name),
                applies: |_bench| true $(&& $applies(_bench))?,
                run: |bench| Box::pin($name(bench)),
            },)*
        ];
    };
}

cases![
    arguments_and_environment_are_exact,
    the_environment_is_the_whole_one,
    standard_input_is_exact,
    standard_input_is_at_its_end_without_a_file,
    output_is_exact_and_in_order,
    exit_codes_are_told,
    signals_are_told,
    a_time_limit_is_kept,
    an_output_limit_is_kept,
    nothing_is_left_of_a_program_that_hides,
    a_stop_is_polite_and_then_firm,
    bc_25_a_program_that_does_not_exist_is_told,
    a_working_directory_that_does_not_exist_is_told,
    a_program_outlives_its_control_plane,
    an_end_is_found_by_the_next_control_plane,
    links_lead_the_next_control_plane_nowhere,
    a_directory_serves_one_process,
    what_was_never_started_is_told,
    forged_records_are_no_process if Bench::has_a_server,
    many_programs_at_once,
    secrets_are_not_in_the_logs,
    files_are_written_read_and_listed,
    files_outside_are_out_of_reach,
    a_port_is_led_through if Bench::has_a_network_of_its_own,
    ports_are_given_back if Bench::has_a_network_of_its_own,
    another_process_may_be_let_in if Bench::has_a_way_in,
    the_server_may_die if Bench::has_a_server,
];

async fn arguments_and_environment_are_exact(bench: &Bench) {
    let odd: Vec<u8> = (1..=255).collect();
    let mut request = bench.shell("printf '%s\\0' \"$@\" \"$ODD\"");
    request.argv.extend([
        "sh".into(),
        "".into(),
        " two  words ".into(),
        "-n".into(),
        "*".into(),
        ByteString::from(odd.clone()),
    ]);
    request
        .env
        .push(("ODD".into(), ByteString::from(odd.clone())));
    let ended = bench.run(request).await;
    let expected = [
        b"\0 two  words \0-n\0*\0".as_slice(),
        &odd,
        b"\0",
        &odd,
        b"\0",
    ]
    .concat();
    assert_eq!(ended.stdout, expected);
    assert_eq!(ended.code(), Some(0));
}

async fn the_environment_is_the_whole_one(bench: &Bench) {
    let said = bench.say("env | cut -d = -f 1 | sort | tr '\\n' ' '").await;
    let names: Vec<&str> = said
        .split_whitespace()
        // What shells add by themselves.
        .filter(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(name))
        .collect();
    assert_eq!(names, ["MO_RUN_MARKER", "PATH"]);
}

async fn standard_input_is_exact(bench: &Bench) {
    let bytes: Vec<u8> = (0..300_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let file = bench.root.join("input");
    fs_err::write(&file, &bytes).unwrap();
    let mut request = bench.request(&["cat"]);
    request.stdin = StdinSource::File(file.as_path().into());
    assert_eq!(bench.run(request).await.stdout, bytes);
}

async fn standard_input_is_at_its_end_without_a_file(bench: &Bench) {
    assert_eq!(bench.say("cat; echo end").await, "end\n");
}

async fn output_is_exact_and_in_order(bench: &Bench) {
    const LINES: usize = 1 << 20;
    let ended = bench
        .run(bench.shell("seq -w 1 1048576; echo done >&2"))
        .await;
    assert_eq!(ended.stdout.len(), LINES * 8, "8 MiB");
    for (number, line) in (1..).zip(ended.stdout.chunks(8)) {
        assert_eq!(line, format!("{number:07}\n").as_bytes());
    }
    assert_eq!(ended.stderr, b"done\n");
}

async fn exit_codes_are_told(bench: &Bench) {
    for code in [0, 1, 7, 255] {
        let ended = bench.run(bench.shell(&format!("exit {code}"))).await;
        assert_eq!(ended.code(), Some(code));
    }
}

async fn signals_are_told(bench: &Bench) {
    for signal in [9, 15] {
        let ended = bench.run(bench.shell(&format!("kill -{signal} $$"))).await;
        assert_eq!(ended.record.outcome, ExitOutcome::Signaled { signal });
    }
}

async fn a_time_limit_is_kept(bench: &Bench) {
    let mut request = bench.shell("echo begun; sleep 100");
    request.timeout = Some(Duration::from_millis(300));
    let began = Instant::now();
    let ended = bench.run(request).await;
    assert_eq!(ended.record.outcome, ExitOutcome::TimedOut);
    assert_eq!(ended.text(), "begun\n");
    assert!(
        began.elapsed() < Duration::from_secs(50),
        "{:?}",
        began.elapsed()
    );
}

async fn an_output_limit_is_kept(bench: &Bench) {
    let mut request = bench.request(&["yes"]);
    request.output_limit = 1 << 20;
    let ended = bench.run(request).await;
    assert_eq!(ended.record.outcome, ExitOutcome::OutputLimit);
}

async fn nothing_is_left_of_a_program_that_hides(bench: &Bench) {
    let token = bench.token();
    // Its own session, and then an orphan in it.
    let script = format!("(setsid sh -c 'sleep {token} & sleep {token}' &) ; sleep 0.2; echo gone");
    let ended = bench.run(bench.shell(&script)).await;
    assert_eq!(ended.code(), Some(0));
    assert!(ended.record.stragglers >= 1, "{:?}", ended.record);
    assert_eq!(bench.processes(&token).await, "");
}

async fn a_stop_is_polite_and_then_firm(bench: &Bench) {
    let polite = "trap 'echo asked; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let running = bench.start(bench.shell(polite)).await;
    running.heard("ready").await;
    running.process.stop(Stop::Graceful).unwrap();
    let ended = running.wait().await;
    assert_eq!(ended.record.outcome, ExitOutcome::Stopped);
    assert_eq!(ended.text(), "ready\nasked\n");

    let token = bench.token();
    let deaf = format!("trap '' TERM; echo ready; while :; do sleep 0.05; done; : {token}");
    let running = bench.start(bench.shell(&deaf)).await;
    running.heard("ready").await;
    running.process.stop(Stop::Immediate).unwrap();
    assert_eq!(running.wait().await.record.outcome, ExitOutcome::Stopped);
    assert_eq!(bench.processes(&token).await, "");
    // Once more does nothing, and the end is the same.
    running.process.stop(Stop::Immediate).unwrap();
    assert_eq!(running.wait().await.record.outcome, ExitOutcome::Stopped);
}

async fn bc_25_a_program_that_does_not_exist_is_told(bench: &Bench) {
    let ended = bench.run(bench.request(&["no-such-program-97"])).await;
    let ExitOutcome::SpawnFailed { message } = &ended.record.outcome else {
        panic!("{:?}", ended.record);
    };
    assert!(
        message.contains("`no-such-program-97` was not found"),
        "{message}"
    );
}

async fn a_working_directory_that_does_not_exist_is_told(bench: &Bench) {
    let mut request = bench.shell("echo no");
    request.cwd = bench.root.join("nowhere");
    let ended = bench.run(request).await;
    let ExitOutcome::SpawnFailed { message } = &ended.record.outcome else {
        panic!("{:?}", ended.record);
    };
    assert!(message.contains("nowhere` does not exist"), "{message}");
}

async fn a_program_outlives_its_control_plane(bench: &Bench) {
    let first = (bench.reopen)();
    first.up(&bench.drive).await.unwrap();
    let mut request = bench.shell("echo begun; while ! [ -e go ]; do sleep 0.05; done; echo ended");
    request.cwd = bench.root.join("outlive");
    fs_err::create_dir_all(&request.cwd).unwrap();
    let go = request.cwd.join("go");
    let directory = request.directory.clone();
    drop(first.spawn(request).await.unwrap());
    drop(first);

    let second = (bench.reopen)();
    second.up(&bench.drive).await.unwrap();
    let Attached::Running(process) = second.attach(&directory).await.unwrap() else {
        panic!("it does not run");
    };
    fs_err::write(go, "").unwrap();
    let ended = Ended::of(process.wait().await.unwrap(), &directory);
    assert_eq!(
        (ended.code(), ended.text().as_str()),
        (Some(0), "begun\nended\n")
    );
}

async fn an_end_is_found_by_the_next_control_plane(bench: &Bench) {
    let ended = bench.start(bench.shell("exit 3")).await;
    ended.wait().await;
    let next = (bench.reopen)();
    next.up(&bench.drive).await.unwrap();
    let found = next.attach(&ended.directory).await.unwrap();
    let Attached::Ended(record) = found else {
        panic!("{found:?}");
    };
    assert_eq!(record.outcome, ExitOutcome::Exited { code: 3 });
}

async fn links_lead_the_next_control_plane_nowhere(bench: &Bench) {
    let outside = tempfile::NamedTempFile::new().unwrap();
    for name in [MountProof::QUESTION, MountProof::ANSWER] {
        symlink(outside.path(), bench.drive.proof.join(name)).unwrap();
    }
    (bench.reopen)().up(&bench.drive).await.unwrap();
    assert_eq!(fs_err::read(outside.path()).unwrap(), b"");
    for name in [MountProof::QUESTION, MountProof::ANSWER] {
        let _ = fs_err::remove_file(bench.drive.proof.join(name));
    }
}

async fn a_directory_serves_one_process(bench: &Bench) {
    let request = bench.shell("echo once");
    bench.run(request.clone()).await;
    let error = bench.workspace.spawn(request).await.unwrap_err();
    assert!(
        error.to_string().contains("already holds the records"),
        "{error}"
    );
}

async fn what_was_never_started_is_told(bench: &Bench) {
    let found = bench.workspace.attach(&bench.records()).await.unwrap();
    assert!(matches!(found, Attached::NeverStarted), "{found:?}");
}

/// Behind a boundary the records lie where programs can write.
async fn forged_records_are_no_process(bench: &Bench) {
    let honest = bench.start(bench.shell("exit 0")).await;
    honest.wait().await;
    let forged = bench.records();
    fs_err::create_dir_all(&forged).unwrap();
    for name in ["supervisor.json", "exit.json"] {
        fs_err::copy(honest.directory.join(name), forged.join(name)).unwrap();
    }
    let found = bench.workspace.attach(&forged).await.unwrap();
    assert!(matches!(found, Attached::NeverStarted), "{found:?}");
}

async fn many_programs_at_once(bench: &Bench) {
    let mut running = Vec::new();
    for number in 0..50 {
        running.push(
            bench
                .start(bench.shell(&format!("sleep 0.1; echo {number}; exit {number}")))
                .await,
        );
    }
    for (number, one) in running.iter().enumerate() {
        let ended = one.wait().await;
        assert_eq!(ended.text(), format!("{number}\n"));
        assert_eq!(ended.code(), i32::try_from(number).ok());
    }
}

async fn secrets_are_not_in_the_logs(bench: &Bench) {
    let secret = "SENTINEL-of-97-bytes";
    let mut request = bench.shell("echo \"key $KEY\"; echo \"$KEY\" >&2");
    request.env.push(("KEY".into(), secret.into()));
    request.secrets.push(SecretBytes::from(secret.as_bytes()));
    let directory = request.directory.clone();
    let ended = bench.run(request).await;
    assert_eq!(ended.code(), Some(0));
    assert!(ended.text().starts_with("key "), "{}", ended.text());
    for entry in fs_err::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let text = String::from_utf8_lossy(&fs_err::read(&path).unwrap()).into_owned();
        assert!(!text.contains(secret), "{}", path.display());
    }
}

async fn files_are_written_read_and_listed(bench: &Bench) {
    let workspace = &bench.workspace;
    let root = bench.root.join("files");
    fs_err::create_dir_all(&root).unwrap();
    let path = |text: &str| InnerPath::parse(&root, text).unwrap();
    let content: Vec<u8> = (0..100_000_u32)
        .map(|number| (number % 256) as u8)
        .collect();
    workspace
        .put(&root, &path("a/b/c"), content.clone())
        .await
        .unwrap();
    workspace
        .put(&root, &path("a/empty"), Vec::new())
        .await
        .unwrap();
    assert_eq!(
        workspace.get(&root, &path("a/b/c"), 100_000).await.unwrap(),
        content
    );
    assert_eq!(
        workspace.get(&root, &path("a/empty"), 0).await.unwrap(),
        b""
    );
    assert!(workspace.get(&root, &path("a/b/c"), 99_999).await.is_err());
    let missing = workspace.get(&root, &path("none"), 9).await.unwrap_err();
    assert_eq!(missing.source.kind(), std::io::ErrorKind::NotFound);
    let request = ListRequest {
        levels: 9,
        most: 100,
        not_entered: &["b"],
    };
    let listing = workspace.list(&root, &path("."), request).await.unwrap();
    let entries: Vec<_> = listing
        .entries
        .iter()
        .map(|entry| (entry.path.to_str().unwrap(), entry.kind))
        .collect();
    assert_eq!(
        entries,
        [
            ("a", EntryKind::Directory),
            ("a/b", EntryKind::Directory),
            ("a/empty", EntryKind::File)
        ]
    );
    assert!(listing.complete);
    let few = ListRequest { most: 1, ..request };
    let listing = workspace.list(&root, &path("."), few).await.unwrap();
    assert_eq!((listing.entries.len(), listing.complete), (1, false));
}

async fn files_outside_are_out_of_reach(bench: &Bench) {
    let root = bench.root.join("confined");
    fs_err::create_dir_all(&root).unwrap();
    fs_err::write(bench.root.join("outside"), "outside").unwrap();
    let said = bench
        .say("cd confined && ln -sf ../outside up && ln -sf /etc/passwd abs && ln -sfn .. dir && echo ok")
        .await;
    assert_eq!(said, "ok\n");
    for name in ["up", "abs", "dir/outside"] {
        let path = InnerPath::parse(&root, name).unwrap();
        bench.workspace.get(&root, &path, 10_000).await.unwrap_err();
        bench
            .workspace
            .put(&root, &path, b"x".to_vec())
            .await
            .unwrap_err();
    }
    assert_eq!(
        fs_err::read(bench.root.join("outside")).unwrap(),
        b"outside"
    );
}

/// A listener of this machine is reached at the same address inside, and not when it is let go.
pub(crate) async fn a_port_is_led_through(bench: &Bench) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = async {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0; 5];
            stream.read_exact(&mut asked).await.unwrap();
            assert_eq!(&asked, b"hello");
            stream.write_all(b"from outside").await.unwrap();
            stream.shutdown().await.unwrap();
        }
    };
    let ask = async {
        let lead = bench.workspace.lead(port).await.unwrap();
        let script = format!(
            "if command -v nc >/dev/null; then printf hello | nc 127.0.0.1 {port}; \
             else exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; printf hello >&3; cat <&3'; fi"
        );
        let ended = bench.run(bench.shell(&script)).await;
        let complaint = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.text(), "from outside", "{complaint}");
        drop(lead);
        let after = bench.run(bench.shell(&script)).await;
        assert_eq!(after.text(), "");
    };
    tokio::select! {
        () = serve => {}
        () = ask => {}
    }
}

async fn the_server_may_die(bench: &Bench) {
    let init = bench.init.unwrap();
    let kill = format!(
        "for d in /proc/[0-9]*; do read -r pid name state parent rest < $d/stat; \
         if [ \"$parent\" = {init} ]; then case $(tr '\\0' ' ' < $d/cmdline) in \
         *serve*) kill -9 $pid; echo killed;; esac; fi; done 2>/dev/null"
    );
    let mut request = bench.shell("echo begun; while ! [ -e go ]; do sleep 0.05; done; echo ended");
    request.cwd = bench.root.join("server");
    fs_err::create_dir_all(&request.cwd).unwrap();
    let go = request.cwd.join("go");
    let running = bench.start(request).await;
    running.heard("begun").await;
    let disturb = async {
        assert_eq!(bench.say(&kill).await, "killed\n");
        fs_err::write(&go, "").unwrap();
    };
    let (ended, ()) = tokio::join!(running.wait(), disturb);
    assert_eq!(
        (ended.code(), ended.text().as_str()),
        (Some(0), "begun\nended\n")
    );
    assert_eq!(bench.say("echo again").await, "again\n");
    assert!(running.directory.join(STDOUT_LOG).is_file());
}
