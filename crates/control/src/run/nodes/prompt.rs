//! The prompt of a node: its template with what the run knows, kept as `prompt.md`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write};

use mini_ork_node::supervise::{LogEdges, STDOUT_LOG, log_edges};
use mini_ork_node::text::with_sources;

use super::super::context::RunContext;
use super::super::event::{Failure, Remedy};
use super::super::failure::{WorkError, ground_failure};
use super::super::fold::Folded;
use super::super::trees::blocking;
use super::{Ancestor, Job, listed, paths};
use crate::prompt::{PromptVariables, clip, render as render_template};
use crate::reason::Reason;
use crate::recipe::{EdgeKind, NodeKind};

/// Most bytes of one earlier node's answer in a prompt.
const ANSWER_LIMIT: usize = 64 << 10;
/// Most bytes of the change under review in a prompt; beyond, the reviewer reads the worktree. Less
/// than any value in a prompt may have, so that it is not shortened twice.
const DIFF_LIMIT: usize = 120 << 10;

/// Renders the prompt of `job` on the merged work before it.
pub(super) async fn render(
    context: &RunContext,
    job: &Job,
    input: Option<&Folded>,
) -> Result<String, Failure> {
    let node = &job.planned.node;
    let Some(name) = &node.prompt else {
        return Ok(String::new());
    };
    let template = fs_err::read_to_string(context.directory.recipe().join(name))
        .map_err(|error| ground_failure(&error))?;
    // A variable is used by its name, so a name that is not in the text is not used; the change is
    // what costs most to tell.
    let tells_change = template.contains("diff") || template.contains("changed_files");
    let input_shown = input.filter(|_| tells_change);
    let (diff, changed_files) = change_so_far(context, input_shown).await?;
    let mut variables = variables(context, job, input);
    variables.diff = diff;
    variables.changed_files = changed_files;
    render_template(name, &template, &variables).map_err(|error| Failure {
        reason: Reason::Config,
        detail: with_sources(&error),
        remedy: Remedy::None,
    })
}

/// All but what the change so far is.
fn variables(context: &RunContext, job: &Job, input: Option<&Folded>) -> PromptVariables {
    let kickoff = &context.kickoff;
    PromptVariables {
        kickoff: kickoff.text.clone(),
        title: kickoff.title.clone(),
        problem: kickoff.problem.clone(),
        definition_of_done: bullets(&kickoff.definition_of_done),
        scope: kickoff.scope.to_string(),
        verification: bullets(&kickoff.verification),
        plan: answers(context, job, |ancestor| ancestor.kind == NodeKind::Planner),
        context: answers(context, job, |ancestor| {
            context.plan.edges.iter().any(|edge| {
                edge.kind == EdgeKind::SuppliesContextTo
                    && edge.from == ancestor.id
                    && &edge.to == job.id()
            })
        }),
        evidence: job
            .evidence
            .as_deref()
            .map(|text| clip(text, ANSWER_LIMIT))
            .unwrap_or_default(),
        diff: String::new(),
        changed_files: String::new(),
        conflicts: input.map(conflicts).unwrap_or_default(),
        answers: kickoff.answers.clone(),
        round: job.round,
        output_directory: job.output_directory(context).display().to_string(),
    }
}

async fn change_so_far(
    context: &RunContext,
    input: Option<&Folded>,
) -> Result<(String, String), Failure> {
    let (Some(trees), Some(folded)) = (&context.trees, input) else {
        return Ok((String::new(), String::new()));
    };
    if folded.tree == trees.base().tree {
        return Ok((String::new(), String::new()));
    }
    let git = trees.git();
    let (from, to) = (trees.base().tree.clone(), folded.tree.clone());
    let (patch, changes) = blocking(move || -> Result<_, WorkError> {
        let mut patch = Excerpt::default();
        let changes = git.changes_and_patch(&from, &to, &mut patch)?;
        Ok((patch, changes))
    })
    .await
    .map_err(|error| ground_failure(&error))?;
    Ok((joined(&patch.into_edges()), bullets(&paths(&changes))))
}

/// Both ends of a text of any length.
#[derive(Debug, Default)]
struct Excerpt {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    omitted: u64,
}

impl Excerpt {
    fn into_edges(self) -> LogEdges {
        LogEdges {
            head: self.head,
            omitted: self.omitted,
            tail: self.tail.into(),
        }
    }
}

impl Write for Excerpt {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const EACH: usize = DIFF_LIMIT / 2;
        let (first, rest) = bytes.split_at(bytes.len().min(EACH - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(EACH);
        self.tail.drain(..over);
        self.omitted += over as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the chosen nodes before this one answered, each under its name.
fn answers(context: &RunContext, job: &Job, chosen: impl Fn(&Ancestor) -> bool) -> String {
    let mut text = String::new();
    for ancestor in job
        .ancestors
        .iter()
        .filter(|ancestor| chosen(ancestor) && !ancestor.skipped)
    {
        let (id, round, attempt) = (&ancestor.id, ancestor.round, ancestor.attempt);
        let process = context.directory.lane_process(id, round, attempt);
        let log = process.join(STDOUT_LOG);
        let answer = log_edges(&log, ANSWER_LIMIT / 2, ANSWER_LIMIT / 2)
            .map(|edges| joined(&edges))
            .unwrap_or_default();
        let answer = if answer.trim().is_empty() {
            ancestor.summary.clone()
        } else {
            answer
        };
        let _ = writeln!(text, "## {}\n{}\n", ancestor.id, answer.trim_end());
    }
    text
}

/// Both ends of an answer, with a line between them that says how much is left out.
fn joined(edges: &LogEdges) -> String {
    let head = String::from_utf8_lossy(&edges.head);
    let tail = String::from_utf8_lossy(&edges.tail);
    match edges.omitted {
        0 => format!("{head}{tail}"),
        omitted => format!("{head}\n[… {omitted} bytes left out …]\n{tail}"),
    }
}

fn conflicts(input: &Folded) -> String {
    let mut text = String::new();
    for found in &input.conflicts {
        let ours: Vec<String> = found.ours.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            text,
            "- {}: {} ({} against {})",
            found.conflict.path,
            found.conflict.message,
            listed(&ours),
            found.theirs
        );
    }
    text
}

fn bullets(items: &[String]) -> String {
    items.iter().map(|item| format!("- {item}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_keeps_both_ends_however_it_is_written() {
        let text: Vec<u8> = (0..DIFF_LIMIT * 2 + 7).map(|at| (at % 251) as u8).collect();
        let half = DIFF_LIMIT / 2;
        for piece in [1000, half - 1, half + 1, text.len()] {
            let mut excerpt = Excerpt::default();
            for bytes in text.chunks(piece) {
                excerpt.write_all(bytes).unwrap();
            }
            let edges = excerpt.into_edges();
            assert_eq!(edges.head, text[..half]);
            assert_eq!(edges.tail, text[text.len() - half..]);
            assert_eq!(edges.omitted, (DIFF_LIMIT + 7) as u64);
        }
        let mut short = Excerpt::default();
        short.write_all(b"short").unwrap();
        assert_eq!(joined(&short.into_edges()), "short");
    }
}
