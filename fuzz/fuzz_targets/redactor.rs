//! However a stream is cut, its redacted form is the same, and no secret is left in it.
#![no_main]

use arbitrary::Arbitrary;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use libfuzzer_sys::fuzz_target;
use mini_ork_node::redact::{MASK, Redactor, SHORTEST};

#[derive(Debug, Arbitrary)]
struct Input {
    secrets: Vec<Vec<u8>>,
    parts: Vec<Part>,
    /// Lengths of the pieces in which the stream comes, over and over.
    pieces: Vec<u8>,
}

#[derive(Debug, Arbitrary)]
enum Part {
    Bytes(Vec<u8>),
    /// A secret in one of its forms.
    Whole(u8, Form),
    /// The beginning of one, which must not hold up what follows.
    Beginning(u8, u8),
}

#[derive(Debug, Arbitrary)]
enum Form {
    Plain,
    Base64,
    Base64After(u8),
    Base64Url,
    Percent,
    Json,
}

fuzz_target!(|input: Input| {
    let secrets: Vec<&Vec<u8>> = input
        .secrets
        .iter()
        .filter(|secret| (SHORTEST..200).contains(&secret.len()))
        // One that looks like the mask cannot be told from it.
        .filter(|secret| !secret.contains(&b'*'))
        .take(8)
        .collect();
    if secrets.is_empty() {
        return;
    }
    let redactor = Redactor::new();
    for secret in &secrets {
        redactor.register(secret).expect("lengths are checked");
    }

    let mut text = Vec::new();
    let mut hidden: Vec<Vec<u8>> = secrets.iter().map(|secret| (*secret).clone()).collect();
    for part in &input.parts {
        match part {
            Part::Bytes(bytes) => text.extend_from_slice(bytes),
            Part::Whole(which, form) => {
                let secret = secrets[usize::from(*which) % secrets.len()];
                let (written, core) = form.of(secret);
                text.extend_from_slice(&written);
                hidden.push(core);
            }
            Part::Beginning(which, length) => {
                let secret = secrets[usize::from(*which) % secrets.len()];
                text.extend_from_slice(&secret[..secret.len().min(usize::from(*length))]);
            }
        }
    }

    let mut whole = Vec::new();
    let mut stream = redactor.stream();
    stream.push(&text, &mut whole);
    stream.finish(&mut whole);

    let mut pieced = Vec::new();
    let mut stream = redactor.stream();
    let mut rest = text.as_slice();
    let mut lengths = input.pieces.iter().cycle();
    while !rest.is_empty() {
        let length = lengths
            .next()
            .map_or(1, |length| usize::from(*length).max(1));
        let (piece, after) = rest.split_at(length.min(rest.len()));
        stream.push(piece, &mut pieced);
        rest = after;
    }
    stream.finish(&mut pieced);
    assert_eq!(whole, pieced, "the cuts of a stream change what comes out");

    for core in hidden {
        if core.len() >= SHORTEST && !core.windows(MASK.len()).any(|part| part == MASK.as_bytes()) {
            let is_left = whole.windows(core.len()).any(|part| part == core);
            assert!(!is_left, "{:?} is left", String::from_utf8_lossy(&core));
        }
    }
});

impl Form {
    /// The form as it is written, and the part of it that is the secret's alone.
    fn of(&self, secret: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let same = |form: Vec<u8>| (form.clone(), form);
        match self {
            Self::Plain => same(secret.to_vec()),
            Self::Base64 => same(STANDARD.encode(secret).into_bytes()),
            Self::Base64Url => same(URL_SAFE_NO_PAD.encode(secret).into_bytes()),
            Self::Base64After(before) => {
                let before = usize::from(before % 40);
                let mut bytes = vec![b'x'; before];
                bytes.extend_from_slice(secret);
                let written = STANDARD.encode(&bytes).into_bytes();
                // Characters that share bits with a neighbour may stay.
                let (first, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
                let core = written[first..end].to_vec();
                (written, core)
            }
            Self::Percent => same(
                secret
                    .iter()
                    .flat_map(|byte| format!("%{byte:02X}").into_bytes())
                    .collect(),
            ),
            Self::Json => match std::str::from_utf8(secret) {
                Ok(text) => {
                    let quoted = serde_json::Value::from(text).to_string();
                    same(quoted.as_bytes()[1..quoted.len() - 1].to_vec())
                }
                Err(_) => same(secret.to_vec()),
            },
        }
    }
}
