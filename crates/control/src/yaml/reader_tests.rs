use std::time::Duration;

use proptest::prelude::*;

use super::{Document, Value};

fn document(text: &str) -> Document {
    Document::parse("f.yaml", text.as_bytes()).unwrap()
}

/// The mistakes that `read` finds in the value of `a`.
fn mistakes_of<T>(value: &str, read: impl Fn(Value<'_>) -> Option<T>) -> String {
    let document = document(&format!("first: 1\na: {value}\n"));
    let result = document.root().required("a").and_then(read);
    assert!(result.is_none(), "{value} was taken");
    document.check().unwrap_err().to_string()
}

fn taken<T>(value: &str, read: impl Fn(Value<'_>) -> Option<T>) -> T {
    let document = document(&format!("a: {value}\n"));
    let result = document.root().required("a").and_then(read).unwrap();
    document.check().unwrap();
    result
}

#[test]
fn bc_72_garbage_limits_are_refused_with_their_line() {
    for value in [
        "0",
        "-1",
        "-0.5",
        ".nan",
        ".inf",
        "-.inf",
        "1e99",
        "5m",
        "\"5\"",
        "NaN",
        "inf",
        "true",
        "[1]",
        "{b: 1}",
        "99999999999999999999",
    ] {
        let minutes = mistakes_of(value, |value| value.minutes());
        assert!(minutes.starts_with("f.yaml:2  a: is "), "{minutes}");
        assert!(minutes.contains("write a number of minutes"), "{minutes}");
        let positive = mistakes_of(value, |value| value.positive(1000.0));
        assert!(positive.starts_with("f.yaml:2  a: is "), "{positive}");
    }
    for value in [
        "1.5",
        "6",
        "-1",
        "1e0",
        "\"3\"",
        "99999999999999999999",
        "five",
    ] {
        let error = mistakes_of(value, |value| value.integer(0, 5));
        assert!(
            error.contains("write a whole number from 0 to 5"),
            "{error}"
        );
    }
    assert!(mistakes_of("0.001", |value| value.minutes()).contains("out of range"));
    assert!(mistakes_of("-1", |value| value.not_negative(5.0)).contains("out of range"));
    assert!(mistakes_of("5m", |value| value.minutes()).contains("is the text `5m`, not a number"));
}

#[test]
fn good_values_are_taken() {
    assert_eq!(
        taken("1.5", |value| value.minutes()),
        Duration::from_secs(90)
    );
    assert_eq!(
        taken("10080", |value| value.minutes()),
        Duration::from_secs(604_800)
    );
    assert_eq!(taken("5", |value| value.integer(0, 5)), 5);
    assert!((taken("2", |value| value.positive(10.0)) - 2.0).abs() < f64::EPSILON);
    assert!(taken("0", |value| value.not_negative(10.0)).abs() < f64::EPSILON);
    assert!(taken("true", |value| value.boolean()));
    assert_eq!(taken("\"yes\"", |value| value.string()), "yes");
    assert_eq!(taken("yes", |value| value.string()), "yes");
    assert_eq!(taken("\"\"", |value| value.string()), "");
    assert_eq!(taken("1.10", |value| value.text()), "1.10");
    assert_eq!(taken("true", |value| value.text()), "true");
    assert_eq!(
        taken("b", |value| value.choice(&[("a", 1), ("b", 2)], &[])),
        2
    );
    assert_eq!(
        taken("[x, \"1\"]", |value| Some(value.strings())),
        ["x", "1"]
    );
}

#[test]
fn other_types_are_named_with_a_remedy() {
    for (value, expected) in [
        ("1", "is the number `1`, not a text (put it in quotes)"),
        (
            "false",
            "is the boolean `false`, not a text (put it in quotes)",
        ),
        ("[a]", "is a list, not a text (write one text)"),
    ] {
        let error = mistakes_of(value, |value| value.string());
        assert!(error.contains(expected), "{error}");
    }
    assert!(mistakes_of("yes", |value| value.boolean()).contains("write `true` or `false`"));
    assert!(mistakes_of("\" \"", |value| value.filled_string()).contains("is blank"));
    assert!(mistakes_of("{b: 1}", |value| value.text()).contains("is a map, not a text"));
    assert!(mistakes_of("1", |value| value.list().pop().map(|_| ())).contains("not a list"));
    assert!(mistakes_of("1", |value| value.map().map(|_| ())).contains("not a map"));
    let choose = |value: Value<'_>| {
        value.choice(
            &[("planner", 1), ("reviewer", 2)],
            &[("reflector", "remove the node")],
        )
    };
    assert!(mistakes_of("planer", choose).contains("(did you mean `planner`?)"));
    assert!(mistakes_of("x", choose).contains("(use one of `planner`, `reviewer`)"));
    let refused = mistakes_of("reflector", choose);
    assert!(
        refused.contains("not carried out by mini-ork (remove the node)"),
        "{refused}"
    );
}

#[test]
fn a_map_reports_missing_empty_unknown_and_refused_keys_at_once() {
    let document = document("one: 1\nsub:\n  versoin: x\n  tools: []\n  name: ~\n  'odd key': 1\n");
    let root = document.root();
    let sub = root.required("sub").and_then(|value| value.map()).unwrap();
    assert!(sub.required("version").is_none());
    assert!(sub.required("name").is_none());
    sub.not_carried_out("tools", "remove it");
    sub.finish();
    assert!(root.optional("other").is_none());
    root.finish();
    let error = document.check().unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(
        lines,
        [
            "f.yaml:1  one: is not a known key (known: `sub`, `other`)",
            "f.yaml:2  sub.version: is missing (write `version: …`)",
            "f.yaml:3  sub.versoin: is not a known key (did you mean `version`?)",
            "f.yaml:4  sub.tools: is not carried out by mini-ork (remove it)",
            "f.yaml:5  sub.name: has no value (write `name: …`)",
            "f.yaml:6  sub.`odd key`: is not a known key (known: `version`, `name`)",
        ]
    );
}

#[test]
fn the_top_must_be_a_map() {
    for text in ["- 1\n", "text\n", "1\n"] {
        let error = Document::parse("f.yaml", text.as_bytes())
            .unwrap_err()
            .to_string();
        assert!(error.contains("f.yaml:1  the file is not a map"), "{error}");
    }
}

proptest! {
    #[test]
    fn no_value_makes_an_accessor_panic(text in "[-\\[\\]{}:,'\" \\nabe0.~]{0,60}") {
        if let Ok(document) = Document::parse("f", format!("a: {text}").as_bytes()) {
            let root = document.root();
            if let Some(value) = root.required("a") {
                let _ = (value.string(), value.text(), value.boolean(), value.integer(1, 2));
                let _ = (value.positive(1.0), value.minutes(), value.list(), value.map());
                let _ = value.choice(&[("x", ())], &[]);
            }
            root.finish();
        }
    }
}
