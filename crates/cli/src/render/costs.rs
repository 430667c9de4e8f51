use std::fmt::Write as _;

use super::text::{Style, one_line, paint, table};
use crate::commands::{Spending, SpendingGroup};

/// Costs as a table with their sum, then what is left of the day's budget.
pub(crate) fn costs(spending: &Spending) -> String {
    let mut text = String::new();
    if spending.groups.is_empty() {
        text.push_str("no lane was asked in this time\n");
    } else {
        // Where no gateway metered anything, there is nothing to say of tokens.
        let metered = spending.total.cost.calls > 0;
        let mut rows: Vec<Vec<String>> = spending
            .groups
            .iter()
            .map(|group| {
                let name = paint(Style::Accent, &one_line(&group.name, 80));
                row(name, group, metered)
            })
            .collect();
        rows.push(row(paint(Style::Strong, "total"), &spending.total, metered));
        let heading = spending.by.name().to_uppercase();
        let mut header = vec![heading.as_str(), "RUNS", "NODES"];
        if metered {
            header.extend(["CALLS", "INPUT", "FROM CACHE", "TO CACHE", "OUTPUT"]);
        }
        header.push("SPENT");
        text.push_str(&table(&header, &rows));
    }
    let last = &spending.last_day;
    let budget = &spending.daily_budget;
    let known = last.cost.cost_usd.unwrap_or_default();
    let style = if known >= budget.value {
        Style::Bad
    } else {
        Style::Dim
    };
    let _ = writeln!(
        text,
        "{}: {} of ${:.2} a day ({})",
        last.name,
        paint(style, &last.cost.money()),
        budget.value,
        budget.source,
    );
    text
}

fn row(name: String, group: &SpendingGroup, metered: bool) -> Vec<String> {
    let cost = &group.cost;
    let mut cells = vec![name, group.runs.to_string(), group.nodes.to_string()];
    if metered {
        cells.push(match cost.calls {
            0 => "–".to_owned(),
            calls => calls.to_string(),
        });
        cells.extend(cost.token_cells());
    }
    cells.push(cost.money());
    cells
}
