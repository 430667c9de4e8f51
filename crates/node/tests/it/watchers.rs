use std::io::{BufReader, Write as _};
use std::process::Child;

use mini_ork_node::supervise::{Found, Stop, find};
use mini_ork_protocol::ExitOutcome;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{NODE_PROGRAM, World, block_on, supervisor_alone, wait_until, watcher};

const MEBIBYTE: u64 = 1 << 20;

/// Starts `sh -c SCRIPT` through a control plane of its own, and waits until it runs.
fn start_watcher(world: &World, script: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = watcher()
        .args(["start", NODE_PROGRAM])
        .arg(world.directory())
        .args(["sh", "-c", script, &world.token])
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    assert_eq!(next_line(&mut stdout), "started");
    (child, stdout)
}

fn next_line(stdout: &mut impl std::io::BufRead) -> String {
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// The peak in KiB at the end of the watcher's report.
fn peak(report: &str) -> u64 {
    report
        .strip_suffix(" kB")
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn bc_21_memory_does_not_grow_with_output() {
    let world = World::new();
    let script = format!(
        "exec 3>&1; yes $0 | head -c {} ; while [ ! -e go ]; do sleep 0.02; done",
        200 * MEBIBYTE
    );
    let script = format!("cd {}; {script}", world.root.path().display());
    let (mut child, mut stdout) = start_watcher(&world, &script);
    let Found::Running(process) = find(&world.directory()).unwrap() else {
        panic!("it runs");
    };
    let log = world.directory().join("stdout.log");
    wait_until("200 MiB", || {
        fs_err::metadata(&log).unwrap().len() == 200 * MEBIBYTE
    });
    let supervisor = process.record().unwrap().supervisor.pid;
    let status = fs_err::read_to_string(format!("/proc/{supervisor}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let supervisor_peak: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    assert!(supervisor_peak < 16 * 1024, "{supervisor_peak} KiB");

    fs_err::write(world.root.path().join("go"), "").unwrap();
    let report = next_line(&mut stdout);
    assert!(report.starts_with("exit 0, 209715200 bytes"), "{report}");
    assert!(peak(&report) < 24 * 1024, "{report}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_process_outlives_its_watcher_and_is_found_by_the_next() {
    let world = World::new();
    let script = "echo one; read -r line < go; echo two; exit 5";
    let script = format!("cd {}; {script}", world.root.path().display());
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let fifo = world.root.path().join("go");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let (mut first, _) = start_watcher(&world, &script);
    first.kill().unwrap();
    first.wait().unwrap();

    let attach = || {
        watcher()
            .arg("attach")
            .arg(world.directory())
            .spawn()
            .unwrap()
    };
    let watchers = [attach(), attach()];
    fs_err::write(&fifo, "\n").unwrap();
    for attached in watchers {
        let output = attached.wait_with_output().unwrap();
        let report = String::from_utf8(output.stdout).unwrap();
        // A watcher that came after the end finds the record instead.
        let waited = report.starts_with("exit 5, 8 bytes");
        assert!(waited || report.contains("Exited { code: 5 }"), "{report}");
    }
    assert_eq!(world.read_stdout(), b"one\ntwo\n");
}

#[test]
fn an_end_while_nobody_was_there_is_found_later() {
    let world = World::new();
    let script = format!(
        "cd {}; while [ ! -e go ]; do sleep 0.02; done; echo done; exit 9",
        world.root.path().display()
    );
    let (mut first, _) = start_watcher(&world, &script);
    let Found::Running(process) = find(&world.directory()).unwrap() else {
        panic!("it runs");
    };
    first.kill().unwrap();
    first.wait().unwrap();
    fs_err::write(world.root.path().join("go"), "").unwrap();
    wait_until("record", || {
        fs_err::exists(world.directory().join("exit.json")).unwrap()
    });
    let exit = block_on(process.wait()).unwrap();
    assert_eq!(exit.outcome, ExitOutcome::Exited { code: 9 });
    let Found::Ended(found) = find(&world.directory()).unwrap() else {
        panic!("it ended");
    };
    assert_eq!(found, exit);
    assert_eq!(world.read_stdout(), b"done\n");
}

#[test]
fn a_time_limit_does_not_need_a_watcher() {
    let world = World::new();
    let mut spec = world.shell("sleep $0");
    spec.timeout_ms = Some(500);
    spec.grace_ms = 100;
    block_on(world.start(&spec));
    wait_until("record", || {
        fs_err::exists(world.directory().join("exit.json")).unwrap()
    });
    let Found::Ended(exit) = find(&world.directory()).unwrap() else {
        panic!("it ended");
    };
    assert_eq!(exit.outcome, ExitOutcome::TimedOut);
    world.assert_nothing_is_left();
}

#[test]
fn one_who_did_not_start_it_can_wait_for_it_and_stop_it() {
    let world = World::new();
    block_on(async {
        let started = world.start(&world.shell("sleep $0")).await;
        let Found::Running(found) = find(&world.directory()).unwrap() else {
            panic!("it runs");
        };
        assert_eq!(found.record(), started.record());
        found.stop(Stop::Graceful).unwrap();
        let (one, other) = tokio::join!(started.wait(), found.wait());
        assert_eq!(one.unwrap(), other.unwrap());
    });
    world.assert_nothing_is_left();
}

#[test]
fn a_supervisor_that_was_killed_is_lost_and_its_program_gone() {
    let world = World::new();
    let process = block_on(world.start(&world.shell("sleep $0 & sleep $0")));
    world.wait_for_processes(3);
    let supervisor = process.record().unwrap().supervisor.pid;
    kill_process(Pid::from_raw(supervisor).unwrap(), Signal::KILL).unwrap();
    wait_until("loss", || {
        !matches!(find(&world.directory()).unwrap(), Found::Running(_))
    });
    assert!(matches!(find(&world.directory()).unwrap(), Found::Lost));
    world.assert_nothing_is_left();
}

#[test]
fn a_supervisor_that_was_stopped_can_still_be_told_to_end() {
    let world = World::new();
    block_on(async {
        let process = world.start(&world.shell("sleep $0")).await;
        let supervisor = process.record().unwrap().supervisor.pid;
        kill_process(Pid::from_raw(supervisor).unwrap(), Signal::STOP).unwrap();
        process.stop(Stop::Immediate).unwrap();
        assert_eq!(process.wait().await.unwrap().outcome, ExitOutcome::Stopped);
    });
    world.assert_nothing_is_left();
}

#[test]
fn signals_of_a_closing_terminal_do_not_end_a_process() {
    let world = World::new();
    block_on(async {
        let process = world
            .start(&world.shell("while [ ! -e go ]; do sleep 0.02; done; exit 4"))
            .await;
        let supervisor = Pid::from_raw(process.record().unwrap().supervisor.pid).unwrap();
        for signal in [Signal::HUP, Signal::INT, Signal::QUIT] {
            kill_process(supervisor, signal).unwrap();
        }
        fs_err::write(world.root.path().join("go"), "").unwrap();
        assert_eq!(
            process.wait().await.unwrap().outcome,
            ExitOutcome::Exited { code: 4 }
        );
    });
}

#[test]
fn nothing_runs_for_a_starter_that_died() {
    let world = World::new();
    let spec = serde_json::to_vec(&world.shell("echo ran; sleep $0")).unwrap();
    let cut_off = world.root.path().join("cut off");
    let unheard = world.root.path().join("unheard");
    for (directory, sent) in [(&cut_off, &spec[..spec.len() - 1]), (&unheard, &spec[..])] {
        fs_err::create_dir(directory).unwrap();
        let mut child = supervisor_alone(directory).spawn().unwrap();
        drop(child.stdout.take());
        child.stdin.take().unwrap().write_all(sent).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(!fs_err::exists(directory.join("process.json")).unwrap());
        world.assert_nothing_is_left();
    }
    // So it may still be started, by whoever comes next.
    for directory in [&cut_off, &unheard] {
        assert!(matches!(find(directory).unwrap(), Found::NeverStarted));
        let spec = world.shell("echo ran");
        let process = block_on(world.supervisor.start(directory, &spec)).unwrap();
        block_on(process.wait()).unwrap();
        let log = fs_err::read(directory.join("stdout.log")).unwrap();
        assert_eq!(log, b"ran\n");
    }
}

#[test]
fn a_process_that_is_being_started_is_not_lost() {
    let world = World::new();
    for number in 0..20 {
        let directory = world.root.path().join(number.to_string());
        let spec = world.shell("exec sleep $0");
        let starter = std::thread::spawn({
            let (supervisor, directory) = (world.supervisor.clone(), directory.clone());
            move || block_on(supervisor.start(&directory, &spec)).unwrap()
        });
        let found = loop {
            match find(&directory).unwrap() {
                Found::NeverStarted => {}
                Found::Running(process) => break process,
                other => panic!("{other:?}"),
            }
        };
        found.stop(Stop::Immediate).unwrap();
        assert_eq!(
            block_on(found.wait()).unwrap().outcome,
            ExitOutcome::Stopped
        );
        starter.join().unwrap();
    }
    world.assert_nothing_is_left();
}
