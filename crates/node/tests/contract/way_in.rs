//! A process beside the control plane that uses the workspace.

use mini_ork_node::session::WayIn;
use mini_ork_node::workspace::{Attached, InnerPath, enter};
use mini_ork_protocol::ExitOutcome;

use crate::bench::{Bench, until};
use crate::cases::a_port_is_led_through;

pub(crate) async fn another_process_may_be_let_in(bench: &Bench) {
    let way_in = bench.workspace.way_in().unwrap();
    let written = serde_json::to_vec(&way_in).unwrap();
    let read: WayIn = serde_json::from_slice(&written).unwrap();
    let other = enter(read).await.unwrap();

    let above = bench.records();
    let mut request = bench.shell("echo begun; exec sleep 1000");
    request.directory = above.join("inner");
    let directory = request.directory.clone();
    other.spawn(request).await.unwrap();
    let log = directory.join("stdout.log");
    until("output", || {
        fs_err::read(&log).is_ok_and(|said| said == b"begun\n")
    })
    .await;
    let path = InnerPath::parse(&bench.root, "by-another").unwrap();
    other.put(&bench.root, &path, b"x".to_vec()).await.unwrap();
    let got = bench.workspace.get(&bench.root, &path, 9).await.unwrap();
    assert_eq!(got, b"x");
    assert_eq!(bench.say("rm by-another; echo gone").await, "gone\n");

    // It leads nothing in, and takes nothing away from who does.
    assert!(other.lead(1).await.is_err());
    a_port_is_led_through(bench).await;

    // What it started is known to the control plane, also when it is gone itself.
    drop(other);
    bench.workspace.stop_below(&above).await.unwrap();
    match bench.workspace.attach(&directory).await.unwrap() {
        Attached::Ended(exit) => assert_eq!(exit.outcome, ExitOutcome::Stopped),
        found => panic!("{found:?}"),
    }
}
