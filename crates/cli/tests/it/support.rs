//! What several modules need: worlds with ready lanes and small repositories, and looks into the
//! records of a run.

use std::path::Path;
use std::time::Duration;

use mini_ork_control::run::RunEvent;
use mini_ork_control::store::{RunRow, StoreReader};
use mini_ork_protocol::RunId;
use mini_ork_testkit::{Lane, Output, Repo, Running, TestEnv, wait_for};
use serde_json::Value;

/// A world in which `mini-ork` is the program that was just built.
pub(crate) fn new_env() -> TestEnv {
    TestEnv::new(env!("CARGO_BIN_EXE_mini-ork"))
}

/// A verdict that approves.
pub(crate) const APPROVE: &str = r#"{"verdict": "approve", "summary": "fine", "findings": []}"#;

/// Files of a small project whose test is a shell script: `answer` has to hold 42.
pub(crate) const PROJECT: &[(&str, &str)] = &[
    ("answer", "41\n"),
    ("README.md", "# A small project\n"),
    ("check.sh", "test \"$(cat answer)\" = 42\n"),
];

/// The command that tests [`PROJECT`].
pub(crate) const CHECK: &str = "sh check.sh";

/// A report as the recipes that make one want it.
pub(crate) const REPORT: &str = "# The answer

## Summary
The answer of the project is wrong by one: it is 41 where everything that is known of it says that
it has to be 42, which its own test shows.

## Findings
It is 41.

## Open questions
None.

## Not reviewed
Nothing.

## Sources
- `answer`, line 1
";

/// A lane for all roles: planners and judges say what they should; writers do `work`.
pub(crate) fn agent(work: &str) -> String {
    format!(
        "cat > /dev/null\n\
         case $MO_NODE_TYPE in\n\
         planner | researcher) echo \"$MO_NODE_ID has an idea\"; exit ;;\n\
         reviewer | eval) echo '{APPROVE}'; exit ;;\n\
         esac\n\
         {work}\n\
         echo done\n"
    )
}

/// A script for all roles on [`PROJECT`]: wrong in the first round, right in the second.
pub(crate) const REHEARSAL: &str = r#"version: 1
steps:
  - {role: planner, stdout: "It has to be 42."}
  - {role: implementer, round: 1, write: {answer: "43\n"}, stdout: "It is 43."}
  - {role: implementer, round: 2, run: [sh, -c, "echo 42 > answer"], stdout: "It is 42.", cost_usd: 0.25}
  - {role: reviewer, stdout: '{"verdict": "approve", "summary": "fine", "findings": []}'}
  - {role: eval, stdout: '{"verdict": "approve", "summary": "fine", "findings": []}'}
"#;

/// `mini-ork run RECIPE --json` on `repo` with the world's kickoff.
pub(crate) fn run_json(env: &TestEnv, repo: &Repo<'_>, recipe: &str) -> Output {
    env.mini_ork(["run", recipe, "--json", "--repo"])
        .arg(repo.path())
        .arg(env.root().join("kickoff.md"))
        .run()
}

/// The row of the world's run; it must have exactly one.
#[track_caller]
pub(crate) fn only_row(env: &TestEnv) -> RunRow {
    let reader = StoreReader::open(&env.home()).unwrap().unwrap();
    let mut rows = reader.runs().unwrap();
    assert_eq!(rows.len(), 1, "{rows:#?}");
    rows.remove(0)
}

/// The journal of run `run`.
pub(crate) fn journal(env: &TestEnv, run: &str) -> Vec<RunEvent> {
    let reader = StoreReader::open(&env.home()).unwrap().unwrap();
    let run = RunId::parse(run).unwrap();
    let events = reader.events(&run, 0).unwrap();
    events.into_iter().map(|each| each.event).collect()
}

/// The node called `name` of a run's JSON object.
#[track_caller]
pub(crate) fn node<'a>(view: &'a Value, name: &str) -> &'a Value {
    let nodes = view["nodes"].as_array().unwrap();
    nodes
        .iter()
        .find(|node| node["node"] == name)
        .unwrap_or_else(|| panic!("no node {name} in {view:#}"))
}

/// A string of a JSON object.
#[track_caller]
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key]
        .as_str()
        .unwrap_or_else(|| panic!("no text `{key}` in {value:#}"))
}

/// The lines of a file that lanes append to; none when it is not there.
pub(crate) fn lines_of(path: &Path) -> Vec<String> {
    let text = fs_err::read_to_string(path).unwrap_or_default();
    text.lines().map(ToOwned::to_owned).collect()
}

/// Everything at and below `path` belongs to `user`.
#[track_caller]
pub(crate) fn assert_owned(path: &Path, user: u32) {
    let mut pending = vec![path.to_owned()];
    let mut seen = 0;
    while let Some(path) = pending.pop() {
        let found = fs_err::symlink_metadata(&path).unwrap();
        let owner = std::os::unix::fs::MetadataExt::uid(&found);
        assert_eq!(owner, user, "{}", path.display());
        seen += 1;
        if found.is_dir() {
            let entries = fs_err::read_dir(path).unwrap();
            pending.extend(entries.map(|entry| entry.unwrap().path()));
        }
    }
    assert!(seen > 10, "{seen} files");
}

/// A world with one published run, whose lane changed `answer` from 41 to 42.
pub(crate) fn with_published_run() -> (TestEnv, String) {
    let env = new_env();
    let run = {
        let repo = env.repo("repo", PROJECT);
        env.kickoff("The answer is wrong", &[CHECK]);
        env.lanes(&[("default", Lane::Shell(&agent("echo 42 > answer")))]);
        let view = run_json(&env, &repo, "code-fix").expect(0).json();
        text(&view, "run").to_owned()
    };
    (env, run)
}

/// A world with one failed run, whose lane changed `answer` to something wrong.
pub(crate) fn with_failed_run() -> (TestEnv, String) {
    let env = new_env();
    let run = {
        let repo = env.repo("repo", PROJECT);
        env.kickoff("The answer is wrong", &[CHECK]);
        env.lanes(&[(
            "default",
            Lane::Shell(&agent("echo 5$MO_NODE_ROUND > answer")),
        )]);
        let view = run_json(&env, &repo, "code-fix").expect(1).json();
        text(&view, "run").to_owned()
    };
    (env, run)
}

/// Writes the recipe `fan` into the home: `writers` beside each other, and a publisher that takes
/// what they made. Each writer is of the role of its name; `more` is added to each of them.
pub(crate) fn fan_recipe(env: &TestEnv, writers: &[&str], more: &str) {
    let mut nodes = String::new();
    let mut edges = String::new();
    for writer in writers {
        nodes.push_str(&format!(
            "  - {{name: {writer}, type: implementer, model_lane: worker, \
             prompt_ref: prompts/edit.md, retries: 0{more}}}\n"
        ));
        edges.push_str(&format!(
            "  - {{from: {writer}, to: publish, edge_type: depends_on}}\n"
        ));
    }
    let workflow = format!(
        "version: 1\ntask_class: fan\nnodes:\n{nodes}  - {{name: publish, type: publisher}}\n\
         edges:\n{edges}"
    );
    env.recipe(
        "fan",
        &[
            ("workflow.yaml", &workflow),
            ("prompts/edit.md", "Edit.\n\n{{ kickoff }}\n"),
        ],
    );
}

/// The directory of the last attempt of node `name`.
pub(crate) fn attempt_directory(env: &TestEnv, view: &Value, name: &str) -> std::path::PathBuf {
    env.run_directory(text(view, "run"))
        .join(text(node(view, name), "directory"))
}

/// Starts `mini-ork run` and returns when a lane has made the file `begun` of the world.
#[track_caller]
pub(crate) fn spawn_until_begun(env: &TestEnv, recipe: &str) -> Running {
    let begun = env.root().join("begun");
    let running = env
        .mini_ork(["run", recipe, "--json", "--repo", "repo", "kickoff.md"])
        .spawn();
    wait_for("start of the lane", Duration::from_secs(60), || {
        begun.exists()
    });
    running
}
