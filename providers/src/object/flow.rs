//! The instructions of a function, also those behind data that lies in its code.
//!
//! Instructions are decoded one after the other from the first byte. Jump tables are passed over: a table is where a jump
//! reads its target, or what position-independent code takes the address of, as long as its entries lead into the
//! function. What does not decode is passed over up to the next place that a jump or a table leads to; without one it ends
//! the function. A kernel's own `lock nop`, which never completes, is passed over too.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// A static probe site of Solaris that is enabled: it raises #UD.
const LOCK_NOP: [u8; 2] = [0xf0, 0x90];
/// Most entries of one table.
const MOST_ENTRIES: usize = 4096;

/// The instructions of the code `bytes` at the address `start`, with their offsets, ascending.
pub fn instructions(bytes: &[u8], start: u64, bits: u32) -> Instructions<'_> {
    let (targets, tables) = (BTreeSet::new(), Vec::new());
    Instructions { bytes, start, bits, at: 0, targets, tables }
}

/// See [`instructions`].
#[derive(Debug)]
pub struct Instructions<'a> {
    bytes: &'a [u8],
    start: u64,
    bits: u32,
    at: usize,
    /// Offsets that jumps and tables lead to.
    targets: BTreeSet<usize>,
    /// Offsets of tables.
    tables: Vec<Range<usize>>,
}

impl Iterator for Instructions<'_> {
    type Item = (usize, Instruction);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(table) = self.tables.iter().find(|table| table.contains(&self.at)) {
                self.at = table.end;
                continue;
            }
            let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
            let ip = self.start.wrapping_add(self.at as u64);
            let instruction = Decoder::with_ip(self.bits, rest, ip, DecoderOptions::NONE).decode();
            if !instruction.is_invalid() {
                let at = self.at;
                self.at += instruction.len();
                self.look_at(&instruction);
                return Some((at, instruction));
            }
            self.at = match rest.starts_with(&LOCK_NOP) {
                true => self.at + LOCK_NOP.len(),
                false => self.targets.range(self.at + 1..).next().copied()?,
            };
        }
    }
}

impl Instructions<'_> {
    /// The offset of an address in the function.
    fn offset(&self, address: u64) -> Option<usize> {
        let mask = if self.bits == 32 { u64::from(u32::MAX) } else { u64::MAX };
        let offset = usize::try_from(address.wrapping_sub(self.start) & mask).ok()?;
        (offset < self.bytes.len()).then_some(offset)
    }

    /// Notes where an instruction may lead to.
    fn look_at(&mut self, i: &Instruction) {
        match i.flow_control() {
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                if let Some(to) = self.offset(i.near_branch_target()) {
                    self.targets.insert(to);
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

    /// Notes the table at an address, if it is in the function and one.
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
            if (end - from) / size >= MOST_ENTRIES || self.targets.range(from..end + size).next().is_some() {
                break;
            }
            self.targets.insert(to);
            end += size;
        }
        if end > from {
            self.tables.push(from..end);
        }
    }
}

/// What a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// Addresses.
    Address,
    /// Signed distances of 4 bytes from the table.
    Distance,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(bytes: &[u8], bits: u32) -> Vec<usize> {
        instructions(bytes, 0x1000, bits).map(|(at, _)| at).collect()
    }

    #[test]
    fn code_behind_a_table_of_addresses_is_found() {
        // jmp [eax*4 + 0x1007]; two addresses; ret; nop; ret
        let mut bytes = vec![0xff, 0x24, 0x85, 0x07, 0x10, 0, 0];
        for to in [0x100fu32, 0x1011] {
            bytes.extend(to.to_le_bytes());
        }
        bytes.extend([0xc3, 0x90, 0xc3]);
        assert_eq!(offsets(&bytes, 32), [0, 15, 16, 17]);
    }

    #[test]
    fn code_behind_a_table_of_distances_is_found() {
        // lea rdx,[rip+9]; movsxd rax,[rdx+rax*4]; add rax,rdx; jmp rax; two distances from 0x1010; ret; ret
        let mut bytes =
            vec![0x48, 0x8d, 0x15, 9, 0, 0, 0, 0x48, 0x63, 0x04, 0x82, 0x48, 0x01, 0xd0, 0xff, 0xe0];
        for by in [8u32, 9] {
            bytes.extend(by.to_le_bytes());
        }
        bytes.extend([0xc3, 0xc3]);
        assert_eq!(offsets(&bytes, 64), [0, 7, 11, 14, 24, 25]);
        // Data that is no table is decoded: nobody knows what it is.
        bytes[16] = 0xff;
        assert_eq!(offsets(&bytes, 64)[..4], [0, 7, 11, 14]);
    }

    #[test]
    fn what_does_not_decode_is_passed_over_where_a_jump_leads_behind_it() {
        // jmp +2; two bytes that are nothing; ret; one that is nothing; ret
        assert_eq!(offsets(&[0xeb, 2, 0xff, 0xff, 0xc3, 0x06, 0xc3], 64), [0, 4]);
        // lock nop; ret
        assert_eq!(offsets(&[0x90, 0xf0, 0x90, 0xc3], 32), [0, 3]);
    }

    #[test]
    fn any_bytes_end() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..2000 {
            let mut bytes = vec![0; 256];
            for byte in &mut bytes {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *byte = state as u8;
            }
            for bits in [32, 64] {
                let found = offsets(&bytes, bits);
                assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
    }
}
