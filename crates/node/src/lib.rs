//! Everything mini-ork does on the machine where work runs.

pub mod agent;
pub mod beneath;
pub mod gateway;
pub mod git;
pub mod model;
pub mod redact;
pub mod secret;
pub mod supervise;
pub mod sys;
pub mod text;
pub mod tree;
pub mod workspace;
