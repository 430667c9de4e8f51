//! What the tools do for a model that uses them well.

use mini_ork_node::agent::EndReason;
use mini_ork_testkit::{Act, Dialect, Turn};
use serde_json::json;

use super::support::{Desk, call};

/// What the calls give, one after the other.
fn results(desk: impl FnOnce(&Desk), acts: Vec<Act>) -> Vec<(bool, String)> {
    let turns = acts.into_iter().map(|act| Turn::acts([act]));
    let turns: Vec<Turn> = turns.chain([Turn::text("Done.")]).collect();
    let place = Desk::turns(turns);
    desk(&place);
    let done = place.work(Dialect::Chat);
    done.assert_ended(EndReason::Answered, "done");
    let results = done.results().into_iter();
    results.map(|(ok, text)| (ok, text.to_owned())).collect()
}

#[test]
fn files_are_written_read_and_edited() {
    let found = results(
        |_| {},
        vec![
            call(
                "write",
                &json!({"path": "new/deep/a.txt", "content": "one\ntwo\n"}),
            ),
            call("read", &json!({"path": "./new//deep/a.txt"})),
            call(
                "edit",
                &json!({"path": "new/deep/a.txt", "old": "two", "new": "2 & \"two\""}),
            ),
            call(
                "read",
                &json!({"path": "new/deep/a.txt", "offset": 2, "limit": 5, "why": "more"}),
            ),
            call("list", &json!({"recursive": true})),
            call("list", &json!({"path": "new"})),
            call("read", &json!({"path": "none"})),
            call("list", &json!({"path": "calc.py"})),
        ],
    );
    let texts: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts[0], "wrote 8 bytes to `new/deep/a.txt`");
    assert_eq!(texts[1], "     1\tone\n     2\ttwo\n");
    assert_eq!(texts[2], "edited `new/deep/a.txt`");
    assert_eq!(texts[3], "     2\t2 & \"two\"\n");
    assert_eq!(
        texts[4],
        "calc.py (32 bytes)\nnew/\nnew/deep/\nnew/deep/a.txt (14 bytes)\n"
    );
    assert_eq!(texts[5], "new/deep/\n".trim_start_matches("new/"));
    assert!(texts[6].contains("No such file"), "{}", texts[6]);
    assert!(texts[7].contains("Not a directory"), "{}", texts[7]);
    let ok: Vec<bool> = found.iter().map(|(ok, _)| *ok).collect();
    assert_eq!(ok, [true, true, true, true, true, true, false, false]);
}

#[test]
fn lines_are_found() {
    let found = results(
        |desk| {
            for directory in ["src", "target", ".git"] {
                fs_err::create_dir(desk.root().join(directory)).unwrap();
                desk.put(&format!("{directory}/a.rs"), "fn main() {}\n// Main (x)\n");
            }
            desk.put("image", b"main\0main");
            desk.put("latin", b"caf\xe9 main");
            desk.put("long", format!("{}main", "y".repeat(1000)));
            desk.put("huge", vec![b'x'; 3 << 20]);
        },
        vec![
            call("search", &json!({"pattern": "ma[i]n\\b", "path": "src"})),
            call(
                "search",
                &json!({"pattern": "main (", "fixed": true, "ignore_case": true}),
            ),
            call("search", &json!({"pattern": "fn", "path": "target"})),
            call("search", &json!({"pattern": "a", "path": "calc.py"})),
            call("search", &json!({"pattern": "zzz"})),
            call("search", &json!({"pattern": "main"})),
            call("search", &json!({"pattern": "x", "path": "none"})),
            call("search", &json!({"pattern": "(a{1000}){1000}"})),
        ],
    );
    let texts: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts[0], "src/a.rs:1: fn main() {}\n");
    let left_out = "[1 files could not be read or are longer than 2 MiB]\n";
    assert_eq!(texts[1], format!("src/a.rs:2: // Main (x)\n{left_out}"));
    assert_eq!(texts[2], "target/a.rs:1: fn main() {}\n");
    assert!(texts[3].starts_with("calc.py:1: def add(a, b):\n"));
    assert_eq!(texts[4], format!("no match\n{left_out}"));
    assert_eq!(
        texts[5],
        format!(
            "latin:1: caf\u{fffd} main\nlong:1: {} […]\nsrc/a.rs:1: fn main() {{}}\n{left_out}",
            "y".repeat(300)
        )
    );
    assert!(!found[7].0 && texts[7].contains("size limit"));
    assert!(
        !found[6].0 && texts[6].contains("No such file"),
        "{}",
        texts[6]
    );
}

#[test]
fn commands_see_their_place_and_nothing_more() {
    let found = results(
        |_| {},
        vec![
            Act::Run("pwd; echo error >&2; echo out".to_owned()),
            Act::Run("env | grep -v MARKER | sort; cat; ls".to_owned()),
            Act::Run("true".to_owned()),
            Act::Run("printf partial; exit 7".to_owned()),
        ],
    );
    assert!(
        found[0].1.ends_with("/tree\nerror\nout\n"),
        "{}",
        found[0].1
    );
    let environment = &found[1].1;
    assert!(environment.contains("PATH=") && environment.ends_with("calc.py\n"));
    let names = environment.lines().filter_map(|line| line.split_once('='));
    let names: Vec<&str> = names.map(|(name, _)| name).collect();
    assert_eq!(names, ["PATH", "PWD", "SHLVL", "_"]);
    assert_eq!(found[2], (true, "[exit code 0]".to_owned()));
    assert_eq!(found[3], (false, "partial\n[exit code 7]".to_owned()));
}
