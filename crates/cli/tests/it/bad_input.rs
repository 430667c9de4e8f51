//! Mistakes of the user: one sentence and a hint, exit code 2, and nothing made.

use std::os::unix::fs::PermissionsExt as _;

use mini_ork_testkit::{Call, Lane, Repo, SmallDisk, TestEnv, skip, tree_state};

use crate::support::{CHECK, PROJECT, agent, new_env};

/// A world in which a run of `code-fix` on `repo` would be published.
fn ready() -> TestEnv {
    let env = new_env();
    env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    env.lanes(&[("default", Lane::Shell(&agent("echo 42 > answer")))]);
    env
}

fn run<'a>(env: &'a TestEnv, arguments: &[&str]) -> Call<'a> {
    env.mini_ork(["run"].iter().chain(arguments))
        .cwd(env.root().join("repo"))
}

/// Asserts that `call` is refused with a sentence that holds every one of `says`, and that it
/// leaves the home and the repository as they were.
#[track_caller]
fn assert_refused(env: &TestEnv, call: Call<'_>, says: &[&str]) {
    let places = [env.home(), env.root().join("repo"), env.user_home()];
    let before: Vec<_> = places.iter().map(|path| tree_state(path)).collect();
    let output = call.run().expect(2);
    for (before, path) in before.iter().zip(&places) {
        before.assert_same(&tree_state(path), "after a refusal");
    }
    assert_eq!(output.text(), "", "{}", output.transcript());
    let errors = output.errors();
    let lines: Vec<&str> = errors.lines().collect();
    assert!(lines[0].starts_with("error: "), "{}", output.transcript());
    let hints = lines.iter().filter(|line| line.starts_with("hint: "));
    assert_eq!(hints.count(), 1, "{}", output.transcript());
    for said in says {
        assert!(
            errors.contains(said),
            "no `{said}`: {}",
            output.transcript()
        );
    }
    assert!(!errors.contains("panicked"), "{}", output.transcript());
}

#[test]
fn the_ready_world_is_ready() {
    let env = ready();
    run(&env, &["code-fix", "../kickoff.md"]).run().expect(0);
}

#[test]
fn no_kickoff() {
    let env = ready();
    assert_refused(&env, run(&env, &[]), &["no kickoff"]);
    assert_refused(
        &env,
        run(&env, &["code-fix"]),
        &["no kickoff", "mini-ork run code-fix ./"],
    );
    assert_refused(&env, run(&env, &["code-fix", "none.md"]), &["none.md"]);
    assert_refused(&env, run(&env, &["code-fix", "."]), &["no file"]);
}

#[test]
fn an_unusable_kickoff() {
    let env = ready();
    let cases: &[(&[u8], &str)] = &[
        (b"", "empty"),
        (b" \n\t\n", "empty"),
        (b"no title\n", "title"),
        (b"# T\n\xff\xfe\n", "UTF-8"),
        (b"# T\n\0\n", "NUL"),
        (b"# T\n\n## Scope\n- ../outside\n", "outside"),
    ];
    for (bytes, says) in cases {
        fs_err::write(env.root().join("kickoff.md"), bytes).unwrap();
        assert_refused(
            &env,
            run(&env, &["code-fix", "../kickoff.md"]),
            &["kickoff.md", says],
        );
    }
    let large = fs_err::File::create(env.root().join("kickoff.md")).unwrap();
    large.set_len(3 << 20).unwrap();
    assert_refused(
        &env,
        run(&env, &["code-fix", "../kickoff.md"]),
        &["larger than 1 MiB"],
    );
}

#[test]
fn an_unknown_recipe() {
    let env = ready();
    let call = run(&env, &["code-fxi", "../kickoff.md"]);
    assert_refused(&env, call, &["code-fxi", "code-fix"]);
    for name in ["../code-fix", "/etc", ".", ""] {
        assert_refused(&env, run(&env, &[name, "../kickoff.md"]), &[]);
    }
}

#[test]
fn no_repository() {
    let env = ready();
    let call = run(&env, &["code-fix", "kickoff.md"]).cwd(env.root());
    assert_refused(&env, call, &["not in a git repository", "git init"]);
    let call = run(
        &env,
        &["code-fix", "../kickoff.md", "--repo", "/nonexistent"],
    );
    assert_refused(&env, call, &["/nonexistent"]);
    let empty = env.fresh("empty");
    Repo::init(&env, &empty);
    let call = run(&env, &["code-fix", "../kickoff.md", "--repo"]).arg(&empty);
    assert_refused(&env, call, &["no commits", "git commit"]);
}

const WORKFLOW: &str = "version: 1\ntask_class: odd\nnodes:\n  \
    - {name: edit, type: implementer, prompt_ref: prompts/edit.md}\n  \
    - {name: look, type: researcher, prompt_ref: prompts/edit.md}\n  \
    - {name: publish, type: publisher}\nedges:\n  \
    - {from: edit, to: publish, edge_type: depends_on}\n";

#[test]
fn a_recipe_with_mistakes() {
    let env = ready();
    let cycle = "  - {from: edit, to: look, edge_type: depends_on}\n  \
                 - {from: look, to: edit, edge_type: depends_on}\n";
    let cases = [
        (
            WORKFLOW.replace("task_class: odd\n", "task_class: odd\ndescripton: x\n"),
            ["workflow.yaml:3", "descripton", "description"],
        ),
        (
            format!("{WORKFLOW}{cycle}"),
            ["workflow.yaml:", "edit", "look"],
        ),
        (
            WORKFLOW.replace("edge_type: depends_on", "edge_type: depends"),
            ["workflow.yaml:8", "depends", "depends_on"],
        ),
        (
            WORKFLOW.replace("to: publish", "to: publsih"),
            ["workflow.yaml:8", "publsih", "publish"],
        ),
    ];
    for (workflow, says) in cases {
        env.recipe(
            "odd",
            &[("workflow.yaml", &workflow), ("prompts/edit.md", "x\n")],
        );
        assert_refused(&env, run(&env, &["odd", "../kickoff.md"]), &says);
    }
    env.recipe(
        "odd",
        &[
            ("workflow.yaml", WORKFLOW),
            ("prompts/edit.md", "{{ kickof }}\n"),
        ],
    );
    assert_refused(
        &env,
        run(&env, &["odd", "../kickoff.md"]),
        &["edit.md", "kickof"],
    );

    // The same in the repository itself, which is looked into first.
    let workflow = env.root().join("repo/.mini-ork/recipes/odd/workflow.yaml");
    fs_err::create_dir_all(workflow.parent().unwrap()).unwrap();
    fs_err::write(workflow, "version: 1\nnodes: *x\n").unwrap();
    assert_refused(
        &env,
        run(&env, &["odd", "../kickoff.md"]),
        &[".mini-ork/recipes/odd"],
    );
}

#[test]
fn lanes_with_mistakes() {
    let env = ready();
    let lane = |choice: &str| {
        let arguments = ["code-fix", "../kickoff.md", "--lane", choice];
        run(&env, &arguments)
    };
    assert_refused(&env, lane("worker=nobody"), &["nobody"]);
    assert_refused(&env, lane("wroker=default-lane"), &["wroker", "worker"]);
    assert_refused(&env, lane("worker"), &["worker"]);
    for (text, says) in [
        (
            "providers:\n  a: {kind: executable, comand: [x]}\n",
            "comand",
        ),
        ("providers:\n  a: {kind: codex, model: x}\n", "codex"),
        ("providers:\n  a: {kind: executable}\n", "command"),
        (
            "providers:\n  a: {kind: scripted, file: none.yaml}\n",
            "none.yaml",
        ),
        (
            "providers:\n  a: {kind: scripted, file: odd.yaml}\n",
            "odd.yaml:3",
        ),
        (
            "providers:\n  a: {kind: executable, command: [no-such-program]}\n",
            "no-such-program",
        ),
        (
            "providers:\n  a: {kind: executable, command: [/nonexistent/program]}\n",
            "/nonexistent/program",
        ),
        ("providers: [a\n", "providers.yaml"),
        (
            "providers:\n  a: {kind: executable, command: [x], extra_env: {MY_API_KEY: x}}\n",
            "MY_API_KEY",
        ),
    ] {
        env.write("home/odd.yaml", "version: 1\nsteps:\n  - {wirte: {}}\n");
        env.write("home/config/providers.yaml", text);
        env.write("home/config/agents.yaml", "lanes: {default: a}\n");
        let call = run(&env, &["code-fix", "../kickoff.md"]);
        assert_refused(&env, call, &["providers.yaml", says]);
    }
}

/// Whoever asks for a boundary does not get an ordinary run.
#[test]
fn a_boundary_that_there_is_not() {
    let env = ready();
    let ready = || run(&env, &["code-fix", "../kickoff.md"]);
    assert_refused(
        &env,
        ready().arg("--backend").arg("dcoker"),
        &["dcoker", "local"],
    );
    assert_refused(
        &env,
        ready().arg("--placement").arg("remote"),
        &["remote", "local"],
    );
    for (name, value) in [
        ("MO_SANDBOX_BACKEND", "dokcer"),
        ("MO_PLACEMENT", "remote"),
        ("MO_NODE_ISOLATION", "1"),
        ("MO_NODE_ISOLATION", "maybe"),
        ("MO_SANDBOX_SCOPE", "process"),
        ("MO_SANDBOX_NETWORK", "open"),
        ("MO_SANDBOX_NETWORK", "allowlist"),
        ("MO_SANDBOX_ALLOW", "a.*.com"),
    ] {
        assert_refused(
            &env,
            ready().env(name, value),
            &[value.split('=').next().unwrap()],
        );
    }
}

#[test]
fn a_first_mistake_makes_no_home() {
    let env = new_env();
    env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    assert_refused(&env, run(&env, &["code-fix", "../kickoff.md"]), &["lane"]);
    assert!(!env.home().exists());
    let call = run(&env, &["code-fix", "../kickoff.md"])
        .without_env("MINI_ORK_HOME")
        .without_env("HOME");
    assert_refused(&env, call, &["MINI_ORK_HOME"]);
}

#[test]
fn a_home_that_cannot_be_written() {
    const NOBODY: u32 = 65534;
    let env = ready();
    let root = rustix::process::geteuid().is_root();
    let kickoff = env.root().join("kickoff.md");
    let call = || {
        let arguments = ["run", "code-fix"];
        let call = if root {
            env.mini_ork_as(NOBODY, arguments)
        } else {
            env.mini_ork(arguments)
        };
        call.arg(&kickoff).cwd(env.root().join("repo"))
    };
    let set = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        fs_err::set_permissions(env.home(), mode).unwrap();
    };
    // Made by nobody else before, so that the modes of the root are not part of the comparison.
    drop(call());
    set(0o555);
    assert_refused(&env, call(), &["home"]);
    set(0o755);
    if root {
        return;
    }
    // One that is not there and cannot be made.
    let locked = env.fresh("locked");
    fs_err::create_dir(&locked).unwrap();
    fs_err::set_permissions(&locked, std::fs::Permissions::from_mode(0o555)).unwrap();
    assert_refused(
        &env,
        call().env("MINI_ORK_HOME", locked.join("home")),
        &["lane"],
    );
}

#[test]
fn bc_70_a_disk_without_room() {
    let env = ready();
    let place = env.fresh("disk");
    let Some(_disk) = SmallDisk::mount(&env, &place, 8) else {
        return skip("bc_70: a small disk cannot be mounted here");
    };
    let home = place.join("home");
    fs_err::create_dir_all(home.join("config")).unwrap();
    for name in ["providers.yaml", "agents.yaml"] {
        fs_err::copy(
            env.home().join("config").join(name),
            home.join("config").join(name),
        )
        .unwrap();
    }
    let call = || run(&env, &["code-fix", "../kickoff.md"]).env("MINI_ORK_HOME", &home);
    let before = tree_state(&home);
    assert_refused(&env, call(), &["MiB free", "mini-ork clean"]);
    before.assert_same(&tree_state(&home), "after a refusal");
    // To the last byte.
    fill(&place);
    let before = tree_state(&home);
    assert_refused(&env, call(), &["0 MiB free"]);
    before.assert_same(&tree_state(&home), "after a refusal");
}

fn fill(place: &std::path::Path) {
    use std::io::Write as _;
    let mut file = fs_err::File::create(place.join("fill")).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
}

/// The same mistakes with `--json`: nothing on standard output either.
#[test]
fn a_mistake_is_no_object() {
    let env = ready();
    assert_refused(
        &env,
        run(&env, &["--json", "nope", "../kickoff.md"]),
        &["nope"],
    );
    assert_refused(&env, run(&env, &["--json", "code-fix"]), &["no kickoff"]);
}
