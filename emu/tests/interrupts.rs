//! Interrupts at exact counts, wherever the engine cuts its blocks and wherever the host stops the machine.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use iced_x86::code_asm::*;
use trapline_emu::{Moment, Stop, TrapInterposer};

const PIT_HZ: u64 = 1_193_182;
/// Start of the code that the timer interrupts.
const BODY: u64 = CODE + 0x200;

/// Instruction count (virtual ns) at which a one-shot count written at `now` fires: it is loaded by the clock
/// pulse after the write and OUT rises `count` pulses later (8254 data sheet, mode 0).
fn fires_at(now: u64, count: u64) -> u64 {
    let tick = now * PIT_HZ / 1_000_000_000 + 1 + count;
    (tick * 1_000_000_000).div_ceil(PIT_HZ)
}

/// Waits ESI loops, starts a one-shot of EDI ticks, enables interrupts if `sti`, goes to `BODY`.
fn timer(bits: u32, sti: bool) -> Setup {
    Setup::bits(bits).asm(|a| {
        for (port, value) in [(0x20, 0x11), (0x21, 0x20), (0x21, 4), (0x21, 1), (0x21, 0xfe), (0x43, 0x30)] {
            a.mov(eax, value).unwrap();
            a.out(port, al).unwrap();
        }
        let mut wait = a.create_label();
        a.set_label(&mut wait).unwrap();
        a.dec(esi).unwrap();
        a.jnz(wait).unwrap();
        a.mov(eax, edi).unwrap();
        a.out(0x40, al).unwrap();
        a.mov(al, ah).unwrap();
        a.out(0x40, al).unwrap();
        if sti {
            a.sti().unwrap()
        } else {
            a.nop().unwrap()
        }
        a.xor(ebx, ebx).unwrap();
        a.jmp(BODY).unwrap();
    })
}

/// Instructions before the OUT that starts the timer, and before `BODY`.
fn lead(esi_value: u64) -> (u64, u64) {
    let out = 12 + 2 * esi_value + 3;
    (out, out + 4)
}

/// `inc ebx; nop; rep stosb (ecx = 0); nop; jmp`: five instructions; offsets of each.
const LOOP: [u8; 8] = [0xff, 0xc3, 0x90, 0xf3, 0xaa, 0x90, 0xeb, 0xf8];
const OFFSETS: [u64; 5] = [0, 2, 3, 5, 6];

#[test]
fn a_timer_interrupt_comes_at_exactly_its_instruction_at_a_thousand_counts() {
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    for bits in [32, 64] {
        let s = timer(bits, true).at(BODY, &LOOP);
        let mut plain = s.boot();
        let plain_start = plain.m.snapshot();
        let mut other = s.boot();
        let other_start = other.m.snapshot();
        for n in 0..500 {
            let wait = 1 + rng.below(1000);
            let count = if n % 100 == 0 { 1 + rng.below(3000) } else { 1 + rng.below(60) };
            let (out, body) = lead(wait);
            // The second byte of the count starts it; the OUT's own count is that before it.
            let at = fires_at(plain.base + out, count) - plain.base;
            plain.m.restore(&plain_start).unwrap();
            plain.set(6, wait).set(7, count);
            let c = plain.caught();
            let done = at.max(body) - body;
            let what = format!("{bits}-bit, wait {wait}, count {count}");
            assert_eq!(plain.count(), at.max(body) + 3, "{what}");
            assert_eq!((c.vector, c.ip), (0x20, BODY + OFFSETS[(done % 5) as usize]), "{what}");
            assert_eq!(plain.gpr(3), done.div_ceil(5), "{what}");
            assert_eq!(c.flags & (IF | RF), IF, "{what}");
            let digest = plain.m.digest();

            // The same with the host stopping the machine at random places.
            other.m.restore(&other_start).unwrap();
            other.set(6, wait).set(7, count);
            let mut slices = 0;
            let stop = loop {
                let slice = if slices % 8 < 6 { 1 + rng.below(20) } else { 1 + rng.below(40_000) };
                slices += 1;
                match other.m.run(None, other.m.icount() + slice) {
                    Stop::Limit => {}
                    stop => break stop,
                }
            };
            assert_eq!(stop, Stop::Halted, "{what}");
            assert_eq!(other.m.digest(), digest, "{what}, in slices");

            // The same with both NOPs armed.
            other.m.restore(&other_start).unwrap();
            other.set(6, wait).set(7, count);
            for offset in [2, 5] {
                other.m.core_mut().arm(BODY + offset, &[0xcc], 1).unwrap();
            }
            let mut nops = Nops::new();
            let limit = other.base + 5_000_000;
            assert_eq!(other.m.run(Some(&mut nops), limit), Stop::Halted, "{what}");
            assert_eq!(other.m.digest(), digest, "{what}, armed");
            assert_eq!(other.frame(), c, "{what}, armed");
            let hits = (done + 3) / 5 + (done + 1) / 5;
            assert_eq!(nops.hits, hits, "{what}");
            for offset in [2, 5] {
                assert!(other.m.core_mut().disarm(BODY + offset));
            }
        }
    }
}

#[test]
fn an_interrupt_waits_for_the_instruction_after_sti() {
    for bits in [32, 64] {
        // 2,000 loops with IF=0: the request is there. Then sti; inc edx; inc edx.
        let s = timer(bits, false).asm_at(BODY, |a| {
            let mut wait = a.create_label();
            a.mov(ecx, 2000).unwrap();
            a.set_label(&mut wait).unwrap();
            a.dec(ecx).unwrap();
            a.jnz(wait).unwrap();
            a.sti().unwrap();
            a.inc(edx).unwrap();
            a.inc(edx).unwrap();
            a.hlt().unwrap();
        });
        let at_sti = BODY + 5 + if bits == 32 { 3 } else { 4 };
        let mut g = s.boot();
        g.set(6, 1).set(7, 1);
        let c = g.caught();
        assert_eq!((c.vector, c.ip, g.gpr(2)), (0x20, at_sti + 1 + if bits == 32 { 1 } else { 2 }, 1));
        assert_eq!(g.count(), lead(1).1 + 1 + 4000 + 2 + 3, "{bits}-bit");
        // The shadow outlives a host stop in the middle of it.
        let mut h = s.boot();
        h.set(6, 1).set(7, 1);
        assert_eq!(h.run_to(lead(1).1 + 1 + 4000 + 1), Stop::Limit);
        assert_eq!(h.ip(), at_sti + 1);
        assert_eq!(h.caught(), c, "{bits}-bit");
        assert_eq!(h.m.digest(), g.m.digest());
    }
}

#[test]
fn popf_and_iret_open_the_gate_at_once() {
    for bits in [32, 64] {
        for iret in [false, true] {
            let after = BODY + 0x100;
            let s = timer(bits, false).asm_at(BODY, |a| {
                let mut wait = a.create_label();
                a.mov(ecx, 2000).unwrap();
                a.set_label(&mut wait).unwrap();
                a.dec(ecx).unwrap();
                a.jnz(wait).unwrap();
                let cs_value = i32::from(CS0);
                let ip = after as i32;
                match (bits, iret) {
                    (64, true) => {
                        for value in [i32::from(DS0), STACK0 as i32, 0x202, cs_value, ip] {
                            a.push(value).unwrap();
                        }
                        a.iretq().unwrap();
                    }
                    (_, true) => {
                        for value in [0x202, cs_value, ip] {
                            a.push(value).unwrap();
                        }
                        a.iretd().unwrap();
                    }
                    (64, false) => {
                        a.push(0x202).unwrap();
                        a.popfq().unwrap();
                        a.jmp(after).unwrap();
                    }
                    (_, false) => {
                        a.push(0x202).unwrap();
                        a.popfd().unwrap();
                        a.jmp(after).unwrap();
                    }
                }
            });
            let s = s.at(after, &[0xff, 0xc2, 0xff, 0xc2, 0xf4]);
            let mut g = s.boot();
            g.set(6, 1).set(7, 1);
            let c = g.caught();
            assert_eq!((c.vector, g.gpr(2)), (0x20, 0), "{bits}-bit iret {iret}");
            let pushes = if iret { if bits == 64 { 5 } else { 3 } } else { 1 };
            assert_eq!(g.count(), lead(1).1 + 4001 + pushes + 1 + 3, "{bits}-bit iret {iret}");
            assert_eq!(c.ip == after, iret, "{:#x}", c.ip);
        }
    }
}

#[test]
fn mov_ss_holds_an_interrupt_back_for_one_instruction() {
    // L: mov ss, edx; inc ebx; mov ss, edx; nop; jmp L
    let code = [0x8e, 0xd2, 0xff, 0xc3, 0x8e, 0xd2, 0x90, 0xeb, 0xf7];
    let offsets = [0, 2, 4, 6, 7];
    let mut rng = Rng(0x1234_5678_9abc_def1);
    for bits in [32, 64] {
        let mut g = timer(bits, true).at(BODY, &code).boot();
        let start = g.m.snapshot();
        let mut held = 0;
        for _ in 0..100 {
            g.m.restore(&start).unwrap();
            let (wait, count) = (1 + rng.below(500), 1 + rng.below(9));
            g.set(6, wait).set(7, count).set(2, DS0.into());
            let (out, body) = lead(wait);
            let at = fires_at(g.base + out, count) - g.base;
            let mut done = at.max(body) - body;
            if done % 5 == 1 || done % 5 == 3 {
                done += 1;
                held += 1;
            }
            let c = g.caught();
            assert_eq!(
                (c.ip, g.count()),
                (BODY + offsets[(done % 5) as usize], body + done + 3),
                "{bits}-bit"
            );
        }
        assert!(held > 20, "{held} were held back");
        // Also NMI, and across a host stop.
        g.m.restore(&start).unwrap();
        g.set(6, 1).set(7, 60000).set(2, DS0.into());
        assert_eq!(g.run_to(lead(1).1 + 1), Stop::Limit);
        assert_eq!(g.ip(), BODY + 2);
        g.m.core_mut().raise_nmi();
        let c = g.caught();
        assert_eq!((c.vector, c.ip), (2, BODY + 4), "{bits}-bit");
    }
}

#[test]
fn nmi_is_blocked_until_iret() {
    for bits in [32, 64] {
        let ret: &[u8] = if bits == 64 { &[0x48, 0xcf] } else { &[0xcf] };
        let handler = [&[0xff, 0xc3, 0x90, 0x90][..], ret].concat();
        for slice in [1, 1000] {
            let mut g = Setup::bits(bits)
                .at(DATA, &handler)
                .gate(2, DATA, 0x8e00)
                .code(&[0x90, 0x90, 0x90, 0x90, 0x90, 0xf4])
                .boot();
            g.run_to(1);
            g.m.core_mut().raise_nmi();
            assert_eq!(g.run_to(2), Stop::Limit);
            assert_eq!((g.ip(), g.gpr(3)), (DATA + 2, 1), "inside the handler");
            g.m.core_mut().raise_nmi();
            for n in (3..5).step_by(slice) {
                assert_eq!(g.run_to(n), Stop::Limit);
                assert_eq!(g.gpr(3), 1, "blocked");
            }
            // IRET is instruction 5; the second NMI comes right after it, before the interrupted code continues.
            assert_eq!(g.run_to(6), Stop::Limit);
            assert_eq!((g.ip(), g.gpr(3)), (DATA + 2, 2), "{bits}-bit");
            assert_eq!(g.run(), Stop::Halted);
            assert_eq!((g.gpr(3), g.count()), (2, 6 + 8), "{bits}-bit");
        }
    }
}

#[test]
fn halt_sleeps_until_the_timer_and_counts_one() {
    for bits in [32, 64] {
        let mut g = timer(bits, true).at(BODY, &[0x90, 0xf4, 0x90]).boot();
        let start = g.m.snapshot();
        for (wait, count) in [(1, 40), (77, 1000), (3, 60000)] {
            g.m.restore(&start).unwrap();
            g.set(6, wait).set(7, count);
            let (out, body) = lead(wait);
            let c = g.caught();
            assert_eq!((c.vector, c.ip), (0x20, BODY + 2));
            assert_eq!(g.count(), body + 2 + 3, "{bits}-bit");
            assert_eq!(g.core().virtual_ns(), fires_at(g.base + out, count) + 3, "{bits}-bit");
        }
    }
}

#[test]
fn halt_passes_in_parts_where_that_is_asked_for() {
    let s = timer(32, true).at(BODY, &[0x90, 0xf4, 0x90]);
    let ready = || {
        let mut g = s.boot();
        g.set(6, 3).set(7, 60_000);
        g
    };
    let mut whole = ready();
    let (out, body) = lead(3);
    let end = body + 4;
    assert_eq!(whole.m.run(None, whole.base + end), Stop::Limit);
    let mut parts = ready();
    parts.m.core_mut().stop_when_idle(true);
    let fires = fires_at(parts.base + out, 60_000);
    for part in [0, 1, 17, 1_000_000, 1_000_000_000] {
        let left = fires - parts.core().virtual_ns().max(parts.base + body + 2);
        assert_eq!(parts.m.run(None, parts.base + end), Stop::Idle(Some(left)));
        let here = parts.m.moment();
        let until = Moment { virtual_ns: here.virtual_ns + part.min(left), ..here };
        assert_eq!(parts.m.run_until(None, u64::MAX, until), Stop::Limit);
        assert_eq!(parts.m.moment(), until);
    }
    assert_eq!(parts.m.run(None, parts.base + end), Stop::Limit);
    assert_eq!((parts.m.moment(), parts.m.digest()), (whole.m.moment(), whole.m.digest()));
}

#[test]
fn a_run_waits_in_halt_for_what_comes_in() {
    for bits in [32, 64] {
        let s = Setup::bits(bits).gate(2, DATA, 0x8e00).asm_at(DATA, |a| {
            a.inc(ebx).unwrap();
            if bits == 64 { a.iretq().unwrap() } else { a.iretd().unwrap() }
        });
        let s = s.asm(|a| {
            // The timer's one-shot mode, without a count.
            a.mov(eax, 0x30).unwrap();
            a.out(0x43, al).unwrap();
            a.xor(ebx, ebx).unwrap();
            a.sti().unwrap();
            a.nop().unwrap();
            a.hlt().unwrap();
            a.cli().unwrap();
            a.hlt().unwrap();
        });
        let mut g = s.boot();
        g.m.core_mut().stop_when_idle(true);
        assert_eq!(g.m.run(None, u64::MAX), Stop::Idle(None));
        let here = g.m.moment();
        let until = Moment { virtual_ns: here.virtual_ns + 12_345, ..here };
        assert_eq!(g.m.run_until(None, u64::MAX, until), Stop::Limit);
        assert_eq!(g.m.moment(), until);
        g.m.core_mut().raise_nmi();
        assert_eq!(g.m.run(None, u64::MAX), Stop::Halted);
        assert_eq!((g.gpr(3), g.core().virtual_ns()), (1, until.virtual_ns + 4), "{bits}-bit");
    }
}

#[test]
fn a_repeated_move_is_interrupted_between_iterations_and_goes_on() {
    let mut rng = Rng(0xdead_beef_cafe_f00d);
    for bits in [32, 64] {
        let wide = bits == 64;
        let source: Vec<u8> = (0..6000u32).map(|n| (n * 7 + n / 256) as u8).collect();
        let s = timer(bits, true)
            .at(0x10_0000, &source)
            .gate(0x20, DATA, 0x8e00)
            .asm_at(DATA, |a| {
                a.mov(dword_ptr(DATA + 0x1000), ecx).unwrap();
                if wide {
                    a.mov(rax, qword_ptr(rsp)).unwrap();
                } else {
                    a.mov(eax, dword_ptr(esp)).unwrap();
                }
                a.mov(dword_ptr(DATA + 0x1004), eax).unwrap();
                if wide { a.iretq().unwrap() } else { a.iretd().unwrap() }
            })
            .asm_at(BODY, |a| {
                a.mov(esi, 0x10_0000).unwrap();
                a.mov(edi, 0x11_0000).unwrap();
                a.mov(ecx, 6000).unwrap();
                a.rep().movsb().unwrap();
                a.cli().unwrap();
                a.hlt().unwrap();
            });
        let mut g = s.boot();
        let start = g.m.snapshot();
        let mut plain = Vec::new();
        for n in 0..40 {
            let (wait, count) = (1 + rng.below(500), 1 + rng.below(6));
            for slices in [false, true] {
                g.m.restore(&start).unwrap();
                g.set(6, wait).set(7, count);
                let (out, body) = lead(wait);
                let at = fires_at(g.base + out, count) - g.base;
                let done = at.max(body + 3) - (body + 3);
                let stop = loop {
                    let slice = if slices { 1 + rng.below(700) } else { 1_000_000 };
                    let limit = g.m.icount() + slice;
                    match g.m.run(None, limit) {
                        Stop::Limit => {}
                        stop => break stop,
                    }
                };
                assert_eq!(stop, Stop::Halted);
                assert_eq!(g.mem(DATA + 0x1000, 4), 6000 - done, "{bits}-bit, case {n}");
                assert_eq!(g.mem(DATA + 0x1004, 4), BODY + 15, "{bits}-bit");
                assert_eq!(g.core().ram().bytes()[0x11_0000..0x11_0000 + 6000], source[..]);
                assert_eq!(g.count(), body + 3 + 6000 + 2 + 4);
                if slices {
                    assert_eq!(plain.last(), Some(&g.m.digest()), "{bits}-bit, in slices");
                } else {
                    plain.push(g.m.digest());
                }
            }
        }
    }
}

#[test]
fn an_interrupt_from_ring_3_takes_the_tss_stack() {
    for bits in [32, 64] {
        // The timer starts in ring 0; IRET goes to a loop in ring 3.
        let user = CODE + 0x1000;
        let s = timer(bits, false).at(user, &LOOP).asm_at(BODY, |a| {
            let selector = if bits == 64 { USER_CS64 } else { USER_CS32 };
            for value in [i32::from(USER_DS), STACK3 as i32, 0x202, i32::from(selector), user as i32] {
                a.push(value).unwrap();
            }
            if bits == 64 { a.iretq().unwrap() } else { a.iretd().unwrap() }
        });
        let mut g = s.boot();
        g.set(6, 5).set(7, 3);
        let (out, body) = lead(5);
        let at = fires_at(g.base + out, 3) - g.base;
        let done = at - (body + 6);
        let c = g.caught();
        assert_eq!((c.vector, c.ip), (0x20, user + OFFSETS[(done % 5) as usize]), "{bits}-bit");
        assert_eq!((c.top, c.stack), (RSP0, Some((STACK3, USER_DS.into()))), "{bits}-bit");
        assert_eq!(c.cs, u64::from(if bits == 64 { USER_CS64 } else { USER_CS32 }));
        assert_eq!(g.count(), at + 3);
    }
}

#[test]
fn a_step_by_the_trap_flag_does_not_lose_an_interrupt() {
    for bits in [32, 64] {
        let ret: &[u8] = if bits == 64 { &[0xff, 0xc5, 0x48, 0xcf] } else { &[0xff, 0xc5, 0xcf] };
        let mut g = timer(bits, true).gate(1, DATA, 0x8e00).at(DATA, ret).at(BODY, &LOOP).flags(TF).boot();
        g.set(6, 3).set(7, 2);
        // One run, and one in single instructions: the same.
        let c = g.caught();
        assert_eq!(c.vector, 0x20);
        assert!(g.gpr(5) > 20, "single steps: {}", g.gpr(5));
        let mut h = timer(bits, true).gate(1, DATA, 0x8e00).at(DATA, ret).at(BODY, &LOOP).flags(TF).boot();
        h.set(6, 3).set(7, 2);
        let mut n = 0;
        while h.run_to(n) == Stop::Limit {
            n += 1;
        }
        assert_eq!((h.frame(), h.m.digest()), (c, g.m.digest()), "{bits}-bit");
    }
}

#[test]
fn an_interposer_is_told_when_the_machine_settles() {
    struct Settled(u64);
    impl TrapInterposer for Settled {
        fn trap(&mut self, _: &mut trapline_emu::Core, _: &trapline_emu::Trap) -> trapline_emu::Verdict {
            trapline_emu::Verdict::Declined
        }
        fn faulted(&mut self, _: &mut trapline_emu::Core) {}
        fn interrupted(&mut self, _: &mut trapline_emu::Core) {}
        fn settled(&mut self, _: &mut trapline_emu::Core) {
            self.0 += 1;
        }
        fn page_rewritten(&mut self, _: &mut trapline_emu::Core, _: u64) {}
        fn code_page(&mut self, _: &mut trapline_emu::Core, _: u64) {}
        fn wants_code_pages(&self) -> bool {
            false
        }
    }
    let mut g = Setup::bits32().code(&[0x90, 0x90, 0xf4]).boot();
    let mut i = Settled(0);
    let limit = g.base + 1;
    assert_eq!(g.m.run(Some(&mut i), limit), Stop::Limit);
    assert!(i.0 > 0);
}

#[test]
fn an_interrupt_comes_before_the_fault_of_the_next_fetch() {
    // NOPs up to the end of a page, the next one absent, and a timer that fires at exactly the page end.
    let end = CODE + 0x1000;
    let nops = end - BODY;
    for bits in [32, 64] {
        let s = timer(bits, true).pte(end, 0).at(BODY, &vec![0x90; nops as usize]);
        let mut g = s.boot();
        let start = g.m.snapshot();
        let mut tried = 0;
        for wait in 1..3000 {
            let (out, body) = lead(wait);
            let at = fires_at(g.base + out, 4) - g.base - body;
            // One before, exactly at, and one after what the page holds.
            if !(nops - 1..=nops + 1).contains(&at) {
                continue;
            }
            g.m.restore(&start).unwrap();
            g.set(6, wait).set(7, 4);
            let c = g.caught();
            if at <= nops {
                assert_eq!((c.vector, c.ip), (0x20, BODY + at), "{bits}-bit");
                assert_eq!(c.cr2, 0, "{bits}-bit");
                tried += u32::from(at == nops);
            } else {
                assert_eq!((c.vector, c.ip), (14, end), "{bits}-bit");
            }
        }
        assert!(tried > 0, "no timer fired exactly at the page end");
    }
}
