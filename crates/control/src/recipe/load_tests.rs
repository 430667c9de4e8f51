use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::load::load;
use super::model::{
    EdgeKind, ExpectedArtifact, Gate, NodeKind, Origin, Recipe, Risk, VerifierSource, Visibility,
};
use crate::kickoff::Requirement;
use crate::yaml::Mistakes;

/// A valid workflow; tests replace one line of it.
pub(super) const WORKFLOW: [&str; 16] = [
    "version: 1",
    "task_class: demo",
    "nodes:",
    "  - {name: plan, type: planner, prompt_ref: prompts/p.md}",
    "  - {name: make, type: implementer, prompt_ref: prompts/p.md}",
    "  - {name: check, type: verifier, verifier_ref: 'builtin:tests'}",
    "  - {name: judge, type: reviewer, prompt_ref: prompts/p.md}",
    "  - {name: publish, type: publisher}",
    "  - {name: undo, type: rollback}",
    "edges:",
    "  - {from: plan, to: make, edge_type: supplies_context_to}",
    "  - {from: make, to: check, edge_type: verifies}",
    "  - {from: check, to: judge, edge_type: depends_on}",
    "  - {from: judge, to: publish, edge_type: depends_on}",
    "  - {from: judge, to: make, edge_type: retries, max_rounds: 3}",
    "  - {from: judge, to: undo, edge_type: escalates_to}",
];

pub(super) fn files(workflow: &str, others: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    let usual = [
        ("workflow.yaml", workflow),
        ("prompts/p.md", "{{ kickoff }}"),
        ("verifiers/v.sh", ""),
    ];
    let all = usual.iter().chain(others);
    all.map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
        .collect()
}

pub(super) fn load_files(files: BTreeMap<String, Vec<u8>>) -> Result<Recipe, Mistakes> {
    load("demo", Origin::Bundled, "demo", files, Vec::new())
}

/// The workflow with line `number` (from 1) replaced; `+` adds lines below it.
pub(super) fn with_line(number: usize, text: &str) -> String {
    let mut lines: Vec<String> = WORKFLOW.iter().map(|line| (*line).to_owned()).collect();
    lines[number - 1] = match text.strip_prefix('+') {
        Some(added) => format!("{}\n{added}", lines[number - 1]),
        None => text.to_owned(),
    };
    lines.join("\n")
}

#[track_caller]
pub(super) fn one_mistake(result: Result<Recipe, Mistakes>, expected: &str) {
    let error = result.unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.starts_with(&format!("demo/{expected}")),
        "{error}\nexpected {expected}"
    );
    assert!(error.ends_with(')'), "no remedy: {error}");
}

#[test]
fn a_whole_recipe_is_read() {
    let workflow = "\
version: 0.10
task_class: demo
description: Does it.
dispatch_mode: serial
rollback_strategy: revert_branch
max_self_correction_iterations: 4
nodes:
  - name: make-it_2
    type: implementer
    dispatch_mode: serial
    model_lane: Worker.v2
    prompt_ref: prompts/p.md
    verifier_ref: ~
    gates: [scope_gate]
    timeout_minutes: 1.5
    max_cost_usd: 2
    retries: 0
    outputs:
      - {name: notes, kind: report, path: a/notes.md, visibility: system_only}
      - {name: log, path: log.txt}
    accepts_conflicts: true
  - {name: check, type: verifier, verifier_ref: verifiers/v.sh, prompt_ref: null}
  - {name: judge, type: reviewer, prompt_ref: prompts/p.md}
  - {name: publish, type: publisher}
edges:
  - {from: make-it_2, to: check, edge_type: verifies}
  - {from: check, to: make-it_2, edge_type: retries}
";
    let task = "\
name: demo
description: A task.
risk_class: high
matches: {keywords: [Bug, two words], path_globs: ['src/**']}
default_gates: [budget_gate, deployment_gate]
budget_cap_usd: 1.5
artifact_contract_ref: artifact_contract.yaml
default_workflow: workflow.yaml
requires: [problem, verification]
";
    let contract = "\
task_class: demo
expected_artifact: patch
success_verifiers: [verifiers/v.sh]
failure_policy: request_changes
rollback_policy: Revert it.
";
    let others = [
        ("task_class.yaml", task),
        ("artifact_contract.yaml", contract),
    ];
    let recipe = load_files(files(workflow, &others)).unwrap();
    assert_eq!(
        (recipe.name.as_str(), recipe.version.as_str()),
        ("demo", "0.10")
    );
    assert_eq!(
        (recipe.description.as_str(), recipe.serial),
        ("Does it.", true)
    );
    assert_eq!(recipe.files.len(), 5);
    let node = &recipe.nodes[0];
    assert_eq!(
        (node.id.as_str(), node.kind, node.line),
        ("make-it_2", NodeKind::Implementer, 8)
    );
    assert_eq!(
        (node.role(), node.serial, node.accepts_conflicts),
        ("Worker.v2", true, true)
    );
    assert_eq!(node.gates, [Gate::Scope]);
    assert_eq!(
        (node.timeout, node.retries),
        (Some(Duration::from_secs(90)), 0)
    );
    assert_eq!(node.max_cost_usd, Some(2.0));
    assert_eq!(node.outputs[0].visibility, Visibility::SystemOnly);
    assert_eq!(
        (node.outputs[1].kind.as_str(), node.outputs[1].path.as_str()),
        ("file", "log.txt")
    );
    assert_eq!(
        recipe.nodes[1].verifier,
        Some(VerifierSource::Script("verifiers/v.sh".into()))
    );
    assert_eq!(
        (recipe.nodes[2].role(), recipe.nodes[2].retries),
        ("reviewer", 1)
    );
    assert_eq!(recipe.nodes[1].gates, []);
    assert_eq!(recipe.nodes[2].gates, [Gate::Budget]);
    assert_eq!(recipe.nodes[3].gates, [Gate::Deployment]);
    assert_eq!(recipe.edges[1].kind, EdgeKind::Retries { max_rounds: 4 });
    assert_eq!(recipe.edges[1].line, 27);
    assert_eq!(
        (recipe.task.risk, recipe.task.budget_cap_usd),
        (Risk::High, Some(1.5))
    );
    assert_eq!(
        recipe.task.requires,
        [Requirement::Problem, Requirement::Verification]
    );
    assert_eq!(recipe.contract.expected, ExpectedArtifact::Patch);
    assert_eq!(
        recipe.contract.success_verifiers,
        [recipe.nodes[1].id.clone()]
    );
    assert_eq!(recipe.contract.rollback_policy, "Revert it.");
}

#[test]
fn without_the_optional_files_there_are_sensible_defaults() {
    let recipe = load_files(files(&WORKFLOW.join("\n"), &[])).unwrap();
    assert_eq!(
        (recipe.task.name.as_str(), recipe.task.risk),
        ("demo", Risk::Medium)
    );
    assert_eq!(recipe.contract.expected, ExpectedArtifact::Patch);
    assert_eq!(recipe.contract.success_verifiers[0].as_str(), "check");
    assert!(!recipe.serial);
    let plan = serde_json::to_string(&(&recipe.nodes, &recipe.edges)).unwrap();
    let read: (Vec<super::Node>, Vec<super::Edge>) = serde_json::from_str(&plan).unwrap();
    assert_eq!(read, (recipe.nodes, recipe.edges));
}

#[test]
fn the_digest_is_of_all_files() {
    let digest = |files| load_files(files).unwrap().digest;
    let text = WORKFLOW.join("\n");
    let one = digest(files(&text, &[]));
    assert!(one.starts_with("sha256:") && one.len() == 71, "{one}");
    assert_eq!(one, digest(files(&text, &[])));
    assert_ne!(one, digest(files(&text, &[("README.md", "")])));
    assert_ne!(
        digest(files(&text, &[("a", "bc")])),
        digest(files(&text, &[("ab", "c")]))
    );
}

#[test]
fn too_many_nodes_are_refused() {
    let nodes: String = (0..201)
        .map(|number| {
            format!("- {{name: n{number}, type: researcher, prompt_ref: prompts/p.md}}\n")
        })
        .collect();
    let workflow = format!("version: 1\ntask_class: demo\nnodes:\n{nodes}edges: []\n");
    one_mistake(
        load_files(files(&workflow, &[])),
        "workflow.yaml:3  nodes: has more than 200 items",
    );
    let empty = "version: 1\ntask_class: demo\nnodes: []\nedges: []\n";
    one_mistake(
        load_files(files(empty, &[])),
        "workflow.yaml:3  nodes: names no node",
    );
}

proptest! {
    #[test]
    fn no_mutation_makes_loading_panic_or_pass_with_an_unknown_reference(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..3u8), 1..6)
    ) {
        let mut words: Vec<String> = WORKFLOW.join("\n").split_inclusive([' ', ',', '\n']).map(str::to_owned).collect();
        for (one, other, kind) in edits {
            let (one, other) = (one.index(words.len()), other.index(words.len()));
            match kind {
                0 => words.swap(one, other),
                1 => { let word = words[other].clone(); words.insert(one, word); }
                _ => { words.remove(one); }
            }
        }
        if let Ok(recipe) = load_files(files(&words.concat(), &[])) {
            prop_assert!(super::Graph::new(&recipe.nodes, &recipe.edges).is_ok());
        }
    }
}
