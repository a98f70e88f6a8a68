//! What a handler sees of the guest, if that is not the guest as it is.
//!
//! Handlers of a run see the guest ([`Real`]), which costs nothing. A run of a handler that is altered
//! ([`Interposer::alter`](super::Interposer::alter)) and one on trial see it through another view.

use crate::model::{Difference, Word, difference};
use std::sync::Arc;
use trapline_emu::{Access, Core};

/// A view of the guest.
pub trait View {
    /// Whether it differs from the guest at all. Constant for a type.
    const ALTERS: bool = true;

    /// The value of a number; `None` if it is the guest's.
    fn word(&mut self, what: Word) -> Option<u64>;

    /// The handler has got this value of the guest.
    fn learned(&mut self, what: Word, value: u64) {
        let _ = (what, value);
    }

    /// The handler has asked for a number that the guest does not have.
    fn lacks(&mut self, what: Word) {
        let _ = what;
    }

    /// The handler has compared two texts.
    fn compared(&mut self, one: &[u8], other: &[u8]) {
        let _ = (one, other);
    }

    /// The handler sets a number: later reads at this hit give the value.
    fn set(&mut self, what: Word, value: u64);

    /// Reads memory.
    ///
    /// # Errors
    /// The first address that cannot be read.
    fn read(&mut self, core: &Core, address: u64, to: &mut [u8]) -> Result<(), u64>;

    /// Writes memory, for the rest of this hit.
    ///
    /// # Errors
    /// The first address that cannot be written.
    fn write(&mut self, core: &Core, address: u64, data: &[u8]) -> Result<(), u64>;

    /// Whether the byte at an address can be read and written.
    fn can_write(&mut self, core: &Core, address: u64) -> bool;

    /// The name of the task; `None` if it is the guest's.
    fn name(&mut self) -> Option<&[u8]>;

    /// Whether what is written goes to the guest too.
    fn lets_through(&self) -> bool {
        false
    }
}

/// The guest as it is.
pub(super) struct Real;

impl View for Real {
    const ALTERS: bool = false;

    fn word(&mut self, _: Word) -> Option<u64> {
        None
    }

    fn set(&mut self, _: Word, _: u64) {}

    fn read(&mut self, core: &Core, address: u64, to: &mut [u8]) -> Result<(), u64> {
        core.peek(address, to)
    }

    fn write(&mut self, _: &Core, address: u64, _: &[u8]) -> Result<(), u64> {
        Err(address)
    }

    fn can_write(&mut self, _: &Core, _: u64) -> bool {
        false
    }

    fn name(&mut self) -> Option<&[u8]> {
        None
    }
}

impl<V: View> View for &mut V {
    const ALTERS: bool = V::ALTERS;

    fn word(&mut self, what: Word) -> Option<u64> {
        (**self).word(what)
    }

    fn learned(&mut self, what: Word, value: u64) {
        (**self).learned(what, value);
    }

    fn lacks(&mut self, what: Word) {
        (**self).lacks(what);
    }

    fn compared(&mut self, one: &[u8], other: &[u8]) {
        (**self).compared(one, other);
    }

    fn set(&mut self, what: Word, value: u64) {
        (**self).set(what, value);
    }

    fn read(&mut self, core: &Core, address: u64, to: &mut [u8]) -> Result<(), u64> {
        (**self).read(core, address, to)
    }

    fn write(&mut self, core: &Core, address: u64, data: &[u8]) -> Result<(), u64> {
        (**self).write(core, address, data)
    }

    fn can_write(&mut self, core: &Core, address: u64) -> bool {
        (**self).can_write(core, address)
    }

    fn name(&mut self) -> Option<&[u8]> {
        (**self).name()
    }

    fn lets_through(&self) -> bool {
        (**self).lets_through()
    }
}

/// Whether the guest lets a handler write the byte at an address.
pub fn is_writable(core: &Core, address: u64) -> bool {
    let found = core.peek_translate(address, Access::Write, false);
    found.is_some_and(|found| found.writable && core.ram().contains(found.paddr, 1))
}

/// What handlers have written at one hit: seen by this handler and the later ones there.
#[derive(Debug, Clone, Default)]
pub struct Written {
    words: Vec<(Word, u64)>,
    memory: Vec<(u64, Vec<u8>)>,
}

impl Written {
    /// Forgets all of it.
    pub fn clear(&mut self) {
        self.words.clear();
        self.memory.clear();
    }

    /// The value that a number was set to.
    #[inline]
    pub fn word(&self, asked: Word) -> Option<u64> {
        self.words.iter().rev().find(|(what, _)| *what == asked).map(|(_, value)| *value)
    }

    /// Sets a number.
    pub fn set(&mut self, what: Word, value: u64) {
        self.words.push((what, value));
    }

    /// Writes memory.
    pub fn write(&mut self, address: u64, data: &[u8]) {
        self.memory.push((address, data.to_vec()));
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty() && self.memory.is_empty()
    }

    /// Adds all of it to a digest.
    pub fn digest(&self, to: &mut impl std::hash::Hasher) {
        use std::hash::Hash;
        self.words.hash(to);
        self.memory.hash(to);
    }

    /// Puts what was written over memory that was read.
    #[inline]
    pub fn overlay(&self, address: u64, memory: &mut [u8]) {
        for (at, bytes) in &self.memory {
            difference::put(address, memory, *at, bytes);
        }
    }
}

/// The guest with differences.
pub(super) struct Altered {
    differences: Arc<[Difference]>,
    written: Written,
    through: bool,
}

impl Altered {
    /// With what earlier handlers have written at this trap.
    pub fn new(differences: Arc<[Difference]>, written: Written, through: bool) -> Self {
        Self { differences, written, through }
    }

    /// What was written.
    pub fn into_written(self) -> Written {
        self.written
    }
}

/// Whether all bytes at an address can be written, else the first that cannot.
///
/// # Errors
/// The address of that byte.
pub fn all_writable(address: u64, length: usize, mut can_write: impl FnMut(u64) -> bool) -> Result<(), u64> {
    let mut at = address;
    let mut left = length as u64;
    while left > 0 {
        if !can_write(at) {
            return Err(at);
        }
        let here = (trapline_emu::PAGE - at % trapline_emu::PAGE).min(left);
        (at, left) = (at.wrapping_add(here), left - here);
    }
    Ok(())
}

/// Whether a byte can be written with these differences.
pub fn can_write(differences: &[Difference], address: u64, base: impl FnOnce() -> bool) -> bool {
    let page = address & !(trapline_emu::PAGE - 1);
    !difference::is_absent(differences, page) && (base() || difference::is_made(differences, page))
}

impl View for Altered {
    fn word(&mut self, what: Word) -> Option<u64> {
        self.written.word(what).or_else(|| difference::word(&self.differences, what))
    }

    fn set(&mut self, what: Word, value: u64) {
        self.written.set(what, value);
    }

    fn read(&mut self, core: &Core, address: u64, to: &mut [u8]) -> Result<(), u64> {
        difference::read(&self.differences, address, to, |at, part| core.peek(at, part))?;
        self.written.overlay(address, to);
        Ok(())
    }

    fn write(&mut self, core: &Core, address: u64, data: &[u8]) -> Result<(), u64> {
        all_writable(address, data.len(), |at| can_write(&self.differences, at, || is_writable(core, at)))?;
        self.written.write(address, data);
        Ok(())
    }

    fn can_write(&mut self, core: &Core, address: u64) -> bool {
        can_write(&self.differences, address, || is_writable(core, address))
    }

    fn name(&mut self) -> Option<&[u8]> {
        self.differences.iter().rev().find_map(|difference| match difference {
            Difference::Name(name) => Some(name.as_slice()),
            _ => None,
        })
    }

    fn lets_through(&self) -> bool {
        self.through
    }
}
