//! Instructions that could show the host: a table of them, each in every position of a block.
//!
//! Each row says what its instruction must give on the announced CPU. It runs at the start, in the middle and at the
//! end of a block, before each instruction that the machine executes itself, in both rings and widths, and each of
//! these with the host stopping, stepping, watching and patching around it. Every run is made three times, while the
//! host's clock advances: all of them must end in the same state, and a time that is read must be the count of the
//! instruction itself.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::*;
use crate::watching::Watching;
use iced_x86::Decoder;
use iced_x86::code_asm::*;
use trapline_emu::{Snapshot, Stop, TrapInterposer, Verdict, Watch, WatchKind};

/// The required result of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gives {
    /// EDX:EAX is virtual time.
    Time,
    /// The same, and ECX is TSC_AUX, on x86-64; #UD on IA32.
    TimeAndAux,
    /// Virtual time in ring 0, #GP in ring 3.
    PrivilegedTime,
    /// #UD in every ring.
    Undefined,
    /// #GP(0) in every ring.
    Refused,
    /// This value in AX; the rest of EAX is undefined.
    Ax(u64),
    /// A value specific to the machine; it must be the same every time.
    Same,
}
use Gives::*;

const TSC_MSR: u32 = 0x10;
/// Small, since it may be the count of a repeated instruction.
const AUX: u64 = 5;

/// Name, bytes, ECX before it, result. EDI points to scratch memory.
const TABLE: &[(&str, &[u8], u32, Gives)] = &[
    ("rdtsc", &[0x0f, 0x31], 0, Time),
    ("rdtsc with 66", &[0x66, 0x0f, 0x31], 0, Time),
    ("rdtsc with f3", &[0xf3, 0x0f, 0x31], 0, Time),
    ("lock rdtsc", &[0xf0, 0x0f, 0x31], 0, Undefined),
    ("rdtscp", &[0x0f, 0x01, 0xf9], 0, TimeAndAux),
    ("rdtscp with 66", &[0x66, 0x0f, 0x01, 0xf9], 0, TimeAndAux),
    ("rdtscp with f2", &[0xf2, 0x0f, 0x01, 0xf9], 0, TimeAndAux),
    ("rdtscp with f3", &[0xf3, 0x0f, 0x01, 0xf9], 0, TimeAndAux),
    ("rdtscp with 67", &[0x67, 0x0f, 0x01, 0xf9], 0, TimeAndAux),
    ("lock rdtscp", &[0xf0, 0x0f, 0x01, 0xf9], 0, Undefined),
    ("rdmsr of the TSC", &[0x0f, 0x32], TSC_MSR, PrivilegedTime),
    ("rdmsr of MPERF", &[0x0f, 0x32], 0xe7, Refused),
    ("rdmsr of APERF", &[0x0f, 0x32], 0xe8, Refused),
    ("rdmsr of a counter", &[0x0f, 0x32], 0xc1, Refused),
    ("rdmsr of the temperature", &[0x0f, 0x32], 0x19c, Refused),
    ("rdpmc", &[0x0f, 0x33], 0, Refused),
    ("rdrand eax", &[0x0f, 0xc7, 0xf0], 0, Undefined),
    ("rdrand ax", &[0x66, 0x0f, 0xc7, 0xf0], 0, Undefined),
    ("rdseed eax", &[0x0f, 0xc7, 0xf8], 0, Undefined),
    ("rdpid eax", &[0xf3, 0x0f, 0xc7, 0xf8], 0, Undefined),
    ("xgetbv", &[0x0f, 0x01, 0xd0], 0, Undefined),
    ("xgetbv of what is in use", &[0x0f, 0x01, 0xd0], 1, Undefined),
    ("xsetbv", &[0x0f, 0x01, 0xd1], 0, Undefined),
    ("xsave", &[0x0f, 0xae, 0x27], 0, Undefined),
    ("xrstor", &[0x0f, 0xae, 0x2f], 0, Undefined),
    ("xsaveopt", &[0x0f, 0xae, 0x37], 0, Undefined),
    ("xsavec", &[0x0f, 0xc7, 0x27], 0, Undefined),
    ("xsaves", &[0x0f, 0xc7, 0x2f], 0, Undefined),
    ("xrstors", &[0x0f, 0xc7, 0x1f], 0, Undefined),
    ("rdfsbase eax", &[0xf3, 0x0f, 0xae, 0xc0], 0, Undefined),
    ("rdgsbase eax", &[0xf3, 0x0f, 0xae, 0xc8], 0, Undefined),
    ("wrfsbase eax", &[0xf3, 0x0f, 0xae, 0xd0], 0, Undefined),
    ("wrgsbase eax", &[0xf3, 0x0f, 0xae, 0xd8], 0, Undefined),
    ("rdpkru", &[0x0f, 0x01, 0xee], 0, Undefined),
    ("wrpkru", &[0x0f, 0x01, 0xef], 0, Undefined),
    ("monitor", &[0x0f, 0x01, 0xc8], 0, Undefined),
    ("mwait", &[0x0f, 0x01, 0xc9], 0, Undefined),
    ("monitorx", &[0x0f, 0x01, 0xfa], 0, Undefined),
    ("mwaitx", &[0x0f, 0x01, 0xfb], 0, Undefined),
    ("umonitor", &[0xf3, 0x0f, 0xae, 0xf0], 0, Undefined),
    ("umwait", &[0xf2, 0x0f, 0xae, 0xf0], 0, Undefined),
    ("tpause", &[0x66, 0x0f, 0xae, 0xf0], 0, Undefined),
    ("serialize", &[0x0f, 0x01, 0xe8], 0, Undefined),
    ("clac", &[0x0f, 0x01, 0xca], 0, Undefined),
    ("stac", &[0x0f, 0x01, 0xcb], 0, Undefined),
    ("encls", &[0x0f, 0x01, 0xcf], 0, Undefined),
    ("enclu", &[0x0f, 0x01, 0xd7], 0, Undefined),
    ("xend", &[0x0f, 0x01, 0xd5], 0, Undefined),
    ("xtest", &[0x0f, 0x01, 0xd6], 0, Undefined),
    ("xbegin", &[0xc7, 0xf8, 0, 0, 0, 0], 0, Undefined),
    ("vmcall", &[0x0f, 0x01, 0xc1], 0, Undefined),
    ("vmread", &[0x0f, 0x78, 0xc0], 0, Undefined),
    ("vmrun", &[0x0f, 0x01, 0xd8], 0, Undefined),
    ("vmmcall", &[0x0f, 0x01, 0xd9], 0, Undefined),
    ("skinit", &[0x0f, 0x01, 0xde], 0, Undefined),
    ("invlpga", &[0x0f, 0x01, 0xdf], 0, Undefined),
    ("invpcid", &[0x66, 0x0f, 0x38, 0x82, 0x07], 0, Undefined),
    ("clzero", &[0x0f, 0x01, 0xfc], 0, Undefined),
    ("rdpru", &[0x0f, 0x01, 0xfd], 0, Undefined),
    ("getsec", &[0x0f, 0x37], 0, Undefined),
    ("rsm", &[0x0f, 0xaa], 0, Undefined),
    ("fxsave", &[0x0f, 0xae, 0x07], 0, Same),
    ("fnsave", &[0xdd, 0x37], 0, Same),
    ("fnstenv", &[0xd9, 0x37], 0, Same),
    ("smsw eax", &[0x0f, 0x01, 0xe0], 0, Ax(0x31)),
    ("sldt eax", &[0x0f, 0x00, 0xc0], 0, Ax(0)),
    ("str eax", &[0x0f, 0x00, 0xc8], 0, Ax(TSS_SEL as u64)),
    ("sgdt", &[0x0f, 0x01, 0x07], 0, Same),
    ("sidt", &[0x0f, 0x01, 0x0f], 0, Same),
    ("cpuid", &[0x0f, 0xa2], 0, Same),
];

/// Instructions that read the time are tried in all combinations, the others in some.
const EVERYWHERE: &[&str] = &["rdtsc", "rdtscp", "rdmsr of the TSC"];

/// The instructions that follow: the machine executes most of them itself, so that the block is cut there.
const NEXT: &[(&str, &[u8])] = &[
    ("nothing of its own", &[0x90]),
    ("cpuid", &[0x0f, 0xa2]),
    ("syscall", &[0x0f, 0x05]),
    ("sysenter", &[0x0f, 0x34]),
    ("in", &[0xe4, 0x61]),
    ("out", &[0xe6, 0x80]),
    ("hlt", &[0xf4]),
    ("invlpg", &[0x0f, 0x01, 0x3f]),
    ("mov from cr2", &[0x0f, 0x20, 0xd3]),
    ("mov from dr7", &[0x0f, 0x21, 0xfb]),
    ("clts", &[0x0f, 0x06]),
    ("rdpmc", &[0x0f, 0x33]),
    ("loope", &[0xe1, 0x00]),
    ("setz [edi]", &[0x0f, 0x94, 0x07]),
    ("rep stosb", &[0xf3, 0xaa]),
    ("int", &[0xcd, 0x40]),
    ("rdtsc", &[0x0f, 0x31]),
];

/// Where the instruction begins: what lies before it.
const BEFORE: &[(&str, &[u8])] = &[
    ("first in its block", &[0xeb, 0x00]),
    ("in the middle", &[0x90, 0x90, 0x90]),
    ("after a clock", &[0x90, 0x0f, 0x31, 0x90]),
    ("after sti", &[0x90, 0xfb]),
    // pushf; or dword [esp], 100h; popf
    ("with TF set", &[0x9c, 0x81, 0x0c, 0x24, 0, 1, 0, 0, 0x9d]),
];

/// What the host does during the run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Host {
    Nothing,
    /// Stops after every instruction.
    Steps,
    /// Stops before the instruction of this number.
    StopsAt(u64),
    /// Watches the execution of the instruction of this number.
    Watches(u64),
    /// Has a patch on the instruction of this number.
    Patches(u64),
}

const START: u64 = CODE + 0x400;
const ENTRY: u64 = DATA + 0x2000;
const ROOM: u64 = DATA + 0x1000;

struct Rig {
    g: Guest,
    start: Snapshot,
    bits: u32,
    ring: u8,
}

impl Rig {
    fn new(bits: u32, ring: u8) -> Self {
        let mut setup = Setup::bits(bits).ring(0).at(ENTRY, &[0xfa, 0xf4]);
        setup.tss_limit = 0x2067;
        let setup = setup.asm(|a| {
            let mut write = |msr: u32, low: u32, high: u32| {
                a.mov(ecx, msr).unwrap();
                a.mov(eax, low).unwrap();
                a.mov(edx, high).unwrap();
                a.wrmsr().unwrap();
            };
            write(0x174, CS0.into(), 0);
            write(0x175, STACK0 as u32, 0);
            write(0x176, ENTRY as u32, 0);
            if bits == 64 {
                write(0xc000_0081, 0, u32::from(CS0));
                write(0xc000_0082, ENTRY as u32, 0);
                write(0xc000_0103, AUX as u32, 0);
            }
            a.mov(edi, ROOM as u32).unwrap();
            let (code, stack) = match (ring, bits) {
                (0, _) => (CS0, STACK0),
                (_, 32) => (USER_CS32, STACK3),
                _ => (USER_CS64, STACK3),
            };
            if ring == 3 {
                a.mov(eax, u32::from(USER_DS)).unwrap();
                a.mov(ds, eax).unwrap();
                a.mov(es, eax).unwrap();
            }
            if bits == 64 || ring == 3 {
                a.push(i32::from(if ring == 3 { USER_DS } else { DS0 })).unwrap();
                a.push(stack as i32).unwrap();
            }
            a.push(0x3002).unwrap();
            a.push(i32::from(code)).unwrap();
            a.push(START as i32).unwrap();
            if bits == 64 { a.iretq().unwrap() } else { a.iretd().unwrap() }
        });
        let n = instructions(bits, &setup.memory.last().unwrap().1);
        let mut g = setup.boot();
        assert_eq!(g.run_to(n), Stop::Limit);
        assert_eq!((g.ip(), g.core().env().cpl()), (START, ring), "{}", g.core().dump_registers());
        let start = g.m.snapshot();
        Rig { g, start, bits, ring }
    }

    /// Runs `code`, whose instructions lie at `places`, to its end.
    fn run(&mut self, code: &[u8], places: &[u64], ecx_is: u32, host: Host) {
        let g = &mut self.g;
        g.m.restore(&self.start).unwrap();
        g.m.write_physical(START, code);
        g.set(1, ecx_is.into());
        let from = g.m.icount();
        let mut watching = Watching::default();
        let at = |n: u64| places[(n as usize).min(places.len() - 1)];
        match host {
            Host::Watches(n) => {
                let watch = Watch { kind: WatchKind::Execute, low: at(n), high: at(n) };
                g.m.core_mut().watch(1, watch);
            }
            Host::Patches(n) => g.m.core_mut().arm(at(n), &[0xcc], 1).unwrap(),
            _ => {}
        }
        watching.verdict = Some(Verdict::Step);
        let mut stop = Stop::Limit;
        let mut limit = from;
        while stop == Stop::Limit && limit < from + 100 {
            limit = match host {
                Host::Steps => limit + 1,
                Host::StopsAt(n) if limit < from + n => from + n,
                _ => from + 100,
            };
            stop = g.m.run(Some(&mut watching as &mut dyn TrapInterposer), limit);
        }
        assert_eq!(stop, Stop::Halted, "{}", g.core().dump_registers());
        match host {
            Host::Watches(_) => assert!(g.m.core_mut().unwatch(1, WatchKind::Execute)),
            Host::Patches(n) => assert!(g.m.core_mut().disarm(at(n))),
            _ => {}
        }
    }

    /// Checks the state after an instruction that began with `count` instructions before it.
    fn check(&self, what: &str, row: &(&str, &[u8], u32, Gives), at: u64, count: u64, tf: bool, kept: bool) {
        let g = &self.g;
        let gives = match row.3 {
            TimeAndAux if self.bits == 32 => Undefined,
            PrivilegedTime if self.ring == 0 => Time,
            PrivilegedTime => Refused,
            other => other,
        };
        let faults = match gives {
            Undefined => Some(6),
            Refused => Some(13),
            _ => None,
        };
        if let Some(vector) = faults {
            let frame = g.frame();
            assert_eq!((frame.vector, frame.ip, frame.error.unwrap_or(0)), (vector, at, 0), "{what}");
            assert_eq!(g.m.icount(), count + 3, "{what}");
            return;
        }
        if tf {
            let frame = g.frame();
            assert_eq!((frame.vector, frame.ip), (1, at + row.1.len() as u64), "{what}");
            assert_eq!(g.m.icount(), count + 4, "{what}");
        }
        if !kept && !tf {
            return;
        }
        match gives {
            Time | TimeAndAux => {
                assert_eq!(g.gpr(2) << 32 | g.gpr(0), count, "{what}");
                if gives == TimeAndAux {
                    assert_eq!(g.gpr(1), AUX, "{what}");
                }
            }
            Ax(value) => assert_eq!(g.gpr(0) & 0xffff, value, "{what}"),
            _ => {}
        }
    }
}

/// Everything that the host does around instruction number `n`; the first five are done for each row.
fn hosts(n: u64) -> [Host; 11] {
    [
        Host::Nothing,
        Host::Steps,
        Host::StopsAt(n + 1),
        Host::Watches(n),
        Host::Patches(n),
        Host::StopsAt(n),
        Host::StopsAt(n + 2),
        Host::Watches(n - 1),
        Host::Watches(n + 1),
        Host::Patches(n - 1),
        Host::Patches(n + 1),
    ]
}

/// The code of a case, the addresses of its instructions, and how many come before the one that is tried.
fn case(bits: u32, ring: u8, before: &[u8], tried: &[u8], next: &[u8]) -> (Vec<u8>, Vec<u64>, u64) {
    let halt: &[u8] = if ring == 3 { &[0xcd, 0x40] } else { &[0xf4] };
    let lead: Vec<u64> = Decoder::with_ip(bits, before, START, 0).iter().map(|i| i.ip()).collect();
    let at = START + before.len() as u64;
    let after = at + tried.len() as u64;
    let places = [&lead[..], &[at, after, after + next.len() as u64]].concat();
    ([before, tried, next, halt].concat(), places, lead.len() as u64)
}

/// Tries every row in every position of this width and ring; returns the number of runs.
fn table(bits: u32, ring: u8) -> usize {
    let mut rig = Rig::new(bits, ring);
    let base = rig.g.m.icount();
    let mut runs = 0;
    let all = TABLE.iter().flat_map(|row| BEFORE.iter().map(move |before| (row, before)));
    for (row, (before, lead)) in all {
        let everywhere = EVERYWHERE.contains(&row.0);
        for (next, follows) in if everywhere { NEXT } else { &NEXT[..3] } {
            let (code, places, n) = case(bits, ring, lead, row.1, follows);
            let tf = lead.last() == Some(&0x9d);
            // The result is where the code stored it at the end, unless another instruction has overwritten it.
            let kept =
                !matches!(*next, "cpuid" | "in" | "syscall" | "rdtsc" | "loope" | "rep stosb" | "rdpmc");
            let (mut digest, mut first) = (None, None);
            for &host in &hosts(n)[..if everywhere { 11 } else { 5 }] {
                for time in 0..2 {
                    let what = format!(
                        "{bits}-bit ring {ring}: {} {before}, then {next}, {host:?}, run {time}",
                        row.0
                    );
                    rig.run(&code, &places, row.2, host);
                    rig.check(&what, row, places[n as usize], base + n, tf, kept);
                    let now = (rig.g.m.icount(), rig.g.core().dump_registers());
                    assert_eq!(*first.get_or_insert_with(|| now.clone()), now, "{what}");
                    if time == 0 {
                        let now = rig.g.m.digest();
                        assert_eq!(*digest.get_or_insert(now), now, "{what}");
                    }
                    runs += 1;
                }
            }
        }
    }
    runs
}

#[test]
fn nothing_of_the_host_is_seen_in_64_bit_ring_0() {
    assert!(table(64, 0) > 14_000);
}

#[test]
fn nothing_of_the_host_is_seen_in_64_bit_ring_3() {
    assert!(table(64, 3) > 14_000);
}

#[test]
fn nothing_of_the_host_is_seen_in_32_bit_ring_0() {
    assert!(table(32, 0) > 14_000);
}

#[test]
fn nothing_of_the_host_is_seen_in_32_bit_ring_3() {
    assert!(table(32, 3) > 14_000);
}

#[test]
fn a_probed_clock_in_a_loop_gives_what_an_unprobed_one_gives() {
    for (bits, clock) in [(32, &[0x0f, 0x31][..]), (64, &[0x0f, 0x31]), (64, &[0x0f, 0x01, 0xf9])] {
        // mov esi, 200; jmp; again: nop; clock; add ebp, eax; cpuid; clock; add ebp, eax; dec esi; jnz again; hlt
        let body = [&[0x90], clock, &[0x01, 0xc5, 0x0f, 0xa2], clock, &[0x01, 0xc5, 0xff, 0xce]].concat();
        let back = -(body.len() as i8) - 2;
        let code = [&[0xbe, 200, 0, 0, 0, 0xeb, 0][..], &body, &[0x75, back as u8, 0xf4]].concat();
        let setup = Setup::bits(bits).code(&code);
        let plain = unarmed(&setup);
        for offset in [7, 8, 8 + clock.len(), 10 + clock.len(), 12 + clock.len()] {
            for (after, verdict) in [(0, Verdict::Step), (1, Verdict::InLine), (5, Verdict::InLine)] {
                let mut g = setup.boot();
                g.m.core_mut().set_in_line_after(after);
                g.m.core_mut().arm(CODE + offset as u64, &[0xcc], 1).unwrap();
                let mut probe = Watching { verdict: Some(verdict), ..Watching::default() };
                assert_eq!(run(&mut g, &mut probe), plain, "{bits}-bit {clock:x?} at {offset}, {verdict:?}");
                assert_eq!(probe.traps.len(), 200);
            }
        }
    }
}
