//! Instructions that the announced CPU lacks raise #UD, and so do bytes that are not an instruction.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use iced_x86::{
    Code, CpuidFeature as F, Decoder, DecoderError, DecoderOptions, EncodingKind, MandatoryPrefix,
    OpCodeTableKind,
};
use trapline_emu::{Snapshot, Stop};

/// Encodings that older CPUs decode as another instruction: NOPs, BSF, BSR, WBINVD.
fn is_older(code: Code) -> bool {
    let hint = [
        F::BMI1,
        F::LZCNT,
        F::CET_IBT,
        F::CLDEMOTE,
        F::PREFETCHITI,
        F::PREFETCHWT1,
        F::PREFETCHW,
        F::WBNOINVD,
    ];
    matches!(code, Code::Rdsspd_r32 | Code::Rdsspq_r64)
        || code.cpuid_features().iter().any(|f| hint.contains(f))
}

struct Bare {
    g: Guest,
    start: Snapshot,
}

impl Bare {
    fn new(bits: u32) -> Self {
        let mut g = Setup::bits(bits).boot();
        let start = g.m.snapshot();
        Bare { g, start }
    }

    /// Whether `bytes` raise #UD at their own address, without any effect.
    fn undefined(&mut self, bytes: &[u8]) -> bool {
        let g = &mut self.g;
        g.m.restore(&self.start).unwrap();
        g.m.write_physical(CODE, bytes);
        g.m.write_physical(CODE + bytes.len() as u64, &[0xf4]);
        g.set(7, DATA);
        let halted = g.m.run(None, g.m.icount() + 40) == Stop::Halted;
        halted && g.ip() == HANDLERS + 16 * 6 + 3 && g.frame().ip == CODE && g.count() == 3
    }
}

/// The bytes of a form with a register or a memory operand, if it has such an encoding.
fn encode(bits: u32, code: Code, modrm: u8) -> Option<Vec<u8>> {
    let form = code.op_code();
    let map: &[u8] = match form.table() {
        OpCodeTableKind::Normal => &[],
        OpCodeTableKind::T0F => &[0x0f],
        OpCodeTableKind::T0F38 => &[0x0f, 0x38],
        OpCodeTableKind::T0F3A => &[0x0f, 0x3a],
        _ => return None,
    };
    let prefix: &[u8] = match form.mandatory_prefix() {
        MandatoryPrefix::P66 => &[0x66],
        MandatoryPrefix::PF3 => &[0xf3],
        MandatoryPrefix::PF2 => &[0xf2],
        _ if form.operand_size() == 16 => &[0x66],
        _ => &[],
    };
    let wide: &[u8] = if bits == 64 && form.operand_size() == 64 { &[0x48] } else { &[] };
    let group = if form.is_group() { modrm & 0xc7 | (form.group_index() as u8) << 3 } else { modrm };
    let code = form.op_code();
    let last = if form.op_code_len() == 2 { [(code >> 8) as u8, code as u8] } else { [code as u8, group] };
    Some([prefix, wide, map, &last, &[0x90; 6]].concat())
}

#[test]
fn instructions_that_the_announced_cpu_lacks_are_undefined() {
    for (bits, floor) in [(32, 700), (64, 300)] {
        let mut bare = Bare::new(bits);
        let (mut tried, mut ran) = (0, Vec::new());
        for code in Code::values() {
            let form = code.op_code();
            let mode = if bits == 64 { form.mode64() } else { form.mode32() };
            let old = matches!(form.encoding(), EncodingKind::Legacy | EncodingKind::D3NOW);
            let all = code.cpuid_features().iter().all(|f| model_has(bits, *f));
            if !form.is_instruction() || !mode || !old || all || is_older(code) {
                continue;
            }
            for modrm in [0x07, 0xc1] {
                let Some(bytes) = encode(bits, code, modrm) else { continue };
                if Decoder::new(bits, &bytes, DecoderOptions::NONE).decode().code() != code {
                    continue;
                }
                tried += 1;
                if !bare.undefined(&bytes) {
                    ran.push(format!("{code:?} {bytes:02x?}"));
                }
            }
        }
        assert!(ran.is_empty(), "{bits}-bit code runs\n{}", ran.join("\n"));
        assert!(tried > floor, "{bits}-bit: only {tried}");
    }
}

#[test]
fn bytes_that_are_no_instruction_are_undefined() {
    let maps: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];
    let prefixes: [&[u8]; 5] = [&[], &[0x66], &[0xf2], &[0xf3], &[0xf0]];
    for bits in [32, 64] {
        let mut bare = Bare::new(bits);
        let (mut tried, mut ran) = (0, Vec::new());
        for (map, prefix) in maps.iter().flat_map(|m| prefixes.map(|p| (m, p))) {
            for (code, modrm) in (0..=255u8).flat_map(|c| (0..16u8).map(move |m| (c, m))) {
                let operand = (modrm & 7) << 3 | if modrm < 8 { 0x07 } else { 0xc1 };
                let bytes = [prefix, map, &[code, operand], &[0x90; 8]].concat();
                let mut decoder = Decoder::new(bits, &bytes, DecoderOptions::AMD);
                let _ = decoder.decode();
                if decoder.last_error() != DecoderError::InvalidInstruction {
                    continue;
                }
                tried += 1;
                if !bare.undefined(&bytes) {
                    ran.push(format!("{:02x?}", &bytes[..bytes.len() - 8]));
                }
            }
        }
        assert!(ran.is_empty(), "{bits}-bit code runs\n{}", ran.join("\n"));
        assert!(tried > 30_000, "{bits}-bit: only {tried}");
    }
}

/// LAHF and SAHF with REX use AH; a PAUSE with REX.B is XCHG with R8. The engine takes SPL, and PAUSE.
#[test]
fn prefixes_that_the_engine_overlooks_count() {
    const AX: u64 = 0x1122_3344_5566_7788;
    const R8: u64 = 0x8877_6655_4433_2211;
    const MIXED: u64 = 0x1122_3344_5566_2211;
    // CF and ZF are set, and SF after SAHF of 77h.
    let cases: [(&[u8], u64, u64, u64); 8] = [
        (&[0x40, 0x9f], 0x1122_3344_5566_4788, R8, 0x47),
        (&[0x4f, 0x9f], 0x1122_3344_5566_4788, R8, 0x47),
        (&[0x66, 0x48, 0x9f], 0x1122_3344_5566_4788, R8, 0x47),
        (&[0x48, 0x9e], AX, R8, 0x57),
        (&[0xf3, 0x41, 0x90], R8 & 0xffff_ffff, AX & 0xffff_ffff, 0x47),
        (&[0xf3, 0x49, 0x90], R8, AX, 0x47),
        (&[0x66, 0xf3, 0x41, 0x90], MIXED, R8 & !0xffff | 0x7788, 0x47),
        (&[0xf3, 0x48, 0x90], AX, R8, 0x47),
    ];
    for (bytes, ax, r8, flags) in cases {
        let mut g = Setup::bits(64).flags(0x47).code(&[bytes, &[0xf4]].concat()).boot();
        let sp = g.gpr(4);
        g.set(0, AX);
        g.set(8, R8);
        assert_eq!(g.m.run(None, 40), Stop::Halted, "{bytes:02x?}");
        assert_eq!((g.gpr(0), g.gpr(8), g.gpr(4)), (ax, r8, sp), "{bytes:02x?}");
        assert_eq!(g.m.core().eflags() & 0xd7, flags, "{bytes:02x?}");
    }
}

/// AMD's CPUs read CR8 by LOCK MOV CR0, if CPUID says so, which this model's does not.
#[test]
fn a_locked_move_of_a_control_register_is_undefined() {
    for bits in [32, 64] {
        let mut bare = Bare::new(bits);
        for code in
            [&[0xf0, 0x0f, 0x20, 0xc0][..], &[0xf0, 0x0f, 0x22, 0xc0], &[0x66, 0xf0, 0x0f, 0x20, 0xd8]]
        {
            assert!(bare.undefined(code), "{bits} bits: {code:02x?}");
        }
    }
    let mut g = Setup::bits(64).code(&[0x44, 0x0f, 0x20, 0xc0, 0xf4]).boot();
    g.set(0, 7);
    assert_eq!(g.m.run(None, 40), Stop::Halted);
    assert_eq!(g.gpr(0), 0, "MOV from CR8");
}
