//! Every exception that the models raise, from ring 0 and ring 3, in 32- and 64-bit mode: the table
//! `tables/exceptions.txt`, one case a line, checked field by field against the SDM's description of the frame.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use iced_x86::code_asm::{CodeAssembler, byte_ptr, dword_ptr, ecx};
use std::fmt::Write as _;
use trapline_emu::{Segment, Stop};

struct Case<'a> {
    name: &'a str,
    setup: &'a str,
    code: Vec<u8>,
    vector: u8,
    error: Option<u64>,
    ip: u64,
    rf: bool,
    cr2: Option<u64>,
    stack: &'a str,
}

fn hex(s: &str) -> u64 {
    u64::from_str_radix(s, 16).unwrap_or_else(|_| panic!("not hexadecimal: {s}"))
}

fn bytes(s: &str) -> Vec<u8> {
    (0..s.len()).step_by(2).map(|i| hex(&s[i..i + 2]) as u8).collect()
}

/// An address of the table: hexadecimal, or `c+N` for CODE + N.
fn address(s: &str) -> u64 {
    match s.strip_prefix("c+") {
        Some(n) => CODE + hex(n),
        None => hex(s),
    }
}

const REGISTERS: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];

/// Applies the setup column; returns the register values that it gives.
fn apply(mut s: Setup, words: &str) -> (Setup, Vec<(usize, u64)>, bool) {
    let mut registers = Vec::new();
    let mut nmi = false;
    for word in words.split(',').filter(|w| *w != "-") {
        if word == "nmi" {
            nmi = true;
            continue;
        }
        let (key, value) = word.split_once('=').unwrap_or_else(|| panic!("setup word {word}"));
        match key {
            "cr0" => s.cr0 |= hex(value),
            "cr0-" => s.cr0 &= !hex(value),
            "cr4" => s.cr4 |= hex(value),
            "cr4-" => s.cr4 &= !hex(value),
            "efer-" => s.efer &= !hex(value),
            "fl" => s.flags |= hex(value),
            "dr" => s.dr = Some((address(value), 0x401)),
            "idtlimit" => s.idt_limit = Some(hex(value) as u16),
            "tsslimit" => s.tss_limit = hex(value) as u32,
            "tss8" => s = s.at(TSS + 8, &(hex(value) as u32).to_le_bytes()),
            "sp0" => s = s.at(TSS + 4, &(hex(value) as u32).to_le_bytes()),
            "rsp0" => s = s.at(TSS + 4, &hex(value).to_le_bytes()),
            // The page at 40000h gets this entry.
            "pte" => s = s.pte(0x40000, hex(value)),
            _ if key.starts_with("gate") => {
                let vector = hex(&key[4..]) as u8;
                s.gates.push((vector, HANDLERS + 16 * u64::from(vector), hex(value) as u16, CS0));
            }
            _ => {
                let index = REGISTERS.iter().position(|r| *r == key);
                let index = index.unwrap_or_else(|| panic!("setup word {word}"));
                registers.push((index, address(value)));
            }
        }
    }
    (s, registers, nmi)
}

/// Runs one case; returns the differences from the expectation, empty if there are none.
fn check(case: &Case<'_>, bits: u32, ring: u8) -> String {
    let base = Setup::bits(bits).ring(ring).flags(IF).pte(0x40000, 0).code(&case.code);
    let (setup, registers, nmi) = apply(base, case.setup);
    let mut g = setup.boot();
    for (index, value) in registers {
        g.set(index, value);
    }
    if nmi {
        g.m.core_mut().raise_nmi();
    }
    let entry_sp = g.gpr(4);
    let stop = g.run();
    let mut wrong = String::new();
    if stop != trapline_emu::Stop::Halted {
        let _ = write!(wrong, " stop={stop:?}");
        return wrong;
    }
    let at = g.ip().wrapping_sub(HANDLERS + 3);
    if at % 16 != 0 || at >= 4096 {
        let _ = write!(wrong, " no exception: halted at {:#x}", g.ip());
        return wrong;
    }
    let c = g.frame();
    if c.vector != case.vector {
        let _ = write!(wrong, " vector={} error={:x?} ip={:#x}", c.vector, c.error, c.ip);
        return wrong;
    }
    let (user_cs, user_ss) = (if bits == 64 { USER_CS64 } else { USER_CS32 }, USER_DS);
    let (cs, ss) = if ring == 3 { (user_cs, user_ss) } else { (CS0, DS0) };
    let kind_attr = setup
        .gates
        .iter()
        .rev()
        .find(|g| g.0 == c.vector)
        .map_or(if c.vector == 0x42 { 0x8f00 } else { 0x8e00 }, |g| g.2);
    let cleared = TF | NT | RF | if kind_attr & 0x100 == 0 { IF } else { 0 };
    let system = |f: u64| f & (TF | IF | 0x3000 | NT | 0x4_0000);
    let (top, handler_ss) = match case.stack {
        "tss" => (RSP0, if bits == 64 { 0 } else { u32::from(DS0) }),
        "ist" => (IST1, if ring == 3 { 0 } else { u32::from(DS0) }),
        _ => (entry_sp & !if bits == 64 { 15 } else { 0 }, u32::from(DS0)),
    };
    let checks = [
        ("error", c.error, case.error),
        ("ip", Some(c.ip), Some(CODE + case.ip)),
        ("cs", Some(c.cs & 0xffff), Some(cs.into())),
        ("flags", Some(system(c.flags)), Some(system(setup.flags))),
        ("rf", Some(u64::from(c.flags & RF != 0)), Some(case.rf.into())),
        (
            "handler flags",
            Some(system(c.handler_flags) | c.handler_flags & RF),
            Some(system(setup.flags) & !cleared),
        ),
        ("top", Some(c.top), Some(top)),
        ("handler ss", Some(c.ss.into()), Some(handler_ss.into())),
        ("frame sp", c.stack.map(|s| s.0), c.stack.map(|_| entry_sp)),
        ("frame ss", c.stack.map(|s| s.1 & 0xffff), c.stack.map(|_| ss.into())),
        ("cr2", Some(c.cr2), Some(case.cr2.unwrap_or(0))),
    ];
    for (what, got, want) in checks {
        if got != want {
            let _ = write!(wrong, " {what}={got:x?} (want {want:x?})");
        }
    }
    wrong
}

fn run_table(table: &str, minimum: usize) {
    let mut failures = String::new();
    let mut ran = 0;
    for line in table.lines() {
        let line = line.split(';').next().unwrap().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let f: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(f.len(), 11, "columns: {line}");
        let optional = |s: &str| (s != "-").then(|| address(s));
        for bits in [32, 64].into_iter().filter(|b| f[1] == "*" || f[1] == b.to_string()) {
            for ring in [0, 3].into_iter().filter(|r| f[2] == "*" || f[2] == r.to_string()) {
                let case = Case {
                    name: f[0],
                    setup: f[3],
                    code: bytes(f[4]),
                    vector: hex(f[5]) as u8,
                    error: optional(f[6]),
                    ip: hex(f[7]),
                    rf: f[8] == "1",
                    cr2: optional(f[9]),
                    stack: match f[10] {
                        "." if ring == 3 => "tss",
                        "." => "same",
                        other => other,
                    },
                };
                ran += 1;
                let wrong = check(&case, bits, ring);
                let known = case.name.starts_with('!');
                if known && wrong.is_empty() {
                    let _ = writeln!(
                        failures,
                        "{} ({bits}-bit, ring {ring}): right now, drop the mark",
                        case.name
                    );
                } else if !known && !wrong.is_empty() {
                    let _ = writeln!(failures, "{} ({bits}-bit, ring {ring}):{wrong}", case.name);
                }
            }
        }
    }
    assert!(failures.is_empty(), "of {ran} cases:\n{failures}");
    assert!(ran >= minimum, "only {ran} cases");
}

#[test]
fn every_exception_has_the_frame_that_the_sdm_describes() {
    run_table(include_str!("tables/exceptions.txt"), 150);
}

#[test]
fn a_triple_fault_ends_the_run_with_its_vectors_and_the_state() {
    for bits in [32, 64] {
        // #DE through a gate that is not present, and a #DF gate that is not either.
        let mut g = Setup::bits(bits).gate(0, 0, 0x0e00).gate(8, 0, 0x0e00).code(&[0x90, 0xf7, 0xf1]).boot();
        let trapline_emu::Stop::TripleFault(report) = g.run() else { panic!("no triple fault") };
        assert_eq!(report.vectors, [0, 8]);
        assert_eq!(report.ip, CODE + 1);
        assert!(report.registers.contains("idt=00002000"), "{}", report.registers);
        assert_eq!(g.count(), 1);
    }
}

#[test]
fn a_page_fault_on_the_kernel_stack_is_a_double_fault_and_needs_ist_to_survive() {
    let absent = |s: Setup| s.pte(0x40000, 0).at(TSS + 4, &0x41000u64.to_le_bytes());
    let read = |s: Setup| s.code(&[0x8b, 0x1b]);
    let mut g = read(absent(Setup::bits64().ring(3))).boot();
    g.set(3, 0x40000);
    assert!(matches!(g.run(), trapline_emu::Stop::TripleFault(r) if r.vectors == [14, 8]));
    let mut g = read(absent(Setup::bits64().ring(3))).gate(8, HANDLERS + 0x80, 0x8e01).boot();
    g.set(3, 0x40010);
    let c = g.caught();
    // SDM volume 3, table 6-5: page fault in the delivery of a page fault; CR2 is the second one's.
    assert_eq!((c.vector, c.error, c.ip, c.top, c.cr2), (8, Some(0), CODE, IST1, 0x40ff8));
}

#[test]
fn a_missing_ring_0_stack_segment_is_an_invalid_tss() {
    // SDM volume 3, 6.15 "Interrupt 10": SS0 null; the #TS itself then needs the same stack.
    let mut g = Setup::bits32().ring(3).at(TSS + 8, &[0; 4]).code(&[0xcd, 0x40]).boot();
    assert!(matches!(g.run(), trapline_emu::Stop::TripleFault(r) if r.vectors == [0x40, 10, 8]));
}

/// A call from ring 3 through a gate to HLT in ring 0, with TR as a reset leaves it: the TSS is at address 0.
fn call_gate_before_ltr(bits: u32) -> Setup {
    const TARGET: u64 = CODE + 0x100;
    let gate = TARGET & 0xffff | u64::from(CS0) << 16 | 0xec00 << 32 | (TARGET >> 16) << 48;
    let call: &[u8] = if bits == 64 { &[0xff, 0x1c, 0x25] } else { &[0xff, 0x1d] };
    let mut s =
        Setup::bits(bits).ring(3).code(call).at(CODE + call.len() as u64, &(DATA as u32).to_le_bytes());
    s.ltr = false;
    s.at(GDT + 0x70, &gate.to_le_bytes()).at(GDT + 0x78, &[0; 8]).at(DATA + 4, &[0x73, 0]).at(TARGET, &[0xf4])
}

#[test]
fn a_call_gate_before_the_first_ltr_finds_its_stack_at_address_0() {
    for bits in [32, 64] {
        let width = u64::from(bits / 8);
        let ss0 = if bits == 32 { DS0 } else { 0 };
        let s = call_gate_before_ltr(bits)
            .at(4, &(RSP0 as u32).to_le_bytes())
            .at(8, &u32::from(ss0).to_le_bytes());
        let mut g = s.boot();
        let kept = g.m.snapshot();
        assert_eq!(g.core().env().tr(), Segment::new(0, 0, 0xffff, 0x8b00));
        assert_eq!(g.run(), Stop::Halted, "{}", g.core().dump_registers());
        assert_eq!((g.core().env().cpl(), g.gpr(4)), (0, RSP0 - 4 * width), "{bits}-bit");
        let old = [2, 3].map(|n| g.mem(g.gpr(4) + n * width, width as usize));
        assert_eq!(old, [STACK3, USER_DS.into()], "{bits}-bit");
        let digest = g.m.digest();
        g.m.restore(&kept).unwrap();
        assert_eq!(g.run(), Stop::Halted);
        assert_eq!(g.m.digest(), digest);
    }
}

#[test]
fn a_call_gate_before_the_first_ltr_without_a_stack_at_address_0_is_an_invalid_tss() {
    // #TS(0) for the null SS, SDM volume 2, CALL; its own delivery needs the same stack.
    let mut g = call_gate_before_ltr(32).boot();
    assert!(matches!(g.run(), Stop::TripleFault(r) if r.vectors == [10, 8]));
}

#[test]
fn the_tss_bitmap_and_iopl_decide_about_ports_in_ring_3() {
    for bits in [32, 64] {
        // in al, 80h; in eax, 7fh; in al, 0f8h
        for (code, allowed) in [(&[0xe4, 0x80][..], true), (&[0xe5, 0x80], false), (&[0xe4, 0x84], false)] {
            let map = {
                let mut map = [0xffu8; 0x20];
                // Ports 80h..=82h are free, 83h is not.
                map[0x10] = 0xf8;
                map
            };
            let limit = 0x68 + 0x20 - 1;
            let mut s = Setup::bits(bits).ring(3).at(TSS + 0x68, &map);
            s.tss_limit = limit;
            let code = [code, &[0xcd, 0x40]].concat();
            let mut g = s.code(&code).boot();
            assert_eq!(g.caught().vector, if allowed { 0x40 } else { 13 }, "{bits}-bit {code:x?}");
        }
        // The byte after the last map byte must exist (SDM volume 1, 18.5.2): port F8h needs bytes 1Fh and 20h.
        for (limit, vector) in [(0x68 + 0x1f, 13), (0x68 + 0x20, 0x40)] {
            let mut s = Setup::bits(bits).ring(3).at(TSS + 0x68, &[0; 0x40]);
            s.tss_limit = limit;
            let mut g = s.code(&[0xe4, 0xf8, 0xcd, 0x40]).boot();
            assert_eq!(g.caught().vector, vector, "{bits}-bit limit {limit:#x}");
        }
        let mut g = Setup::bits(bits).ring(3).flags(0x3000).code(&[0xe4, 0xf8, 0xfa, 0xcd, 0x40]).boot();
        assert_eq!(g.caught().vector, 0x40, "IOPL 3 allows IN and CLI");
    }
}

#[test]
fn dr6_tells_a_single_step_from_a_breakpoint() {
    for bits in [32, 64] {
        let mut g = Setup::bits(bits).flags(TF).code(&[0x90, 0x90]).boot();
        g.caught();
        assert_eq!(g.core().env().dr(6) & 0x400f, 0x4000);
        let mut s = Setup::bits(bits).code(&[0x90, 0x90, 0x90]);
        s.dr = Some((CODE + 1, 0x401));
        let mut g = s.boot();
        g.caught();
        assert_eq!(g.core().env().dr(6) & 0x400f, 1);
    }
}

#[test]
fn rf_in_the_returned_flags_passes_over_a_breakpoint_once() {
    for bits in [32, 64] {
        let mut s = Setup::bits(bits).flags(RF).code(&[0x90, 0xcd, 0x40]);
        s.dr = Some((CODE, 0x401));
        assert_eq!(s.boot().caught().vector, 0x40, "{bits}-bit");
    }
}

#[test]
fn flags_that_the_engine_computes_early_are_those_of_before_in_the_frame_and_in_the_handler() {
    for bits in [32, 64] {
        let absent = DATA + 0x8000;
        let set = |a: &mut CodeAssembler| a.setbe(byte_ptr(absent)).unwrap();
        let rotate = |a: &mut CodeAssembler| a.rcl(dword_ptr(absent), 5).unwrap();
        let faulting: [&dyn Fn(&mut CodeAssembler); 2] = [&set, &rotate];
        for fault in faulting {
            let s = Setup::bits(bits).pte(absent, 0).asm(|a| {
                a.mov(ecx, 3).unwrap();
                a.sub(ecx, 5).unwrap();
                fault(a);
            });
            let caught = s.boot().caught();
            // 3 - 5 = -2: CF, AF and SF.
            assert_eq!((caught.vector, caught.flags & 0x8d5, caught.handler_flags & 0x8d5), (14, 0x91, 0x91));
        }
    }
}

/// Instructions that set flags for a SETcc, with operands EAX and ECX.
const SETTERS: [(&str, &[u8]); 8] = [
    ("cmp", &[0x39, 0xc8]),
    ("cmp, and a move", &[0x39, 0xc8, 0x89, 0xc2]),
    ("cmp, and a SETcc of a register", &[0x39, 0xc8, 0x0f, 0x96, 0xc2]),
    ("test", &[0x85, 0xc8]),
    ("add", &[0x01, 0xc8]),
    ("cmp, inc", &[0x39, 0xc8, 0x40]),
    ("shl", &[0xd3, 0xe0]),
    ("a jump after cmp", &[0x39, 0xc8, 0xeb, 0x00]),
];

#[test]
fn a_set_that_faults_has_lost_no_flags() {
    const ARITHMETIC: u64 = 0x8d5;
    const ABSENT: u64 = 0x4_0000;
    for (bits, (name, setter)) in [32, 64].iter().flat_map(|b| SETTERS.map(|s| (*b, s))) {
        // INC's one byte is a prefix in 64-bit code.
        let setter: Vec<u8> = if bits == 64 && setter.ends_with(&[0x40]) {
            [&setter[..setter.len() - 1], &[0xff, 0xc0]].concat()
        } else {
            setter.to_vec()
        };
        for (condition, (ax, cx)) in (0u8..16).flat_map(|c| VALUES.map(|v| (c, v))) {
            let boot = |tail: &[u8]| {
                let code = [setter.as_slice(), tail].concat();
                let mut g = Setup::bits(bits).pte(ABSENT, 0).code(&code).boot();
                g.set(0, ax).set(1, cx).set(3, ABSENT);
                g
            };
            let mut plain = boot(&[0xf4]);
            assert_eq!(plain.run(), trapline_emu::Stop::Halted);
            let flags = plain.core().eflags() & ARITHMETIC;
            let caught = boot(&[0x0f, 0x90 | condition, 0x03, 0xf4]).caught();
            let found = (caught.vector, caught.cr2, caught.flags & ARITHMETIC);
            assert_eq!(found, (14, ABSENT, flags), "{bits} bits, {name}, set{condition:x}, {ax:#x}, {cx:#x}");
        }
    }
}

const VALUES: [(u64, u64); 5] =
    [(0, 0), (5, 9), (0x8000_0000, 1), (0xffff_ffff, 1), (0x7fff_ffff, 0xffff_ffff)];

#[test]
fn syscall_is_single_stepped_unless_it_clears_tf() {
    for (mask, trapped) in [(0, true), (TF, false)] {
        for lead in [0, 3] {
            // pushf; or dword [rsp], 100h; popf; syscall
            let code = [&[0x9c, 0x81, 0x0c, 0x24, 0, 1, 0, 0, 0x9d][..], &[0x0f, 0x05]].concat();
            let code = [&vec![0x90; lead][..], &code].concat();
            let mut g = Setup::bits64().code(&code).at(DATA, &[0x90, 0xf4]).boot();
            let e = g.core().env();
            e.set_lstar(DATA);
            e.set_star(u64::from(CS0) << 32);
            e.set_fmask(mask);
            assert_eq!(g.run(), Stop::Halted);
            let before = lead as u64 + 4;
            if trapped {
                let frame = g.frame();
                assert_eq!((frame.vector, frame.ip, frame.flags & TF), (1, DATA, TF));
                assert_eq!((g.core().env().dr(6) & 0x4000, g.count()), (0x4000, before + 3));
            } else {
                assert_eq!((g.ip(), g.gpr(11) & TF, g.count()), (DATA + 2, TF, before + 2));
            }
        }
    }
}

#[test]
fn cmpxchg_of_two_words_keeps_the_flags_of_the_instruction_before() {
    // CF, PF, AF, SF and OF stay; ZF tells whether they were equal (SDM volume 2, CMPXCHG8B).
    for (bits, wide) in [(32, &[][..]), (64, &[]), (64, &[0x48])] {
        for lock in [&[][..], &[0xf0]] {
            for (compare, want) in [([0x39, 0xd1], 0x81), ([0x38, 0xca], 0x814), ([0x85, 0xc9], 4)] {
                for nops in [&[][..], &[0x90], &[0xeb, 0]] {
                    for equal in [false, true] {
                        // cmp; nops; cmpxchg8b [edi]; pushf; pop ebx; hlt
                        let exchange = [lock, wide, &[0x0f, 0xc7, 0x0f, 0x9c, 0x5b, 0xf4]].concat();
                        let code = [&compare[..], nops, &exchange].concat();
                        let mut g = Setup::bits(bits).code(&code).boot();
                        g.set(1, 3).set(2, 0x80).set(7, DATA);
                        let size = if wide.is_empty() { 4 } else { 8 };
                        g.m.write_physical(DATA + size, &[if equal { 0x80 } else { 1 }]);
                        assert_eq!(g.run(), Stop::Halted);
                        // AF of `cmp dl, cl` is 1.
                        let af = if compare == [0x38, 0xca] { 0x10 } else { 0 };
                        let zf = if equal { 0x40 } else { 0 };
                        assert_eq!(g.gpr(3) & 0x8d5, want | af | zf, "{bits}-bit {code:02x?}");
                    }
                }
            }
        }
    }
}

#[test]
fn int1_is_a_debug_trap_that_no_gate_refuses() {
    for bits in [32, 64] {
        for ring in [0, 3] {
            for lead in [0, 1, 4] {
                let code = [&vec![0x90; lead][..], &[0xf1, 0x90]].concat();
                let mut g = Setup::bits(bits).ring(ring).code(&code).boot();
                let before = g.core().env().dr(6);
                let c = g.caught();
                assert_eq!(
                    (c.vector, c.ip, c.flags & RF),
                    (1, CODE + lead as u64 + 1, 0),
                    "{bits}-bit ring {ring}"
                );
                assert_eq!((g.core().env().dr(6), g.count()), (before, lead as u64 + 1 + 3));
            }
        }
        // With an unusable gate, the fault belongs to the instruction.
        let mut g = Setup::bits(bits).gate(1, 0, 0x0e00).code(&[0x90, 0xf1]).boot();
        let c = g.caught();
        assert_eq!((c.vector, c.error, c.ip, g.count()), (11, Some(0xb), CODE + 1, 1 + 3));
    }
}

#[test]
fn the_apic_base_can_be_read_without_an_apic() {
    for bits in [32, 64] {
        // mov ecx, 1bh; rdmsr; wrmsr; or eax, 800h; wrmsr
        let code = [0xb9, 0x1b, 0, 0, 0, 0x0f, 0x32, 0x0f, 0x30, 0x0d, 0, 8, 0, 0, 0x0f, 0x30, 0xf4];
        let mut g = Setup::bits(bits).code(&code).boot();
        let c = g.caught();
        assert_eq!((c.vector, c.ip, g.gpr(0), g.gpr(2)), (13, CODE + 14, 0xfee0_0900, 0), "{bits}-bit");
    }
}
