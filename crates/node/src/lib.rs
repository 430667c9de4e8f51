//! Everything mini-ork does on the machine where work runs.

pub mod agent;
pub mod beneath;
pub mod certificates;
pub mod confine;
pub mod egress;
pub mod gateway;
pub mod git;
pub mod model;
pub mod probe;
pub mod redact;
pub mod replay;
pub mod secret;
pub mod session;
pub mod size;
pub mod supervise;
pub mod sys;
pub mod text;
pub mod tree;
pub mod workspace;
