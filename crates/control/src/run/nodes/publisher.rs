//! The nodes that end a run: publisher and rollback.

use mini_ork_node::git::{Expected, GitError};
use mini_ork_node::text::on_one_line;

use super::super::context::RunContext;
use super::super::event::{Failure, NodeOutcome, Publication, PublishedBranch, Remedy, RunEvent};
use super::super::failure::ground_failure;
use super::super::fold::Folded;
use super::super::trees::{blocking, branch_name, commit_on};
use super::{Found, Job, Reporter, gates, outputs};
use crate::reason::Reason;
use crate::recipe::{Gate, NodeKind, Output, Visibility};

pub(super) async fn run(
    context: &RunContext,
    job: &Job,
    reporter: &Reporter,
) -> Result<NodeOutcome, Failure> {
    let input = job.input(context).await?;
    job.require_work(context, input.as_ref())?;
    let found = Found {
        place: "none".to_owned(),
        tree: None,
    };
    reporter
        .journal(RunEvent::NodeStarted(job.start(input.as_ref(), &found)))
        .await?;
    context.fault.hit("node-started");
    require_approval(context, job)?;

    let artifacts = collect_artifacts(context, job).map_err(|error| ground_failure(&error))?;
    let branch = match input {
        Some(folded) => Some(publish(context, job, folded).await?),
        None => None,
    };
    let mut outcome = NodeOutcome::done(match &branch {
        Some((branch, _)) => format!("branch {}", branch.name),
        None => format!(
            "{} output(s) in {}",
            artifacts.len(),
            context.directory.artifacts().display()
        ),
    });
    outcome.changed_files = branch.as_ref().map_or(0, |(_, files)| *files);
    let branch = branch.map(|(branch, _)| branch);
    reporter
        .journal(RunEvent::Published(Publication { branch, artifacts }))
        .await?;
    context.fault.hit("published");
    Ok(outcome)
}

/// Ends a failed run's work on purpose: the branch is not made. What was done stays reachable; the
/// engine keeps it under refs of its own whenever a run ends without publishing.
pub(super) async fn roll_back(
    context: &RunContext,
    job: &Job,
    reporter: &Reporter,
) -> Result<NodeOutcome, Failure> {
    let found = Found {
        place: "none".to_owned(),
        tree: None,
    };
    reporter
        .journal(RunEvent::NodeStarted(job.start(None, &found)))
        .await?;
    if let Some(trees) = &context.trees {
        let base = trees.base().tree.clone();
        trees
            .prepare("main", &base)
            .await
            .map_err(|error| ground_failure(&error))?;
    }
    Ok(NodeOutcome::done(
        "the worktree is back at its base; no branch was made",
    ))
}

/// What the deployment gate and the recipe's contract ask for. The graph alone would do for a
/// recipe whose publisher depends on all its judges; the gate holds for every recipe.
fn require_approval(context: &RunContext, job: &Job) -> Result<(), Failure> {
    let gated = job.planned.node.gates.contains(&Gate::Deployment);
    for planned in &context.plan.nodes {
        let node = &planned.node;
        let judges = match node.kind {
            NodeKind::Verifier => {
                gated || context.plan.contract.success_verifiers.contains(&node.id)
            }
            NodeKind::Reviewer => gated && node.outputs.is_empty(),
            _ => false,
        };
        if judges && !job.ancestors.iter().any(|ancestor| ancestor.id == node.id) {
            return Err(Failure {
                reason: Reason::ArtifactContract,
                detail: format!("`{}` has not approved what is to be published", node.id),
                remedy: Remedy::None,
            });
        }
    }
    Ok(())
}

async fn publish(
    context: &RunContext,
    job: &Job,
    folded: Folded,
) -> Result<(PublishedBranch, u64), Failure> {
    let Some(trees) = &context.trees else {
        return Err(Failure {
            reason: Reason::Config,
            detail: "there is no tree to publish".to_owned(),
            remedy: Remedy::None,
        });
    };
    let base = trees.base().clone();
    let git = trees.git();
    let changes = {
        let (git, from, to) = (trees.git(), base.tree.clone(), folded.tree.clone());
        blocking(move || git.changes(&from, &to))
            .await
            .map_err(|error| ground_failure(&error))?
    };
    gates::scope(context, job, &changes)?;
    let message = commit_message(context);
    let at_ms = context.started_at_ms;
    let (git_for_commit, parent) = (git.clone(), base.commit);
    let (commit, tree) = blocking(move || -> Result<_, GitError> {
        let commit = commit_on(&git_for_commit, &parent, &folded.tree, &message, at_ms)?;
        let tree = git_for_commit.tree_of(&commit)?;
        Ok((commit, tree))
    })
    .await
    .map_err(|error| ground_failure(&error))?;
    context.fault.hit("commit-made");
    let name = branch_name(&context.plan.run);
    let reference = format!("refs/heads/{name}");
    let repository = context.repository.clone();
    let tip = commit.clone();
    blocking(move || git.publish(&repository, &tip, &reference, &Expected::Absent))
        .await
        .map_err(|error| ground_failure(&error))?;
    context.fault.hit("branch-made");
    let files = changes.len() as u64;
    Ok((PublishedBranch { name, commit, tree }, files))
}

/// The subject of the one commit. The title is the user's own text on one line.
fn commit_message(context: &RunContext) -> String {
    let plan = &context.plan;
    let title = on_one_line(&plan.title);
    format!(
        "mini-ork({}): {} [run {}]\n",
        plan.recipe,
        title.trim(),
        plan.run
    )
}

/// Copies the outputs that are meant for the user; returns their paths relative to the run
/// directory.
fn collect_artifacts(context: &RunContext, job: &Job) -> std::io::Result<Vec<String>> {
    let for_user = |output: &Output| output.visibility == Visibility::Consumer;
    let directory = context.directory.artifacts();
    let paths = outputs::gather(context, &job.ancestors, &directory, for_user)?;
    Ok(paths
        .iter()
        .map(|path| format!("artifacts/{path}"))
        .collect())
}
