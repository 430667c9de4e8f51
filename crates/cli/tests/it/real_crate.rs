//! `code-fix` on the published source of a real crate, with an agent that is a program.

use std::path::PathBuf;

use mini_ork_testkit::{Lane, Repo, TestEnv};

use crate::support::{agent, lines_of, new_env, node, run_json, text};

pub(crate) const RIGHT: &str = "            _ => return Err(StrSimError::DifferentLengthArgs),\n";
const WRONG: &str = "            _ => return Ok(count),\n";
const TEST: &str = "    #[test]\n    fn hamming_unequal_length() {\n        assert_eq!(\n            \
                    Err(StrSimError::DifferentLengthArgs),\n            \
                    generic_hamming(\"ham\".chars(), \"hamming\".chars())\n        );\n    }\n";
const COMMAND: &str = "cargo test --lib --tests";

/// A world with the crate in `repo`, its bug, and the kickoff that reports it.
pub(crate) struct Crate {
    pub(crate) env: TestEnv,
    source: String,
}

impl Crate {
    pub(crate) fn with_bug() -> Self {
        let env = new_env();
        let repo = env.repo("repo", &[]);
        copy(&source_of("strsim", &env), repo.path());
        let path = repo.path().join("src/lib.rs");
        let source = fs_err::read_to_string(&path).unwrap();
        assert_eq!(source.matches(RIGHT).count(), 1);
        assert_eq!(source.matches(TEST).count(), 1);
        let source = source.replace(RIGHT, WRONG);
        fs_err::write(&path, &source).unwrap();
        repo.commit_all("strsim with a bug");
        env.kickoff("Strings of unequal length are compared", &[COMMAND]);
        Self { env, source }
    }

    fn repo(&self) -> Repo<'_> {
        Repo::at(&self.env, &self.env.root().join("repo"))
    }

    /// Lets the agent make `src/lib.rs` of the crate `source`, and the reviewer tell of its calls.
    fn agent_writes(&self, source: &str) {
        let file = self.env.write("after.rs", source);
        self.agent_does(&format!("cp '{}' src/lib.rs", file.display()));
    }

    fn agent_does(&self, work: &str) {
        let told = self.env.root().join("told");
        let lane = format!(
            "echo \"$MO_NODE_ID $MO_NODE_ROUND\" >> '{}'\n{}",
            told.display(),
            agent(work)
        );
        self.env.lanes(&[("default", Lane::Shell(&lane))]);
    }

    fn told(&self) -> Vec<String> {
        lines_of(&self.env.root().join("told"))
    }

    /// A run that the tests must refuse, whatever the agent says; the reviewer is never asked.
    #[track_caller]
    fn assert_refused(&self, evidence: &str) {
        let view = run_json(&self.env, &self.repo(), "code-fix")
            .expect(1)
            .json();
        assert_eq!(text(&view, "status"), "failed", "{view:#}");
        assert_eq!(text(&view, "reason"), "verdict_fail", "{view:#}");
        assert!(view["branch"].is_null() && self.repo().refs("refs/heads/mini-ork").is_empty());
        let found = format!("{}", node(&view, "implementer")["evidence"]);
        assert!(found.contains(evidence), "{view:#}");
        // What was found went back to the agent, which had nothing better to offer.
        assert_eq!(self.told(), ["planner 1", "implementer 1", "implementer 2"]);
        assert_eq!(
            self.repo().refs("refs/mo").len(),
            1,
            "the refused work is kept"
        );
    }
}

#[test]
fn a_fix_is_published() {
    let strsim = Crate::with_bug();
    strsim.agent_writes(&strsim.source.replace(WRONG, RIGHT));
    let repo = strsim.repo();
    let view = run_json(&strsim.env, &repo, "code-fix").expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    let said = text(node(&view, "test"), "summary");
    assert!(said.contains("1 failed"), "{said}");
    let branch = text(&view, "branch");
    assert_eq!(
        repo.git(["diff", "--name-only", "HEAD", branch]),
        "src/lib.rs"
    );
    assert!(repo.show(branch, "src/lib.rs").contains(RIGHT));
    assert_eq!(
        repo.git(["rev-list", "--count", &format!("HEAD..{branch}")]),
        "1"
    );
    assert_eq!(
        strsim.told(),
        ["planner 1", "implementer 1", "reviewer 1", "eval 1"]
    );
}

#[test]
fn deleting_the_failing_test_is_refused() {
    let strsim = Crate::with_bug();
    strsim.agent_writes(&strsim.source.replace(TEST, ""));
    strsim.assert_refused("hamming_unequal_length");
}

#[test]
fn changing_the_failing_test_until_it_passes_is_refused() {
    let strsim = Crate::with_bug();
    let expects_the_bug = TEST.replace("Err(StrSimError::DifferentLengthArgs)", "Ok(0)");
    strsim.agent_writes(&strsim.source.replace(TEST, &expects_the_bug));
    strsim.assert_refused("");
}

#[test]
fn ignoring_the_failing_test_is_refused() {
    let strsim = Crate::with_bug();
    let ignored = TEST.replace("#[test]\n", "#[test]\n    #[ignore]\n");
    strsim.agent_writes(&strsim.source.replace(TEST, &ignored));
    strsim.assert_refused("hamming_unequal_length");
}

#[test]
fn doing_nothing_is_told_before_a_reviewer_is_paid() {
    let strsim = Crate::with_bug();
    strsim.agent_does("true");
    let view = run_json(&strsim.env, &strsim.repo(), "code-fix")
        .expect(1)
        .json();
    assert_eq!(text(&view, "reason"), "no_op");
    assert_eq!(strsim.told(), ["planner 1", "implementer 1"]);
    assert_eq!(text(node(&view, "reviewer"), "state"), "blocked");
    assert!(strsim.repo().refs("refs/mo").is_empty());
}

/// Where cargo keeps the source of a dependency of this workspace.
fn source_of(name: &str, env: &TestEnv) -> PathBuf {
    // Packages for other systems need not have been fetched.
    let arguments = "metadata --offline --format-version 1 --filter-platform host-tuple";
    let output = env
        .call("cargo", arguments.split(' '))
        .cwd(env!("CARGO_MANIFEST_DIR"))
        .run()
        .expect(0);
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages
        .iter()
        .find(|package| package["name"] == name)
        .unwrap();
    let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap());
    manifest.parent().unwrap().to_owned()
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    fs_err::create_dir_all(to).unwrap();
    for entry in fs_err::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs_err::copy(entry.path(), target).unwrap();
        }
    }
}
