//! Memory for the tests of stacks: the words that a test has written, or noise.

use std::collections::BTreeMap;

use super::{Memory, State, Step};

/// Words and code by address; nothing else can be read.
pub(super) struct Written {
    pub wide: bool,
    pub words: BTreeMap<u64, u64>,
    pub code: BTreeMap<u64, Vec<u8>>,
}

impl Written {
    pub fn new(wide: bool) -> Self {
        Self { wide, words: BTreeMap::new(), code: BTreeMap::new() }
    }

    /// With these words from `at` on.
    pub fn with(mut self, at: u64, words: &[u64]) -> Self {
        let size = self.size() as u64;
        self.words.extend((0..).map(|n| at + n * size).zip(words.iter().copied()));
        self
    }

    /// With code at `at`.
    pub fn with_code(mut self, at: u64, code: &[u8]) -> Self {
        self.code.insert(at, code.to_vec());
        self
    }
}

impl Memory for Written {
    fn word(&self, va: u64) -> Option<u64> {
        self.words.get(&va).copied()
    }

    fn code(&self, va: u64, to: &mut [u8]) -> usize {
        let before = self.code.range(..=va).next_back();
        let code = before.and_then(|(at, code)| code.get((va - at) as usize..)).unwrap_or_default();
        let n = code.len().min(to.len());
        to[..n].copy_from_slice(&code[..n]);
        n
    }

    fn wide(&self) -> bool {
        self.wide
    }
}

/// Memory that can be read everywhere and mostly holds addresses near the requested one.
pub(super) struct Noise {
    pub wide: bool,
    pub seed: u64,
}

impl Memory for Noise {
    fn word(&self, va: u64) -> Option<u64> {
        let mut x = (va ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x ^= x >> 29;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        match x >> 60 {
            0 => None,
            1..4 => Some(x),
            4 => Some(u64::MAX - (x & 0xff)),
            _ => Some(self.add(va, (x >> 8 & 0x3ff) as i64 - 0x100)),
        }
    }

    fn code(&self, va: u64, to: &mut [u8]) -> usize {
        let word = self.word(va).unwrap_or_default().to_le_bytes();
        let n = to.len().min(8);
        to[..n].copy_from_slice(&word[..n]);
        n
    }

    fn wide(&self) -> bool {
        self.wide
    }
}

/// Walks like the unwinder; returns the frames' instruction pointers. Whatever `step` does, there are at most `most`.
pub(super) fn walk(state: &mut State, most: usize, mut step: impl FnMut(&mut State) -> Step) -> Vec<u64> {
    let mut found = vec![state.ip];
    while found.len() < most {
        let before = state.sp();
        if step(state) != Step::Caller || !state.goes_on(before) {
            break;
        }
        found.push(state.ip);
    }
    found
}

#[test]
fn a_walk_in_a_circle_ends() {
    let mut state = State::new([0x1000; 16], 1);
    let found = walk(&mut state, usize::MAX, |state| {
        let sp = if state.sp() == Some(0x1000) { 0x2000 } else { 0x1000 };
        state.return_to(2, sp);
        Step::Caller
    });
    assert_eq!(found.len(), 2 * super::MAX_SWITCHES as usize + 2);
    let mut state = State::new([0x1000; 16], 1);
    let found = walk(&mut state, 10, |state| {
        state.return_to(0, 0x2000);
        Step::Caller
    });
    assert_eq!(found, [1], "a return address of 0 ends the stack");
}
