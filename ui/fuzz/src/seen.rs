//! What a handler sees on trial: a real hit with differences.
//!
//! What the handler asks for is kept with the hit, so that later trials do not need the machine. If the machine is at another hit
//! and something is not kept yet, the trial is marked, and is repeated with the machine at this hit.

use trapline_emu::{Core, PAGE};
use trapline_interposer::{Difference, View, Word, Written, all_writable, can_write, difference};

use crate::hits::{Hit, Page};

/// Pages of a hit of which it is kept that they are absent, at most.
const MOST_PAGES: usize = 8192;
/// Most pairs of texts that are noted, and most bytes of each.
const MOST_TEXTS: (usize, usize) = (64, 256);
/// Most asks that are noted.
const MOST_ASKED: usize = 512;

/// A thing that a handler has asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// A number.
    Word(Word),
    /// Memory: its address and length.
    Memory(u64, u32),
    /// Memory that cannot be read: the address and length that were asked for.
    Fault(u64, u32),
    /// The name of the task.
    Name,
}

/// An ask, and the value that it got: of memory, the first eight bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// What was asked for.
    pub ask: Ask,
    /// The value.
    pub value: u64,
}

/// Two texts that a handler has compared.
pub type Texts = (Vec<u8>, Vec<u8>);

/// Memory of which a handler must not log a byte.
#[derive(Debug, Clone, Default)]
pub struct Secret {
    /// First and last addresses.
    pub ranges: Vec<(u64, u64)>,
    /// Whether all bytes there are inverted, to see whether the log depends on them.
    pub inverted: bool,
    /// Whether a byte there was read.
    pub touched: bool,
}

/// See the module.
pub struct Seen<'a> {
    /// The real hit.
    pub hit: &'a mut Hit,
    /// Which of its handlers sees it.
    pub handler: usize,
    /// Whether the machine is there.
    pub here: bool,
    /// Whether something was asked for that is not kept, and the machine is elsewhere.
    pub missed: bool,
    /// The differences.
    pub differences: &'a [Difference],
    /// What the handler and those before it at the hit have written.
    pub written: &'a mut Written,
    /// All that is asked for, as of the hit of this number, if it is wanted.
    pub asked: Option<(usize, &'a mut Vec<(usize, Answered)>)>,
    /// The texts that it has compared, if they are wanted.
    pub texts: Option<&'a mut Vec<Texts>>,
    /// See [`Secret`].
    pub secret: &'a mut Secret,
}

/// The first eight bytes as a number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

impl Seen<'_> {
    fn page<'h>(hit: &'h mut Hit, core: &Core, here: bool, missed: &mut bool, page: u64) -> &'h Page {
        if !here && !hit.pages.contains_key(&page) {
            *missed = true;
            return &Page::Absent;
        }
        if hit.pages.len() >= MOST_PAGES && !hit.pages.contains_key(&page) {
            hit.pages.retain(|_, page| matches!(page, Page::There { .. }));
        }
        hit.pages.entry(page).or_insert_with(|| Hit::look(core, page))
    }

    fn note(&mut self, ask: impl FnOnce() -> Ask, value: u64) {
        if let Some((hit, asked)) = &mut self.asked {
            let answered = (*hit, Answered { ask: ask(), value });
            if asked.len() < MOST_ASKED && !asked.contains(&answered) {
                asked.push(answered);
            }
        }
    }

    /// Notes that secret memory was read, and inverts it if that is wanted.
    fn keep_secret(&mut self, address: u64, bytes: &mut [u8]) {
        let Some(last) = (bytes.len() as u64).checked_sub(1) else { return };
        let last = address.saturating_add(last);
        for &(low, high) in &self.secret.ranges {
            let (from, to) = (low.max(address), high.min(last));
            if from > to {
                continue;
            }
            self.secret.touched = true;
            let part = bytes.get_mut((from - address) as usize..=(to - address) as usize);
            if self.secret.inverted {
                part.into_iter().flatten().for_each(|byte| *byte = !*byte);
            }
        }
    }
}

impl View for Seen<'_> {
    #[inline]
    fn word(&mut self, what: Word) -> Option<u64> {
        let found = self.written.word(what);
        let found = found.or_else(|| difference::word(self.differences, what));
        let found = found.or_else(|| self.hit.handlers.get(self.handler)?.words.get(what));
        if let Some(value) = found {
            self.note(|| Ask::Word(what), value);
        }
        found
    }

    fn learned(&mut self, what: Word, value: u64) {
        if let Some(handler) = self.hit.handlers.get_mut(self.handler).filter(|_| self.here) {
            handler.words.insert(what, value);
        } else {
            self.missed = true;
        }
        self.note(|| Ask::Word(what), value);
    }

    fn lacks(&mut self, what: Word) {
        self.note(|| Ask::Word(what), 0);
    }

    fn compared(&mut self, one: &[u8], other: &[u8]) {
        let (most, longest) = MOST_TEXTS;
        if let Some(texts) = self.texts.as_mut().filter(|texts| texts.len() < most)
            && one != other
            && one.len().max(other.len()) <= longest
        {
            let pair = (one.to_vec(), other.to_vec());
            if !texts.contains(&pair) {
                texts.push(pair);
            }
        }
    }

    fn set(&mut self, what: Word, value: u64) {
        self.written.set(what, value);
    }

    fn read(&mut self, core: &Core, address: u64, to: &mut [u8]) -> Result<(), u64> {
        let Self { hit, here, missed, differences, .. } = self;
        let read = difference::read(differences, address, to, |at, part| {
            match Self::page(hit, core, *here, missed, core.wrap_linear(at & !(PAGE - 1))) {
                Page::There { bytes, .. } => {
                    let offset = (at % PAGE) as usize;
                    let from = bytes.get(offset..offset + part.len()).ok_or(at)?;
                    part.copy_from_slice(from);
                    Ok(())
                }
                Page::Absent => Err(at),
            }
        });
        let length = to.len() as u32;
        if let Err(failed) = read {
            self.note(|| Ask::Fault(address, length), failed);
            return Err(failed);
        }
        self.written.overlay(address, to);
        if !self.secret.ranges.is_empty() {
            self.keep_secret(address, to);
        }
        self.note(|| Ask::Memory(address, length), number(to));
        Ok(())
    }

    fn write(&mut self, core: &Core, address: u64, data: &[u8]) -> Result<(), u64> {
        all_writable(address, data.len(), |at| self.can_write(core, at))?;
        self.written.write(address, data);
        Ok(())
    }

    fn can_write(&mut self, core: &Core, address: u64) -> bool {
        let Self { hit, here, missed, differences, .. } = self;
        can_write(differences, address, || {
            let page = core.wrap_linear(address & !(PAGE - 1));
            matches!(Self::page(hit, core, *here, missed, page), Page::There { writable: true, .. })
        })
    }

    fn name(&mut self) -> Option<&[u8]> {
        self.note(|| Ask::Name, 0);
        self.differences.iter().rev().find_map(|difference| match difference {
            Difference::Name(name) => Some(name.as_slice()),
            _ => None,
        })
    }
}
