//! Where a function's return address lies before the frame pointer leads to it, and after: found by following the code
//! from its first instruction to the current one.
//!
//! Compilers put other instructions between those that set up a frame, set it up only on some paths, and jump between
//! them. At any one instruction the stack has the same depth, whichever path led there, so the first path that
//! reaches it is enough.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::Memory;

/// Longest instruction, bytes.
const LONGEST: usize = 15;
/// Most instructions that are followed.
const MOST: usize = 4096;

/// What leads to the return address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    /// It is so many bytes above the stack pointer, and the frame pointer is the caller's.
    Depth(i64),
    /// It is so many bytes above the address in a general register, and the frame pointer is the caller's.
    Above(usize, i64),
    /// It is above the caller's frame pointer, which the frame pointer points to.
    Pointer,
}

/// What is known before an instruction.
#[derive(Debug, Clone, Copy)]
struct Known {
    frame: Frame,
    /// A register that points to the stack, and bytes from there to the return address. Functions that align their
    /// stack keep one, to find the way back.
    kept: Option<(usize, i64)>,
}

impl Known {
    const ENTRY: Self = Self::depth(0);

    const fn depth(bytes: i64) -> Self {
        Self { frame: Frame::Depth(bytes), kept: None }
    }
}

/// The frame at `ip` of the function between `function` and `end`; `None` if no path that can be followed leads there.
pub(super) fn frame_at(memory: &dyn Memory, function: u64, end: u64, ip: u64) -> Option<Frame> {
    let mut open = vec![(function, Known::ENTRY)];
    let mut seen = BTreeSet::new();
    while let Some((at, known)) = open.pop() {
        if at == ip {
            return Some(known.frame);
        }
        if !(function..end).contains(&at) || !seen.insert(at) {
            continue;
        }
        if seen.len() > MOST {
            return None;
        }
        let Some(instruction) = decode(memory, at) else { continue };
        let Some(after) = after(known, &instruction, memory.size()) else { continue };
        let target = instruction.near_branch_target();
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch => open.push((target, after)),
            FlowControl::ConditionalBranch => open.extend([(target, after), (instruction.next_ip(), after)]),
            // A call within the function begins another one there, as in the thunks of retpolines.
            FlowControl::Call => open.extend([(target, Known::ENTRY), (instruction.next_ip(), after)]),
            FlowControl::Next | FlowControl::IndirectCall => open.push((instruction.next_ip(), after)),
            _ => {}
        }
    }
    None
}

fn decode(memory: &dyn Memory, at: u64) -> Option<Instruction> {
    let mut bytes = [0; LONGEST];
    let read = memory.code(at, &mut bytes);
    let bits = if memory.wide() { 64 } else { 32 };
    let instruction = Decoder::with_ip(bits, bytes.get(..read)?, at, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// What is known after an instruction; `None` if the return address is lost.
fn after(known: Known, instruction: &Instruction, word: i64) -> Option<Known> {
    match known.frame {
        Frame::Pointer => Some(after_with_pointer(known, instruction)),
        Frame::Depth(depth) => after_at_depth(known, depth, instruction, word),
        Frame::Above(register, up) => after_alignment(known, (register, up), instruction, word),
    }
}

/// The frame is set up: it ends where the caller's frame pointer is taken back.
fn after_with_pointer(known: Known, instruction: &Instruction) -> Known {
    let ends = match instruction.mnemonic() {
        Mnemonic::Leave => true,
        Mnemonic::Pop => is(instruction, 0, BP),
        _ => false,
    };
    match (ends, known.kept) {
        (false, _) => known,
        (true, None) => Known::ENTRY,
        (true, Some((register, up))) => Known { frame: Frame::Above(register, up), ..known },
    }
}

fn after_at_depth(known: Known, depth: i64, instruction: &Instruction, word: i64) -> Option<Known> {
    let to = |depth: Option<i64>| Some(Known { frame: Frame::Depth(depth?), ..known });
    let to_sp = instruction.op_count() > 0 && is(instruction, 0, SP);
    match instruction.mnemonic() {
        Mnemonic::Mov if depth == word && is(instruction, 0, BP) && is(instruction, 1, SP) => {
            Some(Known { frame: Frame::Pointer, ..known })
        }
        Mnemonic::Sub if to_sp => to(depth.checked_add(immediate(instruction)?)),
        Mnemonic::Add if to_sp => to(depth.checked_sub(immediate(instruction)?)),
        Mnemonic::And if to_sp => {
            let (register, up) = known.kept?;
            Some(Known { frame: Frame::Above(register, up), ..known })
        }
        Mnemonic::Lea if points(instruction, &SP) => {
            let up = depth.checked_sub(displacement(instruction, word))?;
            let register = instruction.op0_register().full_register().number();
            if to_sp { to(Some(up)) } else { Some(Known { kept: Some((register, up)), ..known }) }
        }
        Mnemonic::Leave | Mnemonic::Enter => None,
        Mnemonic::Pop if is(instruction, 0, BP) && depth != word => None,
        Mnemonic::Cmp | Mnemonic::Test => Some(known),
        // A callee takes its return address away again, unless the call is there to find out where it is.
        Mnemonic::Call => {
            let stays = instruction.near_branch_target() == instruction.next_ip();
            to(if stays { depth.checked_add(word) } else { Some(depth) })
        }
        Mnemonic::Push => to(depth.checked_sub(instruction.stack_pointer_increment().into())),
        // The stack pointer becomes a value that is not known here.
        _ if to_sp => None,
        _ => to(depth.checked_sub(instruction.stack_pointer_increment().into())),
    }
}

/// The stack pointer was aligned, or comes back from there: a register leads to the return address.
fn after_alignment(
    known: Known,
    (register, up): (usize, i64),
    instruction: &Instruction,
    word: i64,
) -> Option<Known> {
    let whole = |n: u32| instruction.op_register(n).full_register().number();
    let first_is_register = instruction.op_count() > 0 && instruction.op_kind(0) == OpKind::Register;
    match instruction.mnemonic() {
        Mnemonic::Mov if is(instruction, 0, BP) && is(instruction, 1, SP) => {
            Some(Known { frame: Frame::Pointer, ..known })
        }
        Mnemonic::Lea if is(instruction, 0, SP) => {
            let back =
                points(instruction, &[]) && instruction.memory_base().full_register().number() == register;
            let depth = back.then(|| up.checked_sub(displacement(instruction, word))).flatten()?;
            Some(Known::depth(depth))
        }
        Mnemonic::Push | Mnemonic::Cmp | Mnemonic::Test => Some(known),
        _ if first_is_register && whole(0) == register => None,
        _ => Some(known),
    }
}

const SP: [Register; 2] = [Register::ESP, Register::RSP];
const BP: [Register; 2] = [Register::EBP, Register::RBP];

/// Whether an operand is one of these registers.
fn is(instruction: &Instruction, operand: u32, names: [Register; 2]) -> bool {
    instruction.op_kind(operand) == OpKind::Register && names.contains(&instruction.op_register(operand))
}

/// Whether the memory operand is a displacement from one of these registers, or from any if none is given.
fn points(instruction: &Instruction, names: &[Register]) -> bool {
    let base = instruction.memory_base();
    instruction.memory_index() == Register::None
        && base.is_gpr()
        && (names.is_empty() || names.contains(&base))
}

/// The displacement of the memory operand.
fn displacement(instruction: &Instruction, word: i64) -> i64 {
    let by = instruction.memory_displacement64();
    if word == 4 { i64::from(by as i32) } else { by.cast_signed() }
}

/// Whether a call ends at `address`, as one does before the address that it returns to.
pub(super) fn follows_call(memory: &dyn Memory, address: u64) -> bool {
    const LENGTHS: [i64; 5] = [5, 2, 3, 6, 7];
    LENGTHS.iter().any(|length| {
        let call = decode(memory, memory.add(address, -length));
        call.is_some_and(|call| call.mnemonic() == Mnemonic::Call && call.len() as i64 == *length)
    })
}

/// The immediate operand of an addition to the stack pointer.
fn immediate(instruction: &Instruction) -> Option<i64> {
    instruction.try_immediate(1).ok().map(u64::cast_signed)
}

#[cfg(test)]
#[path = "setup_tests.rs"]
mod tests;
