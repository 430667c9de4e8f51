//! From what names a run to the run.

use mini_ork_control::store::{RunRow, StoreReader};
use mini_ork_protocol::RunId;

use crate::error::CommandError;
use crate::settings::GlobalSettings;

/// A run that was named, with the database it was found in.
pub(crate) struct Selected {
    pub(crate) run: RunId,
    pub(crate) row: RunRow,
    pub(crate) reader: StoreReader,
}

/// The run that `text` names: its id, a unique beginning of it, or `@` for the latest.
pub(crate) fn select(global: &GlobalSettings, text: &str) -> Result<Selected, CommandError> {
    let home = &global.home.value;
    let none_yet = || {
        CommandError::usage(format!("there is no run yet in {}", home.display()))
            .hint("start one: mini-ork run code-fix ./kickoff.md")
    };
    let reader = open_reader(global)?.ok_or_else(none_yet)?;
    let rows = reader
        .runs()
        .map_err(|error| CommandError::failure("cannot list the runs").caused_by(&error))?;
    if rows.is_empty() {
        return Err(none_yet());
    }
    let row = find(rows, text)?;
    let run = RunId::parse(&row.run).map_err(|error| {
        CommandError::failure("the state database holds a damaged run id").caused_by(&error)
    })?;
    Ok(Selected { run, row, reader })
}

/// The state database for reading; `None` before the first run.
pub(crate) fn open_reader(global: &GlobalSettings) -> Result<Option<StoreReader>, CommandError> {
    StoreReader::open(&global.home.value)
        .map_err(|error| CommandError::failure("the state cannot be read").caused_by(&error))
}

fn find(rows: Vec<RunRow>, text: &str) -> Result<RunRow, CommandError> {
    let mut matching: Vec<RunRow> = if text == "@" {
        rows.into_iter().take(1).collect()
    } else {
        rows.into_iter()
            .filter(|row| row.run.starts_with(text))
            .collect()
    };
    if let Some(exact) = matching.iter().position(|row| row.run == text) {
        return Ok(matching.swap_remove(exact));
    }
    match matching.len() {
        1 => Ok(matching.swap_remove(0)),
        0 => Err(CommandError::usage(format!("there is no run `{text}`"))
            .hint("`mini-ork runs` lists them")),
        _ => {
            let ids: Vec<String> = matching.into_iter().map(|row| row.run).collect();
            Err(
                CommandError::usage(format!("`{text}` is the beginning of several runs"))
                    .hint(format!("say which: {}", ids.join(", "))),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn row(run: &str) -> RunRow {
        RunRow {
            run: run.to_owned(),
            recipe: String::new(),
            title: String::new(),
            repository: PathBuf::new(),
            directory: PathBuf::new(),
            backend: String::new(),
            status: None,
            reason: None,
            detail: None,
            branch: None,
            cost_usd: 0.0,
            cost_unknown: false,
            started_at_ms: 0,
            ended_at_ms: None,
        }
    }

    #[test]
    fn a_run_is_named_by_a_unique_beginning() {
        let rows = || vec![row("7k2m9d"), row("7kzzzz"), row("abc"), row("abcd")];
        assert_eq!(find(rows(), "@").unwrap().run, "7k2m9d");
        assert_eq!(find(rows(), "7k2").unwrap().run, "7k2m9d");
        assert_eq!(find(rows(), "abc").unwrap().run, "abc");
        assert!(
            find(rows(), "7k")
                .unwrap_err()
                .hint
                .unwrap()
                .contains("7kzzzz")
        );
        assert!(find(rows(), "zz").is_err());
    }
}
