//! Pauses: that a run stops for its reader where it would have stopped if it stopped at each multiple, and nowhere else.

use crate::common::*;
use iced_x86::code_asm::*;
use std::num::NonZeroU64;
use trapline_emu::{Core, Digest, Reader, Stop, Trap, TrapInterposer, Verdict, Watch, WatchHit, WatchKind};

const WIDTHS: [u32; 2] = [32, 64];
const TIMES: u32 = 300;
const HANDLER: u64 = DATA + 0x1000;
const ABSENT: u64 = DATA + 0x5000;
const WORD: u64 = DATA + 0x40;

/// Leaves data for its reader at every `rate`-th event.
struct Leaves {
    told: u64,
    rate: u64,
    /// The counts at which it has left the waiting data.
    left: Vec<u64>,
}

impl Leaves {
    fn tell(&mut self, core: &Core) {
        self.told += 1;
        if self.told.is_multiple_of(self.rate) {
            self.left.push(core.icount());
        }
    }
}

impl TrapInterposer for Leaves {
    fn trap(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        self.tell(core);
        if trap.in_line { Verdict::InLine } else { Verdict::Step }
    }
    fn watched(&mut self, core: &mut Core, _: &WatchHit) {
        self.tell(core);
    }
    fn faulted(&mut self, core: &mut Core) {
        self.tell(core);
    }
    fn waits(&self, _: u64) -> bool {
        !self.left.is_empty()
    }
}

/// A read: its count, the counts that were left, and the length of the console.
type Read = (u64, Vec<u64>, usize);

/// A loop with repeated instructions, faults, output, and blocks of several lengths; where its instructions are.
fn program(bits: u32) -> (Setup, Vec<u64>) {
    let fault = |a: &mut CodeAssembler| {
        if bits == 64 {
            a.add(rsp, 8).unwrap();
            a.add(qword_ptr(rsp), 2).unwrap();
            a.nop().unwrap();
            a.iretq().unwrap();
        } else {
            a.add(esp, 4).unwrap();
            a.add(dword_ptr(esp), 2).unwrap();
            a.nop().unwrap();
            a.iretd().unwrap();
        }
    };
    let s = Setup::bits(bits).pte(ABSENT, 0).gate(14, HANDLER, 0x8e00).asm_at(HANDLER, fault).asm(|a| {
        let (mut again, mut quiet, mut whole) = (a.create_label(), a.create_label(), a.create_label());
        a.mov(ebp, TIMES).unwrap();
        a.set_label(&mut again).unwrap();
        a.inc(ebx).unwrap();
        a.add(eax, ebp).unwrap();
        a.nop().unwrap();
        a.mov(esi, WORD as u32).unwrap();
        a.add(dword_ptr(esi), eax).unwrap();
        a.test(ebp, 3).unwrap();
        a.jnz(quiet).unwrap();
        a.mov(al, 0x2e).unwrap();
        a.out(0xe9, al).unwrap();
        a.set_label(&mut quiet).unwrap();
        a.mov(edi, HANDLER as u32 + 0x400).unwrap();
        a.mov(ecx, ebp).unwrap();
        a.and(ecx, 0x3f).unwrap();
        a.rep().stosb().unwrap();
        a.nop().unwrap();
        a.test(ebp, 7).unwrap();
        a.jnz(whole).unwrap();
        a.mov(esi, ABSENT as u32).unwrap();
        a.nop().unwrap();
        a.xor(edx, eax).unwrap();
        a.mov(ecx, dword_ptr(esi)).unwrap();
        a.nop().unwrap();
        a.set_label(&mut whole).unwrap();
        a.dec(ebp).unwrap();
        a.jnz(again).unwrap();
        a.hlt().unwrap();
    });
    let at = s.starts();
    (s, at)
}

/// Runs to the end, with a pause wherever one is due: by the machine itself, or by stops at all multiples.
fn read(
    (s, sites, watched): (&Setup, &[u64], bool),
    (every, rate): (u64, u64),
    by_machine: bool,
) -> (Vec<Read>, u64, Digest) {
    let mut g = s.boot();
    g.m.core_mut().set_in_line_after(3);
    for (n, &at) in sites.iter().enumerate() {
        g.m.core_mut().arm(at, &[0xcc], n as u32).unwrap();
    }
    if watched {
        g.m.core_mut().watch(900, Watch { kind: WatchKind::Write, low: WORD, high: WORD + 3 });
    }
    let mut leaves = Leaves { told: 0, rate, left: Vec::new() };
    let (mut found, mut shown, mut stops) = (Vec::new(), 0, 0);
    let every = NonZeroU64::new(every).unwrap();
    loop {
        let limit = if by_machine {
            g.m.core_mut().pause_for(Some(Reader { every, shown }));
            u64::MAX
        } else {
            (g.m.icount() / every + 1) * every.get()
        };
        let stop = g.m.run(Some(&mut leaves), limit);
        stops += 1;
        let console = g.m.console().len();
        if stop != Stop::Limit {
            assert_eq!(stop, Stop::Halted);
            found.push((g.m.icount(), leaves.left, console));
            return (found, stops, g.m.digest());
        }
        if console != shown || !leaves.left.is_empty() {
            found.push((g.m.icount(), std::mem::take(&mut leaves.left), console));
            shown = console;
        } else {
            assert!(!by_machine, "nothing waits at {}", g.m.icount());
        }
    }
}

#[test]
fn a_run_pauses_where_something_waits_and_nowhere_else() {
    for bits in WIDTHS {
        let (s, at) = program(bits);
        let all = at[1..at.len() - 1].to_vec();
        let handler = vec![HANDLER, at[2]];
        let cases: [(&[u64], bool); 6] = [
            (&[], true),
            (&all, false),
            (&all, true),
            (&handler, true),
            (&at[3..4], false),
            (&at[12..14], true),
        ];
        for (sites, watched) in cases {
            for every in [1, 2, 3, 7, 13, 50, 97, 1_000] {
                for rate in [1, 2, 29, 1_000_000] {
                    let what =
                        format!("{bits}-bit, {sites:x?}, watched {watched}, every {every}, rate {rate}");
                    let exact = read((&s, sites, watched), (every, rate), false);
                    let paused = read((&s, sites, watched), (every, rate), true);
                    let differs = exact.0.iter().zip(&paused.0).find(|(a, b)| a != b);
                    assert_eq!(differs, None, "{what}");
                    assert_eq!((exact.0.len(), exact.2), (paused.0.len(), paused.2), "{what}");
                    assert!(paused.1 <= exact.1, "{what}");
                }
            }
        }
    }
}
