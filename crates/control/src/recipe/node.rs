//! Reads one node of `workflow.yaml` and checks what follows from its type alone.

use std::collections::BTreeSet;

use mini_ork_protocol::NodeId;

use super::model::{Gate, Node, NodeKind, Output, VerifierSource, Visibility};
use super::workflow::dispatch_mode;
use crate::yaml::Value;

const LONGEST_NAME: usize = 64;
const MOST_DOLLARS: f64 = 1_000_000.0;
const MOST_RETRIES: i64 = 5;
const USUAL_RETRIES: u32 = 1;

/// Keys of the format that mini-ork does not carry out, each with what to do instead.
const NOT_CARRIED_OUT: [(&str, &str); 8] = [
    (
        "requires_capabilities",
        "remove it; name a lane that has them in `model_lane`",
    ),
    (
        "tools",
        "remove it; the lane decides which tools its agent has",
    ),
    (
        "transform",
        "remove it; say in the prompt what to do, or use a verifier script",
    ),
    (
        "inputs",
        "remove it; use an edge of type `supplies_context_to`",
    ),
    (
        "mcp_servers",
        "remove it; the lane decides which servers its agent has",
    ),
    (
        "skills",
        "remove it; put what the agent must know into the prompt",
    ),
    (
        "agent_doc",
        "remove it; put what the agent must know into the prompt",
    ),
    ("strict_handshake", "remove it"),
];

/// A node whose name and type could be read, with the places that later checks point at.
pub(super) struct NodeDraft<'d> {
    pub(super) node: Node,
    pub(super) place: Value<'d>,
    pub(super) prompt: Option<Value<'d>>,
    pub(super) verifier: Option<Value<'d>>,
    /// The `path` of each of its outputs.
    pub(super) outputs: Vec<Value<'d>>,
    /// It names its gates itself, so default gates do not apply.
    pub(super) has_gates: bool,
}

/// Reads the node and puts its name to `names`; mistakes are kept in the document. None when it
/// has no usable name or type, or the name of an earlier node.
pub(super) fn read<'d>(item: Value<'d>, names: &mut BTreeSet<String>) -> Option<NodeDraft<'d>> {
    let map = item.map()?;
    let name = map
        .required("name")
        .and_then(|value| Some((name(&value)?, value)));
    let kind = map.required("type").and_then(|value| {
        let reflector = ("reflector", "remove the node; every run is recorded");
        value.choice(&NodeKind::ALL, &[reflector])
    });
    let serial = map
        .optional("dispatch_mode")
        .and_then(|value| dispatch_mode(&value));
    let lane = map.optional("model_lane");
    let lane_name = lane
        .as_ref()
        .and_then(|value| crate::lanes::lane_name(value));
    let prompt = map.optional("prompt_ref");
    let verifier = map.optional("verifier_ref");
    let gate_list = map.optional("gates");
    let gates = gate_list.as_ref().map(gates).unwrap_or_default();
    let timeout = map
        .optional("timeout_minutes")
        .and_then(|value| value.minutes());
    let cost = map.optional("max_cost_usd");
    let max_cost_usd = cost.as_ref().and_then(|value| value.positive(MOST_DOLLARS));
    let retries = map
        .optional("retries")
        .and_then(|value| value.integer(0, MOST_RETRIES));
    let output_list = map
        .optional("outputs")
        .map(|value| value.list())
        .unwrap_or_default();
    let outputs: Vec<(Output, Value<'d>)> = output_list.iter().filter_map(output).collect();
    let joins = map.optional("accepts_conflicts");
    let accepts_conflicts = joins.as_ref().and_then(Value::boolean).unwrap_or(false);
    for (key, remedy) in NOT_CARRIED_OUT {
        map.not_carried_out(key, remedy);
    }

    if let Some((name, place)) = &name
        && !names.insert(name.clone())
    {
        place.mistake(
            &format!("is `{name}` again"),
            "give each node a name of its own",
        );
        map.finish();
        return None;
    }
    let Some(kind) = kind else {
        map.finish();
        return None;
    };

    let type_name = kind.name();
    let prompt_ref = if kind.uses_lane() {
        refuse(verifier.as_ref(), type_name, "runs no program that decides");
        map.required("prompt_ref")
            .and_then(|value| value.filled_string())
    } else {
        refuse(lane.as_ref(), type_name, "has no agent");
        refuse(prompt.as_ref(), type_name, "has no agent");
        refuse(cost.as_ref(), type_name, "spends no money");
        None
    };
    let source = if kind == NodeKind::Verifier {
        map.required("verifier_ref")
            .and_then(|value| verifier_source(&value))
    } else {
        if !kind.uses_lane() {
            refuse(verifier.as_ref(), type_name, "runs no program that decides");
        }
        None
    };
    if matches!(
        kind,
        NodeKind::Planner | NodeKind::Rollback | NodeKind::Verifier | NodeKind::Publisher
    ) {
        refuse(output_list.first(), type_name, "has no outputs");
    }
    if accepts_conflicts && !kind.writes() {
        refuse(joins.as_ref(), type_name, "changes no files");
    }
    for (gate, place) in &gates {
        if !gate.suits(kind) {
            place.mistake(
                &format!("says nothing about a node of type `{type_name}`"),
                "remove it; `scope_gate` is for nodes that change files, `budget_gate` for nodes with a lane, `deployment_gate` for the publisher",
            );
        }
    }
    map.finish();

    let id = NodeId::parse(&name?.0).ok()?;
    let (outputs, output_places) = outputs.into_iter().unzip();
    let node = Node {
        id,
        kind,
        lane: lane_name,
        prompt: prompt_ref,
        verifier: source,
        gates: gates.into_iter().map(|(gate, _)| gate).collect(),
        timeout,
        max_cost_usd,
        retries: retries
            .and_then(|count| u32::try_from(count).ok())
            .unwrap_or(USUAL_RETRIES),
        outputs,
        serial: serial.unwrap_or(false),
        accepts_conflicts,
        line: item.line(),
    };
    let has_gates = gate_list.is_some();
    Some(NodeDraft {
        node,
        place: item,
        prompt,
        verifier,
        outputs: output_places,
        has_gates,
    })
}

/// A word that names a node or a task class: lower-case letters, digits, `_` and `-`.
pub(super) fn name(value: &Value<'_>) -> Option<String> {
    let name = value.filled_string()?;
    let well_formed = name.len() <= LONGEST_NAME
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
    if !well_formed {
        value.mistake(
            "is not a name",
            "begin with a lower-case letter, then use lower-case letters, digits, `_` and `-`, at most 64",
        );
        return None;
    }
    Some(name)
}

/// A list of gates, each once.
pub(super) fn gates<'d>(list: &Value<'d>) -> Vec<(Gate, Value<'d>)> {
    let mut gates: Vec<(Gate, Value<'d>)> = Vec::new();
    for item in list.list() {
        let Some(gate) = item.choice(&Gate::ALL, &[]) else {
            continue;
        };
        if gates.iter().any(|(other, _)| *other == gate) {
            item.mistake("stands in the list twice", "remove it");
        } else {
            gates.push((gate, item));
        }
    }
    gates
}

fn verifier_source(value: &Value<'_>) -> Option<VerifierSource> {
    let text = value.filled_string()?;
    match text.as_str() {
        "builtin:tests" => return Some(VerifierSource::Tests),
        "builtin:typecheck" => return Some(VerifierSource::Typecheck),
        _ => {}
    }
    let is_script =
        text.starts_with("verifiers/") && (text.ends_with(".sh") || text.ends_with(".py"));
    if is_script {
        return Some(VerifierSource::Script(text));
    }
    value.mistake(
        "is no verifier",
        "use `builtin:tests`, `builtin:typecheck`, or a script `verifiers/….sh` or `verifiers/….py` of the recipe",
    );
    None
}

fn output<'d>(item: &Value<'d>) -> Option<(Output, Value<'d>)> {
    let map = item.map()?;
    let name = map.required("name").and_then(|value| name(&value));
    let kind = map
        .optional("kind")
        .map_or(Some("file".to_owned()), |value| self::name(&value));
    let path = map
        .required("path")
        .and_then(|value| Some((output_path(&value)?, value)));
    let visibility = match map.optional("visibility") {
        None => Some(Visibility::Consumer),
        Some(value) => value.choice(
            &[
                ("consumer", Visibility::Consumer),
                ("system_only", Visibility::SystemOnly),
            ],
            &[],
        ),
    };
    map.finish();
    let (path, place) = path?;
    Some((
        Output {
            name: name?,
            kind: kind?,
            path,
            visibility: visibility?,
        },
        place,
    ))
}

fn output_path(value: &Value<'_>) -> Option<String> {
    let path = value.filled_string()?;
    let is_plain = path
        .split('/')
        .all(|part| !part.is_empty() && part != "." && part != "..")
        && !path.contains(['\\', '\0'])
        && path.len() <= 255;
    if !is_plain {
        value.mistake(
            "is not a relative path",
            "name a file in the output directory, without `..`, such as `report.md`",
        );
        return None;
    }
    Some(path)
}

fn refuse(value: Option<&Value<'_>>, type_name: &str, why: &str) {
    if let Some(value) = value {
        value.mistake(
            &format!("stands on a node of type `{type_name}`, which {why}"),
            "remove it, or change the type of the node",
        );
    }
}
