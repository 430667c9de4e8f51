//! Programs of a node: nothing that one starts outlives it, and what it is given reaches it byte
//! for byte.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use mini_ork_testkit::{Lane, Repo, TestEnv, processes_with, wait_for};
use rustix::process::Signal;

use crate::support::{
    PROJECT, attempt_directory, fan_recipe, new_env, run_json, spawn_until_begun, text,
};

fn world() -> TestEnv {
    let env = new_env();
    env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[]);
    fan_recipe(&env, &["edit"], "");
    env
}

fn repo(env: &TestEnv) -> Repo<'_> {
    Repo::at(env, &env.root().join("repo"))
}

fn set_lane(env: &TestEnv, work: &str) {
    env.lanes(&[("default", Lane::Shell(work))]);
}

/// A number of seconds to sleep that no other process sleeps.
fn token(env: &TestEnv) -> String {
    format!("3{}{:04}", std::process::id(), env.root().as_os_str().len())
        + &env
            .root()
            .as_os_str()
            .as_bytes()
            .iter()
            .map(|byte| u32::from(*byte))
            .sum::<u32>()
            .to_string()
}

#[track_caller]
fn assert_none_left(token: &str) {
    wait_for("end of all processes", Duration::from_secs(10), || {
        processes_with(token).is_empty()
    });
}

#[test]
fn bc_24_cancelling_ends_grandchildren() {
    let env = world();
    let token = token(&env);
    let begun = env.root().join("begun");
    set_lane(
        &env,
        &format!(
            "echo 42 > answer\nsh -c '(while :; do : {token}; done) & (sleep {token} &) ; \
             echo x > {}; sleep {token}'",
            begun.display()
        ),
    );
    let running = spawn_until_begun(&env, "fan");
    assert!(processes_with(&token).len() >= 3);
    running.signal(Signal::INT);
    running.wait().expect(130);
    assert_none_left(&token);
    env.assert_no_process();
}

/// What leaves the process group, the session, the parent and the environment.
fn escapes(token: &str) -> String {
    format!(
        "setsid nohup sleep {token} > /dev/null 2>&1 &\n\
         (setsid sh -c '(sleep {token} &)' &)\n\
         (cd / && env -i setsid sh -c 'sleep {token} & sleep {token}' &)\n\
         if command -v tmux > /dev/null; then\n\
         tmux -S \"$MO_OUTPUT_DIR/t\" new-session -d sleep {token} 2> /dev/null\n\
         fi\n\
         n=0; while [ $n -lt 100 ] && [ $(ps ax -o args= 2> /dev/null | grep -c \"^sleep {token}\") -lt 3 ]; \
         do n=$((n + 1)); sleep 0.01; done\n"
    )
}

#[test]
fn bc_25_nothing_escapes_a_node_that_ends() {
    let env = world();
    let token = token(&env);
    set_lane(&env, &format!("{}\necho 42 > answer", escapes(&token)));
    run_json(&env, &repo(&env), "fan").expect(0);
    assert_none_left(&token);
    env.assert_no_process();
}

#[test]
fn bc_25_nothing_escapes_a_node_that_is_cancelled() {
    let env = world();
    let token = token(&env);
    set_lane(
        &env,
        &format!(
            "{}\necho x > '{}'\nsleep {token}",
            escapes(&token),
            env.root().join("begun").display()
        ),
    );
    let running = spawn_until_begun(&env, "fan");
    wait_for("escaped processes", Duration::from_secs(10), || {
        processes_with(&token).len() >= 4
    });
    running.signal(Signal::INT);
    running.wait().expect(130);
    assert_none_left(&token);
    env.assert_no_process();
}

/// A node reads its prompt and nothing else; what reads on finds the end. The input of mini-ork
/// itself is nobody's.
#[test]
fn bc_27_a_prompt_of_any_size_is_delivered_whole() {
    let env = world();
    let long = "0123456789abcdef".repeat(50_000);
    env.write(
        "kickoff.md",
        &format!("# Long\n\n## Problem\n{long}\n\n## Definition of Done\n- done\n"),
    );
    set_lane(&env, "cat > received; cat >> received; echo 42 > answer");
    let view = env
        .mini_ork(["run", "fan", "--json", "--repo", "repo", "kickoff.md"])
        .stdin("not for the lane\n")
        .run()
        .expect(0)
        .json();
    let prompt = attempt_directory(&env, &view, "edit").join("prompt.md");
    let prompt = fs_err::read_to_string(prompt).unwrap();
    assert!(prompt.len() > 800_000);
    let branch = text(&view, "branch");
    assert_eq!(repo(&env).show(branch, "received"), prompt);

    // One that reads no more than a byte, or closes its input, is not held up.
    for work in ["head -c 1 > one", "exec 0<&-; echo x > one"] {
        set_lane(&env, work);
        run_json(&env, &repo(&env), "fan").expect(0);
    }
}

#[test]
fn bc_27_a_verifier_that_reads_finds_the_end() {
    let env = world();
    env.recipe(
        "checked",
        &[
            (
                "workflow.yaml",
                "version: 1\ntask_class: checked\nnodes:\n  - {name: edit, type: implementer, \
                 prompt_ref: prompts/edit.md}\n  - {name: check, type: verifier, verifier_ref: \
                 verifiers/check.sh}\n  - {name: publish, type: publisher}\nedges:\n  - {from: \
                 edit, to: check, edge_type: verifies}\n  - {from: check, to: publish, edge_type: \
                 depends_on}\n",
            ),
            ("prompts/edit.md", "{{ kickoff }}\n"),
            (
                "verifiers/check.sh",
                "n=$(cat | wc -c)\necho \"{\\\"pass\\\": true, \\\"evidence\\\": \\\"read $n\\\"}\"\n",
            ),
        ],
    );
    set_lane(&env, "echo 42 > answer");
    let view = env
        .mini_ork(["run", "checked", "--json", "--repo", "repo", "kickoff.md"])
        .stdin("not for the verifier\n")
        .limit(Duration::from_secs(60))
        .run()
        .expect(0)
        .json();
    assert!(view.to_string().contains("read 0"), "{view:#}");
}

/// What people and machines put into arguments and variables.
fn awkward() -> Vec<String> {
    let json = format!("{{\"a\": [\"{}\"]}}", "x\\n\\\"".repeat(20_000));
    [
        "",
        " ",
        "two words",
        "a\nb\n\n",
        "'single' \"double\" `back` $HOME $(id) ${x} \\ \\n",
        "*?[a]~!#&;|<>",
        "-n",
        "--",
        "täglich \u{1f980} \u{7f}\u{1b}[31m",
        "%s %d %%",
        "=a=b",
    ]
    .iter()
    .map(|text| (*text).to_owned())
    .chain([json])
    .collect()
}

#[test]
fn bc_29_arguments_and_variables_arrive_byte_for_byte() {
    let env = world();
    let script = env.write(
        "lanes/echo.sh",
        "printf '%s\\0' \"$@\" > arguments\nenv -0 | LC_ALL=C sort -z > variables\n",
    );
    let values = awkward();
    // YAML wants the one control character escaped that JSON does not.
    let quoted = |value: &str| {
        let text = serde_json::to_string(value).unwrap();
        text.replace('\u{7f}', "\\u007f")
    };
    let mut words = vec![quoted("sh"), quoted(script.to_str().unwrap())];
    words.extend(values.iter().map(|value| quoted(value)));
    let variables: Vec<String> = values
        .iter()
        .enumerate()
        .map(|(number, value)| format!("ODD_{number}: {}", quoted(value)))
        .collect();
    env.write(
        "home/config/providers.yaml",
        &format!(
            "providers:\n  odd:\n    kind: executable\n    command: [{}]\n    extra_env: {{{}}}\n",
            words.join(", "),
            variables.join(", ")
        ),
    );
    env.write("home/config/agents.yaml", "lanes: {default: odd}\n");
    let not_text = OsStr::from_bytes(b"\xff\xfe'\n\x80");
    let view = env
        .mini_ork(["run", "fan", "--json", "--repo", "repo", "kickoff.md"])
        .env("LC_ODD", not_text)
        .run()
        .expect(0)
        .json();
    let branch = text(&view, "branch");
    let read = |path: &str| {
        let revision = format!("{branch}:{path}");
        repo(&env).git_bytes(["cat-file", "blob", &revision])
    };
    let expected: Vec<u8> = values
        .iter()
        .flat_map(|value| value.bytes().chain([0]))
        .collect();
    assert!(read("arguments") == expected, "the arguments differ");
    let found = read("variables");
    let found: Vec<&[u8]> = found.split(|byte| *byte == 0).collect();
    for (number, value) in values.iter().enumerate() {
        let expected = format!("ODD_{number}={value}").into_bytes();
        assert!(found.contains(&expected.as_slice()), "ODD_{number} differs");
    }
    assert!(found.contains(&[b"LC_ODD=", not_text.as_bytes()].concat().as_slice()));
}

#[test]
fn bc_29_output_is_kept_byte_for_byte() {
    let env = world();
    let bytes: Vec<u8> = (0..=255u8).chain(*b"\n\n\r\n  \n\xff\xc3\n").collect();
    let file = env.root().join("bytes");
    fs_err::write(&file, bytes.repeat(2000)).unwrap();
    set_lane(
        &env,
        &format!("cat '{0}'; cat '{0}' >&2; echo 42 > answer", file.display()),
    );
    let view = run_json(&env, &repo(&env), "fan").expect(0).json();
    let directory = attempt_directory(&env, &view, "edit").join("lane");
    for log in ["stdout.log", "stderr.log"] {
        assert!(
            fs_err::read(directory.join(log)).unwrap() == bytes.repeat(2000),
            "{log} differs"
        );
    }
}
