use std::collections::BTreeMap;
use std::fmt::Write as _;

use mini_ork_protocol::NodeId;
use sha2::{Digest, Sha256};

use super::check;
use super::model::{ArtifactContract, ExpectedArtifact, NodeKind, Origin, Recipe, Risk, TaskClass};
use super::task::{self, ContractDraft, TaskDraft};
use super::workflow::{self, Workflow};
use crate::prompt::{self, PROMPT_VARIABLES};
use crate::yaml::{Document, Mistake, Mistakes, Value, suggest_or_list};

/// Reads a recipe from its files. `shown` is its directory as a person knows it; `mistakes` are
/// those that were found in reading the files. Gives all mistakes of all files at once.
pub(super) fn load(
    name: &str,
    origin: Origin,
    shown: &str,
    files: BTreeMap<String, Vec<u8>>,
    mut mistakes: Vec<Mistake>,
) -> Result<Recipe, Mistakes> {
    let loading = Loading {
        shown,
        files: &files,
    };
    if !files.contains_key(WORKFLOW) {
        let remedy = "every recipe has one; `docs/recipes.md` shows how to write it";
        mistakes.push(Mistake::new(
            &loading.path(WORKFLOW),
            1,
            "",
            "the file is missing",
            remedy,
        ));
    }
    let mut document = |file| {
        loading
            .document(file)
            .map_err(|Mistakes(found)| mistakes.extend(found))
            .ok()
            .flatten()
    };
    let (workflow_document, task_document, contract_document) =
        (document(WORKFLOW), document(TASK_CLASS), document(CONTRACT));

    let workflow = workflow_document.as_ref().map(workflow::read);
    let task = task_document.as_ref().map(task::read_task);
    let contract = contract_document.as_ref().map(task::read_contract);
    if let Some(workflow) = &workflow {
        check::workflow(workflow, &files);
        loading.templates(workflow, &mut mistakes);
        same_task_class(workflow, task.as_ref(), contract.as_ref());
    }
    let recipe = workflow.map(|workflow| {
        let contract = deliver(&workflow, contract);
        assemble(name, origin, workflow, task, contract)
    });

    let documents = [workflow_document, task_document, contract_document];
    mistakes.extend(
        documents
            .into_iter()
            .flatten()
            .flat_map(Document::into_mistakes),
    );
    Mistakes::check(mistakes)?;
    let mut recipe = recipe.ok_or_else(|| Mistakes(Vec::new()))?;
    recipe.digest = digest(&files);
    recipe.files = files;
    Ok(recipe)
}

const WORKFLOW: &str = "workflow.yaml";
const TASK_CLASS: &str = "task_class.yaml";
const CONTRACT: &str = "artifact_contract.yaml";

struct Loading<'f> {
    shown: &'f str,
    files: &'f BTreeMap<String, Vec<u8>>,
}

impl Loading<'_> {
    fn path(&self, file: &str) -> String {
        format!("{}/{file}", self.shown)
    }

    fn document(&self, file: &str) -> Result<Option<Document>, Mistakes> {
        let bytes = self.files.get(file);
        bytes
            .map(|bytes| Document::parse(&self.path(file), bytes))
            .transpose()
    }

    /// Prompts ask only for what a run provides: a misspelt variable would otherwise be found when
    /// its node starts, after the nodes before it have cost money.
    fn templates(&self, workflow: &Workflow<'_>, mistakes: &mut Vec<Mistake>) {
        let mut prompts: Vec<&str> = workflow
            .nodes
            .iter()
            .filter_map(|draft| draft.node.prompt.as_deref())
            .collect();
        prompts.sort_unstable();
        prompts.dedup();
        for prompt in prompts {
            let Some(bytes) = self.files.get(prompt) else {
                continue;
            };
            let mut report = |line, key: &str, problem: &str, remedy: &str| {
                mistakes.push(Mistake::new(&self.path(prompt), line, key, problem, remedy));
            };
            let Ok(text) = std::str::from_utf8(bytes) else {
                report(1, "", "the text is not UTF-8", "save the file as UTF-8");
                continue;
            };
            if text.trim().is_empty() {
                report(1, "", "the prompt is blank", "say what the node is to do");
            }
            match prompt::undeclared(prompt, text) {
                Ok(unknown) => {
                    for found in unknown {
                        let known = PROMPT_VARIABLES.iter().copied();
                        let remedy = suggest_or_list(&found.name, known);
                        report(
                            found.line,
                            &found.name,
                            "is no variable of a prompt",
                            &remedy,
                        );
                    }
                }
                Err(error) => {
                    let problem = format!("is not a template: {}", error.reason());
                    let remedy = "correct what stands between the braces";
                    report(error.line(), "", &problem, remedy);
                }
            }
        }
    }
}

fn same_task_class(
    workflow: &Workflow<'_>,
    task: Option<&TaskDraft<'_>>,
    contract: Option<&ContractDraft<'_>>,
) {
    let Some((expected, _)) = &workflow.task_class else {
        return;
    };
    let differ = |name: &str, place: &Value<'_>| {
        if name != expected {
            place.mistake(
                &format!("is `{name}`, while `task_class` of {WORKFLOW} is `{expected}`"),
                "use one name in both",
            );
        }
    };
    if let Some(task) = task
        && let Some(place) = &task.name
    {
        differ(&task.task.name, place);
    }
    if let Some((name, place)) = contract.and_then(|contract| contract.task_class.as_ref()) {
        differ(name, place);
    }
}

/// The contract as the file says it, or the one that the workflow suggests.
fn deliver(workflow: &Workflow<'_>, contract: Option<ContractDraft<'_>>) -> ArtifactContract {
    let nodes = || workflow.nodes.iter().map(|draft| &draft.node);
    let writes = nodes().any(|node| node.kind.writes());
    let usual = if writes {
        ExpectedArtifact::Patch
    } else {
        ExpectedArtifact::Report
    };
    let verifiers = || nodes().filter(|node| node.kind == NodeKind::Verifier);
    let every_verifier = || {
        verifiers()
            .map(|node| node.id.clone())
            .collect::<Vec<NodeId>>()
    };
    let Some(contract) = contract else {
        return ArtifactContract {
            expected: usual,
            success_verifiers: every_verifier(),
            rollback_policy: String::new(),
        };
    };
    if let Some((expected, place)) = &contract.expected
        // A node that could not be read may be the one that writes.
        && workflow.nodes.len() == workflow.names.len()
    {
        match expected {
            ExpectedArtifact::Patch if !writes => place.mistake(
                "is `patch`, but no node of the workflow changes files",
                "write `report`, or add a node of type `implementer`",
            ),
            ExpectedArtifact::Report if writes => place.mistake(
                "is `report`, but a node of the workflow changes files",
                "write `patch`, or change the type of that node to `researcher`",
            ),
            ExpectedArtifact::Report if nodes().all(|node| node.outputs.is_empty()) => place
                .mistake(
                    "is `report`, but no node of the workflow has outputs",
                    "give the node that writes it `outputs: [{name: report, path: report.md}]`",
                ),
            _ => {}
        }
    }
    let success_verifiers = match contract.success_verifiers {
        None => every_verifier(),
        Some(references) => references
            .iter()
            .filter_map(|(reference, place)| check::success_verifier(workflow, reference, place))
            .cloned()
            .collect(),
    };
    ArtifactContract {
        expected: contract.expected.map_or(usual, |(expected, _)| expected),
        success_verifiers,
        rollback_policy: contract.rollback_policy,
    }
}

fn assemble(
    name: &str,
    origin: Origin,
    workflow: Workflow<'_>,
    task: Option<TaskDraft<'_>>,
    contract: ArtifactContract,
) -> Recipe {
    let (task, default_gates) = match task {
        Some(draft) => (draft.task, draft.default_gates),
        None => {
            let name = workflow
                .task_class
                .map(|(name, _)| name)
                .unwrap_or_default();
            let task = TaskClass {
                name,
                description: String::new(),
                risk: Risk::Medium,
                keywords: Vec::new(),
                path_globs: Vec::new(),
                budget_cap_usd: None,
                requires: Vec::new(),
            };
            (task, Vec::new())
        }
    };
    let nodes = workflow.nodes.into_iter().map(|draft| {
        let mut node = draft.node;
        if !draft.has_gates {
            node.gates = default_gates
                .iter()
                .copied()
                .filter(|gate| gate.suits(node.kind))
                .collect();
        }
        node
    });
    let description = if workflow.description.is_empty() {
        task.description.clone()
    } else {
        workflow.description
    };
    Recipe {
        name: name.to_owned(),
        description: description.trim().to_owned(),
        version: workflow.version,
        task,
        contract,
        nodes: nodes.collect(),
        edges: workflow.edges.into_iter().map(|draft| draft.edge).collect(),
        origin,
        files: BTreeMap::new(),
        digest: String::new(),
        serial: workflow.serial,
    }
}

/// Lengths go in as well, so that no two sets of files give the same bytes.
fn digest(files: &BTreeMap<String, Vec<u8>>) -> String {
    let mut hasher = Sha256::new();
    for (path, bytes) in files {
        for part in [path.as_bytes(), bytes] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
    }
    let mut text = "sha256:".to_owned();
    for byte in hasher.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
