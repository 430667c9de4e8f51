use std::fmt::Write as _;

use super::text::{Style, cost, one_line, paint, table};
use crate::commands::{Spending, SpendingGroup};

/// Costs as a table with their sum, then what is left of the day's budget.
pub(crate) fn costs(spending: &Spending) -> String {
    let mut text = String::new();
    if spending.groups.is_empty() {
        text.push_str("no lane was asked in this time\n");
    } else {
        let mut rows: Vec<Vec<String>> = spending
            .groups
            .iter()
            .map(|group| row(paint(Style::Accent, &one_line(&group.name, 80)), group))
            .collect();
        rows.push(row(paint(Style::Strong, "total"), &spending.total));
        let heading = spending.by.name().to_uppercase();
        text.push_str(&table(&[&heading, "RUNS", "NODES", "SPENT"], &rows));
    }
    let last = &spending.last_day;
    let budget = &spending.daily_budget;
    let known = last.cost_usd.unwrap_or_default();
    let style = if known >= budget.value {
        Style::Bad
    } else {
        Style::Dim
    };
    let _ = writeln!(
        text,
        "{}: {} of ${:.2} a day ({})",
        last.name,
        paint(style, &cost(last.cost_usd, last.cost_unknown)),
        budget.value,
        budget.source,
    );
    text
}

fn row(name: String, group: &SpendingGroup) -> Vec<String> {
    vec![
        name,
        group.runs.to_string(),
        group.nodes.to_string(),
        cost(group.cost_usd, group.cost_unknown),
    ]
}
