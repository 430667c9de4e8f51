use std::fmt::Write as _;

use mini_ork_control::report::{duration, money};
use mini_ork_control::run::{NodeView, RunView, now_ms};
use mini_ork_control::spending::CostView;

use super::text::{Style, one_line, paint, plural};

/// Columns of what stands before each line, which may be the name of a node.
const LABEL: usize = 10;

/// The end of a run, for people.
pub(crate) fn summary(view: &RunView) -> String {
    let mut text = headline(view);
    for node in view.nodes.iter().filter(|node| is_judge(node)) {
        if let Some(said) = node.summary.as_deref().filter(|said| !said.is_empty()) {
            line(&mut text, &node.node, &one_line(said, 160));
        }
    }
    if view.nodes.iter().any(|node| node.duration_ms.is_some()) {
        let elapsed = view
            .ended_at_ms
            .unwrap_or_else(now_ms)
            .saturating_sub(view.started_at_ms);
        let spent = match &view.costs {
            Some(costs) => spent(&costs.total),
            None => money(view.cost_usd, view.cost_unknown),
        };
        line(
            &mut text,
            "cost",
            &format!("{spent} · {}", duration(elapsed)),
        );
    }
    for node in view.nodes.iter().filter(|node| !node.instead_of.is_empty()) {
        let before = node.instead_of.join(", ");
        let lane = node.lane.as_deref().unwrap_or("–");
        line(
            &mut text,
            "lane",
            &format!("{} was given to {lane} instead of {before}", node.node),
        );
    }
    if !view.agents_on_host.is_empty() {
        let lanes = view.agents_on_host.join(", ");
        let text_of = format!("the agent of {lanes} ran on the host, outside of the workspace");
        line(&mut text, "agents", &text_of);
    }
    if !view.keys_inside.is_empty() {
        line(
            &mut text,
            "keys",
            &format!(
                "the agents of {} hold theirs themselves (inject: env)",
                view.keys_inside.join(", ")
            ),
        );
    }
    for kept in &view.kept {
        line(
            &mut text,
            "kept",
            &format!(
                "the work is on {}     (mini-ork diff {})",
                kept.reference, view.run
            ),
        );
    }
    for artifact in &view.artifacts {
        line(
            &mut text,
            "output",
            &format!("{}/{artifact}", view.directory),
        );
    }
    for question in &view.questions {
        line(&mut text, "open", &one_line(question, 400));
    }
    // What the project ignores is expected to stay behind; the report lists it all the same.
    let left_out = view
        .not_carried
        .iter()
        .filter(|entry| !entry.ends_with("(ignored)"))
        .count();
    if left_out > 0 {
        let paths = plural(left_out, "path");
        line(
            &mut text,
            "left out",
            &format!("{paths} that no commit carries (report.md)"),
        );
    }
    for warning in &view.warnings {
        line(&mut text, "note", &one_line(warning, 400));
    }
    next_steps(&mut text, view);
    text
}

fn headline(view: &RunView) -> String {
    let word = match view.status.as_str() {
        good @ "published" => paint(Style::Good, good),
        open @ ("running" | "interrupted" | "blocked") => paint(Style::Warn, open),
        bad => paint(Style::Bad, bad),
    };
    let mut text = format!("{word} · run {}", view.run);
    match (&view.branch, &view.detail) {
        (Some(branch), _) => {
            let files: u64 = publisher_files(view);
            let _ = write!(text, " · branch {}", paint(Style::Accent, branch));
            if files > 0 {
                let _ = write!(text, " · {files} file{}", if files == 1 { "" } else { "s" });
            }
        }
        (None, Some(detail)) => {
            let _ = write!(text, " · {}", one_line(detail, 300));
        }
        (None, None) => {}
    }
    if let Some(reason) = view.reason {
        let _ = write!(
            text,
            "\n{} {} ({reason}){}",
            paint(Style::Dim, &format!("{:LABEL$}", "why")),
            reason.sentence(),
            logs_of_failed(view),
        );
    }
    text.push('\n');
    text
}

fn next_steps(text: &mut String, view: &RunView) {
    let run = &view.run;
    match view.status.as_str() {
        "published" if view.branch.is_some() => {
            let base = view
                .base_commit
                .as_deref()
                .and_then(|commit| commit.get(..12))
                .unwrap_or("HEAD");
            let branch = view.branch.as_deref().unwrap_or_default();
            line(
                text,
                "look",
                &format!("git diff {base} {branch}     take  mini-ork apply {run}"),
            );
        }
        "failed" | "cancelled" | "interrupted" => {
            if let Some(hint) = &view.hint {
                line(text, "next", hint);
            }
        }
        "running" => line(
            text,
            "next",
            &format!("mini-ork logs {run} -f     mini-ork kill {run}"),
        ),
        "blocked" => line(
            text,
            "next",
            "add the answer to the kickoff, or give it with --answer ID=TEXT, and run again",
        ),
        _ => {}
    }
    let report = format!("{}/report.md", view.directory);
    let more = match view.status.as_str() {
        // Neither has a report yet.
        "running" | "interrupted" | "blocked" => format!("mini-ork status {run}"),
        _ => format!("mini-ork status {run}     {report}"),
    };
    line(text, "more", &more);
}

/// Where to read what the node that failed first wrote.
fn logs_of_failed(view: &RunView) -> String {
    let failed = view
        .nodes
        .iter()
        .find(|node| node.state == "failed" && node.directory.is_some());
    failed.map_or_else(String::new, |node| {
        format!("     (mini-ork logs {} {})", view.run, node.node)
    })
}

fn publisher_files(view: &RunView) -> u64 {
    view.nodes
        .iter()
        .filter(|node| node.kind == "publisher")
        .filter_map(|node| node.published_files)
        .sum()
}

/// Money, and what it was spent on.
fn spent(total: &CostView) -> String {
    let money = total.money();
    if total.calls == 0 {
        return money;
    }
    let [input, from_cache, to_cache, output] = total.token_cells();
    let calls = plural(usize::try_from(total.calls).unwrap_or(usize::MAX), "call");
    format!(
        "{money} · {calls}, tokens: {input} in, {from_cache} from cache, {to_cache} to cache, \
         {output} out"
    )
}

fn is_judge(node: &NodeView) -> bool {
    matches!(node.kind.as_str(), "verifier" | "reviewer") || node.state == "failed"
}

fn line(text: &mut String, label: &str, rest: &str) {
    let label = format!("{:LABEL$}", one_line(label, LABEL));
    let _ = writeln!(text, "{} {rest}", paint(Style::Dim, &label));
}
