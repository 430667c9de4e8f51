//! The live display of a run, as text for a terminal of a given size.

use std::fmt::Write as _;

use mini_ork_control::report::duration;

use super::text::{Style, mark, one_line, paint};

const NARROWEST_NAME: usize = 8;
/// A longer name is cut, so that one node does not push what all say off the screen.
const WIDEST_NAME: usize = 24;
const TURNS: [&str; 8] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧"];
/// How long a sign of the wheel stays.
const TURN_MS: u64 = 200;

/// A node as it is shown.
#[derive(Debug, Clone)]
pub(super) struct GraphRow {
    pub(super) name: String,
    /// `waiting`, `running`, `done`, `skipped` or `failed`.
    pub(super) state: &'static str,
    pub(super) time_ms: Option<u64>,
    pub(super) lane: String,
    /// What it said last, or what came of it.
    pub(super) words: String,
}

/// Columns and lines of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) lines: usize,
}

/// The rows and a footer. No line is as wide as the terminal, so none is wrapped; when there are
/// more rows than lines, those that tell least are left out.
pub(super) fn frame(rows: &[GraphRow], footer: &str, size: Size) -> String {
    let names = rows.iter().map(|row| row.name.chars().count());
    let name_width = names.max().unwrap_or(0).clamp(
        NARROWEST_NAME,
        WIDEST_NAME.min(size.columns / 3).max(NARROWEST_NAME),
    );
    let lanes = rows.iter().map(|row| row.lane.chars().count());
    // A lane is worth its column only where there is room.
    let lane_width = if size.columns >= 80 {
        lanes.max().unwrap_or(0).min(20)
    } else {
        0
    };
    let shown = visible(rows, size.lines.saturating_sub(5).max(1));
    let mut text = String::new();
    for row in &shown {
        let _ = writeln!(text, "{}", line(row, name_width, lane_width, size.columns));
    }
    let left_out = rows.len() - shown.len();
    if left_out > 0 {
        let _ = writeln!(
            text,
            "  {}",
            paint(Style::Dim, &format!("and {left_out} more nodes"))
        );
    }
    let _ = write!(
        text,
        "\n{}",
        one_line(footer, size.columns.saturating_sub(1))
    );
    text
}

/// At most `room` rows in their order: those that run or have failed before those that wait, and
/// those before the ones that are done.
fn visible(rows: &[GraphRow], room: usize) -> Vec<&GraphRow> {
    let mut ranked: Vec<(usize, &GraphRow)> = rows.iter().enumerate().collect();
    ranked.sort_by_key(|(_, row)| match row.state {
        "running" | "failed" => 0,
        "waiting" => 1,
        _ => 2,
    });
    ranked.truncate(room);
    ranked.sort_by_key(|(position, _)| *position);
    ranked.into_iter().map(|(_, row)| row).collect()
}

fn line(row: &GraphRow, name_width: usize, lane_width: usize, columns: usize) -> String {
    let name = one_line(&row.name, name_width);
    let sign = match (row.state, row.time_ms) {
        ("running", Some(time)) => {
            let turn = (time / TURN_MS) as usize % TURNS.len();
            paint(Style::Accent, TURNS[turn])
        }
        (state, _) => mark(state),
    };
    let time = row.time_ms.map_or_else(String::new, duration);
    let mut text = format!("  {name:name_width$}  {sign} {time:>7}");
    let mut used = 2 + name_width + 2 + 1 + 1 + 7;
    if lane_width > 0 {
        let lane = one_line(&row.lane, lane_width);
        let _ = write!(
            text,
            "  {}",
            paint(Style::Dim, &format!("{lane:lane_width$}"))
        );
        used += 2 + lane_width;
    }
    let room = columns.saturating_sub(used + 3);
    if room > 0 && !row.words.is_empty() {
        let words = one_line(&row.words, room);
        let words = match row.state {
            "running" => paint(Style::Dim, &words),
            _ => words,
        };
        let _ = write!(text, "  {words}");
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, state: &'static str) -> GraphRow {
        GraphRow {
            name: name.to_owned(),
            state,
            time_ms: (state != "waiting").then_some(61_000),
            lane: "claude-sonnet".to_owned(),
            words: "edits src/page.rs \u{1b}[2J and says a lot about it, line after line".repeat(3),
        }
    }

    fn plain(rows: &[GraphRow], columns: usize, lines: usize) -> String {
        let text = frame(rows, "spent $0.13 · Ctrl-C stops", Size { columns, lines });
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn no_line_reaches_the_edge_and_nothing_controls_the_terminal() {
        let rows = [
            row(
                "implement_a_very_long_name_indeed_of_sixty_four_characters",
                "running",
            ),
            row("b", "done"),
        ];
        for columns in [20, 40, 79, 80, 100, 200] {
            let text = plain(&rows, columns, 24);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest < Some(columns.max(23)), "{columns}:\n{text}");
            assert!(!text.contains('\u{1b}'), "{text}");
        }
    }

    #[test]
    fn a_large_graph_shows_what_runs() {
        let mut rows: Vec<GraphRow> = (0..40)
            .map(|number| row(&format!("d{number}"), "done"))
            .collect();
        rows.push(row("now", "running"));
        rows.push(row("later", "waiting"));
        let text = plain(&rows, 100, 12);
        assert!(text.lines().count() < 12, "{text}");
        for part in ["now", "later", "and 35 more nodes", "spent $0.13"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn columns_line_up() {
        let text = plain(&[row("plan", "done"), row("implement", "waiting")], 200, 24);
        let mut lines = text.lines();
        assert_eq!(
            lines.next().unwrap().split("edits").next(),
            Some("  plan       ✓   1m 1s  claude-sonnet  ")
        );
        assert_eq!(
            lines.next().unwrap().split("edits").next(),
            Some("  implement  ·          claude-sonnet  ")
        );
    }
}
