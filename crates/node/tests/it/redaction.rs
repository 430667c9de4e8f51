//! A program that has a secret in its environment, and prints it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mini_ork_node::supervise::{Found, Stop, SuperviseError, find};
use mini_ork_protocol::{ExitOutcome, ProcessSpec, SecretBytes};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{World, block_on, wait_until};

const SECRET: &str = "sk-SENTINEL/\"7f1c\"+x y";

/// A shell script that has the secret as `$KEY` and must not leave it in its logs.
fn script(world: &World, script: &str) -> ProcessSpec {
    let mut spec = world.shell(script);
    spec.env.push(("KEY".into(), SECRET.into()));
    spec.secrets = vec![SecretBytes::from(SECRET.as_bytes())];
    spec
}

fn run(world: &World, text: &str) {
    let exit = block_on(world.run(&script(world, text)));
    assert_eq!(exit.outcome, ExitOutcome::Exited { code: 0 });
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[test]
fn bc_42_no_form_of_a_secret_gets_into_the_logs() {
    let world = World::new();
    let forms = [
        SECRET.to_owned(),
        STANDARD.encode(SECRET),
        STANDARD.encode(format!("user:{SECRET}!")),
        "sk-SENTINEL%2F%227f1c%22%2Bx%20y".to_owned(),
        r#"sk-SENTINEL/\"7f1c\"+x y"#.to_owned(),
    ];
    let mut text = String::new();
    for form in &forms {
        let form = quoted(form);
        text.push_str(&format!(
            "printf '<%s>\\n' {form}; printf '<%s>\\n' {form} >&2;"
        ));
    }
    run(&world, &text);
    for log in [world.read_stdout(), world.read_stderr()] {
        let log = String::from_utf8(log).unwrap();
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines.len(), forms.len(), "{log}");
        for line in lines {
            assert!(line.contains("***"), "{log}");
            assert!(
                !line.contains("SENTINEL") && !line.contains("U0VOVElO"),
                "{log}"
            );
        }
        assert!(log.starts_with("<***>\n"), "{log}");
    }
}

/// Each byte of the secret is a write of its own, with pauses in which it can be passed on alone.
#[test]
fn bc_42_a_secret_in_many_small_writes_is_found() {
    let world = World::new();
    let steps: String = SECRET
        .chars()
        .map(|character| {
            let character = quoted(&character.to_string());
            format!("printf %s {character}; printf %s {character} >&2; sleep 0.01;")
        })
        .collect();
    run(&world, &format!("printf a; {steps} printf z; printf z >&2"));
    assert_eq!(world.read_stdout(), b"a***z");
    assert_eq!(world.read_stderr(), b"***z");
}

#[test]
fn bc_42_no_file_of_the_records_holds_the_secret() {
    let world = World::new();
    run(&world, "echo \"$KEY\"; env; cat /proc/self/environ");
    for entry in fs_err::read_dir(world.directory()).unwrap() {
        let path = entry.unwrap().path();
        let content = String::from_utf8_lossy(&fs_err::read(&path).unwrap()).into_owned();
        assert!(!content.contains("SENTINEL"), "{path:?}: {content}");
    }
}

#[test]
fn what_looks_like_a_secret_comes_before_the_end_of_the_program_is_told() {
    let world = World::new();
    run(&world, "printf sk-SENTINEL; printf 'sk-SENTINEL/' >&2");
    assert_eq!(world.read_stdout(), b"sk-SENTINEL");
    assert_eq!(world.read_stderr(), b"sk-SENTINEL/");
}

#[test]
fn output_is_passed_on_while_the_program_runs() {
    let world = World::new();
    block_on(async {
        let process = world
            .start(&script(&world, "echo one; exec sleep $0"))
            .await;
        let log = world.directory().join("stdout.log");
        wait_until("output", || fs_err::read(&log).unwrap() == b"one\n");
        process.stop(Stop::Graceful).unwrap();
        assert_eq!(process.wait().await.unwrap().outcome, ExitOutcome::Stopped);
    });
    world.assert_nothing_is_left();
}

/// Far more than a pipe holds, on both streams at once, and every byte of it in order.
#[test]
fn no_byte_is_lost_or_moved() {
    let world = World::new();
    run(
        &world,
        "seq 1 400000 & seq 400000 -1 1 >&2; wait; printf \"end $KEY\"",
    );
    let up: String = (1..=400_000).map(|number| format!("{number}\n")).collect();
    let down: String = (1..=400_000)
        .rev()
        .map(|number| format!("{number}\n"))
        .collect();
    assert!(world.read_stdout() == format!("{up}end ***").into_bytes());
    assert!(world.read_stderr() == down.into_bytes());
}

#[test]
fn a_program_may_close_a_stream_and_go_on() {
    let world = World::new();
    run(
        &world,
        "echo \"$KEY\"; exec >&-; sleep 0.1; echo \"later $KEY\" >&2; exec 2>&-; sleep 0.1",
    );
    assert_eq!(world.read_stdout(), b"***\n");
    assert_eq!(world.read_stderr(), b"later ***\n");
}

#[test]
fn descendants_that_hold_the_pipe_do_not_hold_up_the_end() {
    let world = World::new();
    let exit = block_on(world.run(&script(
        &world,
        "echo first; (setsid sh -c 'trap \"\" TERM; while :; do echo more; sleep 0.01; done' $0 &) ; exit 3",
    )));
    assert_eq!(exit.outcome, ExitOutcome::Exited { code: 3 });
    let log = String::from_utf8(world.read_stdout()).unwrap();
    assert!(log.starts_with("first\n"), "{log}");
    world.assert_nothing_is_left();
}

#[test]
fn a_flood_meets_its_limit_and_takes_no_memory() {
    let world = World::new();
    let mut spec = script(&world, "yes \"$KEY and more\"");
    spec.output_limit = 32 << 20;
    block_on(async {
        let process = world.start(&spec).await;
        let supervisor = process.record().unwrap().supervisor.pid;
        let status = format!("/proc/{supervisor}/status");
        let log = world.directory().join("stdout.log");
        let peak = std::cell::Cell::new(0);
        wait_until("half of the flood", || {
            let status = fs_err::read_to_string(&status).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            if let Some(now) = line.and_then(|line| line.trim().strip_suffix(" kB")) {
                peak.set(now.parse::<u64>().unwrap());
            }
            fs_err::metadata(&log).unwrap().len() > 16 << 20
        });
        let exit = process.wait().await.unwrap();
        assert_eq!(exit.outcome, ExitOutcome::OutputLimit);
        assert!((1..16 * 1024).contains(&peak.get()), "{peak:?} KiB");
    });
    let log = world.read_stdout();
    assert!(log.len() < 33 << 20, "{}", log.len());
    assert!(log.starts_with(b"*** and more\n*** and more\n"));
    assert!(!String::from_utf8_lossy(&log).contains("SENTINEL"));
    world.assert_nothing_is_left();
}

#[test]
fn a_killed_supervisor_takes_its_program_along() {
    let world = World::new();
    let spec = script(
        &world,
        "while :; do echo \"$KEY\" || exit; sleep 0.01; done",
    );
    block_on(async {
        let process = world.start(&spec).await;
        let log = world.directory().join("stdout.log");
        wait_until("output", || fs_err::metadata(&log).unwrap().len() > 10);
        let supervisor = process.record().unwrap().supervisor.pid;
        kill_process(Pid::from_raw(supervisor).unwrap(), Signal::KILL).unwrap();
        let error = process.wait().await.unwrap_err();
        assert!(matches!(error, SuperviseError::Lost { .. }), "{error}");
    });
    assert!(matches!(find(&world.directory()).unwrap(), Found::Lost));
    assert!(!String::from_utf8_lossy(&world.read_stdout()).contains("SENTINEL"));
    world.assert_nothing_is_left();
}

#[test]
fn a_time_limit_holds_while_output_flows() {
    let world = World::new();
    let mut spec = script(&world, "trap '' TERM; while :; do echo \"$KEY\"; done");
    (spec.timeout_ms, spec.grace_ms) = (Some(200), 100);
    let exit = block_on(world.run(&spec));
    assert_eq!(exit.outcome, ExitOutcome::TimedOut);
    assert!(Duration::from_millis(exit.ended_at_ms - exit.started_at_ms) < Duration::from_secs(30));
    world.assert_nothing_is_left();
}

#[test]
fn a_secret_that_cannot_be_kept_out_starts_nothing() {
    let world = World::new();
    let mut spec = script(&world, "touch ran");
    spec.secrets.push(SecretBytes::from(b"abc".as_slice()));
    let started = block_on(world.supervisor.start(&world.directory(), &spec));
    let error = started.unwrap_err().to_string();
    assert!(
        error.contains("could not keep secrets out of the logs"),
        "{error}"
    );
    assert!(!error.contains("abc"), "{error}");
    assert!(!world.root.path().join("ran").exists());
}

/// Nothing is copied where there is nothing to be kept out.
#[test]
fn without_secrets_a_program_writes_into_its_logs_by_itself() {
    let world = World::new();
    block_on(world.run(&world.shell("readlink /proc/self/fd/1; readlink /proc/self/fd/2 >&2")));
    let path = |name: &str| format!("{}\n", world.directory().join(name).display());
    assert_eq!(world.read_stdout(), path("stdout.log").into_bytes());
    assert_eq!(world.read_stderr(), path("stderr.log").into_bytes());
}
