//! The two views of code: fetches see patches, and nothing else does, also after the text was rewritten or a snapshot
//! restored.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use iced_x86::code_asm::*;
use trapline_emu::{Core, Stop, Trap, TrapInterposer, Verdict};

/// A second linear address of the page at `FUNCTION`.
const ALIAS: u64 = 0x7_0000;
const FUNCTION: u64 = CODE + 0x1000;
const NOP2: [u8; 2] = [0x66, 0x90];
const INC_EBX: [u8; 2] = [0xff, 0xc3];

#[test]
fn a_guest_reads_its_own_armed_text_as_it_was_through_every_alias() {
    for bits in [32, 64] {
        let s = Setup::bits(bits).pte(ALIAS, FUNCTION | P | RW | US).at(FUNCTION, &[0x90, 0xc3]).asm(|a| {
            let function = FUNCTION;
            a.mov(esi, FUNCTION as u32).unwrap();
            a.call(function).unwrap();
            a.movzx(eax, byte_ptr(FUNCTION)).unwrap();
            a.movzx(ebx, byte_ptr(ALIAS)).unwrap();
            a.call(function).unwrap();
            a.movzx(edx, byte_ptr(FUNCTION)).unwrap();
            a.mov(edi, DATA as u32).unwrap();
            a.mov(ecx, 2).unwrap();
            a.rep().movsb().unwrap();
            a.hlt().unwrap();
        });
        let mut g = s.boot();
        g.m.core_mut().arm(FUNCTION, &[0xcc], 7).unwrap();
        let mut nops = Nops::new();
        let digest = run(&mut g, &mut nops);
        assert_eq!((nops.hits, g.gpr(0), g.gpr(3), g.gpr(2)), (2, 0x90, 0x90, 0x90));
        assert_eq!(g.mem(DATA, 2), 0xc390);
        assert_eq!(digest, unarmed(&s), "{bits}-bit");
    }
}

/// Calls the function at `target`, rewrites it through `through`, calls it again.
fn rewriting(bits: u32, target: u64, through: u64) -> Setup {
    let mut code = [0; 3];
    code[..2].copy_from_slice(&NOP2);
    code[2] = 0xc3;
    Setup::bits(bits).pte(ALIAS, (target & !0xfff) | P | RW | US).at(target, &code).asm(|a| {
        a.call(target).unwrap();
        a.call(target).unwrap();
        a.mov(word_ptr(through), i32::from(i16::from_le_bytes(INC_EBX)) & 0xffff).unwrap();
        a.call(target).unwrap();
        a.call(target).unwrap();
        a.mov(word_ptr(through), i32::from(u16::from_le_bytes(NOP2))).unwrap();
        a.call(target).unwrap();
        a.hlt().unwrap();
    })
}

#[test]
fn rewritten_armed_text_executes_and_is_armed_again() {
    for bits in [32, 64] {
        let own = CODE + 0x200;
        for (target, through) in [(FUNCTION, FUNCTION), (FUNCTION, ALIAS), (own, own), (own, ALIAS + 0x200)] {
            let s = rewriting(bits, target, through);
            let mut plain = s.boot();
            assert_eq!(plain.run(), Stop::Halted);
            assert_eq!(plain.gpr(3), 2, "without patches, {target:#x} through {through:#x}");
            let mut g = s.boot();
            g.m.core_mut().arm(target, &[0xcc], 7).unwrap();
            let mut i = Nops { verdict: Verdict::Step, ..Nops::new() };
            let digest = run(&mut g, &mut i);
            assert_eq!((i.hits, g.gpr(3)), (5, 2), "{bits}-bit, {target:#x} through {through:#x}");
            assert!(i.rewritten.contains(&(target & !0xfff)), "{:x?}", i.rewritten);
            assert_eq!(digest, plain.m.digest(), "{bits}-bit, {target:#x} through {through:#x}");
        }
    }
}

#[test]
fn the_base_of_a_64_bit_code_segment_does_not_count() {
    const BASED: u16 = 0x78;
    const TARGET: u64 = CODE + 0x100;
    for returns in [[0x48, 0xcb], [0x48, 0xcf]] {
        for armed in [false, true] {
            let s = Setup::bits64().asm(|a| {
                if returns[1] == 0xcf {
                    a.push(i32::from(DS0)).unwrap();
                    a.push(STACK0 as i32).unwrap();
                    a.push(2).unwrap();
                }
                a.push(i32::from(BASED)).unwrap();
                a.push(TARGET as i32).unwrap();
                a.db(&returns).unwrap();
            });
            let s = s.at(GDT + u64::from(BASED), &0x00af_9b00_0017_ffff_u64.to_le_bytes());
            let s = s.at(TARGET, &[0x90]).at(TARGET + 1, &INC_EBX).at(TARGET + 3, &[0xf4]);
            let mut g = s.boot();
            if armed {
                g.m.core_mut().arm(TARGET, &[0xcc], 1).unwrap();
            }
            let mut nops = Nops::new();
            let digest = run(&mut g, &mut nops);
            assert_eq!((g.gpr(3), nops.hits), (1, u64::from(armed)), "{returns:x?}");
            assert_eq!(g.core().env().cs_base(), 0, "{returns:x?}");
            assert_eq!(digest, unarmed(&s));
        }
    }
}

#[test]
fn arming_and_disarming_in_a_callback_takes_effect_for_what_comes() {
    for bits in [32, 64] {
        let s = Setup::bits(bits).at(FUNCTION, &[0x90, 0xc3]).asm(|a| {
            let mut again = a.create_label();
            a.nop().unwrap();
            a.set_label(&mut again).unwrap();
            a.nop().unwrap();
            a.nop().unwrap();
            a.nop().unwrap();
            a.call(FUNCTION).unwrap();
            a.inc(ecx).unwrap();
            a.cmp(ecx, 3).unwrap();
            a.jb(again).unwrap();
            a.hlt().unwrap();
        });
        let mut g = s.boot();
        // The function has run, so its page holds translated code: arming there must drop it.
        g.m.core_mut().arm(CODE + 1, &[0xcc], 1).unwrap();
        let mut hits = Vec::new();
        let mut arms = Answers(|core: &mut Core, trap: &Trap| {
            if hits.is_empty() {
                core.arm(CODE + 3, &[0xcc], 2).unwrap();
                core.arm(FUNCTION, &[0xcc], 3).unwrap();
            } else if trap.patch == 3 {
                core.disarm(CODE + 1);
            }
            hits.push(trap.patch);
            core.env().set_eip(trap.ip + 1);
            Verdict::Resumed
        });
        let digest = run(&mut g, &mut arms);
        assert_eq!(hits, [1, 2, 3, 2, 3, 2, 3], "{bits}-bit");
        assert_eq!(digest, unarmed(&s));
    }
}

/// A loop that calls, stores, and moves a counter in memory.
fn busy(bits: u32) -> Setup {
    Setup::bits(bits).at(FUNCTION, &[0x90, 0xff, 0xc3, 0x90, 0xc3]).asm(|a| {
        let mut again = a.create_label();
        a.mov(edi, DATA as u32).unwrap();
        a.set_label(&mut again).unwrap();
        a.call(FUNCTION).unwrap();
        if bits == 64 {
            a.mov(dword_ptr(rdi), ebx).unwrap()
        } else {
            a.mov(dword_ptr(edi), ebx).unwrap()
        }
        a.add(edi, 4).unwrap();
        a.and(edi, 0x3_ffff).unwrap();
        a.or(edi, DATA as u32).unwrap();
        a.jmp(again).unwrap();
    })
}

#[test]
fn disarming_leaves_the_digest_of_a_machine_that_was_never_armed() {
    for bits in [32, 64] {
        let mut g = busy(bits).boot();
        let mut plain = busy(bits).boot();
        let mut nops = Nops::new();
        for part in 1..=8u64 {
            if part % 2 == 1 {
                g.m.core_mut().arm(FUNCTION, &[0xcc], 1).unwrap();
                g.m.core_mut().arm(FUNCTION + 3, &[0xcc], 2).unwrap();
            } else {
                assert!(g.m.core_mut().disarm(FUNCTION) && g.m.core_mut().disarm(FUNCTION + 3));
            }
            let limit = g.base + part * 1003;
            assert_eq!(g.m.run(Some(&mut nops), limit), Stop::Limit);
            assert_eq!(plain.m.run(None, limit), Stop::Limit);
            assert_eq!(g.m.digest(), plain.m.digest(), "{bits}-bit, part {part}");
        }
        assert!(nops.hits > 500);
        assert!(!g.m.core_mut().disarm(FUNCTION));
    }
}

#[test]
fn every_way_of_resuming_leaves_the_unprobed_digest() {
    for bits in [32, 64] {
        let s = busy(bits);
        let mut plain = s.boot();
        for limit in [1, 2, 3, 4, 5, 6, 7, 50, 1000, 5001] {
            let limit = plain.base + limit;
            plain.m.run(None, limit);
            for slot in [false, true] {
                let mut g = s.boot();
                // INC EBX is displaced.
                g.m.core_mut().arm(FUNCTION + 1, &[0xcc], 1).unwrap();
                let verdict = if slot {
                    Verdict::Slot(
                        g.m.core_mut().take_slot(&INC_EBX, INC_EBX.len() as u8, FUNCTION + 1, bits).unwrap(),
                    )
                } else {
                    Verdict::Step
                };
                let mut i = Nops { verdict, ..Nops::new() };
                assert_eq!(g.m.run(Some(&mut i), limit), Stop::Limit);
                assert_eq!(g.m.digest(), plain.m.digest(), "{bits}-bit, slot {slot}, {limit}");
            }
        }
    }
}

#[test]
fn a_displaced_instruction_that_faults_faults_at_its_site() {
    for bits in [32, 64] {
        let s = Setup::bits(bits).pte(0x40000, 0).code(&[0x90, 0x8b, 0x03, 0x90]);
        for slot in [false, true] {
            let mut plain = s.boot();
            plain.set(3, 0x40008);
            plain.caught();
            let mut g = s.boot();
            g.set(3, 0x40008);
            g.m.core_mut().arm(CODE + 1, &[0xcc], 1).unwrap();
            let verdict = if slot {
                Verdict::Slot(g.m.core_mut().take_slot(&[0x8b, 0x03], 2, CODE + 1, bits).unwrap())
            } else {
                Verdict::Step
            };
            let mut i = Nops { verdict, ..Nops::new() };
            let digest = run(&mut g, &mut i);
            assert_eq!((i.hits, i.faults, g.frame().ip), (1, 1, CODE + 1), "{bits}-bit slot {slot}");
            assert_eq!((digest, g.count()), (plain.m.digest(), plain.count()), "{bits}-bit slot {slot}");
        }
    }
}

#[test]
fn a_declined_trap_reaches_the_guest_as_its_own() {
    for bits in [32, 64] {
        for (own, vector) in [(&[0xccu8][..], 3), (&[0xf0, 0x90], 6)] {
            let code = [&[0x90, 0x90][..], own, &[0x90]].concat();
            let mut plain = Setup::bits(bits).ring(3).code(&code).boot();
            assert_eq!(plain.caught().vector, vector);
            let mut g = Setup::bits(bits).ring(3).code(&code).boot();
            g.m.core_mut().arm(CODE + 2, own, 1).unwrap();
            let mut i = Nops { verdict: Verdict::Declined, ..Nops::new() };
            let digest = run(&mut g, &mut i);
            assert_eq!((i.hits, g.frame()), (1, plain.frame()), "{bits}-bit");
            assert_eq!(digest, plain.m.digest(), "{bits}-bit vector {vector}");
        }
    }
}

#[test]
fn ten_levels_of_snapshots_replay_to_the_same_digests() {
    for bits in [32, 64] {
        for armed in [false, true] {
            let mut g = busy(bits).boot();
            if armed {
                g.m.core_mut().arm(FUNCTION, &[0xcc], 1).unwrap();
            }
            let mut nops = Nops::new();
            let mut levels = Vec::new();
            for level in 0..10u64 {
                let snapshot = g.m.snapshot();
                levels.push((snapshot, g.m.digest()));
                assert_eq!(g.m.run(Some(&mut nops), g.base + (level + 1) * 777), Stop::Limit);
            }
            let end = g.m.digest();
            for level in [9, 0, 5, 5, 4, 8, 1] {
                let (snapshot, digest) = &levels[level];
                g.m.restore(snapshot).unwrap();
                assert_eq!(g.m.digest(), *digest, "{bits}-bit armed {armed}: level {level}");
                if level < 9 {
                    assert_eq!(g.m.run(Some(&mut nops), g.base + (level as u64 + 1) * 777), Stop::Limit);
                    assert_eq!(g.m.digest(), levels[level + 1].1, "{bits}-bit armed {armed}: from {level}");
                }
                assert_eq!(g.m.run(Some(&mut nops), g.base + 7770), Stop::Limit);
                assert_eq!(g.m.digest(), end, "{bits}-bit armed {armed}: level {level} to the end");
            }
        }
    }
}

#[test]
fn a_snapshot_brings_back_rewritten_armed_text() {
    for bits in [32, 64] {
        let s = rewriting(bits, FUNCTION, ALIAS);
        let mut g = s.boot();
        g.m.core_mut().arm(FUNCTION, &[0xcc], 1).unwrap();
        let mut i = Nops { verdict: Verdict::Step, ..Nops::new() };
        let start = g.m.snapshot();
        let first = run(&mut g, &mut i);
        let n = g.count();
        for stop in [3, 7, 9, 12, n - 1] {
            g.m.restore(&start).unwrap();
            assert_eq!(g.m.run(Some(&mut i), g.base + stop), Stop::Limit);
            g.m.restore(&start).unwrap();
            assert_eq!(run(&mut g, &mut i), first, "{bits}-bit, after a run to {stop}");
        }
    }
}

#[test]
fn an_instruction_of_the_machine_with_a_patch_inside_runs_from_its_own_bytes_wherever_the_host_stops() {
    for bits in [32, 64] {
        // Without the patch on its second byte IN reads the interrupt mask, which OUT has written.
        let mut g = Setup::bits(bits).code(&[0xb0, 5, 0xe6, 0x21, 0xb0, 0, 0xe4, 0x21, 0xf4]).boot();
        g.m.core_mut().arm(CODE + 7, &[0xcc], 1).unwrap();
        let mut nops = Nops::new();
        for n in 1..=4 {
            assert_eq!(g.m.run(Some(&mut nops), g.base + n), Stop::Limit);
            assert_eq!(g.count(), n, "{bits}-bit");
        }
        assert_eq!((g.gpr(0) & 0xff, nops.hits), (5, 0), "{bits}-bit");
    }
}

#[test]
fn the_end_of_memory_after_a_block_does_not_cut_the_block() {
    // The byte after the end of memory was read, so that its page is in the TLB; INC EBX is what fetches can reach
    // before it.
    let s = Setup::flat32().asm(|a| {
        a.mov(eax, dword_ptr(RAM)).unwrap();
        a.jmp(RAM - 2).unwrap();
    });
    let mut g = s.at(RAM - 2, &INC_EBX).boot();
    let caught = g.caught();
    assert_eq!((caught.vector, caught.ip, g.gpr(3)), (6, RAM, 1));
}

#[test]
fn the_guest_finds_no_memory_at_the_slots() {
    const SLOTS: u64 = 0x5452_4150 << 32;
    for store in [false, true] {
        let s = Setup::bits64().asm(|a| {
            a.mov(rcx, SLOTS).unwrap();
            if store { a.mov(dword_ptr(rcx), eax).unwrap() } else { a.mov(eax, dword_ptr(rcx)).unwrap() }
        });
        let caught = s.boot().caught();
        assert_eq!((caught.vector, caught.error, caught.ip), (13, Some(0), CODE + 10), "{store}");
    }
}

/// Steps patched instructions, and changes the patches of the page at the first exception, which comes while the
/// patches are lifted for that step.
struct Changing {
    hits: Vec<u32>,
    arms: Option<u64>,
    disarms: Option<u64>,
}

impl TrapInterposer for Changing {
    fn trap(&mut self, _: &mut Core, trap: &Trap) -> Verdict {
        self.hits.push(trap.patch);
        Verdict::Step
    }
    fn exception(&mut self, core: &mut Core, _: u8, _: u64) -> bool {
        if let Some(at) = self.disarms.take() {
            assert!(core.disarm(at));
        }
        if let Some(at) = self.arms.take() {
            core.arm(at, &[0xcc], 9).unwrap();
        }
        false
    }
}

#[test]
fn patches_that_change_while_their_page_is_stepped_stay_changed() {
    // ud2, whose handler skips it; nop; nop; hlt.
    let skip = CODE + 0x2000;
    let setup =
        Setup::bits32().code(&[0x0f, 0x0b, 0x90, 0x90, 0xf4]).gate(6, skip, 0x8e00).asm_at(skip, |a| {
            a.add(dword_ptr(esp), 2).unwrap();
            a.iretd().unwrap();
        });
    let digest = unarmed(&setup);
    let cases: [(Option<u64>, Option<u64>, &[u32]); 4] = [
        (None, None, &[0, 1]),
        (None, Some(CODE + 2), &[0]),
        (Some(CODE + 3), None, &[0, 1, 9]),
        (Some(CODE + 3), Some(CODE + 2), &[0, 9]),
    ];
    for (arms, disarms, hits) in cases {
        let mut g = setup.boot();
        g.m.core_mut().arm(CODE, &[0xcc], 0).unwrap();
        g.m.core_mut().arm(CODE + 2, &[0xcc], 1).unwrap();
        let mut changing = Changing { hits: Vec::new(), arms, disarms };
        assert_eq!(run(&mut g, &mut changing), digest);
        assert_eq!(changing.hits, hits, "{arms:x?} {disarms:x?}");
    }
    // The last patch of a page, too.
    let mut g = setup.boot();
    g.m.core_mut().arm(CODE, &[0xcc], 0).unwrap();
    let mut changing = Changing { hits: Vec::new(), arms: None, disarms: Some(CODE) };
    assert_eq!(run(&mut g, &mut changing), digest);
    let mut byte = [0];
    assert!(g.core().read_code(CODE, &mut byte));
    assert_eq!((changing.hits.as_slice(), byte), (&[0][..], [0x0f]));
}
