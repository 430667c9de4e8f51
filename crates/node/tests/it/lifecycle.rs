use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use mini_ork_node::egress::{NetworkPolicy, SystemResolver};
use mini_ork_node::supervise::{Found, Stop, SuperviseError, Supervisor, find};
use mini_ork_node::workspace::docker::DockerSettings;
use mini_ork_node::workspace::{
    Attached, BackendSettings, ConfinedSettings, Drive, SpawnRequest, open,
};
use mini_ork_protocol::{ByteString, ExitOutcome, StdinSource};

use crate::support::{NODE_PROGRAM, World, block_on, wait_until};

#[test]
fn the_exit_code_and_both_streams_come_back() {
    for code in [0, 7, 127] {
        let world = World::new();
        let exit =
            block_on(world.run(&world.shell(&format!("echo out; echo err >&2; exit {code}"))));
        assert_eq!(exit.outcome, ExitOutcome::Exited { code });
        assert_eq!(exit.stragglers, 0);
        assert!(exit.started_at_ms > 0 && exit.ended_at_ms >= exit.started_at_ms);
        assert_eq!(world.read_stdout(), b"out\n");
        assert_eq!(world.read_stderr(), b"err\n");
    }
}

#[test]
fn the_records_are_for_this_user_alone_and_hold_no_environment() {
    let world = World::new();
    let mut spec = world.shell("sleep 0");
    spec.env.push(("API_KEY".into(), "canary-7f1c".into()));
    block_on(world.run(&spec));
    let mode = |path| fs_err::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(world.directory()), 0o700);
    let mut names = Vec::new();
    for entry in fs_err::read_dir(world.directory()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(path.clone()), 0o600, "{path:?}");
        assert!(!String::from_utf8_lossy(&fs_err::read(&path).unwrap()).contains("canary-7f1c"));
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(
        names,
        [
            "exit.json",
            "process.json",
            "stderr.log",
            "stdout.log",
            "supervisor.json"
        ]
    );
}

#[test]
fn a_signal_from_elsewhere_is_told_from_a_stop() {
    let world = World::new();
    let exit = block_on(world.run(&world.shell("kill -USR2 $$")));
    assert_eq!(exit.outcome, ExitOutcome::Signaled { signal: 12 });
}

#[test]
fn a_program_that_cannot_run_is_an_outcome_with_its_reason() {
    let world = World::new();
    let root = world.root.path().to_owned();
    fs_err::write(root.join("text"), "no").unwrap();
    crate::support::write_program(&root.join("script"), "#!/nowhere/interpreter\n");
    crate::support::write_program(&root.join("garbage"), "\u{7f}ELFnot really");
    let spec = world.spec(&["true"]);
    let cases = [
        (
            world.spec(&["no-such-program"]),
            "was not found on the PATH",
        ),
        (world.spec(&["./text"]), "is not executable"),
        (
            world.spec(&["./script"]),
            "interpreter that it names was not found",
        ),
        (world.spec(&["./garbage"]), "does not run"),
        (world.spec(&[]), "argument list is empty"),
        (world.spec(&["true", "a\0b"]), "NUL byte"),
        (
            with(&spec, |spec| spec.cwd = "/nowhere".into()),
            "`/nowhere` does not exist",
        ),
        (
            with(&spec, |spec| spec.cwd = "/etc/passwd".into()),
            "is not a directory",
        ),
        (
            with(&spec, |spec| spec.cwd = "tmp".into()),
            "is not an absolute path",
        ),
        (
            with(&spec, |spec| spec.env.push(("A=B".into(), "".into()))),
            "`A=B` cannot be the name",
        ),
        (
            with(&spec, |spec| {
                spec.stdin = StdinSource::File("/nowhere".into());
            }),
            "standard input",
        ),
        (
            with(&spec, |spec| spec.argv.push("x".repeat(1 << 20).into())),
            "longer than this machine",
        ),
    ];
    for (number, (spec, expected)) in cases.into_iter().enumerate() {
        let directory = root.join(number.to_string());
        block_on(async {
            let process = world.supervisor.start(&directory, &spec).await.unwrap();
            let ExitOutcome::SpawnFailed { message } = process.wait().await.unwrap().outcome else {
                panic!("case {number} ran");
            };
            assert!(message.contains(expected), "{number}: {message}");
            assert!(process.record().is_none());
        });
        assert!(
            matches!(find(&directory).unwrap(), Found::Ended(_)),
            "{number}"
        );
    }

    fn with(
        spec: &mini_ork_protocol::ProcessSpec,
        change: impl FnOnce(&mut mini_ork_protocol::ProcessSpec),
    ) -> mini_ork_protocol::ProcessSpec {
        let mut spec = spec.clone();
        change(&mut spec);
        spec
    }
}

#[test]
fn a_directory_serves_one_process() {
    let world = World::new();
    let spec = world.shell("exec sleep $0");
    block_on(async {
        let process = world.start(&spec).await;
        let second = world
            .supervisor
            .start(&world.directory(), &spec)
            .await
            .unwrap_err();
        assert!(matches!(second, SuperviseError::Taken { .. }), "{second}");
        assert_eq!(world.processes().len(), 1, "the first goes on alone");
        process.stop(Stop::Immediate).unwrap();
        process.wait().await.unwrap();
        let third = world
            .supervisor
            .start(&world.directory(), &spec)
            .await
            .unwrap_err();
        assert!(matches!(third, SuperviseError::Taken { .. }), "{third}");
    });
    world.assert_nothing_is_left();
}

#[test]
fn a_supervisor_that_is_none_is_an_error() {
    let world = World::new();
    block_on(async {
        let missing = Supervisor::new("/nowhere/mini-ork".into());
        let error = missing
            .start(&world.directory(), &world.spec(&["true"]))
            .await
            .unwrap_err();
        assert!(matches!(error, SuperviseError::Launch { .. }), "{error}");
        let other = Supervisor::new("/bin/false".into());
        let error = other
            .start(&world.directory(), &world.spec(&["true"]))
            .await
            .unwrap_err();
        assert!(
            matches!(error, SuperviseError::NotStarted { .. }),
            "{error}"
        );
        let relative = world
            .supervisor
            .start("records".as_ref(), &world.spec(&["true"]))
            .await
            .unwrap_err();
        assert!(
            matches!(relative, SuperviseError::Records { .. }),
            "{relative}"
        );
    });
    assert!(matches!(
        find(&world.directory()).unwrap(),
        Found::NeverStarted
    ));
}

#[test]
fn a_time_limit_holds_and_leaves_the_grace_time() {
    let world = World::new();
    let mut spec = world.shell("trap 'echo polite; exit 0' TERM; sleep $0 & wait");
    spec.timeout_ms = Some(300);
    let began = Instant::now();
    let exit = block_on(world.run(&spec));
    assert_eq!(exit.outcome, ExitOutcome::TimedOut);
    assert_eq!(world.read_stdout(), b"polite\n");
    assert!(began.elapsed() >= Duration::from_millis(300));
    world.assert_nothing_is_left();
}

#[test]
fn what_ignores_a_polite_stop_is_killed_after_its_grace_time() {
    let world = World::new();
    let mut spec = world.shell("trap '' TERM; echo ready; while :; do sleep $0; done");
    spec.grace_ms = 300;
    block_on(async {
        let process = world.start(&spec).await;
        wait_until("ready", || world.read_stdout() == b"ready\n");
        world.wait_for_processes(2);
        let began = Instant::now();
        process.stop(Stop::Graceful).unwrap();
        let exit = process.wait().await.unwrap();
        assert_eq!(exit.outcome, ExitOutcome::Stopped);
        assert!(began.elapsed() >= Duration::from_millis(300));
        process.stop(Stop::Graceful).unwrap();
        assert_eq!(process.wait().await.unwrap(), exit);
    });
    world.assert_nothing_is_left();
}

#[test]
fn a_second_polite_stop_is_not_polite() {
    let world = World::new();
    let mut spec = world.shell("trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done");
    spec.grace_ms = 1_000_000;
    block_on(async {
        let process = world.start(&spec).await;
        wait_until("ready", || world.read_stdout() == b"ready\n");
        process.stop(Stop::Graceful).unwrap();
        wait_until("asked", || world.read_stdout() == b"ready\nasked\n");
        process.stop(Stop::Graceful).unwrap();
        assert_eq!(process.wait().await.unwrap().outcome, ExitOutcome::Stopped);
    });
    world.assert_nothing_is_left();
}

#[test]
fn too_much_output_ends_a_program() {
    let world = World::new();
    let mut spec = world.shell("yes $0 | head -c 3000000; yes $0 | head -c 3000000 >&2; sleep $0");
    spec.output_limit = 4_000_000;
    assert_eq!(block_on(world.run(&spec)).outcome, ExitOutcome::OutputLimit);
    world.assert_nothing_is_left();
    assert!(world.read_stdout().len() + world.read_stderr().len() > 4_000_000);
}

#[test]
fn a_workspace_of_the_catalog_runs_and_finds_programs() {
    let world = World::new();
    let settings = BackendSettings {
        supervisor: Supervisor::new(NODE_PROGRAM.into()),
        docker: DockerSettings::default(),
        confined: ConfinedSettings::default(),
        network: NetworkPolicy::Full,
        authorities: Vec::new(),
        resolver: std::sync::Arc::new(SystemResolver),
    };
    let workspace = open("local", &settings).unwrap();
    let request = SpawnRequest {
        directory: world.directory(),
        argv: vec!["sh".into(), "-c".into(), "echo $MARK; exit 3".into()],
        cwd: world.root.path().to_owned(),
        env: vec![
            ("PATH".into(), "/usr/bin:/bin".into()),
            ("MARK".into(), ByteString::from("x y")),
        ],
        stdin: StdinSource::Null,
        timeout: Some(Duration::MAX),
        grace: Duration::MAX,
        output_limit: u64::MAX,
        secrets: Vec::new(),
    };
    let drive = Drive {
        name: "run".to_owned(),
        private: world.root.path().join("private"),
        proof: world.root.path().to_owned(),
        shares: Vec::new(),
    };
    block_on(async {
        workspace.up(&drive).await.unwrap();
        workspace.up(&drive).await.unwrap();
        let before = workspace.attach(&world.directory()).await.unwrap();
        assert!(matches!(before, Attached::NeverStarted), "{before:?}");
        let process = workspace.spawn(request).await.unwrap();
        let exit = process.wait().await.unwrap();
        assert_eq!(exit.outcome, ExitOutcome::Exited { code: 3 });
        let Attached::Ended(found) = workspace.attach(&world.directory()).await.unwrap() else {
            panic!("the end is on record");
        };
        assert_eq!(found, exit);
        workspace.down(&drive).await.unwrap();
        workspace.down(&drive).await.unwrap();
    });
    assert_eq!(world.read_stdout(), b"x y\n");
}
