//! Explains for listings how an instruction would be displaced, and why, without a machine.
//!
//! It applies the rules of `displace` in the same order and has no rules of its own.

use super::{Way, classify, crosses, emulate};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// How the first instruction of `bytes` is displaced at linear address `ip`, in code of `bits` (32 or 64).
/// Bytes that do not decode are stepped: the CPU raises #UD for the guest.
pub fn way_of(bytes: &[u8], ip: u64, bits: u32) -> Way {
    way(&decode(bytes, ip, bits), bits)
}

/// The reason for the answer of [`way_of`], in a few words.
pub fn why(bytes: &[u8], ip: u64, bits: u32) -> &'static str {
    let i = decode(bytes, ip, bits);
    match way(&i, bits) {
        Way::Emulated if i.flow_control() == FlowControl::Next => "cheap to emulate",
        Way::Emulated => "its target depends on its own address",
        Way::OutOfLine if i.is_ip_rel_memory_operand() => {
            "its memory operand can be given an absolute address"
        }
        Way::OutOfLine => "works the same at any address",
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

/// Why it cannot be copied.
fn stepped(i: &Instruction) -> &'static str {
    if i.is_invalid() {
        "not an instruction"
    } else if i.is_ip_rel_memory_operand() && super::absolute(i).is_none() {
        "its memory operand is relative to its own address, too far for an absolute one"
    } else if i.is_privileged() {
        "privileged"
    } else if i.mnemonic() == Mnemonic::Popf {
        "changes the flags that interrupts and single steps depend on"
    } else if i.mnemonic() == Mnemonic::Lss
        || (i.op_count() > 0 && i.op0_kind() == OpKind::Register && i.op0_register() == Register::SS)
    {
        "begins an interrupt shadow"
    } else if i.flow_control() != FlowControl::Next {
        "its target, or the address that it saves, depends on its own address"
    } else if crosses(i.ip(), i.len()) {
        "crosses a page boundary"
    } else {
        "its effect depends on its own address or on the instruction count"
    }
}
