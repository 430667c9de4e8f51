//! Variables that files of configuration give to programs.

use crate::yaml::Value;

/// Reads a map of variables; calls `take` for each that may be given. `refused` says what is wrong
/// with a name beyond the rules for all, with its remedy; `secrets` is the remedy for what looks
/// like a secret.
pub(crate) fn variables<'d>(
    value: &Value<'d>,
    refused: impl Fn(&str) -> Option<(&'static str, &'static str)>,
    secrets: &str,
    mut take: impl FnMut(&str, String, &Value<'d>),
) {
    let Some(map) = value.map() else {
        return;
    };
    for (name, value) in map.entries() {
        if !is_name(name) {
            value.mistake(
                "is not the name of a variable",
                "use letters, digits and `_`",
            );
        } else if name.starts_with("MO_") || name.starts_with("MINI_ORK_") {
            value.mistake(
                "is a variable that mini-ork sets itself",
                "use another name",
            );
        } else if let Some((problem, remedy)) = refused(name) {
            value.mistake(problem, remedy);
        } else if is_secret(name) {
            value.mistake(
                "looks like a secret, and this file is no place for one",
                secrets,
            );
        } else if let Some(text) = value.text() {
            take(name, text, &value);
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let ends = ["_KEY", "_TOKEN", "_SECRET"]
        .iter()
        .any(|end| name.ends_with(end));
    ends || ["PASSWORD", "PASSWD", "APIKEY", "CREDENTIAL"]
        .iter()
        .any(|word| name.contains(word))
        || ["KEY", "TOKEN", "SECRET"].contains(&name.as_str())
}
