mod lane;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mini_ork_control::store::StoreReader;
use mini_ork_node::egress::NetworkPolicy;
use mini_ork_node::supervise::{STDOUT_LOG, Supervisor, last_line};
use mini_ork_node::sys;
use mini_ork_node::text::with_sources;
use mini_ork_node::workspace::{DOCKER, LocalWorkspace, SpawnRequest, Workspace as _};
use mini_ork_protocol::{ByteString, Containment, ExitOutcome, StdinSource};
use rustix::fs::Access;
use serde::Serialize;

use super::drive::find_git;
use super::lanes;
use super::place::checkout;
use super::runs::list;
use super::sandbox::{check_container, check_settings};
use crate::cli::DoctorArgs;
use crate::error::{CommandResult, ExitStatus};
use crate::render;
use crate::settings::{GlobalSettings, Profile, Surroundings, boundaries};

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Found {
    /// It is as it should be.
    Ok,
    /// Good to know; nothing that is needed is missing.
    Note,
    /// Without it, runs fail.
    Missing,
}

/// One line of `mini-ork doctor`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) found: Found,
    pub(crate) text: String,
    pub(crate) remedy: Option<String>,
}

/// Checks that everything that runs need is here, or that one lane works.
pub(crate) fn doctor(args: &DoctorArgs, global: &GlobalSettings) -> CommandResult {
    let checks = match &args.lane {
        Some(lane) => lane::checks(lane, global)?,
        None => all_checks(global),
    };
    let healthy = checks.iter().all(|check| check.found != Found::Missing);
    if args.json {
        render::json(&serde_json::json!({"format": 1, "ok": healthy, "checks": checks}))?;
    } else {
        render::out(&render::doctor(&checks))?;
    }
    Ok(if healthy {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
}

fn all_checks(global: &GlobalSettings) -> Vec<Check> {
    let mut checks = vec![git(global), home(global), disk(global), state(global)];
    checks.push(processes(global));
    checks.extend(sandbox(global));
    let checkout = checkout(global, None).ok().flatten();
    checks.extend(lanes::checks(global, checkout.as_deref()));
    checks.push(program(
        global,
        "python3",
        "recipes with verifiers in Python need it",
    ));
    checks.extend(interrupted_runs(global));
    checks
}

fn git(global: &GlobalSettings) -> Check {
    match find_git(global) {
        Ok(git) => ok(
            "git",
            format!("{} ({})", git.version(), git.program().display()),
        ),
        Err(error) => missing(
            "git",
            error.message,
            "install git 2.38 or later, or put it on PATH",
        ),
    }
}

fn home(global: &GlobalSettings) -> Check {
    const NAME: &str = "home";
    let home = &global.home.value;
    let remedy = "make it readable and writable, or use another with --home DIR or MINI_ORK_HOME";
    let (existing, made) = existing_part(home);
    if !existing.is_dir() {
        return missing(
            NAME,
            format!("{} is no directory", existing.display()),
            remedy,
        );
    }
    let wanted = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    match rustix::fs::access(existing, wanted) {
        Ok(()) if made => ok(NAME, format!("{} ({})", home.display(), global.home.source)),
        Ok(()) => ok(
            NAME,
            format!(
                "{} ({}), made by the first run",
                home.display(),
                global.home.source
            ),
        ),
        Err(error) => missing(
            NAME,
            format!(
                "{} cannot be used: {}",
                existing.display(),
                std::io::Error::from(error)
            ),
            remedy,
        ),
    }
}

fn disk(global: &GlobalSettings) -> Check {
    const NAME: &str = "disk";
    let (existing, _) = existing_part(&global.home.value);
    match sys::disk_free(existing) {
        Ok(free) => {
            let text = format!("{} free at {}", size(free.bytes), existing.display());
            if !free.has_room() {
                missing(
                    NAME,
                    free.to_string(),
                    "free space (`mini-ork clean` helps), or use another home",
                )
            } else {
                ok(NAME, text)
            }
        }
        Err(error) => missing(NAME, error.to_string(), "use another home with --home DIR"),
    }
}

fn state(global: &GlobalSettings) -> Check {
    const NAME: &str = "state";
    let remedy = "move state.db away and keep it; the run directories below runs/ stay readable";
    let reader = match StoreReader::open(&global.home.value) {
        Ok(Some(reader)) => reader,
        Ok(None) => return ok(NAME, "no state.db yet, made by the first run".to_owned()),
        Err(error) => return missing(NAME, with_sources(&error), remedy),
    };
    match (reader.check(), reader.runs()) {
        (Ok(None), Ok(runs)) => ok(
            NAME,
            format!("state.db is whole, {}", render::plural(runs.len(), "run")),
        ),
        (Ok(Some(problem)), _) => missing(NAME, format!("state.db is damaged: {problem}"), remedy),
        (Err(error), _) | (_, Err(error)) => missing(NAME, with_sources(&error), remedy),
    }
}

/// Really runs a program as nodes are run: that is the only proof that it can be done.
fn processes(global: &GlobalSettings) -> Check {
    const NAME: &str = "processes";
    let remedy = "programs of nodes cannot be supervised here; is /proc mounted?";
    match supervised_program(global) {
        Ok(Containment::Cgroup) => ok(
            NAME,
            "each node's programs are held in a cgroup of their own".to_owned(),
        ),
        Ok(Containment::Subreaper) => ok(
            NAME,
            "no cgroup can be made here; supervisors hold each node's programs as their reapers"
                .to_owned(),
        ),
        Ok(Containment::Marker) => ok(
            NAME,
            "this kernel gives orphans to its first process alone; those of a node's programs are found by their environment"
                .to_owned(),
        ),
        Err(problem) => missing(NAME, problem, remedy),
    }
}

/// What the boundary needs that the environment asks for; nothing where it asks for none.
fn sandbox(global: &GlobalSettings) -> Option<Check> {
    const NAME: &str = "sandbox";
    let checked = boundaries(global, None, None).and_then(|(backend, _)| {
        let profile = match Profile::choice(global, None)? {
            Some(name) => Profile::load(global, checkout(global, None)?.as_deref(), name)?,
            None => Profile::default(),
        };
        let surroundings = Surroundings::resolve(global, &backend.value, &profile)?;
        let settings = global.backend_settings(&backend.value, &surroundings)?;
        if backend.value == DOCKER {
            let program = settings.docker.node_program.display().to_string();
            let said = check_container(settings.docker)?;
            return Ok(Some(format!("docker: {said}, {program} inside")));
        }
        if settings.network == NetworkPolicy::Full {
            return Ok(None);
        }
        check_settings(&backend.value, settings, global)?;
        Ok(Some(
            "programs can be confined here without a privilege".to_owned(),
        ))
    });
    match checked {
        Ok(said) => Some(ok(NAME, said?)),
        Err(error) => {
            // The mistakes of a profile, one on each line.
            let lines = std::iter::once(&error.message).chain(&error.details);
            let lines: Vec<&str> = lines.map(String::as_str).collect();
            let remedy = error.hint.as_deref().unwrap_or_default();
            Some(missing(NAME, lines.join("\n"), remedy))
        }
    }
}

fn supervised_program(global: &GlobalSettings) -> Result<Containment, String> {
    let argv = ["sh", "-c", "exit 0"].map(ByteString::from);
    let ran = run_program(global, argv.into(), Vec::new())?;
    match (ran.outcome, ran.containment) {
        (ExitOutcome::Exited { code: 0 }, Some(containment)) => Ok(containment),
        (outcome, _) => Err(format!("a trial program did not run: {outcome:?}")),
    }
}

/// What became of a program that was run to see whether it can be.
struct Ran {
    outcome: ExitOutcome,
    containment: Option<Containment>,
    /// The last line of its standard output.
    said: Option<String>,
}

/// A directory for what a check needs on disk; nothing of it is left when the check has ended.
fn trial_directory(global: &GlobalSettings) -> PathBuf {
    let parent = global
        .environment
        .path("TMPDIR")
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| PathBuf::from("/tmp"));
    parent.join(format!("mini-ork-doctor-{}", std::process::id()))
}

/// Runs `argv` as programs of nodes are run, with `more` in its environment. The error is a
/// sentence.
fn run_program(
    global: &GlobalSettings,
    argv: Vec<ByteString>,
    more: Vec<(OsString, OsString)>,
) -> Result<Ran, String> {
    let directory = trial_directory(global);
    let workspace = LocalWorkspace::new(Supervisor::new(global.program.clone()));
    let environment = global.environment.for_programs().into_iter().chain(more);
    let ran = runtime()?.block_on(async {
        let process = workspace
            .spawn(SpawnRequest {
                directory: directory.clone(),
                argv,
                cwd: PathBuf::from("/"),
                env: environment
                    .map(|(name, value)| (name.into(), value.into()))
                    .collect(),
                stdin: StdinSource::Null,
                timeout: Some(Duration::from_secs(20)),
                grace: Duration::from_secs(1),
                output_limit: 1 << 20,
                secrets: Vec::new(),
            })
            .await
            .map_err(|error| with_sources(&error))?;
        let containment = process.record().map(|record| record.containment);
        let end = process.wait().await.map_err(|error| with_sources(&error))?;
        Ok(Ran {
            outcome: end.outcome,
            containment,
            said: last_line(&directory.join(STDOUT_LOG)).ok().flatten(),
        })
    });
    // It holds nothing but the records of the trial.
    drop(sys::remove_tree(&directory));
    ran
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
}

fn program(global: &GlobalSettings, name: &'static str, why: &str) -> Check {
    match find_program(global, OsStr::new(name)) {
        Some(path) => ok(name, path.display().to_string()),
        None => note(name, format!("not found; {why}"), None),
    }
}

fn interrupted_runs(global: &GlobalSettings) -> Option<Check> {
    let reader = StoreReader::open(&global.home.value).ok()??;
    let all = list(&reader).ok()?;
    let left: Vec<&str> = all
        .iter()
        .filter(|run| run.status == "interrupted")
        .map(|run| run.run.as_str())
        .collect();
    let first = left.first()?;
    Some(note(
        "runs",
        format!("interrupted: {}", left.join(", ")),
        Some(&format!(
            "`mini-ork recover {first}` continues it, `mini-ork kill {first}` ends it"
        )),
    ))
}

/// Where `program` lies, as a lane would find it.
pub(super) fn find_program(global: &GlobalSettings, program: &OsStr) -> Option<PathBuf> {
    let is_program =
        |path: &PathBuf| path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok();
    let named = PathBuf::from(program);
    if named.components().count() > 1 {
        return Some(named).filter(is_program);
    }
    std::env::split_paths(global.environment.raw("PATH")?)
        .map(|directory| directory.join(program))
        .find(is_program)
}

/// The nearest part of `path` that exists, and whether that is all of it.
fn existing_part(path: &Path) -> (&Path, bool) {
    let existing = path
        .ancestors()
        .find(|part| part.symlink_metadata().is_ok());
    match existing {
        Some(part) => (part, part == path),
        None => (path, false),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

pub(super) fn ok(name: &'static str, text: String) -> Check {
    Check {
        name,
        found: Found::Ok,
        text,
        remedy: None,
    }
}

pub(super) fn note(name: &'static str, text: String, remedy: Option<&str>) -> Check {
    Check {
        name,
        found: Found::Note,
        text,
        remedy: remedy.map(ToOwned::to_owned),
    }
}

pub(super) fn missing(name: &'static str, text: String, remedy: &str) -> Check {
    Check {
        name,
        found: Found::Missing,
        text,
        remedy: Some(remedy.to_owned()),
    }
}
