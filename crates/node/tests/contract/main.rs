//! One list of cases, run for each backend.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the helpers of tests fail tests, and say what was counted"
)]

mod bench;
mod cases;
mod confined;
mod in_docker;
mod on_this_host;
mod ports;
mod way_in;

use bench::{Bench, block_on};

/// Runs all cases on a backend and says how many there were.
fn contract(name: &str, open: impl AsyncFnOnce() -> Bench) {
    block_on(async {
        let bench = open().await;
        bench.workspace.up(&bench.drive).await.unwrap();
        println!("{}", bench.workspace.isolation());
        let (apply, others): (Vec<_>, Vec<_>) =
            cases::CASES.iter().partition(|case| (case.applies)(&bench));
        for case in &apply {
            println!("{name}: {}", case.name);
            (case.run)(&bench).await;
        }
        let others: Vec<&str> = others.iter().map(|case| case.name).collect();
        println!(
            "contract: {name}: {} cases, {} do not apply: {}",
            apply.len(),
            others.len(),
            others.join(", "),
        );
        bench.workspace.down(&bench.drive).await.unwrap();
    });
}
