//! How the work of several nodes becomes one tree.
//!
//! Each writer starts from a tree and returns a tree. The work before a node is what follows from
//! taking the writers before it *in the order of the graph*, each as the change from its input to
//! its output. Who finished first has no say, so the same results give the same tree and the same
//! conflicts every time.

use mini_ork_node::git::{self, ControlGit, GitError, TreeId};
use mini_ork_protocol::NodeId;
use serde::{Deserialize, Serialize};

use super::state::Contribution;

/// The merged work of some writers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folded {
    /// The tree. Where there are conflicts, text files hold both versions between markers.
    pub tree: TreeId,
    /// What could not be merged and has not been resolved since.
    pub conflicts: Vec<Conflict>,
}

/// Two writers changed one thing in ways that exclude each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// What conflicts, with the versions of both sides.
    pub conflict: git::Conflict,
    /// The nodes whose merged work is "ours", in the order of the graph.
    pub ours: Vec<NodeId>,
    /// The node whose work is "theirs".
    pub theirs: NodeId,
}

/// Merges `contributions`, which are in the order of the graph, onto `base`.
pub fn fold(
    control: &ControlGit,
    base: &TreeId,
    contributions: &[Contribution],
) -> Result<Folded, GitError> {
    let mut merged = base.clone();
    let mut conflicts: Vec<Conflict> = Vec::new();
    let mut taken: Vec<NodeId> = Vec::new();
    for contribution in contributions {
        if contribution.resolves && contribution.input == merged {
            conflicts.clear();
        }
        if contribution.output == contribution.input {
            continue;
        }
        if contribution.input == merged {
            merged.clone_from(&contribution.output);
        } else {
            let merge = control.merge(&contribution.input, &merged, &contribution.output)?;
            conflicts.extend(merge.conflicts.into_iter().map(|conflict| Conflict {
                conflict,
                ours: taken.clone(),
                theirs: contribution.node.clone(),
            }));
            merged = merge.tree;
        }
        taken.push(contribution.node.clone());
    }
    Ok(Folded {
        tree: merged,
        conflicts,
    })
}
