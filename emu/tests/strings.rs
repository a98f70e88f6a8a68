//! Repeated MOVS and STOS: many iterations at a time have the same effect as one at a time.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use crate::watching::Watching;
use trapline_emu::{Stop, Watch, WatchKind};

/// The three pages that the strings lie on; the page after them is not present.
const STRINGS: u64 = DATA;

struct Case {
    bits: u32,
    code: Vec<u8>,
    count: u64,
    from: u64,
    to: u64,
    backwards: bool,
}

fn random(rng: &mut Rng, bits: u32) -> Case {
    let opcode = [0xa4, 0xa5, 0xaa, 0xab][rng.below(4) as usize];
    let size = match rng.below(3) {
        0 => vec![0x66],
        1 if bits == 64 => vec![0x48],
        _ => vec![],
    };
    // The operand-size prefix goes before REP, REX after it.
    let mut code = Vec::new();
    code.extend(size.iter().filter(|b| **b == 0x66));
    code.push(0xf3);
    code.extend(size.iter().filter(|b| **b == 0x48));
    code.extend([opcode, 0xf4]);
    let from = STRINGS + 0x800 + rng.below(0x1000);
    // Near one another more often than not, so that they overlap.
    let apart = if rng.below(2) == 0 { rng.below(40) } else { rng.below(0x1800) };
    let to = if rng.below(2) == 0 { from + apart } else { (from - apart.min(0x700)).max(STRINGS) };
    Case { bits, code, count: rng.below(900), from, to, backwards: rng.below(8) == 0 }
}

fn boot(case: &Case) -> Guest {
    let flags = 2 | u64::from(case.backwards) << 10;
    let setup = Setup { flags, ..Setup::bits(case.bits) };
    let mut g = setup.pte(STRINGS + 0x3000, 0).code(&case.code).boot();
    let bytes: Vec<u8> = (0..0x3000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    g.m.write_physical(STRINGS, &bytes);
    g.set(0, 0x1122_3344_5566_7788 & if case.bits == 64 { u64::MAX } else { 0xffff_ffff });
    g.set(1, case.count).set(6, case.from).set(7, case.to);
    g
}

#[test]
fn many_at_a_time_is_one_at_a_time() {
    let mut rng = Rng(0x5354_4f53);
    for n in 0..400 {
        let case = random(&mut rng, if n % 2 == 0 { 32 } else { 64 });
        let what = format!(
            "case {n}: {:02x?} count {} from {:#x} to {:#x}",
            case.code, case.count, case.from, case.to
        );
        let mut whole = boot(&case);
        let end = whole.run();
        let mut single = boot(&case);
        let mut stop = Stop::Limit;
        while stop == Stop::Limit {
            stop = single.run_to(single.count() + 1);
        }
        assert_eq!(stop, end, "{what}");
        assert_eq!(single.count(), whole.count(), "{what}");
        assert_eq!(single.m.digest(), whole.m.digest(), "{what}");
        // And stopped somewhere in the middle.
        let mut cut = boot(&case);
        let at = rng.below(whole.count());
        assert_eq!(cut.run_to(at), Stop::Limit, "{what} at {at}");
        assert_eq!(cut.count(), at, "{what}");
        assert_eq!(cut.run(), end, "{what} at {at}");
        assert_eq!(cut.m.digest(), whole.m.digest(), "{what} at {at}");
    }
}

/// What is watched elsewhere costs nothing, and what is watched is seen.
#[test]
fn watches_of_other_pages_leave_many_at_a_time() {
    const ELSEWHERE: u64 = STRINGS + 0x2000;
    let write = |low: u64| Watch { kind: WatchKind::ReadWrite, low, high: low };
    for bits in [32, 64] {
        for opcode in [0xa4, 0xaa] {
            // mov dr0, edx; mov dr7, ebx; rep movsb or stosb; hlt
            let code = [0x0f, 0x23, 0xc2, 0x0f, 0x23, 0xfb, 0xf3, opcode, 0xf4];
            let case = Case {
                bits,
                code: code.to_vec(),
                count: 900,
                from: STRINGS,
                to: STRINGS + 0x1000,
                backwards: false,
            };
            let run = |prepare: &dyn Fn(&mut Guest)| {
                let mut g = boot(&case);
                g.set(2, ELSEWHERE).set(3, 0x400);
                prepare(&mut g);
                let mut seen = Watching::default();
                g.m.run(Some(&mut seen), 1_000_000);
                (g.m.core().repeated_at_once(), seen.hits.len(), g.mem(STRINGS + 0x1000 + 899, 1))
            };
            let (plain, none, last) = run(&|_| {});
            assert!(plain > 800 && none == 0, "{bits} {opcode:x}: {plain}");
            let elsewhere = |g: &mut Guest| g.m.core_mut().watch(1, write(ELSEWHERE));
            assert_eq!(run(&elsewhere), (plain, 0, last), "{bits} {opcode:x}");
            // The guest's own breakpoint, on a write of four bytes.
            let breakpoint = |g: &mut Guest| {
                g.set(3, 0xd_0401);
            };
            assert_eq!(run(&breakpoint), (plain, 0, last), "{bits} {opcode:x}");
            let here = |g: &mut Guest| g.m.core_mut().watch(1, write(STRINGS + 0x1000 + 500));
            assert_eq!(run(&here), (0, 1, last), "{bits} {opcode:x}");
            let source = |g: &mut Guest| g.m.core_mut().watch(1, write(STRINGS + 500));
            let expected = if opcode == 0xa4 { (0, 1, last) } else { (plain, 0, last) };
            assert_eq!(run(&source), expected, "{bits} {opcode:x}");
        }
    }
}

#[test]
fn a_string_over_its_own_code_stops_where_it_overwrites_itself() {
    for bits in [32, 64] {
        // rep stosb from before the instruction on, over it: the bytes after it become HLT.
        let code = [0xf3, 0xaa, 0x90, 0x90, 0x90];
        let run = |one: bool| {
            let mut g = Setup::bits(bits).code(&code).boot();
            g.set(0, 0xf4).set(1, 64).set(7, CODE - 32);
            let mut stop = Stop::Limit;
            while one && stop == Stop::Limit {
                stop = g.run_to(g.count() + 1);
            }
            let stop = if one { stop } else { g.run() };
            (stop, g.count(), g.m.digest())
        };
        assert_eq!(run(false), run(true), "{bits} bits");
    }
}
