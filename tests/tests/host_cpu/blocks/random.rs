//! Random blocks and the state before them.

use super::super::forms::Form;
use super::super::limits;
use super::super::program::{AT, DATA_BYTES, FX_BYTES, Start};
use super::{Block, HLT, known};
use crate::common::{CODE, DATA, Rng, STACK3};
use crate::forms::Shape;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic as M, OpAccess,
    OpKind, Register, RflagsBits,
};

/// Registers that hold addresses of data, by number: those of 64-bit code are reached with REX.B.
const POINTERS: [u8; 3] = [3, 6, 7];
const MOST: u64 = 6;

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

/// A number of 64 bits that is special in some format, or random.
fn word(rng: &mut Rng) -> u64 {
    const DOUBLES: [u64; 14] = [
        0,
        1,
        0x000f_ffff_ffff_ffff,
        0x0010_0000_0000_0000,
        0x3ff0_0000_0000_0000,
        0x3fef_ffff_ffff_ffff,
        0x4008_0000_0000_0001,
        0x41df_ffff_ffe0_0000,
        0x41e0_0000_0000_0000,
        0x43e0_0000_0000_0000,
        0x7fef_ffff_ffff_ffff,
        0x7ff0_0000_0000_0000,
        0x7ff8_0000_0000_0000,
        0x7ff0_0000_0000_0001,
    ];
    const SINGLES: [u32; 14] = [
        0,
        1,
        0x007f_ffff,
        0x0080_0000,
        0x3f80_0000,
        0x3f7f_ffff,
        0x4040_0001,
        0x4eff_ffff,
        0x4f00_0000,
        0x5f00_0000,
        0x7f7f_ffff,
        0x7f80_0000,
        0x7fc0_0000,
        0x7f80_0001,
    ];
    let single = |rng: &mut Rng| match rng.below(3) {
        0 => u64::from(pick(rng, &SINGLES)) | (rng.below(2) << 31),
        // Near 1: sums cancel, and products round.
        1 => (0x3f00_0000 + rng.below(0x0200_0000)) | (rng.below(2) << 31),
        _ => rng.below(1 << 32),
    };
    match rng.below(8) {
        0 => pick(rng, &DOUBLES) | rng.below(2) << 63,
        1 => ((0x3fe0 << 48) + rng.below(0x40 << 48)) | (rng.below(2) << 63),
        2 | 3 => single(rng) | single(rng) << 32,
        4 => rng.below(40).wrapping_sub(20),
        5 => 1 << rng.below(64),
        // Text with an end here and there.
        6 => rng.next() & rng.next() & 0x0303_0303_0303_0303,
        _ => rng.next(),
    }
}

/// Ten bytes of the x87, for an engine that takes some for others unless the machine computes (docs/cpu-model.md).
fn extended(rng: &mut Rng, exact: bool) -> [u8; 10] {
    let head = match rng.below(8) {
        0 => {
            pick(rng, &[0, 1, 0x7ffe, 0x7fff, 0x3c01, 0x3c00, 0x3f81, 0x3f80, 0x43fe, 0x43ff, 0x407e, 0x407f])
        }
        1 => rng.next() as u16 & 0x7fff,
        _ => 0x3fd0 + rng.below(0x78) as u16,
    };
    let mantissa = match rng.below(6) {
        5 if exact && rng.below(4) == 0 => rng.next(),
        0 if head == 0 => rng.below(4),
        // No pseudo-denormal numbers.
        _ if head == 0 => rng.next() >> 1,
        0 => 1 << 63,
        // No signaling NaNs.
        _ if head == 0x7fff => rng.next() | 3 << 62,
        1 => u64::MAX,
        2 => 1 << 63 | 1 << rng.below(63),
        3 => 1 << 63 | rng.below(4096),
        _ => rng.next() | 1 << 63,
    };
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&mantissa.to_le_bytes());
    bytes[8..].copy_from_slice(&(head | (rng.below(2) as u16) << 15).to_le_bytes());
    bytes
}

/// The data of a batch.
pub fn data(rng: &mut Rng, exact: bool) -> Vec<u8> {
    let mut data = Vec::new();
    while data.len() < 0x800 {
        let mut unit = [word(rng).to_le_bytes(), word(rng).to_le_bytes()].concat();
        if rng.below(4) == 0 {
            unit[..10].copy_from_slice(&extended(rng, exact));
        }
        data.extend(unit);
    }
    data.resize(DATA_BYTES as usize, 0);
    data
}

/// The masks of some exceptions, of all or not.
fn masks(rng: &mut Rng, exact: bool) -> u16 {
    match rng.below(3) {
        _ if !exact => 0x3f,
        0 => rng.below(0x3f) as u16,
        // All but one or two.
        _ => 0x3f & !(1 << rng.below(6)) & !(1 << rng.below(6)),
    }
}

/// An image of FXSAVE; in an exact one, the x87 and SSE each have an exception that is not masked, or SSE has FZ or DAZ.
fn image(rng: &mut Rng, exact: bool) -> Vec<u8> {
    let mut image = vec![0; FX_BYTES];
    let control =
        0x40 | masks(rng, exact) | pick(rng, &[0u16, 2, 3, 3, 3]) << 8 | (rng.below(4) as u16) << 10;
    image[..2].copy_from_slice(&control.to_le_bytes());
    // Three or four registers are valid.
    let top = rng.below(8) as u16;
    image[2..4].copy_from_slice(&(top << 11).to_le_bytes());
    let valid: u8 = if rng.below(2) == 0 { 0x0f } else { 0x7f };
    image[4] = valid.rotate_left(top.into());
    let flushes = if exact { pick(rng, &[0, 0, 0x40, 0x8000, 0x8040]) } else { 0 };
    let unmasks = exact && (flushes == 0 || rng.below(2) == 0);
    let masks = u32::from(masks(rng, unmasks)) << 7;
    let mxcsr = masks | flushes | (rng.below(4) as u32) << 13;
    image[24..28].copy_from_slice(&mxcsr.to_le_bytes());
    for n in 0..8 {
        image[32 + 16 * n..][..10].copy_from_slice(&extended(rng, exact));
    }
    for n in 0..32 {
        image[160 + 8 * n..][..8].copy_from_slice(&word(rng).to_le_bytes());
    }
    image
}

fn start(rng: &mut Rng, bits: u32, exact: bool) -> Start {
    let mut registers: [u64; 16] = std::array::from_fn(|_| word(rng));
    for n in POINTERS {
        registers[usize::from(n)] = DATA + 0x100 + 16 * rng.below(16);
        registers[usize::from(n) + 8] = DATA + 0x100 + 16 * rng.below(16);
    }
    registers[4] = STACK3;
    if bits == 32 {
        registers.iter_mut().for_each(|register| *register &= 0xffff_ffff);
    }
    Start { registers, flags: 0x202 | rng.next() & 0x8d5, fx: image(rng, exact) }
}

/// Random bytes in the shape of an instruction whose operand, if it is in memory, is addressed by a pointer.
fn bytes(rng: &mut Rng, bits: u32) -> Vec<u8> {
    let mut code = Vec::new();
    while rng.below(3) == 0 && code.len() < 2 {
        code.push(pick(rng, &[0x66, 0xf2, 0xf3, 0xf0, 0x66, 0xf3]));
    }
    if bits == 64 && rng.below(2) == 0 {
        code.push(0x40 | rng.next() as u8 & 0xf);
    }
    match rng.below(8) {
        0..=2 => {}
        3 => code.extend([0x0f, 0x38]),
        4 => code.extend([0x0f, 0x3a]),
        _ => code.push(0x0f),
    }
    // One in six is of the x87's eight opcodes.
    code.push(if rng.below(6) == 0 { 0xd8 | rng.next() as u8 & 7 } else { rng.next() as u8 });
    let register = rng.next() as u8 & 7;
    if rng.below(3) == 0 {
        code.push(0x40 | register << 3 | pick(rng, &POINTERS));
        code.push(16 * rng.below(8) as u8);
    } else {
        // Equal registers more often than by chance.
        let other = if rng.below(4) == 0 { register } else { rng.next() as u8 & 7 };
        code.push(0xc0 | register << 3 | other);
    }
    code.extend(rng.next().to_le_bytes());
    code
}

/// Whether the instruction does not write a register that holds an address, except as a push or pop.
fn keeps_pointers(i: &Instruction) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let held = |register: Register| {
        let full = register.full_register();
        full.is_gpr() && POINTERS.contains(&(full.number() as u8 & 7)) || full == Register::RSP
    };
    let stack = i.is_stack_instruction() && !(i.op_count() > 0 && held(i.op0_register()));
    factory.info(i).used_registers().iter().all(|used| {
        let reads = matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
        reads || !held(used.register()) || stack
    })
}

fn memory_is_reached(i: &Instruction) -> bool {
    let memory = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
    let base = i.memory_base().full_register();
    let displacement = i.memory_displacement64();
    let near = displacement < 0x80 && displacement.is_multiple_of(16);
    !memory || near && base.is_gpr() && POINTERS.contains(&(base.number() as u8 & 7))
}

/// Whether the instruction can stand in a block, and its effect is not one of the known differences.
fn usable(bits: u32, code: &[u8], i: &Instruction) -> bool {
    let memory = i.memory_base() != Register::None;
    let shape = if memory { Shape::Base } else { Shape::Register };
    let wide = i.memory_base().size() * 8 == bits as usize || !memory;
    !i.is_invalid()
        && i.flow_control() == FlowControl::Next
        && !i.is_privileged()
        && !i.is_string_instruction()
        && i.segment_prefix() == Register::None
        && wide
        && memory_is_reached(i)
        && keeps_pointers(i)
        && limits::left_out(bits, Form(i.code()), i).is_none()
        && limits::known(i, shape).is_none()
        && limits::known_prefixes(code, i).is_none()
        && !known::is_left_out(i)
        && (!limits::is_intel() || known::is_alike(i))
}

fn instruction(rng: &mut Rng, bits: u32) -> (Vec<u8>, Instruction) {
    loop {
        let code = bytes(rng, bits);
        let i = Decoder::with_ip(bits, &code, CODE, DecoderOptions::NONE).decode();
        if usable(bits, &code, &i) {
            return (code[..i.len()].to_vec(), i);
        }
    }
}

/// Whether an instruction may leave the flags as they were: a shift by a count that may be 0.
fn may_keep_flags(i: &Instruction) -> bool {
    use M::{Rcl, Rcr, Rol, Ror, Sal, Sar, Shl, Shld, Shr, Shrd};
    matches!(i.mnemonic(), Rcl | Rcr | Rol | Ror | Sal | Sar | Shl | Shld | Shr | Shrd)
}

/// The flags that are undefined after an instruction, from those before it.
pub fn undefined_after(before: u32, i: &Instruction) -> u32 {
    let kept = if may_keep_flags(i) { before } else { before & !i.rflags_modified() };
    let through_carry = matches!(i.mnemonic(), M::Rcl | M::Rcr) && i.immediate8() != 1;
    kept | i.rflags_undefined() | if through_carry { RflagsBits::OF } else { 0 }
}

/// A block that reads no flag which is undefined, and uses not both MMX and the x87.
pub fn block(rng: &mut Rng, bits: u32, exact: bool) -> Block {
    let (mut code, mut instructions) = (Vec::new(), Vec::<Instruction>::new());
    let (count, mut undefined) = (1 + rng.below(MOST) as usize, 0);
    while instructions.len() < count {
        let (bytes, i) = instruction(rng, bits);
        let clash = instructions.iter().any(|other| known::clash(other, &i));
        if i.rflags_read() & undefined == 0 && !clash {
            undefined = undefined_after(undefined, &i);
            code.extend(bytes);
            instructions.push(i);
        }
    }
    code.push(HLT);
    Block { code, instructions, start: start(rng, bits, exact), exact }
}

/// A block of one instruction of 64-bit code that takes two lengths from RAX and RDX.
pub fn with_lengths(rng: &mut Rng, code: &[u8], (a, d): (u64, u64)) -> Block {
    let mut start = start(rng, 64, false);
    (start.registers[0], start.registers[2]) = (a, d);
    let i = Decoder::with_ip(64, code, AT, DecoderOptions::NONE).decode();
    Block { code: [code, &[HLT]].concat(), instructions: vec![i], start, exact: false }
}
