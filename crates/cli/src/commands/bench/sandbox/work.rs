//! Work that reads and writes many files, and traffic, inside and on this machine.

use std::path::Path;
use std::process::Command;

use super::super::lab::{failed, progress, time};
use super::super::report::Report;
use super::super::sample::Samples;
use super::Bench;
use super::place::Place;
use super::server::SIZE;
use crate::error::CommandError;

const FILES: &str = "files";
const EGRESS: &str = "egress";
const MIB: f64 = 1024.0 * 1024.0;

/// `backend` is how the rows are called.
pub(super) async fn measure(
    bench: &Bench<'_>,
    backend: &str,
    place: &Place<'_>,
    report: &mut Report,
) -> Result<(), CommandError> {
    status(bench, backend, place, report).await?;
    build(bench, backend, place, report).await?;
    egress(bench, backend, place, report).await
}

async fn status(
    bench: &Bench<'_>,
    backend: &str,
    place: &Place<'_>,
    report: &mut Report,
) -> Result<(), CommandError> {
    if !there(backend, place, "git").await {
        return Ok(());
    }
    let lab = bench.lab;
    let tree = place.target().join("tree");
    for number in 0..bench.files {
        let path = format!("part{}/file{number}.txt", number % 50);
        lab.write(&tree.join(path), &format!("content of {number}\n"))?;
    }
    lab.git(&tree, &["init", "-q"])?;
    lab.git(&tree, &["add", "-A"])?;
    lab.git(&tree, &["commit", "-q", "-m", "tree"])?;
    let what = format!("git status, {} files", bench.files);
    progress(&format!("files: {what}, {backend} and host"));
    let (mut inside, mut outside) = (Samples::default(), Samples::default());
    for turn in 0..=bench.samples {
        let inside_ms = place.run(&["git", "-C", "tree", "status"]).await?;
        let mut command = lab.command("git");
        command.arg("-C").arg(&tree).arg("status");
        command.env("GIT_OPTIONAL_LOCKS", "0");
        let outside_ms = time(command, "git status")?;
        if turn > 0 {
            inside.push(inside_ms);
            outside.push(outside_ms);
        }
    }
    tell(report, backend, &what, &inside, &outside);
    Ok(())
}

async fn build(
    bench: &Bench<'_>,
    backend: &str,
    place: &Place<'_>,
    report: &mut Report,
) -> Result<(), CommandError> {
    if !there(backend, place, "cargo").await {
        return Ok(());
    }
    progress(&format!(
        "files: cargo build of a small crate, {backend} and host"
    ));
    let tree = place.target().join("crate");
    small_crate(bench, &tree)?;
    let build = ["build", "--offline", "--quiet"];
    let (mut inside, mut outside) = (Samples::default(), Samples::default());
    for turn in 0..=bench.samples.div_ceil(2) {
        fresh(&tree)?;
        let argv = ["cargo", "--config", "crate/none.toml", "build"];
        let argv = [
            &argv[..3],
            &build[..],
            &["--manifest-path", "crate/Cargo.toml"],
        ]
        .concat();
        let inside_ms = place.run(&argv).await?;
        fresh(&tree)?;
        let mut command = host_cargo(bench);
        command.args(build).current_dir(&tree);
        let outside_ms = time(command, "cargo build")?;
        if turn > 0 {
            inside.push(inside_ms);
            outside.push(outside_ms);
        }
    }
    tell(report, backend, "cargo build", &inside, &outside);
    Ok(())
}

/// cargo, which may be a program that looks for the real one in the user's home.
fn host_cargo(bench: &Bench<'_>) -> Command {
    let environment = &bench.global.environment;
    let toolchains = environment
        .path("RUSTUP_HOME")
        .or_else(|| Some(environment.path("HOME")?.join(".rustup")));
    let mut command = bench.lab.command("cargo");
    if let Some(toolchains) = toolchains {
        command.env("RUSTUP_HOME", toolchains);
    }
    command
}

fn small_crate(bench: &Bench<'_>, tree: &Path) -> Result<(), CommandError> {
    const MODULES: usize = 20;
    let manifest = "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
                    [workspace]\n";
    bench.lab.write(&tree.join("Cargo.toml"), manifest)?;
    bench.lab.write(&tree.join("none.toml"), "")?;
    let mut main = String::new();
    for module in 0..MODULES {
        main.push_str(&format!("mod part{module};\n"));
        let functions: String = (0..50)
            .map(|function| {
                format!(
                    "pub fn f{function}(x: u64) -> u64 {{ x.rotate_left({function}) ^ {module} }}\n"
                )
            })
            .collect();
        let path = tree.join(format!("src/part{module}.rs"));
        bench.lab.write(&path, &functions)?;
    }
    main.push_str("fn main() {\n    let mut sum = 0;\n");
    for module in 0..MODULES {
        for function in 0..50 {
            main.push_str(&format!("    sum = part{module}::f{function}(sum);\n"));
        }
    }
    main.push_str("    println!(\"{sum}\");\n}\n");
    bench.lab.write(&tree.join("src/main.rs"), &main)
}

fn fresh(tree: &Path) -> Result<(), CommandError> {
    mini_ork_node::sys::remove_tree(&tree.join("target")).map_err(|error| failed(&error))
}

async fn egress(
    bench: &Bench<'_>,
    backend: &str,
    place: &Place<'_>,
    report: &mut Report,
) -> Result<(), CommandError> {
    if !there(backend, place, "curl").await {
        return Ok(());
    }
    progress(&format!("egress: a large answer, {backend} and host"));
    let url = format!("http://127.0.0.1:{}/", bench.server.port());
    let arguments = ["--silent", "--fail", "--output", "/dev/null", &url];
    let (mut inside, mut outside) = (Samples::default(), Samples::default());
    let rate = |took_ms: f64| SIZE as f64 / MIB / took_ms * 1000.0;
    for turn in 0..=bench.samples.div_ceil(2) {
        let argv = [&["curl"], &arguments[..]].concat();
        let inside_rate = rate(place.run(&argv).await?);
        let mut command = bench.lab.command("curl");
        command.args(arguments);
        let outside_rate = rate(time(command, "curl")?);
        if turn > 0 {
            inside.push(inside_rate);
            outside.push(outside_rate);
        }
    }
    report.row(
        EGRESS,
        format!("{backend}: through the policy proxy"),
        "MiB/s",
        &inside,
    );
    report.row(
        EGRESS,
        format!("{backend}: host, directly"),
        "MiB/s",
        &outside,
    );
    Ok(())
}

fn tell(report: &mut Report, backend: &str, what: &str, inside: &Samples, outside: &Samples) {
    report.row(FILES, format!("{backend}: {what}"), "ms", inside);
    report.row(FILES, format!("host: {what}"), "ms", outside);
    let ratios = inside.ratios(outside);
    report.row(
        FILES,
        format!("{backend} against host, turn by turn"),
        "times",
        &ratios,
    );
}

/// Says so where it is not.
async fn there(backend: &str, place: &Place<'_>, program: &str) -> bool {
    let there = place.has(program).await;
    if !there {
        progress(&format!(
            "{backend}: there is no {program}, so it is left out"
        ));
    }
    there
}
