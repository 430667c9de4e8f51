use super::runs::list;
use super::select::open_reader;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render;
use crate::settings::GlobalSettings;

/// `mini-ork` alone: what runs now and what to do next. Works before there is anything, also where
/// no home can be found.
pub(crate) fn overview(global: Result<&GlobalSettings, &CommandError>) -> CommandResult {
    let (home, runs) = match global {
        Ok(global) => {
            let runs = match open_reader(global)? {
                Some(reader) => list(&reader)?,
                None => Vec::new(),
            };
            (Some(global.home.value.display().to_string()), runs)
        }
        Err(_) => (None, Vec::new()),
    };
    render::out(&render::overview(
        home.as_deref(),
        &runs,
        render::terminal_width(),
    ))?;
    Ok(ExitStatus::Success)
}
