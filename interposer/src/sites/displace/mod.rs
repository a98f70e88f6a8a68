//! Displacement: how the instruction under a probe's patch is executed.
//!
//! Three ways, in order of cost. *Emulated*: instructions that are cheap or cannot move (they use their own address, or
//! change the flow of control). *Out of line*: a copy runs from a slot that the guest never sees. *Stepped*: the
//! machine puts the guest's bytes back for one instruction; this always works, but costs a few hundred times more.
//!
//! [`classify`] decides; each arm says why.

mod emulate;
mod explain;

pub use explain::{way_of, why};

pub(crate) use emulate::{Op, emulate};

use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, EncodingKind, FlowControl, Instruction, Mnemonic, OpKind,
    Register,
};
use trapline_emu::{Core, PAGE, Slot, is_sensitive};

/// How an instruction is displaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Way {
    /// In Rust, on the CPU's state.
    Emulated,
    /// A copy, elsewhere.
    OutOfLine,
    /// In place, alone.
    Stepped,
}

/// An instruction with the chosen way, for one code size.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Displaced {
    Emulated(Op),
    /// In this slot, for a site at this EIP and linear address.
    OutOfLine {
        slot: Slot,
        ip: u64,
        linear: u64,
    },
    Stepped,
}

impl Displaced {
    pub fn way(&self) -> Way {
        match self {
            Displaced::Emulated(_) => Way::Emulated,
            Displaced::OutOfLine { .. } => Way::OutOfLine,
            Displaced::Stepped => Way::Stepped,
        }
    }
}

/// Chooses how to displace the instruction at linear address `linear`, whose EIP is `ip`.
pub(crate) fn displace(core: &mut Core, linear: u64, ip: u64) -> Displaced {
    let bits = core.code_bits();
    let Some(i) = core.decode_original(linear) else { return Displaced::Stepped };
    if let Some(op) = emulate::op_of(&i, bits) {
        return Displaced::Emulated(op);
    }
    if classify(&i) != Way::OutOfLine {
        return Displaced::Stepped;
    }
    // The second page of an instruction may change independently: only instructions on one page are copied.
    if crosses(linear, i.len()) {
        return Displaced::Stepped;
    }
    let mut bytes = [0u8; 15];
    let n = core.peek_prefix(linear, &mut bytes[..i.len()]);
    if n < i.len() {
        return Displaced::Stepped;
    }
    let copy = if i.is_ip_rel_memory_operand() { absolute(&i) } else { Some(bytes[..n].to_vec()) };
    let Some(copy) = copy else { return Displaced::Stepped };
    match core.take_slot(&copy, n as u8, ip, bits) {
        Ok(slot) => Displaced::OutOfLine { slot, ip, linear },
        Err(_) => Displaced::Stepped,
    }
}

/// Whether the instruction that begins these bytes is a string instruction with a repeat prefix. Prefixes other than
/// REX mean the same in both code sizes, and so do the opcodes of string instructions.
pub(crate) fn is_repeated(bytes: &[u8]) -> bool {
    let i = Decoder::new(32, bytes, DecoderOptions::NONE).decode();
    let i = if i.mnemonic() == Mnemonic::Dec || i.mnemonic() == Mnemonic::Inc || i.is_invalid() {
        Decoder::new(64, bytes, DecoderOptions::NONE).decode()
    } else {
        i
    };
    i.is_string_instruction() && (i.has_rep_prefix() || i.has_repne_prefix())
}

/// Whether an instruction of this length crosses a page boundary.
fn crosses(linear: u64, length: usize) -> bool {
    linear % PAGE + length as u64 > PAGE
}

/// A RIP-relative instruction rewritten with an absolute, sign-extended 32-bit address, which reaches the lowest and
/// the highest 2 GiB, where kernels and programs that are not position-independent lie.
fn absolute(i: &Instruction) -> Option<Vec<u8>> {
    let address = i.ip_rel_memory_address();
    i32::try_from(address as i64).ok()?;
    if i.code().op_code().encoding() == EncodingKind::D3NOW {
        // The engine computes its address as if no immediate followed. A probed run must equal an unprobed one.
        return None;
    }
    let mut moved = *i;
    moved.set_memory_base(Register::None);
    moved.set_memory_displacement64(address);
    moved.set_memory_displ_size(8);
    let mut encoder = Encoder::new(64);
    encoder.encode(&moved, 0).ok()?;
    Some(encoder.take_buffer()).filter(|copy| copy.len() <= 15)
}

/// The way for an instruction; emulation is preferred.
pub(crate) fn classify(i: &Instruction) -> Way {
    use Mnemonic as M;
    if i.is_ip_rel_memory_operand() && absolute(i).is_none() {
        // The copy would compute another address.
        return Way::Stepped;
    }
    // The machine executes PAUSE, but without more prefixes it does nothing.
    let idle = i.mnemonic() == M::Pause && i.len() == 2;
    if !idle && (i.is_privileged() || is_sensitive(i)) {
        // Ends its block, changes modes or tables, or is executed by the machine.
        return Way::Stepped;
    }
    match i.mnemonic() {
        // Interrupt shadow, or flags that affect interrupts and single steps.
        M::Popf | M::Lss => return Way::Stepped,
        _ => {}
    }
    if i.op_count() > 0 && i.op0_kind() == OpKind::Register && i.op0_register() == Register::SS {
        return Way::Stepped;
    }
    match i.flow_control() {
        FlowControl::Next => Way::OutOfLine,
        // A near jump through a register or memory goes to an absolute address.
        FlowControl::IndirectBranch if matches!(i.code(), Code::Jmp_rm32 | Code::Jmp_rm64) => Way::OutOfLine,
        _ => Way::Stepped,
    }
}
