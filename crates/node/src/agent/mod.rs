//! The built-in agent: a model, tools, and a loop between the two.
//!
//! It talks to the model through the lane gateway, so it holds no key, and acts through a
//! [`Workspace`](crate::workspace::Workspace), so the loop can be inside of a boundary with its
//! tools ([`agent_main`]) or outside of it ([`Agent::work`]).
//!
//! The model is not trusted: its tools reach nothing outside of the root of the workspace but what
//! a command can reach there, everything that it says or causes is bounded, and whatever it does,
//! the work ends with one reason. Nor is its word: whether the work is any good is for others to
//! judge.
//!
//! As a process it reads the prompt from standard input and writes [`AgentEvent`]s to standard
//! output, one line of JSON each. It ends with code 0 only when the model said that it is done.

mod api;
mod client;
mod conversation;
mod event;
mod excerpt;
mod program;
mod repetition;
mod spec;
mod tools;
mod trial;
mod window;
mod work;

pub use event::{AgentEvent, EndReason};
pub use program::{AGENT_ARGUMENT, AGENT_TOKEN_VARIABLE, Surroundings, agent_main};
pub use spec::{AgentLimits, AgentSpec, AgentSpecError, ToolPlace};
pub use trial::try_model;
pub use work::{Agent, AgentEnd};
