use std::io::Write as _;
use std::time::Instant;

use mini_ork_protocol::{ByteString, ExitOutcome, StdinSource};
use proptest::prelude::*;

use crate::support::{World, block_on, wait_until};

const PIPED: usize = 50 << 20;

fn prompt_file(world: &World) -> StdinSource {
    let path = world.root.path().join("prompt");
    let mut file = fs_err::File::create(&path).unwrap();
    let chunk: Vec<u8> = (0..1 << 20).map(|byte: usize| (byte % 251) as u8).collect();
    for _ in 0..PIPED / chunk.len() {
        file.write_all(&chunk).unwrap();
    }
    StdinSource::File(ByteString::from(path.as_path()))
}

#[test]
fn bc_27_a_program_that_reads_ends_at_once() {
    let world = World::new();
    assert_eq!(
        block_on(world.run(&world.spec(&["cat"]))).outcome,
        ExitOutcome::Exited { code: 0 }
    );
    assert_eq!(world.read_stdout(), b"");
}

#[test]
fn bc_27_a_large_input_arrives_whole() {
    let world = World::new();
    let mut spec = world.spec(&["cmp", "-", "prompt"]);
    spec.stdin = prompt_file(&world);
    assert_eq!(
        block_on(world.run(&spec)).outcome,
        ExitOutcome::Exited { code: 0 }
    );
    let world = World::new();
    let mut spec = world.spec(&["wc", "-c"]);
    spec.stdin = prompt_file(&world);
    assert_eq!(
        block_on(world.run(&spec)).outcome,
        ExitOutcome::Exited { code: 0 }
    );
    assert_eq!(world.read_stdout(), format!("{PIPED}\n").as_bytes());
}

#[test]
fn bc_27_an_input_that_is_not_read_blocks_nobody() {
    let world = World::new();
    let mut spec = world.spec(&["head", "-c1"]);
    spec.stdin = prompt_file(&world);
    assert_eq!(
        block_on(world.run(&spec)).outcome,
        ExitOutcome::Exited { code: 0 }
    );
    assert_eq!(world.read_stdout(), [0]);
}

#[test]
fn a_program_sees_its_three_descriptors_and_a_supervisor_keeps_nothing() {
    let world = World::new();
    // What mini-ork was itself started with: descriptors that survive an exec.
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty()).unwrap();
    block_on(async {
        let process = world.start(&world.shell("exec sleep $0")).await;
        drop(writer);
        let record = process.record().unwrap();
        let descriptors = |pid: i32| {
            let mut names: Vec<String> = fs_err::read_dir(format!("/proc/{pid}/fd"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        // While it begins, it opens its libraries.
        wait_until("sleep", || {
            let program = format!("/proc/{}", record.program.pid);
            let line = fs_err::read(format!("{program}/cmdline")).unwrap();
            let status = fs_err::read_to_string(format!("{program}/stat")).unwrap();
            line.starts_with(b"sleep") && status.contains("(sleep) S ")
        });
        assert_eq!(descriptors(record.program.pid), ["0", "1", "2"]);
        for name in ["0", "1", "2"] {
            let link = format!("/proc/{}/fd/{name}", record.supervisor.pid);
            wait_until("detached supervisor", || {
                fs_err::read_link(&link).unwrap().as_os_str() == "/dev/null"
            });
        }
        // Others of this test run may be between fork and exec with a copy of it.
        let limit = rustix::event::Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        let mut polled = [rustix::event::PollFd::new(
            &reader,
            rustix::event::PollFlags::IN,
        )];
        assert_eq!(
            rustix::event::poll(&mut polled, Some(&limit)).unwrap(),
            1,
            "the pipe ends"
        );
        assert_eq!(
            fs_err::read_link(format!("/proc/{}/cwd", record.supervisor.pid))
                .unwrap()
                .as_os_str(),
            "/"
        );
        process
            .stop(mini_ork_node::supervise::Stop::Immediate)
            .unwrap();
        process.wait().await.unwrap();
    });
}

#[test]
fn signals_that_the_supervisor_does_not_heed_work_in_the_program() {
    let world = World::new();
    let exit = block_on(world.run(&world.spec(&["cat", "/proc/self/status"])));
    assert_eq!(exit.outcome, ExitOutcome::Exited { code: 0 });
    let status = String::from_utf8(world.read_stdout()).unwrap();
    for field in ["SigBlk:", "SigIgn:", "SigCgt:"] {
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        let mask = u64::from_str_radix(line[field.len()..].trim(), 16).unwrap();
        // HUP, INT, QUIT, USR1, PIPE, TERM, CHLD.
        assert_eq!(mask & 0x1_5207, 0, "{line}");
    }
}

#[test]
fn the_cost_of_a_supervisor_is_small() {
    let world = World::new();
    let fastest = (0..5)
        .map(|number: u32| {
            let directory = world.root.path().join(number.to_string());
            let began = Instant::now();
            block_on(async {
                world
                    .supervisor
                    .start(&directory, &world.spec(&["true"]))
                    .await
                    .unwrap()
                    .wait()
                    .await
                    .unwrap()
            });
            began.elapsed()
        })
        .min()
        .unwrap();
    eprintln!("fastest start and wait of `true`: {fastest:?}");
    // Far above what it takes alone on a machine, far below a wait that nobody noticed.
    assert!(fastest.as_millis() < 500, "{fastest:?}");
}

fn bytes(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    let special = prop::sample::select(b"\n\r\t '\"\\$`{}=;*?~#\x01\x1b\x7f\x80\xc3\xff".to_vec());
    prop::collection::vec(prop_oneof![special, 1_u8..=255], 0..longest)
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    let long = bytes(16).prop_map(|seed| {
        let mut long = b"{\"text\": \"".to_vec();
        while long.len() < 100 * 1024 {
            long.extend_from_slice(&seed);
            long.extend_from_slice(b"\\n\"");
        }
        long
    });
    prop_oneof![8 => bytes(80), 1 => long, 1 => Just(Vec::new())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The kernel's own copies of both are compared, so that nothing else can have repaired them.
    #[test]
    fn bc_29_arguments_and_environment_pass_unchanged(
        arguments in prop::collection::vec(values(), 0..6),
        environment in prop::collection::btree_map("[A-Za-z_][A-Za-z0-9_.-]{0,12}", values(), 0..6),
    ) {
        let world = World::new();
        let mut spec = world.spec(&["sh", "-c", "cat /proc/$$/cmdline; cat /proc/$$/environ >&2; exit 0", "sh"]);
        spec.argv.extend(arguments.iter().cloned().map(ByteString::from));
        spec.env = vec![("PATH".into(), "/usr/bin:/bin".into())];
        for (name, value) in &environment {
            if name != "PATH" && name != "MO_RUN_MARKER" {
                spec.env.push((name.as_str().into(), value.clone().into()));
            }
        }
        let exit = block_on(world.run(&spec));
        prop_assert_eq!(exit.outcome, ExitOutcome::Exited { code: 0 });

        let expected: Vec<u8> =
            spec.argv.iter().flat_map(|text| [text.as_bytes(), b"\0"].concat()).collect();
        prop_assert!(world.read_stdout() == expected, "arguments {:?}", arguments);

        spec.env.push(("MO_RUN_MARKER".into(), spec.marker.as_str().into()));
        let mut expected: Vec<Vec<u8>> =
            spec.env.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat()).collect();
        let content = world.read_stderr();
        let mut found: Vec<Vec<u8>> =
            content.strip_suffix(b"\0").unwrap().split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        expected.sort();
        found.sort();
        prop_assert!(found == expected, "environment {:?}", environment);
    }
}
