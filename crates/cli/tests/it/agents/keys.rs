//! Keys that are missing, keys that a vendor repeats, and keys that an agent has inside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mini_ork_testkit::{ModelServer, Script, Trouble, Turn, assert_no_secret};

use super::{
    ANTHROPIC, CHAT, CLAUDE, KEY, Kind, RESPONSES, World, by_role, code_fix, right_answer, world,
};
use crate::support::{node, only_row, text};

/// A way for a key not to be there, with what the user exports.
type Loss = (&'static str, fn(&World, &str), Option<&'static str>);

fn forget(world: &World, name: &str) {
    world.env.mini_ork(["vault", "rm", name]).run().expect(0);
}

fn damage_the_vault(world: &World, _: &str) {
    fs_err::write(world.env.home().join("vault.age"), "no vault").unwrap();
}

fn open_the_key_file_to_all(world: &World, _: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let path = world.env.home().join("config/vault.key");
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
}

fn command(world: &World, name: &str, program: &str) {
    world
        .env
        .mini_ork(["vault", "set", name, "--command", program])
        .run()
        .expect(0);
}

const LOSSES: &[Loss] = &[
    ("unset", forget, None),
    ("empty", forget, Some("")),
    ("blank", forget, Some(" \t ")),
    ("a line end", forget, Some("\n")),
    ("a vault that cannot be read", damage_the_vault, None),
    ("a key file for all", open_the_key_file_to_all, None),
    (
        "a command that fails",
        |world, name| command(world, name, "false"),
        None,
    ),
    (
        "a command that is silent",
        |world, name| command(world, name, "true"),
        None,
    ),
];

#[test]
fn bc_44_a_run_without_its_keys_names_all_of_them_and_makes_nothing() {
    for (what, lose, exported) in LOSSES {
        let server = ModelServer::start_tls(code_fix(right_answer()));
        let mut world = World::new();
        assert!(
            world.add("first", CHAT, &server, "") && world.add("second", ANTHROPIC, &server, "")
        );
        world.play("[first, second]");
        let names = [format!("{KEY}_FIRST"), format!("{KEY}_SECOND")];
        for name in &names {
            lose(&world, name);
        }
        let mut run = world.run(&server, "code-fix");
        if let Some(value) = exported {
            for name in &names {
                run = run.env(name, value);
            }
        }
        let output = run.run();
        assert_eq!(output.code(), Some(2), "{what}: {}", output.transcript());
        let errors = output.errors();
        for (lane, name) in ["first", "second"].iter().zip(&names) {
            let line = errors.lines().find(|line| line.contains(name.as_str()));
            let line = line.unwrap_or_else(|| panic!("{what}: no {name} in {errors}"));
            assert!(line.contains(&format!("lane `{lane}`")), "{what}: {errors}");
        }
        let runs = fs_err::read_dir(world.env.home().join("runs"));
        let made = runs.map(Iterator::count).unwrap_or_default();
        assert_eq!(made, 0, "{what}");
        let listed = world
            .env
            .mini_ork(["runs", "--json"])
            .run()
            .expect(0)
            .json();
        assert_eq!(listed["runs"], serde_json::json!([]), "{what}");
        assert!(server.requests().is_empty(), "{what}");
    }
}

#[test]
fn bc_44_recover_without_a_key_names_it_and_can_be_tried_again() {
    let works = Arc::new(AtomicBool::new(false));
    let is_working = Arc::clone(&works);
    let good = code_fix(right_answer());
    let server = ModelServer::start_tls(Script::each(move |request| {
        if is_working.load(Ordering::SeqCst) {
            good.turn(request)
        } else {
            Turn::trouble(Trouble::Auth)
        }
    }));
    let world = world(ANTHROPIC, &server).unwrap();
    world.run(&server, "code-fix").run().expect(1);
    works.store(true, Ordering::SeqCst);
    let run = only_row(&world.env).run;
    let asked = server.requests().len();
    let name = format!("{KEY}_ONLY");
    forget(&world, &name);
    for value in ["", " ", "\n"] {
        let output = world
            .mini_ork(&server, &["recover", &run, "--json"])
            .env(&name, value)
            .run()
            .expect(2);
        let errors = output.errors();
        assert!(
            errors.contains(&name) && errors.contains("lane `only`"),
            "{errors}"
        );
        assert_eq!(text(&output.json(), "reason"), "secret_missing");
    }
    assert_eq!(server.requests().len(), asked);
    let status = world.env.mini_ork(["status", &run, "--json"]).run().json();
    assert_eq!(text(&status, "status"), "failed");

    world
        .env
        .mini_ork(["vault", "set", &name])
        .stdin(server.key())
        .run()
        .expect(0);
    world.forget_input();
    let output = world
        .mini_ork(&server, &["recover", &run, "--json"])
        .run()
        .expect(0);
    assert_eq!(text(&output.json(), "status"), "published");
}

/// The key as vendors and programs may write it.
fn forms(key: &str) -> [String; 3] {
    let percent: String = key.bytes().map(|byte| format!("%{byte:02X}")).collect();
    [key.to_owned(), STANDARD.encode(key), percent]
}

/// No form of the key is in what any command shows of the run, nor below `places`.
#[track_caller]
fn assert_no_form(world: &World, server: &ModelServer, shown: &str, run: Option<&str>) {
    let mut texts = vec![shown.to_owned()];
    if let Some(run) = run {
        for arguments in [
            &["status", run][..],
            &["status", run, "--json"],
            &["logs", run],
            &["logs", run, "--raw"],
            &["logs", run, "--json"],
            &["runs", "--json"],
            &["costs", "--json"],
        ] {
            let output = world.env.mini_ork(arguments).run();
            texts.push(format!("{}{}", output.text(), output.errors()));
        }
    }
    for form in forms(server.key()) {
        for text in &texts {
            assert!(!text.contains(&form), "{form} in {text}");
        }
        assert_no_secret(&form, &[world.env.root()]);
    }
}

#[track_caller]
fn an_answer_with_the_key_is_not_heard(kind: Kind) {
    // In drops of a few bytes, so that the key comes in pieces of its own.
    let repeat = |turn: &dyn Fn(String) -> Turn, key: &str| {
        let text = format!("Forty-two. {}", forms(key).join(" and "));
        turn(text)
            .pieces(10_000)
            .dripping(Duration::from_micros(100), 23)
            .header("x-request-id", key)
    };
    let server = ModelServer::start_tls(Script::each(move |request| {
        if request.contains("You plan a fix") {
            return repeat(&Turn::text, request.key());
        }
        by_role(request).unwrap_or_else(|| match request.answers() {
            0 => repeat(
                &|text| Turn::run("echo 42 > answer").saying(text),
                request.key(),
            ),
            _ => repeat(&Turn::text, request.key()),
        })
    }));
    let Some(world) = world(kind, &server) else {
        return;
    };
    let output = world.run(&server, "code-fix").run().expect(0);
    let view = output.json();
    let run = text(&view, "run");
    let shown = format!("{}{}", output.text(), output.errors());
    assert_no_form(&world, &server, &shown, Some(run));
    let logs = world.env.mini_ork(["logs", run, "planner"]).run().text();
    assert!(logs.contains("Forty-two. *** and *** and ***"), "{logs}");
}

#[track_caller]
fn an_error_with_the_key_is_not_heard(kind: Kind) {
    // Claude asks for an answer without a stream when one has failed.
    let ways: &[bool] = if kind.program.is_some() {
        &[false]
    } else {
        &[false, true]
    };
    for in_stream in ways.iter().copied() {
        let server = ModelServer::start_tls(Script::each(move |request| {
            let words = format!("forty-two: {}", forms(request.key()).join(" and "));
            let trouble = Trouble::Request(words);
            if in_stream {
                Turn::text("It begins well, and goes on.").trouble_after(3, trouble)
            } else {
                Turn::trouble(trouble).header("x-request-id", request.key())
            }
            .dripping(Duration::from_micros(100), 23)
        }));
        let Some(world) = world(kind, &server) else {
            continue;
        };
        let output = world.run(&server, "code-fix").run().expect(1);
        let view = output.json();
        let shown = format!("{}{}", output.text(), output.errors());
        assert_no_form(&world, &server, &shown, Some(text(&view, "run")));
        let detail = text(&view, "detail");
        assert!(detail.contains("***"), "the rest of it is told: {detail}");

        let examined = world
            .mini_ork(&server, &["doctor", "--lane", "only"])
            .run()
            .expect(1);
        let shown = format!("{}{}", examined.text(), examined.errors());
        assert!(shown.contains("forty-two: ***"), "{shown}");
        assert_no_form(&world, &server, &shown, None);
    }
}

#[test]
fn bc_43_the_key_in_an_answer_is_not_heard_on_the_messages_api() {
    an_answer_with_the_key_is_not_heard(ANTHROPIC);
}

#[test]
fn bc_43_the_key_in_an_answer_is_not_heard_on_chat_completions() {
    an_answer_with_the_key_is_not_heard(CHAT);
}

#[test]
fn bc_43_the_key_in_an_answer_is_not_heard_on_the_responses_api() {
    an_answer_with_the_key_is_not_heard(RESPONSES);
}

#[test]
fn bc_43_the_key_in_an_answer_is_not_heard_by_claude() {
    an_answer_with_the_key_is_not_heard(CLAUDE);
}

#[test]
fn bc_43_the_key_in_an_error_is_not_heard_on_the_messages_api() {
    an_error_with_the_key_is_not_heard(ANTHROPIC);
}

#[test]
fn bc_43_the_key_in_an_error_is_not_heard_on_chat_completions() {
    an_error_with_the_key_is_not_heard(CHAT);
}

#[test]
fn bc_43_the_key_in_an_error_is_not_heard_on_the_responses_api() {
    an_error_with_the_key_is_not_heard(RESPONSES);
}

#[test]
fn bc_43_the_key_in_an_error_is_not_heard_by_claude() {
    an_error_with_the_key_is_not_heard(CLAUDE);
}

/// With `inject: env` the agent has the key and may print it. What mini-ork keeps and shows of that
/// has it not, and says that the key was inside.
#[test]
fn bc_42_a_key_inside_is_in_nothing_that_is_shown() {
    let server = ModelServer::start_tls(Script::each(|request| {
        let said = forms(request.key()).join(" and ");
        if request.contains("You plan a fix") {
            return Turn::text(format!("Forty-two. {said}"));
        }
        by_role(request).unwrap_or_else(|| match request.answers() {
            0 => Turn::run(
                "echo 42 > answer; env; printf %s \"$ANTHROPIC_AUTH_TOKEN\" | base64 -w 0; echo; \
                 printf %s \"$ANTHROPIC_AUTH_TOKEN\" | od -An -v -tx1 | tr -d '\\n' | tr ' ' %; \
                 echo \"$ANTHROPIC_AUTH_TOKEN\" >&2",
            )
            .saying(said),
            _ => Turn::text(format!("The answer is 42: {said}")),
        })
    }));
    let mut world = World::new();
    if !world.add("only", CLAUDE, &server, ", inject: env") {
        return;
    }
    world.play("only");
    let output = world
        .run(&server, "code-fix")
        .env("NODE_EXTRA_CA_CERTS", server.ca_file())
        .run()
        .expect(0);
    let printed = server.requests().iter().any(|request| {
        let body = String::from_utf8_lossy(&request.body);
        body.contains(&format!("ANTHROPIC_AUTH_TOKEN={}", server.key()))
    });
    assert!(printed, "the agent printed the key");
    let view = output.json();
    assert_eq!(view["keys_inside"], serde_json::json!(["only"]));
    assert!(text(node(&view, "implementer"), "summary").contains("answer"));

    // What it remembered of the conversation went with its end, and nothing else has the key.
    let directory = world.env.run_directory(text(&view, "run"));
    assert!(!directory.join("agents").exists());
    let shown = format!("{}{}", output.text(), output.errors());
    assert_no_form(&world, &server, &shown, Some(text(&view, "run")));
    let run = text(&view, "run");
    let logs = world.env.mini_ork(["logs", run]).run().text();
    assert!(logs.contains("Forty-two. *** and *** and ***"), "{logs}");

    let status = world.env.mini_ork(["status", run]).run().text();
    assert!(
        status.contains("the agents of only hold theirs themselves"),
        "{status}"
    );
    for name in ["verdict.json", "report.md"] {
        let kept = fs_err::read_to_string(directory.join(name)).unwrap();
        let words = if name == "report.md" {
            "the agents of `only` held their key themselves"
        } else {
            "\"keys_inside\""
        };
        assert!(kept.contains(words), "{kept}");
    }
}
