use std::collections::{BTreeSet, HashMap};

use mini_ork_protocol::NodeId;

use super::model::{Edge, Node};

/// Why nodes and edges are not a graph that can be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Some nodes wait for each other.
    #[error("the nodes {} wait for each other", chain(.0))]
    Cycle(
        /// The loop, with its first node again at the end.
        Vec<NodeId>,
    ),
    /// An edge names a node that is not there.
    #[error("an edge names the node `{0}`, which does not exist")]
    UnknownNode(NodeId),
}

/// Who waits for whom, by the edges that make parents.
#[derive(Debug, Clone)]
pub struct Graph {
    ids: Vec<NodeId>,
    index: HashMap<NodeId, usize>,
    parents: Vec<BTreeSet<usize>>,
    children: Vec<BTreeSet<usize>>,
    ancestors: Vec<BTreeSet<usize>>,
    order: Vec<usize>,
}

impl Graph {
    /// Fails on a loop and on an edge to an unknown node. `retries` and `escalates_to` make no
    /// parents. Of nodes with the same id only the last is seen.
    pub fn new(nodes: &[Node], edges: &[Edge]) -> Result<Self, GraphError> {
        let ids: Vec<NodeId> = nodes.iter().map(|node| node.id.clone()).collect();
        let index: HashMap<NodeId, usize> = ids
            .iter()
            .enumerate()
            .map(|(position, id)| (id.clone(), position))
            .collect();
        let find = |id: &NodeId| {
            index
                .get(id)
                .copied()
                .ok_or_else(|| GraphError::UnknownNode(id.clone()))
        };
        let mut parents = vec![BTreeSet::new(); ids.len()];
        let mut children = vec![BTreeSet::new(); ids.len()];
        for edge in edges {
            let (from, to) = (find(&edge.from)?, find(&edge.to)?);
            if edge.kind.orders() {
                parents[to].insert(from);
                children[from].insert(to);
            }
        }
        let order = sort(&parents, &children)
            .map_err(|rest| GraphError::Cycle(name_cycle(&rest, &parents, &ids)))?;
        let mut ancestors: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); ids.len()];
        for &node in &order {
            let mut above = parents[node].clone();
            for &parent in &parents[node] {
                above.extend(&ancestors[parent]);
            }
            ancestors[node] = above;
        }
        Ok(Self {
            ids,
            index,
            parents,
            children,
            ancestors,
            order,
        })
    }

    /// Every node after all its parents; nodes that do not depend on each other stay in the order
    /// of the file. This is the order in which parallel work is merged.
    pub fn order(&self) -> impl Iterator<Item = &NodeId> {
        self.order.iter().map(|&position| &self.ids[position])
    }

    /// The nodes that must have succeeded before `id` starts, in the order of the file.
    pub fn parents(&self, id: &NodeId) -> Vec<&NodeId> {
        self.look_up(&self.parents, id)
    }

    /// The nodes that wait for `id`, in the order of the file.
    pub fn children(&self, id: &NodeId) -> Vec<&NodeId> {
        self.look_up(&self.children, id)
    }

    /// Parents, their parents and so on, in the order of the file.
    pub fn ancestors(&self, id: &NodeId) -> Vec<&NodeId> {
        self.look_up(&self.ancestors, id)
    }

    /// Children, their children and so on, in the order of the file.
    pub fn descendants(&self, id: &NodeId) -> Vec<&NodeId> {
        let is_below = |other: &&NodeId| self.is_ancestor(id, other);
        self.ids.iter().filter(is_below).collect()
    }

    /// Whether `above` has run before `below` starts.
    pub fn is_ancestor(&self, above: &NodeId, below: &NodeId) -> bool {
        match (self.index.get(above), self.index.get(below)) {
            (Some(above), Some(below)) => self.ancestors[*below].contains(above),
            _ => false,
        }
    }

    /// Whether one of two different nodes always runs before the other; nodes that are not
    /// comparable may run at the same time.
    pub fn comparable(&self, one: &NodeId, other: &NodeId) -> bool {
        self.is_ancestor(one, other) || self.is_ancestor(other, one)
    }

    fn look_up(&self, sets: &[BTreeSet<usize>], id: &NodeId) -> Vec<&NodeId> {
        let Some(&position) = self.index.get(id) else {
            return Vec::new();
        };
        sets[position]
            .iter()
            .map(|&member| &self.ids[member])
            .collect()
    }
}

/// A stable topological order, or the nodes that are left when nothing can go next.
fn sort(
    parents: &[BTreeSet<usize>],
    children: &[BTreeSet<usize>],
) -> Result<Vec<usize>, BTreeSet<usize>> {
    let mut waiting: Vec<usize> = parents.iter().map(BTreeSet::len).collect();
    let mut ready: BTreeSet<usize> = (0..parents.len())
        .filter(|&node| waiting[node] == 0)
        .collect();
    let mut order = Vec::with_capacity(parents.len());
    while let Some(node) = ready.pop_first() {
        order.push(node);
        for &child in &children[node] {
            waiting[child] -= 1;
            if waiting[child] == 0 {
                ready.insert(child);
            }
        }
    }
    if order.len() == parents.len() {
        Ok(order)
    } else {
        Err((0..parents.len())
            .filter(|&node| waiting[node] > 0)
            .collect())
    }
}

/// One loop among `rest`: each of them has a parent in `rest`, so walking up must come round.
fn name_cycle(rest: &BTreeSet<usize>, parents: &[BTreeSet<usize>], ids: &[NodeId]) -> Vec<NodeId> {
    let mut path: Vec<usize> = Vec::new();
    let mut next = rest.first().copied();
    while let Some(node) = next {
        if let Some(start) = path.iter().position(|&seen| seen == node) {
            let mut cycle: Vec<usize> = path.split_off(start);
            cycle.reverse();
            // Begin with the node that stands first in the file, so that the message is stable.
            let first = cycle.iter().enumerate().min_by_key(|(_, node)| **node);
            let first = first.map_or(0, |(position, _)| position);
            cycle.rotate_left(first);
            cycle.extend(cycle.first().copied());
            return cycle.into_iter().map(|node| ids[node].clone()).collect();
        }
        path.push(node);
        next = parents[node].intersection(rest).next().copied();
    }
    Vec::new()
}

fn chain(ids: &[NodeId]) -> String {
    ids.iter()
        .map(NodeId::as_str)
        .collect::<Vec<_>>()
        .join(" → ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::recipe::model::{EdgeKind, NodeKind};

    fn id(name: &str) -> NodeId {
        NodeId::parse(name).unwrap()
    }

    fn node(name: &str) -> Node {
        Node {
            id: id(name),
            kind: NodeKind::Researcher,
            lane: None,
            prompt: None,
            verifier: None,
            gates: Vec::new(),
            timeout: None,
            max_cost_usd: None,
            retries: 1,
            outputs: Vec::new(),
            serial: false,
            accepts_conflicts: false,
            line: 1,
        }
    }

    fn edge(from: &str, to: &str, kind: EdgeKind) -> Edge {
        Edge {
            from: id(from),
            to: id(to),
            kind,
            line: 1,
        }
    }

    fn graph(names: &[&str], edges: &[(&str, &str)]) -> Result<Graph, GraphError> {
        let nodes: Vec<Node> = names.iter().map(|name| node(name)).collect();
        let edges: Vec<Edge> = edges
            .iter()
            .map(|(from, to)| edge(from, to, EdgeKind::DependsOn))
            .collect();
        Graph::new(&nodes, &edges)
    }

    fn names<'a>(ids: impl IntoIterator<Item = &'a NodeId>) -> Vec<&'a str> {
        ids.into_iter().map(NodeId::as_str).collect()
    }

    #[test]
    fn order_is_that_of_the_file_where_the_graph_leaves_it_open() {
        let graph = graph(
            &["z", "y", "join", "x"],
            &[("z", "join"), ("x", "join"), ("z", "y")],
        )
        .unwrap();
        assert_eq!(names(graph.order()), ["z", "y", "x", "join"]);
        assert_eq!(names(graph.parents(&id("join"))), ["z", "x"]);
        assert_eq!(names(graph.children(&id("z"))), ["y", "join"]);
        assert_eq!(names(graph.descendants(&id("z"))), ["y", "join"]);
        assert_eq!(names(graph.ancestors(&id("join"))), ["z", "x"]);
        assert!(graph.comparable(&id("join"), &id("z")));
        assert!(!graph.comparable(&id("x"), &id("z")));
        assert!(!graph.comparable(&id("x"), &id("x")));
        assert!(graph.parents(&id("nobody")).is_empty());
    }

    #[test]
    fn a_loop_is_named_from_its_first_node() {
        let error = graph(
            &["a", "b", "c", "d"],
            &[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")],
        );
        assert_eq!(
            error.unwrap_err().to_string(),
            "the nodes b → c → b wait for each other"
        );
        let error = graph(&["a"], &[("a", "a")]);
        assert_eq!(
            error.unwrap_err().to_string(),
            "the nodes a → a wait for each other"
        );
    }

    #[test]
    fn retries_and_escalations_make_no_parents() {
        let nodes = [node("a"), node("b")];
        let edges = [
            edge("a", "b", EdgeKind::Verifies),
            edge("b", "a", EdgeKind::Retries { max_rounds: 1 }),
            edge("b", "a", EdgeKind::EscalatesTo),
        ];
        let graph = Graph::new(&nodes, &edges).unwrap();
        assert_eq!(names(graph.order()), ["a", "b"]);
        let unknown = Graph::new(&nodes, &[edge("a", "x", EdgeKind::EscalatesTo)]).unwrap_err();
        assert_eq!(unknown, GraphError::UnknownNode(id("x")));
    }

    proptest! {
        #[test]
        fn every_graph_is_ordered_or_has_a_true_loop(
            pairs in prop::collection::vec((0..12usize, 0..12usize), 0..30)
        ) {
            let all: Vec<String> = (0..12).map(|number| format!("n{number}")).collect();
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let edges: Vec<(&str, &str)> =
                pairs.iter().map(|&(from, to)| (all[from], all[to])).collect();
            match graph(&all, &edges) {
                Ok(graph) => {
                    let order = names(graph.order());
                    prop_assert_eq!(order.len(), all.len());
                    let place = |name: &str| order.iter().position(|other| *other == name);
                    for (from, to) in edges {
                        prop_assert!(place(from) < place(to));
                        prop_assert!(graph.is_ancestor(&id(from), &id(to)));
                    }
                }
                Err(GraphError::Cycle(cycle)) => {
                    prop_assert!(cycle.len() >= 2);
                    prop_assert_eq!(cycle.first(), cycle.last());
                    for step in cycle.windows(2) {
                        prop_assert!(edges.contains(&(step[0].as_str(), step[1].as_str())));
                    }
                }
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
    }
}
