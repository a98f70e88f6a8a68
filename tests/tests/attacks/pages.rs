//! Attacks on armed pages: through page tables, through aliases, by devices, and through the structures that the CPU needs
//! to deliver events.

use super::alike::{alike, alike_from, end, every_byte, probes};
use crate::common::{CODE, DATA, DS0, Guest, P, RW, STACK0, Setup, TSS, US};
use iced_x86::code_asm::{byte_ptr, dword_ptr, ebx, qword_ptr, rax};
use trapline_emu::{Stop, TrapInterposer};

const FUNCTION: u64 = CODE + 0x1000;
const ALIAS: u64 = 0x7_0000;
const ELSEWHERE: u64 = 0x6_0000;
/// inc ebx; push eax; pop eax; nop; ret
const BODY: [u8; 6] = [0xff, 0xc3, 0x50, 0x58, 0x90, 0xc3];

fn body_sites() -> Vec<u64> {
    vec![FUNCTION, FUNCTION + 2, FUNCTION + 3, FUNCTION + 4, FUNCTION + 5]
}

#[test]
fn jumps_into_the_middle_of_sites() {
    // jmp over the first byte of mov eax, imm32, whose immediate is code; then into a 5-byte NOP, a lock nop, an int3.
    let code = [
        0xeb, 1, 0xb8, 0x90, 0x90, 0xeb, 1, 0xb8, 0xff, 0xc3, 0x90, 0x90, 0xeb, 2, 0x0f, 0x1f, 0x44, 0, 0,
        0xeb, 1, 0xf0, 0x90, 0x90, 0xeb, 1, 0xcc, 0x90, 0xf4,
    ];
    for bits in [32, 64] {
        for ring in [0, 3] {
            let setup = Setup::bits(bits).ring(ring).flags(0).code(&code);
            alike_from("middle", &setup, &[(0, DATA)], &every_byte(CODE, code.len()), 30);
        }
    }
}

#[test]
fn breakpoints_and_locked_nops_of_the_guest_among_ours() {
    for own in [&[0xccu8][..], &[0xf0, 0x90], &[0xcd, 3], &[0x90, 0xcc, 0xcc, 0x90], &[0xf0, 0x90, 0xcc]] {
        let code = [&[0x90, 0x90][..], own, &[0x90, 0x40, 0xf4]].concat();
        for bits in [32, 64] {
            for ring in [0, 3] {
                let setup = Setup::bits(bits).ring(ring).flags(0).code(&code);
                alike_from("own", &setup, &[], &every_byte(CODE, code.len()), 12);
            }
        }
    }
}

/// Calls the function, does something, calls it twice again.
fn calls(bits: u32, act: &dyn Fn(&mut iced_x86::code_asm::CodeAssembler)) -> Setup {
    Setup::bits(bits).at(FUNCTION, &BODY).at(ELSEWHERE, &[0x83, 0xc3, 0x10, 0x90, 0x90, 0xc3]).asm(|a| {
        a.call(FUNCTION).unwrap();
        a.call(FUNCTION).unwrap();
        act(a);
        a.call(FUNCTION).unwrap();
        a.call(FUNCTION).unwrap();
        a.hlt().unwrap();
    })
}

#[test]
fn text_mapped_twice_is_run_through_both_and_written_through_one() {
    for bits in [32, 64] {
        let setup = calls(bits, &|a| {
            a.call(ALIAS).unwrap();
            a.mov(byte_ptr(ALIAS + 4), 0x43u32 as i32).unwrap();
            a.call(FUNCTION).unwrap();
            a.call(ALIAS).unwrap();
            a.mov(byte_ptr(FUNCTION + 4), 0x90u32 as i32).unwrap();
            a.call(ALIAS).unwrap();
        });
        let setup = setup.pte(ALIAS, FUNCTION | P | RW | US);
        let (end, hits) = alike_from("alias", &setup, &[], &body_sites(), 200);
        // In 64-bit code 43h is a prefix of the RET after it.
        assert_eq!((end.stop.as_str(), hits), ("Halted", if bits == 64 { 38 } else { 40 }), "{bits} bits");
    }
}

#[test]
fn armed_pages_are_unmapped_remapped_and_protected() {
    for bits in [32, 64] {
        let at = Setup::bits(bits).pte_at(FUNCTION);
        let full = P | RW | US;
        for (what, value) in [
            ("absent", 0),
            ("elsewhere", ELSEWHERE | full),
            ("read-only", FUNCTION | P | US),
            ("supervisor only", FUNCTION | P | RW),
        ] {
            for flush in [true, false] {
                let setup = calls(bits, &|a| {
                    a.mov(dword_ptr(at), value as i32).unwrap();
                    if flush {
                        a.invlpg(byte_ptr(FUNCTION)).unwrap();
                    }
                    a.inc(ebx).unwrap();
                });
                let what = format!("{what}, flushed {flush}, {bits} bits");
                let (_, hits) = alike_from(&what, &setup, &[], &body_sites(), 100);
                assert!(hits >= 10, "{what}: {hits}");
            }
        }
    }
}

#[test]
fn an_armed_page_is_made_not_executable() {
    let at = Setup::bits(64).pte_at(FUNCTION);
    for flush in [true, false] {
        let setup = calls(64, &|a| {
            a.mov(rax, FUNCTION | P | RW | US | 1 << 63).unwrap();
            a.mov(qword_ptr(at), rax).unwrap();
            if flush {
                a.invlpg(byte_ptr(FUNCTION)).unwrap();
            }
        });
        let (end, _) = alike_from("nx", &setup, &[], &body_sites(), 100);
        // #PF for the fetch when the old translation is gone, else the function returns.
        assert_eq!(end.registers.contains("cr2=00021000"), flush, "{}", end.registers);
    }
}

#[test]
fn a_write_that_bypasses_the_cpu_rearms_the_sites_over_the_new_text() {
    for bits in [32, 64] {
        let setup = calls(bits, &|a| a.nop().unwrap());
        for at in 0..20 {
            let run = |sites: &[u64]| {
                let mut guest = setup.boot();
                let mut probes = probes(&mut guest, sites);
                let probed = !sites.is_empty();
                let mut to = |guest: &mut Guest, n: u64| {
                    let limit = guest.base + n;
                    guest.m.run(probed.then_some(&mut probes as &mut dyn TrapInterposer), limit)
                };
                let _ = to(&mut guest, at);
                // As a device writes: add ebx, 10h over the first two instructions.
                guest.m.write_physical(FUNCTION, &[0x83, 0xc3, 0x10, 0x90]);
                let stop = to(&mut guest, 100);
                end(&guest, &stop)
            };
            let plain = run(&[]);
            assert_eq!(plain, run(&body_sites()), "{bits} bits, after {at}");
            // Later the write is into the middle of what runs: a PUSH has run whose POP is overwritten.
            assert!(plain.stop == "Halted" || at > 1, "{bits} bits, after {at}: {}", plain.stop);
        }
    }
}

/// The structure for delivering events that is broken.
fn broken(bits: u32, n: usize) -> Option<Setup> {
    let setup = Setup::bits(bits).pte(DATA + 0x8000, 0);
    let mut limited = setup.clone();
    Some(match n {
        0 => {
            limited.idt_limit = Some(0);
            limited
        }
        1 => {
            limited.tss_limit = 3;
            limited
        }
        // The page of the IDT, of the TSS or of the inner stack is not present.
        2 => setup.pte(crate::common::IDT, 0),
        3 => setup.pte(TSS, 0),
        4 => setup.pte(crate::common::RSP0 - 8, 0),
        5 => setup.pte(STACK0 - 8, 0),
        // Invalid gates: type 0, a data segment, not present.
        6 => [3u8, 6, 13, 14].into_iter().fold(setup, |s, v| s.gate(v, CODE, 0x8000)),
        7 => {
            let mut s = setup;
            s.gates.extend([3u8, 6, 13, 14].map(|v| (v, CODE, 0xee00, DS0)));
            s
        }
        8 => [3u8, 6, 13, 14].into_iter().fold(setup, |s, v| s.gate(v, CODE, 0x0e00)),
        // An invalid stack in the TSS.
        9 if bits == 64 => setup.at(TSS + 4, &0x8000_0000_0000_0000u64.to_le_bytes()),
        9 => setup.at(TSS + 8, &[0x08, 0, 0, 0]),
        _ => return None,
    })
}

#[test]
fn broken_tables_and_stacks_fail_alike_at_a_hit_and_at_a_displaced_fault() {
    let absent = DATA + 0x8000;
    // Each begins with an instruction that just runs, then one that faults or traps.
    for code in [
        &[0x90u8, 0x8b, 0x03, 0x90][..], // mov eax, [ebx]: absent
        &[0x50, 0x58, 0xcc, 0x90],
        &[0x40, 0x90, 0x0f, 0x0b],
        &[0x90, 0xff, 0x33, 0x90], // push [ebx]
        &[0x90, 0xf4, 0x90],       // hlt: #GP in ring 3
        &[0xcd, 0x0d, 0x90],
    ] {
        let mut ends = std::collections::BTreeSet::new();
        for bits in [32, 64] {
            for ring in [0, 3] {
                for n in 0.. {
                    let Some(setup) = broken(bits, n) else { break };
                    // The page of the stack is needed to boot: ring 0 is entered with it.
                    if n == 5 {
                        continue;
                    }
                    let setup = setup.ring(ring).flags(0).code(code);
                    let what = format!("{code:02x?}, {bits} bits, ring {ring}, broken {n}");
                    let boot = || {
                        let mut guest = setup.boot();
                        guest.set(3, absent);
                        guest
                    };
                    ends.insert(
                        alike(&what, &boot, &every_byte(CODE, code.len()), 20).0.stop[..4].to_string(),
                    );
                }
            }
        }
        assert!(ends.contains("Trip"), "{code:02x?}: {ends:?}");
    }
}

#[test]
fn a_broken_stack_at_a_hit_fails_alike() {
    let absent = DATA + 0x8000 + 0x10;
    for code in
        [&[0x90u8, 0x50, 0x90][..], &[0xe8, 0, 0, 0, 0, 0x90], &[0x58, 0x90], &[0xc3], &[0x9c, 0x90], &[0xc9]]
    {
        for bits in [32, 64] {
            for ring in [0, 3] {
                for sp in [absent, 0x8000_0000_0000_0000, 4] {
                    let sp = if bits == 32 { sp & 0xffff_ffff } else { sp };
                    let setup = Setup::bits(bits).ring(ring).flags(0).pte(absent & !0xfff, 0).code(code);
                    let boot = || {
                        let mut guest = setup.boot();
                        guest.set(4, sp).set(5, sp);
                        guest
                    };
                    alike("stack", &boot, &every_byte(CODE, code.len()), 12);
                }
            }
        }
    }
}

#[test]
fn a_site_rewritten_while_it_was_disarmed_runs_what_is_there_when_armed_again() {
    for bits in [32, 64] {
        let setup = calls(bits, &|a| a.nop().unwrap());
        let mut guest = setup.boot();
        let mut probes = trapline_tests::interposer();
        for body in [BODY, [0x83, 0xc3, 0x10, 0x90, 0x90, 0xc3], [0x50, 0x58, 0xff, 0xc3, 0x90, 0xc3]] {
            let start = guest.m.snapshot();
            guest.m.write_physical(FUNCTION, &body);
            let plain = {
                let stop = guest.m.run(None, guest.base + 100);
                end(&guest, &stop)
            };
            guest.m.restore(&start).unwrap();
            guest.m.write_physical(FUNCTION, &body);
            let (program, places) = super::alike::observer(&guest, &[FUNCTION]);
            let id = probes.insert(guest.m.core_mut(), "a", program, places).unwrap();
            let limit = guest.base + 100;
            let stop = guest.m.run(Some(&mut probes as &mut dyn TrapInterposer), limit);
            assert_eq!(stop, Stop::Halted);
            assert_eq!(plain, end(&guest, &stop), "{bits} bits, {body:02x?}");
            probes.remove(guest.m.core_mut(), id);
            guest.m.restore(&start).unwrap();
        }
    }
}
