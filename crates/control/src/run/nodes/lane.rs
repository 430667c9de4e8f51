//! Nodes that an agent does: planner, researcher, transform, implementer, reviewer, eval.

use std::collections::BTreeSet;
use std::path::PathBuf;

use mini_ork_node::git::{Change, TreeId};
use mini_ork_node::tree::{CheckoutFingerprint, checkout_fingerprint};

use super::super::context::RunContext;
use super::super::directory::{make_directory, write_atomically, write_atomically_by};
use super::super::event::{Failure, NodeOutcome, Remedy, RunEvent};
use super::super::failure::{WorkError, ground_failure};
use super::super::fold::Folded;
use super::super::trees::{Lease, Trees, Use, blocking, repository_root};
use super::program::{self, Said};
use super::{Found, Job, Reporter, gates, listed, outputs, paths, prompt};
use crate::lanes::Lane;
use crate::reason::Reason;
use crate::recipe::NodeKind;
use crate::verify::{Verdict, read_review};

/// Name of the worktree field for work in the user's directory itself.
const IN_PLACE: &str = "in-place";

pub(super) async fn run(
    context: &RunContext,
    job: &Job,
    reporter: &Reporter,
) -> Result<NodeOutcome, Failure> {
    let lane = job.lane.as_ref().ok_or_else(|| Failure {
        reason: Reason::Config,
        detail: "no lane was planned for it".to_owned(),
        remedy: Remedy::None,
    })?;
    gates::budget_before(context, job)?;
    let input = job.input(context).await?;
    if !job.kind().writes() {
        job.require_work(context, input.as_ref())?;
    } else if job.planned.node.accepts_conflicts
        && input
            .as_ref()
            .is_some_and(|folded| folded.conflicts.is_empty())
    {
        let mut outcome = NodeOutcome::done("no conflicts to resolve");
        outcome.skipped = true;
        outcome.output = input.as_ref().map(|folded| folded.tree.clone());
        let found = Found {
            place: IN_PLACE.to_owned(),
            tree: outcome.output.clone(),
        };
        reporter
            .journal(RunEvent::NodeStarted(job.start(input.as_ref(), &found)))
            .await?;
        return Ok(outcome);
    }
    let desk = Desk::take(context, job, input.as_ref()).await?;
    context.fault.hit("worktree-ready");
    let worked = work(context, job, lane, input.as_ref(), &desk, reporter).await;
    // The worktree is given back whatever happened; the first failure is the one to report.
    let settled = desk.settle(context, job, input.as_ref(), reporter).await;
    let said = worked?;
    let done = settled?;
    context.fault.hit("snapshot-taken");
    conclude(context, job, input.as_ref(), &said, &done)
}

/// Where a node works, and on what.
struct Desk {
    path: PathBuf,
    found: Found,
    lease: Option<Lease>,
    fingerprint: Option<CheckoutFingerprint>,
    /// An earlier control plane already started the program here.
    retaken: bool,
}

/// What a writer's worktree holds when it is given back.
struct Settled {
    start: Option<TreeId>,
    output: Option<TreeId>,
    changes: Vec<Change>,
}

impl Desk {
    async fn take(
        context: &RunContext,
        job: &Job,
        input: Option<&Folded>,
    ) -> Result<Self, Failure> {
        let (Some(trees), Some(input)) = (&context.trees, input) else {
            let repository = context.repository.clone();
            let path = repository_root(&repository).to_owned();
            // The user's own directory is lent, so what is in it is noted down first.
            let fingerprint = blocking(move || checkout_fingerprint(&repository))
                .await
                .map_err(|error| ground_failure(&error))?;
            return Ok(Self {
                path,
                found: Found {
                    place: IN_PLACE.to_owned(),
                    tree: None,
                },
                lease: None,
                fingerprint: Some(fingerprint),
                retaken: false,
            });
        };
        if let Some(desk) = Self::retake(context, job, trees).await {
            return Ok(desk);
        }
        let tree = starting_tree(trees, job, input).await?;
        let how = match (job.kind().writes(), job.fans_out) {
            (false, _) => Use::Read,
            (true, false) => Use::WriteAlone,
            (true, true) => Use::WriteBeside,
        };
        let lease = trees
            .enter(job.id(), &tree, how)
            .await
            .map_err(|error| ground_failure(&error))?;
        Ok(Self::leased(lease, Some(tree)))
    }

    /// The worktree in which this very attempt already ran a program, untouched.
    async fn retake(context: &RunContext, job: &Job, trees: &Trees) -> Option<Self> {
        let (place, tree) = job.resumed_place(context)?;
        let lease = trees.reenter(place, tree).await;
        let mut desk = Self::leased(lease, Some(tree.clone()));
        desk.retaken = true;
        Some(desk)
    }

    fn leased(lease: Lease, tree: Option<TreeId>) -> Self {
        Self {
            path: lease.path.clone(),
            found: Found {
                place: lease.place.clone(),
                tree,
            },
            lease: Some(lease),
            fingerprint: None,
            retaken: false,
        }
    }

    async fn settle(
        self,
        context: &RunContext,
        job: &Job,
        input: Option<&Folded>,
        reporter: &Reporter,
    ) -> Result<Settled, Failure> {
        let nothing = Settled {
            start: None,
            output: None,
            changes: Vec::new(),
        };
        let (Some(trees), Some(lease), Some(input)) = (&context.trees, &self.lease, input) else {
            return self.check_untouched(context).await.map(|()| nothing);
        };
        if !job.kind().writes() {
            let droppings = trees
                .leave_read(lease)
                .await
                .map_err(|error| ground_failure(&error))?;
            if !droppings.is_empty() {
                let files = listed(&paths(&droppings));
                let text = format!(
                    "{} does not write, so what it left was undone: {files}",
                    job.id()
                );
                reporter.warn(text).await?;
            }
            return Ok(nothing);
        }
        let output = trees
            .leave_written(lease)
            .await
            .map_err(|error| ground_failure(&error))?;
        let git = trees.git();
        let (from, to) = (input.tree.clone(), output.clone());
        let patch = job.directory(context).join("diff.patch");
        let changes = blocking(move || -> Result<_, WorkError> {
            let mut changes = Vec::new();
            write_atomically_by(&patch, |file| {
                changes = git.changes_and_patch(&from, &to, file)?;
                Ok::<_, WorkError>(())
            })?;
            Ok(changes)
        })
        .await
        .map_err(|error| ground_failure(&error))?;
        Ok(Settled {
            start: self.found.tree,
            output: Some(output),
            changes,
        })
    }

    async fn check_untouched(&self, context: &RunContext) -> Result<(), Failure> {
        let Some(before) = self.fingerprint.clone() else {
            return Ok(());
        };
        let repository = context.repository.clone();
        let now = blocking(move || checkout_fingerprint(&repository))
            .await
            .map_err(|error| ground_failure(&error))?;
        if now == before {
            return Ok(());
        }
        Err(Failure {
            reason: Reason::ArtifactContract,
            detail: format!(
                "the checkout {} changed while it ran, which a recipe that changes nothing must \
                 not do",
                repository_root(&context.repository).display()
            ),
            remedy: Remedy::None,
        })
    }
}

async fn work(
    context: &RunContext,
    job: &Job,
    lane: &Lane,
    input: Option<&Folded>,
    desk: &Desk,
    reporter: &Reporter,
) -> Result<Said, Failure> {
    let directory = job.directory(context);
    make_directory(&job.output_directory(context)).map_err(|error| ground_failure(&error))?;
    let text = prompt::render(context, job, input).await?;
    // For people, and for the program unless that is not to read what others could have written.
    let process_parent = job.process_parent(context);
    make_directory(&process_parent).map_err(|error| ground_failure(&error))?;
    for directory in BTreeSet::from([&directory, &process_parent]) {
        write_atomically(&directory.join("prompt.md"), text.as_bytes())
            .map_err(|error| ground_failure(&error))?;
    }
    let prompt_file = process_parent.join("prompt.md");
    context.fault.hit("prompt-written");
    if !desk.retaken {
        reporter
            .journal(RunEvent::NodeStarted(job.start(input, &desk.found)))
            .await?;
    }
    context.fault.hit("node-started");

    program::run(context, job, lane, &prompt_file, &desk.path).await
}

fn conclude(
    context: &RunContext,
    job: &Job,
    input: Option<&Folded>,
    said: &Said,
    settled: &Settled,
) -> Result<NodeOutcome, Failure> {
    let mut outcome = NodeOutcome::done(said.last_line.clone());
    outcome.cost_usd = said.cost_usd;
    outcome.metered = said.metered;
    outcome.session.clone_from(&said.session);
    outcome.output.clone_from(&settled.output);
    outcome.changed_files = settled.changes.len() as u64;
    let judged = said
        .failure
        .clone()
        .map_or(Ok(()), Err)
        .and_then(|()| gates::budget_after(job, said.cost_usd))
        .and_then(|()| outputs::check(context, job, &said.answer))
        .and_then(|()| match job.kind() {
            NodeKind::Implementer | NodeKind::Transform => {
                judge_writing(context, job, input, settled, &mut outcome)
            }
            NodeKind::Reviewer if job.planned.node.outputs.is_empty() => {
                judge_review(&said.answer, &mut outcome)
            }
            NodeKind::Eval => {
                note_opinion(&said.answer, &mut outcome);
                require_answer(job, &said.answer)
            }
            _ => require_answer(job, &said.answer),
        });
    if let Err(failure) = judged {
        outcome.summary.clone_from(&failure.detail);
        outcome.failure = Some(failure);
    }
    Ok(outcome)
}

fn judge_writing(
    context: &RunContext,
    job: &Job,
    input: Option<&Folded>,
    settled: &Settled,
    outcome: &mut NodeOutcome,
) -> Result<(), Failure> {
    let changes = &settled.changes;
    let same = settled.output.is_some() && settled.output == settled.start;
    // It may have begun with work of its own that was cut short, and that nobody found wanting.
    let unchanged = same && (changes.is_empty() || found_wanting(job).is_some());
    // Who settles conflicts may rightly leave a file as the merge has it; markers are looked for
    // below.
    let may_keep = job.fans_out || job.planned.node.accepts_conflicts;
    if unchanged && !may_keep {
        return Err(no_change(job, outcome));
    }
    outcome.summary = match changes.len() {
        0 => "no file changed".to_owned(),
        1 => format!("1 file changed: {}", listed(&paths(changes))),
        count => format!("{count} files changed: {}", listed(&paths(changes))),
    };
    gates::scope(context, job, changes)?;
    if let (Some(folded), Some(trees), Some(output)) = (input, &context.trees, &outcome.output) {
        gates::no_conflict_markers(&trees.git(), folded, output)?;
    }
    Ok(())
}

/// What was found against the work with which a later round begins.
fn found_wanting(job: &Job) -> Option<&str> {
    job.evidence.as_deref().filter(|_| job.round > 1)
}

/// In a later round there is work, and it is still as it was when it was not approved.
fn no_change(job: &Job, outcome: &mut NodeOutcome) -> Failure {
    let (reason, detail) = match found_wanting(job) {
        Some(found) => {
            outcome.evidence = found.lines().map(ToOwned::to_owned).collect();
            (
                Reason::VerdictFail,
                "it changed nothing in answer to what was found",
            )
        }
        None => (Reason::NoOp, "it ended without a change to any file"),
    };
    Failure {
        reason,
        detail: detail.to_owned(),
        remedy: Remedy::None,
    }
}

fn judge_review(answer: &[u8], outcome: &mut NodeOutcome) -> Result<(), Failure> {
    let review = read_review(answer).map_err(|error| Failure {
        reason: Reason::VerdictFail,
        detail: format!("its verdict cannot be read: {error}"),
        // Asking the same reviewer again may give a verdict; sending the work back would not.
        remedy: Remedy::Attempt,
    })?;
    outcome.summary.clone_from(&review.summary);
    outcome.evidence.clone_from(&review.findings);
    let remedy = match review.verdict {
        Verdict::Approve => return Ok(()),
        Verdict::RequestChanges => Remedy::Round,
        Verdict::Reject => Remedy::None,
    };
    let detail = match review.verdict {
        Verdict::Reject => format!("rejected: {}", review.summary),
        _ => format!("changes requested: {}", review.summary),
    };
    Err(Failure {
        reason: Reason::VerdictFail,
        detail,
        remedy,
    })
}

/// Shows what an eval says in words. It decides nothing, so one that cannot be read is kept as it
/// is.
fn note_opinion(answer: &[u8], outcome: &mut NodeOutcome) {
    if let Ok(opinion) = read_review(answer) {
        outcome.summary = opinion.summary;
        outcome.evidence = opinion.findings;
    }
}

/// Exit code 0 with not a word is no answer.
fn require_answer(job: &Job, answer: &[u8]) -> Result<(), Failure> {
    if answer.iter().any(|byte| !byte.is_ascii_whitespace()) || !job.planned.node.outputs.is_empty()
    {
        return Ok(());
    }
    Err(Failure {
        reason: Reason::CommandFailed,
        detail: "it ended with exit code 0 and said nothing".to_owned(),
        remedy: Remedy::Attempt,
    })
}

/// In a later round a node goes on from its own last result, carried over to what is before it
/// now.
async fn starting_tree(trees: &Trees, job: &Job, input: &Folded) -> Result<TreeId, Failure> {
    let Some(previous) = job.previous.clone().filter(|_| job.kind().writes()) else {
        return Ok(input.tree.clone());
    };
    if previous.input == input.tree {
        return Ok(previous.output);
    }
    let git = trees.git();
    let now = input.tree.clone();
    let merged = blocking(move || git.merge(&previous.input, &now, &previous.output))
        .await
        .map_err(|error| ground_failure(&error))?;
    // Where the earlier result no longer fits, the node starts over on what is there now.
    Ok(if merged.conflicts.is_empty() {
        merged.tree
    } else {
        input.tree.clone()
    })
}
