use std::collections::BTreeMap;
use std::fmt::Write as _;

use mini_ork_control::recipe::{EdgeKind, Gate, Node, Origin, Recipe, Summary, VerifierSource};
use mini_ork_control::yaml::Mistakes;
use mini_ork_protocol::NodeId;

use super::text::{Style, one_line, paint, plural, table, visible_width};

const NARROWEST_WORDS: usize = 30;
const MOST_MISTAKES: usize = 5;

/// Recipes as a table; what is wrong with broken ones stands below.
pub(crate) fn recipes(summaries: &[Summary], width: Option<usize>) -> String {
    let origin = |summary: &Summary| match &summary.origin {
        Origin::Repository(_) => "repository",
        Origin::Home(_) => "home",
        Origin::Directory(_) => "directory",
        Origin::Bundled => "bundled",
    };
    let names = summaries.iter().map(|summary| visible_width(&summary.name));
    let used = names.max().unwrap_or(0).max("RECIPE".len()) + "repository".len() + 4;
    let room = width.map_or(usize::MAX, |width| {
        width.saturating_sub(used).max(NARROWEST_WORDS)
    });
    let rows: Vec<Vec<String>> = summaries
        .iter()
        .map(|summary| {
            let words = match &summary.mistakes {
                Some(Mistakes(mistakes)) => {
                    let count = plural(mistakes.len(), "mistake");
                    paint(Style::Bad, &format!("✗ {count}"))
                }
                None if summary.shadowed => paint(Style::Dim, "hidden by the one above"),
                None => one_line(&summary.description, room),
            };
            vec![
                paint(Style::Accent, &summary.name),
                origin(summary).to_owned(),
                words,
            ]
        })
        .collect();
    let mut text = table(&["RECIPE", "FROM", "WHAT IT DOES"], &rows);
    for summary in summaries {
        let Some(Mistakes(mistakes)) = &summary.mistakes else {
            continue;
        };
        text.push('\n');
        for mistake in mistakes.iter().take(MOST_MISTAKES) {
            let _ = writeln!(text, "{mistake}");
        }
        if mistakes.len() > MOST_MISTAKES {
            let _ = writeln!(
                text,
                "and {} more: mini-ork recipe validate {}",
                mistakes.len() - MOST_MISTAKES,
                summary.name
            );
        }
    }
    text
}

/// One recipe: its graph, lanes, gates, verifiers and files. `lanes` has the lane of each node that
/// needs one, as far as the configuration gives one.
pub(crate) fn recipe(recipe: &Recipe, lanes: &BTreeMap<String, Option<String>>) -> String {
    let mut text = format!(
        "{} · {} · version {}\n",
        paint(Style::Strong, &recipe.name),
        recipe.origin,
        one_line(&recipe.version, 40)
    );
    if !recipe.description.is_empty() {
        let _ = writeln!(text, "{}", one_line(&recipe.description, 400));
    }
    text.push('\n');
    let rows: Vec<Vec<String>> = recipe
        .nodes
        .iter()
        .map(|node| {
            vec![
                node.id.to_string(),
                node.kind.name().to_owned(),
                lane(node, lanes),
                parents(recipe, node),
                does(node),
                gates(node),
            ]
        })
        .collect();
    text.push_str(&table(
        &["NODE", "TYPE", "LANE", "AFTER", "DOES", "GATES"],
        &rows,
    ));
    for edge in &recipe.edges {
        let _ = match edge.kind {
            EdgeKind::Retries { max_rounds } => writeln!(
                text,
                "when {} finds fault, {} works again, up to {max_rounds}×",
                edge.from, edge.to
            ),
            EdgeKind::EscalatesTo => {
                writeln!(
                    text,
                    "when {} has failed for good, {} runs",
                    edge.from, edge.to
                )
            }
            _ => Ok(()),
        };
    }
    let verifiers: Vec<&str> = recipe
        .contract
        .success_verifiers
        .iter()
        .map(NodeId::as_str)
        .collect();
    text.push('\n');
    if !verifiers.is_empty() {
        let _ = writeln!(text, "needs    a pass of {}", verifiers.join(", "));
    }
    if let Some(budget) = recipe.task.budget_cap_usd {
        let _ = writeln!(text, "budget   ${budget:.2}");
    }
    let files: Vec<&str> = recipe.files.keys().map(String::as_str).collect();
    let _ = writeln!(text, "files    {}", files.join("  "));
    let _ = writeln!(text, "digest   {}", recipe.digest);
    let _ = writeln!(text, "run      mini-ork run {} ./kickoff.md", recipe.name);
    text
}

fn lane(node: &Node, lanes: &BTreeMap<String, Option<String>>) -> String {
    match lanes.get(node.id.as_str()) {
        None => "–".to_owned(),
        Some(Some(lane)) if lane == node.role() => lane.clone(),
        Some(Some(lane)) => format!("{} = {lane}", node.role()),
        Some(None) => format!("{} {}", node.role(), paint(Style::Warn, "(no lane yet)")),
    }
}

fn parents(recipe: &Recipe, node: &Node) -> String {
    let parents: Vec<&str> = recipe
        .edges
        .iter()
        .filter(|edge| edge.to == node.id && edge.kind.orders())
        .map(|edge| edge.from.as_str())
        .collect();
    if parents.is_empty() {
        "–".to_owned()
    } else {
        parents.join(", ")
    }
}

fn does(node: &Node) -> String {
    match (&node.verifier, &node.prompt) {
        (Some(VerifierSource::Tests), _) => "the project's tests".to_owned(),
        (Some(VerifierSource::Typecheck), _) => "the project's type check".to_owned(),
        (Some(VerifierSource::Script(script)), _) => script.clone(),
        (None, Some(prompt)) => prompt.clone(),
        (None, None) => "–".to_owned(),
    }
}

fn gates(node: &Node) -> String {
    let names: Vec<&str> = Gate::ALL
        .iter()
        .filter(|(_, gate)| node.gates.contains(gate))
        .map(|(name, _)| *name)
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use mini_ork_control::recipe::Catalog;

    use super::*;

    #[test]
    fn every_bundled_recipe_is_shown_with_all_its_nodes() {
        let nowhere = Path::new("/nonexistent/home");
        let all = Catalog::new(None, nowhere).load_all().unwrap();
        assert!(all.iter().any(|recipe| recipe.name == "code-fix"));
        for one in all {
            let lanes = one
                .nodes
                .iter()
                .filter(|node| node.kind.uses_lane())
                .map(|node| (node.id.to_string(), None))
                .collect();
            let text = anstream::adapter::strip_str(&recipe(&one, &lanes)).to_string();
            for node in &one.nodes {
                assert!(text.contains(node.id.as_str()), "{text}");
            }
            assert!(text.contains("(no lane yet)"), "{text}");
        }
    }
}
