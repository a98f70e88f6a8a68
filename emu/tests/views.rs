//! The two views of code: fetches see patches, nothing else does; and what must survive them: rewritten text,
//! self-modifying code, snapshots.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
use common::*;
use iced_x86::code_asm::*;
use trapline_emu::{Core, Digest, Stop, Trap, TrapInterposer, Verdict};

/// A second linear address of the page at `FUNCTION`.
const ALIAS: u64 = 0x7_0000;
const FUNCTION: u64 = CODE + 0x1000;
const NOP2: [u8; 2] = [0x66, 0x90];
const INC_EBX: [u8; 2] = [0xff, 0xc3];

fn run(g: &mut Guest, i: &mut dyn TrapInterposer) -> Digest {
    let stop = g.m.run(Some(i), g.base + 1_000_000);
    assert_eq!(stop, Stop::Halted, "{}", g.core().dump_registers());
    g.m.digest()
}

/// Digest of the same guest without patches.
fn unarmed(s: &Setup) -> Digest {
    let mut g = s.boot();
    assert_eq!(g.run(), Stop::Halted);
    g.m.digest()
}

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
fn code_that_modifies_its_own_page_executes_what_it_wrote() {
    for bits in [32, 64] {
        // L: inc byte [imm]; mov eax, imm; add ebx, eax; dec ecx; jnz L
        for armed in [false, true] {
            let s = Setup::bits(bits).asm(|a| {
                let mut again = a.create_label();
                a.mov(ecx, 100).unwrap();
                a.nop().unwrap();
                a.jmp(CODE + 0x40).unwrap();
                a.set_label(&mut again).unwrap();
                a.hlt().unwrap();
            });
            let s = s.asm_at(CODE + 0x40, |a| {
                let mut again = a.create_label();
                a.set_label(&mut again).unwrap();
                a.inc(byte_ptr(CODE + 0x81)).unwrap();
                a.call(CODE + 0x80).unwrap();
                a.add(ebx, eax).unwrap();
                a.nop().unwrap();
                a.dec(ecx).unwrap();
                a.jnz(again).unwrap();
                a.hlt().unwrap();
            });
            let s = s.at(CODE + 0x80, &[0xb8, 0, 0, 0, 0, 0xc3]);
            let mut g = s.boot();
            if armed {
                // The NOP before the JMP (mov ecx is five bytes long).
                g.m.core_mut().arm(CODE + 5, &[0xcc], 1).unwrap();
            }
            let mut nops = Nops::new();
            let digest = run(&mut g, &mut nops);
            assert_eq!((g.gpr(3), nops.hits), (5050, u64::from(armed)), "{bits}-bit");
            assert_eq!(digest, unarmed(&s));
        }
    }
}

#[test]
fn a_store_just_ahead_on_the_same_page_is_seen_by_the_next_instruction() {
    for bits in [32, 64] {
        // mov word [next], INC EBX; next: 2-byte nop; hlt, with and without a patch elsewhere on the page
        for armed in [false, true] {
            let len = assemble(bits, CODE, |a| a.mov(word_ptr(CODE + 0x20), 0x4242).unwrap()).len() as u64;
            let s = Setup::bits(bits).asm(|a| {
                a.mov(word_ptr(CODE + len), i32::from(u16::from_le_bytes(INC_EBX))).unwrap();
                a.db(&NOP2).unwrap();
                a.hlt().unwrap();
            });
            let mut g = s.boot();
            if armed {
                g.m.core_mut().arm(CODE + 0x800, &[0xcc], 1).unwrap();
            }
            let digest = run(&mut g, &mut Nops::new());
            assert_eq!(g.gpr(3), 1, "{bits}-bit armed {armed}");
            let mut plain = s.boot();
            assert_eq!(plain.run(), Stop::Halted);
            let both = [&g, &plain].map(|g| (g.count(), g.core().dump_registers()));
            assert_eq!(both[0], both[1], "{bits}-bit armed {armed}");
            assert_eq!(plain.count(), 3, "{bits}-bit");
            assert_eq!(digest, plain.m.digest(), "{bits}-bit armed {armed}");
        }
    }
}

#[test]
fn a_store_just_ahead_onto_the_next_page_is_seen_by_the_next_instruction() {
    const NEXT: u64 = CODE + 0x1000;
    for bits in [32, 64] {
        for over in [0u64, 1, 3] {
            // The next page has run before. The store, of which so many bytes are on it, adds 1 to the INC that follows: DEC.
            let store = assemble(bits, CODE, |a| a.add(byte_ptr(NEXT + over + 1), 8).unwrap());
            let s = Setup::bits(bits).asm(|a| {
                a.call(NEXT + 0x100).unwrap();
                a.jmp(NEXT + over - store.len() as u64).unwrap();
            });
            let s = s.at(NEXT + 0x100, &[0xc3]).at(NEXT + over - store.len() as u64, &store);
            let mut g = s.at(NEXT + over, &INC_EBX).at(NEXT + over + 2, &[0xf4]).boot();
            assert_eq!(g.run(), Stop::Halted);
            assert_eq!((g.gpr(3) as u32, g.count()), (u32::MAX, 6), "{bits}-bit, {over} bytes over");
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

struct Arming {
    hits: Vec<u32>,
    armed: bool,
}

impl TrapInterposer for Arming {
    fn trap(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        self.hits.push(trap.patch);
        if !self.armed {
            core.arm(CODE + 3, &[0xcc], 2).unwrap();
            core.arm(FUNCTION, &[0xcc], 3).unwrap();
            self.armed = true;
        } else if trap.patch == 3 {
            core.disarm(CODE + 1);
        }
        core.env().set_eip(trap.ip + 1);
        Verdict::Resumed
    }
    fn faulted(&mut self, _: &mut Core) {}
    fn interrupted(&mut self, _: &mut Core) {}
    fn settled(&mut self, _: &mut Core) {}
    fn page_rewritten(&mut self, _: &mut Core, _: u64) {}
    fn code_page(&mut self, _: &mut Core, _: u64) {}
    fn wants_code_pages(&self) -> bool {
        false
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
        let mut i = Arming { hits: Vec::new(), armed: false };
        let digest = run(&mut g, &mut i);
        assert_eq!(i.hits, [1, 2, 3, 2, 3, 2, 3], "{bits}-bit");
        assert_eq!(digest, unarmed(&s));
    }
}

#[test]
fn a_block_that_overwrites_itself_counts_each_instruction_once() {
    for bits in [32, 64] {
        // Stores ahead in one straight block, with `before` instructions in front and a jump, not HLT, at its end.
        for before in [0, 1, 5] {
            for stores in [1u64, 3] {
                let target = CODE + 0x40;
                let s = Setup::bits(bits).asm(|a| {
                    for _ in 0..before {
                        a.nop().unwrap();
                    }
                    for _ in 0..stores {
                        a.mov(word_ptr(target), i32::from(u16::from_le_bytes(INC_EBX))).unwrap();
                    }
                    a.jmp(CODE + 0x3e).unwrap();
                });
                let s = s.at(CODE + 0x3e, &NOP2).at(target, &NOP2).at(target + 2, &[0xeb, 0x00, 0xf4]);
                let mut g = s.boot();
                assert_eq!(g.run(), Stop::Halted);
                assert_eq!((g.gpr(3), g.count()), (1, before + stores + 5), "{bits}-bit");
                // The same, fallen into instead of jumped to.
                let fill = |a: &mut CodeAssembler| {
                    for _ in 0..before {
                        a.nop().unwrap();
                    }
                    for _ in 0..stores {
                        a.mov(word_ptr(target), i32::from(u16::from_le_bytes(INC_EBX))).unwrap();
                    }
                };
                let mut code = assemble(bits, CODE, fill);
                let pads = 0x40 - code.len();
                code.resize(0x40, 0x90);
                code.extend_from_slice(&NOP2);
                code.extend_from_slice(&[0xeb, 0x00, 0xf4]);
                let mut g = Setup::bits(bits).code(&code).boot();
                assert_eq!(g.run(), Stop::Halted);
                let want = before + stores + pads as u64 + 3;
                assert_eq!((g.gpr(3), g.count()), (1, want), "{bits}-bit, one block");
            }
        }
    }
}

#[test]
fn an_unaligned_store_from_before_its_own_block_into_it_reads_what_was_there_once() {
    const BLOCK: u64 = CODE + 0x42;
    for bits in [32, 64] {
        for before in [0u64, 1, 4] {
            // Each round adds 1 to the byte before the block and, with it, 0 to the first bytes of the block.
            let s = Setup::bits(bits).asm(|a| {
                a.mov(ecx, 5).unwrap();
                a.jmp(BLOCK).unwrap();
            });
            let s = s.asm_at(BLOCK, |a| {
                for _ in 0..before {
                    a.nop().unwrap();
                }
                a.add(dword_ptr(BLOCK - 1), 1).unwrap();
                a.dec(ecx).unwrap();
                a.jnz(BLOCK).unwrap();
                a.hlt().unwrap();
            });
            let mut g = s.boot();
            assert_eq!(g.run(), Stop::Halted);
            assert_eq!(
                (g.mem(BLOCK - 1, 1), g.count()),
                (5, 2 + 5 * (before + 3) + 1),
                "{bits}-bit, {before}"
            );
        }
    }
}

#[test]
fn a_call_that_pushes_into_its_own_block_counts_once() {
    const BLOCK: u64 = CODE + 0x40;
    for bits in [32u64, 64] {
        for direct in [true, false] {
            // The stack ends within the CALL, which has been fetched; behind HLT is a page that has run and been written to.
            let s = Setup::bits(bits as u32).asm(|a| {
                a.mov(dword_ptr(CODE + 0x80), 0).unwrap();
                a.mov(eax, (CODE + 0x60) as i32).unwrap();
                a.mov(esp, (BLOCK + 1 + bits / 8) as i32).unwrap();
                a.jmp(BLOCK).unwrap();
            });
            let s = s.asm_at(BLOCK, |a| {
                a.nop().unwrap();
                match (direct, bits) {
                    (true, _) => a.call(CODE + 0x60).unwrap(),
                    (_, 32) => a.call(eax).unwrap(),
                    _ => a.call(rax).unwrap(),
                }
            });
            let mut g = s.at(CODE + 0x60, &[0xf4]).boot();
            assert_eq!((g.run(), g.count()), (Stop::Halted, 4 + 2 + 1), "{bits}-bit, {direct}");
            assert_eq!(g.gpr(4), BLOCK + 1, "{bits}-bit, {direct}");
        }
    }
}

#[test]
fn an_instruction_of_the_machine_that_has_just_been_rewritten_is_what_it_became() {
    const AT: u64 = CODE + 0x40;
    for bits in [32, 64] {
        for before in [0u64, 2] {
            // in al, 80h becomes mov ah, 80h.
            let s = Setup::bits(bits).asm(|a| {
                for _ in 0..before {
                    a.nop().unwrap();
                }
                a.sub(byte_ptr(AT), 0x30).unwrap();
                a.jmp(AT).unwrap();
            });
            let code = assemble(bits, AT - 7, |a| a.sub(byte_ptr(AT), 0x30).unwrap());
            let ahead =
                s.clone().at(AT - code.len() as u64, &code).asm(|a| a.jmp(AT - code.len() as u64).unwrap());
            for (s, count) in [(s, before + 4), (ahead, 4)] {
                let s = s.at(AT, &[0xe4, 0x80, 0xf4]);
                let mut g = s.boot();
                g.m.core_mut().arm(CODE + 0x800, &[0xcc], 1).unwrap();
                let digest = run(&mut g, &mut Nops::new());
                assert_eq!((g.gpr(0) >> 8 & 0xff, g.count()), (0x80, count), "{bits}-bit");
                assert_eq!(digest, unarmed(&s));
            }
        }
    }
}

#[test]
fn a_repeated_store_over_its_own_block_counts_each_iteration_once() {
    for bits in [32, 64] {
        for before in [0u64, 2] {
            // nop..; rep stosb over the six NOPs that follow, with 90h again except the last: f4h comes after.
            let mut code = vec![0x90; before as usize];
            code.extend_from_slice(&[0xf3, 0xaa]);
            code.extend_from_slice(&[0x40; 6]);
            code.push(0xf4);
            let mut g = Setup::bits(bits).code(&code).boot();
            g.set(0, 0x90).set(1, 6).set(7, CODE + before + 2);
            assert_eq!(g.run(), Stop::Halted);
            assert_eq!(g.gpr(0), 0x90, "{bits}-bit: the old code ran");
            assert_eq!(g.count(), before + 6 + 6 + 1, "{bits}-bit");
        }
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
                let last = levels.last().map(|(s, _)| s);
                let snapshot = g.m.snapshot(last);
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
        let start = g.m.snapshot(None);
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
