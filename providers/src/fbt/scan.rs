//! Finds the entry and the returns of a function in its bytes (docs/providers.md, "fbt").
//!
//! A byte that may belong to a jump table, because a value over it is a pointer into the function, is not a site.

use iced_x86::{FlowControl, Instruction, Mnemonic};

use crate::object::flow::{Instructions, branch_target, instructions};
use crate::target::Rules;

/// `push ebp` or `push rbp`.
const PUSH_BP: u8 = 0x55;
/// `pop ebp`.
const POP_BP: u8 = 0x5d;
const LEAVE: u8 = 0xc9;
const RET: u8 = 0xc3;
const RET_IMM: u8 = 0xc2;
/// Bytes of an `endbr`.
const ENDBR: usize = 4;
/// Bytes of a `call __fentry__`, or of the NOP that it becomes.
const FENTRY: usize = 5;
/// The rule of a jump to another function, which returns in place of this one.
pub const TAIL_JMP: &str = "tail jmp";

/// A site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Offset of the patched byte from the function's start.
    pub at: u64,
    /// The byte there.
    pub byte: u8,
    /// The instruction that ends the function; for an entry the site.
    pub offset: u64,
    /// The rule that found it.
    pub rule: &'static str,
}

/// A function's bytes.
#[derive(Debug, Clone, Copy)]
pub struct Body<'a> {
    /// Its address.
    pub start: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// 32 or 64.
    pub bits: u32,
}

/// Classifies the target of a jump.
pub trait Targets {
    /// Whether the function at `start` and the code at `to` are one: a function and the cold part that was split off
    /// it.
    fn same_function(&self, start: u64, to: u64) -> bool;
    /// Whether `to` is a return thunk of the kernel: a jump there is a `ret`.
    fn is_return_thunk(&self, to: u64) -> bool;
    /// Whether `to` is in code that tests a processor feature for another function and jumps back.
    fn is_test(&self, to: u64) -> bool;
}

impl Body<'_> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    /// The instructions that were decoded, with their offsets.
    fn instructions(&self) -> Instructions<'_> {
        instructions(self.bytes, self.start, self.bits)
    }

    /// The entry of the function.
    pub fn entry(&self, rules: Rules) -> Option<Found> {
        let found = |at: usize, rule| {
            let byte = self.byte(at)?;
            Some(Found { at: at as u64, byte, offset: at as u64, rule })
        };
        match rules {
            Rules::Full => found(0, self.begins()),
            Rules::Strict if self.bits == 32 => {
                let framed = matches!(self.bytes, [PUSH_BP, 0x8b, 0xec, ..] | [PUSH_BP, 0x89, 0xe5, ..]);
                if framed { found(0, "push ebp; mov ebp,esp") } else { None }
            }
            Rules::Strict => {
                let (at, _) = self.instructions().find(|(at, _)| self.byte(*at) == Some(PUSH_BP))?;
                found(at, "push rbp")
            }
        }
    }

    /// The beginning of a function.
    fn begins(&self) -> &'static str {
        let endbr = matches!(self.bytes, [0xf3, 0x0f, 0x1e, 0xfa | 0xfb, ..]);
        let rest = self.bytes.get(if endbr { ENDBR } else { 0 }..).unwrap_or_default();
        let fentry = rest.len() >= FENTRY
            && matches!(rest, [0xe8, ..] | [0x0f, 0x1f, 0x44, 0, 0, ..] | [0x3e, 0x8d, 0x74, 0x26, 0, ..]);
        match (endbr, fentry, rest) {
            (true, true, _) => "endbr; fentry",
            (true, ..) => "endbr",
            (_, true, _) => "fentry",
            (.., [PUSH_BP, 0x8b, 0xec, ..] | [PUSH_BP, 0x89, 0xe5, ..]) => "push ebp; mov ebp,esp",
            (.., [PUSH_BP, 0x48, 0x89, 0xe5, ..] | [PUSH_BP, 0x48, 0x8b, 0xec, ..]) => {
                "push rbp; mov rbp,rsp"
            }
            _ => "first byte",
        }
    }

    /// The returns of the function, by address.
    pub fn returns(&self, rules: Rules, targets: &dyn Targets) -> Vec<Found> {
        match rules {
            Rules::Full => self.all_returns(targets),
            Rules::Strict if self.bits == 32 => self.framed_returns(),
            Rules::Strict => {
                let from = self.entry(rules).map_or(usize::MAX, |entry| entry.at as usize);
                let rets = self.instructions().filter(|(at, _)| *at >= from && self.byte(*at) == Some(RET));
                rets.filter_map(|(at, _)| self.site(at, at, "ret")).collect()
            }
        }
    }

    /// DTrace's on IA32: `leave` or `pop ebp` before a `ret`, in functions with a frame pointer.
    fn framed_returns(&self) -> Vec<Found> {
        if self.entry(Rules::Strict).is_none() {
            return Vec::new();
        }
        let sites = self.instructions().filter(|(_, i)| i.len() == 1).filter_map(|(at, _)| {
            let rule = match (self.byte(at)?, self.byte(at + 1)?) {
                (LEAVE, RET | RET_IMM) => "leave; ret",
                (POP_BP, RET | RET_IMM) => "pop ebp; ret",
                _ => return None,
            };
            self.site(at, at + 1, rule)
        });
        sites.collect()
    }

    fn all_returns(&self, targets: &dyn Targets) -> Vec<Found> {
        let (mut instructions, mut sites) = (self.instructions(), Vec::new());
        while let Some((at, instruction)) = instructions.advance() {
            if let Some(rule) = self.leaves_by(instruction, targets) {
                sites.extend(self.site(at, at, rule));
            }
        }
        sites
    }

    /// The rule by which an instruction leaves the function, if it does.
    fn leaves_by(&self, i: &Instruction, targets: &dyn Targets) -> Option<&'static str> {
        match (i.flow_control(), i.mnemonic()) {
            (FlowControl::Return, Mnemonic::Ret) if i.op_count() > 0 => Some("ret imm16"),
            (FlowControl::Return, Mnemonic::Ret) => Some("ret"),
            (FlowControl::UnconditionalBranch, Mnemonic::Jmp) => {
                let to = branch_target(i);
                let end = self.start.saturating_add(self.bytes.len() as u64);
                match (self.start..end).contains(&to) {
                    false if targets.is_return_thunk(to) => Some("return thunk"),
                    false if targets.is_test(to) || targets.same_function(self.start, to) => None,
                    false => Some(TAIL_JMP),
                    true => None,
                }
            }
            _ => None,
        }
    }

    /// A return's site, unless it may lie in a jump table.
    fn site(&self, at: usize, ret: usize, rule: &'static str) -> Option<Found> {
        let byte = self.byte(at).filter(|_| !self.in_jump_table(at))?;
        Some(Found { at: at as u64, byte, offset: ret as u64, rule })
    }

    /// Whether the byte belongs to a value that is a pointer into the function.
    fn in_jump_table(&self, at: usize) -> bool {
        let word = self.bits as usize / 8;
        let end = self.start.saturating_add(self.bytes.len() as u64);
        (0..word).filter_map(|before| at.checked_sub(before)).any(|from| {
            let Some(bytes) = self.bytes.get(from..from + word) else { return false };
            let value = bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
            (self.start..end).contains(&value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cold part at 0x2000, a return thunk at 0x3000, a test at 0x5000.
    struct Known;

    impl Targets for Known {
        fn same_function(&self, _: u64, to: u64) -> bool {
            to == 0x2000
        }
        fn is_return_thunk(&self, to: u64) -> bool {
            to == 0x3000
        }
        fn is_test(&self, to: u64) -> bool {
            to == 0x5000
        }
    }

    fn body(bytes: &[u8], bits: u32) -> Body<'_> {
        Body { start: 0x1000, bytes, bits }
    }

    fn returns(bytes: &[u8], bits: u32, rules: Rules) -> Vec<(u64, u64, &'static str)> {
        body(bytes, bits)
            .returns(rules, &Known)
            .iter()
            .map(|found| (found.at, found.offset, found.rule))
            .collect()
    }

    fn entry(bytes: &[u8], bits: u32, rules: Rules) -> Option<(u64, &'static str)> {
        body(bytes, bits).entry(rules).map(|found| (found.at, found.rule))
    }

    #[test]
    fn both_encodings_of_the_frame_are_entries_of_ia32() {
        for bytes in [[0x55, 0x8b, 0xec, 0xc3], [0x55, 0x89, 0xe5, 0xc3]] {
            assert_eq!(entry(&bytes, 32, Rules::Strict), Some((0, "push ebp; mov ebp,esp")));
            assert_eq!(entry(&bytes, 32, Rules::Full), Some((0, "push ebp; mov ebp,esp")));
        }
    }

    #[test]
    fn without_a_frame_pointer_only_the_full_rules_have_sites() {
        let bytes = [0x83, 0xec, 0x0c, 0xc3];
        assert_eq!(entry(&bytes, 32, Rules::Strict), None);
        assert_eq!(returns(&bytes, 32, Rules::Strict), []);
        assert_eq!(entry(&bytes, 32, Rules::Full), Some((0, "first byte")));
        assert_eq!(returns(&bytes, 32, Rules::Full), [(3, 3, "ret")]);
    }

    #[test]
    fn a_push_after_endbr_is_the_strict_entry_and_endbr_the_full_one() {
        let bytes = [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3];
        assert_eq!(entry(&bytes, 64, Rules::Strict), Some((4, "push rbp")));
        assert_eq!(entry(&bytes, 64, Rules::Full), Some((0, "endbr")));
        let fentry = [0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x1f, 0x44, 0, 0, 0xc3];
        assert_eq!(entry(&fentry, 64, Rules::Full), Some((0, "endbr; fentry")));
        assert_eq!(entry(&fentry, 64, Rules::Strict), None);
    }

    #[test]
    fn a_byte_of_an_operand_is_no_push_and_no_ret() {
        // mov eax, 0x55c3c355; ret
        let bytes = [0xb8, 0x55, 0xc3, 0xc3, 0x55, 0xc3];
        assert_eq!(entry(&bytes, 64, Rules::Strict), None);
        assert_eq!(returns(&bytes, 64, Rules::Full), [(5, 5, "ret")]);
    }

    #[test]
    fn a_far_jump_within_the_function_is_no_return() {
        // jmp 8:0x1008; nop; ret: how a kernel reloads CS.
        let bytes = [0xea, 8, 0x10, 0, 0, 8, 0, 0x90, 0xc3];
        assert_eq!(returns(&bytes, 32, Rules::Full), [(8, 8, "ret")]);
        // The same to another function.
        let bytes = [0xea, 8, 0x90, 0, 0, 8, 0, 0x90, 0xc3];
        assert_eq!(returns(&bytes, 32, Rules::Full), [(0, 0, TAIL_JMP), (8, 8, "ret")]);
    }

    #[test]
    fn every_form_of_ret_is_a_return_and_dtrace_takes_the_plain_one() {
        // push rbp; ret; ret 8; rep ret
        let bytes = [0x55, 0xc3, 0xc2, 8, 0, 0xf3, 0xc3];
        let full = [(1, 1, "ret"), (2, 2, "ret imm16"), (5, 5, "ret")];
        assert_eq!(returns(&bytes, 64, Rules::Full), full);
        assert_eq!(returns(&bytes, 64, Rules::Strict), [(1, 1, "ret")]);
    }

    #[test]
    fn strict_ia32_takes_the_instruction_before_the_ret() {
        // push ebp; mov ebp,esp; leave; ret; pop ebp; ret 4; pop ebp; nop; ret
        let bytes = [0x55, 0x89, 0xe5, 0xc9, 0xc3, 0x5d, 0xc2, 4, 0, 0x5d, 0x90, 0xc3];
        assert_eq!(returns(&bytes, 32, Rules::Strict), [(3, 4, "leave; ret"), (5, 6, "pop ebp; ret")]);
        assert_eq!(returns(&bytes, 32, Rules::Full), [(4, 4, "ret"), (6, 6, "ret imm16"), (11, 11, "ret")]);
    }

    #[test]
    fn jumps_out_are_returns_but_to_the_cold_part_and_to_tests() {
        // jmp 0x2000 (cold); jmp 0x3000 (thunk); jmp 0x4000; jmp 0x5000 (test); jmp $ ; ret
        let mut bytes = Vec::new();
        for to in [0x2000u32, 0x3000, 0x4000, 0x5000] {
            bytes.push(0xe9);
            bytes.extend((to - 0x1000 - bytes.len() as u32 - 4).to_le_bytes());
        }
        bytes.extend([0xeb, 0xfe, 0xc3]);
        let found = returns(&bytes, 64, Rules::Full);
        assert_eq!(found, [(5, 5, "return thunk"), (10, 10, "tail jmp"), (22, 22, "ret")]);
    }

    #[test]
    fn a_byte_under_a_pointer_into_the_function_is_no_site() {
        // push ebp; mov ebp,esp; nops that hold 0x000010c3, which is inside when the function is that long; ret
        let mut bytes = vec![0x55, 0x89, 0xe5, 0xc9, 0xc3, 0x10, 0x00, 0x00];
        bytes.resize(0x100, 0x90);
        assert_eq!(returns(&bytes, 32, Rules::Full).first(), None);
        assert_eq!(
            returns(bytes.get(..0x40).unwrap_or_default(), 32, Rules::Full).first(),
            Some(&(4, 4, "ret"))
        );
    }

    #[test]
    fn undecodable_bytes_end_the_search() {
        let bytes = [0x55, 0xc3, 0x0f, 0xff, 0xff, 0x0f, 0x04, 0xc3, 0xc3];
        assert_eq!(returns(&bytes, 64, Rules::Full).len(), 1);
        assert_eq!(entry(&[], 64, Rules::Full), None);
    }
}
