//! One file for each command: a function from settings to an exit status.

mod apply;
mod bench;
mod clean;
pub(crate) mod completions;
mod conflicts;
mod costs;
mod diff;
mod doctor;
mod drive;
mod dry_run;
mod help;
mod image;
mod init;
pub(crate) mod internal;
mod kill;
mod lanes;
mod logs;
mod overview;
mod place;
mod preflight;
mod recipe;
mod recover;
mod run;
mod runs;
mod sandbox;
mod sandboxes;
mod select;
mod settings;
mod status;
mod vault;
mod verify;

use std::process::ExitCode;

use clap::Parser as _;

pub(crate) use costs::{Spending, SpendingGroup};
pub(crate) use doctor::{Check, Found};
pub(crate) use dry_run::PlannedSandbox;
pub(crate) use image::{PrunedImage, ShownImage};
pub(crate) use lanes::DescribedLane;
pub(crate) use sandboxes::{ShownContainer, ShownSandbox};
pub(crate) use settings::Shown;
pub(crate) use vault::{CheckedSecret, ShownSecret};

use crate::cli::{Cli, Command};
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render;
use crate::settings::{Environment, GlobalSettings};

/// Runs the command line.
pub(crate) fn main() -> ExitCode {
    completions::answer_shell();
    let environment = Environment::read();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // clap prints help and version on standard output and mistakes on standard error.
            let _ = error.print();
            return if error.use_stderr() {
                ExitStatus::Usage
            } else {
                ExitStatus::Success
            }
            .into();
        }
    };
    render::set_color(cli.global.color);
    let status = match &cli.command {
        // These work where no home can be found.
        None => overview::overview(GlobalSettings::resolve(&cli.global, environment).as_ref()),
        Some(Command::Help(args)) => help::help(args),
        Some(Command::Completions(args)) => completions::completions(args),
        Some(_) => GlobalSettings::resolve(&cli.global, environment)
            .and_then(|global| dispatch(cli.command, &global)),
    };
    match status {
        Ok(status) => status.into(),
        Err(error) => {
            render::error(&error);
            error.status.into()
        }
    }
}

fn dispatch(command: Option<Command>, global: &GlobalSettings) -> CommandResult {
    match command {
        None => Ok(ExitStatus::Success),
        Some(Command::Run(args)) => run::run(args, global),
        Some(Command::Bench(args)) => bench::bench(&args, global),
        Some(Command::Clean(args)) => clean::clean(&args, global),
        Some(Command::Runs(args)) => runs::runs(&args, global),
        Some(Command::Status(args)) => status::status(&args, global),
        Some(Command::Logs(args)) => logs::logs(&args, global),
        Some(Command::Diff(args)) => diff::diff(&args, global),
        Some(Command::Apply(args)) => apply::apply(&args, global),
        Some(Command::Conflicts(args)) => conflicts::conflicts(&args, global),
        Some(Command::Kill(args)) => kill::kill(&args, global),
        Some(Command::Recover(args)) => recover::recover(&args, global),
        Some(Command::Recipe(args)) => recipe::recipe(&args, global),
        Some(Command::Costs(args)) => costs::costs(&args, global),
        Some(Command::Lanes(args)) => lanes::lanes(&args, global),
        Some(Command::Init(args)) => init::init(&args, global),
        Some(Command::Sandbox(args)) => verify::sandbox(args, global),
        Some(Command::Image(args)) => image::image(args, global),
        Some(Command::SandboxGc(args)) => sandboxes::gc(&args, global),
        Some(Command::Vault(args)) => vault::vault(args, global),
        Some(Command::Doctor(args)) => doctor::doctor(&args, global),
        Some(Command::Settings(args)) => settings::settings(&args, global),
        Some(Command::Completions(args)) => completions::completions(&args),
        Some(Command::Help(args)) => help::help(&args),
    }
}

/// What a command waits with that does more than one thing at a time.
fn runtime() -> Result<tokio::runtime::Runtime, CommandError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::failure("cannot start").caused_by(&error))
}
