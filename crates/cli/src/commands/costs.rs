use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use mini_ork_control::run::{DAY_MS, now_ms};
use mini_ork_control::spending::CostView;
use mini_ork_control::store::{CostRow, CostSum};
use serde::Serialize;
use serde_json::json;

use super::select::open_reader;
use crate::cli::{CostKey, CostsArgs};
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render;
use crate::settings::{GlobalSettings, Setting, daily_budget, parse_duration};

/// What `mini-ork costs` shows.
pub(crate) struct Spending {
    /// What `groups` are.
    pub(crate) by: CostKey,
    /// Days the latest first; lanes and recipes by what they cost.
    pub(crate) groups: Vec<SpendingGroup>,
    /// All groups together.
    pub(crate) total: SpendingGroup,
    /// What counts against the daily budget, whatever else was asked for.
    pub(crate) last_day: SpendingGroup,
    pub(crate) daily_budget: Setting<f64>,
}

/// Costs that belong together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SpendingGroup {
    pub(crate) name: String,
    /// Runs that had a part in it.
    pub(crate) runs: usize,
    /// Attempts of nodes that asked a lane.
    pub(crate) nodes: usize,
    /// What they cost.
    #[serde(flatten)]
    pub(crate) cost: CostView,
}

/// Shows what was spent, and how much of the daily budget is left.
pub(crate) fn costs(args: &CostsArgs, global: &GlobalSettings) -> CommandResult {
    let daily_budget = daily_budget(global)?;
    let now = now_ms();
    let since_ms = args
        .since
        .as_deref()
        .map(|text| since(text, now))
        .transpose()?;
    let (rows, last_day) = match open_reader(global)? {
        Some(reader) => {
            let failed = |error| CommandError::failure("cannot read the costs").caused_by(&error);
            let day = now.saturating_sub(DAY_MS);
            let asked = reader.costs_after(since_ms.unwrap_or_default());
            (
                asked.map_err(failed)?,
                reader.costs_after(day).map_err(failed)?,
            )
        }
        None => (Vec::new(), Vec::new()),
    };
    let spending = Spending {
        by: args.by,
        groups: grouped(&rows, args.by),
        total: sum("total", &rows.iter().collect::<Vec<_>>()),
        last_day: sum("last 24 h", &last_day.iter().collect::<Vec<_>>()),
        daily_budget,
    };
    if args.json {
        render::json(&json!({
            "format": 1,
            "by": args.by.name(),
            "since_ms": since_ms,
            "groups": spending.groups,
            "total": spending.total,
            "last_day": spending.last_day,
            "daily_budget_usd": spending.daily_budget.value,
            "daily_budget_source": spending.daily_budget.source.to_string(),
        }))?;
    } else {
        render::out(&render::costs(&spending))?;
    }
    Ok(ExitStatus::Success)
}

fn since(text: &str, now: u64) -> Result<u64, CommandError> {
    let age = parse_duration("--since", text)?;
    if age.is_zero() {
        return Err(CommandError::usage("--since is zero").hint("leave it out to see everything"));
    }
    let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    Ok(now.saturating_sub(age))
}

fn grouped(rows: &[CostRow], by: CostKey) -> Vec<SpendingGroup> {
    let zone = TimeZone::system();
    let mut members: BTreeMap<String, Vec<&CostRow>> = BTreeMap::new();
    for row in rows {
        let name = match by {
            CostKey::Lane => row.lane.clone(),
            CostKey::Recipe => row.recipe.clone(),
            CostKey::Day => day(row.at_ms, &zone),
        };
        members.entry(name).or_default().push(row);
    }
    let mut groups: Vec<SpendingGroup> =
        members.iter().map(|(name, rows)| sum(name, rows)).collect();
    match by {
        CostKey::Day => groups.reverse(),
        CostKey::Lane | CostKey::Recipe => groups.sort_by(|first, second| {
            let known = |group: &SpendingGroup| group.cost.cost_usd.unwrap_or_default();
            known(second).total_cmp(&known(first))
        }),
    }
    groups
}

fn sum(name: &str, rows: &[&CostRow]) -> SpendingGroup {
    let runs: BTreeSet<&str> = rows.iter().map(|row| row.run.as_str()).collect();
    let attempts: BTreeSet<_> = rows
        .iter()
        .map(|row| (&row.run, &row.node, row.round, row.attempt))
        .collect();
    let mut sum = CostSum::default();
    for row in rows {
        sum.add(&row.sum);
    }
    SpendingGroup {
        name: name.to_owned(),
        runs: runs.len(),
        nodes: attempts.len(),
        cost: CostView::from(&sum),
    }
}

fn day(at_ms: u64, zone: &TimeZone) -> String {
    i64::try_from(at_ms)
        .ok()
        .and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok())
        .map_or_else(
            || "unknown".to_owned(),
            |at| zone.to_datetime(at).date().to_string(),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(run: &str, node: &str, lane: &str, sum: CostSum) -> CostRow {
        CostRow {
            run: run.to_owned(),
            recipe: "code-fix".to_owned(),
            node: node.to_owned(),
            round: 1,
            attempt: 1,
            lane: lane.to_owned(),
            at_ms: 1,
            sum,
        }
    }

    fn told(cost_usd: Option<f64>) -> CostSum {
        CostSum {
            told: 1,
            known_usd: cost_usd.unwrap_or_default(),
            unknown: u64::from(cost_usd.is_none()),
            ..CostSum::default()
        }
    }

    #[test]
    fn what_is_not_known_is_never_zero() {
        let calls = CostSum {
            calls: 3,
            cut: 1,
            known_usd: 0.5,
            ..CostSum::default()
        };
        let rows = [
            row("a", "worker", "quick", told(Some(0.25))),
            row("a", "reviewer", "quick", told(None)),
            row("b", "worker", "silent", told(None)),
            // Before and after midnight; one attempt all the same.
            row("b", "judge", "strong", calls),
            row("b", "judge", "strong", calls),
            row("c", "judge", "strong", told(Some(0.0))),
        ];
        let groups = grouped(&rows, CostKey::Lane);
        let shown: Vec<_> = groups
            .iter()
            .map(|group| {
                (
                    group.name.as_str(),
                    (group.runs, group.nodes, group.cost.calls),
                    group.cost.money(),
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("strong", (2, 2, 6), "at least $1.00".to_owned()),
                ("quick", (1, 2, 0), "$0.25 + unknown".to_owned()),
                ("silent", (1, 1, 0), "unknown".to_owned()),
            ]
        );
        let total = sum("total", &rows.iter().collect::<Vec<_>>());
        assert_eq!((total.runs, total.nodes), (3, 5));
        assert_eq!(total.cost.cost_usd, Some(1.25));
        assert!(total.cost.cost_unknown);
        let nothing = sum("nothing", &[]);
        assert_eq!(nothing.cost.cost_usd, Some(0.0));
        assert!(!nothing.cost.cost_unknown);
    }

    #[test]
    fn days_are_those_of_the_time_zone() {
        let late = 1_795_996_799_000; // 2026-11-29 23:59:59 UTC
        assert_eq!(day(late, &TimeZone::UTC), "2026-11-29");
        let east = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(day(late, &east), "2026-11-30");
        assert_eq!(day(u64::MAX, &TimeZone::UTC), "unknown");
    }
}
