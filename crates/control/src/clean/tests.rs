use std::path::PathBuf;

use mini_ork_protocol::RunId;

use super::listing::{Condition, ListedRun};
use super::run::Verdict;
use super::*;
use crate::reason::Status;
use crate::run::RunDirectory;

const DAY: u64 = 24 * 3600 * 1000;

fn listed(home: &std::path::Path, condition: Condition) -> ListedRun {
    let run = RunId::parse("abc").unwrap();
    ListedRun {
        directory: RunDirectory::of(home, &run),
        run,
        row: None,
        condition,
        bytes: 100,
        work_bytes: 60,
    }
}

fn finished(ended_at_ms: u64) -> Condition {
    Condition::Finished {
        status: Status::Failed,
        ended_at_ms,
    }
}

#[test]
fn age_decides_about_finished_runs_only() {
    let home = tempfile::tempdir().unwrap();
    let verdict =
        |condition: Condition| Verdict::by_age(&listed(home.path(), condition), 31 * DAY, 30 * DAY);
    assert!(matches!(verdict(finished(DAY)), Verdict::Forget { .. }));
    assert_eq!(verdict(finished(DAY + 1)), Verdict::Ignore);
    assert!(matches!(
        verdict(Condition::Live { pid: Some(7) }),
        Verdict::Stay { why } if why == "process 7 runs it"
    ));
    assert!(matches!(
        verdict(Condition::Interrupted),
        Verdict::Stay { .. }
    ));
    let vanished = |status| Condition::Vanished {
        status,
        since_ms: 0,
    };
    assert_eq!(verdict(vanished(None)), Verdict::Finalise);
    assert!(matches!(
        verdict(vanished(Some(Status::Failed))),
        Verdict::ForgetRecord { .. }
    ));
    let orphan = |young| Condition::Orphan {
        changed_at_ms: 0,
        young,
    };
    assert!(matches!(verdict(orphan(true)), Verdict::Stay { .. }));
    assert!(matches!(verdict(orphan(false)), Verdict::Forget { .. }));

    // What it still works with goes at once.
    let directory = RunDirectory::of(home.path(), &RunId::parse("abc").unwrap());
    fs_err::create_dir_all(directory.control_git()).unwrap();
    let strip = verdict(finished(DAY + 1));
    assert_eq!(strip, Verdict::Strip);
    assert_eq!(strip.remaining(&listed(home.path(), finished(0))), 40);
}

#[test]
fn a_clock_that_was_set_back_makes_nothing_old() {
    let home = tempfile::tempdir().unwrap();
    let future = listed(home.path(), finished(u64::MAX));
    assert_eq!(Verdict::by_age(&future, 5, 1), Verdict::Ignore);
}

#[tokio::test]
async fn a_home_without_runs_is_clean() {
    let home = tempfile::tempdir().unwrap();
    let request = CleanRequest {
        home: home.path().to_owned(),
        git: mini_ork_node::git::Git::find("/usr/local/bin:/usr/bin:/bin".as_ref()).unwrap(),
        older_than: Duration::ZERO,
        max_size: Some(0),
        fault: FaultPoint::default(),
    };
    assert!(plan(&request).unwrap().items.is_empty());
    assert_eq!(fs_err::read_dir(home.path()).unwrap().count(), 0);
    let store = Store::open(home.path()).unwrap();
    assert!(carry_out(&request, &store).await.unwrap().items.is_empty());

    // Names that no run has are nobody's business.
    for name in ["UPPER", ".hidden", "a_b"] {
        fs_err::create_dir_all(home.path().join("runs").join(name)).unwrap();
    }
    fs_err::write(home.path().join("runs/.trash-abc.0"), "x").unwrap();
    let done = carry_out(&request, &store).await.unwrap();
    assert_eq!(done.items.len(), 1);
    assert_eq!(done.items[0].run.as_deref(), Some("abc"));
    assert_eq!(
        fs_err::read_dir(home.path().join("runs")).unwrap().count(),
        3
    );

    let alone = trash::Alone::take(home.path()).unwrap();
    assert!(matches!(
        carry_out(&request, &store).await,
        Err(CleanError::Busy)
    ));
    drop(alone);
    assert!(carry_out(&request, &store).await.is_ok());
    let elsewhere = PathBuf::from("/nonexistent/home");
    assert!(trash::Alone::take(&elsewhere).unwrap().is_none());
}

#[test]
fn sizes_are_short_and_right() {
    for (bytes, text) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (100 << 20, "100 MiB"),
        ((5 << 30) + (1 << 29), "5.5 GiB"),
        (u64::MAX, "16777215 TiB"),
    ] {
        assert_eq!(human_bytes(bytes), text);
    }
}
