//! The kickoff: the Markdown file in which a person says what is wanted.

mod error;
mod items;
mod markdown;
mod parse;
mod questions;
mod scope;

#[cfg(test)]
mod parse_tests;
#[cfg(test)]
mod scope_tests;

pub use error::{KickoffError, KickoffProblem};
pub use questions::{Question, Requirement};
pub use scope::{Breach, Scope, Violation};

/// A kickoff that was read without a mistake.
///
/// Sections are known by the names of their headings, in any case and at any level; a section that
/// occurs twice counts as one. Headings are ATX headings (`## Scope`) or a line of its own such as
/// `Scope:` or `**Scope**`. What belongs to no known section is kept in `text` only.
#[derive(Debug, Clone)]
pub struct Kickoff {
    /// The first heading of level 1 that is not the name of a section; never empty.
    pub title: String,
    /// The section Problem; without one, the text before the first section. May be empty.
    pub problem: String,
    /// The items of Definition of Done, Success Criteria, Acceptance, Done when.
    pub definition_of_done: Vec<String>,
    /// What may be changed and what must not.
    pub scope: Scope,
    /// Shell commands that show whether the work is done, in order.
    pub verification: Vec<String>,
    /// What the author left open; each is asked before the run starts.
    pub open_questions: Vec<String>,
    /// Answers given with [`Kickoff::with_answers`], as Markdown; empty before.
    pub answers: String,
    /// The whole file without a byte order mark.
    pub text: String,
}
