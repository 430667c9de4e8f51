//! What can only be seen when the whole of a recipe is there: references, the graph, ownership.

use std::collections::BTreeMap;

use mini_ork_protocol::NodeId;

use super::graph::{Graph, GraphError};
use super::model::{Edge, EdgeKind, Node, NodeKind, VerifierSource};
use super::node::NodeDraft;
use super::workflow::{EdgeDraft, Workflow};
use crate::yaml::{Value, suggest_or_list};

/// Checks the graph and the references to files; mistakes are kept in the workflow's document.
pub(super) fn workflow(workflow: &Workflow<'_>, files: &BTreeMap<String, Vec<u8>>) {
    for draft in &workflow.nodes {
        referenced_files(draft, files);
    }
    outputs(&workflow.nodes);
    publishers(&workflow.nodes);
    for edge in &workflow.edges {
        ends(edge, workflow);
    }
    let nodes: BTreeMap<&NodeId, NodeKind> = workflow
        .nodes
        .iter()
        .map(|draft| (&draft.node.id, draft.node.kind))
        .collect();
    // An edge to a node that could not be read says nothing here; its node has been reported.
    let edges: Vec<(&EdgeDraft<'_>, NodeKind, NodeKind)> = workflow
        .edges
        .iter()
        .filter_map(|draft| {
            Some((
                draft,
                *nodes.get(&draft.edge.from)?,
                *nodes.get(&draft.edge.to)?,
            ))
        })
        .collect();
    for (draft, from, to) in &edges {
        meaning(draft, *from, *to);
    }
    repeated(&edges);
    unused_rollbacks(&workflow.nodes, &edges);
    loops(&workflow.nodes, &edges);
}

/// The node that a contract means by `reference`: the name of a verifier, or the script of one.
pub(super) fn success_verifier<'w>(
    workflow: &'w Workflow<'_>,
    reference: &str,
    place: &Value<'_>,
) -> Option<&'w NodeId> {
    let verifiers = || {
        workflow
            .nodes
            .iter()
            .map(|draft| &draft.node)
            .filter(|node| node.kind == NodeKind::Verifier)
    };
    let found = verifiers().find(|node| {
        node.id.as_str() == reference
            || matches!(&node.verifier, Some(VerifierSource::Script(path)) if path == reference)
    });
    if found.is_none() {
        let names: Vec<&str> = verifiers().map(|node| node.id.as_str()).collect();
        let remedy = suggest_or_list(reference, names);
        place.mistake(
            &format!("`{reference}` is no verifier of the workflow"),
            &remedy,
        );
    }
    found.map(|node| &node.id)
}

fn referenced_files(draft: &NodeDraft<'_>, files: &BTreeMap<String, Vec<u8>>) {
    let script = match &draft.node.verifier {
        Some(VerifierSource::Script(path)) => Some(path),
        _ => None,
    };
    let references = [
        (draft.node.prompt.as_ref(), &draft.prompt),
        (script, &draft.verifier),
    ];
    for (path, place) in references {
        if let (Some(path), Some(place)) = (path, place)
            && !files.contains_key(path)
        {
            let remedy = suggest_or_list(path, files.keys().map(String::as_str));
            place.mistake(
                &format!("names `{path}`, which is no file of the recipe"),
                &remedy,
            );
        }
    }
}

fn outputs(nodes: &[NodeDraft<'_>]) {
    let mut owners: BTreeMap<&str, &NodeId> = BTreeMap::new();
    for draft in nodes {
        for (output, place) in draft.node.outputs.iter().zip(&draft.outputs) {
            let path = output.path.as_str();
            let clash = owners.iter().find(|(other, _)| {
                let below = |inner: &str, outer: &str| {
                    inner
                        .strip_prefix(outer)
                        .is_some_and(|rest| rest.starts_with('/'))
                };
                **other == path || below(path, other) || below(other, path)
            });
            if let Some((other, owner)) = clash {
                place.mistake(
                    &format!("`{path}` meets `{other}`, an output of `{owner}`"),
                    "give each output a path of its own",
                );
            } else {
                owners.insert(path, &draft.node.id);
            }
        }
    }
}

fn publishers(nodes: &[NodeDraft<'_>]) {
    let mut publishers = nodes
        .iter()
        .filter(|draft| draft.node.kind == NodeKind::Publisher);
    let Some(first) = publishers.next() else {
        return;
    };
    for other in publishers {
        other.place.mistake(
            &format!("is a second publisher beside `{}`", first.node.id),
            "keep one: a run publishes once",
        );
    }
}

fn ends(draft: &EdgeDraft<'_>, workflow: &Workflow<'_>) {
    for (id, place) in [(&draft.edge.from, &draft.from), (&draft.edge.to, &draft.to)] {
        if !workflow.names.contains(id.as_str()) {
            let remedy = suggest_or_list(id.as_str(), workflow.names.iter().map(String::as_str));
            place.mistake(
                &format!("names the node `{id}`, which does not exist"),
                &remedy,
            );
        }
    }
}

/// Whether an edge of this kind may join nodes of these kinds.
fn meaning(draft: &EdgeDraft<'_>, from: NodeKind, to: NodeKind) {
    let judges = |kind| {
        matches!(
            kind,
            NodeKind::Verifier | NodeKind::Reviewer | NodeKind::Eval
        )
    };
    match draft.edge.kind {
        EdgeKind::Retries { .. } => {
            if !matches!(from, NodeKind::Verifier | NodeKind::Reviewer) {
                draft.from.mistake(
                    &format!("is of type `{}`, which finds no fault", from.name()),
                    "let `retries` lead from a verifier or a reviewer",
                );
            }
            if !to.uses_lane() {
                draft.to.mistake(
                    &format!("is of type `{}`, which can do nothing better", to.name()),
                    "let `retries` lead to the node whose work is judged",
                );
            }
            return;
        }
        EdgeKind::EscalatesTo => {
            if to != NodeKind::Rollback {
                draft.to.mistake(
                    &format!("is of type `{}`", to.name()),
                    "let `escalates_to` lead to a node of type `rollback`",
                );
            }
            if from == NodeKind::Rollback {
                draft
                    .from
                    .mistake("is a rollback, which ends the run", "remove the edge");
            }
            return;
        }
        EdgeKind::Verifies => {
            if !judges(from) && !judges(to) {
                draft.kind.mistake(
                    "joins two nodes of which neither judges",
                    "use `depends_on`, or `supplies_context_to`",
                );
            }
        }
        EdgeKind::DependsOn | EdgeKind::SuppliesContextTo => {}
    }
    if from == NodeKind::Publisher {
        draft.from.mistake(
            "is the publisher, after which nothing runs",
            "remove the edge",
        );
    }
    for (kind, place) in [(from, &draft.from), (to, &draft.to)] {
        if kind == NodeKind::Rollback {
            place.mistake(
                "is a rollback, which runs only when something failed",
                "use `escalates_to` from the node that it guards",
            );
        }
    }
}

/// The same edge twice, or two answers to the question what follows a failure.
fn repeated(edges: &[(&EdgeDraft<'_>, NodeKind, NodeKind)]) {
    for (position, (draft, ..)) in edges.iter().enumerate() {
        let Edge { from, to, kind, .. } = &draft.edge;
        let same_kind =
            |other: &EdgeKind| std::mem::discriminant(other) == std::mem::discriminant(kind);
        let mut earlier = edges[..position]
            .iter()
            .map(|(other, ..)| &other.edge)
            .filter(|other| other.from == *from && same_kind(&other.kind));
        if earlier.clone().any(|other| other.to == *to) {
            draft
                .kind
                .mistake("the same edge stands above", "remove it");
        } else if !kind.orders()
            && let Some(other) = earlier.next()
        {
            draft.kind.mistake(
                &format!("`{from}` has such an edge to `{}` already", other.to),
                "keep one of them",
            );
        }
    }
}

fn unused_rollbacks(nodes: &[NodeDraft<'_>], edges: &[(&EdgeDraft<'_>, NodeKind, NodeKind)]) {
    for draft in nodes
        .iter()
        .filter(|draft| draft.node.kind == NodeKind::Rollback)
    {
        if !edges.iter().any(|(edge, ..)| edge.edge.to == draft.node.id) {
            draft.place.mistake(
                &format!("`{}` is a rollback that nothing leads to", draft.node.id),
                "add an edge of type `escalates_to`, or remove the node",
            );
        }
    }
}

/// Nodes that wait for each other, and `retries` edges that do not lead back.
fn loops(nodes: &[NodeDraft<'_>], edges: &[(&EdgeDraft<'_>, NodeKind, NodeKind)]) {
    let plain_nodes: Vec<Node> = nodes.iter().map(|draft| draft.node.clone()).collect();
    let plain_edges: Vec<Edge> = edges.iter().map(|(draft, ..)| draft.edge.clone()).collect();
    let graph = match Graph::new(&plain_nodes, &plain_edges) {
        Ok(graph) => graph,
        Err(error) => {
            let GraphError::Cycle(cycle) = &error else {
                return;
            };
            let closes = edges.iter().rev().find(|(draft, ..)| {
                draft.edge.kind.orders()
                    && cycle
                        .windows(2)
                        .any(|step| step[0] == draft.edge.from && step[1] == draft.edge.to)
            });
            if let Some((draft, ..)) = closes {
                draft.kind.mistake(
                    &error.to_string(),
                    "remove one of these edges, or make it `retries`",
                );
            }
            return;
        }
    };
    for (draft, ..) in edges {
        let Edge { from, to, kind, .. } = &draft.edge;
        if matches!(kind, EdgeKind::Retries { .. }) && !graph.is_ancestor(to, from) {
            draft.to.mistake(
                &format!("`{to}` does not run before `{from}`"),
                "let `retries` lead back to an earlier node",
            );
        }
    }
}
