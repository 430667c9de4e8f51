use std::fmt::Write as _;
use std::path::Path;

use mini_ork_control::clean::{
    self, Action, CleanError, CleanItem, CleanPlan, CleanRequest, Subject,
};
use mini_ork_control::reserve;
use mini_ork_control::store::Store;
use mini_ork_node::text::with_sources;
use serde::Serialize;

use super::drive::{fault_point, find_git};
use super::runtime;
use crate::cli::CleanArgs;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render::{self, Style, one_line, paint, table};
use crate::settings::{GlobalSettings, parse_duration, parse_size};

/// The widest reason in a list.
const WIDTH: usize = 160;

/// What scripts get.
#[derive(Debug, Serialize)]
struct CleanView<'a> {
    dry_run: bool,
    #[serde(flatten)]
    plan: &'a CleanPlan,
    freed_bytes: u64,
}

/// Removes what finished runs left, never unsaved work.
pub(crate) fn clean(args: &CleanArgs, global: &GlobalSettings) -> CommandResult {
    let max_size = args.max_size.as_deref();
    let request = CleanRequest {
        home: global.home.value.clone(),
        older_than: parse_duration("--older-than", &args.older_than)?,
        max_size: max_size
            .map(|text| parse_size("--max-size", text))
            .transpose()?,
        git: find_git(global)?,
        fault: fault_point(global)?,
    };
    reserve::make_room(&request.home)
        .map_err(|error| CommandError::failure("no room can be made").caused_by(&error))?;
    let plan = if args.dry_run {
        clean::plan(&request).map_err(|error| clean_error(&error))?
    } else if request.home.is_dir() {
        carry_out(&request)?
    } else {
        // A home is made by the first run, not by looking for one.
        CleanPlan::default()
    };
    if args.json {
        render::json(&CleanView {
            dry_run: args.dry_run,
            freed_bytes: plan.freed_bytes(),
            plan: &plan,
        })?;
    } else {
        render::out(&shown(&plan, args.dry_run))?;
    }
    let failed = |item: &CleanItem| matches!(item.action, Action::Keep { failed: true, .. });
    Ok(if plan.items.iter().any(failed) {
        ExitStatus::Failure
    } else {
        ExitStatus::Success
    })
}

fn carry_out(request: &CleanRequest) -> Result<CleanPlan, CommandError> {
    let store = Store::open(&request.home)
        .map_err(|error| CommandError::failure("the state cannot be written").caused_by(&error))?;
    let runtime = runtime()?;
    runtime
        .block_on(clean::carry_out(request, &store))
        .map_err(|error| clean_error(&error))
}

fn clean_error(error: &CleanError) -> CommandError {
    let failed = CommandError::failure(with_sources(error));
    match error {
        CleanError::Busy => failed.hint("wait for it, or look for it with `ps`"),
        _ => failed.hint("`mini-ork doctor` says what is wrong with the home"),
    }
}

fn shown(plan: &CleanPlan, dry_run: bool) -> String {
    if plan.items.is_empty() {
        let total = clean::human_bytes(plan.total_bytes);
        return format!("nothing to clean; all runs take {total}\n");
    }
    let rows: Vec<Vec<String>> = plan
        .items
        .iter()
        .map(|item| {
            vec![
                item.run.clone().unwrap_or_else(|| "–".to_owned()),
                one_line(&subject(item), WIDTH),
                clean::human_bytes(item.bytes),
                action(item, dry_run),
                one_line(&reason(item), WIDTH),
            ]
        })
        .collect();
    let mut text = table(&["RUN", "WHAT", "SIZE", "ACTION", "WHY"], &rows);
    let rescued: Vec<_> = plan.items.iter().flat_map(|item| &item.rescued).collect();
    if !rescued.is_empty() {
        text.push_str("\nsaved, in the repository of each run:\n");
        for one in rescued {
            let what = paint(Style::Dim, &one_line(&one.what, WIDTH));
            let _ = writeln!(text, "  {}  {what}", one.reference);
        }
    }
    let (freed, total) = (plan.freed_bytes(), plan.total_bytes);
    let _ = writeln!(
        text,
        "\n{} {} of {}{}",
        if dry_run { "would free" } else { "freed" },
        clean::human_bytes(freed),
        clean::human_bytes(total.max(freed)),
        if dry_run { "; nothing was removed" } else { "" },
    );
    text
}

fn subject(item: &CleanItem) -> String {
    match item.what {
        // A worktree beside the main one has the name of its node.
        Subject::Worktree => match Path::new(&item.path).file_name() {
            Some(name) if name != "worktree" => format!("worktree {}", name.display()),
            _ => "worktree".to_owned(),
        },
        Subject::ControlGit => "git directory".to_owned(),
        Subject::Run => "run".to_owned(),
        Subject::Orphan => "unrecorded run".to_owned(),
        Subject::Record => "record".to_owned(),
        Subject::Trash => "remains of a clean".to_owned(),
    }
}

fn action(item: &CleanItem, dry_run: bool) -> String {
    match (&item.action, dry_run) {
        (Action::Remove, true) => "remove".to_owned(),
        (Action::Remove, false) => paint(Style::Good, "removed"),
        (Action::RescueThenRemove { .. }, true) => "save, then remove".to_owned(),
        (Action::RescueThenRemove { .. }, false) => paint(Style::Good, "saved, removed"),
        (Action::Finalise, true) => "close".to_owned(),
        (Action::Finalise, false) => paint(Style::Good, "closed"),
        (Action::Keep { failed: false, .. }, _) => paint(Style::Dim, "keep"),
        (Action::Keep { failed: true, .. }, _) => paint(Style::Bad, "not removed"),
    }
}

fn reason(item: &CleanItem) -> String {
    match &item.action {
        Action::Remove => item.why.clone(),
        Action::Finalise => format!("{}: failed, infra_lost", item.why),
        Action::RescueThenRemove { finds } => format!("{}; {}", item.why, finds.join(", ")),
        Action::Keep { reason, .. } => format!("{reason} ({})", item.path),
    }
}
