//! SIGKILL of the control plane while an agent that asks a model works: the run comes to its end,
//! and nothing that is on record is paid again.

use mini_ork_testkit::{ModelServer, Tokens};

use super::{ANTHROPIC, World, code_fix, right_answer, world};
use crate::kill_points::assert_interrupted;
use crate::support::text;

/// Points of a run of `code-fix`, whose second node is the implementer. Where the count is higher
/// the work is done, and judged.
const POINTS: &[&str] = &[
    "prompt-written:2",
    "node-started:2",
    "process-started:2",
    "process-ended:1",
    "process-ended:2",
    "snapshot-taken:2",
    "node-ended:2",
    "process-started:4",
    "node-ended:4",
    "branch-made",
];

/// Calls of whose tokens more may have been dealt than is on record.
fn incomplete(world: &World) -> u64 {
    let database = rusqlite::Connection::open(world.env.home().join("state.db")).unwrap();
    let query = "SELECT count(*) FROM costs WHERE NOT complete";
    database.query_row(query, [], |row| row.get(0)).unwrap()
}

fn is_at_most(left: Tokens, right: Tokens) -> bool {
    left.input <= right.input
        && left.output <= right.output
        && left.cache_read <= right.cache_read
        && left.cache_write <= right.cache_write
}

#[track_caller]
fn recovers(during_run: &str, during_recovery: Option<&str>) {
    let server = ModelServer::start_tls(code_fix(right_answer()));
    let world = world(ANTHROPIC, &server).unwrap();
    world
        .run(&server, "code-fix")
        .env("MO_FAULT", during_run)
        .run()
        .expect_killed();
    assert_interrupted(&world.env);
    if let Some(point) = during_recovery {
        world
            .mini_ork(&server, &["recover", "--json"])
            .env("MO_FAULT", point)
            .run()
            .expect_killed();
    }
    let output = world.mini_ork(&server, &["recover", "--json"]).run();
    let view = output.expect(0).json();
    let context = format!("{during_run}, {during_recovery:?}: {view:#}");
    assert_eq!(text(&view, "status"), "published", "{context}");
    let (recorded, dealt) = (world.recorded(), server.dealt());
    let incomplete = incomplete(&world);
    assert!(is_at_most(recorded, dealt), "{context}");
    assert!(recorded == dealt || incomplete > 0, "{context}");
    let requests = server.requests();
    let planned = requests
        .iter()
        .filter(|request| request.contains("You plan a fix"));
    assert_eq!(planned.count(), 1, "{context}");
    if incomplete == 0 {
        // One to plan, two to work, one each to review and to give an opinion.
        assert_eq!(requests.len(), 5, "{context}");
    }
    world.env.assert_no_process();
}

#[test]
fn a_model_lane_recovers_from_a_kill_at_any_point() {
    for point in POINTS {
        recovers(point, None);
    }
}

#[test]
fn a_model_lane_recovers_from_a_kill_of_its_recovery() {
    for (first, second) in [
        ("process-started:2", "process-ended"),
        ("node-started:2", "process-started"),
        ("process-ended:2", "snapshot-taken"),
    ] {
        recovers(first, Some(second));
    }
}
