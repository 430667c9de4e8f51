//! The containers of this home: `mini-ork sandbox ls`, `inspect` and `gc`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use mini_ork_node::workspace::docker::{SandboxRecord, SandboxState, release, release_strays};
use serde::Serialize;

use super::sandbox::sandbox_error;
use super::select::{open_reader, select};
use crate::cli::{RunRefArgs, SandboxListArgs};
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render;
use crate::settings::GlobalSettings;

/// A container as it is shown: all that is on record but for what opens its session.
#[derive(Debug, Serialize)]
struct Listed {
    run: String,
    name: String,
    state: &'static str,
    image: String,
    image_id: String,
    runtime: Option<String>,
    engine: String,
    made_at_ms: u64,
    released_at_ms: Option<u64>,
}

impl Listed {
    fn of(run: String, record: SandboxRecord) -> Self {
        Self {
            run,
            name: record.name,
            state: match record.state {
                SandboxState::Intended => "intended",
                SandboxState::Running => "running",
                SandboxState::Released => "released",
            },
            image: record.image,
            image_id: record.image_id,
            runtime: record.runtime,
            engine: record.endpoint,
            made_at_ms: record.made_at_ms,
            released_at_ms: record.released_at_ms,
        }
    }
}

/// Lists what is on record.
pub(super) fn ls(args: &SandboxListArgs, global: &GlobalSettings) -> CommandResult {
    let mut listed = Vec::new();
    for (run, private) in places(global)? {
        if let Some(record) = read(&private)? {
            listed.push(Listed::of(run, record));
        }
    }
    if args.json {
        render::json(&serde_json::json!({ "format": 1, "sandboxes": listed }))?;
        return Ok(ExitStatus::Success);
    }
    let mut text = String::new();
    for one in &listed {
        let _ = writeln!(
            text,
            "{:<8} {:<9} {}  {}",
            one.run, one.state, one.name, one.image
        );
    }
    if listed.is_empty() {
        render::err("no run of this home had a container\n");
    }
    render::out(&text)?;
    Ok(ExitStatus::Success)
}

/// Shows one.
pub(super) fn inspect(args: &RunRefArgs, global: &GlobalSettings) -> CommandResult {
    let selected = select(global, &args.run)?;
    let private = selected.row.directory.join("sandbox");
    let record = read(&private)?.ok_or_else(|| {
        CommandError::usage(format!("run {} has no container", selected.run))
            .hint("`mini-ork sandbox ls` lists those that there are")
    })?;
    let listed = Listed::of(selected.run.to_string(), record);
    if args.json {
        render::json(&listed)?;
        return Ok(ExitStatus::Success);
    }
    let runtime = listed.runtime.as_deref().unwrap_or("the engine's own");
    render::out(&format!(
        "container  {}\nstate      {}\nimage      {}\ndigest     {}\nruntime    {runtime}\nengine     {}\n",
        listed.name, listed.state, listed.image, listed.image_id, listed.engine,
    ))?;
    Ok(ExitStatus::Success)
}

/// Removes the containers of runs that have ended or are gone. A run that was interrupted keeps
/// its own: `recover` goes on in it.
pub(super) fn gc(args: &SandboxListArgs, global: &GlobalSettings) -> CommandResult {
    let mut ended = BTreeMap::new();
    if let Some(reader) = open_reader(global)? {
        let rows = reader
            .runs()
            .map_err(|error| CommandError::failure("the state cannot be read").caused_by(&error))?;
        ended.extend(rows.into_iter().map(|row| (row.run, row.status.is_some())));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::failure("cannot start").caused_by(&error))?;
    let mut removed = Vec::new();
    for (run, private) in places(global)? {
        // A run that is not in the state never began, or is just beginning: its owner holds it.
        let unneeded = ended.get(&run).copied().unwrap_or(false);
        let Some(record) = read(&private)?.filter(|_| unneeded) else {
            continue;
        };
        let released = runtime.block_on(release(&run, &private));
        if released.map_err(|error| sandbox_error(&error))? {
            removed.push(record.name);
        }
    }
    let settings = global.docker_endpoint()?;
    let strays = runtime.block_on(release_strays(&settings, &global.home.value));
    // Without an engine there is nothing on it.
    removed.extend(strays.unwrap_or_default());
    if args.json {
        render::json(&serde_json::json!({ "format": 1, "removed": removed }))?;
    } else {
        render::out(&match removed.len() {
            0 => "nothing to remove\n".to_owned(),
            count => format!("removed {count}: {}\n", removed.join(", ")),
        })?;
    }
    Ok(ExitStatus::Success)
}

/// The runs of this home by their directories, with what the backend has kept there.
fn places(global: &GlobalSettings) -> Result<Vec<(String, PathBuf)>, CommandError> {
    let runs = global.home.value.join("runs");
    if !runs.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs_err::read_dir(&runs)
        .map_err(|error| CommandError::failure("the runs cannot be read").caused_by(&error))?;
    let mut places: Vec<(String, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let run = entry.file_name().into_string().ok()?;
            Some((run, entry.path().join("sandbox")))
        })
        .collect();
    places.sort();
    Ok(places)
}

fn read(private: &std::path::Path) -> Result<Option<SandboxRecord>, CommandError> {
    SandboxRecord::read(private).map_err(|error| {
        CommandError::failure("the record of a container cannot be read").caused_by(&error)
    })
}
