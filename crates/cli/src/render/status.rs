use std::fmt::Write as _;

use mini_ork_control::report::duration;
use mini_ork_control::run::{NodeView, RunView, now_ms};

use super::summary::summary;
use super::text::{Style, ago, mark, one_line, paint, table, visible_width};

const NARROWEST_WORDS: usize = 24;
/// What a node waits for is cut before what it says is.
const WIDEST_PARENTS: usize = 32;
const AFTER: usize = 5;
const MOST_EVIDENCE: usize = 8;

/// What is known of a node that runs now.
#[derive(Debug, Clone)]
pub(crate) struct LiveNode {
    pub(crate) node: String,
    pub(crate) elapsed_ms: Option<u64>,
    /// The last line that it wrote.
    pub(crate) said: String,
}

/// A run at any time, with its graph; at most `width` columns wide where that is known.
pub(crate) fn status(view: &RunView, live: &[LiveNode], width: Option<usize>) -> String {
    let mut text = format!(
        "{} · run {} · {}\n{} · {} · started {}\n",
        paint(Style::Strong, &view.recipe),
        paint(Style::Accent, &view.run),
        one_line(&view.title, 100),
        one_line(&view.repository, 200),
        view.backend,
        ago(now_ms(), view.started_at_ms),
    );
    if !view.nodes.is_empty() {
        text.push('\n');
        text.push_str(&graph(view, live, width));
        text.push('\n');
    }
    for node in view.nodes.iter().filter(|node| node.state == "failed") {
        evidence(&mut text, node);
    }
    text.push_str(&summary(view));
    text
}

fn graph(view: &RunView, live: &[LiveNode], width: Option<usize>) -> String {
    const HEADER: [&str; 7] = ["  NODE", "STATE", "ROUND", "TIME", "LANE", "AFTER", "SAID"];
    let interrupted = view.status == "interrupted";
    let mut rows = Vec::with_capacity(view.nodes.len());
    let mut words = Vec::with_capacity(view.nodes.len());
    for node in &view.nodes {
        let now = live.iter().find(|live| live.node == node.node);
        // Nobody drives the run; whether its program still works is for `recover` to find out.
        let state = match node.state.as_str() {
            "running" if interrupted => "interrupted",
            "waiting" if view.terminal().is_some() => "not run",
            state => state,
        };
        let elapsed = match now {
            Some(now) if !interrupted => now.elapsed_ms,
            _ => node.duration_ms,
        };
        rows.push(vec![
            format!("  {} {}", mark(state), node.node),
            state.to_owned(),
            rounds(node),
            elapsed.map_or_else(String::new, duration),
            node.lane.clone().unwrap_or_default(),
            one_line(&node.after.join(", "), WIDEST_PARENTS),
        ]);
        words.push(match now {
            Some(now) => now.said.clone(),
            None => node.summary.clone().unwrap_or_default(),
        });
    }
    // A column that is empty for all nodes tells nothing.
    let mut kept: Vec<usize> = (0..HEADER.len() - 1)
        .filter(|column| rows.iter().any(|row| !row[*column].is_empty()))
        .collect();
    let column_width = |column: usize| {
        let widest = rows.iter().map(|row| visible_width(&row[column])).max();
        widest.unwrap_or(0).max(HEADER[column].len()) + 2
    };
    let mut used: usize = kept.iter().map(|column| column_width(*column)).sum();
    if width.is_some_and(|width| width < used + NARROWEST_WORDS) && kept.contains(&AFTER) {
        used -= column_width(AFTER);
        kept.retain(|column| *column != AFTER);
    }
    let mut header: Vec<&str> = kept.iter().map(|column| HEADER[*column]).collect();
    let room = width.map_or(100, |width| width.saturating_sub(used).max(NARROWEST_WORDS));
    header.push(HEADER[HEADER.len() - 1]);
    let rows: Vec<Vec<String>> = rows
        .iter()
        .zip(&words)
        .map(|(row, words)| {
            kept.iter()
                .map(|column| row[*column].clone())
                .chain([one_line(words, room)])
                .collect()
        })
        .collect();
    table(&header, &rows)
}

fn evidence(text: &mut String, node: &NodeView) {
    if node.evidence.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "{}",
        paint(Style::Dim, &format!("{} found", node.node))
    );
    for found in node.evidence.iter().take(MOST_EVIDENCE) {
        let _ = writeln!(text, "  {}", one_line(found, 200));
    }
    if node.evidence.len() > MOST_EVIDENCE {
        let _ = writeln!(
            text,
            "  and {} more lines in report.md",
            node.evidence.len() - MOST_EVIDENCE
        );
    }
    text.push('\n');
}

fn rounds(node: &NodeView) -> String {
    match (node.round, node.attempt) {
        (1, 1) => String::new(),
        (round, 1) => format!("{round}"),
        (round, attempt) => format!("{round}, attempt {attempt}"),
    }
}
