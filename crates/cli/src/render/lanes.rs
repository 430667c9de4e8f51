use std::fmt::Write as _;

use mini_ork_control::lanes::{Inject, LaneLimits};

use super::text::{Style, one_line, paint, table};
use crate::commands::DescribedLane;

/// Lanes as a table.
pub(crate) fn lanes(lanes: &[DescribedLane]) -> String {
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
    if let Some(model) = &lane.model {
        line("api", &format!("{} at {}", model.api, model.base_url));
        let holder = match model.inject {
            Inject::Gateway => "held by the gateway",
            Inject::Env => "given to the agent",
        };
        line("key", &format!("{}, {holder}", model.key));
        line("limits", &limits(&model.limits));
    }
    line("roles", &roles(lane));
    if !lane.environment.is_empty() {
        let names = lane.environment.join(", ");
        line("adds", &format!("{names} (the values are in the file)"));
    }
    line("from", &lane.file);
    text
}

fn limits(limits: &LaneLimits) -> String {
    let mut parts = vec![format!("{} calls", limits.max_calls)];
    if let Some(turns) = limits.max_turns {
        parts.push(format!("{turns} turns"));
    }
    if let Some(tokens) = limits.max_output_tokens {
        parts.push(format!("{tokens} tokens in an answer"));
    }
    if let Some(tokens) = limits.context_tokens {
        parts.push(format!("{tokens} tokens of context"));
    }
    parts.join(", ")
}

fn roles(lane: &DescribedLane) -> String {
    if lane.roles.is_empty() {
        return "none".to_owned();
    }
    lane.roles.join(", ")
}
