//! A model that means harm, or does not know what it does.

use std::time::{Duration, Instant};

use fs_err::os::unix::fs::symlink;
use mini_ork_node::agent::EndReason;
use mini_ork_testkit::{Act, Dialect, Script, Turn, processes_with};
use serde_json::json;

use super::support::{Desk, call, nap, raw_call};

#[test]
fn calls_that_make_no_sense_are_told_to_the_model() {
    let calls = [
        (
            call("delete_everything", &json!({})),
            "there is no tool `delete_everything`; there are: bash, read",
        ),
        (
            raw_call("bash", "{\"command\": \"touch made"),
            "they are no JSON",
        ),
        (
            raw_call("bash", "[\"touch made\"]"),
            "they are no JSON object",
        ),
        (raw_call("bash", "touch made"), "they are no JSON"),
        (call("bash", &json!({"command": 5})), "invalid type"),
        (call("bash", &json!({})), "missing field `command`"),
        (
            call(
                "bash",
                &json!({"command": "touch made", "timeout_s": "soon"}),
            ),
            "invalid type",
        ),
        (call("bash", &json!({"command": "touch made\u{0}"})), "NUL"),
        (call("read", &json!({"path": ["calc.py"]})), "invalid type"),
        (
            call(
                "edit",
                &json!({"path": "calc.py", "old": "nowhere", "new": ""}),
            ),
            "not in the file",
        ),
        (
            call("search", &json!({"pattern": "("})),
            "pattern cannot be used",
        ),
        (call("finish", &json!({"summary": null})), "invalid type"),
        (
            call(
                "bash",
                &json!({"command": format!("touch made #{}", "x".repeat(200_000))}),
            ),
            "longer than",
        ),
    ];
    for dialect in Dialect::ALL {
        let turns = calls
            .iter()
            .map(|(call, _)| Turn::acts([call.clone()]).pieces(1 << 16));
        let desk = Desk::turns(turns.chain([Turn::text("I give up.")]));
        let done = desk.work(dialect);
        done.assert_ended(EndReason::Answered, "done");
        let results = done.results();
        assert_eq!(results.len(), calls.len());
        for ((ok, output), (call, message)) in results.iter().zip(&calls) {
            assert!(!ok && output.contains(message), "{call:?}: {output}");
        }
        assert!(!desk.root().join("made").exists());
        // The server takes conversations as strictly as a vendor.
        let requests = desk.server.requests();
        assert!(requests.iter().all(|request| request.status == Some(200)));
    }
}

#[test]
fn names_and_ids_that_a_vendor_would_refuse_are_not_repeated() {
    let answer = |calls: &[(&str, &str)]| {
        let calls: Vec<_> = calls
            .iter()
            .enumerate()
            .map(|(index, (id, name))| {
                json!({"index": index, "id": id, "type": "function",
                       "function": {"name": name, "arguments": "{\"path\":\".\"}"}})
            })
            .collect();
        let chunk = json!({"choices": [{"index": 0, "delta": {"tool_calls": calls},
                                        "finish_reason": "tool_calls"}]});
        Turn::raw(200, format!("data: {chunk}\n\ndata: [DONE]\n\n"))
            .header("content-type", "text/event-stream")
    };
    let desk = Desk::new(Script::turns([
        answer(&[
            ("", "list"),
            ("same", "list"),
            ("same", "no such\u{7} tool"),
        ]),
        answer(&[("same", "list"), ("a b", "")]),
        Turn::text("Done."),
    ]));
    let done = desk.work(Dialect::Chat);
    done.assert_ended(EndReason::Answered, "done");
    let ok: Vec<bool> = done.results().iter().map(|(ok, _)| *ok).collect();
    assert_eq!(ok, [true, true, false, true, false]);
    let body = desk.bodies().pop().unwrap();
    let messages = body["messages"].as_array().unwrap();
    let mut ids: Vec<&str> = messages
        .iter()
        .filter_map(|message| message["tool_call_id"].as_str())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5);
}

#[test]
fn nothing_outside_of_the_workspace_is_read_or_written() {
    let desk = Desk::turns([]);
    let secret = desk.directory.path().join("secret");
    let paths = [
        "../secret".to_owned(),
        "x/../../secret".to_owned(),
        secret.display().to_string(),
        "link".to_owned(),
        "etc/passwd".to_owned(),
        "up/secret".to_owned(),
        "/etc/passwd".to_owned(),
        "/proc/self/environ".to_owned(),
        format!("/proc/self/root{}", secret.display()),
        format!("magic{}", secret.display()),
        "fifo".to_owned(),
        "zero".to_owned(),
        String::new(),
        "a\0b".to_owned(),
    ];
    let acts = paths.iter().flat_map(|path| {
        [
            call("read", &json!({"path": path})),
            call("write", &json!({"path": path, "content": "changed"})),
            call(
                "edit",
                &json!({"path": path, "old": "outside", "new": "changed"}),
            ),
        ]
    });
    let turns: Vec<Turn> = acts.map(|act| Turn::acts([act])).collect();
    let count = turns.len();
    let mut desk = Desk::turns(turns.into_iter().chain([Turn::text("I give up.")]));
    desk.limits.max_turns = 100;
    let root = desk.root();
    symlink("../secret", root.join("link")).unwrap();
    symlink("/etc", root.join("etc")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    symlink("/dev/zero", root.join("zero")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), kind, mode, 0).unwrap();
    let done = desk.work(Dialect::Messages);
    done.assert_ended(EndReason::Answered, "done");
    let results = done.results();
    assert_eq!(results.len(), count);
    for (ok, output) in results {
        assert!(!ok, "{output}");
        assert!(
            !output.contains("outside\n") && !output.contains("root:"),
            "{output}"
        );
    }
}

#[test]
fn floods_are_bounded() {
    let turns = [
        Turn::run("yes flood"),
        Turn::run("seq 1 1000000; seq 1 1000000 >&2; exit 3"),
        Turn::run("head -c 100000 /dev/zero"),
        Turn::acts((0..40).map(|number| Act::Run(format!("echo {number} >> many")))),
        Turn::text("x".repeat(3 << 20)).pieces(1 << 16),
    ];
    let mut desk = Desk::turns(turns);
    desk.limits.tool_output_bytes = 8 << 10;
    let done = desk.work(Dialect::Responses);
    done.assert_ended(EndReason::Answered, "done");
    assert!(done.end.answer.len() < 300 << 10);
    let results = done.results();
    assert!(
        results[0].1.contains("wrote more than 64 MiB"),
        "{:?}",
        results[0]
    );
    let (ok, output) = results[1];
    assert!(!ok && output.starts_with("1\n2\n") && output.ends_with("1000000\n[exit code 3]"));
    assert!(results[2].0);
    assert_eq!(desk.read("many").lines().count(), 16);
    assert!(results[3 + 20].1.contains("too many calls"));
    for (at, body) in desk.bodies().iter().enumerate() {
        assert!(body.to_string().len() < 200 << 10, "request {at}");
    }
}

#[test]
fn nothing_of_a_command_is_left_when_it_is_over() {
    let nap = nap();
    let desk = Desk::turns([
        Turn::run(format!(
            "{nap} & setsid {nap} & (trap '' TERM HUP; {nap}) & echo on"
        )),
        Turn::acts([call(
            "bash",
            &json!({"command": format!("{nap}; echo never"), "timeout_s": 1}),
        )]),
        Turn::run("exec 1>&- 2>&-; kill -9 $$"),
        Turn::text("Done."),
    ]);
    let began = Instant::now();
    let done = desk.run(Dialect::Chat);
    assert!(began.elapsed() < Duration::from_secs(60));
    done.assert_ended(EndReason::Answered, "done");
    let results = done.results();
    assert_eq!(results[0], (true, "on\n"));
    assert_eq!(
        results[1],
        (false, "[ended after 1 s, which was its time limit]")
    );
    assert_eq!(results[2], (false, "[ended by signal 9]"));
    assert_eq!(
        processes_with(nap.trim_start_matches("sleep ")),
        Vec::<String>::new()
    );
}

#[test]
fn a_failure_is_looked_at_before_the_end() {
    for dialect in Dialect::ALL {
        let desk = Desk::turns([
            Turn::acts([
                Act::Run("false".to_owned()),
                Act::Finish("All is well.".to_owned()),
            ]),
            Turn::acts([Act::Finish("It did not work.".to_owned())]),
        ]);
        let done = desk.work(dialect);
        done.assert_ended(EndReason::Finished, "done");
        assert_eq!(done.end.answer, "It did not work.");
        assert_eq!(done.results()[0], (false, "[exit code 1]"));
    }
}
