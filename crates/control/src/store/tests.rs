use std::path::PathBuf;

use mini_ork_protocol::{NodeId, RunId};

use super::*;
use crate::reason::{Reason, Status};
use crate::run::{Closing, RunEvent};

fn new_run(id: &str) -> NewRun {
    NewRun {
        run: RunId::parse(id).unwrap(),
        recipe: "code-fix".to_owned(),
        title: "a title".to_owned(),
        repository: PathBuf::from("/repository with\nnewline"),
        directory: PathBuf::from("/home/runs"),
        backend: "local".to_owned(),
        started_at_ms: 7,
    }
}

fn warned(text: &str) -> RunEvent {
    RunEvent::Warned {
        text: text.to_owned(),
    }
}

#[tokio::test]
async fn what_is_written_is_read() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let run = RunId::parse("abc").unwrap();
    store.add_run(new_run("abc")).await.unwrap();
    store
        .append(&run, 8, &warned("one"), RunSummaryUpdate::default())
        .await
        .unwrap();
    let closing = Closing {
        status: Status::Failed,
        reason: Some(Reason::DiskFull),
        detail: "full".to_owned(),
        node: None,
    };
    let summary = RunSummaryUpdate {
        status: Some(Status::Failed),
        reason: Some(Reason::DiskFull),
        ended_at_ms: Some(9),
        ..RunSummaryUpdate::default()
    };
    store
        .append(&run, 9, &RunEvent::Closed(closing.clone()), summary)
        .await
        .unwrap();

    let reader = StoreReader::open(home.path()).unwrap().unwrap();
    let row = reader.run(&run).unwrap().unwrap();
    assert_eq!(row.repository, PathBuf::from("/repository with\nnewline"));
    assert_eq!(
        (row.status, row.ended_at_ms),
        (Some(Status::Failed), Some(9))
    );
    let events = reader.events(&run, 0).unwrap();
    assert_eq!(
        events
            .iter()
            .map(|event| event.sequence)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    assert_eq!(events[1].event, RunEvent::Closed(closing));
    assert_eq!(reader.events(&run, 1).unwrap().len(), 1);
    assert_eq!(reader.check().unwrap(), None);
}

#[tokio::test]
async fn many_writers_lose_nothing() {
    let home = tempfile::tempdir().unwrap();
    let writers = 8;
    let each = 25;
    let threads: Vec<_> = (0..writers)
        .map(|number| {
            let home = home.path().to_owned();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let store = Store::open(&home).unwrap();
                    let id = format!("run{number}");
                    store.add_run(new_run(&id)).await.unwrap();
                    let run = RunId::parse(&id).unwrap();
                    for event in 0..each {
                        let event = warned(&event.to_string());
                        store
                            .append(&run, 1, &event, RunSummaryUpdate::default())
                            .await
                            .unwrap();
                    }
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let reader = StoreReader::open(home.path()).unwrap().unwrap();
    assert_eq!(reader.runs().unwrap().len(), writers);
    for number in 0..writers {
        let run = RunId::parse(&format!("run{number}")).unwrap();
        assert_eq!(reader.events(&run, 0).unwrap().len(), each);
    }
}

#[tokio::test]
async fn a_later_format_is_refused() {
    let home = tempfile::tempdir().unwrap();
    drop(Store::open(home.path()).unwrap());
    let connection = rusqlite::Connection::open(home.path().join("state.db")).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    assert!(matches!(
        Store::open(home.path()),
        Err(StoreError::TooNew { found: 99, .. })
    ));
    assert!(matches!(
        StoreReader::open(home.path()),
        Err(StoreError::TooNew { .. })
    ));
}

#[test]
fn there_is_nothing_to_read_before_the_first_run() {
    let home = tempfile::tempdir().unwrap();
    assert!(StoreReader::open(home.path()).unwrap().is_none());
    assert!(!home.path().join("state.db").exists());
    // Another process may be about to make the tables.
    fs_err::write(home.path().join("state.db"), "").unwrap();
    assert!(StoreReader::open(home.path()).unwrap().is_none());
}

#[test]
fn only_the_user_can_read_the_state() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().unwrap();
    let home = parent.path().join("a/b");
    drop(Store::open(&home).unwrap());
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home), 0o700);
    assert_eq!(mode(&home.join("state.db")), 0o600);
}

fn cost_of(node: &str, cost_usd: Option<f64>) -> RunSummaryUpdate {
    RunSummaryUpdate {
        cost: Some(NodeCost {
            node: NodeId::parse(node).unwrap(),
            round: 1,
            attempt: 1,
            lane: "quick".to_owned(),
            cost_usd,
        }),
        ..RunSummaryUpdate::default()
    }
}

#[tokio::test]
async fn costs_of_all_runs_are_added_up_and_outlive_them() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    // Beside it, as another process has it.
    let other = Store::open(home.path()).unwrap();
    let reader = store.reader().unwrap();
    assert_eq!(reader.counted_after(0).unwrap(), 0.0);
    for (id, store) in [("one", &store), ("two", &other)] {
        store.add_run(new_run(id)).await.unwrap();
        let run = RunId::parse(id).unwrap();
        for (at_ms, node, cost) in [(10, "a", Some(0.5)), (20, "b", None), (30, "c", Some(0.25))] {
            store
                .append(&run, at_ms, &warned("."), cost_of(node, cost))
                .await
                .unwrap();
        }
    }
    assert_eq!(reader.counted_after(0).unwrap(), 1.5);
    assert_eq!(reader.counted_after(10).unwrap(), 0.5);
    assert_eq!(reader.counted_after(30).unwrap(), 0.0);
    store
        .remove_run(&RunId::parse("one").unwrap())
        .await
        .unwrap();
    let costs = reader.costs_after(10).unwrap();
    let found: Vec<_> = costs
        .iter()
        .map(|cost| (cost.run.as_str(), cost.at_ms, cost.sum.cost_usd()))
        .collect();
    assert_eq!(
        found,
        [
            ("two", 30, Some(0.25)),
            ("one", 30, Some(0.25)),
            ("two", 20, None),
            ("one", 20, None),
        ]
    );
    assert!(
        costs
            .iter()
            .all(|cost| cost.recipe == "code-fix" && cost.lane == "quick")
    );
}

#[tokio::test]
async fn a_cost_stands_or_falls_with_its_event() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    // The journal refuses an event of a run that is not there.
    let run = RunId::parse("gone").unwrap();
    let refused = store
        .append(&run, 1, &warned("."), cost_of("a", Some(1.0)))
        .await;
    assert!(matches!(refused, Err(StoreError::Database { .. })));
    assert_eq!(store.reader().unwrap().counted_after(0).unwrap(), 0.0);
}

/// What budgets count is asked for before each call, over all that was spent in a day.
#[test]
fn what_budgets_count_is_read_from_indices_alone() {
    let home = tempfile::tempdir().unwrap();
    drop(Store::open(home.path()).unwrap());
    let connection = rusqlite::Connection::open(home.path().join("state.db")).unwrap();
    let counted = costs::COUNTED;
    for (query, index) in [
        (
            format!("SELECT {counted} FROM costs WHERE at_ms > 5"),
            "costs_by_time",
        ),
        (
            format!("SELECT {counted} FROM costs WHERE run = 'a'"),
            "costs_by_attempt",
        ),
        (
            format!(
                "SELECT {counted} FROM costs
                 WHERE run = 'a' AND node = 'b' AND round = 1 AND attempt = 1"
            ),
            "costs_by_attempt",
        ),
        (
            "SELECT max(cost_usd) FROM costs WHERE run = 'a' AND node = 'b' AND metered".to_owned(),
            "costs_by_attempt",
        ),
    ] {
        let plan: String = connection
            .query_row(&format!("EXPLAIN QUERY PLAN {query}"), [], |row| row.get(3))
            .unwrap();
        let expected = format!("SEARCH costs USING COVERING INDEX {index}");
        assert!(plan.starts_with(&expected), "{query}: {plan}");
    }
}

/// A database as an earlier mini-ork left it.
fn earlier(home: &std::path::Path, migrations: &[&str]) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(home.join("state.db")).unwrap();
    for migration in migrations {
        connection.execute_batch(migration).unwrap();
    }
    connection
        .pragma_update(None, "user_version", migrations.len())
        .unwrap();
    connection
}

const RUNS: &str = include_str!("migrations/20261129_runs.sql");
const SPENDING: &str = include_str!("migrations/20261129_spending.sql");

#[test]
fn many_that_open_a_new_home_at_once_all_get_it() {
    for _ in 0..20 {
        let home = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            let opened: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| Store::open(home.path()).map(drop)))
                .collect();
            for each in opened {
                each.join().unwrap().unwrap();
            }
        });
    }
}

#[test]
fn a_database_from_before_there_were_costs_has_none_until_it_is_written_to() {
    let home = tempfile::tempdir().unwrap();
    drop(earlier(home.path(), &[RUNS]));
    let reader = StoreReader::open(home.path()).unwrap().unwrap();
    assert_eq!(reader.costs_after(0).unwrap(), []);
    assert_eq!(reader.costs_of_run("one").unwrap(), []);
    let store = Store::open(home.path()).unwrap();
    assert_eq!(store.reader().unwrap().counted_after(0).unwrap(), 0.0);
}

#[test]
fn costs_by_attempt_become_costs_by_call_and_none_is_lost() {
    let home = tempfile::tempdir().unwrap();
    let connection = earlier(home.path(), &[RUNS, SPENDING]);
    for (round, cost) in [(1, "0.5"), (2, "NULL"), (3, "0.25")] {
        connection
            .execute_batch(&format!(
                "INSERT INTO costs VALUES ('one', 'code-fix', 'worker', {round}, 1, 'quick', 7, {cost})"
            ))
            .unwrap();
    }
    drop(connection);
    let store = Store::open(home.path()).unwrap();
    let reader = store.reader().unwrap();
    assert_eq!(reader.counted_after(6).unwrap(), 0.75);
    assert_eq!(reader.counted_after(7).unwrap(), 0.0);
    let found = reader.costs_of_run("one").unwrap();
    let sum = CostSum {
        told: 3,
        known_usd: 0.75,
        unknown: 1,
        ..CostSum::default()
    };
    assert_eq!(
        found,
        [LaneCost {
            node: "worker".to_owned(),
            lane: "quick".to_owned(),
            sum
        }]
    );
    let rows = reader.costs_after(0).unwrap();
    let rounds: Vec<u32> = rows.iter().map(|row| row.round).collect();
    assert_eq!(rounds, [3, 2, 1]);
    assert!(
        rows.iter()
            .all(|row| row.at_ms == 7 && row.recipe == "code-fix")
    );
}

#[tokio::test]
async fn what_a_run_cost_is_never_forgotten_by_a_later_event() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    store.add_run(new_run("abc")).await.unwrap();
    let run = RunId::parse("abc").unwrap();
    let spent = RunSummaryUpdate {
        cost_usd: 0.5,
        cost_unknown: true,
        ..RunSummaryUpdate::default()
    };
    for summary in [spent, RunSummaryUpdate::default()] {
        store.append(&run, 1, &warned("."), summary).await.unwrap();
    }
    let reader = store.reader().unwrap();
    let row = reader.run(&run).unwrap().unwrap();
    assert_eq!((row.cost_usd, row.cost_unknown), (0.5, true));
}
