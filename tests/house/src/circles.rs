//! Circles of references among sibling modules.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Display, Formatter};
use std::path::Path;

use crate::tree::{Crate, Reference};

/// The number of printed references per tie.
const SHOWN: usize = 3;

/// Modules of one parent that import each other in a circle.
#[derive(Debug)]
pub struct Circle {
    /// The parent of the modules.
    pub parent: String,
    /// Every module that can be reached from each of the others: the whole knot.
    pub knot: Vec<String>,
    /// The shortest circle through the knot, tie by tie: from, to, and the references that tie them.
    pub ties: Vec<(String, String, Vec<Reference>)>,
}

impl Display for Circle {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&str> = self.ties.iter().map(|(from, ..)| from.as_str()).collect();
        names.extend(names.first().copied());
        write!(f, "in {}: {}", self.parent, names.join(" -> "))?;
        if self.knot.len() > self.ties.len() {
            write!(f, " (one circle of a knot of {}: {})", self.knot.len(), self.knot.join(", "))?;
        }
        for (from, to, references) in &self.ties {
            write!(f, "\n  {from} names {to} ({} references)", references.len())?;
            for one in references.iter().take(SHOWN) {
                write!(f, "\n    {}:{}: {}", short(&one.file).display(), one.line, one.path)?;
            }
        }
        Ok(())
    }
}

fn short(file: &Path) -> &Path {
    let root = crate::root();
    file.strip_prefix(&root).unwrap_or(file)
}

type Ties = BTreeMap<usize, BTreeMap<usize, Vec<Reference>>>;

/// The circles of a crate, those of the root's children first.
pub fn circles(made: &Crate) -> Vec<Circle> {
    let references = made.references();
    let mut found = Vec::new();
    for (parent, module) in made.modules.iter().enumerate() {
        let siblings: BTreeSet<usize> = module.children.values().copied().collect();
        let above = |mut at: usize| loop {
            if siblings.contains(&at) {
                return Some(at);
            }
            at = made.modules[at].parent?;
        };
        let mut ties = Ties::new();
        for one in &references {
            if let (Some(from), Some(to)) = (above(one.from), above(one.to))
                && from != to
            {
                ties.entry(from).or_default().entry(to).or_default().push(one.clone());
            }
        }
        for knot in knots(&siblings, &ties) {
            found.push(circle(made, parent, &knot, &ties));
        }
    }
    found
}

/// All modules that can be reached from `from`.
fn reached(from: usize, ties: &Ties) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for &next in ties.get(&at).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    seen
}

/// The sets of modules in which every module reaches every other.
fn knots(siblings: &BTreeSet<usize>, ties: &Ties) -> Vec<BTreeSet<usize>> {
    let reach: BTreeMap<usize, BTreeSet<usize>> =
        siblings.iter().map(|&at| (at, reached(at, ties))).collect();
    let mut left: BTreeSet<usize> = siblings.iter().copied().filter(|at| reach[at].contains(at)).collect();
    let mut found = Vec::new();
    while let Some(&at) = left.first() {
        let knot: BTreeSet<usize> = left
            .iter()
            .copied()
            .filter(|other| reach[&at].contains(other) && reach[other].contains(&at))
            .collect();
        left = &left - &knot;
        found.push(knot);
    }
    found
}

/// The shortest circle of a knot.
fn circle(made: &Crate, parent: usize, knot: &BTreeSet<usize>, ties: &Ties) -> Circle {
    let shortest = knot.iter().filter_map(|&start| round_trip(start, knot, ties)).min_by_key(Vec::len);
    let path = shortest.unwrap_or_default();
    let name = |at: usize| made.modules[at].name.clone();
    let next = path.iter().cycle().skip(1);
    let tied = path.iter().zip(next).map(|(from, to)| (name(*from), name(*to), ties[from][to].clone()));
    Circle { parent: name(parent), knot: knot.iter().map(|&at| name(at)).collect(), ties: tied.collect() }
}

/// The shortest way from `start` back to it.
fn round_trip(start: usize, knot: &BTreeSet<usize>, ties: &Ties) -> Option<Vec<usize>> {
    let mut before: BTreeMap<usize, usize> = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(at) = open.pop_front() {
        for &next in ties.get(&at)?.keys().filter(|next| knot.contains(next)) {
            if next == start {
                let mut path = vec![at];
                while let Some(&earlier) =
                    path.last().filter(|&&last| last != start).and_then(|at| before.get(at))
                {
                    path.push(earlier);
                }
                path.reverse();
                return Some(path);
            }
            if let Entry::Vacant(unseen) = before.entry(next) {
                unseen.insert(at);
                open.push_back(next);
            }
        }
    }
    None
}
