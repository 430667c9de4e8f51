//! What a run will do, fixed before it does anything.

use std::collections::{BTreeMap, BTreeSet};

use mini_ork_protocol::{NodeId, RunId};
use serde::{Deserialize, Serialize};

use crate::lanes::{Agent, Driver, Inject, Lane};
use crate::recipe::{ArtifactContract, Edge, EdgeKind, Graph, GraphError, Node, NodeKind};

/// Version of `plan.json`; a reader refuses a later one.
pub const PLAN_FORMAT: u32 = 3;

/// A recipe on a kickoff: the graph with lanes, gates and limits. Kept as `plan.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_FORMAT`] of the writer.
    pub format: u32,
    /// The run.
    pub run: RunId,
    /// Name of the recipe.
    pub recipe: String,
    /// Digest of all the recipe's files; the files themselves are pinned in the run directory.
    pub recipe_digest: String,
    /// Title of the kickoff.
    pub title: String,
    /// Workspace backend.
    pub backend: String,
    /// The nodes in topological order; ties keep the order of the recipe.
    pub nodes: Vec<PlannedNode>,
    /// The edges as the recipe has them.
    pub edges: Vec<Edge>,
    /// What a published result must be.
    pub contract: ArtifactContract,
    /// Nodes run one at a time, whatever the limits say.
    pub serial: bool,
    /// Bounds of the run.
    pub limits: Limits,
    /// Where the agent of each lane runs, for lanes whose agents do not run where all programs do.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agents: BTreeMap<String, AgentPlace>,
}

/// Where the agent of a lane runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentPlace {
    /// In the workspace, as all programs do.
    Inside,
    /// On this machine, outside of the boundary; what its tools do is done inside.
    ToolsInside,
    /// On this machine, outside of the boundary, with all that it does.
    Host,
}

/// How much of an agent is behind the boundary of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All of it.
    Agent,
    /// What its tools do.
    Tool,
}

impl Scope {
    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Tool => "tool",
        }
    }

    /// Where the agent of `lane` runs.
    pub fn place(self, lane: &Lane) -> AgentPlace {
        match (self, &lane.agent) {
            // It has no loop: all that it does is what tools do.
            (Self::Agent, _) | (Self::Tool, Agent::Scripted { .. }) => AgentPlace::Inside,
            (Self::Tool, Agent::Model(model)) if model.driver == Driver::BuiltIn => {
                AgentPlace::ToolsInside
            }
            (Self::Tool, Agent::Model(_) | Agent::Executable { .. }) => AgentPlace::Host,
        }
    }
}

/// One node of a plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlannedNode {
    /// The node as the recipe has it.
    pub node: Node,
    /// The lane that does it; absent for nodes that need none.
    pub lane: Option<Lane>,
    /// Lanes that take its place, one after the other, when it cannot do the node for a reason that
    /// another can cure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<Lane>,
}

impl PlannedNode {
    /// Every lane that may do it, in the order in which they are asked.
    pub fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lane.iter().chain(&self.fallbacks)
    }
}

/// Bounds of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Limits {
    /// Most nodes at once.
    pub max_parallel: usize,
    /// Time for the whole run, in milliseconds.
    pub deadline_ms: Option<u64>,
    /// Time for a node that sets none, in milliseconds.
    pub node_timeout_ms: u64,
    /// Money for the whole run, in US dollars.
    pub budget_usd: Option<f64>,
}

impl Plan {
    /// Whether any node changes files, so that the run needs a worktree of its own.
    pub fn mutates(&self) -> bool {
        self.nodes.iter().any(|planned| planned.node.kind.writes())
    }

    /// Where the agent of the lane called `lane` runs.
    pub fn place(&self, lane: &str) -> AgentPlace {
        self.agents.get(lane).copied().unwrap_or(AgentPlace::Inside)
    }

    /// The lanes whose agents run at `place`, by name.
    pub fn agents_at(&self, place: AgentPlace) -> Vec<String> {
        let found = self.agents.iter().filter(|(_, known)| **known == place);
        found.map(|(lane, _)| lane.clone()).collect()
    }

    /// The lanes whose agents hold their key themselves, each once, by name.
    pub fn keys_inside(&self) -> Vec<String> {
        let lanes = self.nodes.iter().flat_map(PlannedNode::lanes);
        let inside = lanes.filter(|lane| {
            lane.model()
                .is_some_and(|agent| agent.inject == Inject::Env)
        });
        let names: BTreeSet<&str> = inside.map(|lane| lane.name.as_str()).collect();
        names.into_iter().map(ToOwned::to_owned).collect()
    }

    /// The node called `id`.
    pub fn node(&self, id: &NodeId) -> Option<&PlannedNode> {
        self.nodes.iter().find(|planned| &planned.node.id == id)
    }

    /// What `node` prints when its lane `lane` does it; none for a lane that asks no model.
    pub fn driver(&self, node: &NodeId, lane: Option<&str>) -> Option<Driver> {
        let mut lanes = self.node(node)?.lanes();
        let lane = lanes.find(|candidate| Some(candidate.name.as_str()) == lane)?;
        Some(lane.model()?.driver)
    }

    /// The nodes and parent edges as a graph.
    ///
    /// Fails only for a plan that was damaged on disk: a recipe with such a graph does not load.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        let nodes: Vec<Node> = self
            .nodes
            .iter()
            .map(|planned| planned.node.clone())
            .collect();
        Graph::new(&nodes, &self.edges)
    }

    /// Where a verdict of `from` may send the work back to, with the number of rounds.
    pub fn retry_targets<'a>(
        &'a self,
        from: &'a NodeId,
    ) -> impl Iterator<Item = (&'a NodeId, u32)> + 'a {
        self.edges.iter().filter_map(move |edge| match edge.kind {
            EdgeKind::Retries { max_rounds } if &edge.from == from => Some((&edge.to, max_rounds)),
            _ => None,
        })
    }

    /// The rollback nodes that a failure of `from` leads to.
    pub fn escalations<'a>(&'a self, from: &'a NodeId) -> impl Iterator<Item = &'a NodeId> + 'a {
        self.edges
            .iter()
            .filter(move |edge| edge.kind == EdgeKind::EscalatesTo && &edge.from == from)
            .map(|edge| &edge.to)
    }

    /// Whether `id` may run at the same time as another node that works on files. Such a writer
    /// gets a worktree of its own, whether or not the other happens to run: what a node finds must
    /// follow from the graph, never from who was faster.
    pub fn fans_out(&self, id: &NodeId, graph: &Graph) -> bool {
        self.nodes.iter().any(|other| {
            &other.node.id != id
                && !matches!(other.node.kind, NodeKind::Publisher | NodeKind::Rollback)
                && !graph.comparable(id, &other.node.id)
        })
    }
}
