//! Changes states: what the search tries next. It changes what the handlers of a state ask for, and knows what they compare.

use trapline_emu::PAGE;
use trapline_interposer::Difference;

use crate::hits::Hits;
use crate::report::Knowledge;
use crate::seen::{Answered, Ask};
use crate::state::{MOST_HITS, State};

/// A source of random numbers.
pub trait Random {
    /// The next number.
    fn next(&mut self) -> u64;

    /// A number below a limit; 0 if that is 0.
    fn below(&mut self, limit: usize) -> usize {
        // The high half of a product is as even as the number.
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    /// Whether an event of one in so many happens.
    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    /// One of a list.
    fn pick<'l, T>(&mut self, list: &'l [T]) -> Option<&'l T> {
        list.get(self.below(list.len()))
    }
}

/// What may be changed.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Bytes of the guest's word.
    pub word: usize,
    /// The number of real hits.
    pub hits: usize,
    /// Bytes of RAM.
    pub ram: u64,
    /// Local variables of all programs, and global ones.
    pub variables: (usize, usize),
    /// Whether the initial values of variables are changed.
    pub vary_variables: bool,
    /// Whether hits follow each other.
    pub vary_hits: bool,
}

impl Scope {
    /// For these hits.
    #[must_use]
    pub fn of(hits: &Hits, vary_variables: bool, vary_hits: bool) -> Self {
        let core = hits.session.core();
        let variables = hits.list.last().map(|hit| hit.variables.variables());
        Self {
            word: hits.session.target().width().bytes(),
            hits: hits.list.len(),
            ram: core.ram().layout().end(),
            variables: variables.map_or((0, 0), |(local, global)| (local.len(), global.len())),
            vary_variables,
            vary_hits,
        }
    }
}

/// Numbers that programs are often wrong about.
const INTERESTING: &[u64] = &[
    0,
    1,
    2,
    7,
    8,
    16,
    31,
    32,
    33,
    63,
    64,
    65,
    100,
    127,
    128,
    255,
    256,
    512,
    1000,
    1023,
    1024,
    1025,
    4095,
    4096,
    32767,
    32768,
    65535,
    65536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_f000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Most bytes of a task's name.
const LONGEST_NAME: usize = 15;

/// A page of addresses that is free in most guests: what pointers lead to that must lead somewhere.
const FREE_PAGES: u64 = 0x6660_0000;

/// Changes a state in one to four places.
pub fn change(state: &mut State, knowledge: &Knowledge, scope: &Scope, random: &mut impl Random) {
    let many = 1 + random.below(4) * random.below(2);
    for _ in 0..many {
        one(state, knowledge, scope, random);
    }
}

fn one(state: &mut State, knowledge: &Knowledge, scope: &Scope, random: &mut impl Random) {
    match random.below(32) {
        0 if scope.vary_hits => hits(state, scope, random),
        1 => {
            let hit = random.below(state.hits.len());
            if let Some(list) = state.hits.get_mut(hit)
                && !list.is_empty()
            {
                let at = random.below(list.len());
                list.remove(at);
            }
        }
        2 | 4 if scope.vary_variables => variable(state, knowledge, scope, random),
        3 if scope.vary_hits && state.hits.len() < MOST_HITS => state.hits.push(Vec::new()),
        _ => {
            if let Some((hit, answered)) = random.pick(&knowledge.asked) {
                answer(state, *hit, answered, knowledge, scope, random);
            } else if scope.vary_variables && scope.variables != (0, 0) {
                variable(state, knowledge, scope, random);
            } else if scope.vary_hits {
                hits(state, scope, random);
            }
        }
    }
}

/// Changes which hits there are.
fn hits(state: &mut State, scope: &Scope, random: &mut impl Random) {
    match random.below(3) {
        0 => state.first = random.below(scope.hits),
        1 if state.hits.len() > 1 => {
            let at = random.below(state.hits.len());
            state.hits.remove(at);
        }
        _ if state.hits.len() < MOST_HITS => {
            // The next hit often sees what this one saw.
            let copied = if random.one_in(2) { state.hits.last().cloned() } else { None };
            state.hits.push(copied.unwrap_or_default());
        }
        _ => {}
    }
}

/// Changes a variable before the first handler, as a number that the guest has.
fn variable(state: &mut State, knowledge: &Knowledge, scope: &Scope, random: &mut impl Random) {
    let (lv, gv) = scope.variables;
    if lv + gv == 0 {
        return;
    }
    let number = random.below(lv + gv);
    let (local, global) = &knowledge.variables;
    let old = number.checked_sub(lv).map_or_else(|| local.get(number), |number| global.get(number));
    let old = old.copied().unwrap_or_default();
    let value = cut(value(old, scope.word, knowledge, scope, random), scope.word);
    let difference = match number.checked_sub(lv) {
        None => Difference::Local { number: number as u32, value },
        Some(number) => Difference::Global { number: number as u32, value },
    };
    state.set(0, difference);
}

/// Gives another answer to what a handler has asked for.
fn answer(
    state: &mut State,
    hit: usize,
    answered: &Answered,
    knowledge: &Knowledge,
    scope: &Scope,
    random: &mut impl Random,
) {
    match answered.ask {
        Ask::Word(what) => {
            let value = cut(value(answered.value, scope.word, knowledge, scope, random), scope.word);
            state.set(hit, Difference::Word { what, value });
        }
        Ask::Memory(address, length) => {
            memory(state, hit, (address, length, answered.value), knowledge, scope, random)
        }
        Ask::Fault(address, length) => {
            // It is put into memory, mostly zeroed, so that the handler goes on.
            if let Some(text) = text(knowledge, 4, random) {
                let bytes = [text, &[0]].concat();
                return state.set(hit, Difference::Memory { address, bytes });
            }
            let length = (length as usize).clamp(1, 8);
            let value = if random.one_in(2) { 0 } else { value(0, length, knowledge, scope, random) };
            state.set(hit, Difference::Memory { address, bytes: bytes(value, length) });
        }
        Ask::Name => {
            if let Some(text) = text(knowledge, 2, random) {
                let name = text.get(..LONGEST_NAME).unwrap_or(text).to_vec();
                return state.set(hit, Difference::Name(name));
            }
            let length = random.below(LONGEST_NAME + 1);
            let name = (0..length).map(|_| 1 + random.below(255) as u8).collect();
            state.set(hit, Difference::Name(name));
        }
    }
}

fn memory(
    state: &mut State,
    hit: usize,
    (address, length, old): (u64, u32, u64),
    knowledge: &Knowledge,
    scope: &Scope,
    random: &mut impl Random,
) {
    let length = length as usize;
    if (length == 1 || length > 8)
        && let Some(text) = text(knowledge, 4, random)
    {
        let bytes = [text, &[0]].concat();
        return state.set(hit, Difference::Memory { address, bytes });
    }
    match random.below(16) {
        0 => state.set(hit, Difference::Absent { page: address & !(PAGE - 1) }),
        1 if length == 1 || length > 8 => {
            // A long run without a zero, to the end of the page or over it.
            let rest = (PAGE - address % PAGE) as usize;
            let most = if random.one_in(2) { rest } else { rest.min(1 + random.below(512)) };
            state.set(hit, Difference::Memory { address, bytes: vec![b'A'; most] });
        }
        _ if length <= 8 => {
            let value = value(old, length, knowledge, scope, random);
            state.set(hit, Difference::Memory { address, bytes: bytes(value, length) });
        }
        _ => {
            let size = 1 << random.below(4);
            let at = random.below(length) & !(size - 1);
            let value = value(0, size, knowledge, scope, random);
            let at = address.wrapping_add(at as u64);
            state.set(hit, Difference::Memory { address: at, bytes: bytes(value, size) });
        }
    }
}

/// One in so many times, a text that the handler has compared with another one.
fn text<'k>(knowledge: &'k Knowledge, many: usize, random: &mut impl Random) -> Option<&'k [u8]> {
    if knowledge.texts.is_empty() || !random.one_in(many) {
        return None;
    }
    let (one, other) = random.pick(&knowledge.texts)?;
    Some(if random.one_in(2) { one } else { other })
}

/// The low bytes of a number.
fn bytes(value: u64, length: usize) -> Vec<u8> {
    value.to_le_bytes().get(..length.min(8)).unwrap_or_default().to_vec()
}

fn cut(value: u64, bytes: usize) -> u64 {
    if bytes >= 8 { value } else { value & ((1 << (8 * bytes)) - 1) }
}

fn interesting(old: u64, random: &mut impl Random) -> u64 {
    match random.below(6) {
        0 => old.wrapping_add(1 + random.below(16) as u64),
        1 => old.wrapping_sub(1 + random.below(16) as u64),
        2 => random.next(),
        3 => random.next() >> random.below(64),
        _ => random.pick(INTERESTING).copied().unwrap_or_default(),
    }
}

/// Another value in place of one of this many bytes.
fn value(old: u64, size: usize, knowledge: &Knowledge, scope: &Scope, random: &mut impl Random) -> u64 {
    match random.below(8) {
        0..=2 if !knowledge.compared.is_empty() => from_comparison(old, knowledge, random),
        3 => old ^ 1 << random.below(8 * size.clamp(1, 8)),
        4 if size >= scope.word => pointer(knowledge, scope, random),
        _ => interesting(old, random),
    }
}

/// A value that makes a comparison equal, or nearly so: the operand itself, or the old value moved by the distance, which is
/// right if the handler has added or combined by XOR before it compared.
fn from_comparison(old: u64, knowledge: &Knowledge, random: &mut impl Random) -> u64 {
    let Some(compared) = random.pick(&knowledge.compared) else { return old };
    let (mut one, mut other) = (compared.0, compared.1);
    if random.one_in(2) {
        std::mem::swap(&mut one, &mut other);
    }
    let near = [0, 0, 0, 1, u64::MAX];
    let near = random.pick(&near).copied().unwrap_or_default();
    match random.below(6) {
        0 | 1 => one.wrapping_add(near),
        2 => old.wrapping_add(one.wrapping_sub(other)).wrapping_add(near),
        3 => old ^ one ^ other,
        // The lowest bit in which they differ: what is added or multiplied reaches higher bits only.
        4 => old ^ 1u64.checked_shl((one ^ other).trailing_zeros()).unwrap_or(0),
        _ => old.wrapping_add(1u64.checked_shl((one ^ other).trailing_zeros()).unwrap_or(0)),
    }
}

/// A pointer: to nowhere, to where the handler has read, to the ends of things.
fn pointer(knowledge: &Knowledge, scope: &Scope, random: &mut impl Random) -> u64 {
    let seen = random.pick(&knowledge.asked).map(|(_, answered)| match answered.ask {
        Ask::Memory(address, _) | Ask::Fault(address, _) => address,
        _ => answered.value,
    });
    let seen = seen.unwrap_or_default();
    let top = if scope.word == 8 { 0xffff_8880_0000_0000 } else { 0xc000_0000 };
    match random.below(8) {
        0 => 0,
        1 => FREE_PAGES + PAGE * random.below(16) as u64,
        2 => seen & !(PAGE - 1) | (PAGE - 1 - random.below(8) as u64),
        3 => top + scope.ram - random.below(9) as u64,
        4 => {
            if scope.word == 8 {
                0x0080_0000_0000_0000
            } else {
                0xffff_fff0
            }
        }
        _ => seen,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::watch::Compared;
    use trapline_interposer::Word;

    /// A plain generator (SplitMix64).
    pub struct Seeded(pub u64);

    impl Random for Seeded {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        }
    }

    #[test]
    fn what_is_compared_is_tried() {
        let asked = vec![(0, Answered { ask: Ask::Word(Word::Task), value: 5 })];
        let knowledge = Knowledge { asked, compared: vec![Compared(0x1234_5678, 5)], ..Knowledge::default() };
        let scope = Scope {
            word: 4,
            hits: 1,
            ram: 1 << 25,
            variables: (0, 0),
            vary_variables: false,
            vary_hits: false,
        };
        let mut random = Seeded(1);
        let found = (0..1000).any(|_| {
            let mut state = State::real(0);
            change(&mut state, &knowledge, &scope, &mut random);
            state.hits[0].contains(&Difference::Word { what: Word::Task, value: 0x1234_5678 })
        });
        assert!(found);
    }
}
