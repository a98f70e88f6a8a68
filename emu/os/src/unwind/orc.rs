//! ORC: the unwind tables of Linux on x86-64, which give for each instruction the caller's frame.
//!
//! Two parallel arrays: where an entry begins, as an i32 relative to itself, and the entry, 6 bytes: two offsets, then 16
//! bits (arch/x86/include/asm/orc_types.h). The rules are those of Documentation/x86/orc-unwinder.rst.
//!
//! ```text
//! bits         0 to 3    4 to 7    8 and 9                      10 or 11
//! up to 6.3    SP base   BP base   call, regs, partial regs     end
//! bits         0 to 3    4 to 7    8 to 10                      11
//! from 6.4     SP base   BP base   undefined, end, call, ..     signal
//! ```
//!
//! The numbers of the bases are others in 7.2 than up to 6.12. Both forms are found by the entries, as nearly all of them are
//! of calls, whose frame is above the stack pointer.

use std::ops::Range;

use trapline_emu::symbols::Btf;

use super::{BP, Edge, Memory, SP, State, Step};

/// Bytes of an entry.
const ENTRY: usize = 6;
/// The bit of `end` in the 16 bits of an entry of Linux 5.10.
const END_BIT: u64 = 10;
/// Most entries of one table.
const MAX_ENTRIES: usize = 1 << 22;

/// The base from which a register is restored or the stack pointer is computed (ORC_REG_*).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Undefined,
    PrevSp,
    Register(usize),
    BpIndirect,
    SpIndirect,
    Unknown,
}

/// The bases by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bases([Base; 11]);

/// Of 6.12 and before.
const OLD: Bases = Bases([
    Base::Undefined,
    Base::PrevSp,
    Base::Register(2),
    Base::Register(7),
    Base::Register(BP),
    Base::Register(SP),
    Base::Register(10),
    Base::Register(13),
    Base::BpIndirect,
    Base::SpIndirect,
    Base::Unknown,
]);
/// Of 7.2.
const NEW: Bases = Bases([
    Base::Undefined,
    Base::Register(0),
    Base::Register(2),
    Base::Register(SP),
    Base::Register(BP),
    Base::Register(7),
    Base::Register(10),
    Base::Register(13),
    Base::PrevSp,
    Base::SpIndirect,
    Base::BpIndirect,
]);

impl Bases {
    /// Those under which more than half of the entries with a base have the stack pointer.
    fn of_entries(entries: &[u8]) -> Option<Self> {
        let (entries, _) = entries.as_chunks::<ENTRY>();
        let based =
            |base: Base, of: Self| entries.iter().filter(|entry| of.get(entry[4].into()) == base).count();
        let all = entries.len() - based(Base::Undefined, OLD);
        [OLD, NEW].into_iter().find(|of| based(Base::Register(SP), *of) > all / 2)
    }

    fn get(self, code: u16) -> Base {
        self.0.get(usize::from(code & 15)).copied().unwrap_or(Base::Unknown)
    }
}

/// The form of a kernel's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    kinds: Kinds,
    bases: Bases,
}

impl Form {
    /// The form by BTF, if there is some, and by the entries themselves; `None` if it is none that is known.
    pub(super) fn of(btf: Option<&Btf>, entries: &[u8]) -> Option<Self> {
        let kinds = match btf {
            Some(btf) => Kinds::from_btf(btf),
            None => Kinds::of_entries(entries),
        }?;
        Some(Self { kinds, bases: Bases::of_entries(entries)? })
    }
}

/// Where the kind of frame is in an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kinds {
    /// Two bits for the kind of frame, and at this bit whether the stack ends there.
    EndBit(u64),
    /// Three bits for the kind, two of which stand for an unknown frame and for the end.
    Kinds,
}

impl Kinds {
    /// The form by BTF; `None` if it is neither.
    fn from_btf(btf: &Btf) -> Option<Self> {
        // After two offsets of 16 bits.
        let bit = |path: &str| {
            let member = btf.member("orc_entry", path)?;
            Some((member.bit_offset.checked_sub(32).filter(|bit| *bit < 16)?, member.bits))
        };
        match (bit("end"), bit("type")) {
            (Some((end, _)), Some((8, Some(2)))) => Some(Self::EndBit(end)),
            (None, Some((8, Some(3)))) => Some(Self::Kinds),
            _ => None,
        }
    }

    /// The form by the entries themselves: nearly all are of calls, which are kind 0 in one form and 2 in the other.
    fn of_entries(entries: &[u8]) -> Option<Self> {
        let (entries, _) = entries.as_chunks::<ENTRY>();
        let kinds = |kind: u8| entries.iter().filter(|entry| entry[5] & 7 == kind).count();
        let most = entries.len() / 2;
        match (kinds(0) > most, kinds(2) > most) {
            (true, false) => Some(Self::EndBit(END_BIT)),
            (false, true) => Some(Self::Kinds),
            _ => None,
        }
    }

    /// The kind of frame.
    fn kind(self, flags: u16) -> Kind {
        match self {
            Self::EndBit(bit) if flags & 15 == 0 => {
                if flags >> bit & 1 != 0 {
                    Kind::End
                } else {
                    Kind::Undefined
                }
            }
            Self::EndBit(_) => match flags >> 8 & 3 {
                0 => Kind::Call,
                1 => Kind::Registers,
                2 => Kind::Partial,
                _ => Kind::Undefined,
            },
            Self::Kinds => match flags >> 8 & 7 {
                1 => Kind::End,
                2 => Kind::Call,
                3 => Kind::Registers,
                4 => Kind::Partial,
                _ => Kind::Undefined,
            },
        }
    }
}

/// What is at the stack pointer that an entry leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing that is known.
    Undefined,
    /// Nothing: it is the first frame.
    End,
    /// A return address, below it.
    Call,
    /// `struct pt_regs`.
    Registers,
    /// The part of it that the CPU has pushed.
    Partial,
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    sp_offset: i16,
    bp_offset: i16,
    sp_base: Base,
    bp_base: Base,
    kind: Kind,
}

/// The offsets of `ip`, `cs` and `sp` in the frame that IRET takes, bytes.
const IRET: [i64; 3] = [0, 8, 24];
/// Where that is in `struct pt_regs`: after 15 general registers and the original RAX.
const REGS: i64 = 16 * 8;
/// The general registers of `struct pt_regs` in its order (arch/x86/include/asm/ptrace.h), by the machine's numbers.
pub(crate) const ORDER: [usize; 15] = [15, 14, 13, 12, 5, 3, 11, 10, 9, 8, 0, 1, 2, 6, 7];

impl Entry {
    fn new(bytes: &[u8; ENTRY], form: Form) -> Self {
        let [a, b, c, d, e, f] = *bytes;
        let flags = u16::from_le_bytes([e, f]);
        Self {
            sp_offset: i16::from_le_bytes([a, b]),
            bp_offset: i16::from_le_bytes([c, d]),
            sp_base: form.bases.get(flags),
            bp_base: form.bases.get(flags >> 4),
            kind: form.kinds.kind(flags),
        }
    }

    fn edge(&self) -> Option<Edge> {
        match self.kind {
            Kind::Registers | Kind::Partial => Some(Edge::Interrupts),
            Kind::End => Some(Edge::Ends),
            Kind::Call | Kind::Undefined => None,
        }
    }

    /// Goes to the caller, or to the code that an interrupt or exception has interrupted.
    pub(super) fn step(&self, memory: &dyn Memory, state: &mut State) -> Step {
        match self.kind {
            Kind::Undefined => Step::Lost,
            Kind::End => Step::End,
            _ => self.caller(memory, state).unwrap_or(Step::Lost),
        }
    }

    fn caller(&self, memory: &dyn Memory, state: &mut State) -> Option<Step> {
        let offset = i64::from(self.sp_offset);
        let sp = match self.sp_base {
            Base::Register(n @ (SP | BP)) => memory.add(state.gpr[n]?, offset),
            Base::Register(n) => state.gpr[n]?,
            Base::SpIndirect => memory.add(memory.word(state.sp()?)?, offset),
            Base::BpIndirect => memory.word(memory.add(state.bp()?, offset))?,
            Base::Undefined | Base::PrevSp | Base::Unknown => return None,
        };
        match self.kind {
            Kind::Call => {
                let ip = memory.word(memory.add(sp, -8))?;
                state.return_to(ip, sp);
                // A callee may have changed every register that the entry does not restore.
                for (n, value) in state.gpr.iter_mut().enumerate() {
                    *value = value.filter(|_| n == SP || n == BP);
                }
            }
            Kind::Registers => {
                let saved = ORDER.map(|n| (n, memory.word(memory.add(sp, slot(n)))));
                if !interrupted(memory, state, memory.add(sp, REGS))? {
                    return Some(Step::End);
                }
                for (n, value) in saved {
                    state.gpr[n] = Some(value?);
                }
            }
            Kind::Partial => {
                if !interrupted(memory, state, sp)? {
                    return Some(Step::End);
                }
            }
            Kind::Undefined | Kind::End => return None,
        }
        let offset = i64::from(self.bp_offset);
        state.gpr[BP] = match self.bp_base {
            Base::Undefined => state.bp(),
            Base::PrevSp => Some(memory.word(memory.add(sp, offset))?),
            Base::Register(BP) => Some(memory.word(memory.add(state.bp()?, offset))?),
            _ => return None,
        };
        Some(Step::Caller)
    }
}

/// Where `struct pt_regs` has a register.
fn slot(register: usize) -> i64 {
    ORDER.iter().position(|n| *n == register).unwrap_or_default() as i64 * 8
}

/// Goes to the code to which IRET would return by the frame at `at`; returns whether that is the kernel's.
fn interrupted(memory: &dyn Memory, state: &mut State, at: u64) -> Option<bool> {
    let [ip, cs, sp] = IRET.map(|offset| memory.word(memory.add(at, offset)));
    let (ip, cs, sp) = (ip?, cs?, sp?);
    if cs & 3 == 3 {
        return Some(false);
    }
    state.return_to(ip, sp);
    state.exact = true;
    Some(true)
}

/// The entries of a kernel or module, by address.
#[derive(Debug, Clone, Default)]
pub(super) struct OrcTable {
    starts: Vec<u64>,
    entries: Vec<Entry>,
}

impl OrcTable {
    /// The table of `.orc_unwind_ip`, loaded at `at`, and `.orc_unwind`; surplus entries of either are left out.
    pub(super) fn new(ips: &[u8], at: u64, entries: &[u8], form: Form) -> Self {
        let start = |(place, ip): (u64, &[u8; 4])| place.wrapping_add_signed(i32::from_le_bytes(*ip).into());
        let places = (0..).map(|n| at.wrapping_add(4 * n));
        let starts = places.zip(ips.as_chunks().0).map(start);
        let entries = entries.as_chunks().0.iter().map(|bytes| Entry::new(bytes, form));
        let mut all: Vec<(u64, Entry)> = starts.zip(entries).take(MAX_ENTRIES).collect();
        // Linux sorts its own when it is built. Of entries at one place the last non-empty one counts.
        if !all.is_sorted_by_key(|(start, _)| *start) {
            all.sort_by_key(|(start, entry)| (*start, entry.kind != Kind::Undefined));
        }
        let (starts, entries) = all.into_iter().unzip();
        Self { starts, entries }
    }

    /// Where the caller is interrupted code, and where there is none.
    pub(super) fn edges(&self) -> Vec<(Range<u64>, Edge)> {
        let mut found: Vec<(Range<u64>, Edge)> = Vec::new();
        let ends = self.starts.iter().skip(1);
        for ((start, end), entry) in self.starts.iter().zip(ends).zip(&self.entries) {
            let Some(edge) = entry.edge() else { continue };
            match found.last_mut().filter(|(range, last)| range.end == *start && *last == edge) {
                Some((range, _)) => range.end = *end,
                None => found.push((*start..*end, edge)),
            }
        }
        found
    }

    /// The entry for the instruction that holds `ip`.
    pub(super) fn find(&self, ip: u64) -> Option<&Entry> {
        let next = self.starts.partition_point(|start| *start <= ip);
        self.entries.get(next.checked_sub(1)?)
    }
}

#[cfg(test)]
#[path = "orc_tests.rs"]
mod tests;
