//! The built-in verifiers: the project's tests and its type check, run on the result and on the
//! base and judged by comparison.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bstr::{BStr, BString};
use mini_ork_node::git::{self, ChangeKind, ControlGit, GitError, RepoPath, TreeId};
use mini_ork_node::supervise::{STDERR_LOG, STDOUT_LOG, log_edges};
use mini_ork_protocol::{ByteString, ExitOutcome, StdinSource};
use sha2::{Digest, Sha256};

use super::super::context::{ProcessRequest, RunContext};
use super::super::directory::RunDirectory;
use super::super::event::{Failure, NodeOutcome, Remedy};
use super::super::failure::ground_failure;
use super::super::plan::AgentPlace;
use super::super::trees::{Trees, blocking};
use super::Job;
use super::program::last_line_of;
use super::verifier::{Bench, verdict_fail};
use crate::reason::Reason;
use crate::verify::{
    Change, CommandRun, Comparison, Edit, Ruling, Side, TestCommand, TestOverlay, TestPlan,
    TestRun, detect_tests, detect_typecheck, judge, overlay, parse,
};

/// Most bytes from each end of a test run's output that are read for names of tests.
const OUTPUT_LIMIT: usize = 8 << 20;
/// The worktree in which the base is tested. Not the segment of any node: those end in a digest.
const BASE_PLACE: &str = "base";

/// Judges the project's tests by comparison with the base.
pub(super) async fn tests(
    context: &RunContext,
    job: &Job,
    bench: &Bench,
) -> Result<NodeOutcome, Failure> {
    let (trees, result) = judged_tree(context, bench)?;
    let base = trees.base().tree.clone();
    // What the base shows comes first: a result that brings its own way of testing is judged by
    // the one that was there.
    let commands = &context.kickoff.verification;
    let plan = match plan_for(trees, &base, commands, Check::Tests).await? {
        Some(plan) => plan,
        None => plan_for(trees, &result, commands, Check::Tests)
            .await?
            .ok_or_else(no_tests)?,
    };
    let found = run_plan(context, job, &plan, &bench.path, &job.directory(context)).await?;
    let on_base = base_run(context, job, trees, &plan, &base).await?;
    let tests = test_overlay(trees, &base, &result).await?;
    let with_new_tests = if tests.changed.is_empty() || !is_green(&found) {
        None
    } else {
        let overlaid = overlaid_tree(trees, &base, &result, &tests).await?;
        Some(base_run(context, job, trees, &plan, &overlaid).await?)
    };
    let judgement = judge(&Comparison {
        base: &on_base,
        result: &found,
        base_with_new_tests: with_new_tests.as_ref(),
        tests: &tests,
    });
    let mut outcome = NodeOutcome::done(judgement.summary.clone());
    outcome.evidence = judgement.evidence;
    outcome
        .evidence
        .push(format!("tested as {} shows", plan.found_by));
    if judgement.ruling == Ruling::Fail {
        outcome
            .evidence
            .extend(complaints(&found, &job.directory(context)));
    }
    outcome.failure = match judgement.ruling {
        Ruling::Pass => None,
        Ruling::Fail => Some(verdict_fail(judgement.summary)),
        Ruling::Inconclusive => Some(inconclusive(&found, &on_base, judgement.summary)),
    };
    Ok(outcome)
}

/// Judges whether the project still compiles; one that did not compile before is not blamed.
pub(super) async fn typecheck(
    context: &RunContext,
    job: &Job,
    bench: &Bench,
) -> Result<NodeOutcome, Failure> {
    let (trees, result) = judged_tree(context, bench)?;
    let Some(plan) = plan_for(trees, &result, &[], Check::Typecheck).await? else {
        return Ok(NodeOutcome::done(
            "not applicable: nothing here has a type check",
        ));
    };
    let shown = plan
        .commands
        .iter()
        .map(shown)
        .collect::<Vec<_>>()
        .join("; ");
    let found = run_plan(context, job, &plan, &bench.path, &job.directory(context)).await?;
    if is_green(&found) {
        return Ok(NodeOutcome::done(format!("`{shown}` passes")));
    }
    let complaint = last_line_of(&command_directory(&job.directory(context), 0), STDERR_LOG);
    if let Some(failure) = no_verdict(&found) {
        return Err(failure);
    }
    let base = trees.base().tree.clone();
    let on_base = base_run(context, job, trees, &plan, &base).await?;
    if !is_green(&on_base) && no_verdict(&on_base).is_none() {
        return Ok(NodeOutcome::done(format!(
            "`{shown}` fails as it did before: {complaint}"
        )));
    }
    let mut outcome = NodeOutcome::done(format!("`{shown}` fails, and passed before: {complaint}"));
    outcome.failure = Some(verdict_fail(outcome.summary.clone()));
    outcome.evidence = complaints(&found, &job.directory(context));
    Ok(outcome)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    Tests,
    Typecheck,
}

fn judged_tree<'a>(context: &'a RunContext, bench: &Bench) -> Result<(&'a Trees, TreeId), Failure> {
    match (&context.trees, &bench.input) {
        (Some(trees), Some(folded)) => Ok((trees, folded.tree.clone())),
        _ => Err(Failure {
            reason: Reason::Config,
            detail: "a recipe that changes no file has nothing to test".to_owned(),
            remedy: Remedy::None,
        }),
    }
}

async fn plan_for(
    trees: &Trees,
    tree: &TreeId,
    commands: &[String],
    check: Check,
) -> Result<Option<TestPlan>, Failure> {
    let (git, tree, commands) = (trees.git(), tree.clone(), commands.to_vec());
    blocking(move || -> Result<_, GitError> {
        let entries = git.list(&tree)?;
        let paths: Vec<&[u8]> = entries.iter().map(|entry| entry.path.as_bytes()).collect();
        // A file that cannot be read shows nothing.
        let read = |path: &str| {
            let path = RepoPath::new(path.as_bytes().to_vec()).ok()?;
            Some(git.read_blob(&tree, &path).ok()??.bytes)
        };
        Ok(match check {
            Check::Tests => detect_tests(&commands, &paths, &read),
            Check::Typecheck => detect_typecheck(&paths, &read),
        })
    })
    .await
    .map_err(|error| ground_failure(&error))
}

fn no_tests() -> Failure {
    Failure {
        reason: Reason::Config,
        detail: "nothing shows how the project is tested; give the kickoff a section \
                 `## Verification` with the command"
            .to_owned(),
        remedy: Remedy::None,
    }
}

/// Runs every command of `plan` in `cwd`, with its records below `records`.
async fn run_plan(
    context: &RunContext,
    job: &Job,
    plan: &TestPlan,
    cwd: &Path,
    records: &Path,
) -> Result<TestRun, Failure> {
    let mut run = TestRun::default();
    for (number, command) in plan.commands.iter().enumerate() {
        let directory = command_directory(records, number);
        let record = context
            .run_process(ProcessRequest {
                place: AgentPlace::Inside,
                directory: directory.clone(),
                argv: command
                    .argv
                    .iter()
                    .map(|word| ByteString::from(word.as_str()))
                    .collect(),
                cwd: cwd.to_owned(),
                environment: environment(context, job),
                stdin: StdinSource::Null,
                timeout: context.timeout(job.planned.node.timeout),
                secrets: Vec::new(),
            })
            .await?;
        context.fault.hit("process-ended");
        // A test that could not do its work says nothing about that of the run.
        if let Some(mut failure) = context.shortage(&record) {
            failure.detail = format!("`{}` {}", shown(command), failure.detail);
            return Err(failure);
        }
        run.commands.push(CommandRun {
            command: shown(command),
            runner: command.runner,
            report: parse(
                command.runner,
                &output(&directory, STDOUT_LOG),
                &output(&directory, STDERR_LOG),
            ),
            outcome: record.outcome,
        });
    }
    Ok(run)
}

/// Runs `plan` on `tree` in the worktree of the base, once for the whole run: what was recorded
/// for the same tree and commands is taken up again.
async fn base_run(
    context: &RunContext,
    job: &Job,
    trees: &Trees,
    plan: &TestPlan,
    tree: &TreeId,
) -> Result<TestRun, Failure> {
    let _alone = context.baseline.lock().await;
    let mut digest = Sha256::new();
    digest.update(tree.as_str());
    for command in &plan.commands {
        for word in &command.argv {
            digest.update([0]);
            digest.update(word);
        }
        digest.update([1]);
    }
    let name: String = digest
        .finalize()
        .iter()
        .take(10)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let records = context.directory.baseline(&name);
    if !RunDirectory::has_processes(&records) {
        trees
            .prepare(BASE_PLACE, tree)
            .await
            .map_err(|error| ground_failure(&error))?;
    }
    run_plan(
        context,
        job,
        plan,
        &context.directory.worktree(BASE_PLACE),
        &records,
    )
    .await
}

async fn test_overlay(
    trees: &Trees,
    base: &TreeId,
    result: &TreeId,
) -> Result<TestOverlay, Failure> {
    let (git, base, result) = (trees.git(), base.clone(), result.clone());
    blocking(move || -> Result<_, GitError> {
        let changes: Vec<(BString, Change)> = git
            .changes(&base, &result)?
            .iter()
            .flat_map(change_of)
            .collect();
        overlay(&changes, |side, path: &BStr| {
            let tree = match side {
                Side::Base => &base,
                Side::Result => &result,
            };
            read(&git, tree, path)
        })
    })
    .await
    .map_err(|error| ground_failure(&error))
}

/// A renamed file is one that is gone and one that is new.
fn change_of(change: &git::Change) -> Vec<(BString, Change)> {
    let path = BString::from(change.path.as_bytes());
    match &change.kind {
        ChangeKind::Added => vec![(path, Change::Added)],
        ChangeKind::Deleted => vec![(path, Change::Deleted)],
        ChangeKind::Renamed { from } => {
            vec![
                (BString::from(from.as_bytes()), Change::Deleted),
                (path, Change::Added),
            ]
        }
        ChangeKind::Modified | ChangeKind::TypeChanged | ChangeKind::ModeChanged => {
            vec![(path, Change::Modified)]
        }
    }
}

fn read(git: &ControlGit, tree: &TreeId, path: &BStr) -> Result<Option<Vec<u8>>, GitError> {
    match RepoPath::new(path.to_vec()) {
        Ok(path) => Ok(git.read_blob(tree, &path)?.map(|content| content.bytes)),
        Err(_) => Ok(None),
    }
}

/// The base with the tests of the result.
async fn overlaid_tree(
    trees: &Trees,
    base: &TreeId,
    result: &TreeId,
    tests: &TestOverlay,
) -> Result<TreeId, Failure> {
    let (git, base, result) = (trees.git(), base.clone(), result.clone());
    let edits = tests.edits.clone();
    blocking(move || -> Result<_, GitError> {
        let of_result = git.list(&result)?;
        let of_base = git.list(&base)?;
        let find = |entries: &[git::TreeEntry], path: &RepoPath| {
            entries.iter().find(|entry| &entry.path == path).cloned()
        };
        let mut wanted = Vec::with_capacity(edits.len());
        for (path, edit) in edits {
            let Ok(path) = RepoPath::new(path.to_vec()) else {
                continue;
            };
            let edit = match edit {
                Edit::Delete => Some(git::Edit::Remove),
                Edit::FromResult => find(&of_result, &path).map(|entry| git::Edit::Take {
                    mode: entry.mode,
                    id: entry.id,
                }),
                Edit::Content(bytes) => find(&of_base, &path).map(|entry| git::Edit::Write {
                    mode: entry.mode,
                    bytes,
                }),
            };
            wanted.extend(edit.map(|edit| (path, edit)));
        }
        git.overlay(&base, &wanted)
    })
    .await
    .map_err(|error| ground_failure(&error))
}

fn is_green(run: &TestRun) -> bool {
    run.commands
        .iter()
        .all(|command| matches!(command.outcome, ExitOutcome::Exited { code: 0 }))
}

/// Why a run gave no verdict, when one of its commands was not allowed to end.
fn no_verdict(run: &TestRun) -> Option<Failure> {
    run.commands.iter().find_map(|command| {
        let (reason, how) = match &command.outcome {
            ExitOutcome::Exited { .. } | ExitOutcome::Signaled { .. } => return None,
            ExitOutcome::TimedOut => (Reason::Timeout, "did not end within its limit".to_owned()),
            ExitOutcome::Stopped => (Reason::Cancelled, "was stopped".to_owned()),
            ExitOutcome::OutputLimit => (Reason::DiskFull, "wrote too much output".to_owned()),
            ExitOutcome::SpawnFailed { message } => {
                (Reason::Config, format!("could not be started: {message}"))
            }
        };
        let detail = format!("`{}` {how}", command.command);
        Some(Failure {
            reason,
            detail,
            remedy: Remedy::None,
        })
    })
}

fn inconclusive(found: &TestRun, on_base: &TestRun, summary: String) -> Failure {
    no_verdict(found)
        .or_else(|| no_verdict(on_base))
        .unwrap_or(Failure {
            reason: Reason::CommandFailed,
            detail: summary,
            remedy: Remedy::Attempt,
        })
}

fn environment(context: &RunContext, job: &Job) -> Vec<(OsString, OsString)> {
    job.environment(context)
        .into_iter()
        .map(|(name, value)| (name.into(), value))
        .collect()
}

fn command_directory(records: &Path, number: usize) -> PathBuf {
    records.join(format!("verify-{number}"))
}

fn output(directory: &Path, log: &str) -> Vec<u8> {
    // A program that was never run has no logs, and no tests in them.
    match log_edges(&directory.join(log), OUTPUT_LIMIT, OUTPUT_LIMIT) {
        Ok(mut edges) => {
            edges.head.append(&mut edges.tail);
            edges.head
        }
        Err(_) => Vec::new(),
    }
}

/// What the first command that failed printed last: whoever works on it again is to see what went
/// wrong and not only that something did.
fn complaints(run: &TestRun, records: &Path) -> Vec<String> {
    let failed = run
        .commands
        .iter()
        .position(|command| !matches!(command.outcome, ExitOutcome::Exited { code: 0 }));
    let Some(number) = failed else {
        return Vec::new();
    };
    let directory = command_directory(records, number);
    let mut lines = output_tail(&directory, STDOUT_LOG);
    lines.extend(output_tail(&directory, STDERR_LOG));
    lines
}

fn output_tail(directory: &Path, log: &str) -> Vec<String> {
    const LINES: usize = 30;
    let bytes = output(directory, log);
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let from = lines.len().saturating_sub(LINES);
    lines
        .iter()
        .skip(from)
        .map(|line| (*line).to_owned())
        .collect()
}

fn shown(command: &TestCommand) -> String {
    match command.argv.as_slice() {
        [shell, flag, text] if shell == "sh" && flag == "-c" => text.clone(),
        argv => argv.join(" "),
    }
}
