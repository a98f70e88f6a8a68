//! Results for synthetic code, and for real kernels compared with a slow model.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::path::Path;

use trapline_emu::load::Image;
use trapline_emu::symbols::Symbols;

use super::*;

/// The same analysis in the simplest form: a decoder for each instruction, and one set of all targets.
struct Model<'a> {
    bytes: &'a [u8],
    start: u64,
    bits: u32,
    at: usize,
    /// Offsets that jumps and tables lead to.
    targets: BTreeSet<usize>,
    /// Offsets of tables.
    tables: Vec<Range<usize>>,
}

impl Iterator for Model<'_> {
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

impl Model<'_> {
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

/// Compares with the model; returns the number of instructions.
fn compare(bytes: &[u8], start: u64, bits: u32) -> usize {
    let (targets, tables) = (BTreeSet::new(), Vec::new());
    let mut model = Model { bytes, start, bits, at: 0, targets, tables };
    let mut count = 0;
    for (at, found) in instructions(bytes, start, bits) {
        let wanted = model.next();
        assert!(wanted.is_some_and(|(a, i)| a == at && i == found), "{start:#x}+{at:#x}: {wanted:?}");
        assert_eq!(found.ip(), start.wrapping_add(at as u64));
        count += 1;
    }
    assert_eq!(model.next(), None, "{start:#x}");
    count
}

/// Compares each function of a kernel with the model.
fn compare_kernel(file: &str, functions: usize, instructions: usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.guests").join(file);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; run `make guests`", path.display()));
    let image = Image::parse(&bytes, file).unwrap();
    let plan = image.plan();
    let symbols = match Symbols::from_kallsyms(&plan.image, file) {
        Ok(symbols) => symbols,
        Err(_) => Symbols::from_elf(image.bytes(), file).unwrap(),
    };
    let (mut compared, mut decoded) = (0, 0);
    for symbol in symbols.functions() {
        let Some(code) = plan.bytes_at(symbol.addr, symbol.size as usize) else { continue };
        decoded += compare(&code, symbol.addr, plan.width.bits());
        compared += 1;
    }
    println!("{file}: {compared} functions, {decoded} instructions");
    assert!(compared >= functions && decoded >= instructions, "{compared} functions, {decoded} instructions");
}

#[test]
fn guest_every_function_of_linux_is_as_in_the_model() {
    compare_kernel("linux-686", 30_000, 2_000_000);
}

#[test]
fn guest_every_function_of_gnu_mach_whose_tables_lie_in_code_is_as_in_the_model() {
    compare_kernel("gnumach.gz", 2_000, 100_000);
}

fn offsets(bytes: &[u8], bits: u32) -> Vec<usize> {
    instructions(bytes, 0x1000, bits).map(|(at, _)| at).collect()
}

#[test]
fn code_after_a_table_of_addresses_is_found() {
    // jmp [eax*4 + 0x1007]; two addresses; ret; nop; ret
    let mut bytes = vec![0xff, 0x24, 0x85, 0x07, 0x10, 0, 0];
    for to in [0x100fu32, 0x1011] {
        bytes.extend(to.to_le_bytes());
    }
    bytes.extend([0xc3, 0x90, 0xc3]);
    assert_eq!(offsets(&bytes, 32), [0, 15, 16, 17]);
}

#[test]
fn code_after_a_table_of_distances_is_found() {
    // lea rdx,[rip+9]; movsxd rax,[rdx+rax*4]; add rax,rdx; jmp rax; two distances from 0x1010; ret; ret
    let mut bytes = vec![0x48, 0x8d, 0x15, 9, 0, 0, 0, 0x48, 0x63, 0x04, 0x82, 0x48, 0x01, 0xd0, 0xff, 0xe0];
    for by in [8u32, 9] {
        bytes.extend(by.to_le_bytes());
    }
    bytes.extend([0xc3, 0xc3]);
    assert_eq!(offsets(&bytes, 64), [0, 7, 11, 14, 24, 25]);
    // Data that is not a table is decoded, because it cannot be told from code.
    bytes[16] = 0xff;
    assert_eq!(offsets(&bytes, 64)[..4], [0, 7, 11, 14]);
}

#[test]
fn undecodable_bytes_are_skipped_if_a_jump_leads_past_them() {
    // jmp +2; two undefined bytes; ret; one undefined byte; ret
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
