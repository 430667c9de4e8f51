use std::fmt::Write as _;

use super::text::{Style, one_line, paint, table};
use crate::commands::DescribedLane;

/// Lanes as a table.
pub(crate) fn lanes(lanes: &[DescribedLane]) -> String {
    if lanes.is_empty() {
        return "no lanes yet: `mini-ork help lanes` says how to describe one\n".to_owned();
    }
    let rows: Vec<Vec<String>> = lanes
        .iter()
        .map(|lane| {
            vec![
                paint(Style::Accent, &lane.lane),
                lane.kind.to_owned(),
                one_line(&lane.runs, 60),
                one_line(&roles(lane), 60),
                one_line(&lane.file, 200),
            ]
        })
        .collect();
    table(&["LANE", "KIND", "RUNS", "ROLES", "FROM"], &rows)
}

/// One lane, a line for each thing that is known of it.
pub(crate) fn lane(lane: &DescribedLane) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: &str| {
        let label = paint(Style::Dim, &format!("{label:8}"));
        let _ = writeln!(text, "{label} {}", one_line(value, 2000));
    };
    line("lane", &lane.lane);
    line("kind", lane.kind);
    line("runs", &lane.runs);
    line("roles", &roles(lane));
    if !lane.environment.is_empty() {
        let names = lane.environment.join(", ");
        line("adds", &format!("{names} (the values are in the file)"));
    }
    line("from", &lane.file);
    text
}

fn roles(lane: &DescribedLane) -> String {
    if lane.roles.is_empty() {
        return "none".to_owned();
    }
    lane.roles.join(", ")
}
