//! The guest's own breakpoints on data and ports (SDM volume 3, 17.2): what meets them, what #DB finds, what DR6 says.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use crate::watching::Watching;
use iced_x86::code_asm::*;
use trapline_emu::{Stop, Verdict, Watch, WatchKind};

const WIDTHS: [u32; 2] = [32, 64];
const WRITES: u64 = 1;
const PORTS: u64 = 2;
const ACCESSES: u64 = 3;
/// DR6: B0 to B3, BD, BS, BT.
const STATUS: u64 = 0xe00f;
const BS: u64 = 0x4000;
const DE: u64 = 8;
const OSFXSR: u64 = 0x200;

/// DR7 with breakpoint `n` enabled for its R/W field and a length in bytes.
fn control(n: u64, kind: u64, length: u64) -> u64 {
    let field = match length {
        8 => 2,
        length => length - 1,
    };
    0x400 | 1 << (2 * n) | (kind | field << 2) << (16 + 4 * n)
}

/// A guest whose code ends in INT 40h, with breakpoint 0.
fn guest(bits: u32, ring: u8, dr: (u64, u64), write: impl FnOnce(&mut CodeAssembler)) -> Setup {
    let s = Setup::bits(bits).ring(ring).asm(|a| {
        write(a);
        a.int(0x40).unwrap();
    });
    Setup { dr: Some(dr), cr4: s.cr4 | OSFXSR, ..s }
}

/// Address and DR6's status where #DB came, or `None` when INT 40h was reached.
fn trapped(s: &Setup) -> Option<(u64, u64)> {
    let mut g = s.boot();
    let caught = g.caught();
    match caught.vector {
        1 => Some((caught.ip, g.core().env().dr(6) & STATUS)),
        0x40 => None,
        other => panic!("vector {other}\n{}", g.core().dump_registers()),
    }
}

type Code = fn(&mut CodeAssembler, u32);
/// Instructions with the operand at `DATA`, which EBX, ESI and EDI hold: whether they read and write it.
const INSTRUCTIONS: &[(&str, Code, bool, bool)] = &[
    ("mov byte", |a, _| a.mov(byte_ptr(DATA), 5).unwrap(), false, true),
    ("mov word", |a, _| a.mov(word_ptr(DATA), 5).unwrap(), false, true),
    ("mov dword", |a, _| a.mov(dword_ptr(DATA), ecx).unwrap(), false, true),
    ("mov from", |a, _| a.mov(ecx, dword_ptr(DATA)).unwrap(), true, false),
    ("movzx", |a, _| a.movzx(ecx, byte_ptr(DATA)).unwrap(), true, false),
    ("cmp", |a, _| a.cmp(dword_ptr(DATA), 5).unwrap(), true, false),
    ("inc", |a, _| a.inc(dword_ptr(DATA)).unwrap(), true, true),
    ("lock add", |a, _| a.lock().add(word_ptr(DATA), cx).unwrap(), true, true),
    ("xchg", |a, _| a.xchg(dword_ptr(DATA), ecx).unwrap(), true, true),
    ("cmpxchg that fails", |a, _| a.cmpxchg(dword_ptr(DATA), ecx).unwrap(), true, true),
    ("setcc", |a, _| a.sete(byte_ptr(DATA)).unwrap(), false, true),
    ("rcl", |a, _| a.rcl(dword_ptr(DATA), 3).unwrap(), true, true),
    ("movsd", |a, _| a.movsd().unwrap(), true, true),
    ("stosb", |a, _| a.stosb().unwrap(), false, true),
    ("lodsd", |a, _| a.lodsd().unwrap(), true, false),
    ("scasd", |a, _| a.scasd().unwrap(), true, false),
    ("fstp", |a, _| a.fstp(qword_ptr(DATA)).unwrap(), false, true),
    ("movups", |a, _| a.movups(xmmword_ptr(DATA), xmm0).unwrap(), false, true),
    ("movups from", |a, _| a.movups(xmm0, xmmword_ptr(DATA)).unwrap(), true, false),
    (
        "push of memory",
        |a, bits| {
            let m = DATA;
            if bits == 64 { a.push(qword_ptr(m)).unwrap() } else { a.push(dword_ptr(m)).unwrap() }
        },
        true,
        false,
    ),
    ("lea", |a, _| a.lea(ecx, dword_ptr(DATA)).unwrap(), false, false),
    (
        "neighbours",
        |a, _| {
            a.mov(dword_ptr(DATA + 4), 5).unwrap();
            a.mov(dword_ptr(DATA - 4), 5).unwrap();
            a.mov(ecx, dword_ptr(DATA + 0x100)).unwrap();
        },
        false,
        false,
    ),
];

#[test]
fn an_instruction_traps_after_it_has_written_or_read() {
    for bits in WIDTHS {
        for ring in [0, 3] {
            for (kind, (name, code, reads, writes)) in
                [WRITES, ACCESSES].into_iter().flat_map(|kind| INSTRUCTIONS.iter().map(move |i| (kind, *i)))
            {
                let s = guest(bits, ring, (DATA, control(0, kind, 4)), |a| {
                    a.mov(esi, DATA as u32).unwrap();
                    a.mov(edi, DATA as u32).unwrap();
                    code(a, bits);
                    a.nop().unwrap();
                });
                let expected = (writes || reads && kind == ACCESSES).then(|| (s.starts()[3], 1));
                assert_eq!(trapped(&s), expected, "{bits}-bit ring {ring} {name}, R/W {kind}");
            }
        }
    }
}

#[test]
fn the_stack_of_an_instruction_is_data_and_that_of_an_interrupt_is_not() {
    let accesses: [(&str, Code, bool, bool); 6] = [
        ("push", |a, _| a.push(5).unwrap(), false, true),
        ("pushf", |a, bits| if bits == 64 { a.pushfq().unwrap() } else { a.pushfd().unwrap() }, false, true),
        ("call", |a, _| a.call(CODE + 0x20).unwrap(), false, true),
        (
            "pop",
            |a, bits| {
                if bits == 64 {
                    a.add(rsp, -8).unwrap()
                } else {
                    a.add(esp, -4).unwrap()
                }
                if bits == 64 { a.pop(rcx).unwrap() } else { a.pop(ecx).unwrap() }
            },
            true,
            false,
        ),
        (
            "ret",
            |a, bits| {
                if bits == 64 {
                    a.add(rsp, -8).unwrap()
                } else {
                    a.add(esp, -4).unwrap()
                }
                a.ret().unwrap();
            },
            true,
            false,
        ),
        ("int", |a, _| a.int(0x40).unwrap(), false, false),
    ];
    for bits in WIDTHS {
        let word = u64::from(bits / 8);
        for (name, code, reads, writes) in accesses {
            for kind in [WRITES, ACCESSES] {
                // Where RET goes, and CALL: another INT 40h.
                let s = guest(bits, 0, (DATA, control(0, kind, word)), |a| {
                    a.mov(esp, (DATA + word) as u32).unwrap();
                    code(a, bits);
                })
                .at(CODE + 0x20, &[0xcd, 0x40])
                .at(DATA, &(CODE + 0x20).to_le_bytes()[..word as usize]);
                let hit = trapped(&s);
                let expected = writes || reads && kind == ACCESSES;
                assert_eq!(hit.map(|h| h.1), expected.then_some(1), "{bits}-bit {name}, R/W {kind}");
                if matches!(name, "call" | "ret") && expected {
                    assert_eq!(hit.map(|h| h.0), Some(CODE + 0x20), "{bits}-bit {name}: after the branch");
                }
            }
        }
    }
}

/// One access under random breakpoints.
struct Trial {
    at: u64,
    size: u64,
    write: bool,
    dr: [u64; 4],
    enabling: u64,
}

impl Trial {
    fn new(rng: &mut Rng, bits: u32) -> Self {
        let dr = [0; 4].map(|_: u64| DATA + 0xff0 + rng.below(0x20));
        let fields = |n| {
            let kind = [WRITES, ACCESSES][rng.below(2) as usize];
            (rng.below(4) << (2 * n)) | (kind | rng.below(4) << 2) << (16 + 4 * n)
        };
        let enabling = 0x400 | (0..4).map(fields).fold(0, |all, one| all | one);
        let size = 1 << rng.below(if bits == 64 { 4 } else { 3 });
        Trial { at: DATA + 0xff0 + rng.below(0x20), size, write: rng.below(2) == 0, dr, enabling }
    }

    /// DR6's condition bits by the manual's tables 17-1 and 17-2; 0 when there is no trap.
    fn expected(&self) -> u64 {
        let mut met = 0;
        for n in 0..4 {
            let fields = self.enabling >> (16 + 4 * n);
            let length = [1, 2, 8, 4][(fields >> 2 & 3) as usize];
            let low = self.dr[n] / length * length;
            let inside = (self.at..self.at + self.size).any(|byte| (low..low + length).contains(&byte));
            if inside && (self.write || fields & 3 == ACCESSES) {
                met |= 1 << n;
            }
        }
        let enabled = |n: &u64| self.enabling >> (2 * n) & 3 != 0;
        if (0..4).filter(enabled).any(|n| met >> n & 1 != 0) { met } else { 0 }
    }

    fn assemble(&self, a: &mut CodeAssembler, bits: u32, result: u64) {
        let registers = [dr0, dr1, dr2, dr3];
        let mut debug = |to, value: u64| {
            a.mov(eax, value as u32).unwrap();
            if bits == 64 { a.mov(to, rax).unwrap() } else { a.mov(to, eax).unwrap() }
        };
        debug(dr7, 0x400);
        (0..4).for_each(|n| debug(registers[n], self.dr[n]));
        debug(dr7, self.enabling);
        a.xor(ebp, ebp).unwrap();
        let at = self.at;
        match (self.write, self.size) {
            (true, 1) => a.mov(byte_ptr(at), cl).unwrap(),
            (true, 2) => a.mov(word_ptr(at), cx).unwrap(),
            (true, 4) => a.mov(dword_ptr(at), ecx).unwrap(),
            (true, _) => a.mov(qword_ptr(at), rcx).unwrap(),
            (false, 1) => a.mov(cl, byte_ptr(at)).unwrap(),
            (false, 2) => a.mov(cx, word_ptr(at)).unwrap(),
            (false, 4) => a.mov(ecx, dword_ptr(at)).unwrap(),
            (false, _) => a.mov(rcx, qword_ptr(at)).unwrap(),
        }
        a.mov(dword_ptr(result), ebp).unwrap();
    }
}

/// A program of trials; its handler of #DB adds DR6's status, and 100h, to EBP. Results lie at `RESULTS`.
fn trials(bits: u32, seed: u64) -> (Setup, Vec<Trial>) {
    let mut rng = Rng(seed);
    let all: Vec<_> = (0..400).map(|_| Trial::new(&mut rng, bits)).collect();
    let s = Setup::bits(bits).gate(1, HANDLER, 0x8e00).asm_at(HANDLER, |a| {
        if bits == 64 {
            a.mov(rdx, dr6).unwrap()
        } else {
            a.mov(edx, dr6).unwrap()
        }
        a.and(edx, STATUS as i32).unwrap();
        if bits == 64 {
            a.lea(ebp, dword_ptr(rbp + rdx + 0x100)).unwrap()
        } else {
            a.lea(ebp, dword_ptr(ebp + edx + 0x100)).unwrap()
        }
        if bits == 64 { a.iretq().unwrap() } else { a.iretd().unwrap() }
    });
    let s = s.asm(|a| {
        all.iter().enumerate().for_each(|(n, t)| t.assemble(a, bits, RESULTS + 4 * n as u64));
        a.hlt().unwrap();
    });
    (s, all)
}

const HANDLER: u64 = 0x7_0000;
const RESULTS: u64 = 0x6_0000;

#[test]
fn lengths_alignment_and_enable_bits_of_four_breakpoints() {
    for bits in WIDTHS {
        let (s, all) = trials(bits, 7);
        let mut g = s.boot();
        assert_eq!(g.run(), Stop::Halted, "{}", g.core().dump_registers());
        let mut hits = 0;
        for (n, t) in all.iter().enumerate() {
            let met = t.expected();
            let expected = if met == 0 { 0 } else { 0x100 + met };
            hits += u64::from(met != 0);
            let at = format!(
                "{bits}-bit: {:x} size {} write {} dr {:x?} dr7 {:x}",
                t.at, t.size, t.write, t.dr, t.enabling
            );
            assert_eq!(g.mem(RESULTS + 4 * n as u64, 4), expected, "{at}");
        }
        assert!((50..350).contains(&hits), "{hits}");
    }
}

#[test]
fn where_the_run_is_cut_watched_or_restored_changes_nothing() {
    for bits in WIDTHS {
        let (s, _) = trials(bits, 8);
        let mut plain = s.boot();
        assert_eq!(plain.run(), Stop::Halted);
        let end = plain.count();

        let mut cut = s.boot();
        for n in 1..end {
            assert_eq!(cut.run_to(n), Stop::Limit);
        }
        assert_eq!(cut.run(), Stop::Halted);
        assert_eq!((cut.count(), cut.m.digest()), (end, plain.m.digest()), "{bits}-bit, one by one");

        let mut watched = s.boot();
        let watch = Watch { kind: WatchKind::ReadWrite, low: DATA + 0xff0, high: DATA + 0x100f };
        watched.m.core_mut().watch(0, watch);
        let mut seen = Watching::default();
        assert_eq!(watched.m.run(Some(&mut seen), u64::MAX), Stop::Halted);
        assert_eq!((watched.count(), watched.m.digest()), (end, plain.m.digest()), "{bits}-bit, watched");
        assert!(seen.hits.len() >= 350, "{}: Trapline's own watch reports them all", seen.hits.len());

        let mut back = s.boot();
        let first = back.m.snapshot();
        assert_eq!(back.run_to(end / 2), Stop::Limit);
        let half = back.m.snapshot();
        for _ in 0..2 {
            assert_eq!(back.run(), Stop::Halted);
            assert_eq!((back.count(), back.m.digest()), (end, plain.m.digest()), "{bits}-bit, restored");
            back.m.restore(&half).unwrap();
        }
        back.m.restore(&first).unwrap();
        assert_eq!(back.run(), Stop::Halted);
        assert_eq!((back.count(), back.m.digest()), (end, plain.m.digest()), "{bits}-bit, from the first");
    }
}

#[test]
fn a_probe_on_an_instruction_that_traps_changes_nothing() {
    for bits in WIDTHS {
        for (name, code, _, _) in INSTRUCTIONS {
            let s = guest(bits, 0, (DATA, control(0, ACCESSES, 4)), |a| {
                a.mov(esi, DATA as u32).unwrap();
                a.mov(edi, DATA as u32).unwrap();
                code(a, bits);
            });
            let (site, next) = (s.starts()[2], s.starts()[3]);
            let mut plain = s.boot();
            let caught = plain.caught();
            for slot in [false, true] {
                let mut g = s.boot();
                g.m.core_mut().arm(site, &[0xcc], 1).unwrap();
                let verdict = if slot && bits == 32 {
                    let mut bytes = vec![0; (next - site) as usize];
                    g.core().peek(site, &mut bytes).unwrap();
                    let length = bytes.len() as u8;
                    Verdict::Slot(g.m.core_mut().take_slot(&bytes, length, site, bits).unwrap())
                } else {
                    Verdict::Step
                };
                let mut probe = Nops { verdict, ..Nops::new() };
                assert_eq!(g.m.run(Some(&mut probe), u64::MAX), Stop::Halted);
                assert_eq!((probe.hits, g.frame()), (1, caught.clone()), "{bits}-bit {name}, slot {slot}");
                assert_eq!(g.m.digest(), plain.m.digest(), "{bits}-bit {name}, slot {slot}");
            }
        }
    }
}

#[test]
fn a_repeated_instruction_traps_after_the_iteration() {
    for bits in WIDTHS {
        for (kind, watched, left) in
            [(WRITES, DATA + 8, 2), (ACCESSES, DATA + 0x108, 2), (WRITES, DATA + 16, 0)]
        {
            let s = guest(bits, 0, (watched, control(0, kind, 4)), |a| {
                a.mov(esi, (DATA + 0x100) as u32).unwrap();
                a.mov(edi, DATA as u32).unwrap();
                a.mov(ecx, 5).unwrap();
                a.rep().movsd().unwrap();
            })
            .at(DATA + 0x100, &[0x11; 20]);
            let (site, next) = (s.starts()[3], s.starts()[4]);
            let mut g = s.boot();
            let caught = g.caught();
            let ip = if left == 0 { next } else { site };
            assert_eq!((caught.vector, caught.ip, g.gpr(1)), (1, ip, left), "{bits}-bit R/W {kind}");
            assert_eq!(g.mem(DATA + 16 - 4 * left, 4), 0x1111_1111, "the iteration is done");
            assert!(left == 0 || g.mem(DATA + 20 - 4 * left, 4) == 0, "the next is not");
            assert_eq!(g.core().env().dr(6) & STATUS, 1);
        }
    }
}

#[test]
fn with_the_trap_flag_there_is_one_trap_for_both() {
    for bits in WIDTHS {
        let s = guest(bits, 3, (DATA, control(0, WRITES, 1)), |a| a.mov(byte_ptr(DATA), 1).unwrap());
        let next = s.starts()[1];
        assert_eq!(trapped(&s), Some((next, 1)), "{bits}-bit");
        assert_eq!(trapped(&s.clone().flags(TF)), Some((next, BS | 1)), "{bits}-bit");
        let s = guest(bits, 3, (DATA, control(0, WRITES, 1)), |a| a.mov(cl, byte_ptr(DATA)).unwrap());
        assert_eq!(trapped(&s.flags(TF)).map(|t| t.1), Some(BS), "{bits}-bit, a read");
    }
}

#[test]
fn a_faulting_instruction_meets_no_breakpoint() {
    for bits in WIDTHS {
        // The store is to the next page too, which is not there.
        let s = guest(bits, 0, (DATA + 0xffc, control(0, WRITES, 4)), |a| {
            a.mov(dword_ptr(DATA + 0xffe), 1).unwrap();
        });
        let mut g = s.pte(DATA + 0x1000, 0).boot();
        assert_eq!((g.caught().vector, g.frame().cr2), (14, DATA + 0x1000), "{bits}-bit");
        assert_eq!(g.core().env().dr(6) & STATUS, 0);
    }
}

#[test]
fn ports_are_met_with_de_only() {
    for bits in WIDTHS {
        let cases: [(Code, u64, bool); 5] = [
            (|a, _| a.in_(al, 0x80).unwrap(), 0x80, true),
            (|a, _| a.out(0x80, al).unwrap(), 0x80, true),
            (|a, _| a.out(0x7e, eax).unwrap(), 0x80, true),
            (|a, _| a.in_(al, 0x83).unwrap(), 0x81, true),
            (|a, _| a.in_(al, 0x84).unwrap(), 0x80, false),
        ];
        for (code, port, meets) in cases {
            let s = guest(bits, 0, (port, control(0, PORTS, 4)), |a| code(a, bits));
            assert_eq!(trapped(&s), None, "{bits}-bit port {port:x} without DE");
            let s = Setup { cr4: s.cr4 | DE, ..s };
            assert_eq!(trapped(&s), meets.then(|| (s.starts()[1], 1)), "{bits}-bit port {port:x}");
        }
    }
}

#[test]
fn a_page_is_slow_only_while_a_breakpoint_is_enabled() {
    for bits in WIDTHS {
        let steps = |dr7_value: u64| {
            let s = guest(bits, 0, (DATA + 0x800, dr7_value), |a| {
                let mut again = a.create_label();
                a.mov(ecx, 1000).unwrap();
                a.set_label(&mut again).unwrap();
                a.inc(dword_ptr(DATA)).unwrap();
                a.dec(ecx).unwrap();
                a.jne(again).unwrap();
            });
            let mut g = s.boot();
            let before = g.m.core().watched_steps();
            assert_eq!(g.caught().vector, 0x40);
            g.m.core().watched_steps() - before
        };
        let plain = steps(0x400);
        assert_eq!(steps(control(0, WRITES, 4) & !0xff), plain, "{bits}-bit, not enabled");
        assert!(steps(control(0, WRITES, 4)) >= plain + 1000, "{bits}-bit, enabled");
    }
}

#[test]
fn execute_breakpoints_come_and_go_with_snapshots() {
    for bits in WIDTHS {
        let s = Setup::bits(bits).asm(|a| {
            a.mov(eax, (CODE + 17) as u32).unwrap();
            if bits == 64 {
                a.mov(dr0, rax).unwrap()
            } else {
                a.mov(dr0, eax).unwrap()
            }
            a.mov(eax, 0x402).unwrap();
            if bits == 64 {
                a.mov(dr7, rax).unwrap()
            } else {
                a.mov(dr7, eax).unwrap()
            }
            a.nop().unwrap();
            a.nop().unwrap();
            a.nop().unwrap();
            a.int(0x40).unwrap();
        });
        let site = s.starts()[5];
        let mut g = s.boot();
        let unarmed = g.m.snapshot();
        assert_eq!(g.run_to(4), Stop::Limit);
        let armed = g.m.snapshot();
        for _ in 0..2 {
            let caught = g.caught();
            assert_eq!((caught.vector, caught.ip), (1, site), "{bits}-bit, armed");
            g.m.restore(&unarmed).unwrap();
            // The same code without arming it.
            g.core().env().set_eip(s.starts()[4]);
            assert_eq!(g.caught().vector, 0x40, "{bits}-bit, not armed");
            g.m.restore(&armed).unwrap();
        }
    }
}
