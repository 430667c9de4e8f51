use std::path::Path;
use std::process::{Command, Output};

use super::bundled;
use super::catalog::{Catalog, load_directory};
use super::model::{EdgeKind, ExpectedArtifact, Gate, NodeKind, Recipe, VerifierSource};

const RECIPES: [&str; 5] = [
    "code-fix",
    "docs",
    "parallel-fix",
    "research-synthesis",
    "review",
];

fn bundled(name: &str) -> Recipe {
    let nowhere = tempfile::tempdir().unwrap();
    Catalog::new(None, nowhere.path())
        .find(name)
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_bundled_recipe_loads_and_is_complete() {
    let mut names: Vec<&str> = bundled::names().collect();
    names.sort_unstable();
    assert_eq!(names, RECIPES);
    for name in names {
        let recipe = bundled(name);
        for file in [
            "README.md",
            "example-kickoff.md",
            "task_class.yaml",
            "artifact_contract.yaml",
        ] {
            assert!(recipe.files.contains_key(file), "{name} has no {file}");
        }
        assert!(
            !recipe.description.is_empty() && !recipe.task.keywords.is_empty(),
            "{name}"
        );
        assert!(!recipe.contract.success_verifiers.is_empty(), "{name}");
        let used: Vec<&String> = recipe
            .nodes
            .iter()
            .filter_map(|node| node.prompt.as_ref())
            .collect();
        for file in recipe
            .files
            .keys()
            .filter(|file| file.starts_with("prompts/"))
        {
            assert!(used.contains(&file), "{name}: nothing uses {file}");
        }
        let readme = String::from_utf8(recipe.files["README.md"].clone()).unwrap();
        for node in recipe.nodes.iter().filter(|node| node.kind.uses_lane()) {
            assert!(
                readme.contains(&format!("`{}`", node.role())),
                "{name}: {}",
                node.role()
            );
        }
    }
}

#[test]
fn bundled_recipes_are_the_files_of_the_source() {
    for name in RECIPES {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("recipes")
            .join(name);
        let recipe = load_directory(&directory).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            recipe.digest,
            bundled(name).digest,
            "{name}: rebuild the crate"
        );
    }
}

#[test]
fn code_fix_has_its_graph() {
    let recipe = bundled("code-fix");
    let find = |name: &str| {
        recipe
            .nodes
            .iter()
            .find(|node| node.id.as_str() == name)
            .unwrap()
    };
    assert_eq!(find("implementer").gates, [Gate::Scope, Gate::Budget]);
    // By the default gates of its task class.
    assert_eq!(find("planner").gates, [Gate::Budget]);
    assert_eq!(find("publisher").gates, [Gate::Deployment]);
    assert_eq!(find("typecheck").verifier, Some(VerifierSource::Typecheck));
    assert_eq!(find("test").verifier, Some(VerifierSource::Tests));
    assert_eq!(recipe.contract.expected, ExpectedArtifact::Patch);
    let graph = super::Graph::new(&recipe.nodes, &recipe.edges).unwrap();
    let order: Vec<&str> = graph
        .order()
        .map(mini_ork_protocol::NodeId::as_str)
        .collect();
    assert_eq!(
        order,
        [
            "planner",
            "implementer",
            "typecheck",
            "test",
            "reviewer",
            "eval",
            "publisher",
            "rollback"
        ]
    );
    assert!(!graph.comparable(&find("typecheck").id, &find("test").id));
    let retries = recipe
        .edges
        .iter()
        .filter(|edge| edge.kind == EdgeKind::Retries { max_rounds: 2 });
    assert_eq!(retries.count(), 3);
}

#[test]
fn parallel_fix_joins_what_may_conflict_and_review_writes_nothing() {
    let recipe = bundled("parallel-fix");
    let joins: Vec<&str> = recipe
        .nodes
        .iter()
        .filter(|node| node.accepts_conflicts)
        .map(|node| node.id.as_str())
        .collect();
    assert_eq!(joins, ["merge"]);
    for name in ["review", "research-synthesis"] {
        let recipe = bundled(name);
        assert_eq!(recipe.contract.expected, ExpectedArtifact::Report);
        assert!(recipe.nodes.iter().all(|node| !node.kind.writes()));
        assert!(
            recipe
                .nodes
                .iter()
                .any(|node| node.kind == NodeKind::Publisher)
        );
    }
}

/// Runs a bundled verifier script as a run does, and gives its last line.
fn verify(recipe: &str, script: &str, worktree: &Path, changed: &[&str]) -> serde_json::Value {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("verifier.sh");
    fs_err::write(&path, &bundled::files(recipe).unwrap()[script]).unwrap();
    let list = directory.path().join("changed");
    let joined: Vec<u8> = changed
        .iter()
        .flat_map(|path| path.bytes().chain([0]))
        .collect();
    fs_err::write(&list, joined).unwrap();
    let Output {
        status,
        stdout,
        stderr,
    } = shell(&path)
        .current_dir(worktree)
        .env("MO_CHANGED_FILES", &list)
        .env("MO_OUTPUT_DIR", worktree)
        .output()
        .unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    assert!(stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
    let stdout = String::from_utf8(stdout).unwrap();
    let last = stdout.lines().last().unwrap();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {last}"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one constructor of a shell in these tests"
)]
fn shell(script: &Path) -> Command {
    let mut command = Command::new("sh");
    command.arg(script);
    command
}

#[track_caller]
fn expect(answer: &serde_json::Value, pass: bool, evidence: &str) {
    assert_eq!(answer["pass"], pass, "{answer}");
    assert!(
        answer["evidence"].as_str().unwrap().contains(evidence),
        "{answer}"
    );
}

#[test]
fn link_verifier_finds_broken_links_only() {
    let worktree = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = worktree.path().join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    };
    let links = |changed: &[&str]| verify("docs", "verifiers/links.sh", worktree.path(), changed);
    write("src/a.rs", "");
    write("docs/other page.md", "");
    write(
        "docs/good.md",
        "[a](../src/a.rs) ![i](<other page.md>) [b](other%20page.md#part \"title\") [c](/src)\n\
         [web](https://example.org/x) [mail](mailto:a@b) [here](#here) `[code](nothing)`\n\
         ```\n[fenced](nothing)\n```\n[def]: ../src/a.rs\n[^1]: a footnote\r\n[d](./)\n",
    );
    expect(
        &links(&["docs/good.md", "src/a.rs"]),
        true,
        "6 relative links in 1 changed Markdown",
    );
    write("docs/no links.md", "text\n");
    expect(
        &links(&["docs/no links.md"]),
        true,
        "0 relative links in 1 changed Markdown",
    );
    write(
        "bad.md",
        "ok\n[x](docs/missing.md) and [y](../outside)\n[z]: gone\n",
    );
    let answer = links(&["docs/good.md", "bad.md"]);
    expect(&answer, false, "bad.md:2 leads to nothing: docs/missing.md");
    expect(
        &answer,
        false,
        "bad.md:2 leads out of the repository: ../outside",
    );
    expect(&answer, false, "bad.md:3 leads to nothing: gone");
    expect(
        &links(&["src/a.rs", "deleted.md"]),
        false,
        "no Markdown file was changed",
    );
    expect(&links(&[]), false, "no Markdown file was changed");
    let hostile = "-n \"q\\\" $(touch hacked)'.md";
    write(
        hostile,
        "[x](\"quoted\\\"\u{1}) [y](`gone`) [z]($(touch${IFS}hacked))\n",
    );
    expect(&links(&[hostile]), false, "leads to nothing");
    assert!(!worktree.path().join("hacked").exists());
}

#[test]
fn report_verifiers_want_each_section() {
    let worktree = tempfile::tempdir().unwrap();
    let report = worktree.path().join("report.md");
    let check = |recipe: &str, text: Option<&str>| {
        match text {
            Some(text) => fs_err::write(&report, text).unwrap(),
            None => drop(fs_err::remove_file(&report)),
        }
        verify(recipe, "verifiers/report.sh", worktree.path(), &[])
    };
    let summary = "## Summary\n".to_owned() + &"word ".repeat(25) + "\n";
    let research = summary.clone()
        + "## Findings\n### Sub\nfound\n## Open questions\nnone\n## Sources\n- a:1\n* b\n";
    expect(
        &check("research-synthesis", Some(&research)),
        true,
        "and 2 sources",
    );
    expect(
        &check("research-synthesis", None),
        false,
        "report.md was not written",
    );
    let text = research.replace("## Sources", "## Links");
    expect(
        &check("research-synthesis", Some(&text)),
        false,
        "no section: ## Sources",
    );
    let text = research.replace("- a:1\n* b\n", "see above\n");
    expect(
        &check("research-synthesis", Some(&text)),
        false,
        "lists no source",
    );
    let text = research.replace("none\n", "\n");
    expect(
        &check("research-synthesis", Some(&text)),
        false,
        "## Open questions of report.md is empty",
    );
    let text = research.replace(&"word ".repeat(25), "short");
    expect(
        &check("research-synthesis", Some(&text)),
        false,
        "fewer than twenty words",
    );
    let review = summary + "## Findings\nminor a:1\n## Not reviewed\nnothing\n";
    expect(&check("review", Some(&review)), true, "findings of 2 words");
    expect(
        &check("review", Some("## Summary\nx\n")),
        false,
        "no section: ## Findings",
    );
}
