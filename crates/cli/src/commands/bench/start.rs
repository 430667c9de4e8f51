//! How fast mini-ork itself starts.

use std::path::Path;

use mini_ork_node::supervise::{SupervisedProcess, Supervisor};
use mini_ork_protocol::{ByteString, GENERATION, ProcessSpec, StdinSource};

use super::lab::{Lab, failed, milliseconds, progress, time};
use super::report::Report;
use super::sample::Samples;
use crate::error::CommandError;

const PART: &str = "start";
/// A start takes a millisecond, so many are measured for one that is asked for.
const TURNS: u32 = 5;

pub(super) fn measure(lab: &Lab, samples: u32, report: &mut Report) -> Result<(), CommandError> {
    progress("start: `--version` beside git's");
    let (mut own, mut git) = (Samples::default(), Samples::default());
    for turn in 0..=samples.saturating_mul(TURNS) {
        let mut command = lab.mini_ork();
        command.arg("--version");
        let own_ms = time(command, "mini-ork --version")?;
        let mut command = lab.command("git");
        command.arg("--version");
        let git_ms = time(command, "git --version")?;
        // The first turn brings the programs into memory.
        if turn > 0 {
            own.push(own_ms);
            git.push(git_ms);
        }
    }
    report.row(PART, "mini-ork --version", "ms", &own);
    report.row(PART, "git --version", "ms", &git);
    let ratio = own.median() / git.median();
    report.goal("start against git --version", 4.0, ratio, "times");
    processes(lab, samples, report)
}

/// A supervised `true` beside one that is started and awaited without anything.
fn processes(lab: &Lab, samples: u32, report: &mut Report) -> Result<(), CommandError> {
    progress("start: a supervised process beside a plain one");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&error))?;
    let supervisor = Supervisor::new(lab.program().to_owned());
    let (mut supervised, mut plain) = (Samples::default(), Samples::default());
    for turn in 0..=samples.saturating_mul(TURNS) {
        let directory = lab.root().join(format!("process{turn}"));
        let spec = specification(lab.root());
        let began = std::time::Instant::now();
        let ended = runtime.block_on(async {
            let process: SupervisedProcess = supervisor.start(&directory, &spec).await?;
            process.wait().await
        });
        let supervised_ms = milliseconds(began);
        ended.map_err(|error| failed(&error))?;
        let plain_ms = time(lab.command("/bin/true"), "true")?;
        if turn > 0 {
            supervised.push(supervised_ms);
            plain.push(plain_ms);
        }
    }
    report.row(PART, "`true` under a supervisor", "ms", &supervised);
    report.row(PART, "`true` without one", "ms", &plain);
    let beyond = supervised.median() - plain.median();
    report.goal("supervising a process", 5.0, beyond, "ms");
    Ok(())
}

fn specification(cwd: &Path) -> ProcessSpec {
    ProcessSpec {
        generation: GENERATION,
        argv: vec![ByteString::from("/bin/true")],
        cwd: ByteString::from(cwd),
        env: Vec::new(),
        stdin: StdinSource::Null,
        marker: "bench".to_owned(),
        timeout_ms: Some(60_000),
        grace_ms: 1000,
        output_limit: 1 << 20,
        secrets: Vec::new(),
    }
}
