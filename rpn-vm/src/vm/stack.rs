//! The circular RPN stack: 1024 elements, zeroed at each run.
//!
//! Two costs are avoided in push and pop. Zeroing 8 KiB at each hit: the stack remembers which pieces
//! of sixteen elements were written and clears only those. Checking for the ends: a `Window` is a range of
//! elements in which TSP moves by a compare and an add; at its ends a new window is chosen, out of line. The stack
//! does not know the width: values are already cut to it.

/// Elements of the stack.
pub(super) const SIZE: usize = 1024;
const MASK: u32 = SIZE as u32 - 1;
/// Elements that share one dirty bit.
const CHUNK: u32 = SIZE as u32 / 64;

/// TSP and the number of elements on the stack.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Top {
    /// Index of the top element.
    pub index: u32,
    /// Elements held, at most 1024; for counting wraps.
    held: u32,
}

/// TSP, and how far it may move before the window ends: `low <= top <= high < 1024`. Inside it
/// every piece is marked as written, the index does not wrap, and no wrap has to be counted.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    top: u32,
    low: u32,
    high: u32,
}

#[derive(Debug)]
pub(super) struct Stack {
    cells: [u64; SIZE],
    window: Window,
    /// Elements held when TSP is at the lower end of the window.
    below: u32,
    dirty: u64,
    pub wraps: u32,
}

impl Stack {
    pub fn new() -> Self {
        Self { cells: [0; SIZE], window: Window::default(), below: 0, dirty: 0, wraps: 0 }
    }

    /// Clears the elements that the last run wrote. `writes` says whether the next one may push; if not, its first
    /// piece need not be cleared after it.
    #[inline(always)]
    pub fn reset(&mut self, writes: bool) {
        if self.dirty & 1 != 0 {
            self.cells[..CHUNK as usize].fill(0);
        }
        if self.dirty > 1 {
            self.clear_upper();
        }
        self.dirty = u64::from(writes);
        self.window = Window { top: 0, low: 0, high: CHUNK - 1 };
        self.below = 0;
        self.wraps = 0;
    }

    #[cold]
    #[inline(never)]
    fn clear_upper(&mut self) {
        while self.dirty != 0 {
            let chunk = self.dirty.trailing_zeros() as usize * CHUNK as usize;
            self.dirty &= self.dirty - 1;
            if let Some(cells) = self.cells.get_mut(chunk..chunk + CHUNK as usize) {
                cells.fill(0);
            }
        }
    }

    /// Whether an element can be pushed on one in the window by moving TSP alone.
    #[inline(always)]
    pub fn can_push(&self, top: u32) -> bool {
        top < self.window.high
    }

    /// Whether this number of elements can be popped by moving TSP alone.
    #[inline(always)]
    pub fn can_pop(&self, top: u32, count: u32) -> bool {
        top - self.window.low >= count
    }

    /// Moves TSP in the window.
    #[inline(always)]
    pub fn move_top(&mut self, top: u32) {
        self.window.top = top;
    }

    #[inline(always)]
    pub fn get(&self, index: u32) -> u64 {
        self.cells[(index & MASK) as usize]
    }

    /// Sets an element of the window.
    #[inline(always)]
    pub fn put(&mut self, index: u32, value: u64) {
        self.cells[(index & MASK) as usize] = value;
    }

    /// Sets any element.
    #[inline(always)]
    pub fn set(&mut self, index: u32, value: u64) {
        self.dirty |= 1 << ((index & MASK) / CHUNK);
        self.put(index, value);
    }

    /// Pushing never fails: the 1025th element overwrites the oldest.
    #[inline(always)]
    pub fn push(&mut self, value: u64) {
        if self.can_push(self.window.top) {
            self.window.top += 1;
        } else {
            self.grow();
        }
        self.put(self.window.top, value);
    }

    /// Pushes an element at the end of the window.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let Top { index, mut held } = self.top();
        if held == SIZE as u32 {
            self.wraps = self.wraps.saturating_add(1);
        } else {
            held += 1;
        }
        self.set_top(Top { index: (index + 1) & MASK, held });
    }

    /// Pushes a value `count` times. Once the stack is full of it, whole rounds change nothing but the count of wraps.
    pub fn repeat(&mut self, value: u64, count: u64) {
        let size = SIZE as u64;
        let pushes = count.min(size + count % size);
        for _ in 0..pushes {
            self.push(value);
        }
        self.wraps = self.wraps.saturating_add(u32::try_from(count - pushes).unwrap_or(u32::MAX));
    }

    /// Popping never fails: below the bottom it wraps.
    #[inline(always)]
    pub fn pop(&mut self) -> u64 {
        let value = self.get(self.window.top);
        self.drop(1);
        value
    }

    /// Pops elements without reading them.
    #[inline(always)]
    pub fn drop(&mut self, count: u64) {
        if u64::from(self.window.top - self.window.low) >= count {
            self.window.top -= count as u32;
        } else {
            self.shrink(count);
        }
    }

    #[cold]
    #[inline(never)]
    fn shrink(&mut self, count: u64) {
        let Top { index, held } = self.top();
        let there = count.min(u64::from(held));
        let more = u32::try_from(count - there).unwrap_or(u32::MAX);
        self.wraps = self.wraps.saturating_add(more);
        self.set_top(Top { index: index.wrapping_sub(count as u32) & MASK, held: held - there as u32 });
    }

    #[inline(always)]
    pub fn peek(&self) -> u64 {
        self.get(self.window.top)
    }

    #[inline(always)]
    pub fn replace(&mut self, value: u64) {
        self.put(self.window.top, value);
    }

    #[inline(always)]
    pub fn tsp(&self) -> u32 {
        self.window.top
    }

    /// Sets TSP to a value modulo 1024.
    pub fn set_tsp(&mut self, value: u64) {
        let index = value as u32 & MASK;
        self.set_top(Top { index, held: index });
    }

    pub fn top(&self) -> Top {
        Top { index: self.window.top, held: self.below + (self.window.top - self.window.low) }
    }

    /// Sets TSP, marks its piece as written and chooses the window around it: as far as pieces are marked, the
    /// index does not wrap, and the stack is neither empty nor full.
    pub fn set_top(&mut self, top: Top) {
        let Top { index, held } = top;
        let chunk = index / CHUNK;
        self.dirty |= 1 << chunk;
        let marked_up = (self.dirty >> chunk).trailing_ones();
        let marked_down = (self.dirty << (63 - chunk)).leading_ones();
        let high = ((chunk + marked_up) * CHUNK - 1).min(index + (SIZE as u32 - held));
        let low = ((chunk + 1 - marked_down) * CHUNK).max(index.saturating_sub(held));
        self.window = Window { top: index, low, high };
        self.below = held - (index - low);
    }

    /// The elements held, top first.
    pub fn elements(&self) -> Vec<u64> {
        let Top { index, held } = self.top();
        (0..held).map(|n| self.get(index.wrapping_sub(n))).collect()
    }
}
