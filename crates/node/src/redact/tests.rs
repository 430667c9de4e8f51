use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use proptest::prelude::*;

use super::*;

/// Has everything that some encoder treats in a way of its own.
const SECRET: &str = "sk-\u{e9}/\"q\" <a+b>&\\~\u{1f511}?>\u{ff}0=";

fn redactor(values: &[&[u8]]) -> Redactor {
    let redactor = Redactor::new();
    for value in values {
        redactor.register(value).unwrap();
    }
    redactor
}

fn text(redactor: &Redactor, input: &str) -> String {
    String::from_utf8(redactor.redact(input.as_bytes())).unwrap()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window == needle)
}

#[test]
fn a_value_is_masked_wherever_it_is() {
    let redactor = redactor(&[b"SENTINEL"]);
    assert_eq!(text(&redactor, "SENTINEL"), "***");
    assert_eq!(text(&redactor, "a SENTINEL, SENTINEL."), "a ***, ***.");
    assert_eq!(text(&redactor, "SENTINE L SENTINE"), "SENTINE L SENTINE");
    assert_eq!(text(&redactor, ""), "");
    assert_eq!(text(&Redactor::new(), "SENTINEL"), "SENTINEL");
}

#[test]
fn a_value_that_is_a_form_of_another_has_forms_of_its_own() {
    let inner = STANDARD.encode("SENTINEL");
    let outer = STANDARD.encode(&inner);
    let redactor = redactor(&[b"SENTINEL"]);
    assert_eq!(text(&redactor, &inner), "***");
    assert_eq!(text(&redactor, &outer), outer);
    redactor.register(inner.as_bytes()).unwrap();
    assert_eq!(text(&redactor, &outer), "***");
}

#[test]
fn overlapping_values_leave_no_rest() {
    let redactor = redactor(&[b"abcdef", b"defghi", b"cdef", b"abcdefXY"]);
    assert_eq!(text(&redactor, "-abcdefghi-"), "-***-");
    assert_eq!(text(&redactor, "-abcdefX-"), "-***X-");
    assert_eq!(text(&redactor, "-abcdefXY-"), "-***-");
    assert_eq!(text(&redactor, "cdefdefghi"), "***");
}

#[test]
fn bc_42_base64_is_masked_in_both_alphabets_at_every_alignment() {
    let redactor = redactor(&[SECRET.as_bytes()]);
    let engines = [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD];
    for engine in engines {
        for before in 0..7 {
            for after in 0..4 {
                let mut plain = vec![b'x'; before];
                plain.extend_from_slice(SECRET.as_bytes());
                plain.extend(vec![b'y'; after]);
                let encoded = engine.encode(&plain);
                let shown = text(&redactor, &format!("<{encoded}>"));
                // Whole groups before and after, the characters shared with them, and the mask.
                let groups = before / 3 * 4 + after / 3 * 4;
                assert!(shown.contains("***"), "{before} {after}: {shown}");
                assert!(shown.len() <= groups + 16, "{before} {after}: {shown}");
                if before % 3 == 0 && after == 0 {
                    let kept = &encoded[..before / 3 * 4];
                    assert_eq!(shown, format!("<{kept}***>"));
                }
            }
        }
    }
}

#[test]
fn bc_42_percent_encoding_is_masked_in_both_cases() {
    let redactor = redactor(&[b"k y/\xc3\xa9~*'+=z"]);
    for encoded in [
        "k%20y%2F%C3%A9~%2A%27%2B%3Dz",
        "k%20y%2f%c3%a9~%2a%27%2b%3dz",
        "k%20y%2F%C3%A9~*'%2B%3Dz",
        "k+y%2F%C3%A9%7E*%27%2B%3Dz",
        "k%20y/%C3%A9~*'+=z",
        "%6B%20%79%2F%C3%A9%7E%2A%27%2B%3D%7A",
    ] {
        assert_eq!(text(&redactor, &format!("?q={encoded}&")), "?q=***&");
    }
}

#[test]
fn bc_42_json_strings_are_masked_once_and_twice_escaped() {
    let secret = "p\"w\\/<\u{e9}\u{1f511}\n\u{1}";
    let redactor = redactor(&[secret.as_bytes()]);
    let once = serde_json::to_string(secret).unwrap();
    assert_eq!(text(&redactor, &once), "\"***\"");
    let twice = serde_json::to_string(&once).unwrap();
    assert_eq!(text(&redactor, &twice), "\"\\\"***\\\"\"");
    for other in [
        r#"p\"w\\\/<é🔑\n\u0001"#,
        r#"p\"w\\/\u003cé🔑\n\u0001"#,
        r#"p\"w\\/<\u00e9\ud83d\udd11\n\u0001"#,
        r#"p\"w\\/<\u00E9\uD83D\uDD11\n\u0001"#,
    ] {
        assert_eq!(text(&redactor, other), "***", "{other}");
    }
}

#[test]
fn values_that_would_be_found_everywhere_are_refused() {
    let redactor = Redactor::new();
    assert!(matches!(
        redactor.register(b"abc"),
        Err(RegisterError::TooShort)
    ));
    assert!(matches!(
        redactor.register(b""),
        Err(RegisterError::TooShort)
    ));
    let long = vec![b'a'; LONGEST + 1];
    assert!(matches!(
        redactor.register(&long),
        Err(RegisterError::TooLong)
    ));
    assert_eq!(text(&redactor, "abc"), "abc");
    redactor.register(b"abcd").unwrap();
    assert_eq!(text(&redactor, "abcd"), "***");
}

#[test]
fn text_without_a_beginning_of_a_secret_passes_at_once() {
    let redactor = redactor(&[b"SENTINEL"]);
    let mut stream = redactor.stream();
    let mut output = Vec::new();
    stream.push(b"data: 1\n\n", &mut output);
    assert_eq!(output, b"data: 1\n\n");
    stream.push(b"SENT", &mut output);
    assert_eq!(output, b"data: 1\n\n");
    stream.push(b"IMENT\n", &mut output);
    assert_eq!(output, b"data: 1\n\nSENTIMENT\n");
    stream.push(b"SENTINE", &mut output);
    stream.finish(&mut output);
    assert_eq!(output, b"data: 1\n\nSENTIMENT\nSENTINE");
}

#[test]
fn bc_43_a_value_that_is_registered_late_counts_in_open_streams() {
    let redactor = redactor(&[b"SENTINEL"]);
    let mut early = redactor.stream();
    let mut output = Vec::new();
    early.push(b"before SENTI", &mut output);
    redactor.register(b"SENTI-late").unwrap();
    early.push(b"-la", &mut output);
    early.push(b"te SENTINEL", &mut output);
    early.finish(&mut output);
    assert_eq!(output, b"before *** ***");

    let unaware = Redactor::new();
    let mut stream = unaware.clone().stream();
    let mut output = Vec::new();
    stream.push(b"x", &mut output);
    unaware.register(b"SENTINEL").unwrap();
    stream.push(b"SENTINEL", &mut output);
    stream.finish(&mut output);
    assert_eq!(output, b"x***");
}

#[test]
fn a_redactor_shows_nothing_of_what_it_knows() {
    let redactor = redactor(&[b"SENTINEL"]);
    let mut stream = redactor.stream();
    stream.push(b"SENTI", &mut Vec::new());
    let shown = format!("{redactor:?} {stream:?}");
    assert!(
        !shown.contains("SENT") && !shown.contains("83, 69"),
        "{shown}"
    );
}

#[test]
fn a_stream_of_beginnings_takes_linear_time() {
    // Each byte is the beginning of the secret and of what could follow: what is kept back is as
    // long as it can be, for every byte. Quadratic work would take hours.
    let secret = vec![b'a'; 20_000];
    let redactor = redactor(&[&[&secret[..], b"b"].concat()]);
    let mut stream = redactor.stream();
    let mut output = Vec::new();
    let input = vec![b'a'; 2 << 20];
    for piece in input.chunks(4096) {
        stream.push(piece, &mut output);
    }
    stream.finish(&mut output);
    assert_eq!(output, input);
}

proptest! {
    #[test]
    fn any_cut_gives_what_the_whole_gives(
        values in proptest::collection::vec("[ab/+]{4,7}", 1..4),
        input in proptest::collection::vec("[ab/+]{0,9}|%2F|%2B|\\\\/", 0..12),
        cuts in proptest::collection::vec(0_usize..5, 1..40),
    ) {
        let values: Vec<&[u8]> = values.iter().map(String::as_bytes).collect();
        let redactor = redactor(&values);
        let input = input.concat();
        let whole = redactor.redact(input.as_bytes());
        let mut stream = redactor.stream();
        let mut output = Vec::new();
        let mut rest = input.as_bytes();
        for cut in cuts.iter().cycle().take(10_000) {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            stream.push(piece, &mut output);
            rest = after;
        }
        stream.push(rest, &mut output);
        stream.finish(&mut output);
        prop_assert_eq!(&output, &whole);
        for value in values {
            for form in forms::of(value) {
                prop_assert!(!contains(&whole, &form));
            }
        }
    }

    #[test]
    fn no_form_survives_in_any_surroundings(
        value in proptest::collection::vec(any::<u8>().prop_filter("the mask's own", |byte| *byte != b'*'), 4..40),
        before in proptest::collection::vec(any::<u8>(), 0..20),
        after in proptest::collection::vec(any::<u8>(), 0..20),
        cut in 1_usize..9,
    ) {
        let redactor = redactor(&[&value]);
        for form in forms::of(&value) {
            if form.contains(&b'*') {
                continue;
            }
            let input = [&before[..], &form, &after].concat();
            let mut stream = redactor.stream();
            let mut output = Vec::new();
            for piece in input.chunks(cut) {
                stream.push(piece, &mut output);
            }
            stream.finish(&mut output);
            prop_assert!(!contains(&output, &form));
        }
    }

    #[test]
    fn what_holds_no_secret_is_unchanged(input in proptest::collection::vec(any::<u8>(), 0..300), cut in 1_usize..20) {
        let redactor = redactor(&[b"a value that is nowhere"]);
        let mut stream = redactor.stream();
        let mut output = Vec::new();
        for piece in input.chunks(cut) {
            stream.push(piece, &mut output);
        }
        stream.finish(&mut output);
        prop_assert_eq!(output, input);
    }
}
