//! What to do next, given the state of a run. Pure: no IO, no clock.

use std::collections::BTreeSet;

use mini_ork_protocol::NodeId;

use super::event::{Closing, Failure, Remedy, RunEvent};
use super::state::{NodeProgress, Phase, RunState};
use crate::reason::{Reason, Status};
use crate::recipe::NodeKind;

/// The next steps that a state asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Run this node, as the attempt and round that its progress says.
    Start(NodeId),
    /// Journal this event and ask again.
    Journal(RunEvent),
}

impl RunState {
    /// What to do now, given the nodes that an executor works on (started, or about to be).
    /// Empty means: wait for one of them.
    pub fn decide(&self, in_flight: &BTreeSet<NodeId>) -> Vec<Decision> {
        if self.closing.is_some() {
            return Vec::new();
        }
        if self.stop.is_none()
            && let Some(round) = self.next_round(in_flight)
        {
            return round.map_or_else(Vec::new, |event| vec![Decision::Journal(event)]);
        }
        if let Some((node, failure)) = self.deciding_failure() {
            return self.wind_down(in_flight, node, &failure);
        }
        let starts = self.startable(in_flight);
        if starts.is_empty() && in_flight.is_empty() {
            return vec![Decision::Journal(RunEvent::Closed(self.success()))];
        }
        starts.into_iter().map(Decision::Start).collect()
    }

    /// The round that failed verdicts ask for. `Some(None)`: one is due, but nodes that it would
    /// restart still run, and what they find belongs into its evidence.
    fn next_round(&self, in_flight: &BTreeSet<NodeId>) -> Option<Option<RunEvent>> {
        for (target, _) in self.nodes() {
            let target = &target.node.id;
            let sources: Vec<&NodeId> = self
                .nodes()
                .filter(|(planned, progress)| {
                    progress.phase == Phase::Failed
                        && failure_of(progress)
                            .is_some_and(|failure| failure.remedy == Remedy::Round)
                        && self
                            .plan
                            .retry_targets(&planned.node.id)
                            .any(|(to, max_rounds)| {
                                to == target && self.rounds_used(&planned.node.id, to) < max_rounds
                            })
                })
                .map(|(planned, _)| &planned.node.id)
                .collect();
            if sources.is_empty() {
                continue;
            }
            let affected = self.affected(target);
            if in_flight.iter().any(|node| affected.contains(node)) {
                return Some(None);
            }
            // A failure elsewhere that nothing cures ends the run; a round would be paid in vain.
            let hopeless = self.nodes().any(|(planned, progress)| {
                progress.phase == Phase::Failed && !affected.contains(&planned.node.id)
            });
            if hopeless {
                return None;
            }
            let evidence = sources
                .iter()
                .filter_map(|source| Some((source, self.nodes.get(*source)?.outcome.as_ref()?)))
                .map(|(source, outcome)| {
                    let mut text = format!("## {source}\n{}\n", outcome.summary);
                    for line in &outcome.evidence {
                        text.push_str(line);
                        text.push('\n');
                    }
                    text
                })
                .collect();
            return Some(Some(RunEvent::RoundStarted {
                from: sources.into_iter().cloned().collect(),
                target: target.clone(),
                evidence,
            }));
        }
        None
    }

    fn rounds_used(&self, from: &NodeId, to: &NodeId) -> u32 {
        self.rounds_used
            .get(&(from.clone(), to.clone()))
            .copied()
            .unwrap_or(0)
    }

    /// The failure that ends the run, when there is one: a stop first, else the earliest in the
    /// graph.
    fn deciding_failure(&self) -> Option<(Option<NodeId>, Failure)> {
        if let Some((reason, detail)) = &self.stop {
            let failure = Failure {
                reason: *reason,
                detail: detail.clone(),
                remedy: Remedy::None,
            };
            return Some((None, failure));
        }
        self.nodes().find_map(|(planned, progress)| {
            let rollback = planned.node.kind == NodeKind::Rollback;
            (progress.phase == Phase::Failed && !rollback)
                .then(|| failure_of(progress).cloned())
                .flatten()
                .map(|failure| (Some(planned.node.id.clone()), failure))
        })
    }

    fn wind_down(
        &self,
        in_flight: &BTreeSet<NodeId>,
        node: Option<NodeId>,
        failure: &Failure,
    ) -> Vec<Decision> {
        if !in_flight.is_empty() {
            return Vec::new();
        }
        let rollback = node.as_ref().and_then(|failed| {
            self.plan
                .escalations(failed)
                .find(|id| {
                    self.nodes
                        .get(*id)
                        .is_some_and(|progress| progress.phase == Phase::Waiting)
                })
                .cloned()
        });
        if let Some(rollback) = rollback {
            return vec![Decision::Start(rollback)];
        }
        let status = match failure.reason {
            Reason::Cancelled => Status::Cancelled,
            _ => Status::Failed,
        };
        let detail = node.as_ref().map_or_else(
            || failure.detail.clone(),
            |node| format!("{node}: {}", failure.detail),
        );
        vec![Decision::Journal(RunEvent::Closed(Closing {
            status,
            reason: Some(failure.reason),
            detail,
            node,
        }))]
    }

    fn startable(&self, in_flight: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let alone = |id: &NodeId| {
            self.plan.serial
                || self
                    .plan
                    .node(id)
                    .is_some_and(|planned| planned.node.serial)
        };
        if in_flight.iter().any(alone) {
            return Vec::new();
        }
        let mut starts = Vec::new();
        for (planned, progress) in self.nodes() {
            let id = &planned.node.id;
            if in_flight.len() + starts.len() >= self.plan.limits.max_parallel {
                break;
            }
            let ready = progress.phase == Phase::Waiting
                && planned.node.kind != NodeKind::Rollback
                && !in_flight.contains(id)
                && self.graph.parents(id).into_iter().all(|parent| {
                    self.nodes
                        .get(parent)
                        .is_some_and(|progress| progress.phase == Phase::Done)
                });
            if !ready {
                continue;
            }
            if alone(id) {
                if in_flight.is_empty() && starts.is_empty() {
                    return vec![id.clone()];
                }
                // Its turn comes when the others are done; later ones do not overtake it.
                break;
            }
            starts.push(id.clone());
        }
        starts
    }

    fn success(&self) -> Closing {
        let detail = match self
            .publication
            .as_ref()
            .and_then(|done| done.branch.as_ref())
        {
            Some(branch) => format!("branch {}", branch.name),
            None => "all nodes are done".to_owned(),
        };
        Closing {
            status: Status::Published,
            reason: None,
            detail,
            node: None,
        }
    }
}

fn failure_of(progress: &NodeProgress) -> Option<&Failure> {
    progress.outcome.as_ref()?.failure.as_ref()
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
