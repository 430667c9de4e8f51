//! How things look. Data goes to standard output, everything else to standard error; colour is
//! taken out where nobody would see it.

mod changes;
mod conflicts;
mod costs;
mod doctor;
mod graph;
mod images;
mod lanes;
mod overview;
mod plan;
mod progress;
mod recipe;
mod runs;
mod sandboxes;
mod screen;
mod secrets;
mod settings;
mod status;
mod summary;
mod text;
mod verify;

use std::io::{self, Write as _};

use serde::Serialize;

pub(crate) use changes::{PatchPainter, change_json, path_json, stat};
pub(crate) use conflicts::{ShownConflict, ShownSide, conflicts};
pub(crate) use costs::costs;
pub(crate) use doctor::doctor;
pub(crate) use images::{images, pruned};
pub(crate) use lanes::{lane, lanes};
pub(crate) use overview::overview;
pub(crate) use plan::plan;
pub(crate) use progress::Progress;
pub(crate) use recipe::{recipe, recipes};
pub(crate) use runs::{ListedRun, runs};
pub(crate) use sandboxes::{sandbox, sandboxes, swept};
pub(crate) use secrets::{checked_secrets, secrets};
pub(crate) use settings::settings;
pub(crate) use status::{LiveNode, status};
pub(crate) use summary::summary;
pub(crate) use text::{Style, harmless, one_line, paint, plural, table, terminal_width};
pub(crate) use verify::verification;

use crate::cli::ColorChoice;
use crate::error::{CommandError, ExitStatus};

/// Decides about colour for the rest of the process.
pub(crate) fn set_color(choice: ColorChoice) {
    match choice {
        // anstream looks at the terminal and at NO_COLOR.
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::AlwaysAnsi,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// Writes data.
pub(crate) fn out(text: &str) -> Result<(), CommandError> {
    let mut stdout = anstream::stdout().lock();
    written(
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush()),
    )
}

/// Writes data byte for byte.
pub(crate) fn out_bytes(bytes: &[u8]) -> Result<(), CommandError> {
    let mut stdout = io::stdout().lock();
    written(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// Writes one JSON value on a line of its own.
pub(crate) fn json(value: &impl Serialize) -> Result<(), CommandError> {
    let mut text = serde_json::to_string(value)
        .map_err(|error| CommandError::failure("cannot write JSON").caused_by(&error))?;
    text.push('\n');
    out_bytes(text.as_bytes())
}

/// Writes what is not data. Nobody may be there to read it, which is no reason to fail.
pub(crate) fn err(text: &str) {
    let mut stderr = anstream::stderr().lock();
    let _ = stderr
        .write_all(text.as_bytes())
        .and_then(|()| stderr.flush());
}

/// Says what kept a command from its work.
pub(crate) fn error(error: &CommandError) {
    if error.message.is_empty() {
        return;
    }
    let mut text = format!("{} {}\n", paint(Style::Bad, "error:"), error.message);
    for detail in &error.details {
        text.push_str("  ");
        text.push_str(detail);
        text.push('\n');
    }
    if let Some(hint) = &error.hint {
        text.push_str(&format!("{} {hint}\n", paint(Style::Accent, "hint:")));
    }
    err(&text);
}

/// A reader that has seen enough (`| head`) is no failure: the command ends quietly.
fn written(result: io::Result<()>) -> Result<(), CommandError> {
    result.map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            let mut quiet = CommandError::failure("");
            quiet.status = ExitStatus::Success;
            quiet
        } else {
            CommandError::failure("the output cannot be written").caused_by(&error)
        }
    })
}
