//! Verifiers: programs whose judgement does not rest on the word of an agent.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use mini_ork_node::supervise::{STDERR_LOG, STDOUT_LOG, log_edges};
use mini_ork_protocol::{ByteString, StdinSource};

use super::super::context::{ProcessRequest, RunContext};
use super::super::directory::{make_directory, write_atomically};
use super::super::event::{Failure, NodeOutcome, Remedy, RunEvent};
use super::super::failure::ground_failure;
use super::super::fold::Folded;
use super::super::plan::AgentPlace;
use super::super::trees::{Lease, Use, blocking, repository_root};
use super::program::last_line_of;
use super::{Found, Job, Reporter, listed, outputs, paths, tests_verifier};
use crate::reason::Reason;
use crate::recipe::{Output, VerifierSource, Visibility};
use crate::verify::read_script;

/// Most bytes of a script's answer.
const ANSWER_LIMIT: usize = 1 << 20;

pub(super) async fn run(
    context: &RunContext,
    job: &Job,
    reporter: &Reporter,
) -> Result<NodeOutcome, Failure> {
    let input = job.input(context).await?;
    job.require_work(context, input.as_ref())?;
    let bench = Bench::take(context, job, input).await?;
    reporter
        .journal(RunEvent::NodeStarted(
            job.start(bench.input.as_ref(), &bench.found),
        ))
        .await?;
    context.fault.hit("node-started");
    let judged = match &job.planned.node.verifier {
        Some(VerifierSource::Tests) => tests_verifier::tests(context, job, &bench).await,
        Some(VerifierSource::Typecheck) => tests_verifier::typecheck(context, job, &bench).await,
        Some(VerifierSource::Script(script)) => run_script(context, job, &bench, script).await,
        None => Err(Failure {
            reason: Reason::Config,
            detail: "it has no `verifier_ref`".to_owned(),
            remedy: Remedy::None,
        }),
    };
    let cleared = bench.clear(context, job, reporter).await;
    let outcome = judged?;
    cleared?;
    Ok(outcome)
}

/// Where a verifier works: the tree under judgement, in a worktree that it may not change.
pub(super) struct Bench {
    pub(super) input: Option<Folded>,
    pub(super) path: PathBuf,
    found: Found,
    lease: Option<Lease>,
}

impl Bench {
    async fn take(context: &RunContext, job: &Job, input: Option<Folded>) -> Result<Self, Failure> {
        let (Some(trees), Some(folded)) = (&context.trees, &input) else {
            return Ok(Self {
                input,
                path: repository_root(&context.repository).to_owned(),
                found: Found {
                    place: "in-place".to_owned(),
                    tree: None,
                },
                lease: None,
            });
        };
        let lease = match job.resumed_place(context) {
            Some((place, tree)) => trees.reenter(place, tree).await,
            None => trees
                .enter(job.id(), &folded.tree, Use::Read)
                .await
                .map_err(|error| ground_failure(&error))?,
        };
        context.fault.hit("worktree-ready");
        Ok(Self {
            path: lease.path.clone(),
            found: Found {
                place: lease.place.clone(),
                tree: Some(folded.tree.clone()),
            },
            input,
            lease: Some(lease),
        })
    }

    async fn clear(
        &self,
        context: &RunContext,
        job: &Job,
        reporter: &Reporter,
    ) -> Result<(), Failure> {
        let (Some(trees), Some(lease)) = (&context.trees, &self.lease) else {
            return Ok(());
        };
        let droppings = trees
            .leave_read(lease)
            .await
            .map_err(|error| ground_failure(&error))?;
        if !droppings.is_empty() {
            let files = listed(&paths(&droppings));
            reporter
                .warn(format!(
                    "what {} left in the worktree was undone: {files}",
                    job.id()
                ))
                .await?;
        }
        Ok(())
    }
}

async fn run_script(
    context: &RunContext,
    job: &Job,
    bench: &Bench,
    script: &str,
) -> Result<NodeOutcome, Failure> {
    let directory = job.directory(context);
    let gathered = job.output_directory(context);
    make_directory(&gathered).map_err(|error| ground_failure(&error))?;
    outputs::gather(context, &job.ancestors, &gathered, |_| true)
        .map_err(|error| ground_failure(&error))?;
    let changed = directory.join("changed-files");
    write_changed_files(context, bench, &changed).await?;
    let program = if script.ends_with(".py") {
        "python3"
    } else {
        "sh"
    };
    let mut environment: Vec<(OsString, OsString)> = job
        .environment(context)
        .into_iter()
        .map(|(name, value)| (name.into(), value))
        .collect();
    environment.push(("MO_CHANGED_FILES".into(), changed.into()));
    let artifact = artifact(context, job, bench).await?;
    environment.push(("ARTIFACT_PATH".into(), artifact.into()));
    let process = directory.join("verify");
    let record = context
        .run_process(ProcessRequest {
            place: AgentPlace::Inside,
            directory: process.clone(),
            argv: vec![
                ByteString::from(program),
                context.directory.recipe().join(script).as_path().into(),
            ],
            cwd: bench.path.clone(),
            environment,
            stdin: StdinSource::Null,
            timeout: context.timeout(job.planned.node.timeout),
            secrets: Vec::new(),
        })
        .await?;
    context.fault.hit("process-ended");
    if let Some(failure) = context.shortage(&record) {
        return Err(failure);
    }
    let stdout = log_edges(&process.join(STDOUT_LOG), 0, ANSWER_LIMIT)
        .map(|edges| edges.tail)
        .unwrap_or_default();
    let answer = match read_script(&record.outcome, &stdout) {
        Ok(answer) => answer,
        Err(error) => {
            let said = last_line_of(&process, STDERR_LOG);
            // A script that was not allowed to answer has not judged; one that answered wrongly
            // has not approved.
            return Err(context
                .failure_of(&record, &said)
                .filter(|failure| failure.reason != Reason::CommandFailed)
                .unwrap_or_else(|| verdict_fail(with_reason(&error.to_string(), &said))));
        }
    };
    let mut outcome = NodeOutcome::done(answer.summary);
    outcome.evidence = answer.evidence;
    if !answer.pass {
        let complaint = last_line_of(&process, STDERR_LOG);
        if !complaint.is_empty() {
            outcome.evidence.push(complaint);
        }
        outcome.failure = Some(verdict_fail(outcome.summary.clone()));
    }
    Ok(outcome)
}

/// The paths that differ from the base, each ended by a NUL.
async fn write_changed_files(
    context: &RunContext,
    bench: &Bench,
    path: &Path,
) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    if let (Some(trees), Some(folded)) = (&context.trees, &bench.input) {
        let git = trees.git();
        let (from, to) = (trees.base().tree.clone(), folded.tree.clone());
        let changes = blocking(move || git.changes(&from, &to))
            .await
            .map_err(|error| ground_failure(&error))?;
        for change in changes {
            bytes.extend_from_slice(change.path.as_bytes());
            bytes.push(0);
        }
    }
    write_atomically(path, &bytes).map_err(|error| ground_failure(&error))
}

/// What a verifier script judges: the first output that is meant for the user, else the patch.
async fn artifact(context: &RunContext, job: &Job, bench: &Bench) -> Result<PathBuf, Failure> {
    let output = job.ancestors.iter().find_map(|ancestor| {
        let planned = context.plan.node(&ancestor.id)?;
        let for_user = |output: &&Output| output.visibility == Visibility::Consumer;
        planned.node.outputs.iter().find(for_user)
    });
    if let Some(output) = output {
        return Ok(job.output_directory(context).join(&output.path));
    }
    let path = job.directory(context).join("artifact.patch");
    let mut patch = Vec::new();
    if let (Some(trees), Some(folded)) = (&context.trees, &bench.input) {
        let git = trees.git();
        let (from, to) = (trees.base().tree.clone(), folded.tree.clone());
        patch = blocking(move || {
            let mut patch = Vec::new();
            git.patch(&from, &to, &mut patch).map(|()| patch)
        })
        .await
        .map_err(|error| ground_failure(&error))?;
    }
    write_atomically(&path, &patch).map_err(|error| ground_failure(&error))?;
    Ok(path)
}

/// A verdict against the work, which may go back for another round.
pub(super) fn verdict_fail(detail: String) -> Failure {
    Failure {
        reason: Reason::VerdictFail,
        detail,
        remedy: Remedy::Round,
    }
}

fn with_reason(text: &str, said: &str) -> String {
    if said.is_empty() {
        text.to_owned()
    } else {
        format!("{text}: {said}")
    }
}
