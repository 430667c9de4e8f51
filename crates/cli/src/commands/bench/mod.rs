//! `mini-ork bench`: mini-ork measured from outside, beside what it is compared with.
//!
//! Everything happens in a directory of its own, with programs that get an empty home and no
//! configuration of the user's. What is compared runs turn by turn, so that both sides see the same
//! machine.

mod chain;
mod crowd;
mod gateway;
mod lab;
mod report;
mod sample;
mod sandbox;
mod start;
mod tree;

use std::path::Path;

pub(super) use gateway::{PARTY_ARGUMENT, party_main};
use lab::Lab;
use report::Report;

use crate::cli::{BenchArgs, BenchCommand, BenchDispatchArgs, BenchPart};
use crate::error::{CommandResult, ExitStatus};
use crate::render;
use crate::settings::GlobalSettings;

/// Measures.
pub(crate) fn bench(args: &BenchArgs, global: &GlobalSettings) -> CommandResult {
    match &args.command {
        BenchCommand::Dispatch(args) => dispatch(args, global),
        BenchCommand::Gateway(args) => gateway::gateway(args, global),
        BenchCommand::Sandbox(args) => sandbox::sandbox(args, global),
    }
}

fn dispatch(args: &BenchDispatchArgs, global: &GlobalSettings) -> CommandResult {
    let place = match &args.dir {
        Some(directory) => global.current_directory.join(directory),
        None => global
            .environment
            .path("TMPDIR")
            .unwrap_or_else(|| Path::new("/tmp").to_owned()),
    };
    let lab = Lab::make(&place, global)?;
    let mut report = Report::new(&lab);
    let samples = args.samples.max(1);
    let chosen = |part| args.parts.is_empty() || args.parts.contains(&part);
    if chosen(BenchPart::Start) {
        start::measure(&lab, samples, &mut report)?;
    }
    if chosen(BenchPart::Nodes) {
        chain::measure(&lab, samples, args.nodes.max(2), &mut report)?;
    }
    if chosen(BenchPart::Tree) {
        tree::measure(&lab, global, samples, args.files, &mut report)?;
    }
    if chosen(BenchPart::Runs) {
        crowd::measure(&lab, args.runs.max(1), &mut report)?;
    }
    if args.json {
        render::json(&report)?;
    } else {
        render::out(&report.describe())?;
    }
    Ok(ExitStatus::Success)
}
