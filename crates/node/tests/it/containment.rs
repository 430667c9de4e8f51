use mini_ork_node::supervise::{Found, Stop, SuperviseError, find};
use mini_ork_protocol::{Containment, ExitOutcome};

use crate::support::{World, block_on, containment, wait_until};

/// Ways to get away, each of which leaves one process that sleeps and has the token in its command
/// line. `$0` is the token, and the environment has it as `TOKEN`.
const ESCAPES: &[(&str, &str)] = &[
    ("plain child", "sleep $0 &"),
    ("nohup", "nohup sleep $0 >/dev/null 2>&1 &"),
    ("setsid", "setsid sleep $0 &"),
    ("double fork", "( ( setsid sleep $0 & ) & )"),
    (
        "double fork without environment",
        "( ( env -i setsid sleep $0 & ) & )",
    ),
    (
        "deaf to signals",
        "( trap '' TERM HUP INT; exec setsid sleep $0 ) &",
    ),
    (
        "daemon of daemons",
        "setsid sh -c 'setsid sh -c \"setsid sleep $0 & exit\" $0 & exit' $0 &",
    ),
];

/// With a cgroup where there is one to be had, and without.
fn worlds() -> Vec<World> {
    let mut worlds = vec![World::new()];
    worlds.extend(World::without_cgroup());
    worlds
}

fn sleepers(world: &World) -> usize {
    world
        .processes()
        .iter()
        .filter(|line| line.contains(": sleep "))
        .count()
}

#[test]
fn the_containment_of_each_world_is_as_it_is_called() {
    let Some(world) = World::without_cgroup() else {
        return;
    };
    block_on(async {
        let process = world.start(&world.spec(&["true"])).await;
        assert_eq!(containment(&process), Containment::Subreaper);
        assert_eq!(process.record().unwrap().cgroup, None);
        process.wait().await.unwrap();
    });
    let world = World::new();
    block_on(async {
        let process = world
            .start(&world.shell("cat /proc/$$/cgroup; sleep $0"))
            .await;
        // A machine may have no cgroup v2; where a group is claimed, the program is in it.
        if containment(&process) == Containment::Cgroup {
            let path = process.record().unwrap().cgroup.clone().unwrap();
            let name = path.rsplit('/').next().unwrap().to_owned();
            wait_until("membership", || {
                String::from_utf8_lossy(&world.read_stdout())
                    .lines()
                    .any(|line| line.ends_with(&name))
            });
            let supervisor = process.record().unwrap().supervisor.pid;
            let own = fs_err::read_to_string(format!("/proc/{supervisor}/cgroup")).unwrap();
            assert!(!own.contains(&name), "{own}");
            process.stop(Stop::Immediate).unwrap();
            process.wait().await.unwrap();
            assert!(!fs_err::exists(&path).unwrap(), "the group is removed");
        }
    });
}

#[test]
fn bc_25_moving_to_another_group_is_no_way_out() {
    for destination in ["below", ".."] {
        let world = World::new();
        block_on(async {
            let process = world
                .start(&world.shell("setsid sleep $0 & sleep $0"))
                .await;
            wait_until("sleepers", || sleepers(&world) == 2);
            // Without a cgroup there is none to move to.
            if let Some(group) = &process.record().unwrap().cgroup {
                let destination = std::path::Path::new(group).join(destination);
                fs_err::create_dir_all(&destination).unwrap();
                for line in world
                    .processes()
                    .iter()
                    .filter(|line| line.contains(": sleep "))
                {
                    let pid = line.trim_start_matches("/proc/").split(':').next().unwrap();
                    fs_err::write(destination.join("cgroup.procs"), pid).unwrap();
                }
            }
            process.stop(Stop::Immediate).unwrap();
            process.wait().await.unwrap();
            if let Some(group) = &process.record().unwrap().cgroup {
                assert!(!fs_err::exists(group).unwrap(), "the group is removed");
            }
        });
        world.assert_nothing_is_left();
    }
}

#[test]
fn bc_24_a_stop_ends_grandchildren_too() {
    for how in [Stop::Graceful, Stop::Immediate] {
        for world in worlds() {
            let spec = world.shell("(while :; do :; done)& sleep $0");
            block_on(async {
                let process = world.start(&spec).await;
                world.wait_for_processes(3);
                process.stop(how).unwrap();
                assert_eq!(process.wait().await.unwrap().outcome, ExitOutcome::Stopped);
            });
            world.assert_nothing_is_left();
        }
    }
}

#[test]
fn bc_25_nothing_outlives_a_normal_end() {
    for (name, escape) in ESCAPES {
        for world in worlds() {
            let exit = block_on(async {
                let process = world
                    .start(
                        &world.shell(&format!("{escape}\nwhile [ ! -e go ]; do sleep 0.02; done")),
                    )
                    .await;
                // The program ends when its helper is out of its reach, not before.
                wait_until(name, || sleepers(&world) == 1);
                fs_err::write(world.root.path().join("go"), "").unwrap();
                process.wait().await.unwrap()
            });
            assert_eq!(exit.stragglers, 1, "{name}");
            world.assert_nothing_is_left();
        }
    }
}

#[test]
fn bc_25_nothing_outlives_a_stop() {
    for (name, escape) in ESCAPES {
        for how in [Stop::Graceful, Stop::Immediate] {
            for world in worlds() {
                let mut spec = world.shell(&format!("{escape}\nsleep $0; sleep $0"));
                spec.grace_ms = 100;
                block_on(async {
                    let process = world.start(&spec).await;
                    wait_until(name, || sleepers(&world) == 2);
                    process.stop(how).unwrap();
                    assert_eq!(
                        process.wait().await.unwrap().outcome,
                        ExitOutcome::Stopped,
                        "{name}"
                    );
                });
                world.assert_nothing_is_left();
            }
        }
    }
}

#[test]
fn bc_25_a_terminal_multiplexer_does_not_outlive_its_program() {
    if !["/usr/bin/tmux", "/usr/local/bin/tmux"]
        .iter()
        .any(|path| fs_err::exists(path).unwrap())
    {
        eprintln!("SKIP tmux is not installed");
        return;
    }
    for world in worlds() {
        let script = "SHELL=/bin/sh tmux -S $PWD/socket -f /dev/null new-session -d \"sleep $0\" && echo up; sleep 0.1";
        block_on(async {
            let process = world.start(&world.shell(script)).await;
            let exit = process.wait().await.unwrap();
            assert!(
                exit.stragglers >= 1,
                "{:?}",
                String::from_utf8_lossy(&world.read_stderr())
            );
        });
        assert_eq!(world.read_stdout(), b"up\n");
        world.assert_nothing_is_left();
    }
}

#[test]
fn bc_25_a_program_that_keeps_forking_is_stopped() {
    for world in worlds() {
        // Each generation starts the next one in a new session and is gone.
        fs_err::write(
            world.root.path().join("hop"),
            "setsid sh ./hop $1 & sleep 0.01",
        )
        .unwrap();
        block_on(async {
            let process = world
                .start(&world.shell("sh ./hop $0; sh ./hop $0; sleep $0"))
                .await;
            world.wait_for_processes(4);
            process.stop(Stop::Immediate).unwrap();
            assert_eq!(process.wait().await.unwrap().outcome, ExitOutcome::Stopped);
        });
        world.assert_nothing_is_left();
    }
}

#[test]
fn bc_25_a_program_that_kills_its_supervisor_is_lost_and_gone() {
    let escapes = [
        "sleep $0 &",
        "( ( setsid sleep $0 & ) & )",
        "( ( MO_RUN_MARKER=$MO_RUN_MARKER/inner setsid sleep $0 & ) & )",
        "env -i sleep $0 &",
    ];
    for escape in escapes {
        for world in worlds() {
            let script = format!("{escape}\nread -r line < go; kill -9 $PPID; sleep $0");
            make_fifo(&world, "go");
            block_on(async {
                let process = world.start(&world.shell(&script)).await;
                wait_until(escape, || sleepers(&world) == 1);
                fs_err::write(world.root.path().join("go"), "\n").unwrap();
                let error = process.wait().await.unwrap_err();
                assert!(matches!(error, SuperviseError::Lost { .. }), "{error}");
                world.assert_nothing_is_left();
                let again = process.wait().await.unwrap_err();
                assert!(matches!(again, SuperviseError::Lost { .. }), "{again}");
                if let Some(cgroup) = &process.record().unwrap().cgroup {
                    assert!(!fs_err::exists(cgroup).unwrap());
                }
            });
            assert!(matches!(find(&world.directory()).unwrap(), Found::Lost));
        }
    }
}

#[test]
fn bc_25_a_program_that_kills_its_supervisor_at_once_leaves_nothing() {
    for world in worlds() {
        let spec = world.shell("kill -9 $PPID; setsid sleep $0 & sleep $0");
        block_on(async {
            // Whether the supervisor still got to say that the program runs is a matter of luck.
            let lost = match world.supervisor.start(&world.directory(), &spec).await {
                Ok(process) => process.wait().await.unwrap_err(),
                Err(error) => error,
            };
            assert!(matches!(lost, SuperviseError::Lost { .. }), "{lost}");
        });
        world.assert_nothing_is_left();
    }
}

fn make_fifo(world: &World, name: &str) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let path = world.root.path().join(name);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}
