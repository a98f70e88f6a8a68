//! The instructions of a function, including those after data in its code.
//!
//! Instructions are decoded one after the other from the first byte. Jump tables are skipped: a table is where a jump
//! reads its target, or data whose address position-independent code takes, as long as its entries lead into the
//! function. Bytes that do not decode are skipped up to the next target of a jump or a table; without one they end the
//! function. A kernel's own `lock nop`, which never completes, is skipped too.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// A static probe site of Solaris that is enabled: it raises #UD.
const LOCK_NOP: [u8; 2] = [0xf0, 0x90];
/// Most entries of one table.
const MOST_ENTRIES: usize = 4096;

/// The instructions of the code `bytes` at the address `start`, with their offsets, ascending.
pub fn instructions(bytes: &[u8], start: u64, bits: u32) -> Instructions<'_> {
    // One decoder is shared: constructing one costs more than decoding an instruction.
    let decoder = Decoder::with_ip(bits, bytes, start, DecoderOptions::NONE);
    let (targets, tables) = (Targets::default(), Vec::new());
    Instructions { bytes, start, bits, at: 0, decoder, instruction: Instruction::new(), targets, tables }
}

/// Where a direct jump or call leads to; 0 for other instructions. A far target is its offset, as in the flat segments
/// that kernels load.
pub fn branch_target(i: &Instruction) -> u64 {
    match (i.op_count() > 0).then(|| i.op0_kind()) {
        Some(OpKind::FarBranch16) => i.far_branch16().into(),
        Some(OpKind::FarBranch32) => i.far_branch32().into(),
        _ => i.near_branch_target(),
    }
}

/// See [`instructions`].
#[allow(missing_debug_implementations)] // The decoder has none.
pub struct Instructions<'a> {
    bytes: &'a [u8],
    start: u64,
    bits: u32,
    at: usize,
    /// Its position is `at`.
    decoder: Decoder<'a>,
    /// The last one.
    instruction: Instruction,
    targets: Targets,
    /// Offsets of tables.
    tables: Vec<Range<usize>>,
}

impl Iterator for Instructions<'_> {
    type Item = (usize, Instruction);

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().map(|(at, instruction)| (at, *instruction))
    }
}

impl Instructions<'_> {
    /// The next instruction, as the iterator returns it, but without a copy: copies cost noticeable time when whole
    /// kernels are read.
    pub fn advance(&mut self) -> Option<(usize, &Instruction)> {
        loop {
            if let Some(table) = self.tables.iter().find(|table| table.contains(&self.at)) {
                let end = table.end;
                self.go_to(end)?;
                continue;
            }
            if !self.decoder.can_decode() {
                return None;
            }
            self.decoder.decode_out(&mut self.instruction);
            if !self.instruction.is_invalid() {
                let at = self.at;
                self.at += self.instruction.len();
                self.look_at();
                return Some((at, &self.instruction));
            }
            let lock_nop = self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(&LOCK_NOP));
            let next = if lock_nop { self.at + LOCK_NOP.len() } else { self.targets.after(self.at)? };
            self.go_to(next)?;
        }
    }

    /// Continues at an offset. `None` if it is outside the code.
    fn go_to(&mut self, at: usize) -> Option<()> {
        self.decoder.set_position(at).ok()?;
        self.decoder.set_ip(self.start.wrapping_add(at as u64));
        self.at = at;
        Some(())
    }

    /// The offset of an address in the function.
    fn offset(&self, address: u64) -> Option<usize> {
        let mask = if self.bits == 32 { u64::from(u32::MAX) } else { u64::MAX };
        let offset = usize::try_from(address.wrapping_sub(self.start) & mask).ok()?;
        (offset < self.bytes.len()).then_some(offset)
    }

    /// Notes where the last instruction may lead to.
    fn look_at(&mut self) {
        let i = &self.instruction;
        match i.flow_control() {
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                if let Some(to) = self.offset(branch_target(i)) {
                    self.targets.add(to);
                }
            }
            // jmp [table + index * word]
            FlowControl::IndirectBranch
                if i.op0_kind() == OpKind::Memory
                    && i.memory_base() == Register::None
                    && i.memory_index() != Register::None =>
            {
                self.table(i.memory_displacement64(), Entry::Address);
            }
            // lea register, [rip + table]
            FlowControl::Next if i.mnemonic() == Mnemonic::Lea && i.is_ip_rel_memory_operand() => {
                self.table(i.ip_rel_memory_address(), Entry::Distance);
            }
            _ => {}
        }
    }

    /// Notes the jump table at an address, if there is one in the function.
    fn table(&mut self, address: u64, kind: Entry) {
        let Some(from) = self.offset(address).filter(|from| *from >= self.at) else { return };
        let size = if kind == Entry::Distance || self.bits == 32 { 4 } else { 8 };
        let mut end = from;
        while let Some(entry) = self.bytes.get(end..end + size) {
            let value = entry.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
            let target = match kind {
                Entry::Address => value,
                Entry::Distance => address.wrapping_add_signed(i64::from((value as u32).cast_signed())),
            };
            // The table ends where the code that it leads to begins.
            let Some(to) = self.offset(target).filter(|to| !(from..end + size).contains(to)) else { break };
            if (end - from) / size >= MOST_ENTRIES || self.targets.lead_into(from..end + size) {
                break;
            }
            self.targets.add(to);
            end += size;
        }
        if end > from {
            self.tables.push(from..end);
        }
    }
}

/// Offsets that jumps and tables lead to. Most code has no table and decodes without a gap, so they are sorted only on
/// the first query.
#[derive(Debug, Default)]
struct Targets {
    sorted: BTreeSet<usize>,
    added: Vec<usize>,
}

impl Targets {
    fn add(&mut self, at: usize) {
        self.added.push(at);
    }

    fn sorted(&mut self) -> &BTreeSet<usize> {
        self.sorted.extend(self.added.drain(..));
        &self.sorted
    }

    /// The first one after an offset.
    fn after(&mut self, at: usize) -> Option<usize> {
        self.sorted().range(at + 1..).next().copied()
    }

    /// Whether one of them is in a range.
    fn lead_into(&mut self, range: Range<usize>) -> bool {
        self.sorted().range(range).next().is_some()
    }
}

/// The kind of a table's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// Addresses.
    Address,
    /// Signed distances of 4 bytes from the table.
    Distance,
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
