use mini_ork_control::run::{self, Recovery};
use mini_ork_control::store::Store;
use mini_ork_node::redact::Redactor;

use super::drive::{
    broken_off, conclude, drive, execution, fault_point, find_git, reopen_workspace, user_excludes,
};
use super::run::apply_when_asked;
use super::select::select;
use crate::cli::RecoverArgs;
use crate::error::{CommandError, CommandResult};
use crate::settings::{GlobalSettings, daily_budget, parse_money};

/// Continues a run from its last good node.
pub(crate) fn recover(args: &RecoverArgs, global: &GlobalSettings) -> CommandResult {
    let selected = select(global, &args.run)?;
    let budget_usd = args
        .budget
        .as_deref()
        .map(|text| parse_money("--budget", text))
        .transpose()?;
    let run = selected.run.clone();
    let redactor = Redactor::new();
    let models = global.model_sources(Some(&selected.row.repository), &redactor)?;
    let (workspace, surroundings) = reopen_workspace(global, &run, &selected.row.backend)?;
    let recovery = Recovery {
        home: global.home.value.clone(),
        run: selected.run,
        git: find_git(global)?,
        workspace,
        execution: execution(global, &surroundings),
        models,
        excludes: user_excludes(global),
        budget_usd,
        daily_budget_usd: daily_budget(global)?.value,
        fault: fault_point(global)?,
    };
    drop(selected.reader);
    let store = Store::open(&global.home.value)
        .map_err(|error| CommandError::failure("the state cannot be written").caused_by(&error))?;
    let view = drive(
        async |observer, asked| run::recover(recovery, &store, observer, asked).await,
        !args.json,
    )?
    .map_err(|error| broken_off(global, &run, &error, args.json).redacted(&redactor))?;
    let status = conclude(&view, args.json)?;
    apply_when_asked(args.apply, &view, global, status)
}
