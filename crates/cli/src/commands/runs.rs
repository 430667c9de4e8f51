use mini_ork_control::run::state_of;
use mini_ork_control::store::StoreReader;

use super::select::open_reader;
use crate::cli::RunsArgs;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render::{self, ListedRun};
use crate::settings::GlobalSettings;

/// Lists runs, the latest first.
pub(crate) fn runs(args: &RunsArgs, global: &GlobalSettings) -> CommandResult {
    let listed = match open_reader(global)? {
        Some(reader) => list(&reader)?,
        None => Vec::new(),
    };
    let count = listed.len();
    let limit = if args.limit == 0 { count } else { args.limit };
    let shown: Vec<ListedRun> = listed.into_iter().take(limit).collect();
    let left_out = count - shown.len();
    if args.json {
        render::json(&serde_json::json!({
            "format": 1,
            "runs": shown,
            "left_out": left_out,
        }))?;
        return Ok(ExitStatus::Success);
    }
    if shown.is_empty() {
        render::err(&format!(
            "no run yet in {}\nstart one: mini-ork run code-fix ./kickoff.md\n",
            global.home.value.display()
        ));
        return Ok(ExitStatus::Success);
    }
    render::out(&render::runs(&shown, render::terminal_width()))?;
    if left_out > 0 {
        render::err(&format!("{left_out} earlier runs: mini-ork runs -n 0\n"));
    }
    Ok(ExitStatus::Success)
}

/// Every run with where it stands, the latest first.
pub(super) fn list(reader: &StoreReader) -> Result<Vec<ListedRun>, CommandError> {
    let rows = reader
        .runs()
        .map_err(|error| CommandError::failure("cannot list the runs").caused_by(&error))?;
    Ok(rows
        .into_iter()
        .map(|row| {
            // One run whose directory cannot be looked at does not hide the others.
            let state = state_of(reader, &row).unwrap_or("unknown");
            ListedRun::new(row, state)
        })
        .collect())
}
