//! Hits in line: handlers and the guest see the same whether a site traps or not.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use iced_x86::code_asm::*;
use trapline_emu::{Core, Digest, Fault, Stop, Trap, TrapInterposer, Verdict};

const WIDTHS: [u32; 2] = [32, 64];
/// Never, and after these numbers of traps.
const AFTER: [u16; 4] = [0, 1, 2, 5];
const TIMES: u32 = 40;
/// Instructions that are run, at once or seven at a time.
const LENGTH: u64 = 21_000;
const HANDLER: u64 = DATA + 0x1000;

/// A handler's changes to the machine, by the number of the hit.
type Act = fn(&mut Core, u64);

/// Steps, or lets run in line where possible; records what it sees.
struct Seer {
    /// Address, count, EAX, flags of each hit.
    hits: Vec<(u64, u64, u64, u64)>,
    endings: Vec<(&'static str, u64)>,
    act: Act,
    /// The verdict for a hit in line.
    in_line: Verdict,
}

impl Seer {
    fn new(act: Act, in_line: Verdict) -> Self {
        Seer { hits: Vec::new(), endings: Vec::new(), act, in_line }
    }
}

impl TrapInterposer for Seer {
    fn trap(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        assert_eq!(core.env().eip(), trap.ip);
        let flags = core.eflags() & 0x8d5;
        self.hits.push((trap.ip, core.icount(), core.env().gpr(0), flags));
        (self.act)(core, self.hits.len() as u64);
        if trap.in_line { self.in_line } else { Verdict::Step }
    }
    fn faulted(&mut self, core: &mut Core) {
        self.endings.push(("faulted", core.icount()));
    }
    fn page_rewritten(&mut self, core: &mut Core, paddr: u64) {
        self.endings.push(("rewritten", core.icount() ^ paddr));
    }
}

/// Everything observable in a run.
#[derive(Debug, PartialEq)]
struct Seen {
    stop: Stop,
    digest: Digest,
    hits: Vec<(u64, u64, u64, u64)>,
    endings: Vec<(&'static str, u64)>,
}

fn seen(s: &Setup, sites: &[u64], after: u16, act: Act, verdict: Verdict, pieces: u64) -> (Seen, u64) {
    let mut g = s.boot();
    let mut seer = Seer::new(act, verdict);
    g.m.core_mut().set_in_line_after(after);
    for (n, &at) in sites.iter().enumerate() {
        g.m.core_mut().arm(at, &[0xcc], n as u32).unwrap();
    }
    let mut limit = g.base;
    let stop = loop {
        limit += pieces;
        let stop = g.m.run(Some(&mut seer), limit);
        if stop != Stop::Limit || limit >= g.base + LENGTH {
            break stop;
        }
    };
    let digest = g.m.digest();
    (Seen { stop, digest, hits: seer.hits, endings: seer.endings }, g.core().hits_in_line())
}

/// Asserts that the same is seen whenever the sites are first hit in line; returns the number of hits in line.
fn same(what: &str, s: &Setup, sites: &[u64], act: Act) -> u64 {
    let (trapped, none) = seen(s, sites, 0, act, Verdict::InLine, LENGTH);
    assert_eq!(none, 0, "{what}");
    let mut most = 0;
    for after in AFTER {
        for pieces in [LENGTH, 7] {
            let (now, in_line) = seen(s, sites, after, act, Verdict::InLine, pieces);
            assert_eq!(now, trapped, "{what}, after {after} traps, {pieces} instructions at a time");
            most = most.max(in_line);
        }
    }
    most
}

/// A loop: the instructions with an inner label, and what is in it.
fn looping(bits: u32, body: impl Fn(&mut CodeAssembler)) -> (Setup, Vec<u64>) {
    let s = Setup::bits(bits).asm(|a| {
        let mut again = a.create_label();
        a.mov(ebp, TIMES).unwrap();
        a.mov(esi, DATA as u32).unwrap();
        a.set_label(&mut again).unwrap();
        body(a);
        a.dec(ebp).unwrap();
        a.jnz(again).unwrap();
        a.hlt().unwrap();
    });
    let at = s.starts();
    (s, at)
}

fn mixed(bits: u32) -> (Setup, Vec<u64>) {
    looping(bits, |a| {
        a.add(eax, ebp).unwrap();
        a.nop().unwrap();
        a.xor(dword_ptr(esi), eax).unwrap();
        a.nop().unwrap();
        a.nop().unwrap();
        a.rcl(eax, 3).unwrap();
        a.cpuid().unwrap();
        a.adc(eax, ebp).unwrap();
        a.nop().unwrap();
        a.inc(ebx).unwrap();
        a.rdtsc().unwrap();
        a.movzx(ecx, byte_ptr(esi)).unwrap();
    })
}

fn nothing(_: &mut Core, _: u64) {}

#[test]
fn each_site_alone_and_all_of_them_are_hit_alike() {
    for bits in WIDTHS {
        let (s, at) = mixed(bits);
        let mut in_line = 0;
        for n in 0..at.len() - 1 {
            in_line += same(&format!("{bits}-bit, {:#x}", at[n]), &s, &at[n..=n], nothing);
        }
        assert!(in_line > u64::from(TIMES) * 3, "{bits}-bit: {in_line} in line");
        let all = same(&format!("{bits}-bit, all"), &s, &at[..at.len() - 1], nothing);
        assert!(all > u64::from(TIMES), "{bits}-bit: {all} in line");
    }
}

#[test]
fn a_probed_loop_has_the_digest_of_one_that_is_not() {
    for bits in WIDTHS {
        let (s, at) = mixed(bits);
        let (now, _) = seen(&s, &at[..at.len() - 1], 1, nothing, Verdict::InLine, LENGTH);
        assert_eq!(now.digest, unarmed(&s), "{bits}-bit");
    }
}

#[test]
fn what_a_handler_changes_has_changed_for_the_instruction() {
    const ACTS: [(&str, Act); 7] = [
        ("EAX", |core, n| core.env().set_gpr(0, n * 7)),
        ("flags", |core, n| {
            core.env().set_eflags(core.eflags() ^ if n.is_multiple_of(2) { 0x8d5 } else { 0 })
        }),
        ("TF", |core, n| {
            if n == 9 {
                core.env().set_eflags(core.eflags() | 0x100)
            }
        }),
        ("disarmed", |core, n| {
            if n == 20 {
                assert!(core.disarm(core.env().eip()));
            }
        }),
        ("armed beside", |core, n| {
            if n == 13 {
                core.arm(core.env().eip() + 1, &[0xcc], 99).unwrap();
            }
        }),
        ("text", |core, n| {
            // The instruction after the loop's first.
            if n == 11 {
                let at = CODE + 12;
                core.poke(at, &[0x90]).unwrap();
            }
        }),
        ("an interrupt", |core, n| {
            if n == 17 {
                core.raise_nmi();
            }
        }),
    ];
    for bits in WIDTHS {
        let (s, at) = mixed(bits);
        let s = s.gate(2, HANDLER, 0x8e00).gate(1, HANDLER, 0x8e00).asm_at(HANDLER, |a| {
            a.add(dword_ptr(DATA + 0x40), 1).unwrap();
            a.nop().unwrap();
            if bits == 64 { a.iretq().unwrap() } else { a.iretd().unwrap() }
        });
        for (what, act) in ACTS {
            for &site in &at[2..6] {
                same(&format!("{bits}-bit, {what}, {site:#x}"), &s, &[site], act);
            }
        }
    }
}

#[test]
fn a_block_that_begins_on_the_second_byte_of_a_jump_runs_what_the_guest_put_there() {
    for bits in WIDTHS {
        for often in [1, 3, 40] {
            let s = Setup::bits(bits).asm(|a| {
                let (mut again, mut join, mut past) = (a.create_label(), a.create_label(), a.create_label());
                a.mov(ebp, TIMES).unwrap();
                a.set_label(&mut again).unwrap();
                a.test(ebp, often - 1).unwrap();
                a.jnz(past).unwrap();
                a.inc(ecx).unwrap();
                a.jmp(join).unwrap();
                a.set_label(&mut past).unwrap();
                a.inc(ebx).unwrap();
                a.nop().unwrap();
                a.set_label(&mut join).unwrap();
                a.inc(edx).unwrap();
                a.dec(ebp).unwrap();
                a.jnz(again).unwrap();
                a.hlt().unwrap();
            });
            let code = &s.memory.last().unwrap().1;
            let nop = CODE + code.iter().position(|&b| b == 0x90).unwrap() as u64;
            same(&format!("{bits}-bit, {often}"), &s, &[nop], nothing);
        }
    }
}

#[test]
fn an_instruction_that_faults_in_line_faults_at_its_site() {
    let absent = DATA + 0x8000;
    for bits in WIDTHS {
        let (s, at) = looping(bits, |a| {
            a.inc(eax).unwrap();
            a.nop().unwrap();
            a.xor(edx, edx).unwrap();
            a.mov(ecx, ebp).unwrap();
            a.and(ecx, 3).unwrap();
            // #DE each fourth time.
            a.div(ecx).unwrap();
            // #PF each time.
            a.add(dword_ptr(absent), eax).unwrap();
            a.inc(ebx).unwrap();
        });
        // Handlers that skip the instruction: two and six bytes, or seven.
        let skip = |length: i32| {
            move |a: &mut CodeAssembler, error: bool| {
                if bits == 64 {
                    if error {
                        a.add(rsp, 8).unwrap();
                    }
                    a.add(qword_ptr(rsp), length).unwrap();
                    a.iretq().unwrap();
                } else {
                    if error {
                        a.add(esp, 4).unwrap();
                    }
                    a.add(dword_ptr(esp), length).unwrap();
                    a.iretd().unwrap();
                }
            }
        };
        let add = (at[9] - at[8]) as i32;
        let s = s.pte(absent, 0).gate(0, HANDLER, 0x8e00).gate(14, HANDLER + 0x80, 0x8e00);
        let s = s.asm_at(HANDLER, |a| skip(2)(a, false)).asm_at(HANDLER + 0x80, |a| skip(add)(a, true));
        for sites in [&at[7..8], &at[8..9], &at[7..9], &at[2..10]] {
            let what = format!("{bits}-bit, {sites:x?}");
            same(&what, &s, sites, nothing);
            let (now, _) = seen(&s, sites, 1, nothing, Verdict::InLine, LENGTH);
            let faults = now.endings.iter().filter(|e| e.0 == "faulted").count() as u32;
            let of = |site: usize, n: u32| if sites.contains(&at[site]) { n } else { 0 };
            assert_eq!(faults, of(7, TIMES / 4) + of(8, TIMES), "{what}");
        }
    }
}

#[test]
fn any_other_answer_to_a_hit_in_line_is_taken_as_that_to_a_trap() {
    for bits in WIDTHS {
        let (s, at) = mixed(bits);
        let sites = &at[9..13];
        let (stepped, in_line) = seen(&s, sites, 1, nothing, Verdict::Step, LENGTH);
        assert_eq!((&stepped, in_line), (&seen(&s, sites, 0, nothing, Verdict::Step, LENGTH).0, 0));
        let fault = Fault { vector: 0, error: None, cr2: None };
        for verdict in [Verdict::Raise(fault), Verdict::Declined] {
            // #DE, or #BP after the INT3, halts the guest.
            let now = seen(&s, &at[10..11], 1, nothing, verdict, LENGTH).0;
            assert_eq!((now.stop.clone(), now.hits.len()), (Stop::Halted, 2), "{bits}-bit {verdict:?}");
        }
        let mut g = s.boot();
        g.m.core_mut().set_in_line_after(1);
        g.m.core_mut().arm(at[10], &[0xcc], 0).unwrap();
        let mut nops = Nops::new();
        assert_eq!(run(&mut g, &mut nops), unarmed(&s), "{bits}-bit: emulated");
        assert_eq!(nops.hits, u64::from(TIMES));
    }
}

#[test]
fn a_slot_for_a_hit_in_line_ends_no_run_inside_of_it() {
    for bits in WIDTHS {
        let s = Setup::bits(bits).asm(|a| {
            let mut again = a.create_label();
            a.mov(ecx, TIMES).unwrap();
            a.set_label(&mut again).unwrap();
            a.add(ebx, ecx).unwrap();
            a.dec(ecx).unwrap();
            a.jnz(again).unwrap();
            a.hlt().unwrap();
        });
        let site = CODE + 5;
        let mut g = s.boot();
        g.m.core_mut().set_in_line_after(2);
        g.m.core_mut().arm(site, &[0xcc], 0).unwrap();
        // add ebx, ecx
        let slot = g.m.core_mut().take_slot(&[0x01, 0xcb], 2, site, bits).unwrap();
        let mut slots = Answers(|_: &mut Core, _: &Trap| Verdict::Slot(slot));
        let mut limit = g.base;
        let stop = loop {
            limit += 1;
            let stop = g.m.run(Some(&mut slots), limit);
            assert!((CODE..CODE + 0x40).contains(&g.ip()), "{bits}-bit: stopped at {:#x}", g.ip());
            if stop != Stop::Limit {
                break stop;
            }
        };
        assert_eq!((stop, g.gpr(3)), (Stop::Halted, u64::from(TIMES * (TIMES + 1) / 2)), "{bits}-bit");
        assert_eq!(g.m.digest(), unarmed(&s));
        // And in one go, where hits are in line.
        let mut g = s.boot();
        g.m.core_mut().set_in_line_after(2);
        g.m.core_mut().arm(site, &[0xcc], 0).unwrap();
        let slot = g.m.core_mut().take_slot(&[0x01, 0xcb], 2, site, bits).unwrap();
        let mut in_line = 0;
        let mut slots = Answers(|_: &mut Core, trap: &Trap| {
            in_line += u32::from(trap.in_line);
            Verdict::Slot(slot)
        });
        assert_eq!(run(&mut g, &mut slots), unarmed(&s));
        assert!(in_line > 0, "{bits}-bit: no hit in line");
    }
}
