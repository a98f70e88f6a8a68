//! User code is announced once per page and address space, before its first instruction, and may have to fault first.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use iced_x86::code_asm::*;
use trapline_emu::{Core, Fault, Stop, Trap, TrapInterposer, Verdict, error_code};

/// Linear pages that the code is on, their physical page, and the handler of page faults.
const ONE: u64 = 0x4_0000;
const TWO: u64 = 0x4_1000;
const PA: u64 = 0x5_0000;
const HANDLER: u64 = 0x6_0000;
/// The address that the fault gives for the store.
const WORD: u64 = 0x7_1234;
const FAULT: u32 = error_code::WRITE | error_code::USER;

/// Notes each announcement: linear page, physical page, count. Makes the guest fault `faults` times for `TWO`.
#[derive(Default)]
struct Told {
    pages: Vec<(u64, u64, u64)>,
    faults: u32,
}

impl TrapInterposer for Told {
    fn trap(&mut self, _: &mut Core, _: &Trap) -> Verdict {
        Verdict::Declined
    }
    fn user_code(&mut self, core: &mut Core, page: u64, paddr: u64) -> Option<Fault> {
        let told = (page, paddr, core.icount());
        if self.pages.last() != Some(&told) {
            self.pages.push(told);
        }
        if page != TWO || self.faults == 0 {
            return None;
        }
        self.faults -= 1;
        Some(Fault::page(FAULT, WORD))
    }
    fn wants_user_code(&self) -> bool {
        true
    }
}

/// Three rounds over two linear pages that are one physical page, which is read before it is executed. The handler of
/// page faults counts them in ESI, keeps CR2 in EDI, and returns. Ends with the #GP of its HLT.
fn rounds(s: Setup) -> Setup {
    let (bits, pte) = (if s.wide() { 64 } else { 32 }, PA | P | RW | US);
    let first = assemble(bits, ONE, |a| {
        a.inc(edx).unwrap();
        a.jmp(TWO + 0x100).unwrap();
    });
    let second = assemble(bits, TWO + 0x100, |a| {
        a.dec(ecx).unwrap();
        a.jne(ONE).unwrap();
        a.hlt().unwrap();
    });
    s.ring(3)
        .pte(ONE, pte)
        .pte(TWO, pte)
        .at(PA, &first)
        .at(PA + 0x100, &second)
        .asm(|a| {
            a.mov(eax, dword_ptr(ebx)).unwrap();
            a.jmp(ONE).unwrap();
        })
        .asm_at(HANDLER, |a| {
            a.inc(esi).unwrap();
            if bits == 64 {
                a.mov(rdi, cr2).unwrap();
                a.add(rsp, 8).unwrap();
                a.iretq().unwrap();
            } else {
                a.mov(edi, cr2).unwrap();
                a.add(esp, 4).unwrap();
                a.iretd().unwrap();
            }
        })
        .gate(14, HANDLER, 0x8e00)
}

fn all() -> [Setup; 3] {
    [Setup::bits32(), Setup::pae(), Setup::bits64()].map(rounds)
}

fn boot(setup: &Setup) -> Guest {
    let mut g = setup.boot();
    g.set(1, 3).set(3, TWO).set(6, 0);
    g.m.core_mut().announce_user_code_again();
    g
}

/// Pages with the counts at which they were announced.
fn counts(told: &Told, base: u64) -> Vec<(u64, u64, u64)> {
    told.pages.iter().map(|(page, paddr, at)| (*page, *paddr, at - base)).collect()
}

#[test]
fn each_page_is_announced_once_before_its_first_instruction_wherever_the_host_stops() {
    for s in all() {
        let mut plain = boot(&s);
        assert_eq!(plain.run(), Stop::Halted, "{}", plain.core().dump_registers());
        for step in [1_000_000, 1, 3] {
            let mut g = boot(&s);
            let mut told = Told::default();
            let mut at = g.base;
            let stop = loop {
                at += step;
                match g.m.run(Some(&mut told), at) {
                    Stop::Limit => {}
                    other => break other,
                }
            };
            assert_eq!(stop, Stop::Halted, "{:?}", s.tables);
            let wanted = [(CODE & !0xfff, CODE & !0xfff, 0), (ONE, PA, 2), (TWO, PA, 4)];
            assert_eq!(counts(&told, g.base), wanted, "{:?} by {step}", s.tables);
            assert_eq!(
                (g.m.digest(), g.count()),
                (plain.m.digest(), plain.count()),
                "{:?} by {step}",
                s.tables
            );
        }
    }
}

#[test]
fn a_fault_replaces_the_instruction_which_is_then_announced_again() {
    for s in all() {
        for step in [1_000_000, 1] {
            let mut g = boot(&s);
            let mut told = Told { faults: 2, ..Told::default() };
            let mut at = g.base;
            while let Stop::Limit = g.m.run(Some(&mut told), at) {
                at += step;
            }
            assert_eq!((g.gpr(6), g.gpr(7)), (2, WORD), "{:?}: {}", s.tables, g.core().dump_registers());
            assert_eq!((g.gpr(1), g.gpr(2)), (0, 3), "three rounds as without announcements");
            let four = |n: u64| (TWO, PA, 4 + 4 * n);
            let wanted = [(CODE & !0xfff, CODE & !0xfff, 0), (ONE, PA, 2), four(0), four(1), four(2)];
            assert_eq!(
                counts(&told, g.base),
                wanted,
                "{:?} by {step}: the handler has four instructions",
                s.tables
            );
        }
    }
}

#[test]
fn pages_can_be_announced_again() {
    for s in all() {
        let mut g = boot(&s);
        let mut told = Told::default();
        assert_eq!(g.m.run(Some(&mut told), g.base + 6), Stop::Limit);
        g.m.core_mut().announce_user_code_again();
        assert_eq!(g.m.run(Some(&mut told), g.base + 1000), Stop::Halted);
        let wanted =
            [(CODE & !0xfff, CODE & !0xfff, 0), (ONE, PA, 2), (TWO, PA, 4), (ONE, PA, 6), (TWO, PA, 8)];
        assert_eq!(counts(&told, g.base), wanted, "{:?}", s.tables);
    }
}
