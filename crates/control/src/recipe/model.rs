use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mini_ork_protocol::NodeId;
use serde::{Deserialize, Serialize};

use crate::kickoff::Requirement;

/// A recipe whose files have been read and checked: every reference in it holds, its graph has no
/// loop, and everything it asks for is carried out.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Name of its directory.
    pub name: String,
    /// What it is for, in a sentence or two; may be empty.
    pub description: String,
    /// As the recipe writes it.
    pub version: String,
    /// Which tasks it suits.
    pub task: TaskClass,
    /// What it delivers.
    pub contract: ArtifactContract,
    /// In the order of the file.
    pub nodes: Vec<Node>,
    /// In the order of the file.
    pub edges: Vec<Edge>,
    /// Where it was found.
    pub origin: Origin,
    /// Every file of the recipe by its path in it, so that a run can keep what it started with.
    pub files: BTreeMap<String, Vec<u8>>,
    /// `sha256:` and the hex digest of all files with their paths.
    pub digest: String,
    /// All nodes run one after the other.
    pub serial: bool,
}

/// Where a recipe comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// `.mini-ork/recipes/` of the target repository.
    Repository(PathBuf),
    /// `recipes/` of the home directory of mini-ork.
    Home(PathBuf),
    /// A directory that was named.
    Directory(PathBuf),
    /// Part of the program.
    Bundled,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repository(path) | Self::Home(path) | Self::Directory(path) => {
                write!(formatter, "{}", path.display())
            }
            Self::Bundled => formatter.write_str("bundled"),
        }
    }
}

/// The kind of task a recipe is for: `task_class.yaml`.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskClass {
    /// Word that names the class.
    pub name: String,
    /// May be empty.
    pub description: String,
    /// How much harm a wrong result does.
    pub risk: Risk,
    /// Words that a kickoff for it contains.
    pub keywords: Vec<String>,
    /// Globs of paths that a kickoff for it mentions.
    pub path_globs: Vec<String>,
    /// Most money in US dollars that a run may spend.
    pub budget_cap_usd: Option<f64>,
    /// What the kickoff must say before a run starts.
    pub requires: Vec<Requirement>,
}

/// How much harm a wrong result of a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Easily seen and undone.
    Low,
    /// The usual care.
    Medium,
    /// Look twice.
    High,
}

/// What a recipe delivers: `artifact_contract.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactContract {
    /// The form of the result.
    pub expected: ExpectedArtifact,
    /// Verifier nodes without whose pass nothing is published; every verifier of the recipe unless
    /// it names some.
    pub success_verifiers: Vec<NodeId>,
    /// How to undo a published result: a text for people; may be empty.
    pub rollback_policy: String,
}

/// The form of a recipe's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedArtifact {
    /// A change of the repository.
    Patch,
    /// Files in the output directory; the repository stays as it is.
    Report,
}

/// One step of a recipe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name in the recipe.
    pub id: NodeId,
    /// What it does.
    pub kind: NodeKind,
    /// Role by which its lane is found; see [`Node::role`].
    pub lane: Option<String>,
    /// Path of its prompt template in the recipe's files; every node with a lane has one.
    pub prompt: Option<String>,
    /// What a verifier runs; every verifier has one and nothing else has.
    pub verifier: Option<VerifierSource>,
    /// What must hold before its result counts.
    pub gates: Vec<Gate>,
    /// Time limit of one attempt.
    pub timeout: Option<Duration>,
    /// Most money in US dollars that the node may spend in the whole run.
    pub max_cost_usd: Option<f64>,
    /// Further attempts after a failure that may pass by itself, 0 to 5.
    pub retries: u32,
    /// Files that it makes in the output directory.
    pub outputs: Vec<Output>,
    /// Nothing else runs beside it.
    pub serial: bool,
    /// Conflicts of the work that it joins are handed to it instead of stopping the run.
    pub accepts_conflicts: bool,
    /// Line in `workflow.yaml`.
    pub line: u32,
}

impl Node {
    /// The role by which its lane is found: `model_lane`, else the name of its kind.
    pub fn role(&self) -> &str {
        self.lane.as_deref().unwrap_or(self.kind.name())
    }
}

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// Says how to go about the task.
    Planner,
    /// Finds something out.
    Researcher,
    /// Changes files by a rule.
    Transform,
    /// Changes files.
    Implementer,
    /// Judges a change; its verdict decides.
    Reviewer,
    /// Runs a program whose answer decides.
    Verifier,
    /// Judges a result for the record; it decides nothing.
    Eval,
    /// Makes the result available.
    Publisher,
    /// Takes the work back when something it guards has failed.
    Rollback,
}

impl NodeKind {
    /// Every kind with its name in `workflow.yaml`.
    pub const ALL: [(&'static str, Self); 9] = [
        ("planner", Self::Planner),
        ("researcher", Self::Researcher),
        ("transform", Self::Transform),
        ("implementer", Self::Implementer),
        ("reviewer", Self::Reviewer),
        ("verifier", Self::Verifier),
        ("eval", Self::Eval),
        ("publisher", Self::Publisher),
        ("rollback", Self::Rollback),
    ];

    /// Its name in `workflow.yaml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Researcher => "researcher",
            Self::Transform => "transform",
            Self::Implementer => "implementer",
            Self::Reviewer => "reviewer",
            Self::Verifier => "verifier",
            Self::Eval => "eval",
            Self::Publisher => "publisher",
            Self::Rollback => "rollback",
        }
    }

    /// Whether the changes it makes to files are kept.
    pub fn writes(self) -> bool {
        matches!(self, Self::Implementer | Self::Transform)
    }

    /// Whether an agent does it.
    pub fn uses_lane(self) -> bool {
        !matches!(self, Self::Verifier | Self::Publisher | Self::Rollback)
    }
}

/// What a verifier runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifierSource {
    /// The project's tests, compared with the state before.
    Tests,
    /// The project's type check or compiler.
    Typecheck,
    /// A script of the recipe, by its path in the recipe's files.
    Script(String),
}

/// What must hold before a node's result counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gate {
    /// Every changed file is in the kickoff's scope.
    #[serde(rename = "scope_gate")]
    Scope,
    /// The budget is not spent.
    #[serde(rename = "budget_gate")]
    Budget,
    /// The verifiers and reviewers have agreed.
    #[serde(rename = "deployment_gate")]
    Deployment,
}

impl Gate {
    /// Every gate with its name in `workflow.yaml`.
    pub const ALL: [(&'static str, Self); 3] = [
        ("scope_gate", Self::Scope),
        ("budget_gate", Self::Budget),
        ("deployment_gate", Self::Deployment),
    ];

    /// Whether it says anything about a node of this kind.
    pub fn suits(self, kind: NodeKind) -> bool {
        match self {
            Self::Scope => kind.writes(),
            Self::Budget => kind.uses_lane(),
            Self::Deployment => kind == NodeKind::Publisher,
        }
    }
}

/// A file that a node makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Word that names it.
    pub name: String,
    /// Word for what it is, such as `report`; kept in the record.
    pub kind: String,
    /// Relative path in the output directory, without `..`; no other output of the recipe has it.
    pub path: String,
    /// Who gets it.
    pub visibility: Visibility,
}

/// Who gets an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// The user: it is part of the result.
    Consumer,
    /// Later nodes and the record only.
    SystemOnly,
}

/// How one node follows from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// Runs first.
    pub from: NodeId,
    /// Runs later; of `retries` the earlier node that is run again.
    pub to: NodeId,
    /// What it means.
    pub kind: EdgeKind,
    /// Line in `workflow.yaml`.
    pub line: u32,
}

/// What an edge means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// `to` starts after `from` has succeeded.
    DependsOn,
    /// As [`EdgeKind::DependsOn`], and `to` is given what `from` said.
    SuppliesContextTo,
    /// As [`EdgeKind::DependsOn`]; one of the two judges the other's work.
    Verifies,
    /// When `from` finds fault, `to` and all that follows from it run again.
    Retries {
        /// Most rounds after the first, 1 to 10.
        max_rounds: u32,
    },
    /// When `from` has failed for good, `to` runs.
    EscalatesTo,
}

impl EdgeKind {
    /// Whether `from` is a parent of `to`: it must have succeeded before.
    pub fn orders(self) -> bool {
        !matches!(self, Self::Retries { .. } | Self::EscalatesTo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kinds_and_gates_are_those_of_plan_json() {
        for (name, kind) in NodeKind::ALL {
            assert_eq!(kind.name(), name);
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{name}\""));
        }
        for (name, gate) in Gate::ALL {
            assert_eq!(serde_json::to_string(&gate).unwrap(), format!("\"{name}\""));
        }
        let retries = serde_json::to_string(&EdgeKind::Retries { max_rounds: 2 }).unwrap();
        assert_eq!(retries, r#"{"retries":{"max_rounds":2}}"#);
    }
}
