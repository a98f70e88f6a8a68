//! The table seen from outside: how an instruction would be displaced, and why, without a machine.
//!
//! It asks the same questions in the same order as `displace`; it decides nothing of its own.

use super::{Way, classify, crosses, emulate};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// How the instruction that `bytes` begin with is displaced at linear address `ip`, in code of `bits` (32 or 64).
/// Bytes that are no instruction are stepped: the guest gets its #UD from the CPU.
pub fn way_of(bytes: &[u8], ip: u64, bits: u32) -> Way {
    way(&decode(bytes, ip, bits), bits)
}

/// Why [`way_of`] answers what it does, in a few words.
pub fn why(bytes: &[u8], ip: u64, bits: u32) -> &'static str {
    let i = decode(bytes, ip, bits);
    match way(&i, bits) {
        Way::Emulated if i.flow_control() == FlowControl::Next => "cheap on the CPU's state",
        Way::Emulated => "its own address decides where it goes",
        Way::OutOfLine if i.is_ip_rel_memory_operand() => "names memory that an absolute address reaches",
        Way::OutOfLine => "does the same at any address",
        Way::Stepped => stepped(&i),
    }
}

fn decode(bytes: &[u8], ip: u64, bits: u32) -> Instruction {
    Decoder::with_ip(bits, bytes, ip, DecoderOptions::AMD).decode()
}

fn way(i: &Instruction, bits: u32) -> Way {
    if i.is_invalid() {
        return Way::Stepped;
    }
    if emulate::op_of(i, bits).is_some() {
        return Way::Emulated;
    }
    if crosses(i.ip(), i.len()) { Way::Stepped } else { classify(i) }
}

/// What stands against a copy.
fn stepped(i: &Instruction) -> &'static str {
    if i.is_invalid() {
        "no instruction"
    } else if i.is_ip_rel_memory_operand() && super::absolute(i).is_none() {
        "names memory relative to its own address, too far for an absolute one"
    } else if i.is_privileged() {
        "privileged"
    } else if matches!(i.mnemonic(), Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq) {
        "changes the flags that interrupts and single steps depend on"
    } else if i.mnemonic() == Mnemonic::Lss
        || (i.op_count() > 0 && i.op0_kind() == OpKind::Register && i.op0_register() == Register::SS)
    {
        "begins an interrupt shadow"
    } else if i.flow_control() != FlowControl::Next {
        "its own address decides where it goes or what it saves"
    } else if crosses(i.ip(), i.len()) {
        "lies on two pages"
    } else {
        "its own address or count is part of what it does"
    }
}
