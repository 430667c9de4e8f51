//! Pages: every link leads somewhere, and everything has its page.

use std::collections::BTreeSet;

use super::files::{all_files, read, report, shown};

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for file in all_files() {
        if file.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        for (line, link) in links(&read(&file)) {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() {
                file.clone()
            } else {
                file.parent().unwrap().join(path)
            };
            let leads =
                target.exists() && (anchor.is_empty() || anchors(&read(&target)).contains(anchor));
            if !leads {
                broken.push(format!("{}:{line}: {link}", shown(&file)));
            }
        }
    }
    report(&broken, "links that lead nowhere");
}

/// Targets of links to files of this repository, with their lines.
fn links(markdown: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (line, text) in (1..).zip(markdown.lines()) {
        if text.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Every second piece between backticks is code.
        let prose: String = text.split('`').step_by(2).collect();
        for (at, _) in prose.match_indices("](") {
            let Some((target, _)) = prose[at + 2..].split_once(')') else {
                continue;
            };
            let outside = ["https://", "http://", "mailto:"]
                .iter()
                .any(|scheme| target.starts_with(scheme));
            if !outside {
                found.push((line, target.to_owned()));
            }
        }
    }
    found
}

/// The anchors that a page's headings have.
fn anchors(markdown: &str) -> BTreeSet<String> {
    markdown
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|character| character.is_alphanumeric() || " -_".contains(*character))
                .map(|character| if character == ' ' { '-' } else { character })
                .collect()
        })
        .collect()
}

#[test]
fn links_and_anchors_are_found() {
    let markdown = "[a](b.md#c) `[no](x)` [w](https://e.org)\n```\n[no](y)\n```\n[d](#e)";
    let expected = [(1, "b.md#c".to_owned()), (5, "#e".to_owned())];
    assert_eq!(links(markdown), expected);
    let found = anchors("# A b\n## `c`: d-e!");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a-b", "c-d-e"]);
}
