//! How a value may be spelled.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::alphabet::{Alphabet, STANDARD, URL_SAFE};
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, PAD};

use super::SHORTEST;

/// Characters besides letters and digits that encoders of URLs leave as they are: RFC 3986, the one
/// of browsers, that of forms, that of paths, and none at all.
const SPARED: [&[u8]; 5] = [b"-._~", b"-._~!*'()", b"*-._", b"-._~!$&'()*+,;=:@/", b""];

/// All forms of `value`, itself included; none is shorter than [`SHORTEST`].
pub(super) fn of(value: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut forms = BTreeSet::from([value.to_owned()]);
    for alphabet in [&STANDARD, &URL_SAFE] {
        add_base64(value, alphabet, &mut forms);
    }
    for spared in SPARED {
        for hex in [Hex::Upper, Hex::Lower] {
            forms.insert(percent(
                value,
                |byte| byte.is_ascii_alphanumeric() || spared.contains(&byte),
                hex,
            ));
        }
    }
    for hex in [Hex::Upper, Hex::Lower] {
        forms.insert(percent(value, |_| false, hex));
        let form = percent(
            value,
            |byte| byte.is_ascii_alphanumeric() || b"*-._ ".contains(&byte),
            hex,
        );
        // Forms write a space as a plus.
        forms.insert(
            form.iter()
                .map(|byte| if *byte == b' ' { b'+' } else { *byte })
                .collect(),
        );
    }
    if let Ok(text) = std::str::from_utf8(value) {
        add_json(text, &mut forms);
    }
    forms.retain(|form| form.len() >= SHORTEST);
    forms
}

/// The value may begin at any of the three places in a group, and something may follow it.
fn add_base64(value: &[u8], alphabet: &Alphabet, forms: &mut BTreeSet<Vec<u8>>) {
    for before in 0..3 {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(value);
        // Characters that share bits with what comes before or after are not the value's alone.
        let first = (before * 8).div_ceil(6);
        let whole = bytes.len() * 8 / 6;
        for padding in [PAD, NO_PAD] {
            let text = GeneralPurpose::new(alphabet, padding).encode(&bytes);
            for end in [whole, text.len()] {
                if let Some(form) = text.as_bytes().get(first..end) {
                    forms.insert(form.to_owned());
                }
            }
        }
    }
}

fn percent(value: &[u8], is_spared: impl Fn(u8) -> bool, hex: Hex) -> Vec<u8> {
    let mut text = Vec::with_capacity(value.len() * 3);
    for byte in value {
        if is_spared(*byte) {
            text.push(*byte);
        } else {
            let code = match hex {
                Hex::Upper => format!("%{byte:02X}"),
                Hex::Lower => format!("%{byte:02x}"),
            };
            text.extend_from_slice(code.as_bytes());
        }
    }
    text
}

/// Writers of JSON differ in what they escape beyond what they must.
fn add_json(text: &str, forms: &mut BTreeSet<Vec<u8>>) {
    for escape_slash in [false, true] {
        for escape_html in [false, true] {
            for ascii in [None, Some(Hex::Upper), Some(Hex::Lower)] {
                let style = JsonStyle {
                    escape_slash,
                    escape_html,
                    ascii,
                };
                let once = json(text, style);
                forms.insert(json(&once, style).into_bytes());
                forms.insert(once.into_bytes());
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Hex {
    Upper,
    Lower,
}

#[derive(Clone, Copy)]
struct JsonStyle {
    /// `/` as `\/`.
    escape_slash: bool,
    /// `<`, `>` and `&` by their numbers.
    escape_html: bool,
    /// Everything that is not ASCII by its number, in this case.
    ascii: Option<Hex>,
}

fn json(text: &str, style: JsonStyle) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            '\u{8}' => escaped.push_str("\\b"),
            '\u{c}' => escaped.push_str("\\f"),
            '/' if style.escape_slash => escaped.push_str("\\/"),
            '<' | '>' | '&' if style.escape_html => by_number(character, style, &mut escaped),
            control if control < ' ' => by_number(control, style, &mut escaped),
            other if !other.is_ascii() && style.ascii.is_some() => {
                by_number(other, style, &mut escaped);
            }
            other => escaped.push(other),
        }
    }
    escaped
}

fn by_number(character: char, style: JsonStyle, escaped: &mut String) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        // Writing to a string cannot fail.
        let _ = match style.ascii {
            Some(Hex::Upper) => write!(escaped, "\\u{unit:04X}"),
            _ => write!(escaped, "\\u{unit:04x}"),
        };
    }
}
