//! The guest's own breakpoints on execution, RF, and the instructions that access debug registers (SDM volume 3, 17.2).

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use iced_x86::code_asm::*;
use trapline_emu::{Digest, Stop, Verdict};

const WIDTHS: [u32; 2] = [32, 64];
const BREAKPOINTS: u64 = 0xf;
/// DR6.BD.
const BD: u64 = 1 << 13;
/// DR7.GD.
const GD: u64 = 1 << 13;
const HANDLER: u64 = DATA + 0x1000;
const TIMES: u64 = 5;

/// A #DB handler that counts in EBP and continues with RF set.
fn counting(s: Setup) -> Setup {
    let wide = s.wide();
    s.gate(1, HANDLER, 0x8e00).gate(2, HANDLER + 0x80, 0x8e00).asm_at(HANDLER, |a| {
        a.inc(ebp).unwrap();
        if wide {
            a.or(dword_ptr(rsp + 16), RF as i32).unwrap();
            a.iretq().unwrap();
        } else {
            a.or(dword_ptr(esp + 8), RF as i32).unwrap();
            a.iretd().unwrap();
        }
    })
}

/// A loop of [`TIMES`] rounds with all kinds of instructions that can have a breakpoint, and their addresses.
fn looping(bits: u32) -> (Setup, Vec<u64>) {
    let s = counting(Setup::bits(bits))
        .asm_at(HANDLER + 0x80, |a| if bits == 64 { a.iretq().unwrap() } else { a.iretd().unwrap() });
    let s = s.asm(|a| {
        let mut again = a.create_label();
        a.mov(ebx, TIMES as u32).unwrap();
        a.set_label(&mut again).unwrap();
        a.mov(esi, DATA as u32).unwrap();
        a.mov(edi, (DATA + 0x100) as u32).unwrap();
        a.mov(ecx, 7).unwrap();
        a.rep().movsb().unwrap();
        a.xor(eax, eax).unwrap();
        // PUSH and POP of EBX or RBX.
        a.db(&[0x53]).unwrap();
        a.cpuid().unwrap();
        a.db(&[0x5b]).unwrap();
        a.nop().unwrap();
        a.dec(ebx).unwrap();
        a.jnz(again).unwrap();
        a.hlt().unwrap();
    });
    let at = s.starts();
    (s, at[1..at.len() - 1].to_vec())
}

/// Runs to the end; returns how often #DB came.
fn broken(s: &Setup) -> (u64, Digest) {
    let mut g = s.boot();
    assert_eq!(g.run(), Stop::Halted, "{}", g.core().dump_registers());
    (g.gpr(5), g.m.digest())
}

#[test]
fn db_comes_once_each_time_that_the_instruction_is_reached() {
    for bits in WIDTHS {
        let (s, at) = looping(bits);
        assert_eq!(at.len(), 11);
        for at in at {
            let s = Setup { dr: Some((at, 0x401)), ..s.clone() };
            let (times, digest) = broken(&s);
            assert_eq!(times, TIMES, "{bits}-bit {at:#x}");
            let mut stopped = s.boot();
            let mut n = 0;
            while stopped.run_to(n) == Stop::Limit {
                n += 1;
            }
            assert_eq!(stopped.m.digest(), digest, "{bits}-bit {at:#x}: stopped after each instruction");
        }
    }
}

#[test]
fn an_instruction_with_a_probe_and_a_breakpoint_has_both() {
    for bits in WIDTHS {
        let (s, at) = looping(bits);
        for (n, &at) in at.iter().enumerate() {
            let s = Setup { dr: Some((at, 0x401)), ..s.clone() };
            let (times, digest) = broken(&s);
            // REP MOVSB is stepped, and comes back to its patch, for each iteration.
            let hits = if n == 3 { 7 * TIMES } else { TIMES };
            let mut g = s.boot();
            let mut probes = Nops { verdict: Verdict::Step, ..Nops::new() };
            g.m.core_mut().arm(at, &[0xcc], 0).unwrap();
            assert_eq!(run(&mut g, &mut probes), digest, "{bits}-bit {at:#x}");
            assert_eq!((times, probes.hits), (TIMES, hits), "{bits}-bit {at:#x}");
        }
    }
}

#[test]
fn an_interrupt_before_the_instruction_keeps_rf() {
    for bits in WIDTHS {
        let (s, at) = looping(bits);
        let s = Setup { dr: Some((at[9], 0x401)), ..s };
        let mut g = s.boot();
        let mut n = 0;
        while !(g.ip() == at[9] && g.core().env().eflags_raw() & RF != 0) {
            n += 1;
            assert_eq!(g.run_to(n), Stop::Limit);
        }
        let mut plain = s.boot();
        assert_eq!(plain.run(), Stop::Halted);
        let undisturbed = plain.count();
        g.m.core_mut().raise_nmi();
        assert_eq!(g.run(), Stop::Halted);
        assert_eq!(g.gpr(5), TIMES, "{bits}-bit");
        assert_eq!(g.count(), undisturbed + 1, "{bits}-bit: the NMI handler's IRET more");
    }
}

#[test]
fn a_breakpoint_goes_and_comes_with_a_snapshot() {
    for bits in WIDTHS {
        let (s, at) = looping(bits);
        let armed = Setup { dr: Some((at[8], 0x401)), ..s.clone() };
        let mut g = armed.boot();
        let snapshot = g.m.snapshot();
        for _ in 0..2 {
            assert_eq!(g.run(), Stop::Halted);
            assert_eq!(g.gpr(5), TIMES);
            g.m.restore(&snapshot).unwrap();
        }
        // Into a machine whose guest has none, and back.
        let mut plain = s.boot();
        let none = plain.m.snapshot();
        for (to, times) in [(&snapshot, TIMES), (&none, 0)] {
            plain.m.restore(to).unwrap();
            assert_eq!(plain.run(), Stop::Halted);
            assert_eq!(plain.gpr(5), times, "{bits}-bit");
        }
    }
}

/// Every #DB clears GD, so that its handler can access the debug registers (SDM volume 3, 17.2.4); INT 1 does not.
#[test]
fn a_debug_exception_clears_general_detect() {
    for bits in WIDTHS {
        for (code, control, cleared) in
            [(&[0x90][..], 0x401 | GD, true), (&[0xf1], 0x400 | GD, true), (&[0xcd, 1], 0x400 | GD, false)]
        {
            let mut g = Setup { dr: Some((CODE, control)), ..Setup::bits(bits).code(code) }.boot();
            assert_eq!(g.caught().vector, 1, "{bits}-bit {code:x?}");
            assert_eq!(g.core().env().dr(7) & GD == 0, cleared, "{bits}-bit {code:x?}");
        }
    }
}

/// Accesses to debug registers that raise an exception: CR4, DR7, ring, code, vector.
const REFUSED: [(u64, u64, u8, &[u8], u8); 8] = [
    (DE, 0x400, 0, &[0x0f, 0x21, 0xe0], 6),
    (DE, 0x400, 0, &[0x0f, 0x23, 0xe8], 6),
    (0, 0x400, 3, &[0x0f, 0x21, 0xc0], 13),
    (0, 0x400, 3, &[0x0f, 0x23, 0xf8], 13),
    (0, 0x400, 0, &[0xf0, 0x0f, 0x23, 0xc0], 6),
    (0, 0x400 | GD, 0, &[0x0f, 0x23, 0xc0], 1),
    (0, 0x400 | GD, 0, &[0x0f, 0x21, 0xf0], 1),
    (0, 0x400 | GD, 3, &[0x0f, 0x21, 0xf0], 13),
];
const DE: u64 = 8;

#[test]
fn accesses_to_debug_registers_are_refused_as_the_sdm_says() {
    for bits in WIDTHS {
        for (extensions, control, ring, code, vector) in REFUSED {
            let s = Setup::bits(bits).ring(ring).code(code);
            let mut g = Setup { cr4: s.cr4 | extensions, dr: Some((0, control)), ..s }.boot();
            let caught = g.caught();
            assert_eq!((caught.vector, caught.ip), (vector, CODE), "{bits}-bit {code:x?}");
            if vector == 1 {
                let e = g.core().env();
                assert_eq!((e.dr(6) & (BD | BREAKPOINTS), e.dr(7)), (BD, 0x400), "{bits}-bit {code:x?}");
            }
        }
    }
    let high = |code: &'static [u8]| {
        let mut g = Setup::bits64().code(code).boot();
        g.set(0, 1 << 32);
        g.caught().vector
    };
    assert_eq!(high(&[0x0f, 0x23, 0xf0, 0xcd, 0x40]), 13, "DR6");
    assert_eq!(high(&[0x0f, 0x23, 0xf8, 0xcd, 0x40]), 13, "DR7");
    assert_eq!(high(&[0x0f, 0x23, 0xc0, 0xcd, 0x40]), 0x40, "DR0");
    assert_eq!(high(&[0x44, 0x0f, 0x23, 0xc0]), 6, "DR8");
}

#[test]
fn debug_registers_read_back_what_they_hold() {
    for bits in WIDTHS {
        // MOV to DR0, DR3, DR4 and DR5 from EAX, then ECX, EDX, EBX, ESI from DR0, DR3, DR6 and DR7.
        let code = [0x0f, 0x23, 0xc0, 0x0f, 0x23, 0xd8, 0x0f, 0x23, 0xe0, 0x31, 0xc0, 0x0f, 0x23, 0xe8];
        let back = [0x0f, 0x21, 0xc1, 0x0f, 0x21, 0xda, 0x0f, 0x21, 0xf3, 0x0f, 0x21, 0xfe, 0xcd, 0x40];
        let mut g = Setup::bits(bits).code(&[code, back].concat()).boot();
        g.set(0, 0x1234_5001);
        assert_eq!(g.caught().vector, 0x40);
        let read = [1, 2, 3, 6].map(|r| g.gpr(r));
        assert_eq!(read, [0x1234_5001, 0x1234_5001, 0xffff_5ff1, 0x400], "{bits}-bit");
    }
}
