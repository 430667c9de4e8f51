use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::tree::parse;

const VALID: &str = "version: 1\nnodes:\n  - {name: a, type: planner, n: 1.5}\n  - name: \"b\"\n    gates: [x, 'y']\n    text: |\n      one\n      two\nedges: []\nlast: ~\n";

fn refused(text: &[u8]) -> String {
    parse("f.yaml", text).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn what_would_mean_something_else_is_refused_with_its_line() {
    for (text, expected) in [
        ("a: &x 1\nb: 2", "f.yaml:1  a: an anchor (`&`) stands here"),
        ("a: 1\nb: &x [1]", "f.yaml:2  b: an anchor"),
        ("a: &x 1\nb: *x", "f.yaml:2  b: an alias (`*`) stands here"),
        (
            "a: {k: 1}\nb:\n  <<: {c: 1}",
            "f.yaml:3  b: a merge key (`<<`) stands here",
        ),
        ("a: 1\nb: !!str 2", "f.yaml:2  b: a tag (`!`) stands here"),
        ("a:\n  - !x {b: 1}", "f.yaml:2  a[0]: a tag"),
        ("a: 1\nb: 2\na: 3", "f.yaml:3  a: the key stands twice"),
        (
            "x:\n- {a: 1, a: 2}",
            "f.yaml:2  x[0].a: the key stands twice",
        ),
        ("a: 1\n'a': 3", "f.yaml:2  a: the key stands twice"),
        ("a: 1\n---\nb: 2", "f.yaml:2  a second document starts here"),
        ("? [a]\n: 1", "a key is a list or a map"),
        (": 1", "a key is missing before the `:`"),
        ("a: [1, 2", "is not YAML at column"),
        ("a: 1\n\tb: 2", "found a tab"),
        (
            "a: 1\nb: \"x\0y\"",
            "f.yaml:2  there is a control character",
        ),
        (
            "a: 1\nb: \u{1b}[2J",
            "f.yaml:2  there is a control character",
        ),
        ("", "f.yaml:1  the file is empty"),
        ("# nothing\n", "f.yaml:1  the file is empty"),
    ] {
        let error = refused(text.as_bytes());
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}

#[test]
fn several_mistakes_are_found_at_once() {
    let error = refused(b"a: &x 1\nb: !y 2\na: 3\n");
    assert_eq!(error.lines().count(), 3, "{error}");
}

#[test]
fn size_depth_and_encoding_have_limits() {
    let large = "a: 1\n".to_owned() + &"# filler\n".repeat(130_000);
    assert!(refused(large.as_bytes()).contains("larger than 1 MiB"));
    let deep = "[".repeat(65) + &"]".repeat(65);
    assert!(refused(deep.as_bytes()).contains("nested deeper than 64 levels"));
    let fits = "[".repeat(64) + &"]".repeat(64);
    assert!(parse("f", fits.as_bytes()).is_ok());
    assert!(refused(b"a: 1\nb: \xff").contains("f.yaml:2  the text is not UTF-8"));
    let many = "[".to_owned() + &"1,".repeat(60_000) + "]";
    assert!(refused(many.as_bytes()).contains("more than 50000 values"));
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_fine() {
    assert!(parse("f", "\u{feff}a: 1\r\nb: [2]\r\n".as_bytes()).is_ok());
    let error = refused("a: 1\r\nb: 2\r\nb: 3\r\n".as_bytes());
    assert!(error.contains("f.yaml:3  b:"), "{error}");
}

/// Shapes that make a careless scanner quadratic or recursive, at the largest size.
#[test]
fn hostile_shapes_end_soon() {
    for unit in [
        "[", "{", "- ", "? ", "a: ", "'", "\"", "[a, ", "{a: ", "!", "&a ", "*a ", "|\n", "%",
        "\n ", "- - ", "#", "a\n", "[]: ", ",", "---\n", "a: b: ",
    ] {
        let text = unit.repeat(1_000_000 / unit.len());
        let start = Instant::now();
        let _ = parse("f.yaml", text.as_bytes());
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{unit:?}: {:?}",
            start.elapsed()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::default())]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse("f", &bytes);
    }

    #[test]
    fn no_yaml_like_text_makes_it_panic(text in "[-\\[\\]{}:,?&*!|>'\"%@`# \\n\\tab0.~<=\\\\é]{0,120}") {
        let _ = parse("f", text.as_bytes());
    }

    #[test]
    fn no_mutation_of_a_valid_file_makes_it_panic(
        edits in prop::collection::vec((0..VALID.len(), any::<u8>(), 0..3u8), 1..8)
    ) {
        let mut bytes = VALID.as_bytes().to_vec();
        for (position, byte, kind) in edits {
            let position = position.min(bytes.len().saturating_sub(1));
            match kind {
                0 if !bytes.is_empty() => bytes[position] = byte,
                1 if !bytes.is_empty() => { bytes.remove(position); }
                _ => bytes.insert(position, byte),
            }
        }
        let _ = parse("f", &bytes);
    }
}
