use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mini_ork_node::git::TreeId;
use mini_ork_protocol::{NodeId, RunId};
use proptest::prelude::*;

use super::*;
use crate::recipe::{ArtifactContract, Edge, EdgeKind, ExpectedArtifact, Node};
use crate::run::event::{NodeOutcome, NodeStart};
use crate::run::{Limits, PLAN_FORMAT, Plan, PlannedNode};

#[path = "decide_lane_tests.rs"]
mod lanes;

fn id(name: &str) -> NodeId {
    NodeId::parse(name).unwrap()
}

fn tree(number: u8) -> TreeId {
    TreeId::parse(&format!("{number:02x}").repeat(20)).unwrap()
}

fn node(name: &str, kind: NodeKind) -> PlannedNode {
    PlannedNode {
        fallbacks: Vec::new(),
        node: Node {
            id: id(name),
            kind,
            lane: None,
            prompt: None,
            verifier: None,
            gates: Vec::new(),
            timeout: None,
            max_cost_usd: None,
            retries: 1,
            outputs: Vec::new(),
            serial: false,
            accepts_conflicts: false,
            line: 1,
        },
        lane: None,
    }
}

fn edge(from: &str, to: &str, kind: EdgeKind) -> Edge {
    Edge {
        from: id(from),
        to: id(to),
        kind,
        line: 1,
    }
}

fn plan(nodes: Vec<PlannedNode>, edges: Vec<Edge>) -> Arc<Plan> {
    Arc::new(Plan {
        agents: BTreeMap::new(),
        format: PLAN_FORMAT,
        run: RunId::parse("abc").unwrap(),
        recipe: "test".to_owned(),
        recipe_digest: String::new(),
        title: String::new(),
        backend: "local".to_owned(),
        nodes,
        edges,
        contract: ArtifactContract {
            expected: ExpectedArtifact::Patch,
            success_verifiers: Vec::new(),
            rollback_policy: String::new(),
        },
        serial: false,
        limits: Limits {
            max_parallel: 4,
            deadline_ms: None,
            node_timeout_ms: 1000,
            budget_usd: None,
        },
    })
}

/// planner → implementer → typecheck + test → reviewer → publisher, with retries and rollback.
fn code_fix() -> Arc<Plan> {
    let after = EdgeKind::DependsOn;
    let back = EdgeKind::Retries { max_rounds: 2 };
    plan(
        vec![
            node("planner", NodeKind::Planner),
            node("implementer", NodeKind::Implementer),
            node("typecheck", NodeKind::Verifier),
            node("test", NodeKind::Verifier),
            node("reviewer", NodeKind::Reviewer),
            node("publisher", NodeKind::Publisher),
            node("rollback", NodeKind::Rollback),
        ],
        vec![
            edge("planner", "implementer", after),
            edge("implementer", "typecheck", EdgeKind::Verifies),
            edge("implementer", "test", EdgeKind::Verifies),
            edge("typecheck", "reviewer", after),
            edge("test", "reviewer", after),
            edge("reviewer", "publisher", after),
            edge("typecheck", "implementer", back),
            edge("test", "implementer", back),
            edge("reviewer", "implementer", back),
            edge("test", "rollback", EdgeKind::EscalatesTo),
            edge("reviewer", "rollback", EdgeKind::EscalatesTo),
        ],
    )
}

/// A state with an engine that keeps to the rules: it journals what it is told and starts what it
/// is told.
struct Driver {
    state: RunState,
    in_flight: BTreeSet<NodeId>,
    journal: Vec<RunEvent>,
    starts: Vec<String>,
}

impl Driver {
    fn new(plan: Arc<Plan>) -> Self {
        Self {
            state: RunState::new(plan).unwrap(),
            in_flight: BTreeSet::new(),
            journal: Vec::new(),
            starts: Vec::new(),
        }
    }

    fn journal(&mut self, event: RunEvent) {
        self.state.apply(&event);
        self.journal.push(event);
    }

    /// Does what is decided until something has to end; returns what runs.
    fn settle(&mut self) -> Vec<String> {
        for _ in 0..100 {
            let decisions = self.state.decide(&self.in_flight);
            if decisions.is_empty() {
                break;
            }
            for decision in decisions {
                match decision {
                    Decision::Journal(event) => self.journal(event),
                    Decision::Start(node) => {
                        let progress = self.state.node(&node).unwrap();
                        let planned = self.state.plan().node(&node).unwrap();
                        let start = NodeStart {
                            node: node.clone(),
                            round: progress.round,
                            attempt: progress.attempt,
                            lane: planned
                                .lanes()
                                .nth(progress.lane)
                                .map(|lane| lane.name.clone()),
                            input: Some(tree(1)),
                            start: Some(tree(1)),
                            place: None,
                        };
                        self.starts
                            .push(format!("{node}.{}.{}", start.round, start.attempt));
                        assert!(self.in_flight.insert(node), "started twice at once");
                        self.journal(RunEvent::NodeStarted(start));
                    }
                }
            }
        }
        self.in_flight.iter().map(ToString::to_string).collect()
    }

    fn end(&mut self, name: &str, failure: Option<(Reason, Remedy)>) {
        let node = id(name);
        assert!(self.in_flight.remove(&node), "{name} does not run");
        let progress = self.state.node(&node).unwrap();
        let (round, attempt) = (progress.round, progress.attempt);
        let mut outcome = NodeOutcome::done(format!("{name} said so"));
        outcome.output = Some(tree(2));
        outcome.failure = failure.map(|(reason, remedy)| Failure {
            reason,
            detail: "no".to_owned(),
            remedy,
        });
        self.journal(RunEvent::NodeEnded {
            node,
            round,
            attempt,
            outcome,
        });
    }

    fn pass(&mut self, names: &[&str]) -> Vec<String> {
        for name in names {
            self.end(name, None);
        }
        self.settle()
    }

    fn closing(&self) -> (Status, Option<Reason>) {
        let closing = self.state.closing().expect("the run has not ended");
        (closing.status, closing.reason)
    }
}

const REFUSED: Option<(Reason, Remedy)> = Some((Reason::VerdictFail, Remedy::Round));
const BROKE: Option<(Reason, Remedy)> = Some((Reason::CommandFailed, Remedy::Attempt));

#[test]
fn an_ordinary_run_is_published() {
    let mut run = Driver::new(code_fix());
    assert_eq!(run.settle(), ["planner"]);
    assert_eq!(run.pass(&["planner"]), ["implementer"]);
    assert_eq!(run.pass(&["implementer"]), ["test", "typecheck"]);
    assert_eq!(run.pass(&["test"]), ["typecheck"]);
    assert_eq!(run.pass(&["typecheck"]), ["reviewer"]);
    assert_eq!(run.pass(&["reviewer"]), ["publisher"]);
    assert!(run.pass(&["publisher"]).is_empty());
    assert_eq!(run.closing(), (Status::Published, None));
}

#[test]
fn findings_go_back_when_every_judge_has_spoken() {
    let mut run = Driver::new(code_fix());
    run.settle();
    run.pass(&["planner"]);
    run.pass(&["implementer"]);
    run.end("test", REFUSED);
    assert_eq!(
        run.settle(),
        ["typecheck"],
        "the other judge is heard first"
    );
    run.end("typecheck", REFUSED);
    assert_eq!(run.settle(), ["implementer"]);
    let progress = run.state.node(&id("implementer")).unwrap();
    assert_eq!((progress.round, progress.attempt), (2, 1));
    let evidence = progress.evidence.as_deref().unwrap();
    assert!(evidence.contains("test said so") && evidence.contains("typecheck said so"));
    assert_eq!(progress.previous.as_ref().unwrap().output, tree(2));
    assert_eq!(run.state.node(&id("planner")).unwrap().round, 1);
    run.pass(&["implementer"]);
    assert!(run.starts.contains(&"test.2.1".to_owned()));
}

#[test]
fn rounds_end_and_then_the_rollback_runs() {
    let mut run = Driver::new(code_fix());
    run.settle();
    run.pass(&["planner"]);
    for _ in 0..3 {
        run.pass(&["implementer"]);
        run.end("typecheck", None);
        run.end("test", REFUSED);
        run.settle();
    }
    assert_eq!(run.settle(), ["rollback"]);
    assert!(run.pass(&["rollback"]).is_empty());
    assert_eq!(run.closing(), (Status::Failed, Some(Reason::VerdictFail)));
    let implementers = run
        .starts
        .iter()
        .filter(|start| start.starts_with("implementer"));
    assert_eq!(implementers.count(), 3);
    assert!(!run.starts.iter().any(|start| start.starts_with("reviewer")));
}

#[test]
fn a_broken_program_is_tried_again_as_often_as_the_recipe_says() {
    let mut run = Driver::new(code_fix());
    run.settle();
    run.end("planner", BROKE);
    assert_eq!(run.settle(), ["planner"]);
    run.end("planner", BROKE);
    assert!(run.settle().is_empty());
    assert_eq!(run.starts, ["planner.1.1", "planner.1.2"]);
    assert_eq!(run.closing(), (Status::Failed, Some(Reason::CommandFailed)));
    assert!(run.state.is_blocked(&id("publisher")));
}

#[test]
fn a_stop_starts_nothing_more_and_waits_for_what_runs() {
    let mut run = Driver::new(code_fix());
    run.settle();
    run.pass(&["planner"]);
    run.pass(&["implementer"]);
    run.journal(RunEvent::StopRequested {
        reason: Reason::Cancelled,
        detail: "asked".to_owned(),
    });
    assert_eq!(run.settle(), ["test", "typecheck"]);
    run.end("test", REFUSED);
    run.end("typecheck", None);
    assert!(run.settle().is_empty());
    assert_eq!(run.closing(), (Status::Cancelled, Some(Reason::Cancelled)));
}

#[test]
fn an_eval_decides_nothing() {
    let after = EdgeKind::DependsOn;
    let plan = plan(
        vec![
            node("eval", NodeKind::Eval),
            node("publisher", NodeKind::Publisher),
        ],
        vec![edge("eval", "publisher", after)],
    );
    let mut run = Driver::new(plan);
    run.settle();
    run.end("eval", BROKE);
    assert_eq!(run.settle(), ["publisher"]);
}

#[test]
fn a_serial_node_runs_alone() {
    let mut alone = node("b", NodeKind::Researcher);
    alone.node.serial = true;
    let plan = plan(
        vec![
            node("a", NodeKind::Researcher),
            alone,
            node("c", NodeKind::Researcher),
        ],
        Vec::new(),
    );
    let mut run = Driver::new(plan);
    assert_eq!(run.settle(), ["a"]);
    assert_eq!(run.pass(&["a"]), ["b"]);
    assert_eq!(run.pass(&["b"]), ["c"]);
}

#[test]
fn a_failed_run_is_taken_up_where_it_failed() {
    let mut run = Driver::new(code_fix());
    run.settle();
    run.pass(&["planner"]);
    for _ in 0..3 {
        run.pass(&["implementer"]);
        run.end("typecheck", None);
        run.end("test", REFUSED);
        run.settle();
    }
    run.pass(&["rollback"]);
    run.journal(RunEvent::Reopened);
    assert_eq!(
        run.settle(),
        ["implementer"],
        "with the findings, and new rounds"
    );
    let progress = run.state.node(&id("implementer")).unwrap();
    assert!(progress.round == 4 && progress.evidence.is_some());
    run.pass(&["implementer"]);
    run.pass(&["test", "typecheck"]);
    run.pass(&["reviewer"]);
    run.pass(&["publisher"]);
    assert_eq!(run.closing(), (Status::Published, None));
}

#[test]
fn a_cancelled_run_is_taken_up_at_what_was_stopped() {
    let mut run = Driver::new(code_fix());
    run.settle();
    run.pass(&["planner"]);
    run.journal(RunEvent::StopRequested {
        reason: Reason::Cancelled,
        detail: String::new(),
    });
    run.end("implementer", Some((Reason::Cancelled, Remedy::None)));
    run.settle();
    assert_eq!(run.closing().0, Status::Cancelled);
    run.journal(RunEvent::Reopened);
    assert_eq!(run.settle(), ["implementer"]);
    assert!(!run.starts.iter().any(|start| start == "planner.2.1"));
}

proptest! {
    /// Whatever nodes do: the run ends, with one terminal status, no node runs in two rounds at
    /// once, rounds and attempts stay within their bounds, nothing is published that a judge
    /// refused, and a reader of the journal sees what the engine saw.
    #[test]
    fn every_run_ends_once(choices in prop::collection::vec((0usize..8, 0u8..10), 0..200)) {
        let mut run = Driver::new(code_fix());
        let mut choices = choices.into_iter().chain(std::iter::repeat((0, 0)));
        for _ in 0..300 {
            let running = run.settle();
            if running.is_empty() {
                break;
            }
            let (which, what) = choices.next().unwrap();
            let name = running[which % running.len()].clone();
            let failure = match what {
                0..=5 => None,
                6 => BROKE,
                7 => Some((Reason::Timeout, Remedy::None)),
                8 if name == "test" || name == "reviewer" || name == "typecheck" => REFUSED,
                8 => BROKE,
                _ => {
                    let event = RunEvent::StopRequested {
                        reason: Reason::Cancelled,
                        detail: String::new(),
                    };
                    run.journal(event);
                    None
                }
            };
            run.end(&name, failure);
        }
        let closings = run.journal.iter().filter(|event| matches!(event, RunEvent::Closed(_)));
        prop_assert_eq!(closings.count(), 1);
        let mut seen = BTreeSet::new();
        for start in &run.starts {
            prop_assert!(seen.insert(start.clone()), "{} ran twice", start);
        }
        let rounds = |name: &str| run.state.node(&id(name)).unwrap().round;
        // Three judges may each send the work back twice.
        prop_assert!(rounds("implementer") <= 7 && rounds("planner") == 1);
        if run.closing().0 == Status::Published {
            for (planned, progress) in run.state.nodes() {
                let rollback = planned.node.kind == NodeKind::Rollback;
                prop_assert!(rollback || progress.phase == Phase::Done);
            }
        }
        let read = RunState::replay(code_fix(), &run.journal).unwrap();
        let seen = |state: &RunState| {
            let nodes: Vec<String> =
                state.nodes().map(|(_, progress)| format!("{progress:?}")).collect();
            (nodes, state.rounds_used.clone(), state.closing.clone(), state.stop.clone())
        };
        prop_assert_eq!(seen(&read), seen(&run.state));
    }
}
