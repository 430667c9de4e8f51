//! `report.md`: what was asked, what changed, on what evidence, who judged, what it cost, and what
//! was not carried.

use std::fmt::Write as _;

use mini_ork_node::text::on_one_line;

use crate::kickoff::Kickoff;
use crate::run::{NodeView, RunView};
use crate::spending::CostView;

/// The report of a run that ended.
pub fn render(view: &RunView, kickoff: &Kickoff) -> String {
    let mut text = String::new();
    heading(&mut text, view);
    asked(&mut text, kickoff);
    changed(&mut text, view);
    judged(&mut text, view);
    cost(&mut text, view);
    left_out(&mut text, view);
    text
}

/// `$0.31`, `$0.31 + unknown`, or `unknown`; what is not known is never shown as zero.
pub fn money(cost_usd: Option<f64>, unknown: bool) -> String {
    match (cost_usd, unknown) {
        (Some(cost), false) => format!("${cost:.2}"),
        (Some(cost), true) => format!("${cost:.2} + unknown"),
        (None, _) => "unknown".to_owned(),
    }
}

/// `41s`, `3m 12s`, `2h 5m`.
pub fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0 => format!("{milliseconds}ms"),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        _ => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
    }
}

fn heading(text: &mut String, view: &RunView) {
    let _ = writeln!(text, "# {}\n", on_one_line(&view.title));
    let _ = write!(text, "**{}**", view.status);
    if let Some(reason) = view.reason {
        let _ = write!(text, " ({})", reason.sentence());
    }
    if let Some(detail) = &view.detail {
        let _ = write!(text, ": {}", on_one_line(detail));
    }
    text.push_str("\n\n");
    let _ = writeln!(text, "- run `{}`, recipe `{}`", view.run, view.recipe);
    let _ = writeln!(text, "- repository `{}`", view.repository);
    let _ = writeln!(text, "- workspace {}", view.isolation);
    if !view.agents_on_host.is_empty() {
        let lanes = view.agents_on_host.join("`, `");
        let _ = writeln!(
            text,
            "- the agent ran on the host, outside of the workspace: `{lanes}`"
        );
    }
    if !view.tools_inside.is_empty() {
        let lanes = view.tools_inside.join("`, `");
        let _ = writeln!(
            text,
            "- the agent ran outside and its tools in the workspace: `{lanes}`"
        );
    }
    if !view.keys_inside.is_empty() {
        let lanes = view.keys_inside.join("`, `");
        let _ = writeln!(text, "- the agents of `{lanes}` held their key themselves");
    }
    if let Some(hint) = &view.hint {
        let _ = writeln!(text, "- next: {hint}");
    }
    text.push('\n');
}

fn asked(text: &mut String, kickoff: &Kickoff) {
    text.push_str("## Asked\n\n");
    let _ = writeln!(text, "{}\n", kickoff.problem.trim());
    list(text, "Done when", &kickoff.definition_of_done);
    list(text, "Verified by", &kickoff.verification);
}

fn changed(text: &mut String, view: &RunView) {
    text.push_str("## Changed\n\n");
    match (&view.branch, &view.result_commit) {
        (Some(branch), Some(commit)) => {
            let _ = writeln!(
                text,
                "Branch `{branch}` at `{commit}`, on base `{}`.\n",
                view.base_commit.as_deref().unwrap_or("unknown")
            );
        }
        _ if view.artifacts.is_empty() => text.push_str("Nothing was published.\n\n"),
        _ => {}
    }
    list(text, "Outputs", &view.artifacts);
    let kept: Vec<String> = view
        .kept
        .iter()
        .map(|kept| format!("`{}` at `{}`", kept.reference, kept.commit))
        .collect();
    list(text, "Kept, though not published", &kept);
}

fn judged(text: &mut String, view: &RunView) {
    text.push_str("## Nodes and evidence\n\n");
    text.push_str("| node | type | lane | state | round | time | cost |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    for node in &view.nodes {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            node.node,
            node.kind,
            lanes(node),
            node.state,
            node.round,
            node.duration_ms.map_or_else(|| "–".to_owned(), duration),
            node_cost(node),
        );
    }
    text.push('\n');
    for node in &view.nodes {
        let Some(summary) = node
            .summary
            .as_deref()
            .filter(|summary| !summary.is_empty())
        else {
            continue;
        };
        let _ = writeln!(text, "- **{}**: {}", node.node, on_one_line(summary));
        for line in &node.evidence {
            let _ = writeln!(text, "  - {}", on_one_line(line));
        }
    }
    text.push('\n');
}

fn cost(text: &mut String, view: &RunView) {
    text.push_str("## Cost\n\n");
    let Some(costs) = &view.costs else {
        let _ = writeln!(text, "{}.\n", money(view.cost_usd, view.cost_unknown));
        return;
    };
    text.push_str("| node | lane | calls | input | from cache | to cache | output | cost |\n");
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    let mut row = |node: &str, lane: &str, cost: &CostView| {
        let calls = match cost.calls {
            0 => "–".to_owned(),
            calls => calls.to_string(),
        };
        let tokens = cost.token_cells().join(" | ");
        let _ = writeln!(
            text,
            "| {node} | {lane} | {calls} | {tokens} | {} |",
            cost.money()
        );
    };
    for part in &costs.lanes {
        row(
            &on_one_line(&part.node),
            &on_one_line(&part.lane),
            &part.cost,
        );
    }
    row("**total**", "", &costs.total);
    text.push('\n');
    if costs.total.calls > 0 {
        text.push_str("Input, cache and output are tokens, as far as vendors told them.\n\n");
    }
}

fn left_out(text: &mut String, view: &RunView) {
    list_under(
        text,
        "## Not carried\n\nThese were in the worktree and are in no commit:",
        &view.not_carried,
    );
    list_under(text, "## Warnings", &view.warnings);
}

/// The lane that did it, and those that could not.
fn lanes(node: &NodeView) -> String {
    let done_by = node.lane.as_deref().unwrap_or("–");
    if node.instead_of.is_empty() {
        return done_by.to_owned();
    }
    format!("{done_by} instead of {}", node.instead_of.join(", "))
}

fn node_cost(node: &NodeView) -> String {
    match (&node.lane, node.cost_usd) {
        (_, Some(cost)) => money(Some(cost), node.cost_unknown),
        (Some(_), None) if node.state != "skipped" && node.duration_ms.is_some() => {
            "unknown".to_owned()
        }
        _ => "–".to_owned(),
    }
}

fn list(text: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    list_under(text, &format!("{title}:"), items);
}

fn list_under(text: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}\n");
    for item in items {
        let _ = writeln!(text, "- {}", on_one_line(item));
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let shown: Vec<String> = [7, 1_000, 59_999, 192_000, 7_500_000]
            .into_iter()
            .map(duration)
            .collect();
        assert_eq!(shown, ["7ms", "1s", "59s", "3m 12s", "2h 5m"]);
    }

    #[test]
    fn unknown_money_is_not_zero() {
        assert_eq!(money(None, true), "unknown");
        assert_eq!(money(Some(0.306), false), "$0.31");
        assert_eq!(money(Some(0.1), true), "$0.10 + unknown");
        assert_eq!(money(Some(0.0), false), "$0.00");
    }
}
