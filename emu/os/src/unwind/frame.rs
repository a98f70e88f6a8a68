//! Frame pointers: a chain of pairs, the caller's frame pointer and the return address.
//!
//! Whether a function's frame is not set up yet, or not any more, is found in its code (`setup`); where the function is
//! unknown, by the instruction that is about to run.
//! Where an interrupt or exception came in, Linux with frame pointers puts an encoded pointer to `struct pt_regs` into
//! the frame pointer (ENCODE_FRAME_POINTER, arch/x86/include/asm/frame.h).

use super::setup::{Frame, follows_call, frame_at};
use super::{BP, Memory, SP, State, Step, orc};

/// Words of `struct pt_regs` of Linux on IA32: BX, CX, DX, SI, DI, BP, AX, four segments, the original AX, then these.
const IP32: i64 = 12;
/// The general registers in its order, by the machine's numbers.
pub(crate) const ORDER32: [usize; 7] = [3, 1, 2, 6, 7, 5, 0];

/// Knowledge besides the registers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hints {
    /// The stack pointer is at the return address.
    pub at_call: bool,
    /// The kernel encodes pointers to saved registers in the frame pointer.
    pub encoded: bool,
    /// CS of the kernel.
    pub cs: u64,
    /// Where the current function begins and ends, if known.
    pub function: Option<(u64, u64)>,
}

/// Takes the return address from the top of the stack.
pub(super) fn pop(memory: &dyn Memory, state: &mut State) -> Step {
    let Some((sp, ip)) = state.sp().and_then(|sp| Some((sp, memory.word(sp)?))) else { return Step::Lost };
    state.return_to(ip, memory.add(sp, memory.size()));
    Step::Caller
}

/// Goes to the caller.
pub(super) fn step(memory: &dyn Memory, state: &mut State, hints: Hints) -> Step {
    let place = if hints.at_call { state.sp() } else { unfinished(memory, state, hints) };
    if place.is_some() {
        state.gpr[SP] = place;
        return pop(memory, state);
    }
    let Some(bp) = state.bp().filter(|bp| *bp != 0) else { return Step::End };
    if let Some(regs) = hints.encoded.then(|| disguised(memory, bp)).flatten() {
        return interrupted(memory, state, regs, hints.cs).unwrap_or(Step::Lost);
    }
    let pair = memory.word(bp).zip(memory.word(memory.add(bp, memory.size())));
    let Some((next, ip)) = pair else { return Step::Lost };
    state.return_to(ip, memory.add(bp, 2 * memory.size()));
    state.gpr[BP] = Some(next);
    Step::Caller
}

/// Where the return address lies, if the frame pointer is not the function's own.
fn unfinished(memory: &dyn Memory, state: &State, hints: Hints) -> Option<u64> {
    if !state.exact {
        return None;
    }
    let above = |register: usize, up: i64| Some(memory.add((*state.gpr.get(register)?)?, up));
    let found = hints.function.and_then(|(from, to)| frame_at(memory, from, to, state.ip));
    let place = match found {
        Some(Frame::Pointer) => return None,
        Some(Frame::Depth(depth)) => above(SP, depth),
        Some(Frame::Above(register, up)) => above(register, up),
        None => None,
    };
    // In code that no compiler has made, a symbol may not be the beginning of a function.
    let returns = |place: &u64| memory.word(*place).is_some_and(|back| follows_call(memory, back));
    place.filter(returns).or_else(|| above(SP, depth_by_instruction(memory, state.ip)?))
}

/// Bytes from the stack pointer to the return address, by the instruction at `ip`: `push bp`, `mov bp, sp` or a `ret`.
fn depth_by_instruction(memory: &dyn Memory, ip: u64) -> Option<i64> {
    let mut bytes = [0; 3];
    let read = memory.code(ip, &mut bytes);
    match (bytes.get(..read)?, memory.wide()) {
        ([0x55 | 0xc3 | 0xc2, ..] | [0xf3, 0xc3, ..], _) => Some(0),
        ([0x89, 0xe5, ..] | [0x8b, 0xec, ..], false) | ([0x48, 0x89, 0xe5] | [0x48, 0x8b, 0xec], true) => {
            Some(memory.size())
        }
        _ => None,
    }
}

/// The address of `struct pt_regs` that this frame pointer encodes.
fn disguised(memory: &dyn Memory, bp: u64) -> Option<u64> {
    match memory.wide() {
        true => (bp & 1 != 0).then_some(bp & !1),
        false => (bp & 0x8000_0000 == 0).then_some(bp | 0x8000_0000),
    }
}

/// Goes to the code that was interrupted when the registers at `regs` were saved.
fn interrupted(memory: &dyn Memory, state: &mut State, regs: u64, kernel_cs: u64) -> Option<Step> {
    let (order, first) = if memory.wide() { (&orc::ORDER[..], 16) } else { (&ORDER32[..], IP32) };
    let word = |n: i64| memory.word(memory.add(regs, n * memory.size()));
    let (ip, cs, sp) = (word(first)?, word(first + 1)? & 0xffff, word(first + 3)?);
    if cs & 3 == 3 {
        return Some(Step::End);
    }
    if cs != kernel_cs {
        return None;
    }
    let mut gpr = state.gpr;
    for (n, register) in (0..).zip(order) {
        gpr[*register] = Some(word(n)?);
    }
    state.gpr = gpr;
    state.return_to(ip, sp);
    state.exact = true;
    Some(Step::Caller)
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
