//! The maple tree of a process's mappings (include/linux/maple_tree.h and lib/maple_tree.c of Linux 6.1).
//!
//! A node is 256 bytes at a multiple of 256; the low bits of a pointer to it give its type. The tree is the guest's
//! data: the walk has a depth and a budget, follows only rising ranges, and skips unreadable nodes.

use super::memory::Memory;

/// Deepest tree (MAPLE_HEIGHT_MAX is 31).
const DEPTH: u32 = 31;
/// Nodes that one walk visits.
const BUDGET: usize = 1 << 14;
/// Bytes of a node.
const NODE: u64 = 256;

/// The type in the low bits of a pointer (`enum maple_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeType {
    /// One slot per index.
    Dense,
    /// Ranges that end at pivots, entries.
    Leaf,
    /// Ranges, nodes.
    Range,
    /// Ranges, nodes, and the largest gap in each.
    Allocation,
}

/// A pointer to a node, taken apart.
#[derive(Clone, Copy)]
struct Node {
    at: u64,
    kind: NodeType,
}

impl Node {
    /// `None` for an entry, which has none of a node's bits (`xa_is_node`, `mte_node_type`).
    fn decode(pointer: u64) -> Option<Self> {
        if pointer & 3 != 2 && pointer & 4 == 0 || pointer < 4096 {
            return None;
        }
        let kind = match pointer >> 3 & 0xf {
            0 => NodeType::Dense,
            1 => NodeType::Leaf,
            2 => NodeType::Range,
            3 => NodeType::Allocation,
            _ => return None,
        };
        Some(Self { at: pointer & !(NODE - 1), kind })
    }

    /// Slots of it, in a tree with words of `w` bytes.
    fn slots(self, w: u64) -> u64 {
        match (self.kind, w) {
            (NodeType::Dense, 8) => 31,
            (NodeType::Dense, _) => 63,
            (NodeType::Leaf | NodeType::Range, 8) => 16,
            (NodeType::Leaf | NodeType::Range, _) => 32,
            (NodeType::Allocation, 8) => 10,
            (NodeType::Allocation, _) => 21,
        }
    }
}

/// An entry with the range of indexes it stands for, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub first: u64,
    pub last: u64,
    pub value: u64,
}

/// The entries of the tree with the root `root` (`ma_root`), by index; at most `most`.
pub(super) fn entries(memory: &Memory<'_>, root: u64, most: usize) -> Vec<Entry> {
    let mut walk = Walk { memory, found: Vec::new(), budget: BUDGET, most };
    // Nothing is mapped at the single index that a root without nodes stands for.
    if let Some(node) = Node::decode(root) {
        let last = if memory.word_size() == 8 { u64::MAX } else { u32::MAX.into() };
        walk.node(node, 0, last, DEPTH);
    }
    walk.found
}

struct Walk<'a> {
    memory: &'a Memory<'a>,
    found: Vec<Entry>,
    budget: usize,
    most: usize,
}

impl Walk<'_> {
    fn node(&mut self, node: Node, first: u64, last: u64, depth: u32) {
        let (Some(left), Some(budget)) = (depth.checked_sub(1), self.budget.checked_sub(1)) else { return };
        self.budget = budget;
        let Some(bytes) = self.memory.bytes(node.at, NODE as usize) else { return };
        let w = self.memory.word_size();
        let word = |index: u64| {
            let at = (index * w) as usize;
            let mut word = [0; 8];
            if let (Some(to), Some(from)) = (word.get_mut(..w as usize), bytes.get(at..at + w as usize)) {
                to.copy_from_slice(from);
            }
            u64::from_le_bytes(word)
        };
        let slots = node.slots(w);
        // The parent is the first word; a dense node has no pivots.
        let pivots = if node.kind == NodeType::Dense { 0 } else { slots - 1 };
        let mut start = first;
        for index in 0..slots {
            let end = match (node.kind, index < pivots) {
                (NodeType::Dense, _) => start,
                // A pivot of 0 after the first ends the node.
                (_, true) => {
                    Some(word(1 + index)).filter(|p| *p != 0 || index == 0).unwrap_or(last).min(last)
                }
                (_, false) => last,
            };
            if end < start || self.found.len() >= self.most {
                return;
            }
            self.slot(node.kind, word(1 + pivots + index), start, end, left);
            match end.checked_add(1) {
                Some(next) if end < last => start = next,
                _ => return,
            }
        }
    }

    fn slot(&mut self, kind: NodeType, value: u64, first: u64, last: u64, depth: u32) {
        match kind {
            NodeType::Range | NodeType::Allocation => {
                if let Some(node) = Node::decode(value) {
                    self.node(node, first, last, depth);
                }
            }
            // Entries are aligned pointers; other values are the tree's own marks.
            NodeType::Leaf | NodeType::Dense if value != 0 && value & 3 == 0 => {
                self.found.push(Entry { first, last, value });
            }
            NodeType::Leaf | NodeType::Dense => {}
        }
    }
}
