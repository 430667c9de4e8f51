use serde::Serialize;

use super::lab::Lab;
use super::sample::{Samples, Summary};
use crate::render::{Style, paint, table};

/// Version of the JSON object.
const FORMAT: u32 = 1;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    format: u32,
    version: &'static str,
    /// Whether the compiler optimised the program; numbers of one that it did not say little.
    optimised: bool,
    cores: usize,
    /// Programs that wanted a core on average in the minute before; more than cores means that
    /// absolute numbers are too high.
    load_before: Option<f64>,
    directory: String,
    rows: Vec<Row>,
    goals: Vec<Goal>,
}

#[derive(Debug, Serialize)]
struct Row {
    part: &'static str,
    name: String,
    unit: &'static str,
    #[serde(flatten)]
    summary: Summary,
}

#[derive(Debug, Serialize)]
struct Goal {
    name: &'static str,
    at_most: f64,
    measured: f64,
    unit: &'static str,
    met: bool,
}

impl Report {
    pub(super) fn new(lab: &Lab) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            optimised: !cfg!(debug_assertions),
            cores: lab.cores(),
            load_before: load(),
            directory: lab.root().display().to_string(),
            rows: Vec::new(),
            goals: Vec::new(),
        }
    }

    pub(super) fn row(
        &mut self,
        part: &'static str,
        name: impl Into<String>,
        unit: &'static str,
        samples: &Samples,
    ) {
        self.rows.push(Row {
            part,
            name: name.into(),
            unit,
            summary: samples.summary(),
        });
    }

    pub(super) fn goal(
        &mut self,
        name: &'static str,
        at_most: f64,
        measured: f64,
        unit: &'static str,
    ) {
        self.goals.push(Goal {
            name,
            at_most,
            measured,
            unit,
            met: measured <= at_most,
        });
    }

    /// For people.
    pub(super) fn describe(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                let summary = &row.summary;
                vec![
                    row.part.to_owned(),
                    row.name.clone(),
                    row.unit.to_owned(),
                    number(summary.min),
                    paint(Style::Strong, &number(summary.median)),
                    number(summary.max),
                    summary.count.to_string(),
                ]
            })
            .collect();
        let goals: Vec<Vec<String>> = self
            .goals
            .iter()
            .map(|goal| {
                let verdict = if goal.met {
                    paint(Style::Good, "met")
                } else {
                    paint(Style::Bad, "missed")
                };
                vec![
                    goal.name.to_owned(),
                    format!("{} {}", number(goal.at_most), goal.unit),
                    format!("{} {}", number(goal.measured), goal.unit),
                    verdict,
                ]
            })
            .collect();
        let mut text = table(
            &["PART", "MEASURED", "UNIT", "MIN", "MEDIAN", "MAX", "N"],
            &rows,
        );
        text.push('\n');
        text.push_str(&table(&["GOAL", "AT MOST", "MEDIAN", ""], &goals));
        if let Some(load) = self.load_before {
            let cores = self.cores;
            text.push_str(&format!(
                "\n{cores} cores, load {load:.1} before it began.\n"
            ));
        }
        if !self.optimised {
            text.push_str("This is a debug build: its numbers say little.\n");
        }
        text
    }
}

fn load() -> Option<f64> {
    let text = fs_err::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
