//! The circular RPN stack: 1024 elements, zeroed at each run.
//!
//! Zeroing 8 KiB at each hit would cost more than the handler, so the stack
//! remembers which sixteenths of a kilo-element were written and clears only
//! those. It knows nothing of width; values come in already cut.

/// Elements of the stack.
pub(super) const SIZE: usize = 1024;
const MASK: u32 = SIZE as u32 - 1;
/// Elements that share one dirty bit.
const CHUNK: usize = SIZE / 64;

/// TSP with the number of elements that it stands on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Top {
    /// Index of the top element.
    pub index: u32,
    /// Elements held, at most 1024; for counting wraps.
    held: u32,
}

#[derive(Debug)]
pub(super) struct Stack {
    cells: Box<[u64; SIZE]>,
    top: Top,
    dirty: u64,
    pub wraps: u32,
}

impl Stack {
    pub fn new() -> Self {
        Self { cells: Box::new([0; SIZE]), top: Top::default(), dirty: 0, wraps: 0 }
    }

    /// Clears what the last run wrote.
    #[inline]
    pub fn reset(&mut self) {
        while self.dirty != 0 {
            let chunk = self.dirty.trailing_zeros() as usize;
            self.dirty &= self.dirty - 1;
            if let Some(cells) = self.cells.get_mut(chunk * CHUNK..(chunk + 1) * CHUNK) {
                cells.fill(0);
            }
        }
        self.top = Top::default();
        self.wraps = 0;
    }

    #[inline(always)]
    pub fn get(&self, index: u32) -> u64 {
        self.cells[(index & MASK) as usize]
    }

    #[inline(always)]
    pub fn set(&mut self, index: u32, value: u64) {
        let index = (index & MASK) as usize;
        self.dirty |= 1 << (index / CHUNK);
        self.cells[index] = value;
    }

    /// Pushing never fails: the 1025th element overwrites the oldest.
    #[inline(always)]
    pub fn push(&mut self, value: u64) {
        self.top.index = (self.top.index + 1) & MASK;
        if self.top.held == SIZE as u32 {
            self.wraps = self.wraps.saturating_add(1);
        } else {
            self.top.held += 1;
        }
        self.set(self.top.index, value);
    }

    /// Popping never faults: below the bottom it goes round.
    #[inline(always)]
    pub fn pop(&mut self) -> u64 {
        let value = self.get(self.top.index);
        self.drop(1);
        value
    }

    /// Pops elements without looking at them.
    #[inline(always)]
    pub fn drop(&mut self, count: u64) {
        self.top.index = self.top.index.wrapping_sub(count as u32) & MASK;
        if u64::from(self.top.held) >= count {
            self.top.held -= count as u32;
        } else {
            let more = u32::try_from(count - u64::from(self.top.held)).unwrap_or(u32::MAX);
            self.wraps = self.wraps.saturating_add(more);
            self.top.held = 0;
        }
    }

    #[inline(always)]
    pub fn peek(&self) -> u64 {
        self.get(self.top.index)
    }

    #[inline(always)]
    pub fn replace(&mut self, value: u64) {
        self.set(self.top.index, value);
    }

    #[inline(always)]
    pub fn tsp(&self) -> u32 {
        self.top.index
    }

    /// Sets TSP to a value modulo 1024.
    pub fn set_tsp(&mut self, value: u64) {
        let index = value as u32 & MASK;
        self.top = Top { index, held: index };
    }

    pub fn top(&self) -> Top {
        self.top
    }

    pub fn set_top(&mut self, top: Top) {
        self.top = top;
    }

    /// The elements held, top first.
    pub fn elements(&self) -> Vec<u64> {
        (0..self.top.held).map(|n| self.get(self.top.index.wrapping_sub(n))).collect()
    }
}
