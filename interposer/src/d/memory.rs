//! D's own memory: constants, variables that have an address, scratch.

use serde::{Deserialize, Serialize};
use trapline_rpn::services::d;
use trapline_trace::d::Tables;

/// Bytes of strings that the functions of one clause may make.
const MOST_STRINGS: usize = 1 << 20;

/// Bytes after the last variable.
const SLACK: usize = 64;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Memory {
    variables: Vec<u8>,
    clause: Vec<u8>,
    /// Memory from `alloca()`.
    scratch: Vec<u8>,
    /// Strings that functions have made.
    strings: Vec<u8>,
}

/// The offset of an address in the part that begins at `base`.
fn offset(address: u64, base: u64) -> Option<usize> {
    let offset = address.checked_sub(base).filter(|offset| *offset < 1 << 40)?;
    usize::try_from(offset).ok()
}

impl Memory {
    pub fn new(tables: &Tables) -> Self {
        Self {
            // Zeroes follow the last variable, for reads past the end of an array through a pointer.
            variables: vec![0; tables.memory as usize + SLACK],
            clause: vec![0; tables.clause_memory as usize],
            ..Self::default()
        }
    }

    /// Whether a stored state is one that a program with these tables and this `scratchsize` can have.
    pub fn is_sound(&self, tables: &Tables, scratchsize: usize) -> bool {
        self.variables.len() == tables.memory as usize + SLACK
            && self.clause.len() == tables.clause_memory as usize
            && self.scratch.len() <= scratchsize.next_multiple_of(8)
            && self.strings.len() <= MOST_STRINGS
    }

    pub fn begin_clause(&mut self) {
        self.scratch.clear();
        self.strings.clear();
    }

    pub fn begin_firing(&mut self) {
        self.clause.fill(0);
    }

    /// The variables of the firing in progress.
    pub fn of_firing(&self) -> &[u8] {
        &self.clause
    }

    pub fn set_of_firing(&mut self, bytes: &[u8]) {
        if self.clause.len() == bytes.len() {
            self.clause.copy_from_slice(bytes);
        }
    }

    pub fn bytes<'m>(&'m self, address: u64, length: usize, tables: &'m Tables) -> Option<&'m [u8]> {
        self.bytes_from(address, tables).find_map(|part| part.get(..length))
    }

    /// D's own memory from an address to the end of its part.
    pub fn rest<'m>(&'m self, address: u64, tables: &'m Tables) -> Option<&'m [u8]> {
        self.bytes_from(address, tables).next()
    }

    fn bytes_from<'m>(&'m self, address: u64, tables: &'m Tables) -> impl Iterator<Item = &'m [u8]> {
        let parts: [(u64, &[u8]); 5] = [
            (d::STRINGS, &self.strings),
            (d::CONSTANTS, &tables.constants),
            (d::VARIABLES, &self.variables),
            (d::CLAUSE, &self.clause),
            (d::SCRATCH, &self.scratch),
        ];
        parts.into_iter().filter_map(move |(base, part)| part.get(offset(address, base)?..))
    }

    pub fn writable(&mut self, address: u64, length: usize) -> Option<&mut [u8]> {
        let parts = [
            (d::VARIABLES, &mut self.variables),
            (d::CLAUSE, &mut self.clause),
            (d::SCRATCH, &mut self.scratch),
        ];
        parts.into_iter().find_map(|(base, part)| part.get_mut(offset(address, base)?..)?.get_mut(..length))
    }

    /// Scratch memory, zeroed; `None` if there is no more.
    pub fn allocate(&mut self, size: u64, most: usize) -> Option<u64> {
        let at = self.scratch.len().next_multiple_of(8);
        let end = at.checked_add(usize::try_from(size).ok()?).filter(|_| size <= most as u64)?;
        // Rounding between two pieces is not counted against the program.
        if end > most.next_multiple_of(8) {
            return None;
        }
        self.scratch.resize(end, 0);
        Some(d::SCRATCH + at as u64)
    }

    /// Whether the memory that is allocated so far ends at this address.
    pub fn is_end_of_scratch(&self, address: u64) -> bool {
        address == d::SCRATCH + self.scratch.len() as u64
    }

    /// Keeps a string with its end until the clause ends; `None` if there is no more room.
    pub fn keep_text(&mut self, text: &[u8]) -> Option<u64> {
        let at = self.strings.len();
        if at + text.len() >= MOST_STRINGS {
            return None;
        }
        self.strings.extend_from_slice(text);
        self.strings.push(0);
        Some(d::STRINGS + at as u64)
    }

    /// Keeps bytes until the clause ends; `None` if there is no more room.
    pub fn keep(&mut self, bytes: &[u8]) -> Option<u64> {
        let at = self.strings.len();
        if at + bytes.len() > MOST_STRINGS {
            return None;
        }
        self.strings.extend_from_slice(bytes);
        Some(d::STRINGS + at as u64)
    }
}
