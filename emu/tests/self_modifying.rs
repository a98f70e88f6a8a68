//! Code that writes to code: to its own page, its own block, the next instruction; unprobed and armed.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use iced_x86::code_asm::*;
use trapline_emu::Stop;

const NOP2: [u8; 2] = [0x66, 0x90];
const INC_EBX: [u8; 2] = [0xff, 0xc3];

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
            // The next page has run before. The store, part of which lies on it, adds 1 to the INC that follows, which
            // makes it a DEC.
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
                // The same, reached by falling through instead of a jump.
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
fn a_store_over_itself_counts_once_when_it_is_single_stepped() {
    for bits in [32, 64] {
        // The page has run and been written to. #DB comes after the instruction that follows POPF.
        let caught = |target: u64| {
            let s = Setup::bits(bits).asm(|a| {
                a.mov(dword_ptr(CODE + 0x80), 0).unwrap();
                a.push(0x102).unwrap();
                if bits == 64 {
                    a.popfq().unwrap()
                } else {
                    a.popfd().unwrap()
                }
                a.mov(dword_ptr(target), 0x1234_5678).unwrap();
            });
            let mut g = s.boot();
            let caught = g.caught();
            (caught.vector, caught.ip, g.count())
        };
        let elsewhere = caught(DATA);
        assert_eq!((elsewhere.0, elsewhere.2), (1, 4 + 3), "{bits}-bit");
        assert_eq!(caught(elsewhere.1 - 6), elsewhere, "{bits}-bit");
    }
}

#[test]
fn a_counter_at_a_fixed_place_on_the_page_of_its_code_is_not_stepped() {
    for bits in [32, 64] {
        for place in [CODE + 0x800, CODE + 0x801] {
            let s = Setup::bits(bits).asm(|a| {
                let mut again = a.create_label();
                a.mov(ecx, 1000).unwrap();
                a.set_label(&mut again).unwrap();
                a.inc(dword_ptr(place)).unwrap();
                a.dec(ecx).unwrap();
                a.jnz(again).unwrap();
                a.hlt().unwrap();
            });
            let mut g = s.boot();
            assert_eq!(g.run(), Stop::Halted);
            assert_eq!((g.mem(place, 4), g.count()), (1000, 3002), "{bits}-bit");
            let steps = g.m.counters().steps;
            assert!(steps < 100, "{bits}-bit: {steps} steps");
        }
    }
}

#[test]
fn a_page_that_was_code_and_data_becomes_plain_data_and_code_again() {
    const PAGE: u64 = CODE + 0x1000;
    for bits in [32, 64] {
        for armed in [false, true] {
            let s = Setup::bits(bits).asm(|a| {
                // Code that is changed before each call, data on its page while the TLB is flushed, and code again.
                for times in [40, 100, 40] {
                    let mut again = a.create_label();
                    a.mov(ecx, times).unwrap();
                    a.set_label(&mut again).unwrap();
                    if times == 100 {
                        if bits == 64 {
                            a.mov(rdx, cr3).unwrap();
                            a.mov(cr3, rdx).unwrap();
                        } else {
                            a.mov(edx, cr3).unwrap();
                            a.mov(cr3, edx).unwrap();
                        }
                        a.inc(dword_ptr(PAGE + 0x100)).unwrap();
                    } else {
                        a.inc(byte_ptr(PAGE + 1)).unwrap();
                        a.call(PAGE).unwrap();
                        a.add(ebx, eax).unwrap();
                    }
                    a.nop().unwrap();
                    a.dec(ecx).unwrap();
                    a.jnz(again).unwrap();
                }
                a.mov(esi, dword_ptr(PAGE + 0x100)).unwrap();
                a.hlt().unwrap();
            });
            let s = s.at(PAGE, &[0xb8, 0, 0, 0, 0, 0xc3]);
            let mut g = s.boot();
            let nop = (0..0x40).find(|at| g.mem(CODE + at, 1) == 0x90).unwrap();
            if armed {
                g.m.core_mut().arm(CODE + nop, &[0xcc], 1).unwrap();
            }
            let mut nops = Nops::new();
            let digest = run(&mut g, &mut nops);
            assert_eq!((g.gpr(3), g.gpr(6)), (80 * 81 / 2, 100), "{bits}-bit");
            assert_eq!(nops.hits, if armed { 40 } else { 0 });
            assert_eq!(digest, unarmed(&s));
        }
    }
}

#[test]
fn a_call_that_pushes_into_its_own_block_counts_once() {
    const BLOCK: u64 = CODE + 0x40;
    for bits in [32u64, 64] {
        for direct in [true, false] {
            // The stack ends within the CALL, which has been fetched; after HLT is a page that has run and been written
            // to.
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
fn an_instruction_of_the_machine_that_was_just_rewritten_executes_its_new_bytes() {
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
fn a_branch_between_the_instructions_of_its_own_block_is_no_store_over_it() {
    for bits in [32, 64] {
        // mov ebx, imm32; mov cl, 0; jmp into the immediate, which is E8h: a call over the two others, to the HLT.
        let code = [0xbb, 0, 0, 0xe8, 0xfb, 0xb1, 0, 0xeb, 0xfa];
        let call = CODE + 3;
        let to = (call + 5).wrapping_add_signed(i32::from_le_bytes([0xfb, 0xb1, 0, 0xeb]).into());
        let to = if bits == 64 { to } else { to & 0xffff_ffff };
        let s = Setup::bits(bits).code(&code);
        let mut g = s.boot();
        // The target lies beyond what is mapped: one instruction that goes there, then #PF.
        assert_eq!(g.run_to(3), Stop::Limit);
        assert_eq!((g.ip(), g.count()), (call, 3), "{bits}-bit");
        let caught = g.caught();
        assert_eq!((caught.vector, caught.ip, g.count()), (14, to, 4 + 3), "{bits}-bit");
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

#[test]
fn the_cells_of_dropped_translations_are_used_again() {
    // L: inc byte [imm]; call over; over: mov eax, imm; ret. Each store drops the translations of the page.
    let s = Setup::bits32().asm(|a| {
        let mut again = a.create_label();
        a.mov(ecx, 3000).unwrap();
        a.set_label(&mut again).unwrap();
        a.inc(byte_ptr(CODE + 0x1001)).unwrap();
        a.call(CODE + 0x1000).unwrap();
        a.add(ebx, eax).unwrap();
        a.nop().unwrap();
        a.dec(ecx).unwrap();
        a.jnz(again).unwrap();
        a.hlt().unwrap();
    });
    let s = s.at(CODE + 0x1000, &[0xb8, 0, 0, 0, 0, 0xc3]);
    let mut unbounded = s.boot();
    assert_eq!(unbounded.run(), Stop::Halted);
    assert!(unbounded.m.counters().blocks > 3000, "{:?}", unbounded.m.counters());
    for (blocks, armed) in [(1, false), (40, false), (40, true), (500, true)] {
        let mut g = s.boot();
        g.m.core_mut().set_most_blocks(blocks);
        g.m.core_mut().set_in_line_after(8);
        if armed {
            g.m.core_mut().arm(CODE + 18, &[0xcc], 1).unwrap();
        }
        let mut nops = Nops::new();
        assert_eq!(run(&mut g, &mut nops), unbounded.m.digest(), "{blocks} blocks, armed: {armed}");
        assert_eq!(nops.hits, if armed { 3000 } else { 0 });
        // A turn of the run loop translates a few blocks by steps.
        assert!(g.m.counters().blocks < blocks.max(16) + 20, "{:?}", g.m.counters());
    }
}
