//! What verifiers conclude. Pure: the programs are run by the caller, in a workspace.
//!
//! Everything that is read here was written by programs that an agent controls, so nothing but a
//! well-formed, complete answer ever passes.

mod detect;
mod json;
mod judge;
#[cfg(test)]
mod judge_proof_tests;
#[cfg(test)]
mod judge_tests;
mod names;
mod parse;
mod runner;
mod rust_tests;
mod rust_tokens;
mod script;
mod tests_of;
mod verdict;

pub use detect::{TestCommand, TestPlan, detect_tests, detect_typecheck};
pub use judge::{CommandRun, Comparison, Judgement, Ruling, TestRun, judge};
pub use parse::{Status, TestReport, parse};
pub use runner::Runner;
pub use script::{ScriptAnswer, ScriptError, read_script};
pub use tests_of::{Change, Edit, Side, TestOverlay, is_test_path, overlay};
pub use verdict::{Review, Verdict, VerdictError, read_review};
