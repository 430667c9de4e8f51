//! More than one process of a home. The second one is this program doing the same test, which plays
//! another part when it is told so.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::tests::{
    WITHOUT_LIMIT, answered, assert_near, counted, key, ledger, planned, store, usage,
};
use super::*;

/// Tells a second process of a test that it is the second, and which home it shares.
const SHARED_HOME: &str = "SPENDING_TEST_HOME";

/// The test `name` once more, in a process of its own that shares `home`.
#[expect(
    clippy::disallowed_methods,
    reason = "the one constructor of a second process of a home"
)]
fn second_process(name: &str, home: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg(format!("spending::process_tests::{name}"))
        .env(SHARED_HOME, home)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The home that the first process of the test gave this one, when this is the second.
#[expect(
    clippy::disallowed_methods,
    reason = "what a second process is told by the first"
)]
fn shared_home() -> Option<PathBuf> {
    std::env::var_os(SHARED_HOME).map(PathBuf::from)
}

#[tokio::test]
async fn a_control_plane_that_is_killed_leaves_an_unknown_cost() {
    if let Some(home) = shared_home() {
        let ledger = ledger(&Store::open(&home).unwrap(), WITHOUT_LIMIT);
        ledger.admit(&planned("priced", 250)).await.unwrap();
        println!("\nadmitted");
        return std::future::pending().await;
    }
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path(), "abc").await;
    let mut child = second_process(
        "a_control_plane_that_is_killed_leaves_an_unknown_cost",
        home.path(),
    );
    let output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.lines().any(|line| line.unwrap() == "admitted"));
    child.kill().unwrap();
    child.wait().unwrap();
    let budgets = Budgets {
        node_usd: Some(0.5),
        ..WITHOUT_LIMIT
    };
    let ledger = ledger(&store, budgets);
    let totals = ledger.totals().await.unwrap();
    assert_eq!((totals.calls, totals.unknown), (1, 1));
    assert_eq!(totals.cost_usd(), None);
    let refusal = ledger.admit(&planned("priced", 300)).await.unwrap_err();
    assert!(
        refusal.message.starts_with("$0.25 of the $0.50"),
        "{refusal}"
    );
}

#[tokio::test]
async fn two_processes_keep_one_daily_budget() {
    if let Some(home) = shared_home() {
        let budgets = Budgets {
            daily_usd: 0.5,
            ..WITHOUT_LIMIT
        };
        let ledger = ledger(&Store::open(&home).unwrap(), budgets);
        while let Ok(ticket) = ledger.admit(&planned("priced", 10)).await {
            ledger.record(ticket, answered(Some(usage(10)), true)).await;
        }
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path(), "abc").await;
    let name = "two_processes_keep_one_daily_budget";
    let children = [(); 2].map(|()| second_process(name, home.path()));
    for mut child in children {
        // Nobody reads what it prints, which is little.
        assert!(child.wait().unwrap().success());
    }
    let totals = store.calls_of(&key("abc", "worker")).await.unwrap();
    assert_eq!(totals.calls, 50);
    assert_near(counted(&store), 0.5);
}
