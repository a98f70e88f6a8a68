//! The MMU as the guest sees it: table formats, rights, accessed and dirty bits, the TLB, and accesses that cross
//! from one page into another.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use iced_x86::code_asm::*;
use trapline_emu::Stop;

/// Linear page that the tests remap, its physical page, and another physical page.
const VA: u64 = 0x4_0000;
const PA: u64 = 0x5_0000;
const PB: u64 = 0x6_0000;

fn paged() -> [Setup; 3] {
    [Setup::bits32(), Setup::pae(), Setup::bits64()]
}

fn pte(g: &Guest, s: &Setup, va: u64) -> u64 {
    g.mem(s.pte_at(va), s.entry_bytes())
}

#[test]
fn without_paging_linear_is_physical() {
    let mut g = Setup::flat32().at(PA, &0xfeed_u32.to_le_bytes()).code(&[0x8b, 0x03, 0xf4]).boot();
    g.set(3, PA);
    assert_eq!(g.run(), Stop::Halted);
    assert_eq!(g.gpr(0), 0xfeed);
}

#[test]
fn every_format_translates() {
    for s in paged() {
        let s = s.pte(VA, PA | P | RW).at(PA + 8, &0xfeed_u32.to_le_bytes());
        // mov eax, [ebx+8]; mov [ebx+0ch], eax; hlt
        let mut g = s.clone().code(&[0x8b, 0x43, 8, 0x89, 0x43, 12, 0xf4]).boot();
        g.set(3, VA);
        assert_eq!(g.run(), Stop::Halted, "{:?}", s.tables);
        assert_eq!((g.gpr(0), g.mem(PA + 12, 4)), (0xfeed, 0xfeed), "{:?}", s.tables);
    }
}

/// Large pages: 4 MiB in 32-bit tables, 2 MiB otherwise, at linear 800000h, physical 0.
fn large(s: Setup) -> (Setup, u64) {
    let (level, index) = match s.tables {
        Tables::Two => (0, 0x80_0000 >> 22),
        Tables::Pae => (1, 0x80_0000 >> 21),
        _ => (2, 0x80_0000 >> 21),
    };
    let at = TABLES + level * 0x1000 + index * s.entry_bytes() as u64;
    let n = s.entry_bytes();
    (s.at(at, &(P | RW | PS).to_le_bytes()[..n]), at)
}

#[test]
fn large_pages_translate_and_are_marked() {
    for s in paged() {
        let n = s.entry_bytes();
        let (s, at) = large(s);
        let s = s.at(PA + 8, &0xfeed_u32.to_le_bytes());
        let mut g = s.clone().code(&[0x8b, 0x43, 8, 0x89, 0x43, 12, 0xf4]).boot();
        g.set(3, 0x80_0000 + PA);
        assert_eq!(g.run_to(1), Stop::Limit);
        assert_eq!((g.gpr(0), g.mem(at, n)), (0xfeed, P | RW | PS | A), "{:?}", s.tables);
        // The second half writes: only now is the page dirty.
        assert_eq!(g.run(), Stop::Halted);
        assert_eq!((g.mem(PA + 12, 4), g.mem(at, n)), (0xfeed, P | RW | PS | A | D), "{:?}", s.tables);
    }
}

#[test]
fn accessed_and_dirty_are_set_by_the_access_that_needs_them() {
    for s in paged() {
        // nop; mov eax, [ebx]; mov [ebx], eax; nop
        let s = s.pte(VA, PA | P | RW).code(&[0x90, 0x8b, 0x03, 0x89, 0x03, 0x90, 0xf4]);
        let mut g = s.boot();
        g.set(3, VA);
        for (n, bits) in [(0, 0), (1, 0), (2, A), (3, A | D), (4, A | D)] {
            assert_eq!(g.run_to(n), Stop::Limit);
            assert_eq!(pte(&g, &s, VA), PA | P | RW | bits, "{:?} after {n}", s.tables);
        }
        let upper = if s.tables == Tables::Two { TABLES } else { TABLES + 0x1000 };
        assert_ne!(g.mem(upper, 4) & A, 0, "the level above");
    }
}

#[test]
fn a_denied_access_marks_nothing() {
    for s in paged() {
        let s = s.pte(VA, PA | P).code(&[0x89, 0x03]);
        let mut g = s.boot();
        g.set(3, VA);
        assert_eq!(g.caught().vector, 14);
        assert_eq!(pte(&g, &s, VA), PA | P, "{:?}", s.tables);
    }
}

#[test]
fn a_page_that_is_only_looked_at_is_not_accessed() {
    for s in paged() {
        // The jump ends the page before VA; decoding and block building look further, the CPU does not.
        let s =
            s.pte(VA, PA | P | RW | US).at(VA - 6, &[0x90, 0x90, 0xeb, 0x00, 0x90, 0xf4]).at(PA, &[0x90; 64]);
        let mut s = s;
        s.entry = VA - 6;
        let mut g = s.boot();
        assert_eq!(g.run(), Stop::Halted);
        assert_eq!(pte(&g, &s, VA), PA | P | RW | US, "{:?}", s.tables);
        // A block that runs up to the very end of its page and is stopped there.
        let mut s = s.at(VA - 6, &[0x90; 6]);
        s.entry = VA - 6;
        let mut g = s.boot();
        assert_eq!(g.run_to(6), Stop::Limit);
        assert_eq!(g.ip(), VA);
        assert_eq!(pte(&g, &s, VA), PA | P | RW | US, "{:?}: stopped before it", s.tables);
        assert_eq!(g.run_to(7), Stop::Limit);
        assert_eq!(pte(&g, &s, VA), PA | P | RW | US | A, "{:?}: reached", s.tables);
    }
}

#[test]
fn write_protect_binds_the_supervisor_only_with_cr0_wp() {
    for s in paged() {
        let mut s = s.pte(VA, PA | P).code(&[0x89, 0x03, 0xf4]);
        s.cr0 &= !0x1_0000;
        let mut g = s.boot();
        g.set(3, VA).set(0, 7);
        assert_eq!(g.run(), Stop::Halted);
        assert_eq!((g.mem(PA, 4), pte(&g, &s, VA)), (7, PA | P | A | D), "{:?}", s.tables);
        // The user is bound in either case.
        let mut s = s.pte(VA, PA | P | US).ring(3);
        s.cr0 &= !0x1_0000;
        let mut g = s.boot();
        g.set(3, VA);
        assert_eq!(g.caught().error, Some(7), "{:?}", s.tables);
    }
}

#[test]
fn an_upper_level_denies_what_the_leaf_allows() {
    for s in paged() {
        let n = s.entry_bytes();
        let pd = TABLES
            + if s.tables == Tables::Two {
                0
            } else if s.tables == Tables::Pae {
                0x1000
            } else {
                0x2000
            };
        let mut g = s.clone().code(&[0x90, 0x89, 0x03, 0xf4]).boot();
        g.set(3, VA);
        // R/W of the directory entry is cleared before anything uses VA.
        let value = g.mem(pd, n) & !RW;
        g.m.write_physical(pd, &value.to_le_bytes()[..n]);
        let c = g.caught();
        assert_eq!((c.vector, c.error), (14, Some(3)), "{:?}", s.tables);
    }
}

/// Reads VA into EAX, points its entry at another page, does `flush`, reads it into EBX.
fn remap(s: Setup, entry: u64, flush: impl FnOnce(&mut CodeAssembler)) -> (u64, u64) {
    let at = s.pte_at(VA);
    let wide = s.wide();
    let s = s.pte(VA, PA | entry).at(PA, &[1]).at(PB, &[2]).asm(|a| {
        a.mov(edi, VA as u32).unwrap();
        a.mov(esi, at as u32).unwrap();
        if wide {
            a.mov(eax, dword_ptr(rdi)).unwrap()
        } else {
            a.mov(eax, dword_ptr(edi)).unwrap()
        }
        let low = (PB | entry) as u32 as i32;
        if wide {
            a.mov(dword_ptr(rsi), low).unwrap()
        } else {
            a.mov(dword_ptr(esi), low).unwrap()
        }
        flush(a);
        if wide {
            a.mov(ebx, dword_ptr(rdi)).unwrap()
        } else {
            a.mov(ebx, dword_ptr(edi)).unwrap()
        }
        a.hlt().unwrap();
    });
    let mut g = s.boot();
    assert_eq!(g.run(), Stop::Halted, "{}", g.core().dump_registers());
    let result = (g.gpr(0), g.gpr(3));
    // A TLB keeps what it has however often the host stops the machine.
    let mut h = s.boot();
    let mut n = 0;
    while h.run_to(n) == Stop::Limit {
        n += 1;
    }
    assert_eq!((h.gpr(0), h.gpr(3)), result);
    result
}

fn reload_cr3(wide: bool) -> impl FnOnce(&mut CodeAssembler) {
    move |a| {
        if wide {
            a.mov(rax, cr3).unwrap();
            a.mov(cr3, rax).unwrap();
            a.mov(eax, 1).unwrap();
        } else {
            a.mov(eax, cr3).unwrap();
            a.mov(cr3, eax).unwrap();
            a.mov(eax, 1).unwrap();
        }
    }
}

#[test]
fn a_translation_lives_until_the_guest_flushes_it() {
    for s in paged() {
        let wide = s.wide();
        assert_eq!(remap(s.clone(), P | RW, |_| ()), (1, 1), "{:?}: stale", s.tables);
        assert_eq!(remap(s.clone(), P | RW, reload_cr3(wide)), (1, 2), "{:?}: CR3", s.tables);
        let invlpg = |a: &mut CodeAssembler| {
            if wide { a.invlpg(ptr(rdi)).unwrap() } else { a.invlpg(ptr(edi)).unwrap() }
        };
        assert_eq!(remap(s.clone(), P | RW, invlpg), (1, 2), "{:?}: INVLPG", s.tables);
    }
}

#[test]
fn a_global_page_survives_cr3_but_not_invlpg_nor_pge() {
    for s in paged() {
        let wide = s.wide();
        assert_eq!(remap(s.clone(), P | RW | G, reload_cr3(wide)), (1, 1), "{:?}: CR3", s.tables);
        let invlpg = |a: &mut CodeAssembler| {
            if wide { a.invlpg(ptr(rdi)).unwrap() } else { a.invlpg(ptr(edi)).unwrap() }
        };
        assert_eq!(remap(s.clone(), P | RW | G, invlpg), (1, 2), "{:?}: INVLPG", s.tables);
        let toggle = |a: &mut CodeAssembler| {
            for _ in 0..2 {
                if wide {
                    a.mov(rax, cr4).unwrap();
                    a.xor(eax, 0x80).unwrap();
                    a.mov(cr4, rax).unwrap();
                } else {
                    a.mov(eax, cr4).unwrap();
                    a.xor(eax, 0x80).unwrap();
                    a.mov(cr4, eax).unwrap();
                }
            }
            a.mov(eax, 1).unwrap();
        };
        assert_eq!(remap(s.clone(), P | RW | G, toggle), (1, 2), "{:?}: PGE", s.tables);
        let mut s = s;
        s.cr4 &= !0x80;
        assert_eq!(remap(s.clone(), P | RW | G, reload_cr3(wide)), (1, 2), "{:?}: G without PGE", s.tables);
    }
}

#[test]
fn invlpg_anywhere_in_a_large_page_drops_all_of_it() {
    for s in paged() {
        let wide = s.wide();
        let (s, at) = large(s);
        // Read two 4 KiB pieces, make the page absent, INVLPG a third piece, read the second piece.
        let s = s.asm(|a| {
            a.mov(edi, 0x80_0000 + PA as u32).unwrap();
            a.mov(esi, at as u32).unwrap();
            if wide {
                a.mov(eax, dword_ptr(rdi)).unwrap();
                a.mov(eax, dword_ptr(rdi + 0x3000)).unwrap();
                a.mov(dword_ptr(rsi), 0).unwrap();
                a.mov(eax, dword_ptr(rdi + 0x3000)).unwrap();
                a.invlpg(ptr(rdi + 0x5000)).unwrap();
                a.mov(eax, dword_ptr(rdi + 0x3000)).unwrap();
            } else {
                a.mov(eax, dword_ptr(edi)).unwrap();
                a.mov(eax, dword_ptr(edi + 0x3000)).unwrap();
                a.mov(dword_ptr(esi), 0).unwrap();
                a.mov(eax, dword_ptr(edi + 0x3000)).unwrap();
                a.invlpg(ptr(edi + 0x5000)).unwrap();
                a.mov(eax, dword_ptr(edi + 0x3000)).unwrap();
            }
            a.hlt().unwrap();
        });
        let mut g = s.boot();
        let c = g.caught();
        assert_eq!((c.vector, c.error, c.cr2), (14, Some(0), 0x80_0000 + PA + 0x3000), "{:?}", s.tables);
        assert_eq!(g.count(), 7 + 3, "{:?}: the stale read before INVLPG worked", s.tables);
    }
}

#[test]
fn a_page_made_present_needs_no_flush() {
    for s in paged() {
        let wide = s.wide();
        let at = s.pte_at(VA);
        // The handler maps the page and returns; SDM volume 3, 4.10.4.3: a fault caches nothing.
        let s = s
            .pte(VA, 0)
            .at(PA + 4, &[0x11])
            .gate(14, DATA, 0x8e00)
            .asm_at(DATA, |a| {
                a.mov(dword_ptr(at), (PA | P | RW) as i32).unwrap();
                if wide {
                    a.add(rsp, 8).unwrap();
                    a.iretq().unwrap();
                } else {
                    a.add(esp, 4).unwrap();
                    a.iretd().unwrap();
                }
            })
            .code(&[0x8b, 0x43, 4, 0xf4]);
        let mut g = s.boot();
        g.set(3, VA);
        assert_eq!(g.run(), Stop::Halted);
        assert_eq!((g.gpr(0), g.count()), (0x11, 3 + 2), "{:?}", s.tables);
    }
}

#[test]
fn an_instruction_that_crosses_into_an_absent_page_faults_at_its_own_address() {
    for s in paged() {
        for inside in 1..5u64 {
            // Two INC EDX (ff c2) before `mov eax, 12345678h`, of which `inside` bytes lie in the first page.
            let start = VA - inside - 4;
            let mut code = vec![0xff, 0xc2, 0xff, 0xc2];
            code.extend_from_slice(&[0xb8, 0x78, 0x56, 0x34, 0x12][..inside as usize]);
            let mut s = s.clone().pte(VA, 0).at(start, &code);
            s.entry = start;
            let mut g = s.boot();
            let c = g.caught();
            let fetch = if s.tables == Tables::Two { 0 } else { 0x10 };
            assert_eq!((c.vector, c.error), (14, Some(fetch)), "{:?}", s.tables);
            assert_eq!((c.ip, c.cr2), (VA - inside, VA), "{:?}, {inside} bytes inside", s.tables);
            assert_eq!(
                (g.gpr(2), g.count()),
                (2, 2 + 3),
                "{:?}: the instructions before have completed",
                s.tables
            );
        }
    }
}

#[test]
fn an_instruction_at_the_end_of_a_page_retires_before_the_next_page_faults() {
    for s in paged() {
        let mut s = s.pte(VA, 0).at(VA - 5, &[0x90, 0xff, 0xc2, 0xff, 0xc2]);
        s.entry = VA - 5;
        let mut g = s.boot();
        let c = g.caught();
        assert_eq!((c.vector, c.ip, c.cr2), (14, VA, VA), "{:?}", s.tables);
        assert_eq!((g.gpr(2), g.count()), (2, 3 + 3), "{:?}", s.tables);
    }
}

#[test]
fn an_instruction_across_two_present_pages_executes() {
    for s in paged() {
        for inside in 1..5u64 {
            let code = [0xb8, 0x78, 0x56, 0x34, 0x12, 0xf4];
            let (first, second) = code.split_at(inside as usize);
            let mut s = s.clone().pte(VA, PA | P | US).at(VA - inside, first).at(PA, second);
            s.entry = VA - inside;
            let mut g = s.boot();
            assert_eq!(g.run(), Stop::Halted, "{:?}", s.tables);
            assert_eq!((g.gpr(0), g.count()), (0x1234_5678, 2), "{:?}", s.tables);
        }
    }
}

#[test]
fn a_store_across_pages_writes_nothing_when_the_second_is_absent() {
    for s in paged() {
        let s = s.pte(VA, 0).code(&[0x89, 0x03]);
        let mut g = s.boot();
        g.set(3, VA - 2).set(0, 0xaabb_ccdd);
        let c = g.caught();
        assert_eq!((c.vector, c.error, c.cr2, c.ip), (14, Some(2), VA, CODE), "{:?}", s.tables);
        assert_eq!(g.mem(VA - 2, 2), 0, "{:?}: a partial write", s.tables);
        // Read-modify-write likewise, and CR2 is where the fault is.
        let mut g = s.clone().code(&[0x01, 0x03]).boot();
        g.set(3, VA - 1).set(0, 1);
        g.m.write_physical(VA - 1, &[0xff]);
        let c = g.caught();
        assert_eq!((c.vector, c.error, c.cr2), (14, Some(2), VA), "{:?}", s.tables);
        assert_eq!(g.mem(VA - 1, 1), 0xff, "{:?}", s.tables);
    }
}

#[test]
fn a_store_across_pages_writes_nothing_when_the_second_is_read_only() {
    for s in paged() {
        let s = s.pte(VA, PA | P | US).code(&[0x89, 0x03]).ring(3);
        let mut g = s.boot();
        g.set(3, VA - 2).set(0, 0xaabb_ccdd);
        let c = g.caught();
        assert_eq!((c.vector, c.error, c.cr2), (14, Some(7), VA), "{:?}", s.tables);
        assert_eq!((g.mem(VA - 2, 2), g.mem(PA, 2)), (0, 0), "{:?}: a partial write", s.tables);
    }
}

#[test]
fn a_read_across_two_pages_that_are_not_adjacent_in_memory_joins_them() {
    for s in paged() {
        let s = s.pte(VA, PA | P | RW).at(VA - 2, &[0x11, 0x22]).at(PA, &[0x33, 0x44]);
        let mut g = s.code(&[0x8b, 0x03, 0x89, 0x43, 0x10, 0xf4]).boot();
        g.set(3, VA - 2);
        assert_eq!(g.run(), Stop::Halted);
        assert_eq!(g.gpr(0), 0x4433_2211);
    }
}

#[test]
fn nx_without_nxe_is_reserved_and_with_it_denies_fetches_only() {
    for s in [Setup::pae(), Setup::bits64()] {
        let s = s.pte(VA, PA | P | RW | NX).code(&[0x8b, 0x03, 0xff, 0xe3]);
        let mut g = s.boot();
        g.set(3, VA);
        let c = g.caught();
        assert_eq!((c.vector, c.error, c.ip, c.cr2), (14, Some(0x11), VA, VA), "{:?}", s.tables);
        let mut s = s;
        s.efer &= !0x800;
        let mut g = s.boot();
        g.set(3, VA);
        let c = g.caught();
        assert_eq!((c.vector, c.error, c.ip), (14, Some(9), CODE), "{:?}", s.tables);
    }
}

#[test]
fn a_write_to_where_no_memory_is_sets_the_dirty_bit_also_after_a_read() {
    use iced_x86::code_asm::{dword_ptr, eax};
    const BEYOND: u64 = 64 << 20;
    for bits in [32, 64] {
        let setup = Setup::bits(bits).pte(DATA, BEYOND | P | RW | US).asm(|a| {
            a.mov(eax, dword_ptr(DATA)).unwrap();
            a.mov(dword_ptr(DATA), eax).unwrap();
            a.hlt().unwrap();
        });
        let at = setup.pte_at(DATA);
        let mut guest = setup.boot();
        guest.run_to(1);
        assert_eq!(guest.mem(at, 1) & (A | D), A, "{bits} bits, after the read");
        guest.run_to(2);
        assert_eq!(guest.mem(at, 1) & (A | D), A | D, "{bits} bits, after the write");
    }
}

/// Calls VA, points its entry at another page, does `flush`, calls it again: EBX of both calls. The code begins `before`
/// bytes before VA, in a page that stays, with MOV EBX, imm32.
fn recall(s: Setup, entry: u64, before: u64, flush: impl FnOnce(&mut CodeAssembler)) -> (u64, u64) {
    let at = s.pte_at(VA);
    let wide = s.wide();
    let code = |value: u8| [0xbb, value, value, 0, 0, 0xc3];
    let split = before as usize;
    let start = VA - before;
    let s = s.pte(VA, PA | entry).at(start, &code(1)[..split]);
    let s = s.at(PA, &code(1)[split..]).at(PB, &code(2)[split..]).asm(|a| {
        a.mov(edi, start as u32).unwrap();
        a.mov(esi, at as u32).unwrap();
        if wide {
            a.call(rdi).unwrap()
        } else {
            a.call(edi).unwrap()
        }
        a.mov(ebp, ebx).unwrap();
        let low = (PB | entry) as u32 as i32;
        if wide {
            a.mov(dword_ptr(rsi), low).unwrap()
        } else {
            a.mov(dword_ptr(esi), low).unwrap()
        }
        flush(a);
        if wide {
            a.call(rdi).unwrap()
        } else {
            a.call(edi).unwrap()
        }
        a.hlt().unwrap();
    });
    let mut g = s.boot();
    assert_eq!(g.run(), Stop::Halted, "{}", g.core().dump_registers());
    (g.gpr(5), g.gpr(3))
}

#[test]
fn code_is_fetched_through_the_translation_of_its_time() {
    for s in paged() {
        let wide = s.wide();
        let invlpg = |a: &mut CodeAssembler| a.invlpg(ptr(VA)).unwrap();
        for (before, old, new) in [(0, 0x101, 0x202), (2, 0x101, 0x201)] {
            let run = |entry, flush: &dyn Fn(&mut CodeAssembler)| recall(s.clone(), entry, before, flush);
            assert_eq!(run(P | RW, &|_| ()), (old, old), "{:?}: stale", s.tables);
            assert_eq!(run(P | RW, &|a| reload_cr3(wide)(a)), (old, new), "{:?}: CR3", s.tables);
            assert_eq!(run(P | RW, &invlpg), (old, new), "{:?}: INVLPG", s.tables);
            assert_eq!(run(P | RW | G, &|a| reload_cr3(wide)(a)), (old, old), "{:?}: global, CR3", s.tables);
            assert_eq!(run(P | RW | G, &invlpg), (old, new), "{:?}: global, INVLPG", s.tables);
        }
    }
}
