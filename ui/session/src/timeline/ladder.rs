//! The ladder: saved sessions along a run, within a memory budget.
//!
//! Rungs are laid on a grid, and more densely before the current position. When they take more memory than allowed, the
//! rungs that are closest together for their distance from the current position are dropped first, so the spacing grows
//! with the distance. The first rung stays, so the history begins with the timeline. States that do not fit into memory
//! cost time instead.

use std::collections::BTreeMap;

use trapline_emu::{Moment, Snapshot};

use crate::session::SavedSession;

/// Instructions from one rung of the grid to the next, about 30 ms of running. A multiple of the slices of the run loop.
pub const GRID: u64 = 10_000_000;
/// How far before a goal extra rungs are laid.
const DENSE: [u64; 4] = [2_500_000, 300_000, 40_000, 5_000];
/// Bytes of a rung besides its pages: devices, TLB, page table.
const OWN: u64 = 64 << 10;
/// Instructions within which all rungs count as equally near.
const NEAR: u64 = 10_000;

/// A saved session, and its position in the log of inputs.
#[derive(Clone)]
pub struct Rung {
    pub saved: SavedSession,
    /// The first input of the log that had not arrived.
    pub next: usize,
}

/// See the module.
pub struct Ladder {
    rungs: BTreeMap<Moment, Rung>,
    budget: u64,
    /// Bytes that the first one takes.
    least: u64,
    /// An upper bound of the bytes that all take.
    bytes: u64,
    thinned: u64,
}

impl Ladder {
    /// A ladder with its first rung.
    pub fn new(at: Moment, first: Rung, budget: u64) -> Self {
        let mut ladder =
            Self { rungs: BTreeMap::from([(at, first)]), budget, least: 0, bytes: 0, thinned: 0 };
        ladder.least = ladder.measured();
        ladder.bytes = ladder.least;
        ladder
    }

    /// Bytes of all rungs; shared pages count once.
    pub fn measured(&self) -> u64 {
        let snapshots: Vec<&Snapshot> = self.rungs.values().map(|rung| rung.saved.machine()).collect();
        Snapshot::bytes_of_all(snapshots) + self.rungs.len() as u64 * OWN
    }

    /// The number of rungs.
    pub fn len(&self) -> usize {
        self.rungs.len()
    }

    /// The number of rungs that were dropped.
    pub fn thinned(&self) -> u64 {
        self.thinned
    }

    /// The most instructions from one rung to the next.
    pub fn widest(&self) -> u64 {
        let counts = || self.rungs.keys().map(|at| at.icount);
        counts().zip(counts().skip(1)).map(|(from, to)| to - from).max().unwrap_or_default()
    }

    /// The last rung at this moment or before.
    pub fn at_or_before(&self, at: Moment) -> Option<(Moment, &Rung)> {
        self.rungs.range(..=at).next_back().map(|(at, rung)| (*at, rung))
    }

    /// The last rung before this moment.
    pub fn before(&self, at: Moment) -> Option<(Moment, &Rung)> {
        self.rungs.range(..at).next_back().map(|(at, rung)| (*at, rung))
    }

    /// The first rung.
    pub fn first(&self) -> Option<(Moment, &Rung)> {
        self.rungs.first_key_value().map(|(at, rung)| (*at, rung))
    }

    /// The last of the rungs from a moment on by which there were as many hits, and no more.
    pub fn last_with_hits(&self, from: Moment, hits: u64) -> Option<&Rung> {
        self.rungs.range(from..).map(|(_, rung)| rung).take_while(|rung| rung.saved.hits() == hits).last()
    }

    /// The instruction count at which the next rung is laid on the way from `now` to `to`.
    pub fn next_due(&self, now: u64, to: u64) -> Option<u64> {
        let grid = (now / GRID + 1).saturating_mul(GRID);
        let dense = DENSE.iter().zip(DENSE.iter().skip(1).chain(&[0])).filter_map(|(far, near)| {
            let (at, until) = (to.checked_sub(*far)?, to - near);
            let there = self.has_between(at, until);
            (at > now && !there).then_some(at)
        });
        dense.chain([grid]).filter(|at| *at > now && *at <= to && !self.has_between(*at, at + 1)).min()
    }

    /// Whether there is a rung between the first count, included, and the second, excluded.
    fn has_between(&self, from: u64, to: u64) -> bool {
        let first = Moment { icount: from, ..Moment::default() };
        let end = Moment { icount: to, ..Moment::default() };
        self.rungs.range(first..end).next().is_some()
    }

    /// Adds a rung at the current position.
    pub fn lay(&mut self, at: Moment, rung: Rung) {
        self.bytes += rung.saved.machine().new_bytes() + OWN;
        self.rungs.insert(at, rung);
        if self.bytes > self.budget {
            self.bytes = self.measured();
            self.thin(at.icount);
        }
    }

    /// Drops all rungs after a moment.
    pub fn cut(&mut self, at: Moment) {
        self.rungs.retain(|rung, _| *rung <= at);
        self.bytes = self.measured();
    }

    /// Drops rungs until the rest is within the budget, with some reserve.
    fn thin(&mut self, near: u64) {
        let room = self.budget - self.budget.saturating_sub(self.least) / 8;
        while self.bytes > room && self.rungs.len() > 1 {
            let mut scored = self.scored(near);
            scored.sort_unstable();
            for (_, at) in scored.iter().take(1 + scored.len() / 8) {
                self.rungs.remove(at);
                self.thinned += 1;
            }
            self.bytes = self.measured();
        }
    }

    /// All rungs but the first, each with the gap that it would leave for its distance.
    fn scored(&self, near: u64) -> Vec<(u64, Moment)> {
        let all: Vec<Moment> = self.rungs.keys().copied().collect();
        let score = |three: &[Moment]| match three {
            [before, at, after] => {
                let gap = u128::from(after.icount - before.icount);
                let distance = u128::from(at.icount.abs_diff(near) + NEAR);
                let score = u64::try_from((gap << 20) / distance).unwrap_or(u64::MAX);
                Some((score, *at))
            }
            _ => None,
        };
        let mut scored: Vec<_> = all.windows(3).filter_map(score).collect();
        // The last has no gap after it: it is dropped when nothing else is left.
        if scored.is_empty() {
            scored.extend(all.last().filter(|_| all.len() > 1).map(|at| (0, *at)));
        }
        scored
    }
}
