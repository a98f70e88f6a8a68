//! Defects that random guests have found: each of these runs once depended on probes, or on the engine's block
//! boundaries.

use super::alike::{alike, alike_from, every_byte};
use crate::common::{CODE, DATA, GDT, HANDLERS, Setup};
use iced_x86::code_asm::{dword_ptr, ebp, ecx};
use trapline_emu::SLOT_BYTES;

/// Sites on some bytes, in both rings and widths, or one width.
fn check(what: &str, widths: &[u32], code: &[u8], registers: &[(usize, u64)], length: u64) {
    for &bits in widths {
        for ring in [0, 3] {
            let setup = Setup::bits(bits).ring(ring).flags(0).pte(DATA + 0x8000, 0).code(code);
            let what = format!("{what}, {bits} bits, ring {ring}");
            let (end, _) = alike_from(&what, &setup, registers, &every_byte(CODE, code.len()), length);
            assert!(end.icount > 0, "{what}");
        }
    }
}

const BOTH: &[u32] = &[32, 64];

#[test]
fn a_locked_instruction_that_may_not_be_is_refused_and_counted() {
    // nop; lock mov edi, imm; nop
    check("lock", BOTH, &[0x90, 0xf0, 0xbf, 1, 2, 3, 4, 0x90], &[], 12);
    check("rep lock", BOTH, &[0x53, 0xf3, 0xf0, 0xbf, 1, 2, 3, 4, 0x90], &[], 12);
}

#[test]
fn ret_drops_more_than_32_767_bytes() {
    // push CODE + 9; ret 8000h; nop..; nop
    let code = [0x68, 9, 0, 2, 0, 0xc2, 0, 0x80, 0x90, 0x90, 0x90];
    for bits in [32, 64] {
        let setup = Setup::bits(bits).code(&code);
        let (end, hits) = alike_from("ret", &setup, &[], &every_byte(CODE, code.len()), 3);
        assert_eq!(hits, 3, "{bits} bits");
        let sp = if bits == 64 { "rsp=0000000000019000" } else { "esp=00019000" };
        assert!(end.registers.contains(sp), "{bits} bits: {}", end.registers);
    }
}

#[test]
fn a_stack_that_is_not_canonical_is_a_stack_fault_for_emulated_instructions() {
    for code in [&[0x50u8, 0x90][..], &[0x58], &[0xc9], &[0xc3], &[0xe8, 0, 0, 0, 0], &[0x9c], &[0x6a, 1]] {
        let away = 0x8000_0000_0000_1000;
        for ring in [0, 3] {
            let setup = Setup::bits(64).ring(ring).flags(0).code(code);
            let registers = [(4, away), (5, away)];
            let (end, _) = alike_from("stack", &setup, &registers, &[CODE], 8);
            // In ring 0 the frame goes to the same stack; in ring 3 the handler of #SS halts.
            let want = if ring == 0 { "TripleFault" } else { "Halted" };
            let leave = code[0] == 0xc9 && ring == 0;
            assert!(leave || end.stop.starts_with(want), "{code:02x?} ring {ring}: {}", end.stop);
        }
    }
}

#[test]
fn into_in_the_middle_of_a_block_counts_once() {
    // mov al, 7fh; add al, 1; into; lahf; nop; nop
    check("into", &[32], &[0xb0, 0x7f, 0x04, 1, 0xce, 0x9f, 0x90, 0x90], &[], 20);
}

#[test]
fn a_repeated_store_over_itself_counts_each_iteration_once() {
    // std; mov al, 0aah; rep stosb downwards through itself, alone and at the end of a block
    for lead in [&[0xfdu8, 0xb0, 0xf3][..], &[0xfd, 0xb0, 0xf3, 0x90, 0x90, 0x40, 0x48], &[0xb0, 0xaa]] {
        let mut code = lead.to_vec();
        code.extend([0xf3, 0xaa, 0x90, 0x90, 0x90, 0x90]);
        let from = if lead[0] == 0xfd { code.len() as u64 + 0x40 } else { 0 };
        check("rep stosb", BOTH, &code, &[(1, 0x60), (7, CODE + from)], 0x80);
    }
}

#[test]
fn flags_survive_the_fault_of_an_instruction_that_computes_them_early() {
    let absent = DATA + 0x8000;
    // sub ecx, edx; then rcr, rcl, setbe, sets on memory that is absent, or that may not be written
    for code in
        [&[0xc1u8, 0x1b, 5][..], &[0xd1, 0x13], &[0x0f, 0x96, 0x03], &[0x0f, 0x9a, 0x03], &[0x0f, 0x90, 0x03]]
    {
        let code = [&[0x29, 0xd1][..], code, &[0x90]].concat();
        check("early flags", BOTH, &code, &[(1, 3), (2, 5), (3, absent)], 12);
        for bits in [32, 64] {
            let setup = Setup::bits(bits).ring(3).flags(0).pte(DATA, DATA | 5).code(&code);
            let registers = [(1, 3), (2, 5), (3, DATA)];
            alike_from("early flags, read-only", &setup, &registers, &every_byte(CODE, code.len()), 12);
        }
    }
}

#[test]
fn a_resume_flag_from_iret_is_gone_alike() {
    // An IRET frame with RF set, then conditional jumps, which end their blocks without clearing it.
    for bits in [32, 64] {
        let code: &[u8] = if bits == 64 {
            // push 10h; push STACK0; push 10002h; push 8; push CODE + 20h; iretq
            &[0x6a, 0x10, 0x68, 0, 0x10, 1, 0, 0x68, 2, 0, 1, 0, 0x6a, 8, 0x68, 0x20, 0, 2, 0, 0x48, 0xcf]
        } else {
            &[0x68, 2, 0, 1, 0, 0x6a, 8, 0x68, 0x20, 0, 2, 0, 0xcf]
        };
        let setup = Setup::bits(bits).code(code).at(CODE + 0x20, &[0x7e, 0, 0x7e, 0, 0x7e, 0, 0x90, 0xf4]);
        let sites: Vec<u64> =
            every_byte(CODE, code.len()).into_iter().chain(every_byte(CODE + 0x20, 8)).collect();
        for length in [6, 7, 8, 9, 20] {
            alike_from("rf", &setup, &[], &sites, length);
        }
    }
}

#[test]
fn a_branch_to_a_non_canonical_address_faults_at_its_target() {
    for code in [&[0x50u8, 0xc3][..], &[0xff, 0xe0], &[0xff, 0xd0], &[0x50, 0xc2, 0, 0x80]] {
        let setup = Setup::bits(64).ring(3).flags(0).code(code);
        alike_from("branch", &setup, &[(0, 0x8000_0000_0000_0000)], &every_byte(CODE, code.len()), 12);
    }
}

#[test]
fn flags_survive_an_instruction_that_computes_them_early_and_writes_its_own_page() {
    // std; sub ecx, edx; rcl dword [ebx], 12h; setbe [ebx + 4]; nop
    let code = [0xfd, 0x29, 0xd1, 0xc1, 0x13, 0x12, 0x0f, 0x96, 0x43, 4, 0x90, 0x90];
    check("own page", BOTH, &code, &[(1, 3), (2, 5), (3, CODE + 0x200)], 5);
}

#[test]
fn the_same_bytes_in_32_and_64_bit_code_are_displaced_as_each() {
    // Twice: push, pop, inc/prefix, a nop, a far return to the other code segment of ring 0 at the loop's start.
    let code = [0x50, 0x58, 0x55, 0x5d, 0x6a, 0x58, 0x68, 0x20, 0, 2, 0, 0x48, 0xcb];
    let narrow = [0x6a, 8, 0x68, 0, 0, 2, 0, 0xcb];
    // The 32-bit side calls the same bytes: push, pop, push, pop, then its own way back through 64-bit code.
    let shared = [0x50, 0x58, 0x55, 0x5d, 0x89, 0xe8, 0x83, 0xc0, 1, 0xc3];
    let call = |from: u64, bytes: &[u8]| {
        let mut all = vec![0xe8];
        all.extend(((CODE + 0x40) as i32 - (from as i32 + 5)).to_le_bytes());
        all.extend(bytes);
        all
    };
    let setup = Setup::bits(64)
        .code(&call(CODE, &code[4..]))
        .at(CODE + 0x20, &call(CODE + 0x20, &narrow))
        .at(CODE + 0x40, &shared);
    let sites = every_byte(CODE + 0x40, shared.len());
    for length in [30, 31, 32, 33, 100] {
        let (end, hits) = alike_from("both sizes", &setup, &[], &sites, length);
        assert!(end.stop == "Limit" && hits >= 10, "{end:?} {hits}");
    }
}

#[test]
fn a_slot_whose_address_cut_to_32_bits_is_its_sites_is_no_site() {
    // The slots lie above 4 GiB: with this many taken, the next one's low 32 bits equal the address of the site.
    // rstorssp [ebx], which the engine refuses with #UD in its slot.
    let setup = Setup::bits(32).code(&[0xf3, 0x0f, 0x01, 0x2b, 0x90, 0xf4]);
    let boot = || {
        let mut guest = setup.boot();
        guest.set(3, DATA);
        for _ in 0..CODE / SLOT_BYTES as u64 {
            guest.m.core_mut().take_slot(&[0x90], 1, CODE, 32).unwrap();
        }
        guest
    };
    let (end, hits) = alike("slot", &boot, &[CODE], 20);
    assert!(end.stop == "Halted" && hits == 1, "{end:?} {hits}");
}

#[test]
fn flags_survive_a_conditional_loop_that_ends() {
    // clc; adc eax, 0f3f20699h; dec edx, or its 64-bit form; loopne and loope to themselves
    for (bits, dec) in [(32, &[0x4a][..]), (64, &[0xff, 0xca])] {
        for op in [0xe0, 0xe1] {
            let code = [&[0xf8, 0x15, 0x99, 6, 0xf2, 0xf3][..], dec, &[op, 0xfe, 0x90, 0x90]].concat();
            check("loop", &[bits], &code, &[(0, 0xcaae_070d), (1, 1)], 5);
            check("loop", &[bits], &code, &[(0, 0xcaae_070d), (1, 9)], 15);
        }
    }
}

#[test]
fn a_vector_prefix_is_refused_before_any_instruction() {
    // VEX before RDTSC, which the engine runs with the host's clock; before ADDPS and NOP; LDS keeps its meaning
    for code in [&[0xc5u8, 0xc8, 0x31, 0x90][..], &[0xc4, 0xe1, 0x78, 0x31], &[0xc5, 0xf8, 0x58, 0xc1]] {
        check("vex", BOTH, &[code, &[0x90]].concat(), &[], 8);
        for bits in [32, 64] {
            let setup = Setup::bits(bits).ring(3).flags(0).code(code);
            let mut guest = setup.boot();
            let frame = guest.caught();
            assert_eq!((frame.vector, frame.ip), (6, CODE), "{code:02x?}, {bits} bits");
        }
    }
    check("lds", &[32], &[0xc5, 0x03, 0x90], &[(3, DATA)], 8);
}

#[test]
fn a_user_reads_no_descriptor_table_by_an_instruction_that_loads_a_segment() {
    // pop fs from the page of the GDT, which ring 3 may not read, and beyond the null LDT.
    for bits in [32, 64] {
        for stack in [GDT + 0x18, 0xcd0] {
            let setup = Setup::bits(bits).ring(3).flags(0).pte(GDT, GDT | 3).pte(0, 3);
            let setup = setup.code(&[0x0f, 0xa1, 0x5e, 0x90]);
            let (end, _) = alike_from("pop fs", &setup, &[(4, stack)], &every_byte(CODE, 4), 6);
            let mut guest = setup.boot();
            let frame = guest.set(4, stack).caught();
            assert_eq!((frame.vector, frame.cr2, frame.ip), (14, stack, CODE), "{bits} bits: {}", end.stop);
        }
    }
}

#[test]
fn a_page_fault_forgets_the_page_that_was_cached() {
    for bits in [32, 64] {
        let setup = Setup::bits(bits).pte(DATA, DATA | 3);
        let entry = setup.pte_at(DATA);
        // The read caches the page, clean; its entry is removed; the write needs the dirty bit, walks the tables, and
        // faults.
        let setup = setup.asm(|a| {
            a.mov(ecx, dword_ptr(DATA)).unwrap();
            a.mov(dword_ptr(entry), 0).unwrap();
            a.mov(ecx, dword_ptr(DATA + 4)).unwrap();
            a.mov(dword_ptr(DATA), ecx).unwrap();
        });
        // Its handler reads once more, and halts at the second fault.
        let setup = setup.asm_at(HANDLERS + 16 * 14, |a| a.jmp(CODE + 0x100).unwrap());
        let setup = setup.asm_at(CODE + 0x100, |a| {
            let mut again = a.create_label();
            a.add(ebp, 1).unwrap();
            a.cmp(ebp, 2).unwrap();
            a.je(again).unwrap();
            a.mov(ecx, dword_ptr(DATA + 8)).unwrap();
            a.set_label(&mut again).unwrap();
            a.hlt().unwrap();
        });
        let sites = [every_byte(CODE, 8), every_byte(CODE + 0x100, 16)].concat();
        let (end, hits) = alike_from("fault", &setup, &[(5, 0)], &sites, 40);
        assert!(end.stop == "Halted" && hits > 5, "{end:?} {hits}");
        let mut guest = setup.boot();
        guest.set(5, 0).run();
        assert_eq!((guest.gpr(5), guest.core().env().cr(2)), (2, DATA + 8), "{bits} bits");
    }
}
