//! ORC: the unwind tables of Linux on x86-64, which give for each instruction the caller's frame.
//!
//! Two parallel arrays: where an entry begins, as an i32 relative to itself, and the entry, 6 bytes. The layout is that of
//! Linux 6.1 (arch/x86/include/asm/orc_types.h), the rules are those of Documentation/x86/orc-unwinder.rst.

use super::{BP, Memory, SP, State, Step};

/// Bytes of an entry.
const ENTRY: usize = 6;
/// The bit of `end` in an entry's flags, as Linux 6.1 has it.
pub(super) const END_BIT: u64 = 10;
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

impl Base {
    fn new(code: u16) -> Self {
        match code & 15 {
            0 => Self::Undefined,
            1 => Self::PrevSp,
            2 => Self::Register(2),
            3 => Self::Register(7),
            4 => Self::Register(BP),
            5 => Self::Register(SP),
            6 => Self::Register(10),
            7 => Self::Register(13),
            8 => Self::BpIndirect,
            9 => Self::SpIndirect,
            _ => Self::Unknown,
        }
    }
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    sp_offset: i16,
    bp_offset: i16,
    flags: u16,
    end: bool,
}

/// The offsets of `ip`, `cs` and `sp` in the frame that IRET takes, bytes.
const IRET: [i64; 3] = [0, 8, 24];
/// Where that is in `struct pt_regs`: after 15 general registers and the original RAX.
const REGS: i64 = 16 * 8;
/// The general registers of `struct pt_regs` in its order (arch/x86/include/asm/ptrace.h), by the machine's numbers.
pub(crate) const ORDER: [usize; 15] = [15, 14, 13, 12, 5, 3, 11, 10, 9, 8, 0, 1, 2, 6, 7];

impl Entry {
    fn new(bytes: &[u8; ENTRY], end_bit: u64) -> Self {
        let [a, b, c, d, e, f] = *bytes;
        let flags = u16::from_le_bytes([e, f]);
        Self {
            sp_offset: i16::from_le_bytes([a, b]),
            bp_offset: i16::from_le_bytes([c, d]),
            flags,
            end: u64::from(flags) >> end_bit & 1 != 0,
        }
    }

    fn undefined(&self) -> bool {
        Base::new(self.flags) == Base::Undefined
    }

    /// Goes to the caller, or to the code that an interrupt or exception has interrupted.
    pub(super) fn step(&self, memory: &dyn Memory, state: &mut State) -> Step {
        if self.undefined() {
            return if self.end { Step::End } else { Step::Lost };
        }
        self.caller(memory, state).unwrap_or(Step::Lost)
    }

    fn caller(&self, memory: &dyn Memory, state: &mut State) -> Option<Step> {
        let offset = i64::from(self.sp_offset);
        let sp = match Base::new(self.flags) {
            Base::Register(n @ (SP | BP)) => memory.add(state.gpr[n]?, offset),
            Base::Register(n) => state.gpr[n]?,
            Base::SpIndirect => memory.add(memory.word(state.sp()?)?, offset),
            Base::BpIndirect => memory.word(memory.add(state.bp()?, offset))?,
            Base::Undefined | Base::PrevSp | Base::Unknown => return None,
        };
        match self.flags >> 8 & 3 {
            0 => {
                let ip = memory.word(memory.add(sp, -8))?;
                state.return_to(ip, sp);
                // A callee may have changed every register that the entry does not restore.
                for (n, value) in state.gpr.iter_mut().enumerate() {
                    *value = value.filter(|_| n == SP || n == BP);
                }
            }
            1 => {
                let saved = ORDER.map(|n| (n, memory.word(memory.add(sp, slot(n)))));
                if !interrupted(memory, state, memory.add(sp, REGS))? {
                    return Some(Step::End);
                }
                for (n, value) in saved {
                    state.gpr[n] = Some(value?);
                }
            }
            2 => {
                if !interrupted(memory, state, sp)? {
                    return Some(Step::End);
                }
            }
            _ => return None,
        }
        let offset = i64::from(self.bp_offset);
        state.gpr[BP] = match Base::new(self.flags >> 4) {
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
    pub(super) fn new(ips: &[u8], at: u64, entries: &[u8], end_bit: u64) -> Self {
        let start = |(place, ip): (u64, &[u8; 4])| place.wrapping_add_signed(i32::from_le_bytes(*ip).into());
        let places = (0..).map(|n| at.wrapping_add(4 * n));
        let starts = places.zip(ips.as_chunks().0).map(start);
        let entries = entries.as_chunks().0.iter().map(|bytes| Entry::new(bytes, end_bit));
        let mut all: Vec<(u64, Entry)> = starts.zip(entries).take(MAX_ENTRIES).collect();
        // Linux sorts its own when it is built. Of entries at one place the last non-empty one counts.
        if !all.is_sorted_by_key(|(start, _)| *start) {
            all.sort_by_key(|(start, entry)| (*start, !entry.undefined() || entry.end));
        }
        let (starts, entries) = all.into_iter().unzip();
        Self { starts, entries }
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
