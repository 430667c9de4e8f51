//! The checks that a node's result must pass besides its own verdict.

use mini_ork_node::git::{Change, ChangeKind, ControlGit, TreeId};

use super::super::context::RunContext;
use super::super::event::{Failure, Remedy};
use super::super::failure::ground_failure;
use super::super::fold::Folded;
use super::{Job, listed};
use crate::reason::Reason;
use crate::recipe::Gate;

/// Refuses to ask a lane when the budget of the day, or that of the run, is already used up. A
/// program that an earlier control plane started is already being paid, so it is never refused.
pub(super) fn budget_before(context: &RunContext, job: &Job) -> Result<(), Failure> {
    if job.resumed_program(context) {
        return Ok(());
    }
    let daily = context.daily_budget_usd;
    if job.spent_today_usd >= daily {
        return Err(Failure {
            reason: Reason::BudgetExhausted,
            detail: format!(
                "${:.2} of the daily budget of ${daily:.2} were spent in the last 24 hours, by all \
                 runs together",
                job.spent_today_usd
            ),
            remedy: Remedy::None,
        });
    }
    match context.plan.limits.budget_usd {
        Some(budget)
            if job.planned.node.gates.contains(&Gate::Budget) && job.spent_usd >= budget =>
        {
            Err(Failure {
                reason: Reason::BudgetExhausted,
                detail: format!("${:.2} of ${budget:.2} are spent", job.spent_usd),
                remedy: Remedy::None,
            })
        }
        _ => Ok(()),
    }
}

/// Refuses a result that cost more than the node may.
pub(super) fn budget_after(job: &Job, cost_usd: Option<f64>) -> Result<(), Failure> {
    match (job.planned.node.max_cost_usd, cost_usd) {
        (Some(limit), Some(cost)) if cost > limit => Err(Failure {
            reason: Reason::BudgetExhausted,
            detail: format!("it cost ${cost:.2}, its limit is ${limit:.2}"),
            remedy: Remedy::None,
        }),
        _ => Ok(()),
    }
}

/// Refuses changes outside the kickoff's scope.
pub(super) fn scope(context: &RunContext, job: &Job, changes: &[Change]) -> Result<(), Failure> {
    if !job.planned.node.gates.contains(&Gate::Scope) {
        return Ok(());
    }
    // A rename takes a file away from its old path, so both ends have to be in scope.
    let touched: Vec<&[u8]> = changes
        .iter()
        .flat_map(|change| std::iter::once(change.path.as_bytes()).chain(renamed_from(change)))
        .collect();
    let violations = context.kickoff.scope.violations(&touched);
    if violations.is_empty() {
        return Ok(());
    }
    let files: Vec<String> = violations.iter().map(ToString::to_string).collect();
    Err(Failure {
        reason: Reason::ArtifactContract,
        detail: format!(
            "it changed files outside the kickoff's scope: {}",
            listed(&files)
        ),
        remedy: Remedy::Attempt,
    })
}

fn renamed_from(change: &Change) -> Option<&[u8]> {
    match &change.kind {
        ChangeKind::Renamed { from } => Some(from.as_bytes()),
        _ => None,
    }
}

/// Refuses a result in which a file that was in conflict still holds a marker.
pub(super) fn no_conflict_markers(
    git: &ControlGit,
    input: &Folded,
    output: &TreeId,
) -> Result<(), Failure> {
    let mut unresolved = Vec::new();
    for found in &input.conflicts {
        let path = &found.conflict.path;
        let content = git
            .read_blob(output, path)
            .map_err(|error| ground_failure(&error))?;
        let marked = content.is_some_and(|content| {
            content
                .bytes
                .split(|byte| *byte == b'\n')
                .any(|line| line.starts_with(b"<<<<<<< ") || line.starts_with(b">>>>>>> "))
        });
        if marked {
            unresolved.push(path.to_string());
        }
    }
    if unresolved.is_empty() {
        return Ok(());
    }
    Err(Failure {
        reason: Reason::MergeConflict,
        detail: format!("conflict markers are left in {}", listed(&unresolved)),
        remedy: Remedy::Attempt,
    })
}
