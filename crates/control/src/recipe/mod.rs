//! Recipes: what a run does, as a graph of nodes that a directory of files describes.
//!
//! A [`Recipe`] is read and checked as a whole, so that whoever has one need not check again. What
//! its files ask for and mini-ork does not carry out is a mistake with a remedy, never ignored.

mod bundled;
mod catalog;
mod check;
mod classify;
mod files;
mod graph;
mod load;
mod model;
mod node;
mod task;
mod workflow;

pub use catalog::{Catalog, FindError, LoadError, Summary, load_directory};
pub use classify::classify;
pub use graph::{Graph, GraphError};
pub use model::{
    ArtifactContract, Edge, EdgeKind, ExpectedArtifact, Gate, Node, NodeKind, Origin, Output,
    Recipe, Risk, TaskClass, VerifierSource, Visibility,
};

#[cfg(test)]
mod bundled_tests;
#[cfg(test)]
mod catalog_tests;
#[cfg(test)]
mod docs_tests;
#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod mistake_tests;
