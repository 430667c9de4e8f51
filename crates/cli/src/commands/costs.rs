use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use mini_ork_control::run::{DAY_MS, now_ms};
use mini_ork_control::store::CostRow;
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
    /// Attempts of nodes; each asked a lane once.
    pub(crate) nodes: usize,
    /// US dollars; absent when nobody said what any of it cost.
    pub(crate) cost_usd: Option<f64>,
    /// Whether some lane did not say what it cost.
    pub(crate) cost_unknown: bool,
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
    let rows = match open_reader(global)? {
        Some(reader) => {
            // What counts against the budget may be older than what was asked for.
            let after = since_ms.map_or(0, |since| since.min(now.saturating_sub(DAY_MS)));
            reader
                .costs_after(after)
                .map_err(|error| CommandError::failure("cannot read the costs").caused_by(&error))?
        }
        None => Vec::new(),
    };
    let asked: Vec<&CostRow> = newer(&rows, since_ms.unwrap_or_default());
    let spending = Spending {
        by: args.by,
        groups: grouped(&asked, args.by),
        total: sum("total", &asked),
        last_day: sum("last 24 h", &newer(&rows, now.saturating_sub(DAY_MS))),
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

fn newer(rows: &[CostRow], after_ms: u64) -> Vec<&CostRow> {
    rows.iter().filter(|row| row.at_ms > after_ms).collect()
}

fn grouped(rows: &[&CostRow], by: CostKey) -> Vec<SpendingGroup> {
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
            let known = |group: &SpendingGroup| group.cost_usd.unwrap_or_default();
            known(second).total_cmp(&known(first))
        }),
    }
    groups
}

fn sum(name: &str, rows: &[&CostRow]) -> SpendingGroup {
    let runs: BTreeSet<&str> = rows.iter().map(|row| row.run.as_str()).collect();
    let known: Vec<f64> = rows.iter().filter_map(|row| row.cost_usd).collect();
    SpendingGroup {
        name: name.to_owned(),
        runs: runs.len(),
        nodes: rows.len(),
        // An empty sum is positive, unlike the one of the standard library.
        cost_usd: (rows.is_empty() || !known.is_empty())
            .then(|| known.iter().fold(0.0, |sum, cost| sum + cost)),
        cost_unknown: known.len() < rows.len(),
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

    fn row(run: &str, lane: &str, at_ms: u64, cost_usd: Option<f64>) -> CostRow {
        CostRow {
            run: run.to_owned(),
            recipe: "code-fix".to_owned(),
            lane: lane.to_owned(),
            at_ms,
            cost_usd,
        }
    }

    #[test]
    fn what_is_not_known_is_never_zero() {
        let rows = [
            row("a", "quick", 1, Some(0.25)),
            row("a", "quick", 2, None),
            row("b", "silent", 3, None),
            row("b", "strong", 4, Some(0.5)),
            row("c", "strong", 5, Some(0.0)),
        ];
        let rows: Vec<&CostRow> = rows.iter().collect();
        let groups = grouped(&rows, CostKey::Lane);
        let shown: Vec<_> = groups
            .iter()
            .map(|group| {
                (
                    group.name.as_str(),
                    (group.runs, group.nodes),
                    group.cost_usd,
                    group.cost_unknown,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("strong", (2, 2), Some(0.5), false),
                ("quick", (1, 2), Some(0.25), true),
                ("silent", (1, 1), None, true),
            ]
        );
        let total = sum("total", &rows);
        assert_eq!(
            (total.runs, total.nodes, total.cost_usd),
            (3, 5, Some(0.75))
        );
        assert!(total.cost_unknown);
        let nothing = sum("nothing", &[]);
        assert_eq!(nothing.cost_usd, Some(0.0));
        assert!(!nothing.cost_unknown);
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
