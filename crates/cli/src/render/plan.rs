use std::fmt::Write as _;

use mini_ork_control::kickoff::Question;
use mini_ork_control::recipe::EdgeKind;
use mini_ork_control::run::Plan;
use mini_ork_node::git::Repository;

use super::text::{Style, one_line, paint, table};
use crate::commands::PlannedSandbox;

/// Most characters of the hosts of a policy.
const WIDTH: usize = 120;

/// What a run would do, with the sandbox that it would have.
pub(crate) fn plan(
    plan: &Plan,
    repository: &Repository,
    questions: &[Question],
    sandbox: Option<&PlannedSandbox>,
) -> String {
    let root = repository.toplevel.as_ref().unwrap_or(&repository.git_dir);
    let mut text = format!(
        "{} · {}\nrepository {} at {}\nworkspace {} · {} at most {} at once\n\n",
        paint(Style::Strong, &plan.recipe),
        one_line(&plan.title, 120),
        root.display(),
        &repository.head.as_str()[..12],
        workspace(&plan.backend, sandbox),
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
    text.push_str(match sandbox {
        Some(_) => "\n1 sandbox would be made; nothing was done\n",
        None => "\n0 sandboxes would be made; nothing was done\n",
    });
    text
}

/// The backend with what its sandbox is made from.
fn workspace(backend: &str, sandbox: Option<&PlannedSandbox>) -> String {
    let mut text = backend.to_owned();
    let Some(sandbox) = sandbox else {
        return text;
    };
    for (name, value) in [("image", &sandbox.image), ("runtime", &sandbox.runtime)] {
        if let Some(value) = value {
            let _ = write!(text, " · {name} {}", one_line(value, WIDTH));
        }
    }
    let _ = write!(
        text,
        " · scope {} · network {}",
        sandbox.scope, sandbox.network
    );
    if !sandbox.network_allow.is_empty() {
        let hosts = sandbox.network_allow.join(", ");
        let _ = write!(text, " ({})", one_line(&hosts, WIDTH));
    }
    text
}
