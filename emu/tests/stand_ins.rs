//! Instructions for which the engine translates something else: the guest cannot tell.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use iced_x86::code_asm::*;
use trapline_emu::{Core, Digest, Stop, Trap, Verdict};

/// Instructions that are run.
const LENGTH: u64 = 12_000;
/// Times that the loop runs.
const TIMES: u32 = 400;

/// One random instruction of the loop.
fn piece(a: &mut CodeAssembler, wide: bool, rng: &mut Rng) {
    match rng.below(26) {
        0 => a.in_(al, 0x61).unwrap(),
        1 => a.in_(al, 0x40).unwrap(),
        2 => a.out(0x80, al).unwrap(),
        3 => {
            a.mov(dx, 0x3fdu32 as i32).unwrap();
            a.in_(al, dx).unwrap();
        }
        4 => {
            a.mov(dx, 0x608i32).unwrap();
            a.in_(eax, dx).unwrap();
        }
        5 => {
            a.mov(al, 0x40i32).unwrap();
            a.mov(dx, 0x3f8i32).unwrap();
            a.out(dx, al).unwrap();
        }
        // Channel 0 anew, with an interrupt every 50 to 300 instructions or so.
        6 => {
            a.mov(al, 0x34i32).unwrap();
            a.out(0x43, al).unwrap();
            a.mov(al, rng.below(200) as i32).unwrap();
            a.out(0x40, al).unwrap();
            a.mov(al, 0i32).unwrap();
            a.out(0x40, al).unwrap();
        }
        // The timer's interrupt masked, and not.
        7 => {
            a.mov(al, 0xffi32 as u32).unwrap();
            a.out(0x21, al).unwrap();
        }
        8 | 9 => {
            a.mov(al, 0xfeu32).unwrap();
            a.out(0x21, al).unwrap();
        }
        10..=12 => a.pause().unwrap(),
        13 => a.rdtsc().unwrap(),
        14 => {
            a.rdtsc().unwrap();
            a.mov(edi, eax).unwrap();
            a.rdtsc().unwrap();
            a.sub(eax, edi).unwrap();
        }
        15 => {
            a.push(0i32).unwrap();
            a.mov(eax, 1u32).unwrap();
            if wide {
                a.pop(rcx).unwrap()
            } else {
                a.pop(ecx).unwrap()
            }
            a.cpuid().unwrap();
        }
        16 => a.sti().unwrap(),
        17 => a.cli().unwrap(),
        18 => {
            a.sti().unwrap();
            a.in_(al, 0x21).unwrap();
        }
        // The register select of the real-time clock, and its seconds.
        19 => {
            a.mov(al, 0i32).unwrap();
            a.out(0x70, al).unwrap();
            a.in_(al, 0x71).unwrap();
        }
        20 => {
            a.mov(edi, DATA as u32).unwrap();
            a.mov(dx, 0x40i32).unwrap();
            a.insb().unwrap();
        }
        21 => {
            a.mov(ecx, rng.below(4) as u32).unwrap();
            a.mov(edi, DATA as u32).unwrap();
            a.mov(dx, 0x61i32).unwrap();
            a.rep().insb().unwrap();
        }
        22 => {
            let mut over = a.create_label();
            a.test(ebp, 1u32 << rng.below(3)).unwrap();
            a.jz(over).unwrap();
            a.pause().unwrap();
            a.out(0x80, al).unwrap();
            a.set_label(&mut over).unwrap();
            a.nop().unwrap();
        }
        23 => a.add(ebx, eax).unwrap(),
        24 => {
            if wide {
                a.mov(dword_ptr(rsi + 16), eax).unwrap()
            } else {
                a.mov(dword_ptr(esi + 16), eax).unwrap()
            }
        }
        _ => a.lea(ebx, dword_ptr(esi + 1)).unwrap(),
    }
}

/// A loop of random instructions under the timer's interrupts.
fn guest(bits: u32, seed: u64) -> Setup {
    const TIMER: u64 = CODE + 0x1800;
    let mut rng = Rng(seed + 1);
    let ring = if rng.below(4) == 0 { 3 } else { 0 };
    // I/O at ring 3 by IOPL.
    let flags = if rng.below(3) == 0 { IF } else { 0 } | if ring == 3 { 0x3000 } else { 0 };
    let traced = rng.below(8) == 0;
    let mut s = Setup::bits(bits).pc().ring(ring).flags(flags | if traced { TF } else { 0 });
    let wide = s.wide();
    s = s.gate(0x20, TIMER, 0x8e00).gate(1, TIMER + 0x40, 0x8e00);
    s = s.asm_at(TIMER, |a| {
        if wide {
            a.push(rax).unwrap()
        } else {
            a.push(eax).unwrap()
        }
        a.inc(ebx).unwrap();
        a.mov(al, 0x20i32).unwrap();
        a.out(0x20, al).unwrap();
        if wide {
            a.pop(rax).unwrap();
            a.iretq().unwrap()
        } else {
            a.pop(eax).unwrap();
            a.iretd().unwrap()
        }
    });
    s = s.asm_at(TIMER + 0x40, |a| {
        a.add(ebx, 3i32).unwrap();
        if wide { a.iretq().unwrap() } else { a.iretd().unwrap() }
    });
    s.asm(|a| {
        // The master 8259: edge, cascaded, vectors from 20h.
        for (port, value) in [(0x20, 0x11u32), (0x21, 0x20), (0x21, 4), (0x21, 1), (0x21, 0xfe)] {
            a.mov(al, value).unwrap();
            a.out(port, al).unwrap();
        }
        let mut again = a.create_label();
        a.mov(ebp, TIMES).unwrap();
        a.mov(esi, DATA as u32).unwrap();
        a.set_label(&mut again).unwrap();
        for _ in 0..4 + rng.below(24) {
            piece(a, wide, &mut rng);
        }
        a.dec(ebp).unwrap();
        a.jnz(again).unwrap();
        a.cli().unwrap();
        a.hlt().unwrap();
    })
}

/// What is seen of a run of `length` instructions.
fn seen(s: &Setup, seed: u64, length: u64, how: How) -> (Stop, u64, Digest, u64, usize) {
    let (g, stop, hits) = run(s, seed, length, how);
    (stop, g.m.icount(), g.m.digest(), hits, g.m.console().len())
}

/// How a guest is run: with stand-ins, with probes, and in how many pieces.
#[derive(Debug, Clone, Copy)]
struct How {
    stand_ins: bool,
    probed: bool,
    pieces: bool,
}

fn run(s: &Setup, seed: u64, length: u64, how: How) -> (Guest, Stop, u64) {
    let mut g = s.boot();
    g.m.core_mut().set_stand_ins(how.stand_ins);
    let mut rng = Rng(seed ^ 0x5555);
    let mut hits = 0;
    let mut probes = Answers(|_: &mut Core, _: &Trap| {
        hits += 1;
        Verdict::Step
    });
    if how.probed {
        let starts = s.starts();
        for n in 0..6 {
            let at = starts[rng.below(starts.len() as u64) as usize];
            // Two probes may get the same place.
            let _ = g.m.core_mut().arm(at, &[0xcc], n);
        }
    }
    let end = g.base + length;
    let stop = loop {
        let limit = if how.pieces { (g.m.icount() + 1 + rng.below(90)).min(end) } else { end };
        let stop = g.m.run(Some(&mut probes), limit);
        if stop != Stop::Limit || limit == end {
            break stop;
        }
    };
    (g, stop, hits)
}

fn compare(bits: u32, seed: u64) {
    let s = guest(bits, seed);
    for probed in [false, true] {
        let plain = How { stand_ins: false, probed, pieces: false };
        for pieces in [false, true] {
            let how = How { stand_ins: true, probed, pieces };
            if seen(&s, seed, LENGTH, how) != seen(&s, seed, LENGTH, plain) {
                panic!("{bits} bits, seed {seed}, {how:?}: {}", difference(&s, seed, how, plain));
            }
        }
    }
}

/// The first instruction after which two ways of running differ.
fn difference(s: &Setup, seed: u64, one: How, other: How) -> String {
    let (mut same, mut differs) = (0, LENGTH);
    while differs - same > 1 {
        let middle = (same + differs) / 2;
        if seen(s, seed, middle, one) == seen(s, seed, middle, other) {
            same = middle
        } else {
            differs = middle
        }
    }
    let at = run(s, seed, same, one).0;
    let after = [one, other].map(|how| {
        let g = run(s, seed, differs, how).0;
        format!("{}\n{:?}", g.core().dump_registers(), g.core().platform())
    });
    format!(
        "instruction {differs}, from\n{}\nto\n{}\nand\n{}",
        at.core().dump_registers(),
        after[0],
        after[1]
    )
}

#[test]
fn no_guest_sees_a_stand_in() {
    let times = std::env::var("TRAPLINE_STAND_INS").ok().and_then(|n| n.parse().ok()).unwrap_or(80);
    for seed in 1..=times {
        compare(32, seed);
        compare(64, seed);
    }
}

/// Runs a loop of IN and PAUSE, which lie at `CODE + 10`, and `more`, twenty times.
fn looping(bits: u32, more: impl Fn(&mut CodeAssembler)) -> Guest {
    let s = Setup::bits(bits).pc().asm(|a| {
        let mut again = a.create_label();
        a.mov(ebp, 20u32).unwrap();
        a.mov(esi, CODE as u32).unwrap();
        a.set_label(&mut again).unwrap();
        // No device is there.
        a.in_(al, 0x99).unwrap();
        a.pause().unwrap();
        more(a);
        a.dec(ebp).unwrap();
        a.jnz(again).unwrap();
        a.hlt().unwrap();
    });
    let mut g = s.boot();
    assert_eq!(g.m.run(None, 10_000), Stop::Halted);
    g
}

#[test]
fn a_guest_reads_its_own_bytes() {
    for bits in [32, 64] {
        let g = looping(bits, |a| {
            if bits == 64 {
                a.add(ebx, dword_ptr(rsi + 10)).unwrap()
            } else {
                a.add(ebx, dword_ptr(esi + 10)).unwrap()
            }
        });
        assert_eq!(g.core().env().gpr(3) as u32, 0x90f3_99e4u32.wrapping_mul(20));
    }
}

/// MOV AL, 21h in place of IN AL, 99h, and INC ECX, or INC CL, in place of PAUSE, after five rounds.
#[test]
fn a_guest_that_rewrites_its_instructions_runs_the_new_ones() {
    for bits in [32, 64] {
        let g = looping(bits, |a| {
            let mut over = a.create_label();
            a.movzx(eax, al).unwrap();
            a.add(ebx, eax).unwrap();
            a.cmp(ebp, 16u32).unwrap();
            a.jne(over).unwrap();
            let new = if bits == 64 { 0xc1fe_21b0u32 } else { 0x9041_21b0 };
            if bits == 64 {
                a.mov(dword_ptr(rsi + 10), new).unwrap()
            } else {
                a.mov(dword_ptr(esi + 10), new).unwrap()
            }
            a.set_label(&mut over).unwrap();
            a.nop().unwrap();
        });
        let env = g.core().env();
        assert_eq!((env.gpr(3) as u32, env.gpr(1) as u32), (5 * 0xff + 15 * 0x21, 15), "{bits} bits");
    }
}
