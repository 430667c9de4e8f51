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

use bench::{Bench, block_on};

/// Runs all cases on a backend and says how many there were.
fn contract(name: &str, open: impl AsyncFnOnce() -> Bench) {
    block_on(async {
        let bench = open().await;
        bench.workspace.up(&bench.drive).await.unwrap();
        for (case, run) in cases::CASES {
            println!("{name}: {case}");
            run(&bench).await;
        }
        println!("contract: {} cases passed on {name}", cases::CASES.len());
        println!("{}", bench.workspace.isolation());
        bench.workspace.down(&bench.drive).await.unwrap();
    });
}
