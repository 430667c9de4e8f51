//! Which lane does a node, and which comes after it.

use std::collections::BTreeMap;

use super::*;
use crate::lanes::{Agent, Lane};

fn lane(name: &str) -> Lane {
    Lane {
        name: name.to_owned(),
        agent: Agent::Executable {
            argv: vec!["true".to_owned()],
        },
        extra_env: BTreeMap::new(),
    }
}

/// An implementer with three lanes and one retry, and who publishes its work.
fn chain() -> Arc<Plan> {
    let mut implementer = node("implementer", NodeKind::Implementer);
    implementer.lane = Some(lane("first"));
    implementer.fallbacks = vec![lane("second"), lane("third")];
    plan(
        vec![implementer, node("publisher", NodeKind::Publisher)],
        vec![edge("implementer", "publisher", EdgeKind::DependsOn)],
    )
}

const BUSY: Option<(Reason, Remedy)> = Some((Reason::ProviderError, Remedy::Lane));

#[test]
fn a_lane_that_cannot_is_followed_by_the_next_and_the_record_names_both() {
    let mut run = Driver::new(chain());
    run.settle();
    run.end("implementer", BUSY);
    assert_eq!(run.settle(), ["implementer"]);
    assert!(run.pass(&["implementer"]).contains(&"publisher".to_owned()));
    let lanes: Vec<Option<&str>> = run
        .journal
        .iter()
        .filter_map(|event| match event {
            RunEvent::NodeStarted(start) if start.node == id("implementer") => {
                Some(start.lane.as_deref())
            }
            _ => None,
        })
        .collect();
    assert_eq!(lanes, [Some("first"), Some("second")]);
    let (planned, progress) = run.state.nodes().next().unwrap();
    assert_eq!(progress.lane_name(planned), Some("second"));
}

#[test]
fn after_the_last_lane_its_own_retries_are_left() {
    let mut run = Driver::new(chain());
    run.settle();
    for _ in 0..3 {
        run.end("implementer", BUSY);
        assert_eq!(run.settle(), ["implementer"]);
    }
    run.end("implementer", BUSY);
    assert!(run.settle().is_empty());
    assert_eq!(run.closing(), (Status::Failed, Some(Reason::ProviderError)));
    let expected = [
        "implementer.1.1",
        "implementer.1.2",
        "implementer.1.3",
        "implementer.1.4",
    ];
    assert_eq!(run.starts, expected);
    let replayed = RunState::replay(chain(), &run.journal).unwrap();
    assert_eq!(replayed.node(&id("implementer")).unwrap().lane, 2);
}

#[test]
fn what_no_lane_cures_ends_the_run_and_a_broken_program_stays_on_its_lane() {
    let mut run = Driver::new(chain());
    run.settle();
    run.end("implementer", BROKE);
    run.settle();
    assert_eq!(run.state.node(&id("implementer")).unwrap().lane, 0);
    run.end("implementer", Some((Reason::ProviderError, Remedy::None)));
    assert!(run.settle().is_empty());
    assert_eq!(run.closing(), (Status::Failed, Some(Reason::ProviderError)));
}
