//! The instruction clock: what is counted, and that no limit, block boundary or host stop changes the count.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use iced_x86::code_asm::*;
use trapline_emu::Stop;

/// Runs to HLT; instructions retired, HLT included.
fn count(code: &[u8], bits: u32, registers: &[(usize, u64)]) -> (u64, Guest) {
    let mut g = Setup::bits(bits).pte(0x40000, 0).code(code).boot();
    for &(index, value) in registers {
        g.set(index, value);
    }
    assert_eq!(g.run(), Stop::Halted, "{}", g.core().dump_registers());
    (g.count(), g)
}

#[test]
fn straight_code_counts_one_each() {
    for bits in [32, 64] {
        for n in [0usize, 1, 2, 31, 100, 600] {
            let mut code = vec![0x90; n];
            code.push(0xf4);
            assert_eq!(count(&code, bits, &[]).0, n as u64 + 1);
        }
    }
}

#[test]
fn each_repetition_counts_and_none_counts_one() {
    for bits in [32, 64] {
        for n in [0u64, 1, 2, 5, 300] {
            for (code, what) in
                [(0xa4u8, "movsb"), (0xa5, "movsd"), (0xaa, "stosb"), (0xac, "lodsb"), (0xab, "stosd")]
            {
                let bytes = [0x90, 0xf3, code, 0x90, 0xf4];
                let (c, g) = count(&bytes, bits, &[(1, n), (6, DATA), (7, DATA + 0x2000)]);
                assert_eq!(c, 3 + n.max(1), "{bits}-bit rep {what} {n}");
                assert_eq!(g.gpr(1), 0);
            }
            // outsb to port 80h
            let (c, _) = count(&[0xf3, 0x6e, 0xf4], bits, &[(1, n), (6, DATA), (2, 0x80)]);
            assert_eq!(c, 1 + n.max(1), "{bits}-bit rep outsb {n}");
        }
    }
}

#[test]
fn a_conditional_repetition_counts_up_to_its_exit() {
    for bits in [32, 64] {
        for stop_at in [1u64, 2, 7] {
            for (code, equal) in [(&[0xf3, 0xa6, 0xf4][..], true), (&[0xf2, 0xae, 0xf4], false)] {
                let mut g = Setup::bits(bits).code(code).boot();
                g.set(1, 20).set(6, DATA).set(7, DATA + 0x100).set(0, 7);
                let fill = if equal { 0u8 } else { 1 };
                let other = if equal { 9u8 } else { 7 };
                g.m.write_physical(DATA + 0x100, &[fill; 20]);
                g.m.write_physical(DATA + 0x100 + stop_at - 1, &[other]);
                assert_eq!(g.run(), Stop::Halted);
                assert_eq!((g.count(), g.gpr(1)), (stop_at + 1, 20 - stop_at), "{bits}-bit {code:x?}");
            }
        }
        // Both the count and the condition end it at the same element.
        let (c, g) = count(&[0xf3, 0xa6, 0xf4], bits, &[(1, 4), (6, DATA), (7, DATA + 0x100)]);
        assert_eq!((c, g.gpr(1)), (5, 0));
    }
}

#[test]
fn a_fault_in_a_repetition_counts_what_was_done() {
    for bits in [32, 64] {
        let mut g = Setup::bits(bits).pte(0x40000, 0).code(&[0x90, 0xf3, 0xa4, 0xf4]).boot();
        g.set(1, 9).set(6, DATA).set(7, 0x3fffd);
        let c = g.caught();
        assert_eq!((c.vector, c.ip, c.cr2), (14, CODE + 1, 0x40000));
        assert_eq!((g.gpr(1), g.gpr(6), g.gpr(7)), (6, DATA + 3, 0x40000));
        assert_eq!(g.count(), 1 + 3 + 3, "nop, three iterations, the stub's three");
        assert_ne!(c.flags & RF, 0);
    }
}

#[test]
fn a_faulting_instruction_and_its_delivery_count_nothing() {
    for bits in [32, 64] {
        for before in [0usize, 1, 5, 40] {
            for fault in [&[0xf7, 0xf1][..], &[0x8b, 0x03], &[0x89, 0x03], &[0x0f, 0x0b], &[0xff, 0x33]] {
                let mut code = vec![0x90; before];
                code.extend_from_slice(fault);
                code.extend_from_slice(&[0x90; 8]);
                let (c, g) = count(&code, bits, &[(3, 0x40000)]);
                assert_eq!(g.frame().ip, CODE + before as u64);
                assert_eq!(c, before as u64 + 3, "{bits}-bit {fault:x?} after {before}");
            }
        }
    }
}

#[test]
fn software_interrupts_returns_ports_and_halt_count_one() {
    for bits in [32, 64] {
        let iret: &[u8] = if bits == 64 { &[0x90, 0x48, 0xcf] } else { &[0x90, 0xcf] };
        for (code, extra) in [
            (&[0xcd, 0x80, 0xf4][..], 2),
            (&[0xe4, 0x61, 0xe6, 0x80, 0xf4], 1),
            (&[0x0f, 0xa2, 0x0f, 0x31, 0xf4], 1),
            (&[0xe8, 1, 0, 0, 0, 0xf4, 0xc3], 1),
        ] {
            let mut g = Setup::bits(bits).at(DATA, iret).gate(0x80, DATA, 0xee00).code(code).boot();
            assert_eq!(g.run(), Stop::Halted);
            assert_eq!(g.count(), 2 + extra, "{bits}-bit {code:x?}");
        }
        let (c, _) = count(&[0xb9, 10, 0, 0, 0, 0x90, 0xe2, 0xfd, 0xf4], bits, &[]);
        assert_eq!(c, 1 + 20 + 1, "loop");
    }
}

/// A program of a few hundred instructions with every special case of counting.
fn mixed(bits: u32) -> Setup {
    let wide = bits == 64;
    let (timer, syscall, divide) = (DATA, DATA + 0x100, DATA + 0x200);
    let ret = move |a: &mut CodeAssembler| if wide { a.iretq().unwrap() } else { a.iretd().unwrap() };
    let setup = Setup::bits(bits)
        .asm_at(timer, |a| {
            if wide {
                a.push(rax).unwrap()
            } else {
                a.push(eax).unwrap()
            }
            a.inc(ebp).unwrap();
            a.mov(al, 0x20).unwrap();
            a.out(0x20, al).unwrap();
            if wide {
                a.pop(rax).unwrap()
            } else {
                a.pop(eax).unwrap()
            }
            ret(a);
        })
        .asm_at(syscall, |a| {
            a.rdtsc().unwrap();
            a.add(edx, eax).unwrap();
            ret(a);
        })
        .asm_at(divide, |a| {
            // div ecx is two bytes long
            if wide {
                a.add(qword_ptr(rsp), 2).unwrap()
            } else {
                a.add(dword_ptr(esp), 2).unwrap()
            }
            ret(a);
        })
        .gate(0x20, timer, 0x8e00)
        .gate(0x80, syscall, 0xef00)
        .gate(0, divide, 0x8f00);
    setup.asm(|a| {
        for (port, value) in
            [(0x20, 0x11), (0x21, 0x20), (0x21, 4), (0x21, 1), (0x21, 0xfe), (0x43, 0x14), (0x40, 1)]
        {
            a.mov(eax, value).unwrap();
            a.out(port, al).unwrap();
        }
        a.sti().unwrap();
        let mut outer = a.create_label();
        let mut inner = a.create_label();
        let mut function = a.create_label();
        let mut over = a.create_label();
        a.mov(ebx, 12).unwrap();
        a.set_label(&mut outer).unwrap();
        a.mov(ecx, 5).unwrap();
        a.mov(esi, CODE as u32).unwrap();
        a.mov(edi, DATA as u32 + 0x2000).unwrap();
        a.rep().movsb().unwrap();
        a.rep().stosd().unwrap();
        a.xor(ecx, ecx).unwrap();
        a.div(ecx).unwrap();
        a.mov(ecx, 40).unwrap();
        a.mov(edi, CODE as u32).unwrap();
        a.repne().scasb().unwrap();
        a.int(0x80).unwrap();
        a.rdtsc().unwrap();
        a.mov(dword_ptr(DATA + 0x3000), eax).unwrap();
        a.mov(ecx, 9).unwrap();
        a.set_label(&mut inner).unwrap();
        a.add(eax, ecx).unwrap();
        a.call(function).unwrap();
        a.dec(ecx).unwrap();
        a.jnz(inner).unwrap();
        a.out(0x80, al).unwrap();
        a.in_(al, 0x61).unwrap();
        a.cli().unwrap();
        a.cpuid().unwrap();
        a.sti().unwrap();
        a.mov(ebx, dword_ptr(DATA + 0x3010)).unwrap();
        a.inc(ebx).unwrap();
        a.mov(dword_ptr(DATA + 0x3010), ebx).unwrap();
        a.cmp(ebx, 20).unwrap();
        a.jb(outer).unwrap();
        a.jmp(over).unwrap();
        a.set_label(&mut function).unwrap();
        if wide {
            a.push(rcx).unwrap()
        } else {
            a.push(ecx).unwrap()
        }
        a.nop().unwrap();
        if wide {
            a.pop(rcx).unwrap()
        } else {
            a.pop(ecx).unwrap()
        }
        a.ret().unwrap();
        a.set_label(&mut over).unwrap();
        a.cli().unwrap();
        a.hlt().unwrap();
    })
}

#[test]
fn every_limit_stops_at_the_state_that_stepping_reaches() {
    for bits in [32, 64] {
        let mut stepped = mixed(bits).boot();
        let mut digests = vec![stepped.m.digest()];
        let end = loop {
            let n = digests.len() as u64;
            let stop = stepped.run_to(n);
            if stop == Stop::Halted {
                break stepped.count();
            }
            assert_eq!((stop, stepped.count()), (Stop::Limit, n), "{bits}-bit");
            digests.push(stepped.m.digest());
        };
        assert!((1000..6000).contains(&end), "{end} instructions");
        assert!(stepped.gpr(5) > 0, "no timer interrupt came");
        let mut g = mixed(bits).boot();
        let start = g.m.snapshot();
        for (n, want) in digests.iter().enumerate() {
            g.m.restore(&start).unwrap();
            assert_eq!(g.run_to(n as u64), Stop::Limit, "{bits}-bit {n}");
            assert_eq!(g.count(), n as u64, "{bits}-bit");
            assert_eq!(g.m.digest(), *want, "{bits}-bit, stopped at {n}, {}", g.core().dump_registers());
        }
        g.m.restore(&start).unwrap();
        assert_eq!(g.run(), Stop::Halted);
        assert_eq!((g.count(), g.m.digest()), (end, stepped.m.digest()));
    }
}

#[test]
fn rdtsc_sees_the_count_of_its_own_instruction() {
    for bits in [32, 64] {
        let places = [0usize, 1, 2, 3, 17, 63, 64, 200];
        let mut expected = Vec::new();
        let mut code = Vec::new();
        let mut n = 0;
        for (i, nops) in places.into_iter().enumerate() {
            code.extend(std::iter::repeat_n(0x90, nops));
            n += nops as u64;
            expected.push(n);
            // rdtsc; mov [edi + 4 i], eax
            code.extend_from_slice(&[0x0f, 0x31, 0x89, 0x47, 4 * i as u8]);
            n += 2;
            // jmp $+2: a block ends here
            code.extend_from_slice(&[0xeb, 0x00]);
            n += 1;
        }
        code.push(0xf4);
        let (c, g) = count(&code, bits, &[(7, DATA)]);
        assert_eq!(c, n + 1);
        for (i, want) in expected.iter().enumerate() {
            assert_eq!(g.mem(DATA + 4 * i as u64, 4), g.base + want, "{bits}-bit, place {i}");
        }
    }
}

#[test]
fn a_port_read_sees_the_count_of_its_own_instruction() {
    const HZ: u64 = 1_193_182;
    let ticks = |ns: u64| ns * HZ / 1_000_000_000;
    let mut values = std::collections::BTreeSet::new();
    let mut g = Setup::bits32().boot();
    let start = g.m.snapshot();
    for delay in 0..900usize {
        g.m.restore(&start).unwrap();
        let mut code = vec![0x90; delay];
        // mov al, 0; out 43h, al (latch); in al, 40h; mov ah, al; in al, 40h; hlt
        code.extend_from_slice(&[0xb0, 0, 0xe6, 0x43, 0xe4, 0x40, 0x88, 0xc4, 0xe4, 0x40, 0xf4]);
        g.m.write_physical(CODE, &code);
        assert_eq!(g.run(), Stop::Halted);
        let latched = (g.gpr(0) as u16).swap_bytes();
        let want = 65536 - ticks(g.base + delay as u64 + 1);
        assert_eq!(u64::from(latched), want & 0xffff, "after {delay} instructions");
        values.insert(latched);
    }
    assert!(values.len() >= 2, "no tick passed");
}

#[test]
fn rdtsc_before_a_repeated_instruction_of_its_block_sees_the_count() {
    for bits in [32, 64] {
        let mut g = Setup::bits(bits)
            .asm(|a| {
                a.mov(edi, DATA as u32).unwrap();
                a.mov(ecx, 3).unwrap();
                a.rdtsc().unwrap();
                a.rep().stosb().unwrap();
                a.hlt().unwrap();
            })
            .boot();
        assert_eq!(g.run(), Stop::Halted);
        assert_eq!((g.gpr(0), g.gpr(2), g.count()), (g.base + 2, 0, 7));
    }
}

#[test]
fn what_must_begin_a_block_begins_one_without_single_steps() {
    for bits in [32, 64] {
        let s = Setup::bits(bits).asm(|a| {
            let mut again = a.create_label();
            a.mov(ebp, 100).unwrap();
            a.mov(esi, DATA as u32).unwrap();
            a.set_label(&mut again).unwrap();
            a.inc(edi).unwrap();
            // It is not equal: ZF is cleared, and the other flags are those of the addition.
            a.add(al, 0x7f).unwrap();
            a.cmpxchg8b(dword_ptr(esi)).unwrap();
            a.pushf().unwrap();
            if bits == 64 {
                a.pop(rdi).unwrap()
            } else {
                a.pop(edi).unwrap()
            }
            a.mov(eax, 1).unwrap();
            a.dec(ebp).unwrap();
            a.jnz(again).unwrap();
            a.hlt().unwrap();
        });
        let mut g = s.boot();
        assert_eq!(g.run(), Stop::Halted);
        assert_eq!(g.count(), 2 + 100 * 8 + 1);
        assert_eq!(g.gpr(7) & 0x8d5, 0x890, "OF, SF, AF");
        assert!(g.m.counters().steps < 20, "{} steps", g.m.counters().steps);
    }
}
