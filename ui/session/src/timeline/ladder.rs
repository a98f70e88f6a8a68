//! The ladder: saved sessions along a run, within a memory budget.
//!
//! Rungs are laid so that it costs about the same to run from any of them to the next one, and more densely before the
//! current position. The cost of running is counted in instructions, with more for those that take longer: see
//! [`Core::effort`](trapline_emu::Core::effort). It does not depend on the host's clock, so neither does the ladder.
//!
//! When the rungs take more memory than allowed, those are dropped that leave the cheapest gaps, and of about equal ones
//! those that take the most memory. Near the current position smaller gaps are kept. So the most expensive gap stays about as
//! small as the memory allows. The first rung stays, so the history begins with the timeline.

use std::collections::BTreeMap;

use trapline_emu::{Moment, Snapshot};

use crate::session::SavedSession;

/// The cost of running from one rung to the next, about 30 ms.
pub const SPACING: u64 = 10_000_000;
/// Instructions after which it is checked whether a rung is due.
const CHECK: u64 = 1_000_000;
/// How many instructions before a goal extra rungs are laid.
const DENSE: [u64; 4] = [2_500_000, 300_000, 40_000, 5_000];
/// Bytes of a rung besides its pages: devices, TLB, page table.
const OWN: u64 = 64 << 10;
/// The cost within which all rungs count as equally near.
const NEAR: u64 = 10_000;

/// A saved session, and its position in the log of inputs.
#[derive(Clone)]
pub struct Rung {
    pub saved: SavedSession,
    /// The first input of the log that had not arrived; without it, the first one with its instruction count.
    pub next: Option<usize>,
    /// The cost of running there from the first rung.
    pub cost: u64,
}

/// Where a rung may be laid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The instruction count.
    pub at: u64,
    /// Whether it is laid there in any case, and not only if it is expensive to run there.
    dense: bool,
}

impl Due {
    /// A rung that is laid at this count in any case.
    pub fn at(at: u64) -> Self {
        Self { at, dense: true }
    }

    /// A rung that is laid at this count if it is expensive to run there.
    pub fn checked(at: u64) -> Self {
        Self { at, dense: false }
    }
}

/// See the module.
#[derive(Clone)]
pub struct Ladder {
    rungs: BTreeMap<Moment, Rung>,
    budget: u64,
    /// Bytes that the first one takes.
    least: u64,
    /// An upper bound of the bytes that all take.
    bytes: u64,
    thinned: u64,
}

/// A rung that may be dropped. The first in their order is dropped first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// The cost of the gap that it would leave, as a step of a coarse scale.
    step: u32,
    /// Bytes that no other rung has, negated.
    bytes: i64,
    at: Moment,
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

    /// The instruction counts of the rungs, ascending.
    pub fn counts(&self) -> Vec<u64> {
        self.rungs.keys().map(|at| at.icount).collect()
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

    /// Where the next rung may be laid on the way from `now` to `to`.
    pub fn next_due(&self, now: u64, to: u64) -> Option<Due> {
        let check = (now / CHECK + 1).saturating_mul(CHECK);
        let dense = DENSE.iter().zip(DENSE.iter().skip(1).chain(&[0])).filter_map(|(far, near)| {
            let (at, until) = (to.checked_sub(*far)?, to - near);
            (at > now && !self.has_between(at, until)).then_some(Due::at(at))
        });
        let checked = dense.chain([Due::checked(check)]);
        let free = |due: &Due| due.at <= to && !self.has_between(due.at, due.at + 1);
        checked.filter(free).min_by_key(|due| (due.at, !due.dense))
    }

    /// Whether a rung that is due is to be laid at this moment, at which running there has cost so much.
    pub fn wants(&self, due: Due, at: Moment, cost: u64) -> bool {
        let before = self.at_or_before(at).map_or(0, |(_, rung)| rung.cost);
        let after = self.rungs.range(at..).next().map(|(_, rung)| rung.cost);
        due.dense || cost >= before + SPACING && after.is_none_or(|after| after >= cost + SPACING / 2)
    }

    /// Whether there is a rung between the first count, included, and the second, excluded.
    fn has_between(&self, from: u64, to: u64) -> bool {
        let first = Moment { icount: from, ..Moment::default() };
        let end = Moment { icount: to, ..Moment::default() };
        self.rungs.range(first..end).next().is_some()
    }

    /// Adds a rung at the current position.
    pub fn lay(&mut self, at: Moment, rung: Rung) {
        // Running the same way again may cost a little more or less.
        let least = self.at_or_before(at).map_or(0, |(_, before)| before.cost);
        let most = self.rungs.range(at..).next().map_or(u64::MAX, |(_, after)| after.cost);
        let cost = rung.cost.clamp(least, most);
        self.bytes += rung.saved.machine().new_bytes() + OWN;
        self.rungs.insert(at, Rung { cost, ..rung });
        if self.bytes > self.budget {
            self.bytes = self.measured();
            self.thin(cost);
        }
    }

    /// Drops all rungs after a moment.
    pub fn cut(&mut self, at: Moment) {
        self.rungs.retain(|rung, _| *rung <= at);
        self.bytes = self.measured();
    }

    /// Drops rungs until the rest is within the budget, with some reserve. `near` is the cost at the current position.
    fn thin(&mut self, near: u64) {
        let room = self.budget - self.budget.saturating_sub(self.least) / 8;
        while self.bytes > room && self.rungs.len() > 1 {
            let candidates = self.candidates(near);
            let mut gone = Vec::new();
            for candidate in candidates.iter().take(1 + candidates.len() / 4) {
                // Next to one that was dropped, the gap and the bytes are others by now.
                let lower = self.before(candidate.at).map(|(at, _)| at);
                let is_next = |other: &Moment| {
                    lower < Some(*other) && *other < candidate.at
                        || self
                            .rungs
                            .range(candidate.at..)
                            .nth(1)
                            .is_some_and(|(next, _)| *other > candidate.at && other < next)
                };
                if self.bytes <= room || gone.iter().any(is_next) {
                    continue;
                }
                self.rungs.remove(&candidate.at);
                gone.push(candidate.at);
                self.bytes = self.bytes.saturating_sub(candidate.bytes.unsigned_abs() + OWN);
            }
            self.thinned += gone.len() as u64;
            self.bytes = self.measured();
        }
    }

    /// All rungs but the first and the last, in the order in which they are to be dropped.
    fn candidates(&self, near: u64) -> Vec<Candidate> {
        let all: Vec<(&Moment, &Rung)> = self.rungs.iter().collect();
        let candidate = |three: &[(&Moment, &Rung)]| match three {
            [(_, before), (at, rung), (_, after)] => {
                let [one, other] = [before, after].map(|rung| rung.saved.machine());
                let bytes = rung.saved.machine().bytes_beyond_both(one, other);
                let gap = after.cost - before.cost;
                let distance = rung.cost.abs_diff(near).clamp(NEAR, SPACING);
                let step = coarse(u128::from(gap) * u128::from(SPACING) / u128::from(distance));
                Some(Candidate { step, bytes: -i64::try_from(bytes).unwrap_or(i64::MAX), at: **at })
            }
            _ => None,
        };
        let mut found: Vec<Candidate> = all.windows(3).filter_map(candidate).collect();
        // The last one has no gap after it: it is dropped when nothing else is left.
        if found.is_empty() {
            found.extend(all.last().map(|(at, _)| Candidate { step: 0, bytes: 0, at: **at }));
        }
        found.sort_unstable();
        found
    }
}

/// A logarithmic scale with two steps for each power of two.
fn coarse(gap: u128) -> u32 {
    let log = gap.max(1).ilog2();
    2 * log + u32::from(gap >> log.saturating_sub(1) & 1 == 1 && log > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GuestBuilder, Session};

    /// Instructions, and the cost, from one rung to the next.
    const STEP: u64 = 20_000;
    const RUNGS: u64 = 100;

    fn session() -> Session {
        GuestBuilder::embedded("ia32").memory(32 << 20).start().unwrap()
    }

    fn rung(session: &mut Session, cost: u64) -> Rung {
        Rung { saved: session.save_rung(), next: None, cost }
    }

    /// A ladder for this many bytes besides its first rung, with rungs at equal distances.
    fn ladder(budget: u64, cost: u64) -> Ladder {
        let mut session = session();
        let first = rung(&mut session, 0);
        let least = Ladder::new(session.moment(), first.clone(), 0).measured();
        let mut ladder = Ladder::new(session.moment(), first, least + budget);
        for n in 1..=RUNGS {
            session.step(STEP);
            let rung = rung(&mut session, n * cost);
            ladder.lay(session.moment(), rung);
            assert!(ladder.measured() <= least + budget);
        }
        ladder
    }

    fn gaps(ladder: &Ladder) -> Vec<u64> {
        let costs: Vec<u64> = ladder.rungs.values().map(|rung| rung.cost).collect();
        costs.windows(2).map(|two| two[1] - two[0]).collect()
    }

    #[test]
    fn the_widest_gap_is_about_as_small_as_the_memory_allows() {
        let ladder = ladder(4 << 20, SPACING);
        let gaps = gaps(&ladder);
        assert!(ladder.thinned() > 20 && gaps.len() > 10, "{gaps:?}");
        let (all, widest) = (RUNGS * SPACING, gaps.iter().max().unwrap());
        assert!(*widest <= 4 * all / gaps.len() as u64, "{gaps:?}");
    }

    #[test]
    fn rungs_are_close_together_near_the_place_where_they_were_laid_last() {
        // All are nearer than the spacing: the farther one is away, the wider its gap.
        let ladder = ladder(4 << 20, SPACING / 1000);
        let gaps = gaps(&ladder);
        let half = gaps.len() / 2;
        assert!(gaps[..half].iter().sum::<u64>() > 2 * gaps[half..].iter().sum::<u64>(), "{gaps:?}");
    }

    #[test]
    fn a_rung_is_due_where_running_has_cost_enough() {
        let mut session = session();
        let first = rung(&mut session, 0);
        let ladder = Ladder::new(session.moment(), first, u64::MAX);
        assert_eq!(ladder.next_due(0, 100 * CHECK), Some(Due { at: CHECK, dense: false }));
        let due = Due { at: CHECK, dense: false };
        let at = Moment { icount: CHECK, ..Moment::default() };
        assert!(!ladder.wants(due, at, SPACING - 1) && ladder.wants(due, at, SPACING));
        assert_eq!(ladder.next_due(CHECK - DENSE[1] - 1, CHECK), Some(Due::at(CHECK - DENSE[1])));
        assert!(ladder.wants(Due::at(CHECK - DENSE[1]), at, 1));
    }
}
