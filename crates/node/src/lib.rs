//! Everything mini-ork does on the machine where work runs.

pub mod git;
pub mod redact;
pub mod supervise;
pub mod sys;
pub mod text;
pub mod tree;
pub mod workspace;
