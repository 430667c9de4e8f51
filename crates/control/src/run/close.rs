//! The end of a run: what was not published stays reachable, and nothing else is left.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use mini_ork_node::egress::{Denial, DenialKind};
use mini_ork_node::git::{CommitId, Expected, TreeId};
use mini_ork_node::text::with_sources;
use mini_ork_node::tree::{Look, NotCarriedKind, NotCarriedList, Safe};
use mini_ork_node::workspace::WorkspaceError;
use mini_ork_protocol::RunId;

use super::context::RunContext;
use super::directory::{MAIN_PLACE, RunDirectory, write_atomically, write_json};
use super::event::Base;
use super::failure::WorkError;
use super::nodes::kept_name;
use super::state::RunState;
use super::trees::{Trees, blocking, commit_on, kept_reference};
use super::{RunError, RunView};
use crate::report;
use crate::store::LaneCost;

/// Puts the result of every writer that differs from the base under a ref in the user's
/// repository. Repeating it gives the same refs.
pub(crate) async fn keep(
    context: &Arc<RunContext>,
    state: &RunState,
) -> Result<Vec<(String, CommitId)>, WorkError> {
    let Some(trees) = &context.trees else {
        return Ok(Vec::new());
    };
    let mut kept = Vec::new();
    for work in unpublished(state) {
        if work.tree == trees.base().tree {
            continue;
        }
        let reference = work.reference.clone();
        let commit = keep_tree(context, trees, work.tree, work.message, work.reference).await?;
        kept.push((reference, commit));
    }
    Ok(kept)
}

/// A sentence for each place that programs tried to reach in vain, with what to do about it.
pub(crate) fn denials(denials: &[Denial]) -> Vec<String> {
    const MOST: usize = 20;
    let sentence = |denial: &Denial| {
        let attempts = match denial.count {
            1 => "an attempt".to_owned(),
            count => format!("{count} attempts"),
        };
        let place = &denial.place;
        match denial.kind {
            _ if place.is_empty() => {
                format!("egress: {attempts} to reach other places were denied")
            }
            DenialKind::NotListed => format!(
                "egress: {attempts} to reach {place} denied (add `{place}` to `allow_domains` of the profile, or to MO_SANDBOX_ALLOW, if it is wanted)"
            ),
            DenialKind::Reserved => format!(
                "egress: {attempts} to reach {place} denied: its address is not one of the public internet (add the address itself if it is wanted)"
            ),
            DenialKind::OtherName => {
                format!("egress: {attempts} to reach another host by way of {place} denied")
            }
            DenialKind::Malformed => format!("egress: {attempts} that made no sense denied"),
        }
    };
    let mut sentences: Vec<String> = denials.iter().take(MOST).map(sentence).collect();
    if denials.len() > MOST {
        let others = denials.len() - MOST;
        sentences.push(format!(
            "egress: attempts to reach {others} more places denied"
        ));
    }
    sentences
}

/// What to say of a sandbox that could not be removed.
pub(crate) fn sandbox_left(error: &WorkspaceError) -> String {
    format!(
        "the sandbox may still be there ({}); `mini-ork sandbox-gc` removes it",
        with_sources(error)
    )
}

/// The latest result of a writer.
pub(crate) struct UnpublishedWork {
    /// The ref that is to keep it.
    pub(crate) reference: String,
    /// What it is.
    pub(crate) tree: TreeId,
    /// Message of the commit that holds it.
    pub(crate) message: String,
}

/// The latest result of every writer, in the order of the plan.
pub(crate) fn unpublished(state: &RunState) -> Vec<UnpublishedWork> {
    let plan = state.plan();
    let mut found = Vec::new();
    for (planned, progress) in state.nodes() {
        let node = &planned.node;
        let output = progress
            .outcome
            .as_ref()
            .and_then(|outcome| outcome.output.clone());
        let latest = output.map(|output| (progress.round, output)).or_else(|| {
            let previous = progress.previous.as_ref()?;
            Some((progress.round.saturating_sub(1), previous.output.clone()))
        });
        let Some((round, tree)) = latest.filter(|_| node.kind.writes()) else {
            continue;
        };
        found.push(UnpublishedWork {
            reference: kept_reference(&plan.run, &kept_name(&node.id, round)),
            tree,
            message: format!(
                "mini-ork({}): unpublished work of {} [run {}]\n",
                plan.recipe, node.id, plan.run
            ),
        });
    }
    found
}

/// Every tree that the journal names: what nodes found, what they made, and what was published.
pub(crate) fn journaled_trees(state: &RunState) -> BTreeSet<TreeId> {
    let mut trees = BTreeSet::new();
    for (_, progress) in state.nodes() {
        if let Some(start) = &progress.start {
            trees.extend(start.input.iter().chain(&start.start).cloned());
        }
        if let Some(outcome) = &progress.outcome {
            trees.extend(outcome.output.iter().cloned());
        }
        if let Some(previous) = &progress.previous {
            trees.extend([previous.input.clone(), previous.output.clone()]);
        }
    }
    let branch = state
        .publication()
        .and_then(|publication| publication.branch.as_ref());
    trees.extend(branch.map(|branch| branch.tree.clone()));
    trees
}

/// What the worktrees of a published run had beside its result.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// Refs that now keep commits of agents.
    pub(crate) kept: Vec<(String, CommitId)>,
    /// What could not be kept: the worktrees must stay.
    pub(crate) obstacles: Vec<String>,
}

/// Saves commits and stashes that agents made in the worktrees and whose content is in no result.
/// Where no agent used git to make anything, that is a few system calls for each worktree.
pub(crate) async fn rescue(context: &Arc<RunContext>, state: &RunState) -> Leftovers {
    let Some(trees) = &context.trees else {
        return Leftovers::default();
    };
    let places = context.directory.places();
    let safe = safe(trees.base(), journaled_trees(state), context.started_at_ms);
    let places: Vec<_> = places
        .into_iter()
        .map(|name| (trees.place(&name), rescue_prefix(&context.plan.run, &name)))
        .collect();
    let (git, repository) = (trees.git(), context.repository.clone());
    blocking(move || {
        let mut leftovers = Leftovers::default();
        for (place, prefix) in places {
            let rescued = git
                .find_unsaved(&repository, &place, &safe, Look::Commits)
                .map_err(WorkError::from)
                .and_then(|unsaved| {
                    leftovers
                        .obstacles
                        .extend(unsaved.obstacles.iter().cloned());
                    Ok(git.rescue(&repository, &unsaved, &safe, &prefix)?)
                });
            match rescued {
                Ok(rescued) => leftovers
                    .kept
                    .extend(rescued.into_iter().map(|one| (one.reference, one.commit))),
                Err(error) => leftovers.obstacles.push(with_sources(&error)),
            }
        }
        leftovers
    })
    .await
}

/// What a rescue need not save, and where it hangs what it saves.
pub(crate) fn safe(base: &Base, trees: BTreeSet<TreeId>, at_ms: u64) -> Safe {
    Safe {
        base: base.commit.clone(),
        base_tree: base.tree.clone(),
        trees,
        seconds: i64::try_from(at_ms / 1000).unwrap_or(i64::MAX),
    }
}

/// What the names of refs begin with that keep what was found in the worktree `place`.
pub(crate) fn rescue_prefix(run: &RunId, place: &str) -> String {
    kept_reference(run, &format!("rescue/{place}-"))
}

async fn keep_tree(
    context: &RunContext,
    trees: &Trees,
    tree: TreeId,
    message: String,
    reference: String,
) -> Result<CommitId, WorkError> {
    let git = trees.git();
    let base = trees.base().commit.clone();
    let repository = context.repository.clone();
    let at_ms = context.started_at_ms;
    blocking(move || {
        let commit = commit_on(&git, &base, &tree, &message, at_ms)?;
        git.publish(&repository, &commit, &reference, &Expected::Absent)?;
        Ok(commit)
    })
    .await
}

/// Writes `report.md` for people and `verdict.json` for scripts.
pub(crate) async fn write_report(
    context: &Arc<RunContext>,
    state: &RunState,
    costs: &[LaneCost],
) -> Result<(), RunError> {
    let not_carried = not_carried(context, state).await;
    let view = RunView::of(state, context, not_carried, costs);
    write_json(&context.directory.verdict(), &view).map_err(RunError::Io)?;
    let text = report::render(&view, &context.kickoff);
    write_atomically(&context.directory.report(), text.as_bytes()).map_err(RunError::Io)
}

/// Removes the run's worktrees and its git directory. Only for work that is published, or kept
/// under a ref.
pub(crate) fn remove_worktrees(directory: &RunDirectory) -> io::Result<()> {
    for path in [
        directory.worktree(MAIN_PLACE),
        directory.root().join("worktrees"),
        directory.control_git(),
    ] {
        mini_ork_node::sys::remove_tree(&path)?;
    }
    Ok(())
}

/// Removes what agents keep for a later round, where there will be none, or where the agent held
/// its key and may have written it down.
pub(crate) fn remove_agent_homes(context: &RunContext, published: bool) -> io::Result<()> {
    if published {
        mini_ork_node::sys::remove_tree(&context.directory.agents_outside())?;
        return mini_ork_node::sys::remove_tree(&context.directory.agents());
    }
    let inside = context.plan.keys_inside();
    for planned in &context.plan.nodes {
        for lane in planned.lanes().filter(|lane| inside.contains(&lane.name)) {
            let (node, lane) = (&planned.node.id, &lane.name);
            mini_ork_node::sys::remove_tree(&context.directory.agent_home(node, lane))?;
            let outside = context.directory.agent_home_outside(node, lane);
            mini_ork_node::sys::remove_tree(&outside)?;
        }
    }
    Ok(())
}

/// What the worktrees hold and a git tree cannot: the one that nodes share, and those of writers
/// that had one of their own.
async fn not_carried(context: &Arc<RunContext>, state: &RunState) -> Vec<String> {
    let Some(trees) = &context.trees else {
        return Vec::new();
    };
    let shared = (
        String::new(),
        trees.place(MAIN_PLACE),
        trees.base().tree.clone(),
    );
    let own = state.nodes().filter_map(|(planned, progress)| {
        let start = progress.start.as_ref()?;
        let place = start
            .place
            .as_deref()
            .filter(|place| *place != MAIN_PLACE)?;
        planned.node.kind.writes().then_some(())?;
        let label = format!("{}: ", planned.node.id);
        Some((label, trees.place(place), start.start.clone()?))
    });
    let places: Vec<_> = std::iter::once(shared).chain(own).collect();
    let git = trees.git();
    blocking(move || {
        let mut all = Vec::new();
        for (label, place, base) in places {
            if !place.path.is_dir() {
                continue;
            }
            // The list informs; a directory that cannot be read any more must not fail a run that
            // has ended.
            let found = match git.not_carried(&place, &base) {
                Ok(found) => listed(&found),
                Err(error) => vec![with_sources(&error)],
            };
            all.extend(found.into_iter().map(|entry| format!("{label}{entry}")));
        }
        all
    })
    .await
}

fn listed(found: &NotCarriedList) -> Vec<String> {
    let more = (found.more > 0).then(|| format!("and {} more", found.more));
    found
        .entries
        .iter()
        .map(|entry| {
            let path = entry.path.as_os_str().display();
            format!("{path} ({})", what(&entry.kind))
        })
        .chain(more)
        .collect()
}

fn what(kind: &NotCarriedKind) -> String {
    match kind {
        NotCarriedKind::Ignored => "ignored".to_owned(),
        NotCarriedKind::EmptyDirectory => "empty directory".to_owned(),
        NotCarriedKind::NestedGit => "git directory of a nested repository".to_owned(),
        NotCarriedKind::SubmoduleContent => "content of a submodule".to_owned(),
        NotCarriedKind::ForbiddenName => "a name that git refuses".to_owned(),
        NotCarriedKind::PathTooLong => "a path that is too long for git".to_owned(),
        NotCarriedKind::Pipe => "named pipe".to_owned(),
        NotCarriedKind::Socket => "socket".to_owned(),
        NotCarriedKind::Device => "device".to_owned(),
        NotCarriedKind::ModeBits { mode } => format!("permission bits {mode:o}"),
        NotCarriedKind::HardLink => "hard link; the file is carried, the link is not".to_owned(),
        NotCarriedKind::Normalised => "bytes that its attributes change".to_owned(),
    }
}
