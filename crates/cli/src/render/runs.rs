use mini_ork_control::run::now_ms;
use mini_ork_control::store::RunRow;
use serde::Serialize;

use super::text::{Style, ago, cost, mark, one_line, paint, table, visible_width};

/// The title is cut to what is left of the line, but not below this.
const NARROWEST_TITLE: usize = 20;

/// A run in a list.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ListedRun {
    pub(crate) run: String,
    pub(crate) status: &'static str,
    pub(crate) reason: Option<String>,
    pub(crate) detail: Option<String>,
    pub(crate) recipe: String,
    pub(crate) title: String,
    pub(crate) repository: String,
    pub(crate) directory: String,
    pub(crate) backend: String,
    pub(crate) branch: Option<String>,
    pub(crate) cost_usd: Option<f64>,
    pub(crate) cost_unknown: bool,
    pub(crate) started_at_ms: u64,
    pub(crate) ended_at_ms: Option<u64>,
}

impl ListedRun {
    /// The run of `row`, which stands at `status`.
    pub(crate) fn new(row: RunRow, status: &'static str) -> Self {
        Self {
            run: row.run,
            status,
            reason: row.reason,
            detail: row.detail,
            recipe: row.recipe,
            title: row.title,
            repository: row.repository.display().to_string(),
            directory: row.directory.display().to_string(),
            backend: row.backend,
            branch: row.branch,
            cost_usd: (row.cost_usd > 0.0 || !row.cost_unknown).then_some(row.cost_usd),
            cost_unknown: row.cost_unknown,
            started_at_ms: row.started_at_ms,
            ended_at_ms: row.ended_at_ms,
        }
    }
}

/// Runs as a table, at most `width` columns wide where the titles allow it.
pub(crate) fn runs(runs: &[ListedRun], width: Option<usize>) -> String {
    const HEADER: [&str; 7] = [
        "RUN", "STARTED", "RECIPE", "STATE", "SPENT", "WHERE", "TITLE",
    ];
    let now = now_ms();
    let mut rows: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            vec![
                paint(Style::Accent, &run.run),
                ago(now, run.started_at_ms),
                run.recipe.clone(),
                format!("{} {}", mark(run.status), run.status),
                cost(run.cost_usd, run.cost_unknown),
                run.backend.clone(),
            ]
        })
        .collect();
    let used: usize = (0..HEADER.len() - 1)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|cell| visible_width(cell)).max().unwrap_or(0);
            widest.max(HEADER[column].len()) + 2
        })
        .sum();
    let room = width.map_or(usize::MAX, |width| {
        width.saturating_sub(used).max(NARROWEST_TITLE)
    });
    for (row, run) in rows.iter_mut().zip(runs) {
        row.push(one_line(&run.title, room));
    }
    table(&HEADER, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str, status: &'static str, title: &str) -> ListedRun {
        ListedRun {
            run: id.to_owned(),
            status,
            reason: None,
            detail: None,
            recipe: "code-fix".to_owned(),
            title: title.to_owned(),
            repository: "/r".to_owned(),
            directory: "/d".to_owned(),
            backend: "local".to_owned(),
            branch: None,
            cost_usd: Some(0.13),
            cost_unknown: false,
            started_at_ms: now_ms(),
            ended_at_ms: None,
        }
    }

    #[test]
    fn a_title_is_cut_to_the_terminal_and_cannot_control_it() {
        let runs_shown = [run("7k2m9d", "running", &"long \u{1b}[2J".repeat(30))];
        let text = runs(&runs_shown, Some(80));
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert!(
            plain.lines().all(|line| line.chars().count() <= 80),
            "{plain}"
        );
        assert!(
            plain.contains("7k2m9d") && plain.contains("$0.13"),
            "{plain}"
        );
        assert!(!plain.contains('\u{1b}'), "{plain}");
    }

    #[test]
    fn without_a_terminal_nothing_is_cut() {
        let title = "word ".repeat(60);
        let text = runs(&[run("7k2m9d", "failed", &title)], None);
        assert!(text.contains(title.trim()), "{text}");
    }
}
