//! The session server: nothing inside may speak to it, look into it, or keep others from it.

use std::time::Duration;

use mini_ork_node::workspace::docker::ContainerLimits;

use crate::world::{Inside, World, block_on};

#[test]
fn bc_47_the_server_cannot_be_caught_while_it_begins() {
    if let Some(world) = World::of_containers(ContainerLimits::default()) {
        block_on(catch(&world));
    }
    if let Some(world) = World::of_namespaces() {
        block_on(catch(&world));
    }
}

/// The server is killed again and again, and connections are made all the time, while a program
/// tries to take hold of whatever is born.
async fn catch(world: &World) {
    let inside = world.workspace("catch").await;
    let watching = inside.start(inside.attack_request(&["watch", "6"])).await;
    let connections = async {
        for _ in 0..12 {
            connect(&inside).await;
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    let (ended, ()) = tokio::join!(watching.wait_patiently(), connections);
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    println!("{}", ended.stdout);
    assert!(ended.stdout.ends_with("caught []\n"), "{}", ended.stdout);
    let births: u32 = ended.stdout.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(births >= 3, "{}", ended.stdout);
    inside.down().await;
}

async fn connect(inside: &Inside<'_>) {
    let workspace = inside.reopen().await;
    drop(workspace);
}

/// A program that takes all the connections that there are keeps nobody else from the server.
#[test]
fn bc_47_the_server_has_room_for_the_outside_alone() {
    let Some(world) = World::of_containers(ContainerLimits::default()) else {
        return;
    };
    block_on(async {
        let inside = world.workspace("room").await;
        let holding = inside.start(inside.attack_request(&["hold", "5"])).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        for _ in 0..3 {
            connect(&inside).await;
        }
        let ended = holding.wait().await;
        assert_eq!(ended.code(), Some(0), "{ended:?}");
        let made: u32 = ended
            .stdout
            .trim()
            .trim_start_matches("made ")
            .parse()
            .unwrap();
        assert!(made > 100, "{}", ended.stdout);
        inside.down().await;
    });
}

/// A program that ends its own supervisor and hides what it leaves does not look on at the next.
#[test]
fn nothing_is_left_of_a_program_that_ends_its_supervisor() {
    if let Some(world) = World::of_containers(ContainerLimits::default()) {
        block_on(hide(&world));
    }
    if let Some(world) = World::of_namespaces() {
        block_on(hide(&world));
    }
}

async fn hide(world: &World) {
    let inside = world.workspace("hide").await;
    let script = "env -i setsid sh -c 'sleep 1; kill -9 $1; exec sleep 9797' sh $PPID & sleep 100";
    let request = inside.request(&["sh", "-c", script]);
    let running = inside.start(request).await;
    let lost = running.process.wait().await.unwrap_err();
    println!("{lost}");
    let left = inside
        .say("for d in /proc/[0-9]*; do case \"$(tr '\\0' ' ' < $d/cmdline)\" in *'sleep 97'97*) echo $d;; esac; done 2>/dev/null; true")
        .await;
    assert_eq!(left, "");
    inside.down().await;
}
