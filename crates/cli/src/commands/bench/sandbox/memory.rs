//! What a sandbox takes that waits for work.

use std::time::Duration;

use mini_ork_node::workspace::BackendSettings;

use super::super::lab::{failed, progress};
use super::super::report::Report;
use super::super::sample::Samples;
use super::Bench;
use super::docker::Docker;
use super::place::Place;
use crate::error::CommandError;

const PART: &str = "memory";
/// How many there are at a time.
const COUNT: u32 = 5;
/// What was started has come to rest by then.
const REST: Duration = Duration::from_secs(1);
const MIB: f64 = 1024.0 * 1024.0;

pub(super) fn measure(
    bench: &Bench<'_>,
    docker: &Docker<'_>,
    settings: &BackendSettings,
    report: &mut Report,
) -> Result<(), CommandError> {
    progress("memory: idle sandboxes beside idle containers");
    let mut places = Vec::new();
    for number in 0..COUNT {
        let name = format!("idle{number}");
        places.push(Place::new(bench.lab, "docker", settings, &name)?);
    }
    let containers: Result<Vec<_>, _> = (0..COUNT)
        .map(|number| docker.run(&format!("idle{number}")))
        .collect();
    let measured = containers.and_then(|containers| {
        let before = proportional(std::process::id());
        for place in &places {
            bench.runtime.block_on(place.up())?;
        }
        bench
            .runtime
            .block_on(async { tokio::time::sleep(REST).await });
        let outside = (proportional(std::process::id()) - before) / f64::from(COUNT) / MIB;
        let (mut own, mut own_shim) = (Samples::default(), Samples::default());
        for place in &places {
            let (inside, shim) = weigh(docker, &place.container())?;
            own.push(inside);
            own_shim.push(shim);
        }
        let (mut plain, mut plain_shim) = (Samples::default(), Samples::default());
        for container in &containers {
            let (inside, shim) = weigh(docker, container.name())?;
            plain.push(inside);
            plain_shim.push(shim);
        }
        let outside = [outside].into_iter().collect();
        for (name, samples) in [
            ("a sandbox: mini-ork inside", &own),
            ("a sandbox: mini-ork outside", &outside),
            ("a sandbox: docker's shim", &own_shim),
            ("a container of `docker run`: `sleep`", &plain),
            ("a container of `docker run`: docker's shim", &plain_shim),
        ] {
            report.row(PART, format!("{name} (PSS)"), "MiB", samples);
        }
        Ok(())
    });
    for place in &places {
        bench.runtime.block_on(place.down())?;
    }
    measured
}

/// What the processes in a container take, and what the process takes that watches it, in MiB.
fn weigh(docker: &Docker<'_>, container: &str) -> Result<(f64, f64), CommandError> {
    let first = docker.first_process(container)?;
    let shim = parent(first).ok_or_else(|| {
        CommandError::failure("the processes of the engine are not on this machine")
    })?;
    let mut inside = 0.0;
    // What the engine started beside the first process is a child of the shim too.
    let mut pending = children(shim);
    while let Some(process) = pending.pop() {
        inside += proportional(process);
        pending.extend(children(process));
    }
    if inside == 0.0 {
        let error = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        return Err(failed(&error).hint("memory of the engine's processes is seen by root alone"));
    }
    Ok((inside / MIB, proportional(shim) / MIB))
}

/// What a process takes, with its part of what it shares, in bytes.
fn proportional(process: u32) -> f64 {
    let text = fs_err::read_to_string(format!("/proc/{process}/smaps_rollup"));
    let text = text.unwrap_or_default();
    let kibibytes: Option<f64> = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    kibibytes.unwrap_or_default() * 1024.0
}

fn parent(process: u32) -> Option<u32> {
    let text = fs_err::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok().filter(|parent| *parent > 1)
}

fn children(process: u32) -> Vec<u32> {
    let Ok(tasks) = fs_err::read_dir(format!("/proc/{process}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| fs_err::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| {
            let numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
            numbers.collect::<Vec<u32>>()
        })
        .collect()
}
