//! Programs that take too much: they end, say why, and harm nobody else.

use std::time::Duration;

use mini_ork_node::sys::disk_free;
use mini_ork_node::workspace::docker::{ContainerLimits, Processors};
use mini_ork_protocol::{ExitOutcome, Shortage};
use mini_ork_testkit::{SmallDisk, TestEnv, skip};

use crate::world::{Ended, Inside, World, block_on};

const MEMORY: u64 = 64 << 20;
const PROCESSES: u32 = 64;

fn small() -> Option<World> {
    World::of_containers(ContainerLimits {
        memory: MEMORY,
        processors: Processors::parse("0.5"),
        processes: PROCESSES,
        temporary: 16 << 20,
    })
}

/// Something that works beside all this, and must not notice.
async fn neighbour<'a>(inside: &'a Inside<'_>) -> impl AsyncFn() + use<'a> {
    let stop = inside.root.join("stop");
    let script =
        "count=0; while ! [ -e stop ]; do count=$((count + 1)); sleep 0.05; done; echo fine";
    let running = inside.start(inside.request(&["sh", "-c", script])).await;
    async move || {
        fs_err::write(&stop, "").unwrap();
        let ended = running.wait().await;
        assert_eq!((ended.code(), ended.stdout.as_str()), (Some(0), "fine\n"));
    }
}

fn shortage(ended: &Ended) -> Shortage {
    ended.record.shortage.unwrap_or_else(|| panic!("{ended:?}"))
}

#[test]
fn bc_69_memory_that_runs_out_is_told_with_limit_and_peak() {
    let Some(world) = small() else {
        return;
    };
    block_on(async {
        let beside = world.workspace("beside").await;
        let check = neighbour(&beside).await;
        let inside = world.workspace("memory").await;

        let leader = inside.attack(&["memory", "leader", "300"]).await;
        assert_eq!(
            leader.record.outcome,
            ExitOutcome::Signaled { signal: 9 },
            "{leader:?}"
        );
        let short = shortage(&leader);
        assert!(short.killed >= 1, "{short:?}");
        assert_eq!(short.memory_limit, Some(MEMORY));
        assert!(short.memory_peak.unwrap() > MEMORY * 9 / 10, "{short:?}");

        let grandchild = inside.attack(&["memory", "grandchild", "300"]).await;
        assert_eq!(grandchild.code(), Some(3), "{grandchild:?}");
        assert!(shortage(&grandchild).killed >= 1);

        // Who lives with it has not failed, and what was counted before is not counted again.
        let forgiven = inside.attack(&["memory", "forgiven", "300"]).await;
        assert_eq!(forgiven.code(), Some(0), "{forgiven:?}");
        let modest = inside.attack(&["memory", "leader", "8"]).await;
        assert_eq!((modest.code(), modest.record.shortage), (Some(0), None));
        assert_eq!(inside.say("echo still here").await, "still here\n");
        check().await;
        inside.down().await;
        beside.down().await;
    });
    world.assert_nothing_is_left();
}

#[test]
fn a_fork_bomb_ends_at_its_limit() {
    let Some(world) = small() else {
        return;
    };
    block_on(async {
        let beside = world.workspace("beside").await;
        let check = neighbour(&beside).await;
        let inside = world.workspace("forks").await;
        let ended = inside.attack(&["forks", "4000"]).await;
        assert_eq!(ended.code(), Some(5), "{ended:?}");
        let made: u32 = ended.stdout.split(' ').nth(1).unwrap().parse().unwrap();
        assert!((10..PROCESSES).contains(&made), "{}", ended.stdout);
        assert!(ended.record.stragglers >= made, "{:?}", ended.record);
        let short = shortage(&ended);
        assert!(short.forks_refused > 0, "{short:?}");
        assert_eq!(short.process_limit, Some(PROCESSES.into()));
        assert_eq!(inside.say("echo still here").await, "still here\n");
        check().await;
        inside.down().await;
        beside.down().await;
    });
    world.assert_nothing_is_left();
}

/// A share of a processor is a limit, and programs see no more processors than they have.
#[test]
fn processors_that_are_seen_are_those_that_there_are() {
    let Some(world) = small() else {
        return;
    };
    block_on(async {
        let inside = world.workspace("processors").await;
        let isolation = inside.workspace.isolation();
        assert!(isolation.contains(", 1 processors,"), "{isolation}");
        let quota = inside
            .say("cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null; true")
            .await;
        assert!(quota.contains("50000"), "{quota}");
        inside.down().await;
    });
}

/// Fills the disk behind a boundary, with a neighbour in the same workspace and one beside it.
#[track_caller]
fn fill_a_disk(of: impl FnOnce() -> Option<World>, also: impl AsyncFnOnce(&Inside<'_>)) {
    let env = TestEnv::new(env!("CARGO_BIN_EXE_mini-ork-node"));
    let disk = env.root().join("disk");
    let Some(_mounted) = SmallDisk::mount(&env, &disk, 200) else {
        return skip("bc_70: a small disk cannot be mounted here");
    };
    let Some(world) = of() else {
        return;
    };
    block_on(async {
        let beside = world.workspace_at("beside", &disk.join("beside")).await;
        let inside = world.workspace_at("disk", &disk.join("run")).await;
        let check_beside = neighbour(&beside).await;
        let check_inside = neighbour(&inside).await;
        let filler = inside.root.join("filler");
        let path = inside.workspace.inside(&filler).display().to_string();
        let ended = inside.attack(&["disk", &path]).await;
        assert_eq!(ended.record.outcome, ExitOutcome::OutputLimit, "{ended:?}");
        let left = shortage(&ended).disk_left.unwrap();
        assert!((1..=16 << 20).contains(&left), "{left}");
        assert!(disk_free(&disk).unwrap().is_low());

        // While its file is there, others begin and end as ever; but who also takes much is told
        // the same.
        assert_eq!(beside.say("echo hello").await, "hello\n");
        let second = beside.root.join("filler");
        let path = beside.workspace.inside(&second).display().to_string();
        let other = beside.attack(&["disk", &path]).await;
        assert_eq!(other.record.outcome, ExitOutcome::OutputLimit, "{other:?}");
        assert!(shortage(&other).disk_left.is_some(), "{other:?}");
        fs_err::remove_file(second).unwrap();
        check_beside().await;
        check_inside().await;
        fs_err::remove_file(filler).unwrap();
        assert_eq!(inside.say("echo room again").await, "room again\n");
        also(&inside).await;
        inside.down().await;
        beside.down().await;
    });
    world.assert_nothing_is_left();
}

#[test]
fn bc_70_a_program_that_fills_the_disk_is_stopped_while_there_is_room() {
    let of = || World::of_containers(ContainerLimits::default());
    fill_a_disk(of, async |inside| {
        // Temporary files are in memory, and bounded there.
        let temporary = inside
            .say("head -c 2000000000 /dev/zero > /tmp/filler; ls -l /tmp/filler; rm /tmp/filler");
        let temporary = tokio::time::timeout(Duration::from_secs(60), temporary)
            .await
            .unwrap();
        assert!(temporary.contains("1073741824"), "{temporary}");
    });
}

#[test]
fn bc_70_a_program_in_namespaces_that_fills_the_disk_harms_no_neighbour() {
    fill_a_disk(World::of_namespaces, async |_| ());
}
