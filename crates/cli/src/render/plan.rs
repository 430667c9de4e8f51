use std::fmt::Write as _;

use mini_ork_control::kickoff::Question;
use mini_ork_control::recipe::EdgeKind;
use mini_ork_control::run::Plan;
use mini_ork_node::git::Repository;

use super::text::{Style, one_line, paint, table};

/// What a run would do.
pub(crate) fn plan(plan: &Plan, repository: &Repository, questions: &[Question]) -> String {
    let root = repository.toplevel.as_ref().unwrap_or(&repository.git_dir);
    let mut text = format!(
        "{} · {}\nrepository {} at {}\nworkspace {} · {} at most {} at once\n\n",
        paint(Style::Strong, &plan.recipe),
        one_line(&plan.title, 120),
        root.display(),
        &repository.head.as_str()[..12],
        plan.backend,
        if plan.mutates() {
            "a worktree of its own,"
        } else {
            "in place, changes nothing,"
        },
        plan.limits.max_parallel,
    );
    let rows: Vec<Vec<String>> = plan
        .nodes
        .iter()
        .map(|planned| {
            let node = &planned.node;
            let after: Vec<&str> = plan
                .edges
                .iter()
                .filter(|edge| edge.to == node.id && edge.kind.orders())
                .map(|edge| edge.from.as_str())
                .collect();
            let back: Vec<String> = plan
                .edges
                .iter()
                .filter(|edge| edge.from == node.id)
                .filter_map(|edge| match edge.kind {
                    EdgeKind::Retries { max_rounds } => {
                        Some(format!("back to {} up to {max_rounds}×", edge.to))
                    }
                    _ => None,
                })
                .collect();
            vec![
                node.id.to_string(),
                node.kind.name().to_owned(),
                planned
                    .lane
                    .as_ref()
                    .map_or("–", |lane| lane.name.as_str())
                    .to_owned(),
                if after.is_empty() {
                    "–".to_owned()
                } else {
                    after.join(", ")
                },
                back.join(", "),
            ]
        })
        .collect();
    text.push_str(&table(&["NODE", "TYPE", "LANE", "AFTER", ""], &rows));
    for question in questions {
        let _ = write!(
            text,
            "\n{} {} (--answer {}=TEXT)",
            paint(Style::Warn, "open:"),
            question.text,
            question.id
        );
    }
    text.push_str("\n0 sandboxes would be made; nothing was done\n");
    text
}
