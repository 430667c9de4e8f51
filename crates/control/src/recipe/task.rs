//! Reads `task_class.yaml` and `artifact_contract.yaml`.

use globset::GlobBuilder;

use super::classify;
use super::model::{ExpectedArtifact, Gate, Risk, TaskClass};
use super::node;
use crate::kickoff::Requirement;
use crate::yaml::{Document, Value};

const MOST_DOLLARS: f64 = 1_000_000.0;
const MOST_WORDS: usize = 100;
const LONGEST_WORD: usize = 100;

/// `task_class.yaml`, with what is compared with other files.
pub(super) struct TaskDraft<'d> {
    pub(super) task: TaskClass,
    pub(super) name: Option<Value<'d>>,
    pub(super) default_gates: Vec<Gate>,
}

/// `artifact_contract.yaml`, with what is compared with other files.
pub(super) struct ContractDraft<'d> {
    pub(super) task_class: Option<(String, Value<'d>)>,
    pub(super) expected: Option<(ExpectedArtifact, Value<'d>)>,
    /// None when the file does not say.
    pub(super) success_verifiers: Option<Vec<(String, Value<'d>)>>,
    pub(super) rollback_policy: String,
}

/// Reads `task_class.yaml`.
pub(super) fn read_task(document: &Document) -> TaskDraft<'_> {
    let root = document.root();
    let name = root
        .required("name")
        .and_then(|value| Some((node::name(&value)?, value)));
    let description = root
        .optional("description")
        .and_then(|value| value.string());
    let risk = root.optional("risk_class").and_then(|value| {
        value.choice(
            &[
                ("low", Risk::Low),
                ("medium", Risk::Medium),
                ("high", Risk::High),
            ],
            &[],
        )
    });
    let (keywords, path_globs) = root
        .optional("matches")
        .as_ref()
        .map(matches)
        .unwrap_or_default();
    let default_gates = root.optional("default_gates");
    let default_gates = default_gates.as_ref().map(node::gates).unwrap_or_default();
    let budget_cap_usd = root
        .optional("budget_cap_usd")
        .and_then(|value| value.positive(MOST_DOLLARS));
    if let Some(value) = root.optional("artifact_contract_ref") {
        same_file(&value, "artifact_contract.yaml");
    }
    if let Some(value) = root.optional("default_workflow") {
        same_file(&value, "workflow.yaml");
    }
    let requires = root
        .optional("requires")
        .as_ref()
        .map(requirements)
        .unwrap_or_default();
    root.not_carried_out(
        "max_iters",
        "remove it; use `max_rounds` of a `retries` edge",
    );
    root.finish();
    let (task_name, name) = name.unzip();
    TaskDraft {
        task: TaskClass {
            name: task_name.unwrap_or_default(),
            description: description.unwrap_or_default(),
            risk: risk.unwrap_or(Risk::Medium),
            keywords,
            path_globs,
            budget_cap_usd,
            requires,
        },
        name,
        default_gates: default_gates.into_iter().map(|(gate, _)| gate).collect(),
    }
}

/// Reads `artifact_contract.yaml`.
pub(super) fn read_contract(document: &Document) -> ContractDraft<'_> {
    let root = document.root();
    let task_class = root
        .optional("task_class")
        .and_then(|value| Some((node::name(&value)?, value)));
    let expected = root.required("expected_artifact").and_then(|value| {
        let options = [
            ("patch", ExpectedArtifact::Patch),
            ("report", ExpectedArtifact::Report),
        ];
        Some((value.choice(&options, &[])?, value))
    });
    let success_verifiers = root.optional("success_verifiers").map(|list| {
        list.list()
            .into_iter()
            .filter_map(|item| Some((item.filled_string()?, item)))
            .collect()
    });
    if let Some(value) = root.optional("failure_policy") {
        let other = "use `request_changes`: a `retries` edge says what is repeated";
        let refused = ["fail", "reject", "block", "escalate", "rollback"].map(|name| (name, other));
        let _: Option<()> = value.choice(&[("request_changes", ())], &refused);
    }
    let rollback_policy = root
        .optional("rollback_policy")
        .and_then(|value| value.string());
    root.finish();
    ContractDraft {
        task_class,
        expected,
        success_verifiers,
        rollback_policy: rollback_policy.unwrap_or_default(),
    }
}

fn matches(value: &Value<'_>) -> (Vec<String>, Vec<String>) {
    let Some(map) = value.map() else {
        return Default::default();
    };
    let keywords = words_of(map.optional("keywords"), |item, keyword| {
        let has_word = !classify::words(keyword).is_empty();
        if !has_word {
            item.mistake("has no letter or digit", "write a word");
        }
        has_word
    });
    let path_globs = words_of(map.optional("path_globs"), |item, glob| {
        let is_glob = GlobBuilder::new(glob).build().is_ok();
        if !is_glob {
            item.mistake("is not a glob", "write one such as `docs/**/*.md`");
        }
        is_glob
    });
    map.not_carried_out("regex", "remove it; use `keywords` and `path_globs`");
    map.finish();
    (keywords, path_globs)
}

/// A list of short texts that `fits`. Its bounds keep the search for a recipe quick and the globs
/// far below the size that the matcher cannot compile.
fn words_of(list: Option<Value<'_>>, fits: impl Fn(&Value<'_>, &str) -> bool) -> Vec<String> {
    let Some(list) = list else { return Vec::new() };
    let mut items = list.list();
    if items.len() > MOST_WORDS {
        list.mistake("has more than 100 items", "keep those that tell most");
        items.truncate(MOST_WORDS);
    }
    let words = items.iter().filter_map(|item| {
        let word = item.filled_string()?;
        if word.len() > LONGEST_WORD {
            item.mistake("is longer than 100 bytes", "make it shorter");
            return None;
        }
        fits(item, &word).then_some(word)
    });
    words.collect()
}

fn requirements(list: &Value<'_>) -> Vec<Requirement> {
    let options = [
        ("problem", Requirement::Problem),
        ("definition_of_done", Requirement::DefinitionOfDone),
        ("scope", Requirement::Scope),
        ("verification", Requirement::Verification),
    ];
    let mut requirements = Vec::new();
    for item in list.list() {
        match item.choice(&options, &[]) {
            Some(requirement) if requirements.contains(&requirement) => {
                item.mistake("stands in the list twice", "remove it");
            }
            Some(requirement) => requirements.push(requirement),
            None => {}
        }
    }
    requirements
}

/// A reference to a file of the recipe whose name is fixed.
fn same_file(value: &Value<'_>, name: &str) {
    if value.filled_string().is_some_and(|text| text != name) {
        value.mistake(
            "names another file than the one that is read",
            &format!("write `{name}`, or remove it"),
        );
    }
}
