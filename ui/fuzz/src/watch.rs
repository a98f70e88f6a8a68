//! Watches a handler on trial: the edges of its code, comparisons with their operands, exceptions, what it writes.

use trapline_rpn::{Change, Observer, Unhandled, exception, services};

use crate::code::{Code, Compares, SLOTS};

/// Slots for edges, at least and at most; a power of two.
const EDGES: (usize, usize) = (64, 2048);
/// Slots for exceptions.
const EXCEPTIONS: usize = 64;
/// Slots for lengths: of the log, of the run, and the number of hits.
pub const LENGTHS: usize = 128;

/// A comparison: its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compared(pub u64, pub u64);

/// The coverage of one trial. It costs what was reached, and not its size.
#[derive(Debug, Default)]
pub struct Coverage {
    /// One byte a slot.
    pub map: Vec<u8>,
    touched: Vec<u32>,
    /// The greatest class that each slot had in any trial.
    best: Vec<u8>,
    /// Slots for the edges of handlers.
    edges: usize,
}

/// The class of a count: counts in one class are alike.
const fn class(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 3,
        4..=7 => 4,
        8..=15 => 5,
        16..=31 => 6,
        32..=127 => 7,
        _ => 8,
    }
}

impl Coverage {
    /// A map with room for the edges of code with so many operations, and for this number of comparisons. It is as small as
    /// it can be, so that it stays in the processor's cache.
    #[must_use]
    pub fn new(operations: usize, comparisons: usize) -> Self {
        let edges = (4 * operations).next_power_of_two().clamp(EDGES.0, EDGES.1);
        Self { edges, ..Self::of_size(edges + EXCEPTIONS + LENGTHS + comparisons * SLOTS) }
    }

    /// A map with so many slots.
    #[must_use]
    pub fn of_size(slots: usize) -> Self {
        let size = slots.next_multiple_of(64);
        Self { map: vec![0; size], touched: Vec::new(), best: vec![0; size], edges: 0 }
    }

    /// Begins a trial.
    pub fn begin(&mut self) {
        for slot in self.touched.drain(..) {
            if let Some(count) = self.map.get_mut(slot as usize) {
                *count = 0;
            }
        }
    }

    /// Counts a slot.
    #[inline]
    pub fn count(&mut self, slot: usize) {
        if let Some(count) = self.map.get_mut(slot) {
            if *count == 0 {
                self.touched.push(slot as u32);
            }
            *count = count.saturating_add(1);
        }
    }

    /// Notes a length by the number of its bits.
    pub fn length(&mut self, kind: usize, length: u64) {
        let bits = (64 - length.leading_zeros()) as usize;
        self.count(self.edges + EXCEPTIONS + (kind * 32 + bits.min(31)) % LENGTHS);
    }

    /// Notes the length of a call of a guest's function, in the last slots of the map.
    pub fn guest_length(&mut self, instructions: u64) {
        let bits = (64 - instructions.leading_zeros()) as usize;
        let first = self.map.len().saturating_sub(LENGTHS);
        self.count(first + bits);
    }

    /// Ends a trial: counts become classes. Returns whether any is greater than ever before.
    pub fn end(&mut self) -> bool {
        let mut is_new = false;
        for slot in &self.touched {
            let slot = *slot as usize;
            if let (Some(count), Some(best)) = (self.map.get_mut(slot), self.best.get_mut(slot)) {
                *count = class(*count);
                if *count > *best {
                    *best = *count;
                    is_new = true;
                }
            }
        }
        is_new
    }

    /// The slots that the last trial has reached, with the class of each.
    pub fn last(&self) -> impl Iterator<Item = (usize, u8)> {
        self.touched
            .iter()
            .map(|slot| *slot as usize)
            .map(|slot| (slot, self.map.get(slot).copied().unwrap_or(0)))
    }

    /// How many slots any trial has reached.
    #[must_use]
    pub fn reached(&self) -> usize {
        self.best.iter().filter(|best| **best > 0).count()
    }
}

/// See the module.
pub struct Watcher<'a> {
    /// The code.
    pub code: &'a mut Code,
    /// The number of the program.
    pub program: u32,
    /// What it reaches.
    pub coverage: &'a mut Coverage,
    /// Comparisons, if they are wanted.
    pub compared: Option<&'a mut Vec<Compared>>,
    /// The operation that was told last, as the program counts.
    pub at: u32,
    /// The operations so far, this one included.
    pub steps: u32,
    /// The operations when something fell: a cut, an assertion, an exception, a write elsewhere.
    pub fell: u32,
    /// Whether a log operation had no room for all of its data.
    pub cut: Option<u32>,
    /// Where an assertion did not hold, as the handler counts.
    pub asserted: Option<u32>,
    /// The same, as the program counts, if the exception may be masked.
    pub refuted: Option<u32>,
    /// The ranges that may be written, if that matters; and the first write elsewhere.
    pub may_write: Option<&'a [(u64, u64)]>,
    /// Where it was made.
    pub wrote_elsewhere: Option<u32>,
}

impl Watcher<'_> {
    #[inline]
    fn compare(&mut self, number: u32, one: u64, other: u64) {
        let equal = (one ^ other).trailing_zeros().min(64) as usize;
        let first = self.coverage.edges + EXCEPTIONS + LENGTHS;
        self.coverage.count(first + number as usize * SLOTS + equal);
        if let Some(compared) = &mut self.compared {
            let compared_here = Compared(one, other);
            if compared.len() < 256 && !compared.contains(&compared_here) {
                compared.push(compared_here);
            }
        }
    }
}

impl Observer for Watcher<'_> {
    const FOLLOWS: bool = true;

    #[inline]
    fn step(&mut self, at: u32, [first, second, third]: [u64; 3]) {
        let edge = self.at.wrapping_mul(0x9e37_79b1) ^ at.wrapping_mul(0x85eb_ca6b) ^ self.program << 5;
        let edges = self.coverage.edges.max(1);
        self.coverage.count((edge >> 7 ^ edge) as usize & (edges - 1));
        self.at = at;
        self.steps = self.steps.saturating_add(1);
        if let Some(reached) = self.code.reached.get_mut(at as usize) {
            *reached = true;
        }
        match self.code.compares.get(at as usize) {
            None | Some((Compares::Nothing, _)) => {}
            Some((Compares::Two, number)) => self.compare(*number, first, second),
            Some((Compares::Zero, number)) => self.compare(*number, first, 0),
            Some((Compares::Service, number)) => {
                let number = *number;
                match first {
                    services::d::LESS | services::d::BELOW => self.compare(number, second, third),
                    services::ASSERT => {
                        self.compare(number, second, 0);
                        if second == 0 {
                            self.refuted.get_or_insert(at);
                            self.fell = self.steps;
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn cut(&mut self) {
        self.cut.get_or_insert(self.at);
        self.fell = self.steps;
    }

    fn threw(&mut self, thrown: Unhandled) {
        self.fell = self.steps;
        let hash = (thrown.at.wrapping_mul(31) ^ exception::lowest(thrown.code)) as usize;
        self.coverage.count(self.coverage.edges + (hash >> 3 ^ hash) % EXCEPTIONS);
        let is_user = exception::lowest(thrown.code) == exception::USER_EX;
        if is_user && (thrown.code >> 16) as u16 == services::ASSERTION {
            self.asserted.get_or_insert(thrown.at);
        }
    }

    fn changed(&mut self, change: Change) {
        let (Some(ranges), Change::Memory { address, new, .. }) = (self.may_write, change) else { return };
        let last = address.saturating_add((new.len() as u64).saturating_sub(1));
        if !ranges.iter().any(|(low, high)| *low <= address && last <= *high) {
            self.wrote_elsewhere.get_or_insert(self.at);
            self.fell = self.steps;
        }
    }
}
