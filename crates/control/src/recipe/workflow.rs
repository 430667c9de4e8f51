//! Reads `workflow.yaml` as far as it can be judged part by part; `check` looks at the whole.

use std::collections::BTreeSet;

use mini_ork_protocol::NodeId;

use super::model::{Edge, EdgeKind};
use super::node::{self, NodeDraft};
use crate::yaml::{Document, Value};

/// Far more than a person can follow, far fewer than cost time.
const MOST_NODES: usize = 200;
const MOST_EDGES: usize = 1000;
/// Rounds of a `retries` edge when neither it nor the workflow says how many.
const USUAL_ROUNDS: u32 = 2;
const MOST_ROUNDS: i64 = 10;

const DEPENDS_ON: &str = "use `depends_on`";

/// The file as it is written, each part with its place.
pub(super) struct Workflow<'d> {
    pub(super) version: String,
    /// With its place, to be compared with what the other files say.
    pub(super) task_class: Option<(String, Value<'d>)>,
    pub(super) description: String,
    pub(super) serial: bool,
    pub(super) nodes: Vec<NodeDraft<'d>>,
    /// Names of all nodes, also of those with a mistake: an edge to one of them is none.
    pub(super) names: BTreeSet<String>,
    pub(super) edges: Vec<EdgeDraft<'d>>,
}

/// An edge whose ends and type could be read.
pub(super) struct EdgeDraft<'d> {
    pub(super) edge: Edge,
    pub(super) from: Value<'d>,
    pub(super) to: Value<'d>,
    pub(super) kind: Value<'d>,
}

/// Reads the file; mistakes are kept in `document`.
pub(super) fn read(document: &Document) -> Workflow<'_> {
    let root = document.root();
    let version = root
        .required("version")
        .and_then(|value| value.text())
        .unwrap_or_default();
    let task_class = root
        .required("task_class")
        .and_then(|value| Some((node::name(&value)?, value)));
    let description = root
        .optional("description")
        .and_then(|value| value.string());
    let serial = root
        .optional("dispatch_mode")
        .and_then(|value| dispatch_mode(&value));
    if let Some(value) = root.optional("rollback_strategy") {
        let other = "use `revert_branch`: the work stays on its own branch";
        let refused = [("none", other), ("revert_commit", other), ("manual", other)];
        let _: Option<()> = value.choice(&[("revert_branch", ())], &refused);
    }
    let rounds = root
        .optional("max_self_correction_iterations")
        .and_then(|value| rounds(&value))
        .unwrap_or(USUAL_ROUNDS);

    let mut names = BTreeSet::new();
    let mut nodes = Vec::new();
    if let Some(list) = root.required("nodes") {
        let items = limited(&list, MOST_NODES);
        if items.is_empty() {
            list.mistake(
                "names no node",
                "write at least one: `- {name: …, type: …}`",
            );
        }
        nodes.extend(
            items
                .into_iter()
                .filter_map(|item| node::read(item, &mut names)),
        );
    }
    let edges = root
        .required("edges")
        .map(|list| limited(&list, MOST_EDGES))
        .unwrap_or_default();
    let edges = edges.iter().filter_map(|item| edge(item, rounds)).collect();

    root.not_carried_out(
        "recursion",
        "remove it; a `retries` edge repeats a part of the graph",
    );
    root.not_carried_out(
        "source_artifact",
        "remove it; the kickoff says what to work on",
    );
    root.finish();
    Workflow {
        version,
        task_class,
        description: description.unwrap_or_default(),
        serial: serial.unwrap_or(false),
        nodes,
        names,
        edges,
    }
}

/// Whether `dispatch_mode` says `serial`.
pub(super) fn dispatch_mode(value: &Value<'_>) -> Option<bool> {
    value.choice(
        &[("serial", true), ("parallel", false)],
        &[
            ("partitioned", "use `parallel`, with a node for each part"),
            ("speculative", "use `parallel`"),
        ],
    )
}

fn edge<'d>(item: &Value<'d>, usual_rounds: u32) -> Option<EdgeDraft<'d>> {
    let map = item.map()?;
    let end = |key| {
        let value = map.required(key)?;
        let id = NodeId::parse(&value.filled_string()?).ok()?;
        Some((id, value))
    };
    let (from, to) = (end("from"), end("to"));
    let kind = map.required("edge_type").and_then(|value| {
        let retries = EdgeKind::Retries {
            max_rounds: usual_rounds,
        };
        let kind = value.choice(
            &[
                ("depends_on", EdgeKind::DependsOn),
                ("supplies_context_to", EdgeKind::SuppliesContextTo),
                ("verifies", EdgeKind::Verifies),
                ("retries", retries),
                ("escalates_to", EdgeKind::EscalatesTo),
            ],
            &[
                ("blocks", DEPENDS_ON),
                (
                    "human_decision_gate",
                    "remove the edge; give the publisher a `deployment_gate`",
                ),
                ("verifies_user_choice", "remove the edge"),
            ],
        )?;
        Some((kind, value))
    });
    let rounds = map
        .optional("max_rounds")
        .map(|value| (rounds(&value), value));
    map.not_carried_out("condition", "remove it; an edge always holds");
    map.not_carried_out("from_output", "remove it; use `supplies_context_to`");
    map.not_carried_out("to_input", "remove it; use `supplies_context_to`");
    map.not_carried_out("recursive", "remove it; use an edge of type `retries`");
    map.finish();

    let ((from_id, from), (to_id, to), (mut kind, kind_place)) = (from?, to?, kind?);
    if let Some((rounds, place)) = rounds {
        match &mut kind {
            EdgeKind::Retries { max_rounds } => *max_rounds = rounds.unwrap_or(usual_rounds),
            _ => place.mistake("stands on an edge that repeats nothing", "remove it"),
        }
    }
    let edge = Edge {
        from: from_id,
        to: to_id,
        kind,
        line: item.line(),
    };
    Some(EdgeDraft {
        edge,
        from,
        to,
        kind: kind_place,
    })
}

fn rounds(value: &Value<'_>) -> Option<u32> {
    value
        .integer(1, MOST_ROUNDS)
        .and_then(|rounds| u32::try_from(rounds).ok())
}

fn limited<'d>(list: &Value<'d>, most: usize) -> Vec<Value<'d>> {
    let mut items = list.list();
    if items.len() > most {
        list.mistake(&format!("has more than {most} items"), "split the recipe");
        items.truncate(most);
    }
    items
}
