//! Stubs: addresses without memory that the guest calls and the interposer answers.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use iced_x86::code_asm::*;
use trapline_emu::{Core, Stop, Trap, TrapInterposer, Verdict};

/// Returns from every stub; notes their numbers with the count at the call, and lets single steps pass.
#[derive(Default)]
struct Returns {
    called: Vec<(u32, u64)>,
    steps: Vec<u64>,
}

impl TrapInterposer for Returns {
    fn trap(&mut self, _: &mut Core, _: &Trap) -> Verdict {
        Verdict::Declined
    }
    fn stub(&mut self, core: &mut Core, number: u32) -> Verdict {
        if number > 2 {
            return Verdict::Declined;
        }
        self.called.push((number, core.icount()));
        let (top, size) = (core.env().gpr(4), if core.env().code64() { 8 } else { 4 });
        match core.load(top, size) {
            Ok(back) => {
                core.env().set_gpr(4, top + size as u64);
                core.env().set_eip(back);
                Verdict::Resumed
            }
            Err(fault) => Verdict::Raise(fault),
        }
    }
    fn exception(&mut self, core: &mut Core, vector: u8, _: u64) -> bool {
        if vector == 1 {
            self.steps.push(core.env().eip());
        }
        vector == 1
    }
}

/// Calls what EAX holds three times, counting the returns in EBX; ring 3 ends with the #GP of its HLT.
fn calling(bits: u32, ring: u8) -> Setup {
    Setup::bits(bits).ring(ring).asm(|a| {
        for _ in 0..3 {
            if bits == 64 {
                a.call(rax).unwrap()
            } else {
                a.call(eax).unwrap()
            }
            a.inc(ebx).unwrap();
        }
        a.hlt().unwrap();
    })
}

#[test]
fn a_stub_is_called_in_every_ring_and_width_and_counts_as_one_return() {
    for (bits, ring) in [(32, 0), (32, 3), (64, 0), (64, 3)] {
        let mut g = calling(bits, ring).boot();
        let stub = g.m.core_mut().stub(2, bits == 64).unwrap();
        g.set(0, stub);
        let mut returns = Returns::default();
        let stop = g.m.run(Some(&mut returns), g.base + 1000);
        assert_eq!(stop, Stop::Halted, "{bits} {ring}: {}", g.core().dump_registers());
        assert_eq!(g.gpr(3), 3, "{bits} {ring}");
        // Call, return, increment: three a round.
        let counts: Vec<(u32, u64)> = returns.called.iter().map(|(n, at)| (*n, at - g.base)).collect();
        assert_eq!(counts, [(2, 1), (2, 4), (2, 7)], "{bits} {ring}");
    }
}

#[test]
fn every_instruction_limit_around_a_stub_is_met_exactly() {
    for bits in [32, 64] {
        for limit in 1..9 {
            let mut g = calling(bits, 0).boot();
            let stub = g.m.core_mut().stub(0, bits == 64).unwrap();
            g.set(0, stub);
            assert_eq!(g.m.run(Some(&mut Returns::default()), g.base + limit), Stop::Limit);
            assert_eq!(g.count(), limit, "{bits}");
            assert_eq!(g.m.run(Some(&mut Returns::default()), g.base + 1000), Stop::Halted);
            assert_eq!(g.gpr(3), 3);
        }
    }
}

#[test]
fn a_single_step_traps_at_the_stub_and_after_it() {
    for bits in [32, 64] {
        let s = Setup::bits(bits).asm(|a| {
            if bits == 64 {
                a.pushfq().unwrap();
                a.or(word_ptr(rsp), 0x100).unwrap();
                a.popfq().unwrap();
                a.call(rax).unwrap();
            } else {
                a.pushfd().unwrap();
                a.or(word_ptr(esp), 0x100).unwrap();
                a.popfd().unwrap();
                a.call(eax).unwrap();
            }
            a.nop().unwrap();
            a.hlt().unwrap();
        });
        let mut g = s.boot();
        let stub = g.m.core_mut().stub(1, bits == 64).unwrap();
        g.set(0, stub);
        let mut returns = Returns::default();
        g.m.run(Some(&mut returns), g.base + 1000);
        let after = returns.steps[1];
        assert_eq!(returns.steps[..3], [stub, after, after + 1], "{bits}: {:x?}", returns.steps);
        assert!((CODE..CODE + 0x20).contains(&after), "{after:#x}");
    }
}

#[test]
fn a_call_outside_of_the_stubs_faults_in_the_guest() {
    for (bits, vector) in [(32, 14), (64, 13)] {
        for wrong in [16 * 3, 1] {
            let mut g = calling(bits, 0).boot();
            let stub = g.m.core_mut().stub(0, bits == 64).unwrap();
            g.set(0, stub + wrong);
            assert_eq!(g.m.run(Some(&mut Returns::default()), g.base + 1000), Stop::Halted);
            let at = g.core().env().eip();
            let handler = HANDLERS + 16 * vector;
            assert!((handler..handler + 16).contains(&at), "{bits} {wrong}: {at:#x}");
            assert_eq!(g.gpr(3), 0);
        }
    }
}

#[test]
fn there_are_256_stubs_of_each_width() {
    let mut g = calling(32, 0).boot();
    for wide in [false, true] {
        let addresses: Vec<u64> = (0..256).map(|n| g.m.core_mut().stub(n, wide).unwrap()).collect();
        assert!(addresses.windows(2).all(|pair| pair[0] + 16 == pair[1]));
        assert_eq!(g.m.core_mut().stub(256, wide), None);
    }
}
