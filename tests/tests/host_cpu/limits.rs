//! The cases that are not compared with the host's CPU, and why.

use super::forms::{Form, Shape};
use crate::common::model_has;
use iced_x86::{
    Code, CodeSize, CpuidFeature as F, FlowControl, Instruction, Mnemonic as M, OpKind, Register, RflagsBits,
};
use std::sync::OnceLock;

/// The parts of the state that are undefined after an instruction.
pub struct Mask {
    pub flags: u64,
    /// An MMX instruction: the engine does not set the exponents, and enters MMX state before it accesses its operand.
    pub mmx: bool,
    /// A function whose result CPUs do not round alike: Intel's and AMD's manuals promise an error of less than one unit in
    /// the last place. The machine rounds it correctly.
    pub rounded: bool,
    /// Whether the machine executed all floating point: then everything of it is compared.
    pub exact: bool,
    /// Bits of the x87's status word that are not compared then.
    pub conditions: u32,
}

impl Mask {
    /// Everything is compared.
    pub const NOTHING: Mask = Mask { flags: 0, mmx: false, rounded: false, exact: false, conditions: 0 };
}

/// Flags in the form of the CPU, from iced's.
pub fn flags(flags: u32) -> u64 {
    let bits = [
        (RflagsBits::CF, 1),
        (RflagsBits::PF, 4),
        (RflagsBits::AF, 0x10),
        (RflagsBits::ZF, 0x40),
        (RflagsBits::SF, 0x80),
        (RflagsBits::OF, 0x800),
    ];
    bits.iter().filter(|(flag, _)| flags & flag != 0).fold(0, |all, (_, bit)| all | bit)
}

pub fn mask(i: &Instruction) -> Mask {
    let name = format!("{:?}", i.code()).replace("xmm", "").replace("imm", "");
    let mmx = name.contains("mm");
    let rounded = matches!(
        i.mnemonic(),
        M::Fsin | M::Fcos | M::Fsincos | M::Fptan | M::Fpatan | M::F2xm1 | M::Fyl2x | M::Fyl2xp1
    );
    Mask { mmx, rounded, flags: flags(i.rflags_undefined()), ..Mask::NOTHING }
}

/// Whether a program of the width can use the instructions of a feature, and they give the same on the host.
fn has(bits: u32, feature: F) -> bool {
    let system = matches!(feature, F::TSC | F::MSR | F::SEP | F::SYSCALL | F::RDPMC | F::RDTSCP);
    model_has(bits, feature) && !system
}

/// Why a case is not compared.
pub fn left_out(bits: u32, form: Form, i: &Instruction) -> Option<&'static str> {
    if i.code() != form.0 {
        return Some("the bytes are another form");
    }
    if !form.0.cpuid_features().iter().all(|f| has(bits, *f)) {
        return Some("the CPU model has no such feature");
    }
    let segment = |r: Register| r.is_segment_register();
    if (0..i.op_count()).any(|n| segment(i.op_register(n))) {
        return Some("loads or stores a selector, which Linux and the guest number differently");
    }
    match i.mnemonic() {
        M::Lds | M::Les | M::Lfs | M::Lgs | M::Lss | M::Lar | M::Lsl | M::Verr | M::Verw | M::Arpl => {
            return Some("loads or looks at a selector, which Linux and the guest number differently");
        }
        M::Syscall | M::Sysenter => return Some("a system call"),
        M::Cpuid | M::Rdtsc | M::Rdtscp => return Some("its result is the CPU's own"),
        M::Sgdt | M::Sidt | M::Sldt | M::Str | M::Smsw => return Some("Linux has UMIP on or emulates it"),
        M::Pushf | M::Pushfd | M::Pushfq | M::Popf | M::Popfd | M::Popfq => {
            return Some("shows or ends the single step that the host is in");
        }
        M::Fnstenv
        | M::Fnsave
        | M::Fxsave
        | M::Fxsave64
        | M::Fldenv
        | M::Frstor
        | M::Fxrstor
        | M::Fxrstor64 => {
            return Some("stores or loads pointers and fields that depend on the CPU");
        }
        _ => {}
    }
    match i.flow_control() {
        FlowControl::Interrupt if i.mnemonic() != M::Int3 => Some("an interrupt gate of the system"),
        FlowControl::Return if !matches!(i.mnemonic(), M::Ret) => Some("loads a selector"),
        _ if i.is_jmp_far() || i.is_call_far() || i.is_jmp_far_indirect() || i.is_call_far_indirect() => {
            Some("loads a selector")
        }
        _ => None,
    }
}

/// Why a case is known to differ from hardware, in every way of running it: the engine's limits, which docs/cpu-model.md
/// lists. Probed and unprobed must still be alike.
pub fn known(i: &Instruction, shape: Shape) -> Option<&'static str> {
    let memory = i.op_count() > 0 && (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
    let away = matches!(shape, Shape::Absent | Shape::Torn);
    match i.mnemonic() {
        M::Rcpps | M::Rcpss | M::Rsqrtps | M::Rsqrtss => Some("an approximation, exact in the engine"),
        M::Fcomi | M::Fcomip | M::Fucomi | M::Fucomip => Some("leaves OF, SF and AF as they were"),
        M::Jmp | M::Call if memory && matches!(i.code(), Code::Jmp_rm64 | Code::Call_rm64) && !away => {
            Some("a target that is not canonical faults there and not here")
        }
        _ if shape == Shape::Torn && memory && i.memory_size().size() == 16 => Some("no #GP for alignment"),
        _ => None,
    }
}

/// The prefixes other than REX.
pub const LEGACY: [u8; 11] = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3];

/// The same of an instruction for the prefixes that its bytes have.
pub fn known_prefixes(code: &[u8], i: &Instruction) -> Option<&'static str> {
    let (prefixes, rest) = code.split_at(code.iter().take_while(|byte| LEGACY.contains(byte)).count());
    let (rex, opcode) = match rest {
        [rex @ 0x40..=0x4f, opcode, ..] if i.code_size() == CodeSize::Code64 => (*rex, *opcode),
        [opcode, ..] => (0, *opcode),
        [] => (0, 0),
    };
    let has = |prefix: u8| prefixes.contains(&prefix);
    let choices = [0x66, 0xf2, 0xf3].into_iter().filter(|prefix| has(*prefix)).count();
    match i.mnemonic() {
        _ if choices > 1 && opcode == 0x0f => Some("chooses another of 66, F2 and F3"),
        M::Loope | M::Loopne if has(0xf2) || has(0xf3) => Some("the host takes F2 and F3 for the condition"),
        M::Jmp | M::Call if rex & 1 != 0 => Some("a target that is not canonical faults there and not here"),
        _ if is_intel() => known_of_intel(i, &has, rex),
        _ => None,
    }
}

/// Where Intel's CPUs differ from AMD's and qemu's, which the machine follows.
fn known_of_intel(i: &Instruction, has: &dyn Fn(u8) -> bool, rex: u8) -> Option<&'static str> {
    match i.mnemonic() {
        M::Reservednop if i.op0_kind() == OpKind::Register => Some("a NOP on Intel's CPUs, #UD on AMD's"),
        M::Pause if rex & 1 != 0 => Some("Intel's CPUs ignore REX.B in a PAUSE"),
        M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq | M::Scasb | M::Scasw | M::Scasd | M::Scasq
            if has(0xf2) || has(0xf3) =>
        {
            Some("Intel's CPUs leave the flags alone until a repetition ends")
        }
        _ if i.flow_control() != FlowControl::Next && i.code_size() == CodeSize::Code64 && has(0x66) => {
            Some("Intel's CPUs ignore the operand size of a near branch in 64-bit code")
        }
        _ => None,
    }
}

/// Whether the host's CPU is one of Intel's.
pub fn is_intel() -> bool {
    static INTEL: OnceLock<bool> = OnceLock::new();
    *INTEL.get_or_init(|| std::fs::read_to_string("/proc/cpuinfo").unwrap().contains("GenuineIntel"))
}
