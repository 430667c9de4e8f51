//! Everything that is wrong with a recipe is said with its file, line, key and remedy.

use std::collections::BTreeMap;

use super::load_tests::{WORKFLOW, files, load_files, one_mistake, with_line};

#[test]
fn every_wrong_line_is_named_with_key_and_remedy() {
    let p = "prompt_ref: prompts/p.md";
    let make = |more: &str| format!("  - {{name: make, type: implementer, {p}, {more}}}");
    let table: Vec<(usize, String, &str)> = vec![
        (1, String::new(), "workflow.yaml:2  version: is missing (write `version: …`)"),
        (2, "task_class: A B".into(), "workflow.yaml:2  task_class: is not a name"),
        (2, "+dispatch_mode: partitioned".into(), "workflow.yaml:3  dispatch_mode: is `partitioned`, which is not carried out by mini-ork (use `parallel`"),
        (2, "+dispatch_mode: speculative".into(), "workflow.yaml:3  dispatch_mode: is `speculative`, which is not carried out"),
        (2, "+rollback_strategy: manual".into(), "workflow.yaml:3  rollback_strategy: is `manual`, which is not carried out by mini-ork (use `revert_branch`"),
        (2, "+recursion: {}".into(), "workflow.yaml:3  recursion: is not carried out"),
        (2, "+source_artifact: x".into(), "workflow.yaml:3  source_artifact: is not carried out"),
        (2, "+descripton: x".into(), "workflow.yaml:3  descripton: is not a known key (did you mean `description`?)"),
        (2, "+max_self_correction_iterations: 11".into(), "workflow.yaml:3  max_self_correction_iterations: is 11"),
        // Nodes.
        (4, "+  - plan".into(), "workflow.yaml:5  nodes[1]: is the text `plan`, not a map"),
        (5, make("name2: x"), "workflow.yaml:5  nodes[1].name2: is not a known key (did you mean `name`?)"),
        (5, make("requires_capabilities: []"), "workflow.yaml:5  nodes[1].requires_capabilities: is not carried out"),
        (5, make("tools: {native: []}"), "workflow.yaml:5  nodes[1].tools: is not carried out"),
        (5, make("transform: x"), "workflow.yaml:5  nodes[1].transform: is not carried out"),
        (5, make("inputs: {}"), "workflow.yaml:5  nodes[1].inputs: is not carried out by mini-ork (remove it; use an edge"),
        (5, make("mcp_servers: []"), "workflow.yaml:5  nodes[1].mcp_servers: is not carried out"),
        (5, make("skills: []"), "workflow.yaml:5  nodes[1].skills: is not carried out"),
        (5, make("agent_doc: x"), "workflow.yaml:5  nodes[1].agent_doc: is not carried out"),
        (5, make("strict_handshake: true"), "workflow.yaml:5  nodes[1].strict_handshake: is not carried out"),
        (5, make("dispatch_mode: speculative"), "workflow.yaml:5  nodes[1].dispatch_mode: is `speculative`"),
        (5, make("retries: 6"), "workflow.yaml:5  nodes[1].retries: is 6, which is out of range (write a whole number from 0 to 5"),
        (5, make("timeout_minutes: 5m"), "workflow.yaml:5  nodes[1].timeout_minutes: is the text `5m`, not a number"),
        (5, make("max_cost_usd: 0"), "workflow.yaml:5  nodes[1].max_cost_usd: is the number `0`, which is out of range"),
        (5, make("max_cost_usd: .nan"), "workflow.yaml:5  nodes[1].max_cost_usd: is the number `.nan`"),
        (5, make("model_lane: a b"), "workflow.yaml:5  nodes[1].model_lane: is not the name of a lane"),
        (5, make("gates: [scope]"), "workflow.yaml:5  nodes[1].gates[0]: is `scope`, which is not known (use one of `scope_gate`"),
        (5, make("gates: [scope_gates]"), "workflow.yaml:5  nodes[1].gates[0]: is `scope_gates`, which is not known (did you mean `scope_gate`?)"),
        (5, make("gates: [scope_gate, scope_gate]"), "workflow.yaml:5  nodes[1].gates[1]: stands in the list twice"),
        (5, make("gates: [deployment_gate]"), "workflow.yaml:5  nodes[1].gates[0]: says nothing about a node of type `implementer`"),
        (5, make("verifier_ref: 'builtin:tests'"), "workflow.yaml:5  nodes[1].verifier_ref: stands on a node of type `implementer`"),
        (5, make("outputs: [{name: a, path: ../x}]"), "workflow.yaml:5  nodes[1].outputs[0].path: is not a relative path"),
        (5, make("outputs: [{name: a, path: /x}]"), "workflow.yaml:5  nodes[1].outputs[0].path: is not a relative path"),
        (5, make("outputs: [{name: a, path: x, visibility: all}]"), "workflow.yaml:5  nodes[1].outputs[0].visibility: is `all`"),
        (5, make("outputs: [{name: a, path: x}, {name: b, path: x}]"), "workflow.yaml:5  nodes[1].outputs[1].path: `x` meets `x`, an output of `make`"),
        (5, make("outputs: [{name: a, path: x}, {name: b, path: x/y}]"), "workflow.yaml:5  nodes[1].outputs[1].path: `x/y` meets `x`"),
        (5, "  - {name: make, type: implementer}".into(), "workflow.yaml:5  nodes[1].prompt_ref: is missing"),
        (5, "  - {name: make, type: implementer, prompt_ref: prompts/q.md}".into(), "workflow.yaml:5  nodes[1].prompt_ref: names `prompts/q.md`, which is no file of the recipe (did you mean `prompts/p.md`?)"),
        (5, format!("  - {{name: plan, type: implementer, {p}}}\n  - {{name: make, type: implementer, {p}}}"), "workflow.yaml:5  nodes[1].name: is `plan` again"),
        (6, "  - {name: check, type: verifier}".into(), "workflow.yaml:6  nodes[2].verifier_ref: is missing"),
        (6, "  - {name: check, type: verifier, verifier_ref: test.sh}".into(), "workflow.yaml:6  nodes[2].verifier_ref: is no verifier"),
        (6, "  - {name: check, type: verifier, verifier_ref: verifiers/w.sh}".into(), "workflow.yaml:6  nodes[2].verifier_ref: names `verifiers/w.sh`, which is no file of the recipe"),
        (6, "  - {name: check, type: verifier, verifier_ref: verifiers/../x.sh}".into(), "workflow.yaml:6  nodes[2].verifier_ref: names `verifiers/../x.sh`, which is no file"),
        (6, "  - {name: check, type: verifier, verifier_ref: 'builtin:tests', model_lane: x}".into(), "workflow.yaml:6  nodes[2].model_lane: stands on a node of type `verifier`, which has no agent"),
        (6, format!("  - {{name: check, type: verifier, verifier_ref: 'builtin:tests', {p}}}"), "workflow.yaml:6  nodes[2].prompt_ref: stands on a node of type `verifier`"),
        (6, "  - {name: check, type: verifier, verifier_ref: 'builtin:tests', outputs: [{name: a, path: x}]}".into(), "workflow.yaml:6  nodes[2].outputs[0]: stands on a node of type `verifier`, which has no outputs"),
        (4, format!("  - {{name: plan, type: planner, {p}, outputs: [{{name: a, path: x}}]}}"), "workflow.yaml:4  nodes[0].outputs[0]: stands on a node of type `planner`"),
        (7, format!("  - {{name: judge, type: reviewer, {p}, accepts_conflicts: true}}"), "workflow.yaml:7  nodes[3].accepts_conflicts: stands on a node of type `reviewer`, which changes no files"),
        (8, "  - {name: publish, type: publisher, verifier_ref: 'builtin:tests'}".into(), "workflow.yaml:8  nodes[4].verifier_ref: stands on a node of type `publisher`"),
        (8, "  - {name: publish, type: publisher, max_cost_usd: 1}".into(), "workflow.yaml:8  nodes[4].max_cost_usd: stands on a node of type `publisher`, which spends no money"),
        (8, "+  - {name: again, type: publisher}".into(), "workflow.yaml:9  nodes[5]: is a second publisher beside `publish`"),
        (9, "+  - {name: undo2, type: rollback}".into(), "workflow.yaml:10  nodes[6]: `undo2` is a rollback that nothing leads to"),
        (4, format!("  - {{name: plan, type: planer, {p}}}"), "workflow.yaml:4  nodes[0].type: is `planer`, which is not known (did you mean `planner`?)"),
        (4, format!("  - {{name: plan, type: reflector, {p}}}"), "workflow.yaml:4  nodes[0].type: is `reflector`, which is not carried out by mini-ork (remove the node"),
        (4, format!("  - {{name: Plan, type: planner, {p}}}\n  - {{name: plan, type: planner, {p}}}"), "workflow.yaml:4  nodes[0].name: is not a name"),
        // Edges.
        (11, "  - {from: plam, to: make, edge_type: depends_on}".into(), "workflow.yaml:11  edges[0].from: names the node `plam`, which does not exist (did you mean `plan`?)"),
        (11, "  - {from: plan, to: nobody, edge_type: depends_on}".into(), "workflow.yaml:11  edges[0].to: names the node `nobody`, which does not exist (known: "),
        (11, "  - {from: plan, edge_type: depends_on}".into(), "workflow.yaml:11  edges[0].to: is missing"),
        (11, "  - {from: plan, to: make, edge_type: blocks}".into(), "workflow.yaml:11  edges[0].edge_type: is `blocks`, which is not carried out by mini-ork (use `depends_on`)"),
        (11, "  - {from: plan, to: make, edge_type: human_decision_gate}".into(), "workflow.yaml:11  edges[0].edge_type: is `human_decision_gate`"),
        (11, "  - {from: plan, to: make, edge_type: verifies_user_choice}".into(), "workflow.yaml:11  edges[0].edge_type: is `verifies_user_choice`"),
        (11, "  - {from: plan, to: make, edge_type: depend_on}".into(), "workflow.yaml:11  edges[0].edge_type: is `depend_on`, which is not known (did you mean `depends_on`?)"),
        (11, "  - {from: plan, to: make, edge_type: depends_on, condition: x}".into(), "workflow.yaml:11  edges[0].condition: is not carried out"),
        (11, "  - {from: plan, to: make, edge_type: depends_on, from_output: x}".into(), "workflow.yaml:11  edges[0].from_output: is not carried out"),
        (11, "  - {from: plan, to: make, edge_type: depends_on, to_input: x}".into(), "workflow.yaml:11  edges[0].to_input: is not carried out"),
        (11, "  - {from: plan, to: make, edge_type: depends_on, recursive: true}".into(), "workflow.yaml:11  edges[0].recursive: is not carried out"),
        (11, "  - {from: plan, to: make, edge_type: depends_on, max_rounds: 2}".into(), "workflow.yaml:11  edges[0].max_rounds: stands on an edge that repeats nothing"),
        (11, "  - {from: plan, to: make, edge_type: verifies}".into(), "workflow.yaml:11  edges[0].edge_type: joins two nodes of which neither judges"),
        (11, "+  - {from: plan, to: make, edge_type: supplies_context_to}".into(), "workflow.yaml:12  edges[1].edge_type: the same edge stands above"),
        (13, "+  - {from: judge, to: check, edge_type: depends_on}".into(), "workflow.yaml:14  edges[3].edge_type: the nodes check → judge → check wait for each other"),
        (13, "+  - {from: make, to: make, edge_type: depends_on}".into(), "workflow.yaml:14  edges[3].edge_type: the nodes make → make wait"),
        (14, "+  - {from: publish, to: plan2, edge_type: depends_on}".into(), "workflow.yaml:15  edges[4].to: names the node `plan2`"),
        (9, format!("+  - {{name: late, type: eval, {p}}}\nedges2: []"), "workflow.yaml:11  edges2: is not a known key (did you mean `edges`?)"),
        (15, "  - {from: judge, to: make, edge_type: retries, max_rounds: 0}".into(), "workflow.yaml:15  edges[4].max_rounds: is 0, which is out of range (write a whole number from 1 to 10"),
        (15, "  - {from: make, to: plan, edge_type: retries}".into(), "workflow.yaml:15  edges[4].from: is of type `implementer`, which finds no fault"),
        (15, "  - {from: judge, to: check, edge_type: retries}".into(), "workflow.yaml:15  edges[4].to: is of type `verifier`, which can do nothing better"),
        (15, "  - {from: check, to: judge, edge_type: retries}".into(), "workflow.yaml:15  edges[4].to: `judge` does not run before `check`"),
        (15, "+  - {from: judge, to: plan, edge_type: retries}".into(), "workflow.yaml:16  edges[5].edge_type: `judge` has such an edge to `make` already"),
        (16, "+  - {from: check, to: make, edge_type: escalates_to}".into(), "workflow.yaml:17  edges[6].to: is of type `implementer` (let `escalates_to` lead to a node of type `rollback`)"),
        (16, "+  - {from: make, to: undo, edge_type: depends_on}".into(), "workflow.yaml:17  edges[6].to: is a rollback, which runs only when something failed"),
        (16, "+  - {from: publish, to: check, edge_type: depends_on}".into(), "workflow.yaml:17  edges[6]"),
    ];
    for (line, text, expected) in table {
        // The line numbers of the table are those of the whole, so an emptied line stays.
        let result = load_files(files(&with_line(line, &text), &[]));
        if text.contains("from: publish, to: check") {
            // Both that nothing follows a publisher and that this closes a loop.
            let error = result.unwrap_err().to_string();
            assert!(
                error.contains("is the publisher, after which nothing runs"),
                "{error}"
            );
            assert!(error.contains("check → judge → publish → check"), "{error}");
            continue;
        }
        one_mistake(result, expected);
    }
}

#[test]
fn the_other_files_are_checked_as_well() {
    let workflow = WORKFLOW.join("\n");
    for (file, text, expected) in [
        (
            "task_class.yaml",
            "name: other",
            "task_class.yaml:1  name: is `other`, while `task_class` of workflow.yaml is `demo`",
        ),
        (
            "task_class.yaml",
            "name: demo\nmax_iters: 3",
            "task_class.yaml:2  max_iters: is not carried out",
        ),
        (
            "task_class.yaml",
            "name: demo\nrisk_class: hihg",
            "task_class.yaml:2  risk_class: is `hihg`, which is not known (did you mean `high`?)",
        ),
        (
            "task_class.yaml",
            "name: demo\nmatches:\n  regex: [x]",
            "task_class.yaml:3  matches.regex: is not carried out",
        ),
        (
            "task_class.yaml",
            "name: demo\nmatches:\n  path_globs: ['a[']",
            "task_class.yaml:3  matches.path_globs[0]: is not a glob",
        ),
        (
            "task_class.yaml",
            "name: demo\nmatches:\n  keywords: ['***']",
            "task_class.yaml:3  matches.keywords[0]: has no letter or digit",
        ),
        (
            "task_class.yaml",
            &format!("name: demo\nmatches:\n  keywords: [{}]", "x".repeat(101)),
            "task_class.yaml:3  matches.keywords[0]: is longer than 100 bytes",
        ),
        (
            "task_class.yaml",
            &format!("name: demo\nmatches:\n  path_globs: [{}]", "x,".repeat(101)),
            "task_class.yaml:3  matches.path_globs: has more than 100 items",
        ),
        (
            "task_class.yaml",
            "name: demo\nbudget_cap_usd: -1",
            "task_class.yaml:2  budget_cap_usd: is the number `-1`",
        ),
        (
            "task_class.yaml",
            "name: demo\nrequires: [scop]",
            "task_class.yaml:2  requires[0]: is `scop`, which is not known (did you mean `scope`?)",
        ),
        (
            "task_class.yaml",
            "name: demo\nrequires: [scope, scope]",
            "task_class.yaml:2  requires[1]: stands in the list twice",
        ),
        (
            "task_class.yaml",
            "name: demo\ndefault_workflow: x.yaml",
            "task_class.yaml:2  default_workflow: names another file",
        ),
        (
            "task_class.yaml",
            "name: demo\nartifact_contract_ref: x.yaml",
            "task_class.yaml:2  artifact_contract_ref: names another file",
        ),
        (
            "task_class.yaml",
            "description: x",
            "task_class.yaml:1  name: is missing",
        ),
        (
            "artifact_contract.yaml",
            "task_class: other\nexpected_artifact: patch",
            "artifact_contract.yaml:1  task_class: is `other`",
        ),
        (
            "artifact_contract.yaml",
            "expected_artifact: binary",
            "artifact_contract.yaml:1  expected_artifact: is `binary`",
        ),
        (
            "artifact_contract.yaml",
            "expected_artifact: report",
            "artifact_contract.yaml:1  expected_artifact: is `report`, but a node of the workflow changes files",
        ),
        (
            "artifact_contract.yaml",
            "expected_artifact: patch\nsuccess_verifiers:\n- chek",
            "artifact_contract.yaml:3  success_verifiers[0]: `chek` is no verifier of the workflow (did you mean `check`?)",
        ),
        (
            "artifact_contract.yaml",
            "expected_artifact: patch\nsuccess_verifiers: [make]",
            "artifact_contract.yaml:2  success_verifiers[0]: `make` is no verifier",
        ),
        (
            "artifact_contract.yaml",
            "expected_artifact: patch\nfailure_policy: escalate",
            "artifact_contract.yaml:2  failure_policy: is `escalate`, which is not carried out",
        ),
        (
            "artifact_contract.yaml",
            "- x",
            "artifact_contract.yaml:1  the file is not a map",
        ),
        (
            "prompts/p.md",
            "one\n{{ kickof }}",
            "prompts/p.md:2  kickof: is no variable of a prompt (did you mean `kickoff`?)",
        ),
        (
            "prompts/p.md",
            "one\n\n{{ ",
            "prompts/p.md:3  is not a template: ",
        ),
        ("prompts/p.md", " \n", "prompts/p.md:1  the prompt is blank"),
    ] {
        one_mistake(load_files(files(&workflow, &[(file, text)])), expected);
    }
    let mut binary = files(&workflow, &[]);
    binary.insert("prompts/p.md".to_owned(), vec![0xff]);
    one_mistake(load_files(binary), "prompts/p.md:1  the text is not UTF-8");
    one_mistake(
        load_files(BTreeMap::new()),
        "workflow.yaml:1  the file is missing",
    );
    let reader = "version: 1\ntask_class: demo\nnodes:\n- {name: a, type: researcher, prompt_ref: prompts/p.md}\nedges: []\n";
    for (kind, expected) in [
        (
            "patch",
            "artifact_contract.yaml:1  expected_artifact: is `patch`, but no node",
        ),
        (
            "report",
            "artifact_contract.yaml:1  expected_artifact: is `report`, but no node of the workflow has outputs",
        ),
    ] {
        let contract = format!("expected_artifact: {kind}");
        one_mistake(
            load_files(files(reader, &[("artifact_contract.yaml", &contract)])),
            expected,
        );
    }
}

#[test]
fn mistakes_of_all_files_are_shown_at_once_in_order() {
    let broken = with_line(11, "  - {from: plam, to: make, edge_type: depends_on}")
        .replace("version", "versoin");
    let others = [
        ("task_class.yaml", "name: demo\nrisk: low"),
        ("prompts/p.md", "{{ x }}"),
    ];
    let error = load_files(files(&broken, &others)).unwrap_err();
    let places: Vec<String> = error
        .0
        .iter()
        .map(|mistake| format!("{}:{}", mistake.file, mistake.line))
        .collect();
    assert_eq!(
        places,
        [
            "demo/prompts/p.md:1",
            "demo/task_class.yaml:2",
            "demo/workflow.yaml:1",
            "demo/workflow.yaml:1",
            "demo/workflow.yaml:11"
        ]
    );
}
