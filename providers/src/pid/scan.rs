//! The instructions of a function, and those that leave it (docs/providers.md, "pid").

use iced_x86::{FlowControl, Instruction, Mnemonic};

use crate::object::flow::{branch_target, instructions};

/// A function's code.
#[derive(Debug, Clone, Copy)]
pub struct Code<'a> {
    /// Its address as linked.
    pub start: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// 32 or 64.
    pub bits: u32,
}

/// An instruction that leaves a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Bytes from the function's start.
    pub at: u64,
    /// The rule that found it.
    pub rule: &'static str,
    /// Whether it may also stay in the function: a jump whose target or condition is known only at run time.
    pub may_stay: bool,
    /// Whether it is a jump to another function, which returns in place of this one.
    pub tail_call: bool,
}

impl Code<'_> {
    /// The decoded instructions, with their offsets.
    pub fn instructions(&self) -> impl Iterator<Item = (u64, Instruction)> {
        instructions(self.bytes, self.start, self.bits).map(|(at, i)| (at as u64, i))
    }

    /// Start of the instruction that contains `offset`, and of the next one; the first equals `offset` if that is
    /// the first byte of an instruction. `None` after bytes that do not decode.
    pub fn around(&self, offset: u64) -> Option<(u64, u64)> {
        let ends = |(at, i): (u64, Instruction)| (at, at + i.len() as u64);
        self.instructions().map(ends).find(|(_, end)| *end > offset)
    }

    /// The instructions that leave the function, by address. `are_one` says whether a jump's target belongs to the
    /// function although it lies elsewhere.
    pub fn exits(&self, are_one: impl Fn(u64) -> bool) -> Vec<Exit> {
        let end = self.start.saturating_add(self.bytes.len() as u64);
        let leads_out = |i: &Instruction| {
            let to = branch_target(i);
            to != 0 && !(self.start..end).contains(&to) && !are_one(to)
        };
        let exit = |(at, i): (u64, Instruction)| {
            let (rule, may_stay) = match i.flow_control() {
                FlowControl::Return if i.mnemonic() != Mnemonic::Ret => return None,
                FlowControl::Return if i.op_count() > 0 => ("ret imm16", false),
                FlowControl::Return => ("ret", false),
                FlowControl::UnconditionalBranch if leads_out(&i) => ("jmp out", false),
                FlowControl::ConditionalBranch if leads_out(&i) => ("conditional jump out", true),
                FlowControl::IndirectBranch if i.mnemonic() == Mnemonic::Jmp => ("indirect jump", true),
                _ => return None,
            };
            Some(Exit { at, rule, may_stay, tail_call: i.flow_control() != FlowControl::Return })
        };
        self.instructions().filter_map(exit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exits(bytes: &[u8], bits: u32) -> Vec<(u64, &'static str, bool)> {
        let code = Code { start: 0x1000, bytes, bits };
        code.exits(|to| to == 0x2000).iter().map(|exit| (exit.at, exit.rule, exit.may_stay)).collect()
    }

    #[test]
    fn all_forms_of_return_leave() {
        // ret; ret 8; rep ret; bnd ret; not retf; not iret
        let bytes = [0xc3, 0xc2, 8, 0, 0xf3, 0xc3, 0xf2, 0xc3, 0xcb, 0xcf];
        let wanted = [(0, "ret", false), (1, "ret imm16", false), (4, "ret", false), (6, "ret", false)];
        assert_eq!(exits(&bytes, 64), wanted);
        assert_eq!(exits(&bytes, 32), wanted);
    }

    #[test]
    fn jumps_out_leave_and_jumps_within_do_not() {
        // je +2 (within); je +0x70 (out); jmp -2 (itself); jmp +0x70 (out); jmp rax; call +0; jmp 0x2000 (its own part)
        let mut bytes = vec![0x74, 2, 0x74, 0x70, 0xeb, 0xfe, 0xeb, 0x70, 0xff, 0xe0, 0xe8, 0, 0, 0, 0, 0xe9];
        bytes.extend((0x2000u32 - 0x1000 - 20).to_le_bytes());
        let wanted = [(2, "conditional jump out", true), (6, "jmp out", false), (8, "indirect jump", true)];
        assert_eq!(exits(&bytes, 64), wanted);
    }

    #[test]
    fn offsets_are_distinguished_from_the_middle_of_instructions() {
        // mov eax, imm32; ret; an undefined byte
        let code = Code { start: 0x1000, bytes: &[0xb8, 1, 2, 3, 4, 0xc3, 0x06, 0x90], bits: 64 };
        assert_eq!(code.around(0), Some((0, 5)));
        assert_eq!(code.around(3), Some((0, 5)));
        assert_eq!(code.around(5), Some((5, 6)));
        assert_eq!(code.around(6), None);
    }
}
