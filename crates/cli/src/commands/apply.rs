//! `mini-ork apply`, and `--apply` of a run.

use mini_ork_control::run::{Inspection, RunView};
use mini_ork_node::git::RepoPath;
use mini_ork_node::tree::{ApplyError, ApplyOutcome, Obstacle, ObstacleReason};
use mini_ork_protocol::RunId;
use serde_json::json;

use super::diff::inspect_error;
use super::drive::find_git;
use super::select::{Selected, open_reader, select};
use crate::cli::ApplyArgs;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render::{self, Style, paint, path_json, plural};
use crate::settings::GlobalSettings;

/// Most paths that are listed for people.
const MOST_LISTED: usize = 30;

/// Puts a run's change into the checkout, as uncommitted changes.
pub(crate) fn apply(args: &ApplyArgs, global: &GlobalSettings) -> CommandResult {
    let selected = select(global, &args.run)?;
    let run = selected.run.to_string();
    let outcome = apply_selected(&selected, global, args.dry_run);
    if !args.json {
        render::out(&outcome.map_err(Refusal::into_error)?.describe())?;
        return Ok(ExitStatus::Success);
    }
    match outcome {
        Ok(applied) => {
            let (outcome, paths) = applied.facts();
            render::json(&json!({
                "format": 1,
                "run": run,
                "outcome": outcome,
                "paths": paths.iter().map(shown_path).collect::<Vec<_>>(),
                "obstacles": [],
            }))?;
            Ok(ExitStatus::Success)
        }
        Err(Refusal::Obstacles { run, obstacles }) => {
            let listed: Vec<_> = obstacles
                .iter()
                .map(|obstacle| {
                    json!({"path": shown_path(&obstacle.path), "reason": obstacle.reason})
                })
                .collect();
            render::json(&json!({
                "format": 1,
                "run": run,
                "outcome": "refused",
                "paths": [],
                "obstacles": listed,
            }))?;
            Ok(ExitStatus::Failure)
        }
        Err(Refusal::Error(error)) => Err(error),
    }
}

/// What applying did.
#[derive(Debug)]
pub(crate) struct Applied {
    run: String,
    outcome: ApplyOutcome,
}

impl Applied {
    /// It in a few lines.
    pub(crate) fn describe(&self) -> String {
        let run = &self.run;
        let (word, paths) = match &self.outcome {
            ApplyOutcome::AlreadyApplied => {
                return format!(
                    "{} · run {run} · the checkout has its result\n",
                    paint(Style::Good, "already applied")
                );
            }
            ApplyOutcome::WouldApply { paths } => (paint(Style::Warn, "would apply"), paths),
            ApplyOutcome::Applied { paths } => (paint(Style::Good, "applied"), paths),
        };
        let mut text = format!(
            "{word} · run {run} · {}, not staged\n",
            plural(paths.len(), "file")
        );
        for path in paths.iter().take(MOST_LISTED) {
            text.push_str(&format!("  {path}\n"));
        }
        if paths.len() > MOST_LISTED {
            text.push_str(&format!("  and {} more\n", paths.len() - MOST_LISTED));
        }
        text
    }

    fn facts(&self) -> (&'static str, &[RepoPath]) {
        match &self.outcome {
            ApplyOutcome::AlreadyApplied => ("already_applied", &[]),
            ApplyOutcome::WouldApply { paths } => ("would_apply", paths),
            ApplyOutcome::Applied { paths } => ("applied", paths),
        }
    }
}

/// Puts the change of a run into the checkout.
pub(crate) fn apply_view(
    view: &RunView,
    global: &GlobalSettings,
    dry_run: bool,
) -> Result<Applied, CommandError> {
    let damaged = |problem: &dyn std::error::Error| {
        CommandError::failure("the run cannot be applied").caused_by(problem)
    };
    let run = RunId::parse(&view.run).map_err(|error| damaged(&error))?;
    let gone = || CommandError::failure(format!("run {run} is not on record any more"));
    let reader = open_reader(global)?.ok_or_else(gone)?;
    let row = reader
        .run(&run)
        .map_err(|error| damaged(&error))?
        .ok_or_else(gone)?;
    let selected = Selected { run, row, reader };
    apply_selected(&selected, global, dry_run).map_err(Refusal::into_error)
}

/// Why nothing was applied.
enum Refusal {
    /// Work in the checkout would be lost.
    Obstacles {
        run: String,
        obstacles: Vec<Obstacle>,
    },
    /// Anything else.
    Error(CommandError),
}

impl Refusal {
    fn into_error(self) -> CommandError {
        match self {
            Self::Error(error) => error,
            Self::Obstacles { run, obstacles } => {
                let count = obstacles.len();
                let more = count.saturating_sub(MOST_LISTED);
                let lines = obstacles
                    .iter()
                    .take(MOST_LISTED)
                    .map(|obstacle| format!("{}  {}", obstacle.path, reason(obstacle.reason)))
                    .chain((more > 0).then(|| format!("and {more} more")));
                CommandError::failure(format!(
                    "run {run} was not applied: {} in the way; nothing was changed",
                    match count {
                        1 => "1 path of the checkout is".to_owned(),
                        _ => format!("{count} paths of the checkout are"),
                    }
                ))
                .details(lines)
                .hint(format!(
                    "commit or stash these changes first, or take the work with git: \
                     `mini-ork diff {run} | git apply --3way`"
                ))
            }
        }
    }
}

fn apply_selected(
    selected: &Selected,
    global: &GlobalSettings,
    dry_run: bool,
) -> Result<Applied, Refusal> {
    let run = selected.run.to_string();
    let git = find_git(global).map_err(Refusal::Error)?;
    let inspected = Inspection::open(&selected.reader, &selected.row, &git)
        .and_then(|inspection| Ok((inspection.work()?, inspection)));
    let (work, inspection) =
        inspected.map_err(|error| Refusal::Error(inspect_error(&error, &run)))?;
    if work.conflicts > 0 {
        return Err(Refusal::Error(
            CommandError::failure(format!(
                "run {run} was not applied: {} of its own could not be merged",
                plural(work.conflicts, "path")
            ))
            .hint(format!("`mini-ork conflicts {run}` shows both versions")),
        ));
    }
    let repository = inspection.repository();
    match inspection
        .git()
        .apply(repository, &work.before, &work.after, dry_run)
    {
        Ok(outcome) => Ok(Applied { run, outcome }),
        Err(ApplyError::Refused { obstacles }) => Err(Refusal::Obstacles { run, obstacles }),
        Err(error @ ApplyError::NoCheckout { .. }) => Err(Refusal::Error(
            CommandError::failure(format!("run {run} was not applied"))
                .caused_by(&error)
                .hint("take the branch instead, from one of its worktrees"),
        )),
        Err(error) => Err(Refusal::Error(
            CommandError::failure(format!("run {run} was not applied")).caused_by(&error),
        )),
    }
}

fn reason(reason: ObstacleReason) -> &'static str {
    match reason {
        ObstacleReason::Changed => "was changed since the run began",
        ObstacleReason::Missing => "is not there any more",
        ObstacleReason::InTheWay => "is there, and the run adds it",
        ObstacleReason::Submodule => "is a submodule, which cannot be changed this way",
    }
}

fn shown_path(path: &RepoPath) -> serde_json::Value {
    path_json(path.as_path().as_os_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_each_path_and_its_reason() {
        let obstacle = |path: &str, reason| Obstacle {
            path: RepoPath::new(path).unwrap(),
            reason,
        };
        let error = Refusal::Obstacles {
            run: "abc".to_owned(),
            obstacles: vec![
                obstacle("src/a\nb", ObstacleReason::Changed),
                obstacle("new", ObstacleReason::InTheWay),
            ],
        }
        .into_error();
        assert_eq!(error.status, ExitStatus::Failure);
        assert_eq!(
            error.details[0],
            "src/a\\nb  was changed since the run began"
        );
        assert!(error.message.contains("2 paths") && error.hint.is_some());
    }
}
