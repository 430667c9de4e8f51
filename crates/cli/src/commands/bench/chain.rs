//! What the control plane costs for each node, beyond the node's own program.
//!
//! A run of many nodes in a row is compared with a run of one: the difference holds no start-up
//! and no end, and whatever is done for a node is in it, wherever it is done.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use mini_ork_control::run::{RunEvent, RunView};
use mini_ork_control::store::StoreReader;
use mini_ork_protocol::RunId;
use serde::Deserialize;

use super::lab::{Driven, Lab, failed, finish, progress, time};
use super::report::Report;
use super::sample::Samples;
use crate::error::CommandError;

const PART: &str = "nodes";

/// One way for a node to work.
struct Kind {
    /// In the names of what is measured.
    name: &'static str,
    recipe: &'static str,
    node: &'static str,
    artifact: &'static str,
    /// Of its last node.
    outputs: &'static str,
    /// What its lane runs: the least that the engine takes for work.
    lane: &'static [&'static str],
    goal: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        name: "in place",
        recipe: "reading",
        node: "researcher",
        artifact: "report",
        outputs: ", outputs: [{name: report, path: report.md}]",
        lane: &["/bin/echo", "seen"],
        goal: "overhead per node, in place",
    },
    Kind {
        name: "worktree",
        recipe: "writing",
        node: "implementer",
        artifact: "patch",
        outputs: "",
        lane: &["/bin/sh", "-c", "echo \"$MO_NODE_ID\" >> log.txt"],
        goal: "overhead per node, worktree",
    },
];

pub(super) fn measure(
    lab: &Lab,
    samples: u32,
    nodes: u32,
    report: &mut Report,
) -> Result<(), CommandError> {
    let repository = lab.small_repository("small")?;
    lab.write(Path::new("kickoff.md"), KICKOFF)?;
    for kind in &KINDS {
        progress(&format!("nodes: {nodes} in a row, {}", kind.name));
        let chain = Chain {
            lab,
            kind,
            home: lab.root().join(format!("home-{}", kind.recipe)),
            repository: &repository,
            nodes,
        };
        chain.write_recipe(MANY, nodes)?;
        chain.write_recipe(ONE, 1)?;
        chain.measure(samples, report)?;
    }
    Ok(())
}

const KICKOFF: &str = "# Measure\n\n## Problem\nNone.\n";
const MANY: &str = "many";
const ONE: &str = "one";

/// Runs of one kind of node.
struct Chain<'a> {
    lab: &'a Lab,
    kind: &'a Kind,
    home: PathBuf,
    repository: &'a Path,
    nodes: u32,
}

impl Chain<'_> {
    fn measure(&self, samples: u32, report: &mut Report) -> Result<(), CommandError> {
        let further = f64::from(self.nodes - 1);
        let [mut first, mut whole, mut plain, mut beyond] = <[Samples; 4]>::default();
        let mut shares = Shares::default();
        for turn in 0..=samples {
            let single = self.drive(ONE)?;
            let row = self.drive(MANY)?;
            let own: Samples = (0..5)
                .map(|_| time(self.lane_command(), self.kind.lane[0]))
                .collect::<Result<_, _>>()?;
            // The first turn makes the home and brings programs into memory.
            if turn == 0 {
                continue;
            }
            first.push(until_first_node(&single)?);
            whole.push(single.took_ms);
            plain.push(own.median());
            beyond.push((row.took_ms - single.took_ms) / further - own.median());
            shares.add(&self.home, &row.view)?;
        }
        let counted = (self.count_git(MANY)? - self.count_git(ONE)?) / further;
        for (what, unit, samples) in [
            ("start until the first node runs", "ms", &first),
            ("run of one node", "ms", &whole),
            ("the node's own program", "ms", &plain),
            ("overhead per node", "ms", &beyond),
            ("  before: merge, worktree, prompt", "ms", &shares.before),
            ("  start of the process", "ms", &shares.spawn),
            ("  after: snapshot, diff, verdict", "ms", &shares.after),
            (
                "git processes per node",
                "",
                &[counted].into_iter().collect(),
            ),
        ] {
            report.row(PART, format!("{}: {what}", self.kind.name), unit, samples);
        }
        report.goal(self.kind.goal, 15.0, beyond.median(), "ms");
        Ok(())
    }

    fn drive(&self, recipe: &str) -> Result<Driven, CommandError> {
        let command = self.lab.run_command(&self.home, recipe, self.repository);
        self.lab.drive(command)
    }

    /// The node's program alone.
    fn lane_command(&self) -> Command {
        let mut command = self.lab.command(self.kind.lane[0]);
        command.args(&self.kind.lane[1..]).env("MO_NODE_ID", "x");
        command
    }

    fn write_recipe(&self, name: &str, nodes: u32) -> Result<(), CommandError> {
        let mut workflow = format!("version: 1\ntask_class: {name}\nnodes:\n");
        for number in 1..=nodes {
            let outputs = match number {
                last if last == nodes => self.kind.outputs,
                _ => "",
            };
            let _ = writeln!(
                workflow,
                "  - {{name: n{number}, type: {}, model_lane: worker, prompt_ref: prompts/do.md{outputs}}}",
                self.kind.node
            );
        }
        workflow.push_str("  - {name: publish, type: publisher}\nedges:\n");
        for number in 1..=nodes {
            let next = match number {
                last if last == nodes => "publish".to_owned(),
                number => format!("n{}", number + 1),
            };
            let _ = writeln!(
                workflow,
                "  - {{from: n{number}, to: {next}, edge_type: depends_on}}"
            );
        }
        let contract = format!("expected_artifact: {}\n", self.kind.artifact);
        let argv = serde_json::to_string(self.kind.lane).map_err(|error| failed(&error))?;
        let lanes = format!("providers:\n  plain: {{kind: executable, command: {argv}}}\n");
        let (recipe, config) = (
            self.home.join("recipes").join(name),
            self.home.join("config"),
        );
        for (path, content) in [
            (recipe.join("workflow.yaml"), workflow.as_str()),
            (recipe.join("artifact_contract.yaml"), &contract),
            (recipe.join("prompts/do.md"), "Do it.\n{{ kickoff }}\n"),
            (config.join("providers.yaml"), &lanes),
            (config.join("agents.yaml"), "lanes: {worker: plain}\n"),
        ] {
            self.lab.write(&path, content)?;
        }
        Ok(())
    }

    /// How many git processes a run starts: a `git` in front of the real one counts.
    fn count_git(&self, recipe: &str) -> Result<f64, CommandError> {
        let tally = self
            .lab
            .root()
            .join(format!("tally-{}-{recipe}", self.kind.recipe));
        let bin = self.lab.root().join("bin");
        let wrapper = bin.join("git");
        let script = format!(
            "#!/bin/sh\necho >> '{}'\nPATH=${{PATH#*:}}\nexec git \"$@\"\n",
            tally.display()
        );
        self.lab.write(&wrapper, &script)?;
        fs_err::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755))
            .map_err(|error| failed(&error))?;
        let mut path = bin.into_os_string();
        path.push(":");
        path.push(self.lab.path());
        let mut command = self.lab.run_command(&self.home, recipe, self.repository);
        command.env("PATH", path);
        finish(command, "mini-ork run")?;
        let bytes = fs_err::read(tally).map_err(|error| failed(&error))?;
        Ok(bytes.len() as f64)
    }
}

/// When a process of a run started and ended, as its records have it.
#[derive(Debug, Deserialize)]
struct Times {
    started_at_ms: u64,
    ended_at_ms: u64,
}

fn process_times(view: &RunView, directory: &str) -> Result<Times, CommandError> {
    let path = Path::new(&view.directory)
        .join(directory)
        .join("lane/exit.json");
    let json = fs_err::read(path).map_err(|error| failed(&error))?;
    serde_json::from_slice(&json).map_err(|error| failed(&error))
}

fn until_first_node(run: &Driven) -> Result<f64, CommandError> {
    let first = run.view.nodes.first();
    let directory = first.and_then(|node| node.directory.as_deref());
    let times = process_times(&run.view, directory.unwrap_or_default())?;
    Ok(difference(run.began_ms, times.started_at_ms))
}

/// Where the time of a node goes, as means over the nodes of a run: single times are in whole
/// milliseconds.
#[derive(Debug, Default)]
struct Shares {
    before: Samples,
    spawn: Samples,
    after: Samples,
}

impl Shares {
    fn add(&mut self, home: &Path, view: &RunView) -> Result<(), CommandError> {
        let run = RunId::parse(&view.run).map_err(|error| failed(&error))?;
        let reader = StoreReader::open(home).map_err(|error| failed(&error))?;
        let events = match reader {
            Some(reader) => reader.events(&run, 0).map_err(|error| failed(&error))?,
            None => Vec::new(),
        };
        let (mut before, mut spawn, mut after) = (0.0, 0.0, 0.0);
        let mut count = 0_u32;
        let mut free_at_ms = None;
        let mut started_at_ms = 0;
        for event in &events {
            match &event.event {
                RunEvent::NodeStarted(_) => started_at_ms = event.at_ms,
                RunEvent::NodeEnded { node, .. } => {
                    let shown = view.nodes.iter().find(|shown| shown.node == node.as_str());
                    let lane = shown.filter(|shown| shown.lane.is_some());
                    let directory = lane.and_then(|shown| shown.directory.as_deref());
                    if let (Some(free), Some(directory)) = (free_at_ms, directory) {
                        let times = process_times(view, directory)?;
                        before += difference(free, started_at_ms);
                        spawn += difference(started_at_ms, times.started_at_ms);
                        after += difference(times.ended_at_ms, event.at_ms);
                        count += 1;
                    }
                    free_at_ms = Some(event.at_ms);
                }
                _ => {}
            }
        }
        let count = f64::from(count.max(1));
        self.before.push(before / count);
        self.spawn.push(spawn / count);
        self.after.push(after / count);
        Ok(())
    }
}

fn difference(from_ms: u64, to_ms: u64) -> f64 {
    // Below 2^53 both are exact.
    to_ms as f64 - from_ms as f64
}
