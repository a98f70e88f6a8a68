//! Unsupported modes end the run with one sentence; the fast system calls enter the kernel and return.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use iced_x86::code_asm::*;
use trapline_emu::{CpuModel, Seg, Stop};

fn unsupported(mut g: Guest) -> String {
    match g.run() {
        Stop::Unsupported(what) => what,
        other => panic!("{other:?}\n{}", g.core().dump_registers()),
    }
}

#[test]
fn real_mode_stops_with_a_sentence() {
    let g = Setup::flat32()
        .asm(|a| {
            a.mov(eax, cr0).unwrap();
            a.and(al, 0xfe).unwrap();
            a.mov(cr0, eax).unwrap();
            a.nop().unwrap();
            a.nop().unwrap();
        })
        .boot();
    assert!(unsupported(g).contains("real mode"));
}

#[test]
fn virtual_8086_mode_stops_with_a_sentence() {
    let g = Setup::bits32()
        .asm(|a| {
            for value in [0, 0, 0, 0, 0, 0x1000, 0x2_0002, 0x2000, 0x10] {
                a.push(value).unwrap();
            }
            a.iretd().unwrap();
        })
        .boot();
    let what = unsupported(g);
    assert!(what.contains("virtual-8086"), "{what}");
    assert!(!what.contains('\n'));
}

#[test]
fn sixteen_bit_segments_stop_with_a_sentence() {
    // jmp far 68h:100h
    let g = Setup::bits32().code(&[0xea, 0, 1, 0, 0, CODE16 as u8, 0]).boot();
    assert!(unsupported(g).contains("16-bit"));
    let g = Setup::bits32().code(&[0x66, 0xb8, DATA16 as u8, 0, 0x8e, 0xd0, 0x90, 0x90]).boot();
    assert!(unsupported(g).contains("16-bit"));
}

#[test]
fn gates_of_16_bits_stop_with_a_sentence() {
    for attributes in [0xe600, 0xe700] {
        let g = Setup::bits32().gate(0x40, 0, attributes).code(&[0xcd, 0x40]).boot();
        assert!(unsupported(g).contains("16-bit gate"));
    }
}

#[test]
fn a_null_stack_segment_is_fine_in_64_bit_ring_0() {
    let mut g = Setup::bits64().code(&[0x31, 0xc0, 0x8e, 0xd0, 0x50, 0x58, 0xf4]).boot();
    assert_eq!(g.run(), Stop::Halted);
    assert_eq!(g.core().env().seg(Seg::Ss).selector, 0);
}

/// WRMSR in ring 0 before the test proper.
fn wrmsr(a: &mut CodeAssembler, index: u32, value: u64) {
    a.mov(ecx, index).unwrap();
    a.mov(eax, value as u32).unwrap();
    a.mov(edx, (value >> 32) as u32).unwrap();
    a.wrmsr().unwrap();
}

const ENTRY: u64 = DATA;
const USER: u64 = CODE + 0x1000;

#[test]
fn syscall_and_sysret_cross_over_and_back() {
    let s = Setup::bits64()
        .asm(|a| {
            wrmsr(a, 0xc000_0081, 0x0018_0008 << 32);
            wrmsr(a, 0xc000_0082, ENTRY);
            wrmsr(a, 0xc000_0084, 0x600);
            a.mov(ecx, USER as u32).unwrap();
            a.mov(r11d, 0x602).unwrap();
            a.mov(esp, STACK3 as u32).unwrap();
            a.sysretq().unwrap();
        })
        .asm_at(USER, |a| {
            a.stc().unwrap();
            a.syscall().unwrap();
            a.int(0x40).unwrap();
        })
        .asm_at(ENTRY, |a| {
            a.setb(r10b).unwrap();
            a.mov(r8, rcx).unwrap();
            a.mov(r9, r11).unwrap();
            a.mov(ebx, cs).unwrap();
            a.mov(ebp, ss).unwrap();
            a.sysretq().unwrap();
        });
    let mut g = s.boot();
    assert_eq!(g.run_to(16), Stop::Limit);
    let e = g.core().env();
    assert_eq!((e.eip(), e.cpl(), e.seg(Seg::Cs).selector, e.seg(Seg::Ss).selector), (USER, 3, 0x2b, 0x23));
    assert_eq!(g.core().eflags() & 0x600, 0x600);
    assert_eq!(g.run_to(18), Stop::Limit);
    let e = g.core().env();
    assert_eq!((e.eip(), e.cpl()), (ENTRY, 0));
    assert_eq!(g.core().eflags() & 0x601, 1, "FMASK clears IF and DF, CF stays");
    let c = g.caught();
    assert_eq!((c.vector, c.ip, c.cs, c.stack), (0x40, USER + 5, 0x2b, Some((STACK3, 0x23))));
    assert_eq!((g.gpr(8), g.gpr(9) & 0x601), (USER + 3, 0x601));
    assert_eq!((g.gpr(3), g.gpr(5)), (0x08, 0x10));
    assert_eq!(g.gpr(10) & 0xff, 1, "CF is still set at the first instruction after SYSCALL");
    assert_eq!(c.flags & 0x601, 0x601, "SYSRET restores the flags");
}

#[test]
fn sysenter_and_sysexit_cross_over_and_back() {
    for bits in [32, 64] {
        let s = Setup::bits(bits)
            .asm(|a| {
                wrmsr(a, 0x174, 8);
                wrmsr(a, 0x175, RSP0);
                wrmsr(a, 0x176, ENTRY);
                a.mov(edx, USER as u32).unwrap();
                a.mov(ecx, STACK3 as u32).unwrap();
                if bits == 64 { a.sysexitq().unwrap() } else { a.sysexit().unwrap() }
            })
            .asm_at(USER, |a| {
                a.mov(edx, USER as u32 + 0x100).unwrap();
                a.mov(ecx, STACK3 as u32 - 64).unwrap();
                a.sysenter().unwrap();
            })
            .asm_at(USER + 0x100, |a| a.int(0x40).unwrap())
            .asm_at(ENTRY, |a| {
                a.mov(ebx, cs).unwrap();
                a.mov(ebp, ss).unwrap();
                if bits == 64 { a.sysexitq().unwrap() } else { a.sysexit().unwrap() }
            });
        let mut g = s.flags(IF).boot();
        assert_eq!(g.run_to(15), Stop::Limit);
        let e = g.core().env();
        let (user_cs, user_ss): (u32, u32) = if bits == 64 { (0x2b, 0x33) } else { (0x1b, 0x23) };
        assert_eq!((e.eip(), e.cpl(), e.gpr(4)), (USER, 3, STACK3), "{bits}-bit");
        assert_eq!((e.seg(Seg::Cs).selector, e.seg(Seg::Ss).selector), (user_cs, user_ss), "{bits}-bit");
        assert_eq!(g.run_to(18), Stop::Limit);
        let e = g.core().env();
        assert_eq!((e.eip(), e.cpl(), e.gpr(4)), (ENTRY, 0, RSP0), "{bits}-bit");
        assert_eq!(g.core().eflags() & IF, 0, "SYSENTER clears IF");
        let c = g.caught();
        assert_eq!((c.vector, c.ip, c.cs), (0x40, USER + 0x102, user_cs.into()), "{bits}-bit");
        assert_eq!(c.stack, Some((STACK3 - 64, user_ss.into())), "{bits}-bit");
        assert_eq!((g.gpr(3), g.gpr(5)), (0x08, 0x10), "{bits}-bit");
    }
}

#[test]
fn sysret_to_compatibility_mode_and_an_interrupt_back() {
    let s = Setup::bits64()
        .asm(|a| {
            wrmsr(a, 0xc000_0081, 0x0018_0008 << 32);
            a.mov(ecx, USER as u32).unwrap();
            a.mov(r11d, 2).unwrap();
            a.mov(esp, STACK3 as u32).unwrap();
            a.sysret().unwrap();
        })
        // inc eax in 32-bit code; int 40h
        .at(USER, &[0x31, 0xc0, 0x40, 0xcd, 0x40]);
    let mut g = s.boot();
    let c = g.caught();
    assert_eq!((c.vector, c.ip, c.cs, c.stack), (0x40, USER + 5, 0x1b, Some((STACK3, 0x23))));
    assert_eq!(g.gpr(0), 1);
}

/// Long mode cannot begin in a code segment with the L bit, which outside it has no effect (SDM volume 3, 10.8.5.1).
#[test]
fn long_mode_does_not_begin_in_a_64_bit_segment() {
    const LONG_AND_BIG: u64 = 0x00ef_9b00_0000_ffff;
    const SELECTOR: u16 = 0x78;
    let next = CODE as u32 + 7;
    let mut jump = vec![0xea];
    jump.extend(next.to_le_bytes());
    jump.extend(SELECTOR.to_le_bytes());
    for (selector, begins) in [(SELECTOR, false), (CS0, true)] {
        let mut jump = jump.clone();
        jump[5..7].copy_from_slice(&selector.to_le_bytes());
        let s = Setup { model: CpuModel::X86_64, ..Setup::flat32() };
        let s = s.at(GDT + u64::from(SELECTOR), &LONG_AND_BIG.to_le_bytes()).code(&jump);
        let mut g = s
            .asm_at(next.into(), |a| {
                a.mov(eax, cr4).unwrap();
                a.or(eax, 0x20).unwrap();
                a.mov(cr4, eax).unwrap();
                wrmsr(a, 0xc000_0080, 0x100);
                a.mov(eax, cr0).unwrap();
                a.or(eax, 0x8000_0000u32 as i32).unwrap();
                a.mov(cr0, eax).unwrap();
                a.nop().unwrap();
            })
            .boot();
        if begins {
            // One instruction more: the tables are those of no paging, so nothing after it can be fetched.
            g.run_to(11);
            assert_eq!(g.core().env().efer() & 0x500, 0x500);
        } else {
            let c = g.caught();
            assert_eq!((c.vector, c.error), (13, Some(0)));
            assert_eq!(g.core().env().efer() & 0x500, 0x100);
        }
    }
}
