//! Git and trees, with real git in directories of their own.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]
#![expect(
    clippy::print_stdout,
    reason = "a test that leaves something out says so"
)]

mod apply;
mod big;
mod changes;
mod hostile;
mod layouts;
mod lfs;
mod merge;
mod private;
mod publish;
mod snapshot;
mod submodules;
mod support;
mod torture;
mod untouched;
