//! Environment variables: declared in one place, documented, used.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::files::{files_below, numbered, read, report, root, shown};

/// What a generated part of a page begins and ends with.
const GENERATED: (&str, &str) = (
    "<!-- generated from the code: begin -->\n",
    "<!-- generated from the code: end -->\n",
);

#[test]
fn every_variable_is_declared() {
    let declared: BTreeSet<String> = declared_variables()
        .into_iter()
        .map(|variable| variable.name)
        .collect();
    let mut wrong = Vec::new();
    for file in files_below(&["crates", "scripts", "docs", ".ci"]) {
        for (line, text) in numbered(&file) {
            for name in variables_in(&text).difference(&declared) {
                wrong.push(format!("{}:{line}: {name}", shown(&file)));
            }
        }
    }
    report(
        &wrong,
        "variables that crates/cli/src/env_vars.rs does not declare",
    );
}

#[test]
fn every_declared_variable_is_used() {
    let declaration = root().join("crates/cli/src/env_vars.rs");
    let mut used = BTreeSet::new();
    for file in files_below(&["crates", "scripts"]) {
        if file != declaration {
            used.append(&mut variables_in(&read(&file)));
        }
    }
    let unused: Vec<String> = declared_variables()
        .into_iter()
        .map(|variable| variable.name)
        .filter(|name| !used.contains(name))
        .collect();
    report(&unused, "variables that are declared and nowhere used");
}

#[test]
fn the_page_about_the_environment_is_the_code() {
    let page = root().join("docs/environment.md");
    let text = read(&page);
    let variables = declared_variables();
    let mut parts = text.splitn(3, GENERATED.0);
    let mut current = parts.next().unwrap().to_owned();
    let generated = [
        variable_table(variables.iter().filter(|variable| variable.read)),
        variable_table(variables.iter().filter(|variable| !variable.read)) + &passed_variables(),
    ];
    for content in generated {
        let (_, after) = parts
            .next()
            .and_then(|part| part.split_once(GENERATED.1))
            .unwrap_or_else(|| panic!("docs/environment.md lacks the lines {GENERATED:?}"));
        let (begin, end) = GENERATED;
        write!(current, "{begin}\n{content}\n{end}{after}").unwrap();
    }
    if current != text {
        let update = Path::new(env!("CARGO_TARGET_TMPDIR")).join("environment.md");
        fs_err::write(&update, current).unwrap();
        panic!(
            "docs/environment.md is not what the code says; to update it:\n  cp {} docs/environment.md",
            update.display()
        );
    }
}

/// One variable of `env_vars.rs`.
struct Variable {
    name: String,
    about: String,
    read: bool,
}

/// What stands in `variables! { … }`: documentation, then a direction and the name.
fn declared_variables() -> Vec<Variable> {
    let code = read(&root().join("crates/cli/src/env_vars.rs"));
    let (_, list) = code.split_once("\nvariables! {\n").unwrap();
    let (list, _) = list.split_once("\n}\n").unwrap();
    let mut variables = Vec::new();
    let mut about = String::new();
    for line in list.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            about.push_str(text);
        } else if let Some((direction, name)) =
            line.strip_suffix(';').and_then(|line| line.split_once(' '))
        {
            variables.push(Variable {
                name: name.to_owned(),
                about: std::mem::take(&mut about).trim().to_owned(),
                read: matches!(direction, "Read" | "Test"),
            });
        }
    }
    assert!(variables.len() > 10, "the form of env_vars.rs has changed");
    assert!(variables.iter().all(|variable| !variable.about.is_empty()));
    variables
}

fn variable_table<'a>(variables: impl Iterator<Item = &'a Variable>) -> String {
    let mut table = "| variable | meaning |\n|---|---|\n".to_owned();
    for variable in variables {
        writeln!(table, "| `{}` | {} |", variable.name, variable.about).unwrap();
    }
    table
}

/// The variables of the user that programs of a run see, in the groups of the code.
fn passed_variables() -> String {
    let code = read(&root().join("crates/cli/src/settings/environment.rs"));
    let list = |name: &str| {
        let (_, list) = code
            .split_once(&format!("const {name}: &[&str] = &["))
            .unwrap();
        list.split_once("];").unwrap().0.to_owned()
    };
    let mut text =
        "\nOf the user's own environment they see these, when they are set:\n\n".to_owned();
    let mut group = String::new();
    let end_of_group = |group: &mut String| {
        let ended = std::mem::take(group);
        if ended.is_empty() {
            ended
        } else {
            format!("{ended}\n")
        }
    };
    for line in list("PASSED").lines().map(str::trim) {
        if let Some(title) = line.strip_prefix("// ") {
            text.push_str(&end_of_group(&mut group));
            write!(group, "- {}:", title.trim_end_matches('.').to_lowercase()).unwrap();
        } else if let Some(name) = line
            .strip_prefix('"')
            .and_then(|line| line.strip_suffix("\","))
        {
            write!(group, " `{name}`").unwrap();
        }
    }
    text.push_str(&end_of_group(&mut group));
    let prefixes = list("PASSED_PREFIXES");
    let prefixes: Vec<&str> = prefixes.split('"').skip(1).step_by(2).collect();
    for prefix in prefixes {
        writeln!(text, "- all that begin with `{prefix}`").unwrap();
    }
    text
}

/// Names of the form `MO_…` and `MINI_ORK_…`. A mere prefix, as in `MO_*`, is none.
fn variables_in(text: &str) -> BTreeSet<String> {
    let part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let bytes = text.as_bytes();
    let mut found = BTreeSet::new();
    for prefix in ["MO_", "MINI_ORK_"] {
        for (start, _) in text.match_indices(prefix) {
            let inside =
                start > 0 && (part(bytes[start - 1]) || bytes[start - 1].is_ascii_alphabetic());
            let length = bytes[start..]
                .iter()
                .take_while(|byte| part(**byte))
                .count();
            let name = text[start..start + length].trim_end_matches('_');
            if !inside && name.len() > prefix.len() {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

#[test]
fn names_of_variables_are_found() {
    // In two parts, so that they are no names here.
    let (first, second) = (["MO", "_A1"].concat(), ["MINI", "_ORK_B"].concat());
    let text = format!("${first} `{second}`, MO_*, X{first}, MO_");
    let found: Vec<String> = variables_in(&text).into_iter().collect();
    assert_eq!(found, [second, first]);
}
