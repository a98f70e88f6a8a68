//! Emulation of displaced instructions on the CPU's state.
//!
//! Only cheap instructions and those that cannot move. Each accesses memory with the guest's rights: a fault is
//! returned, with nothing changed, and delivered with EIP at the site. A branch to a non-canonical address does not
//! fault itself: as in the engine, the fetch there does. Source: Intel SDM volume 2, the operation of each.

use iced_x86::{Code, ConditionCode, Instruction, Mnemonic, OpKind, Register};
use trapline_emu::{Core, Fault, StackShape, condition_holds};

/// A decoded instruction that can be emulated. Sizes are operand sizes in bytes; branches go `by` bytes from the
/// instruction's own address, so that one operation serves every mapping of its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Nop {
        len: u8,
    },
    Push {
        reg: u8,
        size: u8,
        len: u8,
    },
    PushImm {
        value: u64,
        size: u8,
        len: u8,
    },
    Pop {
        reg: u8,
        size: u8,
        len: u8,
    },
    MovReg {
        to: u8,
        from: u8,
        size: u8,
        len: u8,
    },
    /// LEA relative to the instruction's own address.
    Address {
        reg: u8,
        by: u64,
        size: u8,
        len: u8,
    },
    Leave {
        size: u8,
        len: u8,
    },
    Ret {
        size: u8,
        drop: u16,
    },
    Jump {
        by: u64,
    },
    Call {
        by: u64,
        size: u8,
        len: u8,
    },
    Jcc {
        condition: ConditionCode,
        by: u64,
        len: u8,
    },
    Pushf {
        size: u8,
        len: u8,
    },
    Popf {
        size: u8,
        len: u8,
    },
    /// LOOP and JRCXZ: the count register has `bits` bits. LOOPE and LOOPNE want ZF to have a value.
    Loop {
        by: u64,
        bits: u8,
        len: u8,
        zero: Option<bool>,
    },
    Jrcxz {
        by: u64,
        bits: u8,
        len: u8,
    },
    Cli {
        len: u8,
    },
    Sti {
        len: u8,
    },
}

/// The result of emulation.
pub(crate) type Emulated = Result<(), Fault>;

/// The operation of an instruction that is emulated in code of `bits`; `None` for all others.
pub(crate) fn op_of(i: &Instruction, bits: u32) -> Option<Op> {
    use Mnemonic as M;
    if i.has_lock_prefix() || bits == 16 || i.code().op_code().address_size() == 16 {
        return None;
    }
    let len = i.len() as u8;
    let op = match i.mnemonic() {
        // Long NOPs too (0f 1f): their operand is not accessed.
        M::Nop => Op::Nop { len },
        // With more prefixes it may be XCHG of R8.
        M::Pause if len == 2 => Op::Nop { len },
        M::Push => push_of(i, len)?,
        M::Pop if i.op0_kind() == OpKind::Register && i.op0_register().is_gpr() => {
            Op::Pop { reg: gpr(i.op0_register())?, size: i.op0_register().size() as u8, len }
        }
        M::Mov if plain_registers(i) => Op::MovReg {
            to: gpr(i.op0_register())?,
            from: gpr(i.op1_register())?,
            size: i.op0_register().size() as u8,
            len,
        },
        M::Lea if i.is_ip_rel_memory_operand() && i.memory_base() == Register::RIP => Op::Address {
            reg: i.op0_register().full_register().number() as u8,
            by: i.ip_rel_memory_address().wrapping_sub(i.ip()),
            size: i.op0_register().size() as u8,
            len,
        },
        M::Leave => Op::Leave { size: stack_size(i.code())?, len },
        M::Ret => Op::Ret {
            size: match i.code() {
                Code::Retnd | Code::Retnd_imm16 => 4,
                Code::Retnq | Code::Retnq_imm16 => 8,
                _ => return None,
            },
            drop: if i.op_count() == 1 { i.immediate16() } else { 0 },
        },
        M::Jmp if near(i) => Op::Jump { by: distance(i) },
        M::Call if near(i) => Op::Call { by: distance(i), size: if bits == 64 { 8 } else { 4 }, len },
        _ if i.is_jcc_short_or_near() && near(i) => {
            Op::Jcc { condition: i.condition_code(), by: distance(i), len }
        }
        M::Pushfd => Op::Pushf { size: 4, len },
        M::Pushfq => Op::Pushf { size: 8, len },
        M::Popfd => Op::Popf { size: 4, len },
        M::Popfq => Op::Popf { size: 8, len },
        M::Loop | M::Loope | M::Loopne if near(i) => Op::Loop {
            by: distance(i),
            bits: count_bits(i.code())?,
            len,
            zero: (i.mnemonic() != M::Loop).then_some(i.mnemonic() == M::Loope),
        },
        M::Jecxz | M::Jrcxz if near(i) => Op::Jrcxz { by: distance(i), bits: count_bits(i.code())?, len },
        M::Cli => Op::Cli { len },
        M::Sti => Op::Sti { len },
        _ => return None,
    };
    Some(op)
}

fn push_of(i: &Instruction, len: u8) -> Option<Op> {
    match i.op0_kind() {
        OpKind::Register if i.op0_register().is_gpr() => {
            Some(Op::Push { reg: gpr(i.op0_register())?, size: i.op0_register().size() as u8, len })
        }
        OpKind::Immediate8to32 | OpKind::Immediate32 => {
            Some(Op::PushImm { value: i.immediate(0), size: 4, len })
        }
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => {
            Some(Op::PushImm { value: i.immediate(0), size: 8, len })
        }
        _ => None,
    }
}

/// Bits of the register that LOOP, JECXZ or JRCXZ reads.
fn count_bits(code: Code) -> Option<u8> {
    use Code as C;
    match code {
        C::Loop_rel8_32_ECX | C::Loope_rel8_32_ECX | C::Loopne_rel8_32_ECX | C::Jecxz_rel8_32 => Some(32),
        C::Loop_rel8_64_ECX | C::Loope_rel8_64_ECX | C::Loopne_rel8_64_ECX | C::Jecxz_rel8_64 => Some(32),
        C::Loop_rel8_64_RCX | C::Loope_rel8_64_RCX | C::Loopne_rel8_64_RCX | C::Jrcxz_rel8_64 => Some(64),
        _ => None,
    }
}

fn stack_size(code: Code) -> Option<u8> {
    match code {
        Code::Leaved => Some(4),
        Code::Leaveq => Some(8),
        _ => None,
    }
}

/// Distance from the branch to its target.
fn distance(i: &Instruction) -> u64 {
    i.near_branch_target().wrapping_sub(i.ip())
}

/// A branch whose target is a 32- or 64-bit EIP.
fn near(i: &Instruction) -> bool {
    matches!(i.op0_kind(), OpKind::NearBranch32 | OpKind::NearBranch64)
}

fn plain_registers(i: &Instruction) -> bool {
    let wide = |r: Register| r.is_gpr32() || r.is_gpr64();
    i.op0_kind() == OpKind::Register
        && i.op1_kind() == OpKind::Register
        && wide(i.op0_register())
        && wide(i.op1_register())
}

fn gpr(r: Register) -> Option<u8> {
    (r.is_gpr32() || r.is_gpr64()).then(|| r.full_register().number() as u8)
}

const CX: usize = 1;
const SP: usize = 4;
const BP: usize = 5;

/// Pushes onto the current stack.
#[inline]
fn push(core: &mut Core, stack: StackShape, value: u64, size: u8) -> Emulated {
    let sp = core.env().gpr(SP).wrapping_sub(size.into());
    core.store(core.wrap_linear(stack.linear(sp)), value, size.into()).map_err(Fault::on_stack)?;
    core.set_stack_pointer(stack, sp);
    Ok(())
}

/// Reads the value at a stack pointer.
#[inline]
fn stacked(core: &mut Core, stack: StackShape, pointer: u64, size: u8) -> Result<u64, Fault> {
    core.load(core.wrap_linear(stack.linear(pointer)), size.into()).map_err(Fault::on_stack)
}

#[inline]
fn skip(core: &Core, len: u8) {
    let env = core.env();
    env.set_eip(core.wrap_ip(env.eip().wrapping_add(len.into())));
}

/// Writes a general register with the size rules of the mode: 32 bits clear the upper half, 16 keep it.
#[inline]
fn set_gpr(core: &Core, reg: u8, value: u64, size: u8) {
    let env = core.env();
    let value = match size {
        2 => (env.gpr(reg.into()) & !0xffff) | (value & 0xffff),
        4 => value & 0xffff_ffff,
        _ => value,
    };
    env.set_gpr(reg.into(), value);
}

/// EFLAGS.IF and EFLAGS.ZF.
const IF: u64 = 0x200;
const ZF: u64 = 0x40;

/// EFLAGS after CLI and STI, if IOPL permits them.
fn interrupt_flag(core: &Core) -> Result<u64, Fault> {
    let env = core.env();
    let flags = env.eflags_raw();
    if u64::from(env.cpl()) > flags >> 12 & 3 { Err(Fault::gp(0)) } else { Ok(flags) }
}

/// EFLAGS with the flags that POPF takes from `value`, with this privilege (SDM volume 2, POPF).
fn popped_flags(core: &Core, value: u64) -> u64 {
    const ALWAYS: u64 = 0x24_4dd5; // ID, AC, NT, OF, DF, TF, SF, ZF, AF, PF, CF
    const IOPL: u64 = 0x3000;
    let (flags, cpl) = (core.eflags(), u64::from(core.env().cpl()));
    let changes_if = cpl <= flags >> 12 & 3;
    let changed = ALWAYS | if changes_if { IF } else { 0 } | if cpl == 0 { IOPL } else { 0 };
    flags & !changed | value & changed
}

/// The count register in an address size of `bits`, after `minus` was subtracted.
fn count(core: &Core, bits: u8, minus: u64) -> u64 {
    core.env().gpr(CX).wrapping_sub(minus) & (u64::MAX >> (64 - bits))
}

/// Goes `by` bytes from EIP, or past the instruction.
#[inline]
fn branch(core: &Core, taken: bool, by: u64, len: u8) {
    if taken {
        core.env().set_eip(core.wrap_ip(core.env().eip().wrapping_add(by)));
    } else {
        skip(core, len);
    }
}

/// Executes `op` at EIP. On a fault nothing has changed.
#[inline(always)]
pub(crate) fn emulate(core: &mut Core, op: &Op) -> Emulated {
    let stack = core.stack();
    match *op {
        Op::Nop { len } => skip(core, len),
        Op::Push { reg, size, len } => {
            push(core, stack, core.env().gpr(reg.into()), size)?;
            skip(core, len);
        }
        Op::PushImm { value, size, len } => {
            push(core, stack, value, size)?;
            skip(core, len);
        }
        Op::Pop { reg, size, len } => {
            let sp = core.env().gpr(SP);
            let value = stacked(core, stack, sp, size)?;
            // POP SP: the pointer moves first, then takes the value.
            core.set_stack_pointer(stack, sp.wrapping_add(size.into()));
            set_gpr(core, reg, value, size);
            skip(core, len);
        }
        Op::MovReg { to, from, size, len } => {
            set_gpr(core, to, core.env().gpr(from.into()), size);
            skip(core, len);
        }
        Op::Address { reg, by, size, len } => {
            set_gpr(core, reg, core.env().eip().wrapping_add(by), size);
            skip(core, len);
        }
        Op::Leave { size, len } => {
            let bp = core.env().gpr(BP);
            let value = stacked(core, stack, bp, size)?;
            core.set_stack_pointer(stack, bp.wrapping_add(size.into()));
            set_gpr(core, BP as u8, value, size);
            skip(core, len);
        }
        Op::Ret { size, drop } => {
            let sp = core.env().gpr(SP);
            let ip = stacked(core, stack, sp, size)?;
            core.env().set_eip(core.wrap_ip(ip));
            core.set_stack_pointer(stack, sp.wrapping_add(u64::from(size) + u64::from(drop)));
        }
        Op::Jump { by } => core.env().set_eip(core.wrap_ip(core.env().eip().wrapping_add(by))),
        Op::Call { by, size, len } => {
            let next = core.wrap_ip(core.env().eip().wrapping_add(len.into()));
            let ip = core.wrap_ip(core.env().eip().wrapping_add(by));
            push(core, stack, next, size)?;
            core.env().set_eip(ip);
        }
        Op::Jcc { condition, by, len } => branch(core, condition_holds(condition, core.eflags()), by, len),
        Op::Loop { by, bits, len, zero } => {
            let left = count(core, bits, 1);
            core.env().set_gpr(CX, left);
            let holds = zero.is_none_or(|zero| zero == (core.eflags() & ZF != 0));
            branch(core, left != 0 && holds, by, len);
        }
        Op::Jrcxz { by, bits, len } => branch(core, count(core, bits, 0) == 0, by, len),
        Op::Popf { size, len } => {
            let sp = core.env().gpr(SP);
            let value = stacked(core, stack, sp, size)?;
            core.env().set_eflags(popped_flags(core, value));
            core.set_stack_pointer(stack, sp.wrapping_add(size.into()));
            skip(core, len);
        }
        Op::Pushf { size, len } => {
            const VM_RF: u64 = 0x3_0000;
            let flags = core.eflags() & !VM_RF;
            push(core, stack, flags, size)?;
            skip(core, len);
        }
        Op::Cli { len } => {
            let flags = interrupt_flag(core)?;
            core.env().set_eflags_raw(flags & !IF);
            skip(core, len);
        }
        Op::Sti { len } => {
            let flags = interrupt_flag(core)?;
            core.env().set_eflags_raw(flags | IF);
            core.env().set_interrupt_shadow(true);
            skip(core, len);
        }
    }
    Ok(())
}
