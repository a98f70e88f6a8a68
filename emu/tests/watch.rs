//! Watches on a bare guest: which instructions hit, when the hits are reported, and that the guest cannot observe them.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use crate::watching::Watching;
use iced_x86::code_asm::*;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess};
use trapline_emu::{Core, Digest, Seg, Stop, Verdict, Watch, WatchAccess, WatchHit, WatchKind};

const WIDTHS: [u32; 2] = [32, 64];

fn write(low: u64, size: u64) -> Watch {
    Watch { kind: WatchKind::Write, low, high: low + size - 1 }
}

fn any(low: u64, size: u64) -> Watch {
    Watch { kind: WatchKind::ReadWrite, low, high: low + size - 1 }
}

fn execute(at: u64) -> Watch {
    Watch { kind: WatchKind::Execute, low: at, high: at }
}

fn ports(low: u64, high: u64) -> Watch {
    Watch { kind: WatchKind::Io, low, high }
}

/// Runs to the end with these watches, and asserts that the guest ended as without them.
fn run_with(
    s: &Setup,
    mut seen: Watching,
    prepare: impl Fn(&mut Core),
    watches: &[Watch],
) -> (Watching, Guest) {
    let mut plain = s.boot();
    let stop = plain.run();
    let mut g = s.boot();
    prepare(g.m.core_mut());
    watches.iter().enumerate().for_each(|(n, w)| g.m.core_mut().watch(n as u32, *w));
    assert_eq!(g.m.run(Some(&mut seen), g.base + 10_000_000), stop, "{}", g.core().dump_registers());
    assert_eq!((g.m.icount(), g.m.digest()), (plain.m.icount(), plain.m.digest()), "the guest noticed");
    (seen, g)
}

fn watched(s: &Setup, watches: &[Watch]) -> (Watching, Guest) {
    run_with(s, Watching::default(), |_| (), watches)
}

/// Access, address, size, and the low halves of the values, of each hit.
fn brief(seen: &Watching) -> Vec<(u32, WatchAccess, u64, u16, u64, u64)> {
    let low = |bytes: &[u8; 16]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    seen.hits.iter().map(|h| (h.id, h.access, h.address, h.size, low(&h.old), low(&h.new))).collect()
}

/// The accesses of an instruction by iced-x86, completed from the CPU state: address, size, whether it writes.
fn by_iced(core: &Core) -> Vec<(u64, u64, bool, bool)> {
    let (env, ip) = (core.env(), core.linear_ip());
    let mut bytes = [0; 15];
    core.peek_code(ip, &mut bytes);
    let i = Decoder::with_ip(core.code_bits(), &bytes, ip, DecoderOptions::NONE).decode();
    if i.has_rep_prefix() && env.gpr(1) == 0 {
        return Vec::new();
    }
    let mut factory = InstructionInfoFactory::new();
    let value = |r: iced_x86::Register| match r {
        r if r.is_segment_register() => 0,
        r => env.gpr(r.full_register().number()) & if r.size() == 4 { 0xffff_ffff } else { u64::MAX },
    };
    let used = factory.info(&i).used_memory().iter();
    let access = |m: &iced_x86::UsedMemory| {
        use OpAccess as A;
        let size = if m.memory_size().size() == 0 { i.memory_size() } else { m.memory_size() };
        let at = m.virtual_address(0, |r, _, _| Some(value(r))).unwrap();
        let reads = matches!(m.access(), A::Read | A::CondRead | A::ReadWrite | A::ReadCondWrite);
        let writes = matches!(m.access(), A::Write | A::CondWrite | A::ReadWrite | A::ReadCondWrite);
        (at, size.size() as u64, reads, writes)
    };
    used.map(access).collect()
}

/// The hits of `watches` on a guest that runs without them, one instruction at a time.
fn expected(s: &Setup, watches: &[Watch]) -> Vec<WatchHit> {
    let mut g = s.boot();
    let mut hits = Vec::new();
    loop {
        let (ip, accesses) = (g.ip(), by_iced(g.core()));
        let content = |g: &Guest, w: &Watch| {
            let mut bytes = [0; 16];
            assert!(g.core().ram().read(w.low, &mut bytes[..(w.high - w.low + 1) as usize]));
            bytes
        };
        let before: Vec<_> = watches.iter().map(|w| content(&g, w)).collect();
        let n = g.count() + 1;
        if g.run_to(n) != Stop::Limit {
            return hits;
        }
        for (id, w) in watches.iter().enumerate() {
            let meets = |a: &&(u64, u64, bool, bool)| a.0 <= w.high && a.0 + a.1 > w.low;
            let write = accesses.iter().filter(meets).find(|a| a.3);
            let read = accesses.iter().filter(meets).find(|a| a.2 && w.kind == WatchKind::ReadWrite);
            let Some(&(address, size, reads, writes)) = write.or(read) else { continue };
            let access = match (reads, writes) {
                (true, true) => WatchAccess::ReadWrite,
                (_, true) => WatchAccess::Write,
                _ => WatchAccess::Read,
            };
            let (old, new, len) = (before[id], content(&g, w), (w.high - w.low + 1) as u8);
            hits.push(WatchHit {
                id: id as u32,
                access,
                ip,
                address,
                size: size as u16,
                old,
                new,
                len,
                delivery: None,
            });
        }
    }
}

/// A program of random accesses around `DATA + 0x1000`, where a page ends.
fn program(rng: &mut Rng, a: &mut CodeAssembler, bits: u32) {
    a.mov(esp, (DATA + 0x1800) as u32).unwrap();
    for n in 0..300 {
        let at = DATA + 0xfc0 + rng.below(0x80);
        a.mov(ebx, at as u32).unwrap();
        let m = if bits == 64 { rbx + 0 } else { ebx + 0 };
        let imm = rng.next() as i32;
        match rng.below(20) {
            0 => a.mov(dword_ptr(m), imm).unwrap(),
            1 => a.mov(byte_ptr(m), imm & 0x7f).unwrap(),
            2 => a.mov(word_ptr(m), imm & 0x7fff).unwrap(),
            3 => a.mov(eax, dword_ptr(m)).unwrap(),
            4 => a.inc(dword_ptr(m)).unwrap(),
            5 => a.lock().add(word_ptr(m), cx).unwrap(),
            6 => a.xchg(dword_ptr(m), edx).unwrap(),
            7 => a.lock().cmpxchg(dword_ptr(m), ecx).unwrap(),
            8 if bits == 64 => a.push(qword_ptr(m)).unwrap(),
            8 => a.push(dword_ptr(m)).unwrap(),
            9 => a.cmp(dword_ptr(m), imm).unwrap(),
            10 => a.movzx(eax, byte_ptr(m)).unwrap(),
            11 => {
                a.mov(esp, (at & !7) as u32).unwrap();
                if bits == 64 { a.push(rax).unwrap() } else { a.push(eax).unwrap() }
            }
            12 => {
                a.mov(esp, (at & !7) as u32).unwrap();
                if bits == 64 { a.pop(rax).unwrap() } else { a.pop(eax).unwrap() }
            }
            13 => {
                let mut next = a.create_label();
                a.mov(esp, (at & !7) as u32).unwrap();
                a.call(next).unwrap();
                a.set_label(&mut next).unwrap();
                a.nop().unwrap();
            }
            14 | 15 => {
                a.mov(edi, at as u32).unwrap();
                a.mov(ecx, rng.below(9) as u32).unwrap();
                if n % 2 == 0 { a.rep().stosd().unwrap() } else { a.rep().stosb().unwrap() }
            }
            16 => {
                a.mov(edi, at as u32).unwrap();
                a.mov(esi, (DATA + 0xfc0 + rng.below(0x80)) as u32).unwrap();
                a.mov(ecx, rng.below(9) as u32).unwrap();
                a.rep().movsw().unwrap();
            }
            17 => a.fld(tbyte_ptr(m)).and_then(|()| a.fstp(tbyte_ptr(m))).unwrap(),
            18 => a.fild(dword_ptr(m)).and_then(|()| a.fstp(qword_ptr(m))).unwrap(),
            _ => a.setne(byte_ptr(m)).unwrap(),
        }
    }
    a.hlt().unwrap();
}

#[test]
fn random_programs_hit_where_their_operands_say() {
    for bits in WIDTHS {
        let mut total = 0;
        for seed in 1..=12 {
            let mut rng = Rng(seed * 0x9e37_79b9 + u64::from(bits));
            let content: Vec<u8> = (0..0x2000).map(|_| rng.next() as u8).collect();
            let s = Setup::bits(bits).asm(|a| program(&mut rng, a, bits)).at(DATA, &content);
            let watches: Vec<Watch> = (0..4)
                .map(|_| {
                    let size = 1 << rng.below(4);
                    let low = (DATA + 0xfc0 + rng.below(0x80)) & !(size - 1);
                    if rng.below(2) == 0 { write(low, size) } else { any(low, size) }
                })
                .collect();
            let wanted = expected(&s, &watches);
            let (seen, _) = watched(&s, &watches);
            for (n, (found, wanted)) in seen.hits.iter().zip(&wanted).enumerate() {
                assert_eq!(found, wanted, "{bits}-bit seed {seed} hit {n}");
            }
            assert_eq!(seen.hits.len(), wanted.len(), "{bits}-bit seed {seed}");
            total += wanted.len();
        }
        assert!(total > 500, "{bits}-bit: only {total} hits");
    }
}

#[test]
fn the_hit_comes_after_the_instruction_with_its_address() {
    for bits in WIDTHS {
        let s = Setup::bits(bits).asm(|a| {
            a.mov(eax, 7).unwrap();
            a.mov(dword_ptr(DATA + 4), eax).unwrap();
            a.nop().unwrap();
            a.hlt().unwrap();
        });
        let (seen, g) = watched(&s, &[write(DATA + 4, 4)]);
        assert_eq!(brief(&seen), [(0, WatchAccess::Write, DATA + 4, 4, 0, 7)]);
        let hit = seen.hits[0];
        assert_eq!(hit.ip, CODE + 5);
        assert_eq!(seen.after, [(g.ip() - 2, g.base + 2)], "after it, and it is counted");
    }
}

#[test]
fn an_access_that_faults_is_no_hit() {
    for bits in WIDTHS {
        let read_only = DATA | P | US;
        let s = Setup::bits(bits).pte(DATA, read_only).ring(3).asm(|a| {
            a.mov(eax, dword_ptr(DATA)).unwrap();
            a.mov(dword_ptr(DATA), eax).unwrap();
        });
        let (seen, g) = watched(&s, &[any(DATA, 4)]);
        assert_eq!(g.frame().vector, 14);
        assert_eq!(brief(&seen), [(0, WatchAccess::Read, DATA, 4, 0, 0)], "only the read");
    }
}

#[test]
fn a_store_whose_second_page_faults_is_no_hit() {
    for bits in WIDTHS {
        let s = Setup::bits(bits).pte(DATA + 0x1000, 0).asm(|a| {
            a.mov(dword_ptr(DATA + 0xffe), 0x0403_0201).unwrap();
        });
        let (seen, g) = watched(&s, &[any(DATA + 0xffc, 4)]);
        assert_eq!((g.frame().vector, g.frame().cr2), (14, DATA + 0x1000));
        assert_eq!(brief(&seen), []);
    }
}

#[test]
fn only_the_named_linear_address_is_watched() {
    const ALIAS: u64 = 0x7_0000;
    for bits in WIDTHS {
        let s = Setup::bits(bits).pte(ALIAS, DATA | P | RW | US).asm(|a| {
            a.mov(dword_ptr(ALIAS), 1).unwrap();
            a.mov(dword_ptr(DATA), 2).unwrap();
        });
        let s = Setup { memory: [s.memory.clone(), vec![(CODE + 0x40, vec![0xf4])]].concat(), ..s };
        let (seen, _) = watched(&s, &[write(DATA, 4)]);
        assert_eq!(brief(&seen), [(0, WatchAccess::Write, DATA, 4, 1, 2)], "{bits}-bit");
    }
}

#[test]
fn the_cpus_own_table_accesses_are_no_hits() {
    for bits in WIDTHS {
        let s = Setup::bits(bits).ring(3).asm(|a| {
            a.mov(eax, u32::from(USER_DS)).unwrap();
            a.mov(ds, eax).unwrap();
            a.int(0x80).unwrap();
        });
        let whole = |at: u64| any(at, 0x1000);
        let watches = [whole(GDT), whole(IDT), whole(TSS), whole(TABLES), whole(RSP0 - 0x1000)];
        let (seen, g) = watched(&s, &watches);
        assert_eq!(g.frame().vector, 0x80);
        // The handler's own PUSHF is an access; the frame below it is not.
        let at = g.gpr(4);
        let word = if bits == 64 { 8 } else { 4 };
        let hits: Vec<_> = seen.hits.iter().map(|h| (h.id, h.access, h.address, u64::from(h.size))).collect();
        assert_eq!(hits, [(4, WatchAccess::Write, at, word)]);
    }
}

#[test]
fn the_stack_that_iret_pops_is_accessed() {
    let s = Setup::bits32().asm(|a| {
        a.pushfd().unwrap();
        a.push(i32::from(CS0)).unwrap();
        a.push((CODE + 0x20) as i32).unwrap();
        a.iretd().unwrap();
    });
    let (seen, _) = watched(&s.at(CODE + 0x20, &[0xf4]), &[any(STACK0 - 4, 4)]);
    let kinds: Vec<_> = seen.hits.iter().map(|h| (h.access, h.address)).collect();
    assert_eq!(kinds, [(WatchAccess::Write, STACK0 - 4), (WatchAccess::Read, STACK0 - 4)]);
}

#[test]
fn each_iteration_of_a_repeated_instruction_is_an_access() {
    for bits in WIDTHS {
        let s = Setup::bits(bits).at(DATA + 0x100, b"abcdefgh").asm(|a| {
            a.mov(esi, (DATA + 0x100) as u32).unwrap();
            a.mov(edi, DATA as u32).unwrap();
            a.mov(ecx, 8).unwrap();
            a.rep().movsb().unwrap();
            a.hlt().unwrap();
        });
        let (seen, g) = watched(&s, &[write(DATA + 2, 2), any(DATA + 0x104, 1)]);
        let (w, r) = (WatchAccess::Write, WatchAccess::Read);
        assert_eq!(
            brief(&seen),
            [
                (0, w, DATA + 2, 1, 0, u64::from(b'c')),
                (0, w, DATA + 3, 1, u64::from(b'c'), u64::from_le_bytes(*b"cd\0\0\0\0\0\0")),
                (1, r, DATA + 0x104, 1, u64::from(b'e'), u64::from(b'e')),
            ]
        );
        assert!(seen.hits.iter().all(|h| h.ip == CODE + 15));
        assert_eq!(g.count(), 12);
    }
}

/// `inc dword [DATA]; hlt`, and its length.
fn increment(bits: u32) -> (Setup, u8) {
    let code = assemble(bits, CODE, |a| a.inc(dword_ptr(DATA)).unwrap());
    let length = code.len() as u8;
    (Setup::bits(bits).code(&[code, vec![0xf4]].concat()).at(DATA, &[41]), length)
}

#[test]
fn a_displaced_instruction_hits_with_the_address_of_its_site() {
    for bits in WIDTHS {
        let (s, length) = increment(bits);
        let copy = assemble(bits, CODE, |a| a.inc(dword_ptr(DATA)).unwrap());
        for out_of_line in [false, true] {
            let mut g = s.boot();
            g.m.core_mut().arm(CODE, &[0xcc], 3).unwrap();
            g.m.core_mut().watch(0, any(DATA, 4));
            let mut seen = Watching::default();
            if out_of_line {
                let slot = g.m.core_mut().take_slot(&copy, length, CODE, bits).unwrap();
                seen.verdict = Some(Verdict::Slot(slot));
            }
            assert_eq!(g.m.run(Some(&mut seen), u64::MAX), Stop::Halted);
            let mut plain = s.boot();
            assert_eq!(plain.run(), Stop::Halted);
            assert_eq!(g.m.digest(), plain.m.digest(), "{bits}-bit, out of line: {out_of_line}");
            assert_eq!(brief(&seen), [(0, WatchAccess::ReadWrite, DATA, 4, 41, 42)]);
            assert_eq!((seen.hits[0].ip, seen.after[0]), (CODE, (CODE + u64::from(length), g.base + 1)));
            assert_eq!(seen.traps, [(3, CODE, 3, g.base)]);
        }
    }
}

#[test]
fn a_repeated_instruction_out_of_line_hits_in_each_iteration() {
    for bits in WIDTHS {
        let code = [0xf3, 0xaa, 0xf4];
        let s = Setup::bits(bits).code(&code);
        let boot = || {
            let mut g = s.boot();
            g.set(0, 0x55).set(1, 4).set(7, DATA);
            g
        };
        let mut plain = boot();
        assert_eq!(plain.run(), Stop::Halted);
        let mut g = boot();
        g.m.core_mut().arm(CODE, &[0xcc], 0).unwrap();
        g.m.core_mut().watch(0, write(DATA + 1, 2));
        let slot = g.m.core_mut().take_slot(&code[..2], 2, CODE, bits).unwrap();
        let mut seen = Watching { verdict: Some(Verdict::Slot(slot)), ..Watching::default() };
        assert_eq!(g.m.run(Some(&mut seen), u64::MAX), Stop::Halted);
        assert_eq!((g.m.icount(), g.m.digest()), (plain.m.icount(), plain.m.digest()));
        let hits: Vec<_> = seen.hits.iter().map(|h| (h.ip, h.address, h.size)).collect();
        assert_eq!(hits, [(CODE, DATA + 1, 1), (CODE, DATA + 2, 1)]);
    }
}

#[test]
fn a_hit_comes_before_the_guests_own_single_step() {
    for bits in WIDTHS {
        let (s, length) = increment(bits);
        let (seen, g) = watched(&s.clone().flags(TF), &[any(DATA, 4)]);
        let f = g.frame();
        assert_eq!((f.vector, f.ip), (1, CODE + u64::from(length)));
        assert_eq!(brief(&seen), [(0, WatchAccess::ReadWrite, DATA, 4, 41, 42)]);
        assert_eq!(seen.after, [(CODE + u64::from(length), g.base + 1)]);
    }
}

#[test]
fn code_in_a_watched_page_runs_and_its_own_data_hits() {
    for bits in WIDTHS {
        let s = Setup::bits(bits).at(CODE + 0x100, &[5]).asm(|a| {
            let mut again = a.create_label();
            a.mov(ecx, 3).unwrap();
            a.set_label(&mut again).unwrap();
            a.add(byte_ptr(CODE + 0x100), 1).unwrap();
            a.movzx(eax, byte_ptr(CODE + 0x101)).unwrap();
            a.dec(ecx).unwrap();
            a.jne(again).unwrap();
            a.hlt().unwrap();
        });
        let (seen, g) = watched(&s, &[write(CODE + 0x100, 1), any(CODE + 0x101, 1)]);
        assert_eq!(g.mem(CODE + 0x100, 1), 8);
        assert_eq!(seen.hits.iter().map(|h| h.id).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 1]);
        assert_eq!(seen.hits.iter().filter(|h| h.id == 0).map(|h| h.new[0]).collect::<Vec<_>>(), [6, 7, 8]);
    }
}

#[test]
fn ports_are_watched_with_their_values() {
    for bits in WIDTHS {
        let s = Setup::bits(bits).at(DATA, b"xy").asm(|a| {
            a.mov(eax, 0x41).unwrap();
            a.out(0xe9, al).unwrap();
            a.mov(edx, 0xe9).unwrap();
            a.mov(esi, DATA as u32).unwrap();
            a.mov(ecx, 2).unwrap();
            a.rep().outsb().unwrap();
            a.in_(al, 0x21).unwrap();
            a.mov(edx, 0x21).unwrap();
            a.mov(edi, (DATA + 8) as u32).unwrap();
            a.insb().unwrap();
            a.hlt().unwrap();
        });
        let (seen, g) = watched(&s, &[ports(0xe8, 0xe9), ports(0x20, 0x21), any(DATA, 16)]);
        let value = u64::from(g.gpr(0) as u8);
        let (i, o) = (WatchAccess::In, WatchAccess::Out);
        let read = |n: u64| (2, WatchAccess::Read, DATA + n, 1, 0x7978, 0x7978);
        assert_eq!(
            brief(&seen),
            [
                (0, o, 0xe9, 1, 0x41, 0x41),
                (0, o, 0xe9, 1, 0x78, 0x78),
                read(0),
                (0, o, 0xe9, 1, 0x79, 0x79),
                read(1),
                (1, i, 0x21, 1, value, value),
                (1, i, 0x21, 1, value, value),
                (2, WatchAccess::Write, DATA + 8, 1, 0x7978, 0x7978),
            ]
        );
        assert_eq!(seen.hits[0].ip, CODE + 5);
    }
}

#[test]
fn execution_is_reported_before_the_instruction_and_once_for_a_repeated_one() {
    for bits in WIDTHS {
        let s = Setup::bits(bits).asm(|a| {
            a.mov(edi, DATA as u32).unwrap();
            a.mov(ecx, 3).unwrap();
            a.nop().unwrap();
            a.rep().stosb().unwrap();
            a.hlt().unwrap();
        });
        let (seen, g) = watched(&s, &[execute(CODE + 10), execute(CODE + 11), execute(CODE + 12)]);
        let at = |ip, id, n| (1, ip, id, g.base + n);
        // The machine offers each iteration; the interposer knows that only the first is a new hit.
        let traps = [at(CODE + 10, 0, 2), at(CODE + 11, 1, 3), at(CODE + 11, 1, 4), at(CODE + 11, 1, 5)];
        assert_eq!(seen.traps, traps, "{bits}-bit: none for the middle of an instruction");
        assert_eq!(seen.endings[..4], ["settled", "interrupted", "interrupted", "settled"]);
    }
}

#[test]
fn execution_of_a_faulting_instruction_is_reported_as_faulted() {
    for bits in WIDTHS {
        let s = Setup::bits(bits).pte(DATA, 0).asm(|a| {
            a.nop().unwrap();
            a.mov(eax, dword_ptr(DATA)).unwrap();
        });
        let (seen, g) = watched(&s, &[execute(CODE + 1)]);
        assert_eq!((g.frame().vector, g.frame().ip), (14, CODE + 1));
        assert_eq!((seen.traps.len(), seen.endings.first()), (1, Some(&"faulted")));
    }
}

#[test]
fn the_guests_own_breakpoint_registers_work_beside_watches() {
    for bits in WIDTHS {
        let wide = bits == 64;
        let s = Setup::bits(bits).asm(|a| {
            a.nop().unwrap();
            a.mov(dword_ptr(DATA), 1).unwrap();
        });
        let s = Setup { dr: Some((CODE + 1, 0x402)), ..s };
        let (seen, g) = watched(&s, &[execute(CODE + 1), any(DATA, 4), execute(CODE)]);
        let f = g.frame();
        assert_eq!((f.vector, f.ip, wide), (1, CODE + 1, g.wide), "a fault, before the instruction");
        assert_eq!(g.core().env().dr(6) & 0xf, 1);
        assert_eq!(g.core().env().dr(0), CODE + 1);
        assert_eq!(seen.hits, [], "the store has not happened");
        assert_eq!(seen.traps.iter().map(|t| t.1).collect::<Vec<_>>(), [CODE], "#DB comes first");
    }
}

#[test]
fn a_watch_that_ended_costs_and_reports_nothing() {
    let (s, _) = increment(64);
    let mut g = s.boot();
    for (id, w) in [any(DATA, 4), execute(CODE), ports(0, 0xffff)].into_iter().enumerate() {
        g.m.core_mut().watch(id as u32, w);
        assert!(g.m.core_mut().unwatch(id as u32, w.kind));
        assert!(!g.m.core_mut().unwatch(id as u32, w.kind));
    }
    let mut plain = s.boot();
    assert_eq!(plain.run(), Stop::Halted);
    let mut seen = Watching::default();
    assert_eq!(g.m.run(Some(&mut seen), u64::MAX), Stop::Halted);
    let steps = plain.m.counters().steps;
    assert_eq!((seen.hits.len(), seen.traps.len(), g.m.counters().steps), (0, 0, steps));
}

#[test]
fn only_accesses_to_the_watched_page_are_stepped() {
    for bits in WIDTHS {
        let s = Setup::bits(bits).asm(|a| {
            let mut again = a.create_label();
            a.mov(ecx, 1000).unwrap();
            a.set_label(&mut again).unwrap();
            a.inc(dword_ptr(DATA + 0x1000)).unwrap();
            a.mov(eax, dword_ptr(DATA)).unwrap();
            a.dec(ecx).unwrap();
            a.jne(again).unwrap();
            a.hlt().unwrap();
        });
        let steps = |watches: &[Watch]| {
            let mut g = s.boot();
            let before = g.m.core().watched_steps();
            watches.iter().for_each(|w| g.m.core_mut().watch(0, *w));
            assert_eq!(g.run(), Stop::Halted);
            g.m.core().watched_steps() - before
        };
        let none = steps(&[]);
        assert_eq!(steps(&[write(DATA + 8, 4)]), none, "reads of a page whose writes are watched");
        assert_eq!(steps(&[any(DATA + 0x2000, 4)]), none, "the next page");
        assert!(steps(&[any(DATA + 8, 4)]) >= none + 1000);
    }
}

/// Digest after a run that goes through a snapshot.
fn restored(s: &Setup, watches: &[Watch]) -> (Digest, Vec<WatchHit>) {
    let mut g = s.boot();
    watches.iter().enumerate().for_each(|(n, w)| g.m.core_mut().watch(n as u32, *w));
    let start = g.m.snapshot();
    let mut first = Watching::default();
    assert_eq!(g.m.run(Some(&mut first), u64::MAX), Stop::Halted);
    g.m.restore(&start).unwrap();
    let mut second = Watching::default();
    assert_eq!(g.m.run(Some(&mut second), u64::MAX), Stop::Halted);
    assert_eq!((first.hits.clone(), first.traps), (second.hits, second.traps));
    (g.m.digest(), first.hits)
}

#[test]
fn watches_stay_over_a_snapshot_and_tell_the_same_again() {
    for bits in WIDTHS {
        let (s, _) = increment(bits);
        let (digest, hits) = restored(&s, &[any(DATA, 4), execute(CODE)]);
        assert_eq!((digest, hits.len()), (restored(&s, &[]).0, 1));
    }
}

#[test]
fn a_load_of_ss_from_a_watched_page_keeps_its_interrupt_shadow() {
    let s = Setup::bits32().at(DATA, &DS0.to_le_bytes()).asm(|a| {
        a.mov(ss, word_ptr(DATA)).unwrap();
        a.mov(esp, STACK0 as u32).unwrap();
        a.hlt().unwrap();
    });
    let (seen, g) = watched(&s, &[any(DATA, 2)]);
    assert_eq!((seen.hits.len(), g.core().env().seg(Seg::Ss).selector), (1, DS0.into()));
}

#[test]
fn an_access_to_a_device_has_the_value_that_was_moved() {
    const APIC: u64 = DATA + 0x3000;
    for bits in WIDTHS {
        let s = Setup::bits(bits).pc().pte(APIC, 0xfee0_0000 | P | RW);
        let s = s.asm(|a| {
            // MOV is executed without the engine, the others by it.
            a.mov(eax, dword_ptr(APIC + 0x30)).unwrap();
            a.mov(dword_ptr(APIC + 0x80), 0x20).unwrap();
            a.imul_3(ecx, dword_ptr(APIC + 0x80), 3).unwrap();
            a.rol(dword_ptr(APIC + 0x80), 1).unwrap();
            a.hlt().unwrap();
        });
        let (seen, g) = watched(&s, &[any(APIC, 0x1000)]);
        let version = g.core().env().gpr(0);
        assert_eq!(version & 0xff, 0x14, "{version:#x}");
        use WatchAccess as A;
        let wanted = [
            (0, A::Read, APIC + 0x30, 4, version, version),
            (0, A::Write, APIC + 0x80, 4, 0x20, 0x20),
            (0, A::Read, APIC + 0x80, 4, 0x20, 0x20),
            (0, A::ReadWrite, APIC + 0x80, 4, 0x20, 0x40),
        ];
        assert_eq!(brief(&seen), wanted, "{bits} bits");
        // A range that holds a part of the register.
        let (seen, _) = watched(&s, &[any(APIC + 0x31, 2)]);
        let part = version >> 8 & 0xffff;
        assert_eq!(brief(&seen), [(0, A::Read, APIC + 0x30, 4, part, part)], "{bits} bits");
    }
}

#[test]
fn of_a_read_and_a_write_of_one_range_the_write_is_told_with_its_bytes() {
    for bits in WIDTHS {
        let wide = bits == 64;
        let word = u64::from(bits / 8);
        let s = Setup::bits(bits).asm(|a| {
            a.mov(dword_ptr(DATA + 0x10), 0x1234).unwrap();
            a.mov(esp, (DATA + 0x80) as u32).unwrap();
            if wide { a.push(qword_ptr(DATA + 0x10)) } else { a.push(dword_ptr(DATA + 0x10)) }.unwrap();
            a.hlt().unwrap();
        });
        let at = DATA + 0x80 - word;
        let (seen, _) = watched(&s, &[any(DATA, 0x100), write(at, word)]);
        let pushed: Vec<_> = brief(&seen).into_iter().filter(|hit| hit.2 == at).collect();
        use WatchAccess::Write;
        let size = word as u16;
        assert_eq!(pushed, [(0, Write, at, size, 0, 0x1234), (1, Write, at, size, 0, 0x1234)], "{bits} bits");
    }
}
