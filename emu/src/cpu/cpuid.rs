//! The documented CPUID models: one table a mode. See `docs/cpu-model.md`.
//!
//! `Ia32` is a Pentium III with PAE: x87, MMX, SSE; no machine check, no NX. `X86_64` is a Nehalem-class CPU without
//! machine check, MONITOR and VMX: SSE4.2, POPCNT, CMPXCHG16B, NX. Where the platform has a local APIC, either announces
//! it, and tells the frequencies of its TSC and of the APIC's timer, which a system would have to measure otherwise.
//! Source of the bit names: Intel SDM volume 2, CPUID.

use crate::devices::lapic::TIMER_HZ;
use crate::engine::Model;

/// FPU DE PSE TSC MSR PAE CX8 SEP PGE CMOV PAT PSE36 MMX FXSR SSE. Virtual-8086 mode ends the run, so it has no extensions.
const IA32_EDX: u32 = 0x0383_a97d;
/// The same with CLFLUSH and SSE2.
const X64_EDX: u32 = IA32_EDX | 1 << 19 | 1 << 26;
/// SSE3 SSSE3 CX16 SSE4.1 SSE4.2 POPCNT.
const X64_ECX: u32 = 1 | 1 << 9 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 23;
/// SYSCALL NX RDTSCP LM.
const X64_EXT_EDX: u32 = 1 << 11 | 1 << 20 | 1 << 27 | 1 << 29;
/// LAHF/SAHF in 64-bit mode.
const X64_EXT_ECX: u32 = 1;

/// Leaf 1 edx: there is a local APIC, and IA32_APIC_BASE has it enabled.
const APIC: u32 = 1 << 9;
/// IA32_APIC_BASE: enabled.
const APIC_ENABLED: u64 = 1 << 11;
/// Leaf 6 eax: the APIC's timer runs in every state (ARAT).
const STEADY_TIMER: u32 = 1 << 2;
/// TSC and core MHz.
const MHZ: u32 = 1000;
/// The highest basic leaf where there is a local APIC.
const WITH_FREQUENCIES: u32 = 0x16;

/// `[eax, ebx, ecx, edx]` of a leaf, whatever its subleaf; `apic_base` is IA32_APIC_BASE where there is a local APIC.
pub(crate) fn cpuid(model: Model, apic_base: Option<u64>, leaf: u32) -> [u32; 4] {
    let Some(base) = apic_base else { return bare(model, leaf) };
    let [a, b, c, d] = bare(model, leaf);
    match leaf {
        0 => [WITH_FREQUENCIES, b, c, d],
        1 if base & APIC_ENABLED != 0 => [a, b, c, d | APIC],
        6 => [STEADY_TIMER, 0, 0, 0],
        // The crystal that feeds the APIC's timer, and the TSC by a ratio.
        0x15 => [1, MHZ * 1_000_000 / TIMER_HZ, TIMER_HZ, 0],
        0x16 => [MHZ, MHZ, TIMER_HZ / 1_000_000, 0],
        _ => [a, b, c, d],
    }
}

/// A leaf of a CPU without a local APIC.
fn bare(model: Model, leaf: u32) -> [u32; 4] {
    // "GenuineIntel"
    let vendor = |max| [max, 0x756e_6547, 0x6c65_746e, 0x4965_6e69];
    match (model, leaf) {
        (Model::Ia32, 0) => vendor(2),
        (Model::X86_64, 0) => vendor(7),
        (Model::Ia32, 1) => [0x0000_0673, 0, 0, IA32_EDX],
        (Model::X86_64, 1) => [0x0001_06a3, 0x0000_0800, X64_ECX, X64_EDX],
        (_, 2) => [0x0000_0001, 0, 0, 0x002c_307d],
        (Model::X86_64, 0x8000_0000) => [0x8000_0008, 0, 0, 0],
        (Model::X86_64, 0x8000_0001) => [0, 0, X64_EXT_ECX, X64_EXT_EDX],
        (Model::X86_64, 0x8000_0002..=0x8000_0004) => brand(leaf),
        // Invariant TSC.
        (Model::X86_64, 0x8000_0007) => [0, 0, 0, 1 << 8],
        // 40 physical, 48 linear address bits.
        (Model::X86_64, 0x8000_0008) => [0x3028, 0, 0, 0],
        _ => [0; 4],
    }
}

fn brand(leaf: u32) -> [u32; 4] {
    const BRAND: &[u8; 48] = b"Trapline virtual CPU at 1.00GHz\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let at = (leaf - 0x8000_0002) as usize * 16;
    std::array::from_fn(|n| {
        let o = at + n * 4;
        u32::from_le_bytes([BRAND[o], BRAND[o + 1], BRAND[o + 2], BRAND[o + 3]])
    })
}
