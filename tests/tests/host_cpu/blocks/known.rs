//! Where random blocks are known to differ from the host's CPU: what docs/cpu-model.md lists, and what the manual leaves undefined.

use super::super::limits::{self, Mask};
use super::super::state::State;
use super::Block;
use super::random::undefined_after;
use iced_x86::{CpuidFeature as F, Instruction, Mnemonic as M, OpKind};

/// How a block is compared.
pub enum Known {
    Skipped(&'static str),
    Masked(Mask),
}

/// Instructions that are in no block.
pub fn is_left_out(i: &Instruction) -> bool {
    let memory = i.op_count() > 0 && i.op0_kind() == OpKind::Memory;
    match i.mnemonic() {
        // Digits that are none are undefined.
        M::Fbld => true,
        // They may unmask exceptions, show denormal operands, or hide stack faults.
        M::Ldmxcsr | M::Fldcw | M::Stmxcsr | M::Fnstsw | M::Fnclex | M::Fninit => true,
        // A register may say any bit of memory.
        M::Bt | M::Bts | M::Btr | M::Btc => memory,
        // The engine zeroes the upper half of RAX where it succeeds.
        M::Cmpxchg => memory && i.op1_register().size() == 4,
        // Reads the frames of outer levels by a register that may hold anything, as what lies across the end of a segment.
        M::Enter => i.immediate8_2nd() % 32 > 1,
        // Undefined for a count above 16.
        M::Shld | M::Shrd => i.op1_register().size() == 2,
        // CPUs do not round them alike; emu/tests/x87.rs compares them.
        _ if limits::mask(i).rounded => true,
        // Undocumented, and of an empty register CPUs store another number.
        M::Fstpnce => true,
        // They load pointers or the stack pointer.
        M::Popa | M::Popad | M::Leave => true,
        // Undefined for 0.
        M::Bsf | M::Bsr => i.op0_register().size() == 4,
        _ => false,
    }
}

/// Whether all CPUs execute an instruction alike, while all exceptions are masked: a vector instruction whose operands are in
/// XMM registers and memory, and no approximation. The other differences here are those of AMD's CPUs.
pub fn is_alike(i: &Instruction) -> bool {
    let vector = (0..i.op_count()).any(|n| i.op_register(n).is_xmm());
    let others = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Register && !i.op_register(n).is_xmm());
    vector && !others && !matches!(i.mnemonic(), M::Dpps | M::Dppd)
}

fn is_mmx(i: &Instruction) -> bool {
    limits::mask(i).mmx || i.mnemonic() == M::Emms
}

fn is_x87(i: &Instruction) -> bool {
    i.cpuid_features().iter().any(|feature| matches!(feature, F::FPU | F::FPU287 | F::FPU387))
        || i.mnemonic() == M::Fisttp
}

/// Whether two instructions cannot be in one block: MMX leaves other exponents in the registers than CPUs.
pub fn clash(a: &Instruction, b: &Instruction) -> bool {
    is_mmx(a) && is_x87(b) || is_x87(a) && is_mmx(b)
}

const STACK_FAULT: u16 = 0x40;
/// The pages of the host's program that the machine does not have (`program.rs`).
const HOSTS: std::ops::Range<u64> = 0x40_0000..0x1000_0000;

/// Whether a number of the x87 has one of the least exponents, as sums of pseudo-denormal numbers have.
fn is_least(number: &[u8]) -> bool {
    matches!(number, [.., low, high] if u16::from_le_bytes([*low, *high]) & 0x7fff <= 2)
}

/// Whether two numbers of a format differ, and both are NaNs.
fn other_nans(one: u128, two: u128) -> bool {
    let singles = (0..4).all(|n| {
        let [a, b] = [one, two].map(|v| (v >> (32 * n)) as u32);
        a == b || f32::from_bits(a).is_nan() && f32::from_bits(b).is_nan()
    });
    let doubles = (0..2).all(|n| {
        let [a, b] = [one, two].map(|v| (v >> (64 * n)) as u64);
        a == b || f64::from_bits(a).is_nan() && f64::from_bits(b).is_nan()
    });
    one != two && (singles || doubles)
}

/// Whether one of these is a signaling NaN, and the other the quiet one that it becomes.
fn quieted(host: &[u8], guest: &[u8]) -> bool {
    host.len() == 10
        && host[7] & 0x40 != 0
        && host[7] == guest[7] | 0x40
        && host[8] == 0xff
        && host[9] & 0x7f == 0x7f
}

/// Bits of the status word that CPUs do not set alike: C1 after FCOMI, and what a comparison found beside an exception that is
/// not masked.
fn open_conditions(instructions: &[Instruction], host: &State) -> u32 {
    const C1: u32 = 0x200;
    const ORDER: u32 = 0x4500;
    const PENDING: u16 = 0x80;
    let sets_flags = |i: &Instruction| matches!(i.mnemonic(), M::Fcomi | M::Fcomip | M::Fucomi | M::Fucomip);
    let unordered = if host.status & PENDING != 0 { ORDER } else { 0 };
    unordered | if instructions.iter().any(sets_flags) { C1 } else { 0 }
}

/// How a block is compared after which the host and the guest are in these states. Only instructions that were executed count.
pub fn of(block: &Block, host: &State, guest: &State) -> Known {
    let (instructions, exact) = (&block.instructions, block.exact);
    let after = host.ip.wrapping_sub(super::AT) as usize;
    let mut end = 0;
    let done = instructions.iter().take_while(|i| {
        end += i.len();
        end <= after
    });
    let done = done.count();
    // HLT, which is in no block, has raised #GP where all were executed.
    let faulting = instructions.get(done).filter(|_| host.fault.is_some());
    if faulting.is_some_and(|i| is_mmx(i) || !exact && is_x87(i)) {
        return Known::Skipped(
            "an instruction of MMX or the x87 whose operand faults, and which has changed state before",
        );
    }
    if guest.fault.is_some_and(|(vector, _, address)| vector == 14 && HOSTS.contains(&address)) {
        return Known::Skipped("an access to what only the host's program has");
    }
    let instructions = &instructions[..done];
    let has = |mnemonics: &[M]| instructions.iter().any(|i| mnemonics.contains(&i.mnemonic()));
    let from_memory = |i: &Instruction| i.mnemonic() == M::Fld && i.memory_size().size() == 10;
    let least = |n: usize| host.x87[n] != guest.x87[n] && is_least(&host.x87[n]) && is_least(&guest.x87[n]);
    if !exact && instructions.iter().any(from_memory) && (0..8).any(least) {
        return Known::Skipped("a sum of pseudo-denormal numbers from memory");
    }
    if !exact && host.status & STACK_FAULT != 0 {
        return Known::Skipped("the x87's stack is empty or full");
    }
    if !exact && host.valid != guest.valid && has(&[M::Fst, M::Fstp, M::Fstpnce]) {
        return Known::Skipped("FST to an empty register");
    }
    if !exact
        && (0..8).any(|n| host.x87[n] != guest.x87[n] && quieted(&host.x87[n], &guest.x87[n]))
        && has(&[M::Fld])
    {
        return Known::Skipped("FLD of a signaling NaN");
    }
    if !exact && host.xmm.iter().zip(&guest.xmm).any(|(host, guest)| other_nans(*host, *guest)) {
        return Known::Skipped("SSE with two NaNs");
    }
    let undefined = instructions.iter().fold(0, undefined_after);
    let flags = limits::flags(undefined);
    let mmx = instructions.iter().any(|i| limits::mask(i).mmx);
    let conditions = open_conditions(instructions, host);
    Known::Masked(Mask { flags, mmx, exact, conditions, ..Mask::NOTHING })
}
