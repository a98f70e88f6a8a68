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
    /// It is above the caller's frame pointer, which the frame pointer points to.
    Pointer,
}

/// The frame at `ip` of the function between `function` and `end`; `None` if no path that can be followed leads there.
pub(super) fn frame_at(memory: &dyn Memory, function: u64, end: u64, ip: u64) -> Option<Frame> {
    let mut open = vec![(function, Frame::Depth(0))];
    let mut seen = BTreeSet::new();
    while let Some((at, frame)) = open.pop() {
        if at == ip {
            return Some(frame);
        }
        if !(function..end).contains(&at) || !seen.insert(at) {
            continue;
        }
        if seen.len() > MOST {
            return None;
        }
        let Some(instruction) = decode(memory, at) else { continue };
        let Some(after) = after(frame, &instruction, memory.size()) else { continue };
        let target = instruction.near_branch_target();
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch => open.push((target, after)),
            FlowControl::ConditionalBranch => open.extend([(target, after), (instruction.next_ip(), after)]),
            // A call within the function begins another one there, as in the thunks of retpolines.
            FlowControl::Call => open.extend([(target, Frame::Depth(0)), (instruction.next_ip(), after)]),
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

/// The frame after an instruction; `None` if it cannot be known.
fn after(frame: Frame, instruction: &Instruction, word: i64) -> Option<Frame> {
    let is = |n: u32, names: [Register; 2]| {
        instruction.op_kind(n) == OpKind::Register && names.contains(&instruction.op_register(n))
    };
    let (sp, bp) = ([Register::ESP, Register::RSP], [Register::EBP, Register::RBP]);
    let first_is = |names| instruction.op_count() > 0 && is(0, names);
    match (frame, instruction.mnemonic()) {
        (Frame::Pointer, Mnemonic::Leave) => Some(Frame::Depth(0)),
        (Frame::Pointer, Mnemonic::Pop) if first_is(bp) => Some(Frame::Depth(0)),
        (Frame::Pointer, _) => Some(frame),
        (Frame::Depth(depth), Mnemonic::Mov) if depth == word && first_is(bp) && is(1, sp) => {
            Some(Frame::Pointer)
        }
        (Frame::Depth(depth), Mnemonic::Sub) if first_is(sp) => {
            Some(Frame::Depth(depth.checked_add(immediate(instruction)?)?))
        }
        (Frame::Depth(depth), Mnemonic::Add) if first_is(sp) => {
            Some(Frame::Depth(depth.checked_sub(immediate(instruction)?)?))
        }
        (Frame::Depth(depth), Mnemonic::Lea)
            if first_is(sp)
                && sp.contains(&instruction.memory_base())
                && instruction.memory_index() == Register::None =>
        {
            let up = instruction.memory_displacement64() as i64;
            let up = if word == 4 { i64::from(up as i32) } else { up };
            Some(Frame::Depth(depth.checked_sub(up)?))
        }
        (Frame::Depth(_), Mnemonic::Leave | Mnemonic::Enter) => None,
        (Frame::Depth(_), Mnemonic::Cmp | Mnemonic::Test) => Some(frame),
        (Frame::Depth(depth), Mnemonic::Pop) if first_is(bp) && depth != word => None,
        (Frame::Depth(_), Mnemonic::Push | Mnemonic::Pop) if first_is(sp) => None,
        // A callee takes its return address away again, unless the call is there to find out where it is.
        (Frame::Depth(depth), Mnemonic::Call) => {
            let stays = instruction.near_branch_target() == instruction.next_ip();
            Some(Frame::Depth(if stays { depth.checked_add(word)? } else { depth }))
        }
        // The stack pointer becomes a value that is not known here.
        (Frame::Depth(_), mnemonic) if first_is(sp) && mnemonic != Mnemonic::Push => None,
        (Frame::Depth(depth), _) => {
            Some(Frame::Depth(depth.checked_sub(instruction.stack_pointer_increment().into())?))
        }
    }
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
