//! Defects of the original tools, which Trapline does not have; and what happens to a record when the probed
//! instruction faults.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{CODE, DATA, Guest, P, RW, Setup, US};
use trapline_emu::{Stop, TrapInterposer};
use trapline_interposer::{Interposer, Place};
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_tests::interposer;
use trapline_trace::Kind;

/// A doubleword that the instructions work on.
const CELL: u64 = DATA + 0x80;
const VALUE: u64 = 0x8765_4321;
const AX: u64 = 0x1122_3344;
/// EBX of the call through a scaled index.
const BX: u64 = 0x100;

/// The value that is compared after the instruction.
#[derive(Debug, Clone, Copy)]
enum See {
    Ip,
    Ax,
    Cell,
}

/// One instruction at CODE, ECX before it, and the expected value after it.
type Defect = (&'static str, u32, &'static [u8], u64, See, u64);

const DEFECTS: &[Defect] = &[
    ("LOOP counts down, then tests", 32, &[0xe2, 0x10], 1, See::Ip, CODE + 2),
    ("LOOP from 0 goes round", 32, &[0xe2, 0x10], 0, See::Ip, CODE + 0x12),
    ("67 LOOP counts in CX", 32, &[0x67, 0xe2, 0x10], 0x5_0001, See::Ip, CODE + 3),
    ("67 JECXZ looks at CX", 32, &[0x67, 0xe3, 0x10], 0x5_0000, See::Ip, CODE + 0x13),
    ("67 LOOP counts in ECX", 64, &[0x67, 0xe2, 0x10], 5 << 32 | 1, See::Ip, CODE + 3),
    ("67 JRCXZ looks at ECX", 64, &[0x67, 0xe3, 0x10], 5 << 32, See::Ip, CODE + 0x13),
    ("CALL [eax+ebx*8]: SIB, no displacement", 32, &[0xff, 0x14, 0xd8], 0, See::Ip, VALUE),
    ("MUL of RIP-relative memory", 64, &[0xf7, 0x25, 0x7a, 0, 1, 0], 0, See::Ax, (AX * VALUE) & 0xffff_ffff),
    ("SHR of RIP-relative memory by CL", 64, &[0xd3, 0x2d, 0x7a, 0, 1, 0], 4, See::Cell, VALUE >> 4),
    ("CMPXCHG of RIP-relative memory", 64, &[0x0f, 0xb1, 0x0d, 0x79, 0, 1, 0], 7, See::Ax, VALUE),
    ("a far jump is no near one", 32, &[0xea, 0x40, 0, 2, 0, 8, 0], 0, See::Ip, CODE + 0x40),
    ("a far call pushes CS", 32, &[0x9a, 0x40, 0, 2, 0, 8, 0], 0, See::Ip, CODE + 0x40),
];

/// A probe at CODE with this header; it logs EAX.
fn probe(guest: &mut Guest, bits: u32, more: &str) -> Interposer {
    let opcode = guest.mem(CODE, 1);
    let text =
        format!("name = v\nmodtype = kernel\naddress = 0\nopcode = {opcode}\n{more}push r, eax\nlog 1\nexit");
    let width = if bits == 64 { Width::W64 } else { Width::W32 };
    let program = parse("v.rpn", &text).unwrap().link(width, &NoSymbols).unwrap();
    let mut probes = interposer();
    let places = vec![Place::Kernel { linear: CODE, paddr: CODE }];
    probes.insert(guest.m.core_mut(), "v", program, places).unwrap();
    probes
}

#[test]
fn defects_of_the_original_tools_are_absent() {
    for &(what, bits, code, cx, see, expected) in DEFECTS {
        let mut seen = Vec::new();
        for probed in [false, true] {
            let mut guest = Setup::bits(bits).code(code).at(CELL, &VALUE.to_le_bytes()[..4]).boot();
            let ax = if code[0] == 0xff { CELL - 8 * BX } else { AX };
            guest.set(0, ax).set(1, cx).set(3, BX);
            let limit = guest.m.icount() + 1;
            let mut probes = interposer();
            if probed {
                probes = probe(&mut guest, bits, "");
            }
            assert_eq!(guest.m.run(Some(&mut probes as &mut dyn TrapInterposer), limit), Stop::Limit);
            assert_eq!(probes.stats().hits, u64::from(probed), "{what}");
            let value = match see {
                See::Ip => guest.ip(),
                See::Ax => guest.gpr(0),
                See::Cell => guest.mem(CELL, 4),
            };
            assert_eq!(value, expected, "{what}, probed {probed}");
            seen.push(guest.m.digest());
        }
        assert_eq!(seen[0], seen[1], "{what}");
    }
}

/// A page that is absent until the handler of #PF, which counts in EDI, maps it.
const ABSENT: u64 = DATA + 0x1000;
/// The handler of #PF.
const REPAIR: u64 = CODE + 0x800;

/// A guest that runs `code` into a #PF at ABSENT, once, and halts after it.
fn faulting(code: &[u8]) -> Guest {
    let setup = Setup::bits32();
    let pte = setup.pte_at(ABSENT);
    let present = ABSENT | P | RW | US;
    let mut code = code.to_vec();
    code.push(0xf4);
    let setup = setup.code(&code).pte(ABSENT, 0).gate(14, REPAIR, 0x8e00).asm_at(REPAIR, |a| {
        use iced_x86::code_asm::{dword_ptr, edi, esp};
        a.inc(edi).unwrap();
        a.mov(dword_ptr(pte), present as u32).unwrap();
        a.add(esp, 4).unwrap();
        a.iretd().unwrap();
    });
    let mut guest = setup.boot();
    guest.set(0, 5).set(3, ABSENT).set(5, ABSENT + 0x100).set(7, 0);
    guest
}

#[test]
fn a_record_is_dropped_when_the_instruction_faults_and_kept_with_logonfault() {
    // Out of line, emulated, stepped.
    let cases: [(&str, &[u8]); 3] =
        [("mov eax, [ebx]", &[0x8b, 0x03]), ("leave", &[0xc9]), ("lidt [ebx]", &[0x0f, 0x01, 0x1b])];
    for (what, code) in cases {
        let mut plain = faulting(code);
        assert_eq!(plain.run(), Stop::Halted, "{what}");
        assert_eq!(plain.gpr(7), 1, "{what} faults once");
        for (more, records, dropped) in [("", 1, 1), ("logonfault = yes\n", 2, 0), ("maxhits = 1\n", 1, 1)] {
            let mut guest = faulting(code);
            let mut probes = probe(&mut guest, 32, more);
            let limit = guest.m.icount() + 1000;
            assert_eq!(
                guest.m.run(Some(&mut probes as &mut dyn TrapInterposer), limit),
                Stop::Halted,
                "{what}"
            );
            let stats = probes.stats();
            assert_eq!((stats.faulted, stats.dropped), (1, dropped), "{what} {more}");
            let got = probes.channels().records();
            assert_eq!(got.len(), records, "{what} {more}");
            assert_eq!(
                got.iter().map(|r| r.header.seq).collect::<Vec<_>>(),
                (1..=records as u64).collect::<Vec<_>>()
            );
            // The retry is not a new hit.
            assert_eq!(probes.probe(0).unwrap().3, 1, "{what} {more}");
            if more != "maxhits = 1\n" {
                assert_eq!(guest.m.digest(), plain.m.digest(), "{what} {more}");
            }
        }
    }
}

#[test]
fn a_stack_trace_is_committed_and_dropped_with_the_record_of_its_hit() {
    // mov eax, [ebx], which faults once.
    for (more, records, dropped) in [("log st\n", 2, 2), ("logonfault = yes\nlog st\n", 4, 0)] {
        let mut guest = faulting(&[0x8b, 0x03]);
        let mut probes = probe(&mut guest, 32, more);
        let limit = guest.m.icount() + 1000;
        assert_eq!(guest.m.run(Some(&mut probes as &mut dyn TrapInterposer), limit), Stop::Halted);
        assert_eq!((probes.stats().faulted, probes.stats().dropped), (1, dropped), "{more}");
        let got: Vec<_> = probes.channels().records().iter().map(|r| (r.header.seq, r.header.kind)).collect();
        let kinds = [Kind::Data, Kind::StackTrace].into_iter().cycle();
        assert_eq!(got, (1..=records).zip(kinds).collect::<Vec<_>>(), "{more}");
    }
}

#[test]
fn bound_that_fails_drops_its_record() {
    // bound eax, [ebx]: 5 is not in 7..=9. The stub of #BR halts.
    for (more, records) in [("", 0), ("logonfault = yes\n", 1)] {
        let limits = [7u32.to_le_bytes(), 9u32.to_le_bytes()].concat();
        let mut guest = Setup::bits32().code(&[0x62, 0x03, 0xf4]).at(CELL, &limits).boot();
        guest.set(0, 5).set(3, CELL);
        let mut probes = probe(&mut guest, 32, more);
        let limit = guest.m.icount() + 1000;
        assert_eq!(guest.m.run(Some(&mut probes as &mut dyn TrapInterposer), limit), Stop::Halted);
        assert_eq!(guest.frame().vector, 5);
        assert_eq!(guest.frame().ip, CODE);
        let got = probes.channels().records();
        assert_eq!(got.len(), records);
        assert!(got.iter().all(|r| r.data == [5, 0, 0, 0]), "EAX is unchanged");
    }
}

#[test]
fn a_probe_that_leaves_runs_no_other_probes_handler() {
    // inc edx, three times. The first probe is on code that never runs, and would write EBP.
    let code = [0xb9, 3, 0, 0, 0, 0x42, 0x49, 0x75, 0xfc, 0xf4];
    let (site, elsewhere) = (CODE + 5, CODE + 0x40);
    for (header, body) in [("maxhits = 1\n", "exit"), ("", "remove\nexit")] {
        for in_line_after in [0, 1] {
            let mut guest = Setup::bits32().code(&code).at(elsewhere, &[0x90]).boot();
            guest.m.core_mut().set_in_line_after(in_line_after);
            guest.set(5, 7);
            let text = format!(
                "name = v\nmodtype = kernel\naddress = {elsewhere}\nopcode = 0x90\npush 0xbad\npop r, ebp\nexit\n\
                 address = {site}\nopcode = 0x42\n{header}{body}"
            );
            let program = parse("v.rpn", &text).unwrap().link(Width::W32, &NoSymbols).unwrap();
            let mut probes = interposer();
            let places = [elsewhere, site].map(|at| Place::Kernel { linear: at, paddr: at }).to_vec();
            let id = probes.insert(guest.m.core_mut(), "v", program, places).unwrap();
            let limit = guest.m.icount() + 1000;
            assert_eq!(guest.m.run(Some(&mut probes as &mut dyn TrapInterposer), limit), Stop::Halted);
            assert_eq!((guest.gpr(5), guest.gpr(2)), (7, 3), "{header}{body}");
            assert_eq!(probes.runs(id), [0, 1], "{header}{body}");
        }
    }
}

#[test]
fn bytes_that_a_handler_writes_over_its_instruction_are_executed() {
    // The handler writes 41, 42, 43: inc ecx, inc edx, inc ebx.
    let code = [0xbf, 3, 0, 0, 0, 0x90, 0x4f, 0x75, 0xfc, 0xf4];
    let site = CODE + 5;
    for in_line_after in [0, 1] {
        let mut guest = Setup::bits32().code(&code).boot();
        guest.m.core_mut().set_in_line_after(in_line_after);
        (1..4).for_each(|register| {
            guest.set(register, 0);
        });
        let text = format!(
            "name = v\nmodtype = kernel\nvars = 1\naddress = {site}\nopcode = 0x90\ninc lv, 0\npush {site}\npush lv, 0\n\
             push 0x40\nadd\npop mem, u8\nexit"
        );
        let program = parse("v.rpn", &text).unwrap().link(Width::W32, &NoSymbols).unwrap();
        let mut probes = interposer();
        let places = vec![Place::Kernel { linear: site, paddr: site }];
        probes.insert(guest.m.core_mut(), "v", program, places).unwrap();
        let limit = guest.m.icount() + 1000;
        assert_eq!(guest.m.run(Some(&mut probes as &mut dyn TrapInterposer), limit), Stop::Halted);
        assert_eq!([1, 2, 3].map(|register| guest.gpr(register)), [1, 1, 1], "in line after {in_line_after}");
    }
}

#[test]
fn a_record_that_is_dropped_is_not_lost() {
    // Each record is larger than a sub-buffer; the first goes since mov eax, [ebx] faults once.
    for (more, committed) in [("", 1), ("logonfault = yes\n", 2)] {
        let mut guest = faulting(&[0x8b, 0x03]);
        let mut probes = Interposer::new(trapline_interposer::InterposerConfig {
            header: trapline_trace::HeaderItems::default(),
            channel: trapline_trace::ChannelConfig::fixed(64, 1),
            profile: None,
            max_steps: None,
        });
        let text =
            format!("name = v\nmodtype = kernel\naddress = 0\nopcode = 0x8b\n{more}push r, eax\nlog 1\nexit");
        let program = parse("v.rpn", &text).unwrap().link(Width::W32, &NoSymbols).unwrap();
        let places = vec![Place::Kernel { linear: CODE, paddr: CODE }];
        probes.insert(guest.m.core_mut(), "v", program, places).unwrap();
        let limit = guest.m.icount() + 1000;
        assert_eq!(guest.m.run(Some(&mut probes as &mut dyn TrapInterposer), limit), Stop::Halted);
        let counts = probes.channels().counts();
        assert_eq!((counts.committed, counts.lost()), (committed, committed), "{more}");
        assert_eq!(probes.stats().dropped, 2 - committed);
    }
}

#[test]
fn a_watch_on_a_repeated_instructions_target_keeps_its_records_when_that_faults() {
    // rep stosd of four words, the last two of them on the page that is absent at first.
    let setup = Setup::bits32();
    let pte = setup.pte_at(ABSENT);
    let setup = setup.code(&[0xf3, 0xab, 0xf4]).pte(ABSENT, 0).gate(14, REPAIR, 0x8e00).asm_at(REPAIR, |a| {
        use iced_x86::code_asm::{dword_ptr, esp};
        a.mov(dword_ptr(pte), (ABSENT | P | RW | US) as u32).unwrap();
        a.add(esp, 4).unwrap();
        a.iretd().unwrap();
    });
    // Probe 0 is on the instruction, probe 1 watches the words on the page that is there.
    for (more, order) in [("", &[1, 1, 0][..]), ("logonfault = yes\n", &[1, 1, 0, 0][..])] {
        let mut guest = setup.boot();
        guest.set(1, 4).set(7, ABSENT - 8);
        let mut probes = probe(&mut guest, 32, more);
        let (low, high) = (ABSENT - 8, ABSENT - 1);
        let text = format!(
            "name = v\nmodtype = kernel\naddress = {low:#x}:{high:#x}\nwatchpoint = w\npush r, ecx\nlog 1\nexit"
        );
        let program = parse("w.rpn", &text).unwrap().link(Width::W32, &NoSymbols).unwrap();
        let watch = trapline_emu::Watch { low, high, kind: trapline_emu::WatchKind::Write };
        probes.insert(guest.m.core_mut(), "w", program, vec![Place::Watch(watch)]).unwrap();
        let limit = guest.m.icount() + 1000;
        assert_eq!(guest.m.run(Some(&mut probes as &mut dyn TrapInterposer), limit), Stop::Halted);
        assert_eq!((guest.gpr(1), guest.gpr(7)), (0, ABSENT + 8));
        let got: Vec<u32> = probes.channels().records().iter().map(|r| r.header.probe).collect();
        assert_eq!(got, order, "{more}");
        assert_eq!(probes.probe(0).unwrap().3, 1, "the retry is not a new hit");
    }
}

/// ECX of a repeated instruction.
const TIMES: u64 = 5;

/// A repeated `ins` or `outs` is one hit, whatever is on it, and is executed as without probes.
#[test]
fn a_repeated_instruction_that_moves_to_or_from_a_port_is_one_hit() {
    for (bits, code) in [
        (32, &[0xf3, 0x6c][..]),   // rep insb
        (32, &[0xf3, 0x66, 0x6d]), // rep insw
        (32, &[0xf3, 0x6e]),       // rep outsb
        (32, &[0xf3, 0x6f]),       // rep outsd
        (64, &[0xf3, 0x6d]),       // rep insd
        (64, &[0xf3, 0x66, 0x6f]), // rep outsw
    ] {
        for (on_site, watched) in [(true, false), (false, true), (true, true)] {
            let boot = || {
                let mut guest =
                    Setup::bits(bits).code(&[code, &[0xf4]].concat()).at(CELL, b"a text to print").boot();
                // The port of the debug console, which prints what is written and reads as its number.
                guest.set(1, TIMES).set(2, 0xe9).set(6, CELL).set(7, CELL + 0x40);
                guest
            };
            let mut plain = boot();
            assert_eq!(plain.run(), Stop::Halted);
            let mut guest = boot();
            let (mut probes, mut each) = (interposer(), 0);
            let width = if bits == 64 { Width::W64 } else { Width::W32 };
            let watch = trapline_emu::Watch { low: CODE, high: CODE, kind: trapline_emu::WatchKind::Execute };
            for (place, kind) in [
                (
                    Place::Kernel { linear: CODE, paddr: CODE },
                    on_site.then(|| format!("opcode = {}", code[0])),
                ),
                (Place::Watch(watch), watched.then(|| "watchpoint = x".to_owned())),
            ] {
                let Some(kind) = kind else { continue };
                let text = format!(
                    "name = v\nmodtype = kernel\naddress = {CODE:#x}\n{kind}\npush r, ecx\nlog 1\nexit"
                );
                let program = parse("v.rpn", &text).unwrap().link(width, &NoSymbols).unwrap();
                probes.insert(guest.m.core_mut(), "v", program, vec![place]).unwrap();
                each += 1;
            }
            let limit = guest.m.icount() + 1000;
            assert_eq!(guest.m.run(Some(&mut probes as &mut dyn TrapInterposer), limit), Stop::Halted);
            let told = format!("{code:02x?}, site {on_site}, watched {watched}");
            assert_eq!((guest.gpr(1), guest.count()), (0, plain.count()), "{told}");
            assert_eq!(guest.m.digest(), plain.m.digest(), "{told}");
            assert_eq!(guest.m.console(), plain.m.console(), "{told}");
            let outs = code.last().is_some_and(|opcode| matches!(opcode, 0x6e | 0x6f));
            assert_eq!(guest.m.console().starts_with(b"a"), outs, "{told}");
            let records = probes.channels().records();
            let seen: Vec<u64> = records.iter().map(|record| u64::from(record.data[0])).collect();
            assert_eq!((probes.stats().hits, seen), (each, vec![TIMES; each as usize]), "{told}");
        }
    }
}
