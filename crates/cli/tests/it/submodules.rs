//! Submodules and Git LFS files in whole runs.

use std::path::Path;

use crate::sandbox::{TOOLS, in_container};
use crate::support::{CHECK, PROJECT, agent, new_env, text};
use mini_ork_testkit::{
    Call, ContainerEngine, Lane, Repo, TestEnv, checkout_state, static_node_program,
};

const CONTENT: &str = "what Git LFS keeps";
/// Compares what is there with what a checkout has, and changes something everywhere.
const WORK: &str = "set -e
test \"$(cat lib/lib.txt)\" = lib
test \"$(cat lib/deep/inner/inner.txt)\" = inner
test \"$(cat big.bin)\" = 'what Git LFS keeps'
grep -q oid lost.bin
test -z \"$(git status --porcelain lib)\"
echo changed > lib/deep/inner/inner.txt
git diff | grep -q 'b/lib/deep/inner/inner.txt'
printf 'other content' > big.bin
echo 42 > answer";

/// SHA-256.
fn digest(content: &str) -> String {
    let digest = match content {
        CONTENT => "18b7fd3e4ed2f01f0c7a920c3859c6edf8a3cb75ae7c43dcac16300c80a340cd",
        "other content" => "923b805711041e23a99f07e146591c500261d1c289f62a9d39f8581ceb8a10ca",
        _ => "76f75e6129fe30135bd44d80ab7cc46fdba81907758dc808f3e2517beef2b1e9",
    };
    digest.to_owned()
}

fn pointer(content: &str) -> String {
    format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n",
        digest(content),
        content.len()
    )
}

fn stored(git_dir: &Path, content: &str) -> std::path::PathBuf {
    let digest = digest(content);
    let directory = git_dir.join("lfs/objects").join(&digest[..2]);
    directory.join(&digest[2..4]).join(digest)
}

/// A checkout with a submodule in a submodule and files of Git LFS.
fn project(env: &TestEnv) -> Repo<'_> {
    let (lost, big) = (pointer("lost"), pointer(CONTENT));
    let inner = env.repo("inner", &[("inner.txt", "inner\n")]);
    let lib = env.repo("lib", &[("lib.txt", "lib\n")]);
    let add = |outer: &Repo<'_>, inner: &Repo<'_>, at: &str| {
        let from = inner.path().to_str().unwrap();
        outer.git(["submodule", "--quiet", "add", from, at]);
        outer.commit_all("submodule");
    };
    add(&lib, &inner, "deep/inner");
    let mut files = PROJECT.to_vec();
    files.extend([
        (".gitattributes", "*.bin filter=lfs -text\n"),
        ("big.bin", big.as_str()),
        ("lost.bin", lost.as_str()),
    ]);
    let repo = env.repo("repo", &files);
    add(&repo, &lib, "lib");
    repo.git(["submodule", "--quiet", "update", "--init", "--recursive"]);
    let object = stored(&repo.path().join(".git"), CONTENT);
    fs_err::create_dir_all(object.parent().unwrap()).unwrap();
    fs_err::write(object, CONTENT).unwrap();
    repo
}

/// A run that works in a submodule is published there too, and tells what it did not have.
fn assert_published<'a>(env: &'a TestEnv, repo: &Repo<'a>, run: Call<'_>) {
    let places = ["", "lib", "lib/deep/inner"].map(|path| repo.path().join(path));
    let before = places.each_ref().map(|path| checkout_state(path));
    let view = run.run().expect(0).json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    for (path, before) in places.iter().zip(&before) {
        before.assert_same(&checkout_state(path), "after a published run");
    }
    let branch = text(&view, "branch");
    for (outer, at) in [(&places[0], "lib"), (&places[1], "deep/inner")] {
        let link = Repo::at(env, outer).git(["rev-parse", &format!("{branch}:{at}")]);
        let inner = Repo::at(env, &outer.join(at));
        assert_eq!(inner.git(["rev-parse", branch]), link);
        assert_eq!(
            inner.git(["rev-list", "--count", &format!("HEAD..{branch}")]),
            "1"
        );
        inner.git(["fsck", "--strict", "--no-dangling"]);
    }
    let innermost = Repo::at(env, &places[2]);
    assert_eq!(innermost.show(branch, "inner.txt"), "changed\n");
    assert_eq!(repo.show(branch, "big.bin"), pointer("other content"));
    let object = stored(&repo.path().join(".git"), "other content");
    assert_eq!(fs_err::read_to_string(object).unwrap(), "other content");
    repo.git(["fsck", "--strict", "--no-dangling"]);

    let report = env.run_directory(text(&view, "run")).join("report.md");
    let report = fs_err::read_to_string(report).unwrap();
    for told in [
        "submodules are plain files in the run's worktree",
        "1 of 2 Git LFS files are their pointers",
        "lost.bin",
    ] {
        assert!(report.contains(told), "{told}: {report}");
    }
    let diff = env.mini_ork(["diff", text(&view, "run")]).run().expect(0);
    let diff = diff.text();
    assert!(diff.contains("lib/deep/inner/inner.txt"), "{diff}");
    env.mini_ork(["apply", text(&view, "run")]).run().expect(0);
    let applied = fs_err::read_to_string(places[2].join("inner.txt")).unwrap();
    assert_eq!(applied, "changed\n");
    let applied = fs_err::read_to_string(repo.path().join("big.bin")).unwrap();
    assert_eq!(applied, "other content");
}

fn run<'a>(env: &'a TestEnv, repo: &Repo<'_>) -> Call<'a> {
    env.mini_ork(["run", "code-fix", "--json", "--repo"])
        .arg(repo.path())
        .arg(env.root().join("kickoff.md"))
}

#[test]
fn bc_54_a_run_works_in_submodules_and_on_lfs_files() {
    let env = new_env();
    let repo = project(&env);
    // In the checkout the content is there, as Git LFS would have it.
    fs_err::write(repo.path().join("big.bin"), CONTENT).unwrap();
    env.kickoff("The answer is wrong", &[CHECK]);
    env.lanes(&[("default", Lane::Shell(&agent(WORK)))]);
    assert_published(&env, &repo, run(&env, &repo));
}

#[test]
fn bc_54_a_run_in_a_container_works_in_submodules_and_on_lfs_files() {
    let Some(node_program) = static_node_program() else {
        return;
    };
    let Some(engine) = ContainerEngine::start() else {
        return;
    };
    let image = engine.image_of_this_machine(TOOLS);
    let env = new_env();
    let repo = project(&env);
    fs_err::write(repo.path().join("big.bin"), CONTENT).unwrap();
    env.kickoff("The answer is wrong", &[CHECK]);
    let script = serde_json::to_string(&agent(WORK)).unwrap();
    env.write(
        "home/config/providers.yaml",
        &format!("providers:\n  own: {{kind: executable, command: [sh, -c, {script}]}}\n"),
    );
    env.write("home/config/agents.yaml", "lanes:\n  default: own\n");
    let call = in_container(run(&env, &repo), &engine, &image, &node_program);
    assert_published(&env, &repo, call);
    assert_eq!(engine.containers(), Vec::<String>::new());
}

#[test]
fn bc_54_a_run_that_fails_keeps_what_it_did_in_a_submodule() {
    let env = new_env();
    let repo = project(&env);
    env.kickoff("The answer is wrong", &[CHECK]);
    let work = "echo changed > lib/deep/inner/inner.txt; echo 43 > answer";
    env.lanes(&[("default", Lane::Shell(&agent(work)))]);
    let view = run(&env, &repo).run().expect(1).json();
    assert_eq!(text(&view, "reason"), "verdict_fail", "{view:#}");
    let kept = repo.git(["for-each-ref", "--format=%(refname)", "refs/mo/"]);
    let kept = kept.lines().next().unwrap().to_owned();
    let inner = Repo::at(&env, &repo.path().join("lib/deep/inner"));
    assert_eq!(inner.show(&kept, "inner.txt"), "changed\n");
    env.mini_ork(["clean", "--all"]).run();
    repo.git(["fsck", "--strict", "--no-dangling"]);
    inner.git(["fsck", "--strict", "--no-dangling"]);
}
