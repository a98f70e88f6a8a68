//! Stacks with weights, merged into one tree.
//!
//! A node is a frame under its caller. The tree holds two weights of each stack: that of the trace, and that of a trace
//! to compare it with. Nothing here recurses: the depth is what a file says, up to a limit.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Deepest frame. The rest of a deeper stack is left out, from its innermost frames.
const MOST_FRAMES: u32 = 1024;

/// The node that all stacks begin at.
pub(crate) const ROOT: usize = 0;

#[derive(Debug, Clone)]
struct Node {
    frame: u32,
    parent: usize,
    depth: u32,
    /// The weights of the stack that ends here: before, and now.
    own: [u64; 2],
    children: BTreeMap<u32, usize>,
}

/// Stacks with weights.
#[derive(Debug, Clone)]
pub struct Tree {
    names: Vec<Arc<str>>,
    numbers: BTreeMap<Arc<str>, u32>,
    nodes: Vec<Node>,
    /// Stacks that were cut.
    pub(crate) cut: u64,
}

/// A frame with the weights of all stacks that it is in.
#[derive(Debug, Clone)]
pub(crate) struct Frame<'a> {
    pub name: &'a str,
    pub depth: u32,
    /// Weight of all frames to its left, now.
    pub left: u64,
    /// Before, and now.
    pub total: [u64; 2],
}

impl Default for Tree {
    fn default() -> Self {
        let root = Node { frame: 0, parent: ROOT, depth: 0, own: [0; 2], children: BTreeMap::new() };
        Self { names: vec![Arc::from("all")], numbers: BTreeMap::new(), nodes: vec![root], cut: 0 }
    }
}

/// A name without what separates frames and lines.
fn clean(name: &str) -> String {
    let shown = name.chars().map(|c| match c {
        ';' => ':',
        c if c.is_control() => '?',
        c => c,
    });
    let text: String = shown.collect();
    if text.is_empty() { "?".to_owned() } else { text }
}

impl Tree {
    /// The frame of this name under a node.
    pub(crate) fn child(&mut self, parent: usize, name: &str) -> usize {
        let Some(depth) = self.nodes.get(parent).map(|node| node.depth).filter(|depth| *depth < MOST_FRAMES)
        else {
            self.cut += 1;
            return parent;
        };
        let name = clean(name);
        let frame = match self.numbers.get(name.as_str()) {
            Some(frame) => *frame,
            None => {
                let (frame, name) = (self.names.len() as u32, Arc::<str>::from(name));
                self.names.push(Arc::clone(&name));
                self.numbers.insert(name, frame);
                frame
            }
        };
        let fresh = self.nodes.len();
        let Some(node) = self.nodes.get_mut(parent) else { return parent };
        let at = *node.children.entry(frame).or_insert(fresh);
        if at == fresh {
            self.nodes.push(Node { frame, parent, depth: depth + 1, own: [0; 2], children: BTreeMap::new() });
        }
        at
    }

    /// Adds to the weight of the stack that ends at a node.
    pub(crate) fn add(&mut self, at: usize, weight: u64) {
        if let Some(node) = self.nodes.get_mut(at) {
            node.own[1] = node.own[1].saturating_add(weight);
        }
    }

    /// Adds a stack, outermost frame first.
    pub(crate) fn add_stack<'a>(&mut self, frames: impl Iterator<Item = &'a str>, weight: u64) {
        let mut at = ROOT;
        for (n, frame) in frames.enumerate() {
            if n >= MOST_FRAMES as usize {
                self.cut += 1;
                break;
            }
            at = self.child(at, frame);
        }
        self.add(at, weight);
    }

    /// Whether no stack has a weight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.iter().all(|node| node.own == [0; 2])
    }

    /// Adds the stacks of another tree as the ones before.
    pub fn compare_with(&mut self, before: &Self) {
        let mut own = vec![ROOT; before.nodes.len()];
        // A node follows its parent.
        for (n, node) in before.nodes.iter().enumerate() {
            let parent = own.get(node.parent).copied().unwrap_or(ROOT);
            let at = if n == ROOT { ROOT } else { self.child(parent, before.name(node)) };
            if let (Some(place), Some(mine)) = (own.get_mut(n), self.nodes.get_mut(at)) {
                *place = at;
                mine.own[0] = mine.own[0].saturating_add(node.own[1]);
            }
        }
    }

    fn name(&self, node: &Node) -> &str {
        self.names.get(node.frame as usize).map_or("?", |name| name)
    }

    /// The stacks with a weight: the names of their frames, innermost first, and their weights before and now.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = (impl Iterator<Item = &str>, [u64; 2])> {
        let ends = self.nodes.iter().enumerate().filter(|(_, node)| node.own != [0; 2]);
        ends.map(|(at, node)| {
            let caller = |at: &usize| self.nodes.get(*at).filter(|_| *at != ROOT).map(|node| node.parent);
            let nodes = std::iter::successors(Some(at), caller).filter(move |n| *n != ROOT || at == ROOT);
            (nodes.filter_map(|n| Some(self.name(self.nodes.get(n)?))), node.own)
        })
    }

    /// The children of a node by name.
    fn children(&self, node: &Node) -> Vec<usize> {
        let mut all: Vec<(&str, usize)> =
            node.children.values().filter_map(|at| Some((self.name(self.nodes.get(*at)?), *at))).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, at)| at).collect()
    }

    /// The weights of each node with all that it calls.
    fn totals(&self) -> Vec<[u64; 2]> {
        let mut totals: Vec<[u64; 2]> = self.nodes.iter().map(|node| node.own).collect();
        for (n, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let own = totals.get(n).copied().unwrap_or_default();
            if let Some(parent) = totals.get_mut(node.parent) {
                *parent = [parent[0].saturating_add(own[0]), parent[1].saturating_add(own[1])];
            }
        }
        totals
    }

    /// All frames: callers before the frames that they call, and these by name. `wide` says of a weight whether frames that
    /// are narrower still are wanted.
    pub(crate) fn frames(&self, wide: impl Fn(u64) -> bool) -> Vec<Frame<'_>> {
        let totals = self.totals();
        let (mut found, mut open) = (Vec::new(), vec![(ROOT, 0u64)]);
        while let Some((at, left)) = open.pop() {
            let (Some(node), Some(total)) = (self.nodes.get(at), totals.get(at)) else { continue };
            found.push(Frame { name: self.name(node), depth: node.depth, left, total: *total });
            let mut next = left;
            let mut inner = Vec::new();
            for child in self.children(node) {
                let width = totals.get(child).map_or(0, |total| total[1]);
                if wide(width) {
                    inner.push((child, next));
                }
                next = next.saturating_add(width);
            }
            open.extend(inner.into_iter().rev());
        }
        found
    }

    /// Folded stacks: a line per stack with a weight, its frames separated by semicolons, then the weight; before it that
    /// of the trace before, if `both`.
    pub(crate) fn folded(
        &self,
        both: bool,
        mut line: impl FnMut(&str) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let (mut open, mut path) = (vec![ROOT], String::new());
        let mut ends: Vec<usize> = Vec::new();
        while let Some(at) = open.pop() {
            let Some(node) = self.nodes.get(at) else { continue };
            ends.truncate((node.depth as usize).saturating_sub(1));
            path.truncate(ends.last().copied().unwrap_or(0));
            if node.depth > 0 {
                if !path.is_empty() {
                    path.push(';');
                }
                path.push_str(self.name(node));
                ends.push(path.len());
            }
            let shown = if path.is_empty() { self.name(node) } else { &path };
            match (both, node.own) {
                (_, [0, 0]) | (false, [_, 0]) => {}
                (true, [before, now]) => line(&format!("{shown} {before} {now}"))?,
                (false, [_, now]) => line(&format!("{shown} {now}"))?,
            }
            open.extend(self.children(node).into_iter().rev());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(tree: &Tree, both: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let mut line = |text: &str| {
            lines.push(text.to_owned());
            Ok(())
        };
        tree.folded(both, &mut line).unwrap();
        lines
    }

    fn tree(stacks: &[(&[&str], u64)]) -> Tree {
        let mut tree = Tree::default();
        for (stack, weight) in stacks {
            tree.add_stack(stack.iter().copied(), *weight);
        }
        tree
    }

    #[test]
    fn equal_stacks_are_one_line() {
        let tree =
            tree(&[(&["a", "b"], 2), (&["a"], 1), (&["c;d\n"], 5), (&["a", "b"], 3), (&["a", "a"], 1)]);
        assert_eq!(folded(&tree, false), ["a 1", "a;a 1", "a;b 5", "c:d? 5"]);
        let frames = tree.frames(|_| true);
        let found: Vec<_> = frames.iter().map(|f| (f.name, f.depth, f.left, f.total[1])).collect();
        let right = [("all", 0, 0, 12), ("a", 1, 0, 7), ("a", 2, 0, 1), ("b", 2, 1, 5), ("c:d?", 1, 7, 5)];
        assert_eq!(found, right);
    }

    #[test]
    fn two_traces_are_compared_stack_by_stack() {
        let mut now = tree(&[(&["a", "b"], 2), (&["a"], 1)]);
        now.compare_with(&tree(&[(&["a", "b"], 7), (&["z"], 4)]));
        assert_eq!(folded(&now, true), ["a 0 1", "a;b 7 2", "z 4 0"]);
    }

    #[test]
    fn a_stack_of_any_depth_is_cut() {
        let mut tree = Tree::default();
        tree.add_stack(std::iter::repeat_n("f", 100_000), 1);
        assert_eq!((tree.cut, tree.nodes.len()), (1, 1 + MOST_FRAMES as usize));
        assert_eq!(folded(&tree, false).len(), 1);
    }
}
