//! A strict reader for the YAML files that people write: recipes, lanes, profiles, scripts.
//!
//! Two steps: [`Document::parse`] takes the text apart and refuses what makes a file mean something
//! else than it seems to (anchors, tags, merge keys, duplicate keys, several documents); the caller
//! then asks the document's [`Map`]s for the keys it knows. Every mistake is kept with its file,
//! line and remedy, and reading goes on, so that a person sees all mistakes of a file at once.

mod mistake;
mod reader;
mod scalar;
mod suggest;
mod tree;

pub(crate) use mistake::push;
pub use mistake::{Mistake, Mistakes};
pub use reader::{Document, Map, Value};
pub use suggest::{suggest, suggest_or_list};

#[cfg(test)]
mod reader_tests;
#[cfg(test)]
mod tree_tests;
