//! The sandboxes of this home: `mini-ork sandbox ls` and `inspect`, and `mini-ork sandbox-gc`.

use std::time::Duration;

use mini_ork_control::run::now_ms;
use mini_ork_control::sandboxes::{
    SweepAction, SweepError, SweepRequest, Swept, SweptSandbox, ledger, sweep,
};
use mini_ork_node::workspace::{DOCKER, SandboxKind, SandboxRecord, backend_names};
use serde::Serialize;

use super::runtime;
use super::sandbox::engine_error;
use super::select::select;
use crate::cli::{RunRefArgs, SandboxGcArgs, SandboxListArgs};
use crate::env_vars;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render;
use crate::settings::{GlobalSettings, parse_duration};

/// How old the sandbox of an interrupted run becomes, when nobody says otherwise, before another
/// run removes it. Who asks for its removal gets it at once.
pub(super) const MAX_AGE_BESIDE_A_RUN: Duration = Duration::from_secs(6 * 3600);
/// All backends, for `--backend`.
pub(super) const ALL: &str = "all";
/// How long a run waits for what is cleaned up before it.
const PATIENCE: Duration = Duration::from_secs(10);

/// A sandbox as it is shown: all that is on record but for what opens its session.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ShownSandbox {
    pub(crate) run: String,
    /// The node that it is for; absent since this version makes one for all nodes of a run.
    pub(crate) node: Option<String>,
    pub(crate) backend: &'static str,
    pub(crate) state: &'static str,
    pub(crate) made_at_ms: u64,
    pub(crate) released_at_ms: Option<u64>,
    pub(crate) reason: Option<String>,
    pub(crate) made_by: Maker,
    pub(crate) container: Option<ShownContainer>,
    /// The first process of a sandbox without a container.
    pub(crate) first_process: Option<i32>,
}

/// Who made a sandbox.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Maker {
    pub(crate) user: u32,
    pub(crate) process: i32,
    pub(crate) alive: bool,
}

/// The container of a sandbox.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ShownContainer {
    pub(crate) name: String,
    pub(crate) engine: String,
    pub(crate) image: String,
    pub(crate) image_id: String,
    /// The one that made it; while it is not made the one that was asked for.
    pub(crate) runtime: Option<String>,
}

impl ShownSandbox {
    fn of(record: SandboxRecord) -> Self {
        let made_by = Maker {
            user: record.user,
            process: record.maker.pid,
            alive: record.maker_is_alive(),
        };
        let backend = record.backend();
        let (container, first_process) = match record.kind {
            SandboxKind::Docker(container) => {
                let container = ShownContainer {
                    name: container.name,
                    engine: container.endpoint,
                    image: container.image,
                    image_id: container.image_id,
                    runtime: container.made_with.or(container.runtime),
                };
                (Some(container), None)
            }
            SandboxKind::Local { first } => (None, first.map(|first| first.pid)),
        };
        Self {
            run: record.run,
            node: None,
            backend,
            state: record.state.name(),
            made_at_ms: record.made_at_ms,
            released_at_ms: record.released_at_ms,
            reason: record.reason,
            made_by,
            container,
            first_process,
        }
    }
}

/// Lists what is on record.
pub(super) fn ls(args: &SandboxListArgs, global: &GlobalSettings) -> CommandResult {
    let mut listed: Vec<ShownSandbox> =
        records(global)?.into_iter().map(ShownSandbox::of).collect();
    listed.sort_by_key(|one| std::cmp::Reverse(one.made_at_ms));
    if args.json {
        render::json(&serde_json::json!({ "format": 1, "sandboxes": listed }))?;
        return Ok(ExitStatus::Success);
    }
    if listed.is_empty() {
        render::err("no run of this home had a sandbox\n");
        return Ok(ExitStatus::Success);
    }
    render::out(&render::sandboxes(&listed, now_ms()))?;
    Ok(ExitStatus::Success)
}

/// Shows one.
pub(super) fn inspect(args: &RunRefArgs, global: &GlobalSettings) -> CommandResult {
    // A name that is no run's is one of `sandbox verify`.
    let named = read(global, &args.run)?;
    let record = match named {
        Some(record) => record,
        None => {
            let run = select(global, &args.run)?.run;
            read(global, run.as_str())?.ok_or_else(|| {
                CommandError::usage(format!("run {run} has no sandbox"))
                    .hint("`mini-ork sandbox ls` lists those that there are")
            })?
        }
    };
    let shown = ShownSandbox::of(record);
    if args.json {
        render::json(&shown)?;
    } else {
        render::out(&render::sandbox(&shown, now_ms()))?;
    }
    Ok(ExitStatus::Success)
}

/// Removes the sandboxes that no run needs any more.
pub(crate) fn gc(args: &SandboxGcArgs, global: &GlobalSettings) -> CommandResult {
    let backend = match args.backend.as_deref() {
        None | Some(ALL) => None,
        Some(name) => {
            let known = backend_names();
            let found = known.iter().copied().find(|backend| *backend == name);
            Some(found.ok_or_else(|| {
                CommandError::usage(format!("there is no workspace backend `{name}`"))
                    .hint(format!("known: {ALL}, {}", known.join(", ")))
            })?)
        }
    };
    let request = SweepRequest {
        backend,
        engine: match backend {
            None | Some(DOCKER) => Some(global.docker_endpoint()?),
            Some(_) => None,
        },
        engine_needed: backend == Some(DOCKER),
        dry_run: args.dry_run,
        ..plain_sweep(global, args.max_age.as_deref(), Duration::ZERO)?
    };
    let Swept {
        sandboxes: swept,
        no_engine,
    } = runtime()?
        .block_on(sweep(&request))
        .map_err(|error| sweep_error(&error))?;
    let no_engine = no_engine
        .map(|error| engine_error("the containers of the engine cannot be looked at", &error));
    let no_engine = match no_engine {
        Some(error) if swept.is_empty() => return Err(error),
        // What is on record is told all the same.
        other => other,
    };
    let of = |action| swept.iter().filter(move |one| one.action == action);
    if args.json {
        let all = |action| of(action).collect::<Vec<&SweptSandbox>>();
        render::json(&serde_json::json!({
            "format": 1,
            "dry_run": args.dry_run,
            "removed": all(SweepAction::Removed),
            "kept": all(SweepAction::Kept),
            "failed": all(SweepAction::Failed),
        }))?;
    } else {
        render::out(&render::swept(&swept, args.dry_run))?;
    }
    let failed = of(SweepAction::Failed).count();
    if failed == 0 {
        return no_engine.map_or(Ok(ExitStatus::Success), Err);
    }
    Err(CommandError::failure(match failed {
        1 => "1 sandbox could not be removed".to_owned(),
        failed => format!("{failed} sandboxes could not be removed"),
    })
    .details(no_engine.map(|error| error.message))
    .hint("they stay on record: make the engine reachable, then `mini-ork sandbox-gc` again"))
}

/// Removes what earlier runs left, before another one with a sandbox begins. That something cannot
/// be removed does not keep that one.
pub(super) fn sweep_before(request: &SweepRequest) -> Result<(), CommandError> {
    let runtime = runtime()?;
    // What cannot be removed in time is still on record.
    let swept = runtime.block_on(async { tokio::time::timeout(PATIENCE, sweep(request)).await });
    let swept = swept.into_iter().flatten();
    for one in swept.flat_map(|swept| swept.sandboxes) {
        if one.action == SweepAction::Removed {
            render::err(&format!(
                "removed the sandbox of {}: {}\n",
                one.run, one.why
            ));
        }
    }
    Ok(())
}

/// A sweep of all that is on record.
pub(super) fn plain_sweep(
    global: &GlobalSettings,
    max_age: Option<&str>,
    default: Duration,
) -> Result<SweepRequest, CommandError> {
    const VARIABLE: &str = env_vars::MO_SANDBOX_MAX_AGE;
    let max_age = match max_age {
        Some(text) => parse_duration("--max-age", text)?,
        None => match global.environment.text(VARIABLE)? {
            Some(text) => parse_duration(VARIABLE, &text)?,
            None => default,
        },
    };
    Ok(SweepRequest {
        home: global.home.value.clone(),
        backend: None,
        max_age,
        engine: None,
        engine_needed: false,
        dry_run: false,
    })
}

fn sweep_error(error: &SweepError) -> CommandError {
    CommandError::failure("the sandboxes cannot be looked at")
        .caused_by(error)
        .hint("`mini-ork doctor` says what is wrong with the home")
}

/// All that is on record and can be read.
pub(super) fn records(global: &GlobalSettings) -> Result<Vec<SandboxRecord>, CommandError> {
    let names = ledger(&global.home.value).names();
    let names = names.map_err(|error| {
        CommandError::failure("the records of sandboxes cannot be read").caused_by(&error)
    })?;
    let mut records = Vec::new();
    for name in names {
        // One that is damaged does not hide the others.
        match read(global, &name) {
            Ok(record) => records.extend(record),
            Err(error) => render::err(&format!("{error}\n")),
        }
    }
    Ok(records)
}

fn read(global: &GlobalSettings, name: &str) -> Result<Option<SandboxRecord>, CommandError> {
    if name.contains('/') {
        return Ok(None);
    }
    ledger(&global.home.value).read(name).map_err(|error| {
        CommandError::failure("the record of a sandbox cannot be read").caused_by(&error)
    })
}
