//! The page that teaches recipes is held to what the reader does.

use std::collections::BTreeMap;

use super::load::load;
use super::model::{Gate, NodeKind, Origin};
use crate::lanes::{LaneConfig, Occasion, Script};
use crate::prompt::PROMPT_VARIABLES;

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recipes.md");
    fs_err::read_to_string(path).unwrap()
}

/// The code blocks of the page that say `file=NAME`.
fn blocks(page: &str) -> BTreeMap<String, Vec<u8>> {
    let mut blocks = BTreeMap::new();
    let mut open: Option<(String, String)> = None;
    for line in page.lines() {
        if let Some((name, mut text)) = open.take() {
            if line == "```" {
                blocks.insert(name, text.into_bytes());
            } else {
                text.push_str(line);
                text.push('\n');
                open = Some((name, text));
            }
        } else if let Some((_, name)) = line
            .split_once(" file=")
            .filter(|_| line.starts_with("```"))
        {
            open = Some((name.to_owned(), String::new()));
        }
    }
    blocks
}

#[test]
fn the_worked_example_loads() {
    let blocks = blocks(&page());
    let of_recipe = ["workflow.yaml", "prompts/edit.md", "verifiers/todo_gone.sh"];
    let files = of_recipe.map(|name| (name.to_owned(), blocks[name].clone()));
    let recipe = load("tidy", Origin::Bundled, "docs", files.into(), Vec::new());
    let recipe = recipe.unwrap_or_else(|mistakes| panic!("{mistakes}"));
    assert_eq!((recipe.nodes.len(), recipe.edges.len()), (4, 5));
}

#[test]
fn the_example_lanes_and_script_load() {
    let blocks = blocks(&page());
    let home = tempfile::tempdir().unwrap();
    fs_err::create_dir(home.path().join("config")).unwrap();
    for name in ["providers.yaml", "agents.yaml"] {
        fs_err::write(home.path().join("config").join(name), &blocks[name]).unwrap();
    }
    let config = LaneConfig::load(home.path(), None).unwrap_or_else(|error| panic!("{error}"));
    let lane = |role| {
        config
            .resolve("n", role, &BTreeMap::new())
            .unwrap()
            .remove(0)
            .name
            .clone()
    };
    assert_eq!(
        [lane("worker"), lane("judge"), lane("house")],
        ["rehearsal", "careful", "house"]
    );
    let script = Script::parse("rehearsal.yaml", &blocks["rehearsal.yaml"]);
    let script = script.unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let at = |round| Occasion {
        node: "edit",
        role: "worker",
        kind: "implementer",
        round,
    };
    assert_eq!(script.select(at(1)).unwrap().step.stdout, "A first try.");
    assert_eq!(script.select(at(2)).unwrap().step.delete, ["src/old.rs"]);
}

#[test]
fn every_type_gate_and_variable_is_described() {
    let page = page();
    let kinds = NodeKind::ALL.map(|(name, _)| name);
    let gates = Gate::ALL.map(|(name, _)| name);
    let recipes = super::bundled::names();
    for name in kinds
        .into_iter()
        .chain(gates)
        .chain(PROMPT_VARIABLES.iter().copied())
        .chain(recipes)
    {
        assert!(
            page.contains(&format!("`{name}`")),
            "docs/recipes.md does not describe `{name}`"
        );
    }
}
