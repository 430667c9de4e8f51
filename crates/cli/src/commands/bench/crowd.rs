//! Many runs at once on one home and one repository: how long they take together, and what their
//! control planes need of the memory while programs write much.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use super::lab::{Lab, failed, milliseconds, progress, view_of};
use super::report::Report;
use super::sample::Samples;
use crate::error::CommandError;

const PART: &str = "runs";
/// How often the end of runs is looked for.
const STEP: Duration = Duration::from_millis(5);
/// How often their memory is looked at, which itself takes time.
const LOOK: Duration = Duration::from_millis(200);
const MIB: f64 = 1024.0 * 1024.0;

const WORKFLOW: &str = "\
version: 1
task_class: crowd
nodes:
  - {name: plan, type: planner, prompt_ref: prompts/do.md}
  - {name: write, type: implementer, prompt_ref: prompts/do.md}
  - {name: judge, type: reviewer, prompt_ref: prompts/do.md}
  - {name: publish, type: publisher}
edges:
  - {from: plan, to: write, edge_type: supplies_context_to}
  - {from: write, to: judge, edge_type: depends_on}
  - {from: judge, to: publish, edge_type: depends_on}
";
const PROMPT: &str = "{{ title }}\n{{ plan }}\n{{ diff }}\n";
/// Bytes of output of each node, in the second half.
const OUTPUT: u64 = 8 << 20;

pub(super) fn measure(lab: &Lab, runs: u32, report: &mut Report) -> Result<(), CommandError> {
    let repository = lab.small_repository("crowded")?;
    lab.write(Path::new("kickoff.md"), "# Measure\n\n## Problem\nNone.\n")?;
    let quiet = Crowd::gather(lab, &repository, runs, "quiet", 0)?;
    let loud = Crowd::gather(lab, &repository, runs, "loud", OUTPUT)?;
    for (crowd, name) in [(&quiet, "short output"), (&loud, "8 MiB from each node")] {
        for (what, unit, samples) in [
            ("all together", "ms", [crowd.took_ms].into_iter().collect()),
            ("one run", "ms", crowd.took_each_ms.clone()),
            (
                "memory of all (PSS)",
                "MiB",
                [crowd.shared_mib].into_iter().collect(),
            ),
            (
                "most memory of each (RSS)",
                "MiB",
                crowd.resident_mib.clone(),
            ),
        ] {
            report.row(
                PART,
                format!("{runs} at once, {name}: {what}"),
                unit,
                &samples,
            );
        }
    }
    let growth = loud.resident_mib.summary().max / quiet.resident_mib.summary().max;
    report.goal(
        "memory of a control plane, much output against little",
        1.25,
        growth,
        "times",
    );
    Ok(())
}

/// Runs that were started together.
struct Crowd {
    took_ms: f64,
    took_each_ms: Samples,
    /// The highest sum that was seen.
    shared_mib: f64,
    resident_mib: Samples,
}

struct Member {
    child: Child,
    output: PathBuf,
    ended_ms: Option<f64>,
    resident: f64,
}

impl Crowd {
    fn gather(
        lab: &Lab,
        repository: &Path,
        runs: u32,
        name: &str,
        output: u64,
    ) -> Result<Self, CommandError> {
        progress(&format!(
            "runs: {runs} at once, {output} bytes from each node"
        ));
        let home = lab.root().join(format!("home-{name}"));
        write_home(lab, &home, output)?;
        let began = Instant::now();
        let mut members = Vec::new();
        for number in 0..runs {
            let path = lab.root().join(format!("{name}{number}.json"));
            let file = File::options().write(true).create_new(true).open(&path);
            let mut command = lab.run_command(&home, "crowd", repository);
            command.stdout(file.map_err(|error| failed(&error))?);
            members.push(Member {
                child: command.spawn().map_err(|error| failed(&error))?,
                output: path,
                ended_ms: None,
                resident: 0.0,
            });
        }
        let shared = watch(&mut members, began)?;
        let took_ms = milliseconds(began);
        for member in &members {
            let output = fs_err::read(&member.output).map_err(|error| failed(&error))?;
            if view_of(&output).is_none() {
                let said = String::from_utf8_lossy(&output).trim().to_owned();
                return Err(CommandError::failure("one of many runs failed").details([said]));
            }
        }
        Ok(Self {
            took_ms,
            took_each_ms: members
                .iter()
                .filter_map(|member| member.ended_ms)
                .collect(),
            shared_mib: shared / MIB,
            resident_mib: members.iter().map(|member| member.resident / MIB).collect(),
        })
    }
}

/// Waits for all to end; the most memory that they took together, in bytes.
fn watch(members: &mut [Member], began: Instant) -> Result<f64, CommandError> {
    let mut most = 0.0_f64;
    let mut looked: Option<Instant> = None;
    while members.iter().any(|member| member.ended_ms.is_none()) {
        let look = looked.is_none_or(|at| at.elapsed() >= LOOK);
        let mut together = 0.0;
        for member in members
            .iter_mut()
            .filter(|member| member.ended_ms.is_none())
        {
            if look && let Some((shared, resident)) = memory(member.child.id()) {
                together += shared;
                member.resident = member.resident.max(resident);
            }
            if member
                .child
                .try_wait()
                .map_err(|error| failed(&error))?
                .is_some()
            {
                member.ended_ms = Some(milliseconds(began));
            }
        }
        if look {
            looked = Some(Instant::now());
            most = most.max(together);
        }
        thread::sleep(STEP);
    }
    Ok(most)
}

/// The memory of a process with its part of what it shares now, and the most that it ever had with
/// all of what it shares. In bytes.
fn memory(pid: u32) -> Option<(f64, f64)> {
    let field = |file: &str, name: &str| {
        let text = fs_err::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kibibytes * 1024.0)
    };
    Some((field("smaps_rollup", "Pss:")?, field("status", "VmHWM:")?))
}

fn write_home(lab: &Lab, home: &Path, output: u64) -> Result<(), CommandError> {
    let loud = match output {
        0 => String::new(),
        bytes => {
            format!("    run: [/bin/sh, -c, 'head -c {bytes} /dev/zero | tr \"\\0\" x; echo']\n")
        }
    };
    let script = format!(
        "version: 1\nsteps:\n\
         \x20 - node: plan\n{loud}    stdout: Do it.\n\
         \x20 - node: write\n    write: {{done.txt: \"done\\n\"}}\n{loud}    stdout: Done.\n\
         \x20 - node: judge\n{loud}    \
         stdout: '{{\"verdict\": \"approve\", \"summary\": \"fine\", \"findings\": []}}'\n"
    );
    let recipe = home.join("recipes/crowd");
    for (path, content) in [
        (recipe.join("workflow.yaml"), WORKFLOW),
        (recipe.join("prompts/do.md"), PROMPT),
        (home.join("script.yaml"), &script),
        (
            home.join("config/providers.yaml"),
            "providers:\n  script: {kind: scripted, file: script.yaml}\n",
        ),
        (
            home.join("config/agents.yaml"),
            "lanes: {default: script}\n",
        ),
    ] {
        lab.write(&path, content)?;
    }
    Ok(())
}
