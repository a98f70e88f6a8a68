//! Finds the functions of a program without symbols.
//!
//! `main` is the argument that `_start` passes to the C library. Unwind tables (`.eh_frame`) give start and end of some
//! functions, but often not of the program's. The rest of the code is split by its instructions: a function begins at
//! the target of a call and after the end of another function; it ends at a return or a jump that no jump of the
//! function crosses. This is a guess, but every instruction is in exactly one function.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use trapline_emu::load::ElfView;
use trapline_emu::symbols::UserModule;

/// Most bytes of `_start` that are examined.
const START: usize = 64;
/// Type of the section that holds all symbols.
const SYMTAB: u32 = 2;

/// The executable sections of a stripped file except the linker's stubs, by address; empty if the file has symbols.
fn sections(module: &UserModule) -> Vec<Range<u64>> {
    let Ok(view) = ElfView::parse(module.bytes()) else { return Vec::new() };
    if view.sections().iter().any(|section| section.kind == SYMTAB) {
        return Vec::new();
    }
    let code = view.sections().iter().filter(|s| s.is_alloc() && s.is_executable());
    let code = code.filter(|section| !section.name.starts_with(".plt")).filter_map(|section| {
        let end = section.addr.checked_add(section.size)?;
        // Leave room after the last instruction, so that addresses do not overflow.
        (end < u64::MAX - 0x100).then_some(section.addr..end)
    });
    let mut found: Vec<_> = code.collect();
    found.sort_unstable_by_key(|range| range.start);
    found
}

/// The parts of the sections outside all functions; both are given by address.
fn gaps(sections: &[Range<u64>], functions: &[(u64, u64)]) -> Vec<Range<u64>> {
    let mut functions = functions.iter().peekable();
    let mut found = Vec::new();
    let mut at = 0;
    for section in sections {
        at = at.max(section.start);
        while let Some((start, size)) = functions.next_if(|(start, _)| *start < section.end) {
            if *start > at {
                found.push(at..*start);
            }
            at = at.max(start.saturating_add(*size));
        }
        if at < section.end {
            found.push(at..section.end);
            at = section.end;
        }
    }
    found
}

/// The functions that do not begin inside any of the others; both are given by address.
fn outside(functions: Vec<(u64, u64)>, others: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut others = others.iter().peekable();
    let mut reach = 0;
    let begins_outside = |(start, _): &(u64, u64)| {
        while let Some((from, size)) = others.next_if(|(from, _)| from <= start) {
            reach = reach.max(from.saturating_add(*size));
        }
        *start >= reach
    };
    functions.into_iter().filter(begins_outside).collect()
}

/// Address and size of the functions without a symbol, by address; `known` are those with one.
pub fn functions(module: &UserModule, known: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let sections = sections(module);
    if sections.is_empty() {
        return Vec::new();
    }
    let mut found = outside(module.frame_functions(), known);
    let mut taken = [&found, known].concat();
    taken.sort_unstable();
    let gaps = gaps(&sections, &taken);
    let mut starts: BTreeSet<u64> = main(module).into_iter().collect();
    for gap in &gaps {
        starts.extend(Code::new(module, gap.clone()).calls());
    }
    for gap in &gaps {
        Code::new(module, gap.clone()).split(&starts, &mut found);
    }
    found.sort_unstable();
    found
}

/// A range of code.
struct Code<'a> {
    start: u64,
    bytes: &'a [u8],
    bits: u32,
}

impl<'a> Code<'a> {
    /// The bytes of a range in the file.
    fn new(module: &'a UserModule, range: Range<u64>) -> Self {
        let len = usize::try_from(range.end - range.start).unwrap_or_default();
        let bytes = module.vaddr_to_offset(range.start).and_then(|offset| module.bytes_at(offset, len));
        Self { start: range.start, bytes: bytes.unwrap_or_default(), bits: module.width().bits() }
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// The instructions from an address on; a byte that does not decode counts as one instruction.
    fn from(&self, at: u64) -> impl Iterator<Item = Instruction> + use<'a> {
        let rest = usize::try_from(at.wrapping_sub(self.start)).ok().and_then(|into| self.bytes.get(into..));
        let mut decoder = Decoder::with_ip(self.bits, rest.unwrap_or_default(), at, DecoderOptions::NONE);
        std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
    }

    /// The targets of calls, inside the range or not.
    fn calls(&self) -> impl Iterator<Item = u64> + use<'a> {
        let near = |i: &Instruction| matches!(i.op0_kind(), OpKind::NearBranch32 | OpKind::NearBranch64);
        let calls = self.from(self.start).filter(move |i| i.flow_control() == FlowControl::Call && near(i));
        calls.map(|i| i.near_branch_target())
    }

    /// Splits the range into functions, which begin at `starts` and after the end of another function.
    fn split(&self, starts: &BTreeSet<u64>, found: &mut Vec<(u64, u64)>) {
        let mut at = self.start;
        while let Some(start) =
            self.from(at).find(|i| starts.contains(&i.ip()) || !is_padding(i)).map(|i| i.ip())
        {
            let next = starts.range(start + 1..).next().copied().unwrap_or(u64::MAX).min(self.end());
            let end = self.function_end(start, next).max(start + 1);
            found.push((start, end - start));
            at = end;
        }
    }

    /// The end of the function at `start`, which is not after `next`.
    fn function_end(&self, start: u64, next: u64) -> u64 {
        let mut furthest = start;
        for i in self.from(start) {
            let end = i.next_ip().min(next);
            if end == next {
                return next;
            }
            let to = i.near_branch_target();
            let ends = match i.flow_control() {
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
                    if (end..next).contains(&to) =>
                {
                    furthest = furthest.max(to);
                    false
                }
                FlowControl::UnconditionalBranch | FlowControl::Return => true,
                // HLT, UD2 and bytes that do not decode: execution does not continue.
                FlowControl::Exception => true,
                FlowControl::Next => i.mnemonic() == Mnemonic::Hlt,
                _ => false,
            };
            if ends && furthest < end {
                return end;
            }
        }
        next
    }
}

/// The padding that assemblers insert between functions.
fn is_padding(i: &Instruction) -> bool {
    let own_move = i.mnemonic() == Mnemonic::Xchg && i.op0_register() == i.op1_register();
    matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) || own_move
}

/// The first argument that `_start` passes to `__libc_start_main`: in RDI, or pushed last.
pub fn main(module: &UserModule) -> Option<u64> {
    let offset = module.vaddr_to_offset(module.entry()).filter(|_| module.entry() != 0)?;
    let bytes = (1..=START).rev().find_map(|len| module.bytes_at(offset, len))?;
    let mut decoder = Decoder::with_ip(module.width().bits(), bytes, module.entry(), DecoderOptions::NONE);
    let (mut held, mut argument) = (None, None);
    while decoder.can_decode() {
        let i = decoder.decode();
        match (i.mnemonic(), i.op0_kind()) {
            (Mnemonic::Mov | Mnemonic::Lea, OpKind::Register) => match i.op0_register().full_register() {
                Register::RDI if module.width().bits() == 64 => argument = value(&i),
                Register::RAX => held = value(&i),
                _ => {}
            },
            (Mnemonic::Push, OpKind::Register) => {
                argument = held.filter(|_| i.op0_register().full_register() == Register::RAX).or(argument);
            }
            (Mnemonic::Push, OpKind::Immediate32 | OpKind::Immediate8to32) if i.immediate(0) != 0 => {
                argument = Some(i.immediate(0));
            }
            _ => {}
        }
        match i.flow_control() {
            // On IA32 the first call only gets the address of the code.
            FlowControl::Call | FlowControl::IndirectCall if argument.is_some() => break,
            FlowControl::Next | FlowControl::Call => {}
            _ => return None,
        }
    }
    argument
        .filter(|to| module.vaddr_to_offset(*to).and_then(|at| module.is_executable_offset(at)) == Some(true))
}

/// The constant that a MOV or LEA loads into its register.
fn value(i: &Instruction) -> Option<u64> {
    match i.op1_kind() {
        OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64 => Some(i.immediate(1)),
        OpKind::Memory if i.mnemonic() == Mnemonic::Lea && i.is_ip_rel_memory_operand() => {
            Some(i.ip_rel_memory_address())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_split_at_targets_of_calls_and_after_ends() {
        // 0: je 4; ret; nop; ret | 5: (padding) | 6: call 0; ret | c: push rax, called; ret | e: xor eax,eax; hlt
        let bytes = [
            0x74, 2, 0xc3, 0x90, 0xc3, 0x90, 0xe8, 0xf5, 0xff, 0xff, 0xff, 0xc3, 0x50, 0xc3, 0x31, 0xc0, 0xf4,
        ];
        let code = Code { start: 0x1000, bytes: &bytes, bits: 64 };
        assert_eq!(code.calls().collect::<Vec<_>>(), [0x1000]);
        let mut found = Vec::new();
        code.split(&BTreeSet::from([0x1000, 0x100c, 0x5000]), &mut found);
        assert_eq!(found, [(0x1000, 5), (0x1006, 6), (0x100c, 2), (0x100e, 3)]);
    }

    #[test]
    fn gaps_are_the_parts_outside_all_functions() {
        let sections = [0x1000..0x1100, 0x2000..0x2010];
        let functions = [(0x0ff0, 0x20), (0x1020, 0x10), (0x1024, 4), (0x10f0, 0x20)];
        assert_eq!(gaps(&sections, &functions), [0x1010..0x1020, 0x1030..0x10f0, 0x2000..0x2010]);
    }
}
