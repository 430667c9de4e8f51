//! What a program puts in the place of its own records.

use std::time::Duration;

use mini_ork_node::workspace::Attached;
use mini_ork_node::workspace::docker::ContainerLimits;

use crate::world::{Inside, World, block_on};

#[test]
fn records_that_are_tampered_with_lead_nowhere() {
    let Some(world) = World::of_containers(ContainerLimits::default()) else {
        return;
    };
    block_on(async {
        let inside = world.workspace("records").await;
        let outside = inside.drive.private.join("outside");
        fs_err::create_dir_all(&outside).unwrap();
        fs_err::write(outside.join("exit.json"), "kept").unwrap();
        let target = outside.display();
        for (name, script) in [
            ("a link to a directory", format!("rm -rf $here && ln -s {target} $here")),
            ("a link to a file", format!("ln -sf {target}/exit.json $here/exit.json; ln -sf {target}/exit.json $here/.exit.json.new")),
            ("a FIFO", "rm -f $here/*.json $here/.*.json* ; mkfifo $here/exit.json $here/process.json".to_owned()),
            ("a directory", "mkdir $here/exit.json".to_owned()),
            ("a huge file", "rm -f $here/*.json; truncate -s 1T $here/exit.json; truncate -s 1T $here/supervisor.json".to_owned()),
            ("nothing", "rm -rf $here".to_owned()),
            ("another parent", "mv $here/../../1.1 $here/../../moved; mkdir -p $here".to_owned()),
            ("a log that is a FIFO", "rm $here/stdout.log; mkfifo $here/stdout.log".to_owned()),
            ("a log that is huge", "truncate -s 1T $here/stdout.log".to_owned()),
        ] {
            println!("{name}");
            tamper(&inside, &script).await;
        }
        assert_eq!(
            fs_err::read_to_string(outside.join("exit.json")).unwrap(),
            "kept"
        );
        assert_eq!(fs_err::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(inside.say("echo still here").await, "still here\n");
        inside.down().await;
    });
    world.assert_nothing_is_left();
}

/// What is on a record that cannot be read is known, and what cannot be read keeps nobody from
/// finding the others.
#[test]
fn a_record_that_cannot_be_read_makes_no_stray() {
    let Some(world) = World::of_containers(ContainerLimits::default()) else {
        return;
    };
    block_on(async {
        let inside = world.workspace("kept").await;
        let other = world.workspace("other").await;
        let ledger = inside.ledger();
        assert_eq!(world.strays(&ledger).await, ["other"]);
        let path = inside.drive.private.join("kept.json");
        let whole = fs_err::read(&path).unwrap();
        fs_err::write(&path, " ".repeat(70 << 10)).unwrap();
        assert_eq!(world.strays(&ledger).await, ["other"]);
        fs_err::remove_file(&path).unwrap();
        let mut both = world.strays(&ledger).await;
        both.sort();
        assert_eq!(both, ["kept", "other"]);
        fs_err::write(&path, whole).unwrap();
        inside.down().await;
        other.down().await;
    });
    world.assert_nothing_is_left();
}

/// However it ends: both the one who waits and the next control plane are told soon, and nothing
/// of it is left.
async fn tamper(inside: &Inside<'_>, script: &str) {
    // Not before its start was told.
    let script = format!("sleep 0.3; {script}");
    let mut request = inside.request(&["sh", "-c", &script]);
    let here = inside.workspace.inside(&request.directory);
    request.env.push(("here".into(), here.as_path().into()));
    let running = inside.start(request).await;
    let limit = Duration::from_secs(20);
    let ended = tokio::time::timeout(limit, running.process.wait())
        .await
        .unwrap();
    let next = inside.reopen().await;
    let found = tokio::time::timeout(limit, next.attach(&running.directory))
        .await
        .unwrap();
    println!("{ended:?}, and then {found:?}");
    assert!(!matches!(found, Ok(Attached::Running(_))), "{found:?}");
}
